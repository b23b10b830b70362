"""The extender's preempt: who has to go, so that exactly what the pod lacks becomes free."""

from __future__ import annotations

import datetime
from typing import Any

import pytest

from placement.common.extender_protocol import PREEMPT, failure
from placement.metrics.catalog import REQUESTS
from tests import clocks
from tests.client import Client
from tests.kubernetes import (
    CLUSTER,
    NUMA_POLICY,
    NUMA_SPEC,
    RESERVATION,
    STATUS,
    add_nodes,
    cluster_of,
    pod_manifest,
)
from tests.reservations import AFFINITY, ALLOCATED, WEB, reservation

pytestmark = pytest.mark.one_database

RULE = "/ext/v1/clusters/<cluster>/extender"
# The least priority of pods that may have CPUs of their own.
_PROD = 9000


@pytest.fixture
def cluster(api: Client) -> Client:
    return cluster_of(api)


def running(cluster: Client, name: str, cpus: str, priority: int = 0, node: str = "n", **spec: Any) -> str:
    """A pod with these CPUs of its own runs there; its uid."""
    first, last = (int(cpu) for cpu in cpus.split("-"))
    manifest = pod_manifest(
        str(last - first + 1), uid=f"uid-{name}", node=node, priority=_PROD + priority, **spec
    )
    manifest["metadata"]["annotations"][STATUS] = f'{{"cpuset":"{cpus}"}}'
    answer = cluster.put(f"{CLUSTER}/pods/default/{name}", manifest)
    assert answer.status_code == 201, answer.text
    return f"uid-{name}"


def preempt(
    cluster: Client,
    cpu: str = "4",
    proposed: dict[str, list[str]] | None = None,
    *,
    priority: int = 100,
    numa: str | None = None,
    violations: int = 0,
    whole: bool = False,
    reservation: str | None = None,
    **spec: Any,
) -> dict[str, list[str]]:
    """The victims by node; `reservation`: the name of the one that the pod must use."""
    pod = pod_manifest(cpu, uid="uid-urgent", priority=_PROD + priority, phase="Pending", **spec)
    pod["metadata"].update(name="urgent", namespace="default", labels=WEB)
    if reservation:
        pod["metadata"]["annotations"][AFFINITY] = f'{{"name":"{reservation}"}}'
    if numa:
        pod["metadata"]["annotations"][NUMA_SPEC] = f'{{"numaTopologyPolicy":"{numa}"}}'
    nodes = {"n": []} if proposed is None else proposed
    member, shown = "NodeNameToMetaVictims", lambda uid: {"UID": uid}
    if whole:
        member, shown = "NodeNameToVictims", lambda uid: {"metadata": {"uid": uid, "name": uid}}
    body = {
        "Pod": pod,
        member: {
            node: {"Pods": [shown(uid) for uid in uids], "NumPDBViolations": violations}
            for node, uids in nodes.items()
        },
    }
    answer = cluster.post(f"{CLUSTER}/extender/preempt", body)
    assert answer.status_code == 200, answer.text
    found = answer.json["NodeNameToMetaVictims"]
    assert all(victims["NumPDBViolations"] == violations for victims in found.values())
    return {node: [pod["UID"] for pod in victims["Pods"]] for node, victims in found.items()}


def full_node(cluster: Client, *priorities: int, name: str = "n") -> list[str]:
    """A node that pods of 4 CPUs fill, each of which is more important than the one before."""
    add_nodes(cluster, name)
    return [
        running(cluster, f"{name}-{n}", f"{4 * n}-{4 * n + 3}", priority, name)
        for n, priority in enumerate(priorities or range(4))
    ]


def test_what_the_scheduler_proposes_is_taken_where_it_is_enough_else_the_least_important(cluster):
    pods = full_node(cluster)
    for whole in (False, True):
        assert preempt(cluster, proposed={"n": [pods[2]]}, violations=1, whole=whole) == {"n": [pods[2]]}
    assert preempt(cluster) == {"n": [pods[0]]}
    # Of pods that are as important the youngest goes.
    alike = full_node(cluster, 0, 0, 0, 0, name="alike")
    assert preempt(cluster, proposed={"alike": []}) == {"alike": [alike[3]]}
    assert preempt(cluster, proposed={"n": [pods[0]]}, preemptionPolicy="Never") == {}


