"""Capacity for pods with more nodes than there are is that of a cluster which really has them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.client import Client, detail
from tests.kubernetes import ALLOCS, KUBELET, NUMA_POLICY, node_manifests, pod_manifest
from tests.pod_rules import ruled_pod
from tests.reservations import reservation

pytestmark = pytest.mark.one_database

WORLDS = {"more": [{"like": "n1", "count": 2}, {"like": "n2", "count": 1}]}
REPORTED = [
    {"uid": "kube", "cpuset": "0-5", "managedByKubelet": True},
    {"uid": "elsewhere", "cpuset": "8-9"},
]
HOSTNAME = "kubernetes.io/hostname"


def node(name: str, like: str, *, is_empty: bool = True) -> dict[str, Any]:
    """The first has NUMA nodes that pods are aligned to, the other reports pods unless it is empty."""
    if like == "n1":
        labels = {"zone": "a", NUMA_POLICY: "SingleNUMANode"}
        return node_manifests(name, labels=labels, pods="12")
    nrt = {KUBELET: {"policy": "static"}, **({} if is_empty else {ALLOCS: REPORTED})}
    return node_manifests(name, labels={"zone": "b"}, nrt=nrt, pods="9")


def build(api: Client, cluster: str, more: dict[str, str]) -> str:
    """A cluster of two nodes that are in use, and more that are empty, by what they are like."""
    path = f"/ext/v1/clusters/{cluster}"
    assert api.put(path).status_code == 201
    for name in ("n1", "n2"):
        assert api.put(f"{path}/nodes/{name}", node(name, name, is_empty=False)).status_code == 201
        pod = pod_manifest("2", "2Gi", labels={"app": "web"}, nodeSelector={HOSTNAME: name})
        assert api.put(f"{path}/pods/default/on-{name}", pod).status_code == 201
    kept = reservation("kept", "2", owners=[{"labelSelector": {"matchLabels": {"app": "kept"}}}])
    assert api.put(f"{path}/reservations/kept", kept).status_code == 201
    host = asked(api, cluster, pod_manifest("1", "1Gi", qos="LS"))["hosts"][1]["uuid"]
    assert api.claim({host: {"CUSTOM_NODE_CPU_MILLI": 3000}}).status_code == 204
    for name, like in more.items():
        assert api.put(f"{path}/nodes/{name}", node(name, like)).status_code == 201
    return cluster


def asked(api: Client, cluster: str, pod: dict[str, Any], **parts: Any) -> Any:
    body = {"kinds": {"it": {"pod": pod}}, "cluster": cluster, "by": ["host"], **parts}
    answer = api.post("/ext/v1/capacity", body)
    assert answer.status_code == 200, answer.text
    return answer.json["kinds"]["it"]


def figures(found: dict[str, Any]) -> tuple[Any, Counter[str]]:
    """What is told of all hosts, and of each but for what it is called."""
    names = ("uuid", "name", "like")
    hosts = [{key: each[key] for key in each if key not in names} for each in found["hosts"]]
    return found["total"], Counter(map(str, hosts))


def in_field(name: str) -> dict[str, Any]:
    """Affinity to the node of this name."""
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}]
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}


PODS = {
    "plain": pod_manifest("3", "1Gi", qos="LS"),
    "bound": pod_manifest("3", "1Gi", qos="LSR"),
    "aligned": pod_manifest("5", "1Gi", qos="LSR", numa={"numaTopologyPolicy": "SingleNUMANode"}),
    "selecting a node": pod_manifest("1", "1Gi", qos="LS", nodeSelector={HOSTNAME: "n1"}),
    "bound to a name": pod_manifest("1", "1Gi", qos="LS", affinity=in_field("n2")),
    "selecting a zone": pod_manifest("1", "1Gi", qos="LS", nodeSelector={"zone": "b"}),
    "apart": ruled_pod("it", {"labels": {"app": "web"}, "apart": [[HOSTNAME, {"app": "web"}]]}),
    "near": ruled_pod("it", {"near": [[HOSTNAME, {"app": "web"}]]}),
    "spread": ruled_pod("it", {"labels": {"app": "web"}, "spread": [[HOSTNAME, 1, {"app": "web"}]]}),
}
# Before and after.
ROOMS = dict(
    zip(PODS, [(7, 20), (5, 18), (2, 8), (11, 11), (7, 7), (7, 16), (0, 3), (18, 18), (15, 42)], strict=True)
)


@pytest.fixture
def imagined(api: Client) -> str:
    return build(api, "imagined", {})


def test_more_nodes_are_counted_as_if_they_were_there(api, imagined):
    real = build(api, "real", {"n1-1": "n1", "n1-2": "n1", "n2-3": "n2"})
    rooms = {}
    for name, pod in PODS.items():
        before = asked(api, imagined, pod)
        found = asked(api, imagined, pod, world=WORLDS)
        assert figures(found) == figures(asked(api, real, pod)), name
        assert found["total"]["exact"], name
        assert asked(api, imagined, pod) == before, name
        rooms[name] = (before["total"]["lower"], found["total"]["lower"])
    # More and fewer are counted together.
    for pod in (PODS["bound"], PODS["spread"]):
        found = asked(api, imagined, pod, world={**WORLDS, "without": ["imagined/n1"]})
        assert figures(found) == figures(asked(api, real, pod, world={"without": ["n1"]}))
    assert rooms == ROOMS


def test_imagined_nodes_say_what_they_are_like(api, imagined):
    uuid, other = (asked(api, imagined, PODS["plain"])["hosts"][at]["uuid"] for at in (0, 1))
    more = [{"like": called, "count": 1} for called in ("n1", "imagined/n1", uuid.upper(), "n2")]
    hosts = asked(api, imagined, PODS["plain"], world={"more": more})["hosts"]
    assert [(each["name"], each.get("like")) for each in hosts] == [
        ("imagined/n1", None),
        *[(None, uuid)] * 3,
        ("imagined/n2", None),
        (None, other),
    ]
    assert len({each["uuid"] for each in hosts}) == 6


def test_worlds_that_are_not_for_pods_name_the_field(api, imagined):
    assert api.put("/ext/v1/clusters/elsewhere").status_code == 201
    assert api.put("/ext/v1/clusters/elsewhere/nodes/n9", node_manifests("n9")).status_code == 201
    inventories = {"inventories": [{"resource_class": "VCPU", "reserved": 1}]}
    for world, words in (
        ([("n1", 1), ("n3", 1)], "world.more[1].like: there is no node 'n3' in cluster imagined"),
        ([("elsewhere/n9", 1)], "world.more[0].like: there is no node"),
        ([("n1", 0)], "world.more[0].count: 0 is less than the minimum of 1"),
        ([("n1", 6000)] * 2, "world.more[1].count: at most 10000 nodes are allowed"),
        (inventories, "world.inventories: is not for pods"),
    ):
        if isinstance(world, list):
            world = {"more": [{"like": like, "count": count} for like, count in world]}
        body = {"kinds": {"it": {"pod": PODS["plain"]}}, "cluster": imagined, "world": world}
        answer = api.post("/ext/v1/capacity", body)
        assert (answer.status_code, words in detail(answer)) == (400, True), answer.text
