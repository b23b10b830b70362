"""Labels of nodes become traits, which all share: they are bounded, and go with the last node."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import sqlalchemy as sa

from placement.providers import trees
from placement.storage import tables
from placement.storage.database import Database
from tests.client import Client
from tests.kubernetes import CLUSTER, node_manifests, pod_manifest

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


def carried(api: Client, name: str) -> set[str]:
    """The traits of labels that a node has."""
    root = api.get(f"{CLUSTER}/nodes/{name}").json["tree"]["uuid"]
    found = api.get(f"/resource_providers/{root}/traits").json["traits"]
    return {trait for trait in found if trait.startswith("CUSTOM_LABEL_")}


def has_room_for(api: Client, monkeypatch: pytest.MonkeyPatch, more: int) -> int:
    """Let the cluster have that many traits beyond the ones it has; return how many these are in all."""
    names = api.get("/traits?associated=true").json["traits"]
    monkeypatch.setattr(trees, "_MOST_TRAITS", len(names) + more)
    return len(names) + more


def test_a_node_whose_labels_are_too_many_is_imported_without_some(
    api: Client, before: set[str], monkeypatch: pytest.MonkeyPatch
):
    put(api, "n1", "gold", KEYS[:10])
    with_one = traits(api)
    most = has_room_for(api, monkeypatch, 5)
    answer = api.put(f"{CLUSTER}/nodes/n2", labelled("n2", "silver", KEYS[:30]))
    assert answer.status_code == 201, answer.text
    assert len(traits(api) - with_one) == 5
    assert carried(api, "n2") == traits(api) - with_one
    wanted = sorted(f"CUSTOM_LABEL_EXAMPLE_COM_K{number}_SILVER" for number in range(30))
    assert carried(api, "n2") == set(wanted[:5])
    (warning,) = (each for each in answer.json["warnings"] if "metadata.labels" in each)
    assert f"25 new traits are left out, as a cluster may have {most}: {wanted[5]}, {wanted[6]}, " in warning
    assert "and 5 more; import the node again when there is room" in warning
    # Pods choose nodes by the labels themselves.
    pod = pod_manifest("2", nodeSelector={KEYS[29]: "silver"})
    assert api.put(f"{CLUSTER}/pods/default/p", pod).json["node"] == "n2"


def test_traits_left_out_are_those_of_the_nodes_that_come_last(
    api: Client, before: set[str], monkeypatch: pytest.MonkeyPatch
):
    has_room_for(api, monkeypatch, 4)
    bodies = (labelled("n2", "silver", KEYS[:3]), labelled("n1", "gold", KEYS[:3]), labelled("n3", "silver"))
    items = [part for body in bodies for part in body.values()]
    outcomes = api.post(f"{CLUSTER}/nodes", {"kind": "List", "items": items}).json["nodes"]
    assert [each["status"] for each in outcomes] == [201, 201, 201]
    assert [len(carried(api, name)) for name in ("n2", "n1", "n3")] == [3, 1, 3]
    assert [any("left out" in warning for warning in each["warnings"]) for each in outcomes] == [
        False,
        True,
        True,
    ]


def test_traits_of_the_machine_itself_are_never_left_out(
    api: Client, before: set[str], monkeypatch: pytest.MonkeyPatch
):
    """Queries of pods forbid some of them: a node without its own would be offered to pods it cannot take."""
    has_room_for(api, monkeypatch, 0)
    labels = {"node.koordinator.sh/cpu-bind-policy": "FullPCPUsOnly", KEYS[0]: "gold"}
    answer = api.put(f"{CLUSTER}/nodes/n1", node_manifests("n1", labels=labels))
    assert answer.status_code == 201, answer.text
    assert traits(api) - before == {"CUSTOM_KOORD_BIND_FULL_PCPUS_ONLY"}
    assert carried(api, "n1") == set()


def test_a_node_may_change_its_labels_in_a_full_cluster(
    api: Client, before: set[str], monkeypatch: pytest.MonkeyPatch
):
    put(api, "n1", "gold", KEYS[:10])
    has_room_for(api, monkeypatch, 0)
    put(api, "n1", "silver", KEYS[:10])
    assert len(carried(api, "n1")) == 10
    assert len(traits(api) - before) == 10


def test_traits_left_out_come_with_an_import_when_there_is_room(
    api: Client, before: set[str], monkeypatch: pytest.MonkeyPatch
):
    put(api, "n1", "gold", KEYS[:10])
    has_room_for(api, monkeypatch, 0)
    put(api, "n2", "silver", KEYS[:3])
    assert carried(api, "n2") == set()
    assert api.delete(f"{CLUSTER}/nodes/n1").status_code == 204
    put(api, "n2", "silver", KEYS[:3])
    assert len(carried(api, "n2")) == 3


def test_fewer_keys_make_room_at_the_next_list_of_nodes(
    api: Client, before: set[str], monkeypatch: pytest.MonkeyPatch
):
    items = [
        part
        for name, value in (("n1", "gold"), ("n2", "silver"))
        for part in labelled(name, value, KEYS[:10]).values()
    ]
    has_room_for(api, monkeypatch, 10)
    api.post(f"{CLUSTER}/nodes", {"kind": "List", "items": items})
    assert [len(carried(api, name)) for name in ("n1", "n2")] == [10, 0]
    assert api.put(CLUSTER, {"nodeLabels": KEYS[:5]}).status_code == 200
    outcomes = api.post(f"{CLUSTER}/nodes", {"kind": "List", "items": items}).json["nodes"]
    assert [len(carried(api, name)) for name in ("n1", "n2")] == [5, 5]
    assert not any("left out" in warning for each in outcomes for warning in each["warnings"])


def test_a_label_that_is_left_out_is_neither_required_nor_forbidden(
    api: Client, before: set[str], monkeypatch: pytest.MonkeyPatch
):
    put(api, "n1", "gold", KEYS[:1])
    (gold,) = traits(api) - before
    has_room_for(api, monkeypatch, 0)
    put(api, "n2", "silver", KEYS[:1])
    assert api.put(f"/traits/{gold.replace('GOLD', 'SILVER')}").status_code == 201
    silver = gold.replace("GOLD", "SILVER")

    def found(asked: str) -> set[str]:
        return {
            each["name"].rpartition("/")[2]
            for each in api.get(f"/resource_providers?required={asked}").json["resource_providers"]
        }

    assert "n2" not in found(silver)
    assert "n2" in found(f"!{silver},CUSTOM_SMT_2")


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