def test_more_go_where_the_scheduler_counts_cpus_that_nobody_may_have(cluster):
    """It counts 16 CPUs, 4 are reserved: with 12 in use it takes one of 1 CPU for enough."""
    add_nodes(cluster, "n", annotations={RESERVATION: {"reservedCPUs": "12-15"}})
    big = [running(cluster, f"big-{n}", f"{4 * n}-{4 * n + 3}") for n in range(2)]
    small = [running(cluster, f"small-{n}", f"{8 + n}-{8 + n}", priority=1) for n in range(4)]
    assert preempt(cluster, "4", {"n": []}) == {"n": [big[1]]}
    victims = preempt(cluster, "5", {"n": [small[0]]})["n"]
    assert sorted(victims) == sorted([big[1], small[0]])


def test_pods_of_one_numa_node_go_where_only_alignment_refuses(cluster):
    add_nodes(cluster, "n")
    running(cluster, "important-0", "0-3", priority=500)
    running(cluster, "important-1", "8-11", priority=500)
    low = [running(cluster, "low-0", "4-5"), running(cluster, "low-1", "12-13")]
    # Four CPUs are free, two on either NUMA node.
    assert preempt(cluster, "4", numa="SingleNUMANode") == {"n": [low[1]]}
    # Another one than was proposed, if what was proposed is of no use and nothing but resources matters.
    more = running(cluster, "low-2", "14-14", priority=1)
    assert preempt(cluster, "4", {"n": [more]}, numa="SingleNUMANode") == {"n": [low[0]]}


def test_victims_that_may_be_proposed_for_more_than_resources_go_in_any_case(cluster):
    add_nodes(cluster, "n")
    running(cluster, "important-0", "0-3", priority=500)
    running(cluster, "important-1", "8-11", priority=500)
    low = running(cluster, "low-0", "4-5")
    holder = running(cluster, "holder", "12-14", priority=1)
    container = {**pod_manifest("4")["spec"]["containers"][0], "ports": [{"hostPort": 80}]}
    found = preempt(cluster, "4", {"n": [holder]}, numa="SingleNUMANode", containers=[container])
    assert found == {"n": [holder]}
    tiny = running(cluster, "tiny", "15-15", priority=2)
    found = preempt(cluster, "4", {"n": [tiny]}, numa="SingleNUMANode", containers=[container])
    assert tiny in found["n"]
    assert low in found["n"] or holder in found["n"]


def test_only_less_important_pods_go(cluster):
    pods = full_node(cluster, 100, 100, 100, 100)
    assert preempt(cluster) == {}
    assert preempt(cluster, proposed={"n": [pods[0]]}) == {}
    assert preempt(cluster, priority=101, proposed={"n": [pods[0]]}) == {"n": [pods[0]]}


