"""An unknown name is answered with the one that was probably meant, at a price that is bounded."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from placement.http.registry import registry_of
from placement.storage import tables
from placement.storage.database import Database
from tests.client import Client
from tests.conftest import application_on
from tests.kubernetes import node_manifests, pod_manifest
from tests.server import BACKENDS

CLUSTER = "/ext/v1/clusters/meant"


@pytest.fixture(scope="module", params=BACKENDS)
def api(request: pytest.FixtureRequest) -> Iterator[Client]:
    with application_on(request.param) as application:
        yield filled(Client(application.test_client()))


def filled(api: Client) -> Client:
    """Return the service, with a cluster."""
    assert api.put(CLUSTER, {}).status_code < 300
    rows = tuple((cpu, cpu // 2, 0, 0) for cpu in range(64))
    for node in ("worker-1", "worker-2", "spare"):
        made = api.put(f"{CLUSTER}/nodes/{node}", node_manifests(node, rows=rows))
        assert made.status_code < 300, made.text
    for name in ("team-1/web-0", "team-2/web-0", "team-2/api-0", "team-3/web-0", "team-4/web-0"):
        made = api.put(f"{CLUSTER}/pods/{name}", pod_manifest("1", "64Mi"))
        assert made.status_code < 300, made.text
    return api


def suggestion(answer: Any) -> str | None:
    found: str | None = answer.json["errors"][0]["suggestion"]
    return found


@contextmanager
def statements(api: Client) -> Iterator[list[str]]:
    """The statements that the database gets."""
    engine, seen = registry_of(api.http.application)[Database].engine, list[str]()

    def note(*given: Any) -> None:
        seen.append(given[2])

    sa.event.listen(engine, "before_cursor_execute", note)
    try:
        yield seen
    finally:
        sa.event.remove(engine, "before_cursor_execute", note)


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/ext/v1/clusters/maent/nodes", "meant"),
        (f"{CLUSTER}/nodes/workr-2", "worker-2"),
        (f"{CLUSTER}/nodes/nothing-like-it", None),
        (f"{CLUSTER}/pods/team-2/ap-0", "team-2/api-0"),
        # Pods of the namespace come first; those that are called so elsewhere are three at most.
        (f"{CLUSTER}/pods/team-2/web-1", "team-2/web-0"),
        (f"{CLUSTER}/pods/default/web-0", "team-1/web-0"),
    ],
)
def test_the_closest_name_is_suggested(api: Client, path: str, meant: str | None):
    answer = api.get(path)
    assert answer.status_code == 404
    assert suggestion(answer) == meant
    assert answer.json["errors"][0]["detail"].count("team-") <= 4


def test_of_many_names_the_ones_that_begin_alike_are_compared(api: Client):
    names = [f"CUSTOM_MANY_{number}" for number in range(1000, 7000)]
    with registry_of(api.http.application)[Database].write() as transaction:
        transaction.execute(sa.insert(tables.traits), [{"name": name} for name in names])
    query = "/ext/v1/allocation_candidates?resources=VCPU:1&required="
    assert suggestion(api.get(f"{query}CUSTOM_MANY_6543X")) == "CUSTOM_MANY_6543"


def test_a_name_as_long_as_no_name_is_answered_without(api: Client):
    answer = api.get(f"/ext/v1/allocation_candidates?resources=VCPU:1&cluster={'m' * 60_000}")
    assert (answer.status_code, suggestion(answer)) == (400, None)


@pytest.mark.parametrize("name", ["mea\0nt", "mea\ud800nt", "mea\nt", "%", "_", ""])
def test_what_can_be_no_name_is_answered_without(api: Client, name: str):
    body = {"flavor": {"vcpus": 1, "memory_mb": 64}, "cluster": name}
    answer = api.post("/ext/v1/flavors/candidates", body)
    assert (answer.status_code in (400, 404), suggestion(answer)) == (True, None), answer.text


def test_removing_what_is_gone_looks_nothing_up(api: Client):
    with statements(api) as seen:
        assert suggestion(api.delete(f"{CLUSTER}/pods/team-2/ap-0")) is None
    assert not [each for each in seen if "LIKE" in each]


def test_a_name_is_looked_up_once_for_all_members_and_few_are(api: Client):
    claim = {"project_id": "p", "user_id": "u", "consumer_type": "INSTANCE"}
    for trait, most in ((lambda _: "CUSTOM_UNKNOWN", 1), (lambda at: f"CUSTOM_UNKNOWN_{at}", 5)):
        members = [{"query": f"resources=VCPU:1&required={trait(at)}", "count": 1} for at in range(8)]
        with statements(api) as seen:
            answer = api.post("/ext/v1/claims", {**claim, "members": members})
        assert [each["status"] for each in answer.json["members"]] == [400] * 8
        assert answer.json["members"][0]["error"]["field"] == "/members/0/query"
        assert len([each for each in seen if "LIKE" in each]) == most
