"""Claims are decided alike and raise generations alike, whichever way they are written."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import sqlalchemy as sa

from placement.allocations.statements import consumers
from placement.allocations.statements.consumers import AttributeRegistry, ConsumerAttributes
from placement.storage import tables
from placement.storage.backends.postgresql import PostgreSQL
from placement.storage.backends.sqlite import SQLite
from placement.storage.database import Database
from tests.client import Client, detail
from tests.kubernetes import CLUSTER, cluster_of, pod_manifest

# Four units are in use already, where that is possible.
INVENTORIES = {
    "room": {"total": 10},
    "reserved": {"total": 10, "reserved": 3},
    "ratio": {"total": 4, "allocation_ratio": 2.5},
    "units": {"total": 20, "min_unit": 2, "max_unit": 8, "step_size": 2},
}


def consumer_that_holds(api: Client, other: str) -> str:
    held = str(uuid.uuid4())
    assert api.claim({other: {"DISK_GB": 1}}, held).status_code == 204
    return held


def status_of(api: Client, consumer: str, resources: dict, generation: int | None) -> int:
    """What a claim is answered; what it got is given back."""
    answer = api.put(f"/allocations/{consumer}", Client.allocations(resources, generation))
    if answer.status_code == 204:
        assert api.delete(f"/allocations/{consumer}").status_code == 204
    return int(answer.status_code)


@pytest.mark.parametrize("name", INVENTORIES)
def test_by_one_statement_or_by_many(shared: Client, name: str):
    root = shared.provider(f"alike-{name}-{uuid.uuid4()}")
    other = shared.provider(f"other-{name}-{uuid.uuid4()}", DISK_GB=1000)
    given = {"resource_class": "VCPU", **INVENTORIES[name]}
    assert shared.post(f"/resource_providers/{root}/inventories", given).status_code == 201
    assert shared.claim({root: {"VCPU": 4}}, str(uuid.uuid4())).status_code == 204
    found = []
    for amount in range(1, 12):
        wanted = {root: {"VCPU": amount}, other: {"DISK_GB": 1}}
        fresh = status_of(shared, str(uuid.uuid4()), wanted, None)
        again = status_of(shared, consumer_that_holds(shared, other), wanted, 1)
        assert fresh == again, amount
        found.append(fresh)
    assert set(found) == {204, 409}, "some fit and some do not, or this would show nothing"


_OWNER = {"project_id": "p", "user_id": "u", "consumer_type": "INSTANCE"}


def generation(api: Client, provider: str) -> int:
    found: int = api.get(f"/resource_providers/{provider}").json["generation"]
    return found


def new() -> str:
    return str(uuid.uuid4())


def test_claims_of_many_callers_at_the_same_time(api: Client):
    host = api.provider("host", VCPU=100)
    before = generation(api, host)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: api.claim({host: {"VCPU": 1}}, new()), range(24)))
    assert [answer.status_code for answer in answers] == [204] * 24
    assert generation(api, host) == before + 24


def test_claims_of_the_best_at_the_same_time(api: Client):
    host = api.provider("host", VCPU=100)
    before = generation(api, host)
    bodies = [{"consumer_uuid": new(), **_OWNER, "query": "resources=VCPU:1"} for _ in range(24)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda body: api.post("/ext/v1/claims", body), bodies))
    assert [answer.status_code for answer in answers] == [201] * 24
    assert generation(api, host) == before + 24


def test_one_request_for_many_consumers_counts_once(api: Client):
    hosts = [api.provider(name, VCPU=100) for name in ("first", "second")]
    before = [generation(api, host) for host in hosts]
    both = {host: {"VCPU": 1} for host in hosts}
    wanted = {new(): Client.allocations(both) for _ in range(3)}
    assert api.post("/allocations", wanted).status_code == 204
    assert [generation(api, host) for host in hosts] == [each + 1 for each in before]
    members: dict[str, Any] = {**_OWNER, "query": "resources=VCPU:1&in_tree=" + hosts[0]}
    answer = api.post("/ext/v1/claims", {**members, "members": [{"consumer_uuid": new()} for _ in range(5)]})
    assert [member["status"] for member in answer.json["members"]] == [201] * 5
    assert [generation(api, host) for host in hosts] == [before[0] + 2, before[1] + 1]


def test_each_pod_counts(api: Client):
    cluster_of(api, "n1")
    (root,) = (
        each["uuid"]
        for each in api.get("/resource_providers").json["resource_providers"]
        if each["parent_provider_uuid"] is None
    )
    before = generation(api, root)
    for number in range(4):
        name = f"p{number}"
        answer = api.put(f"{CLUSTER}/pods/default/{name}", pod_manifest("1", name=name, uid=new()))
        assert answer.status_code == 201, answer.text
    assert generation(api, root) == before + 4


CONSUMER = "00000000-0000-4000-8000-0000000000cc"


@pytest.fixture
def host(api: Client, database: Database) -> str:
    """A host, and the consumer at generation 7 that has nothing of it."""
    host = api.provider("host", VCPU=4)
    AttributeRegistry(database).register([("project", "project"), ("user", "user")])
    with database.write() as transaction:
        consumers.create(transaction, [ConsumerAttributes(CONSUMER, "project", "user", None)])
        transaction.execute(sa.update(tables.consumers).values(generation=7))
    return host


def claim(api: Client, **changed: str) -> Any:
    wanted = {"consumer_uuid": CONSUMER, "project_id": "project", "user_id": "user"}
    return api.post(
        "/ext/v1/claims", {**wanted, "consumer_type": "INSTANCE", "query": "resources=VCPU:1", **changed}
    )


def test_an_idle_consumer_gets_the_best_candidate(api, host):
    answer = claim(api)
    assert answer.status_code == 201, answer.text
    assert answer.json["consumer_generation"] == 8
    assert api.get(f"/allocations/{CONSUMER}").json == {
        "allocations": {host: {"generation": 2, "resources": {"VCPU": 1}}},
        "project_id": "project",
        "user_id": "user",
        "consumer_generation": 8,
        "consumer_type": "INSTANCE",
    }
    assert claim(api).status_code == 200


@pytest.mark.parametrize("label", ["project_id", "user_id"])
def test_an_idle_consumer_of_somebody_else_is_refused_at_once(api, host, label):
    answer = claim(api, **{label: str(uuid.uuid4())})
    assert answer.status_code == 409, answer.text
    assert "belongs to project project and user user" in detail(answer)
    assert api.get(f"/allocations/{CONSUMER}").json["allocations"] == {}


@pytest.mark.parametrize("connection_url", ["postgresql"], indirect=True)
def test_lost_while_the_labels_are_registered(database: Database, api: Client):
    host = api.provider("host", VCPU=1)
    ended = []

    def end(connection: sa.Connection, _cursor: Any, statement: str, *_: Any) -> None:
        if "INSERT INTO projects" in statement and not ended:
            driver: Any = connection.connection.dbapi_connection
            ended.append(driver.get_backend_pid())
            with database.read() as other:
                other.execute(sa.select(sa.func.pg_terminate_backend(ended[0])))

    sa.event.listen(database.engine, "before_cursor_execute", end)
    assert api.claim({host: {"VCPU": 1}}).status_code == 204
    assert ended


def test_statements_are_sent_only_where_they_exist(api: Client, database: Any, monkeypatch: Any):
    kind = type(database.backend)
    asked: list[str] = []
    for name in ("claim_at_once", "place_at_once"):
        monkeypatch.setattr(kind, name, _noting(asked, name, getattr(kind, name)))
    host = api.provider("host", VCPU=8)
    assert api.claim({host: {"VCPU": 1}}, str(uuid.uuid4())).status_code == 204
    several = {str(uuid.uuid4()): Client.allocations({host: {"VCPU": 1}}) for _ in range(2)}
    assert api.post("/allocations", several).status_code == 204
    cluster_of(api, "n1")
    assert api.put(f"{CLUSTER}/pods/default/p", pod_manifest("1")).status_code == 201
    wanted = {
        PostgreSQL: ["claim_at_once", "claim_at_once", "place_at_once"],
        SQLite: ["claim_at_once", "claim_at_once"],
    }
    assert asked == wanted[kind]


def _noting(asked: list[str], name: str, real: Any) -> Any:
    def noting(*arguments: Any, **options: Any) -> Any:
        asked.append(name)
        return real(*arguments, **options)

    return noting