def test_nodes_where_nothing_helps_are_left_out(cluster):
    least, *_ = full_node(cluster)
    add_nodes(cluster, "small", rows=tuple((cpu, cpu // 2, 0, 0) for cpu in range(2)))
    add_nodes(cluster, "cordoned", spec={"unschedulable": True})
    add_nodes(cluster, "idle")
    nodes: dict[str, list[str]] = {"n": [], "small": [], "cordoned": [], "idle": [], "unknown": []}
    assert preempt(cluster, proposed=nodes) == {"n": [least]}


def test_victims_that_only_the_scheduler_knows_stay_victims(cluster):
    least, *_ = full_node(cluster)
    assert preempt(cluster, proposed={"n": ["uid-stranger"]}) == {"n": ["uid-stranger", least]}
    add_nodes(cluster, "idle")
    assert preempt(cluster, proposed={"idle": ["uid-stranger"]}) == {"idle": ["uid-stranger"]}


def test_a_host_that_aligns_everybody_is_asked_in_its_own_way(cluster):
    add_nodes(cluster, "n", labels={NUMA_POLICY: "SingleNUMANode"})
    running(cluster, "a", "0-5")
    running(cluster, "b", "8-13", priority=1)
    assert preempt(cluster, "4") == {"n": ["uid-a"]}


def reserve(cluster: Client, cpu: str = "4", **spec: Any) -> None:
    """A reservation for web pods."""
    answer = cluster.put(f"{CLUSTER}/reservations/kept", reservation("kept", cpu, **spec))
    assert answer.status_code == 201, answer.text


def test_nobody_goes_for_a_pod_that_must_use_a_reservation_that_is_not_there(cluster):
    full_node(cluster)
    assert preempt(cluster, reservation="kept") == {}
    add_nodes(cluster, "idle")
    reserve(cluster)
    proposed: dict[str, list[str]] = {"n": [], "idle": []}
    assert preempt(cluster, "8", proposed, reservation="kept") == {}
    assert preempt(cluster, proposed=proposed, reservation="another") == {}


def test_pods_that_use_a_reservation_go_for_one_that_must_use_it(cluster):
    add_nodes(cluster, "n")
    reserve(cluster, allocateOnce=False, allocatePolicy="Restricted")
    user = pod_manifest("4", uid="uid-user", priority=_PROD, labels=WEB)
    answer = cluster.put(f"{CLUSTER}/pods/default/user", user)
    assert (answer.status_code, ALLOCATED in answer.json["annotations"]) == (201, True), answer.text
    other = running(cluster, "other", "8-11")
    assert preempt(cluster, reservation="kept", proposed={"n": [other]}) == {"n": ["uid-user"]}


def test_nobody_goes_where_a_reservation_has_room_for_the_pod(cluster):
    add_nodes(cluster, "n")
    reserve(cluster)
    for n in (1, 2, 3):
        running(cluster, f"pod-{n}", f"{4 * n}-{4 * n + 3}")
    assert preempt(cluster) == {}


def test_nobody_goes_for_room_that_an_expired_reservation_held(cluster, monkeypatch):
    add_nodes(cluster, "n")
    reserve(cluster, ttl="90m", owners=[{"labelSelector": {"matchLabels": {"app": "other"}}}])
    for n in (1, 2, 3):
        running(cluster, f"pod-{n}", f"{4 * n}-{4 * n + 3}")
    assert len(preempt(cluster)["n"]) == 1
    clocks.agreed(monkeypatch, datetime.timedelta(minutes=91))
    assert preempt(cluster) == {}


def test_nobody_goes_where_an_important_pod_keeps_the_pod_off(cluster):
    add_nodes(cluster, "n", labels={"zone": "a"})
    running(cluster, "low", "0-15")
    add_nodes(cluster, "near", labels={"zone": "a"})
    apart = {
        "requiredDuringSchedulingIgnoredDuringExecution": [
            {"labelSelector": {"matchLabels": WEB}, "topologyKey": "zone"}
        ]
    }
    affinity = {"affinity": {"podAntiAffinity": apart}}
    assert preempt(cluster, **affinity) == {"n": ["uid-low"]}
    important = pod_manifest("4", uid="uid-web", node="near", priority=_PROD + 500, labels=WEB)
    assert cluster.put(f"{CLUSTER}/pods/default/web", important).status_code == 201
    assert preempt(cluster, **affinity) == {}


def counted(status: int) -> float:
    """How often the verb was counted with that status."""
    found: float = REQUESTS.labels(f"{RULE}/{PREEMPT}", "POST", str(status))._value.get()
    return found


def test_bodies_that_are_none_are_refused(cluster):
    meta = [[], {"n": 1}, *({"n": {"Pods": pods}} for pods in (1, [1], [{"UID": 1}]))]
    pods = [{"spec": 1}, {"spec": {"containers": [{"name": 1}]}, "status": 1}]
    for body in (
        {},
        {"Pod": {}},
        {"Pod": {}, "NodeNameToVictims": {"n": {"Pods": [{"metadata": {}}]}}},
        *({"Pod": {}, "NodeNameToMetaVictims": each} for each in meta),
        *({"Pod": pod, "NodeNameToMetaVictims": {}} for pod in pods),
    ):
        before = counted(400)
        answer = cluster.post(f"{CLUSTER}/extender/preempt", body)
        # kube-scheduler is answered that no node helps; what is wrong is in the log and the figures.
        assert (answer.status_code, answer.json) == (200, failure(PREEMPT, "")), body
        assert counted(400) == before + 1, body
