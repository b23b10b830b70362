"""When the settings of a cluster change, its nodes hold at once what follows under the new ones."""

from __future__ import annotations

import pytest
import sqlalchemy as sa
from flask import Flask

from placement.http.registry import registry_of
from placement.pods.koordinator.settings import SETTINGS
from placement.pods.services import nodes
from placement.pods.store import statements
from placement.pods.store.cache import ClusterCache, ClusterSnapshot
from placement.storage import tables
from placement.storage.database import Database
from tests.client import Client, detail
from tests.kubernetes import ALLOCS, BIND, CLUSTER, KUBELET, add_nodes, pod_manifest
from tests.pod_invariants import check, check_image
from tests.reservations import reservation

PODS = f"{CLUSTER}/pods/default"
UID = "11111111-0000-4000-8000-000000000001"
REPORTED = [{"namespace": "kube", "name": "k", "uid": UID, "cpuset": "0-3"}]
# Only `design` lets the label beat the option of kubelet, which has cores given away whole.
WHOLE_CORES = {"policy": "static", "options": {"full-pcpus-only": "true"}}


def profile(api: Client, name: str) -> None:
    answer = api.put(CLUSTER, {"profile": name})
    assert answer.status_code in (200, 201), answer.text


def owners(api: Client) -> list[str]:
    return [cpu["owner"] for cpu in api.get(f"{CLUSTER}/nodes/n1").json["cpus"][:4]]


@pytest.mark.parametrize("first", ["design", "koord-scheduler"])
def test_reported_pods_own_their_cpus_under_design_only(
    api: Client, application: Flask, database: Database, first: str
):
    second = "koord-scheduler" if first == "design" else "design"
    profile(api, first)
    add_nodes(api, "n1", nrt={ALLOCS: REPORTED})
    add_nodes(api, "n2")
    cluster_cache = registry_of(application)[ClusterCache]
    for now in (first, second, first):
        profile(api, now)
        assert owners(api) == (["reported"] * 4 if now == "design" else ["free"] * 4)
        check_image(check(database, "edge"), cluster_cache, "edge")
        answer = api.put(f"{PODS}/web", pod_manifest("14"))
        # 16 CPUs less the four that are reported; n2 has all of its own.
        assert answer.status_code == 201, answer.text
        check(database, "edge")
        assert api.delete(f"{PODS}/web").status_code == 204


def test_trees_are_those_of_the_new_profile(api: Client, database: Database):
    profile(api, "design")
    add_nodes(api, "n1", labels={BIND: "SpreadByPCPUs"}, nrt={KUBELET: WHOLE_CORES})
    core = api.get(f"{CLUSTER}/nodes/n1").json["tree"]["children"][0]["children"][0]["uuid"]

    def step() -> int:
        return api.get(f"/resource_providers/{core}/inventories").json["inventories"]["PCPU"]["step_size"]

    assert step() == 1
    for name, size in (("koord-scheduler", 2), ("design", 1)):
        profile(api, name)
        assert step() == size
        check(database, "edge")


def test_all_nodes_follow_at_once_or_none(api: Client, database: Database, monkeypatch: pytest.MonkeyPatch):
    """Nodes are imported again some at a time; here each is a portion of its own."""
    monkeypatch.setattr(nodes, "_AT_ONCE", 1)
    profile(api, "design")
    for number in range(1, 4):
        uid = f"11111111-0000-4000-8000-00000000000{number}"
        add_nodes(api, f"n{number}", nrt={ALLOCS: [{**REPORTED[0], "uid": uid}]})
    profile(api, "koord-scheduler")
    check(database, "edge")
    with database.read() as connection:
        assert not connection.execute(sa.select(sa.func.count()).select_from(tables.logical_cpus)).scalar()
    # A pod takes the name of what n2 would have to give to the reported pod again: nothing is changed then.
    other = api.provider("elsewhere", VCPU=4)
    consumer = "11111111-0000-4000-8000-000000000002"
    assert api.claim({other: {"VCPU": 1}}, consumer).status_code == 204
    answer = api.put(CLUSTER, {"profile": "design"})
    assert answer.status_code == 409
    assert detail(answer).startswith("profile: ")
    assert consumer in detail(answer)
    assert api.get(CLUSTER).json["profile"] == "koord-scheduler"
    check(database, "edge")


