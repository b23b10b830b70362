"""Labels of nodes become traits, which all share: they are bounded, and go with the last node."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import sqlalchemy as sa

from placement.providers import trees
from placement.storage import tables
from placement.storage.database import Database
from tests.client import Client, detail
from tests.kubernetes import CLUSTER, node_manifests

KEYS = [f"example.com/k{number}" for number in range(64)]


def traits(api: Client) -> set[str]:
    return set(api.get("/traits").json["traits"])


def labelled(name: str, value: str, keys: list[str] = KEYS) -> dict[str, Any]:
    return node_manifests(name, labels=dict.fromkeys(keys, value))


def put(api: Client, name: str, value: str, keys: list[str] = KEYS) -> None:
    answer = api.put(f"{CLUSTER}/nodes/{name}", labelled(name, value, keys))
    assert answer.status_code in (200, 201), answer.text


@pytest.fixture
def before(api: Client) -> set[str]:
    """The traits that there are with a node without labels."""
    assert api.put(CLUSTER, {"nodeLabels": KEYS}).status_code == 201
    assert api.put(f"{CLUSTER}/nodes/n0", node_manifests("n0")).status_code == 201
    return traits(api)


def test_traits_go_with_the_last_node_that_has_them(api: Client, before: set[str]):
    put(api, "n1", "gold")
    put(api, "n2", "gold")
    assert len(traits(api) - before) == len(KEYS)
    assert api.delete(f"{CLUSTER}/nodes/n1").status_code == 204
    assert len(traits(api) - before) == len(KEYS)
    assert api.delete(f"{CLUSTER}/nodes/n2").status_code == 204
    assert traits(api) == before


def test_a_node_that_is_relabelled_leaves_nothing_behind(api: Client, before: set[str]):
    for number in range(5):
        put(api, "n1", f"v{number}")
        assert len(traits(api) - before) == len(KEYS)
    assert api.delete(f"{CLUSTER}/nodes/n1").status_code == 204
    assert traits(api) == before


def test_traits_go_with_the_setting_that_asked_for_them(api: Client, before: set[str]):
    put(api, "n1", "gold")
    assert api.put(CLUSTER, {"nodeLabels": []}).status_code == 200
    # Labels are read with the next import.
    put(api, "n1", "gold")
    assert traits(api) == before


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_trait_that_an_operator_puts_stays(api: Client, before: set[str], moment: str):
    put(api, "n1", "gold", KEYS[:1])
    (name,) = traits(api) - before
    if moment == "before":
        assert api.delete(f"{CLUSTER}/nodes/n1").status_code == 204
        assert api.put(f"/traits/{name}").status_code == 201
        put(api, "n1", "gold", KEYS[:1])
    else:
        assert api.put(f"/traits/{name}").status_code == 204
    assert api.delete(f"{CLUSTER}/nodes/n1").status_code == 204
    assert name in traits(api)


def test_a_trait_that_another_provider_carries_stays_as_long(api: Client, before: set[str]):
    put(api, "n1", "gold", KEYS[:1])
    (name,) = traits(api) - before
    shelf = api.provider("shelf")
    body = {"resource_provider_generation": 0, "traits": [name]}
    assert api.put(f"/resource_providers/{shelf}/traits", body).status_code == 200
    assert api.delete(f"{CLUSTER}/nodes/n1").status_code == 204
    assert name in traits(api)
    # The next removal looks at it again.
    assert api.delete(f"/resource_providers/{shelf}").status_code == 204
    put(api, "n2", "other", KEYS[:1])
    assert api.delete(f"{CLUSTER}/nodes/n2").status_code == 204
    assert traits(api) == before


def test_what_went_is_recorded(api: Client, before: set[str]):
    put(api, "n1", "gold", KEYS[:2])
    gone = sorted(traits(api) - before)
    assert api.delete(f"{CLUSTER}/nodes/n1").status_code == 204
    events = api.get("/ext/v1/audit?action=delete&target_type=trait").json["events"]
    assert sorted(event["target"]["id"] for event in events) == gone


def test_a_cluster_makes_no_more_than_it_may_have(
    api: Client, before: set[str], monkeypatch: pytest.MonkeyPatch
):
    put(api, "n1", "gold", KEYS[:10])
    with_one = traits(api)
    carried = len(
        [
            name
            for name in with_one
            if api.get(f"/resource_providers?required={name}").json["resource_providers"]
        ]
    )
    monkeypatch.setattr(trees, "_MOST_TRAITS", carried + 5)
    answer = api.put(f"{CLUSTER}/nodes/n2", labelled("n2", "silver", KEYS[:10]))
    assert answer.status_code == 409
    assert "Node.metadata.labels: trait CUSTOM_" in detail(answer)
    assert f"have {carried + 5} traits already" in detail(answer)
    assert traits(api) == with_one
    # Of many nodes those are imported that bring few new ones.
    items = [
        part
        for body in (labelled("n2", "silver", KEYS[:10]), labelled("n3", "silver", KEYS[:3]))
        for part in body.values()
    ]
    outcomes = api.post(f"{CLUSTER}/nodes", {"kind": "List", "items": items}).json["nodes"]
    assert [each["status"] for each in outcomes] == [409, 201]


def test_nodes_that_come_and_go_at_once_leave_nothing_behind(
    api: Client, other: Client, before: set[str], database: Database
):
    wrong: list[str] = []

    def come_and_go(client: Client, name: str) -> None:
        for number in range(4):
            answers = [
                client.put(f"{CLUSTER}/nodes/{name}", labelled(name, f"v{number % 2}", KEYS[:8])),
                client.delete(f"{CLUSTER}/nodes/{name}"),
            ]
            wrong.extend(each.text for each in answers if each.status_code not in (200, 201, 204))

    threads = [
        threading.Thread(target=come_and_go, args=(client, name))
        for client, name in ((api, "n1"), (other, "n2"))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    put(api, "n3", "last", KEYS[:1])
    assert api.delete(f"{CLUSTER}/nodes/n3").status_code == 204
    assert traits(api) == before
    with database.read() as connection:
        marked = sa.select(tables.traits.c.name).where(tables.traits.c.made_by_import.is_(True))
        assert set(connection.execute(marked).scalars()) <= before
