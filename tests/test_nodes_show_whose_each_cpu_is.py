"""A node shows the owner of every logical CPU, its pools, what kubelet does, and who is in quarantine."""

from __future__ import annotations

import pytest

from placement.engine.numa.cpus import parse_cpu_list
from tests.client import Client
from tests.kubernetes import ALLOCS, CLUSTER, KUBELET, add_nodes, cluster_of, pod_manifest

pytestmark = pytest.mark.one_database

PODS = f"{CLUSTER}/pods/default"
UID = "6a1f0c52-7a3c-4c56-9d6b-0a8b2f1e5d11"


@pytest.fixture
def cluster(api: Client) -> Client:
    return cluster_of(api)


def node(api: Client, **given) -> dict:
    add_nodes(api, "n1", **given)
    return shown(api)


def shown(api: Client) -> dict:
    return api.get(f"{CLUSTER}/nodes/n1").json


def owners(body: dict) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for cpu in body["cpus"]:
        found.setdefault(cpu["owner"], set()).add(cpu["cpu"])
    return found


def pool(body: dict, kind: str) -> set[int]:
    return {cpu for entry in body[kind] for cpu in parse_cpu_list(entry["cpuset"])}


MIXED = {
    KUBELET: {"policy": "static", "reservedCPUs": "0"},
    ALLOCS: [{"namespace": "kube", "name": "k", "uid": UID, "cpuset": "2-3", "managedByKubelet": True}],
    "node.koordinator.sh/reservation": {"reservedCPUs": "4"},
    "node.koordinator.sh/system-qos-resource": {"cpuset": "5"},
}


def test_every_cpu_has_one_owner(cluster):
    node(cluster, nrt=MIXED)
    assert cluster.put(f"{PODS}/lsr", pod_manifest(cpu="4")).json["cpuset"] == "8-11"
    lse = pod_manifest(cpu="2", qos="LSE", spec={"preferredCPUExclusivePolicy": "PCPULevel"})
    assert cluster.put(f"{PODS}/lse", lse).json["cpuset"] == "12-13"
    body = shown(cluster)
    withheld = {"kubelet-reserved": {0}, "kubelet": {2, 3}, "reserved": {4}, "system": {5}}
    assert owners(body) == {**withheld, "free": {1, 6, 7, 14, 15}, "pod": {*range(8, 14)}}
    by_id = {cpu["cpu"]: cpu for cpu in body["cpus"]}
    owner = {"owner": "pod", "pod": "default/lse", "qos_class": "LSE", "exclusive": "PCPULevel"}
    consumer = {"consumer_uuid": cluster.get(f"{PODS}/lse").json["consumer_uuid"]}
    assert by_id[12] == {"cpu": 12, "core": 6, "numa": 1, "socket": 1, **owner, **consumer}
    assert (by_id[2]["pod"], by_id[2]["consumer_uuid"]) == ("kube/k", UID)
    assert pool(body, "ls_pools") == {0, 1, 6, 7, 14, 15}
    assert pool(body, "be_pools") == {0, 1, 6, 7, 8, 9, 10, 11, 14, 15}
    static = {"namespace": "kube", "name": "k", "uid": UID, "consumer_uuid": UID, "cpuset": "2-3"}
    assert body["kubelet_pods"] == [static]
    assert {pod["name"] for pod in body["pods"]} == {"lsr", "lse"}
    assert body["quarantine"] == []


def test_a_cpu_that_several_pods_hold_names_all_of_them(cluster):
    # Pools are listed by socket and NUMA node.
    pools = [(each["socket"], each["node"], each["cpuset"]) for each in node(cluster)["ls_pools"]]
    assert pools == [(0, 0, "0-7"), (1, 1, "8-15")]
    for name in ("a", "b"):
        cluster.put(f"{PODS}/{name}", pod_manifest(node="n1", status={"cpuset": "0-3"}))
    cpu = shown(cluster)["cpus"][0]
    assert (cpu["pod"], cpu["shared_with"]) == ("default/a", ["default/b"])


def test_cores_of_others_are_shown(cluster):
    core = node(cluster)["tree"]["children"][0]["children"][0]["uuid"]
    assert cluster.claim({core: {"PCPU": 1}}).status_code == 204
    assert owners(shown(cluster))["others"] == {0, 1}


def test_the_takeover_from_kubelet_is_shown(cluster):
    for nrt, state in (
        ({KUBELET: {"policy": "none"}}, "taken over"),
        (MIXED, "mixed"),
        ({KUBELET: {}}, "blind"),
    ):
        takeover = node(cluster, nrt=nrt)["takeover"]
        assert (takeover["state"], bool(takeover["warning"])) == (state, state == "blind")


def test_quarantine_names_the_pods_that_cause_it(cluster):
    node(cluster)
    cluster.put(f"{PODS}/odd", pod_manifest(node="n1", status="{"))
    (entry,) = shown(cluster)["quarantine"]
    assert entry["pod"] == "default/odd"
    assert entry["unreadable"]
    cluster.delete(f"{PODS}/odd")
    assert shown(cluster)["quarantine"] == []


def test_a_node_without_topology_has_no_cpus_to_show(cluster):
    body = node(cluster, rows=(), zones={}, cpu="4")
    assert (body["cpus"], body["ls_pools"]) == ([], [])


def test_cpus_that_are_only_reported_are_in_no_pool_until_the_pod_is_recorded(cluster):
    entry = {"namespace": "default", "name": "web", "uid": UID, "cpuset": "0-3"}
    body = node(cluster, nrt={ALLOCS: [entry]})
    assert pool(body, "ls_pools") == pool(body, "be_pools") == set(range(4, 16))
    running = pod_manifest(cpu="4", uid=UID, node="n1", status={"cpuset": "0-3"})
    assert cluster.put(f"{PODS}/web", running).status_code == 201
    assert pool(shown(cluster), "be_pools") == set(range(16))