# A setting that is new here is either one of these, or changes what is held as the profile does.
OTHER_SETTINGS = {
    "nodeLabels": ["disk"],
    "defaultCPUBindPolicy": "SpreadByPCPUs",
    "defaultCPUExclusivePolicy": "NUMANodeLevel",
    "defaultNUMATopologyPolicy": "SingleNUMANode",
    "numaAllocateStrategy": "MostAllocated",
    "scoring": {"pods": {"type": "MostAllocated"}},
    "hostScoring": {"type": "MostAllocated", "resources": [{"name": "cpu"}]},
    "numaScoring": {"type": "MostAllocated", "resources": [{"name": "cpu"}]},
    "guaranteedQoS": "LS",
    "subPriorityImmutable": False,
    "loopNodes": "marked",
}


def test_no_setting_but_the_profile_changes_what_is_held(api: Client, application: Flask, database: Database):
    profile(api, "design")
    add_nodes(api, "n1", labels={"disk": "ssd"}, nrt={ALLOCS: REPORTED})
    for name, pod in (
        ("bound", pod_manifest("3")),
        ("aligned", pod_manifest("2", numa={"numaTopologyPolicy": "SingleNUMANode"})),
        ("guaranteed", pod_manifest("500m", qos=None, priority=None)),
        ("running", pod_manifest("2", node="n1", status={"cpuset": "14-15"})),
    ):
        assert api.put(f"{PODS}/{name}", pod).status_code == 201
    assert api.put(f"{CLUSTER}/reservations/kept", reservation(template=pod_manifest("1"))).status_code == 201
    assert OTHER_SETTINGS.keys() == SETTINGS - {"profile"}
    cluster_cache = registry_of(application)[ClusterCache]
    before = {root_id: state.accounts for root_id, state in check(database, "edge").items()}
    for name, value in OTHER_SETTINGS.items():
        assert api.put(CLUSTER, {"profile": "design", name: value}).status_code == 200
        states = check(database, "edge")
        check_image(states, cluster_cache, "edge")
        assert {root_id: state.accounts for root_id, state in states.items()} == before, name
    # Every process hears that a node was read anew: only when that was is new.
    former = cluster_cache.snapshot("edge").by_name["n1"].imported_at
    add_nodes(api, "n1", labels={"disk": "ssd"}, nrt={ALLOCS: REPORTED})
    assert cluster_cache.snapshot("edge").by_name["n1"].imported_at > former
    check_image(check(database, "edge"), cluster_cache, "edge")


def test_what_was_decided_under_former_settings_is_decided_again(
    api: Client, application: Flask, database: Database, monkeypatch: pytest.MonkeyPatch
):
    """The profile changes between the look of whoever releases a pod and its transaction."""
    profile(api, "design")
    add_nodes(api, "n1", nrt={ALLOCS: REPORTED})
    assert api.put(f"{PODS}/web", pod_manifest("4")).status_code == 201
    registry = registry_of(application)
    look, looks = registry[ClusterCache].snapshot, []

    def view(name: str) -> ClusterSnapshot:
        seen: ClusterSnapshot = look(name)
        looks.append(seen)
        if len(looks) == 1:
            profile(api, "koord-scheduler")
        return seen

    monkeypatch.setattr(registry[ClusterCache], "snapshot", view)
    assert api.delete(f"{PODS}/web").status_code == 204
    assert len(looks) > 1
    assert owners(api) == ["free"] * 4
    check(database, "edge")


def test_what_the_database_refuses_for_good_is_not_tried_for_long(
    api: Client, database: Database, monkeypatch: pytest.MonkeyPatch
):
    """CPUs have an owner that follows from no pod, as a repair by hand may leave them."""
    profile(api, "design")
    add_nodes(api, "n1")
    other = api.provider("elsewhere", VCPU=4)
    assert api.claim({other: {"VCPU": 1}}, UID).status_code == 204
    with database.write() as transaction:
        (node_id,) = transaction.execute(sa.select(tables.nodes.c.id)).scalars()
        statements.own(transaction, {(node_id, cpu): (UID, "") for cpu in range(16)})
    written = []
    own = statements.own

    def counted(transaction, given) -> None:
        written.append(given)
        own(transaction, given)

    monkeypatch.setattr(statements, "own", counted)
    answer = api.put(f"{PODS}/web", pod_manifest("4"))
    assert answer.status_code == 409, answer.text
    assert "inventories that differ from the imported node" in detail(answer)
    assert len(written) == 2
    del written[:]
    items = [pod_manifest("4"), pod_manifest("4")]
    for item, name in zip(items, "ab", strict=True):
        item["metadata"].update(namespace="default", name=name)
    answer = api.post(f"{CLUSTER}/pods", {"kind": "List", "items": items})
    assert answer.status_code == 200, answer.text
    assert [each["status"] for each in answer.json["pods"]] == [409, 409], answer.text
    # Twice together, then twice each.
    assert len(written) == 6
