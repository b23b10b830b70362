"""POST pods/preemption: of nodes where evictions help, the one that costs least in kube-scheduler's order."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from placement.engine.domain import request_scope
from placement.http.registry import registry_of
from placement.pods.services import preemption
from placement.pods.services.preemption import Preemption
from placement.storage.database import Database
from tests.client import Client
from tests.kubernetes import CLUSTER, NUMA_SPEC, add_nodes, cluster_of, node_manifests, pod_manifest
from tests.pod_invariants import check
from tests.statements import Counter
from tests.test_pods_are_reported_where_they_are import stamps
from tests.test_preemption_evicts_what_helps import full_node, running

pytestmark = pytest.mark.one_database

PREEMPTION = f"{CLUSTER}/pods/preemption"
_PROD = 9000


@pytest.fixture
def cluster(api: Client) -> Client:
    return cluster_of(api)


def urgent(cpu: str = "4", priority: int | None = _PROD + 100, **given: Any) -> dict[str, Any]:
    pod = pod_manifest(cpu, uid="uid-urgent", priority=priority, phase="Pending", **given)
    pod["metadata"] |= {"name": "urgent", "namespace": "default"}
    return pod


def asked(
    cluster: Client,
    pod: dict[str, Any] | None = None,
    *protected: str,
    nodes: list[str] | None = None,
    path: str = PREEMPTION,
) -> dict[str, Any]:
    body: dict[str, Any] = {"pod": pod or urgent()}
    if protected:
        body["protected"] = list(protected)
    if nodes is not None:
        body["nodes"] = nodes
    answer = cluster.post(path, body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json
    return found


def chosen(cluster: Client, *arguments: Any, **options: Any) -> tuple[str | None, list[str]]:
    """The node, and the uids of the victims."""
    found = asked(cluster, *arguments, **options)
    return found["node"], [each["uid"] for each in found["victims"]]


def test_the_least_important_pod_goes_and_nothing_is_written(cluster: Client, database: Database):
    pods = full_node(cluster)
    before = stamps(database), cluster.get(f"{CLUSTER}/pods").json
    assert asked(cluster) == {
        "node": "n",
        "victims": [{"namespace": "default", "name": "n-0", "uid": pods[0], "priority": _PROD}],
        "violations": 0,
        "reason": "the pod fits there once the victims are gone",
    }
    assert (stamps(database), cluster.get(f"{CLUSTER}/pods").json) == before
    check(database, "edge")


def test_nobody_goes_where_the_pod_fits(cluster: Client):
    full_node(cluster)
    add_nodes(cluster, "idle")
    found = asked(cluster)
    assert (found["node"], found["victims"], found["reason"]) == ("idle", [], "the pod fits there as it is")
    assert chosen(cluster, nodes=["n", "unknown"]) == ("n", ["uid-n-0"])


def test_only_less_important_pods_go(cluster: Client):
    full_node(cluster, 100, 100, 100, 100)
    found = asked(cluster)
    assert (found["node"], found["victims"]) == (None, [])
    assert found["reason"].startswith("evicting pods would not help on 1 node(s): 0/1 nodes")
    assert chosen(cluster, urgent(priority=_PROD + 101)) == ("n", ["uid-n-3"])


def test_a_pod_without_priority_has_0_and_one_that_never_preempts_gets_none(cluster: Client):
    add_nodes(cluster, "n")
    for name, priority in (("low", -1), ("none", None)):
        pod = pod_manifest("8", qos=None, priority=priority, node="n")
        assert cluster.put(f"{CLUSTER}/pods/default/{name}", pod).status_code == 201
    for priority in (None, 0):
        found = asked(cluster, urgent("8", priority, qos=None))
        assert [each["name"] for each in found["victims"]] == ["low"]
        assert [each["priority"] for each in found["victims"]] == [-1]
    found = asked(cluster, urgent("8", 1000, qos=None, preemptionPolicy="Never"))
    assert (found["node"], found["reason"]) == (None, "the preemptionPolicy of the pod is Never")
    assert chosen(cluster, urgent("16", None, qos=None)) == (None, [])


def test_nodes_that_refuse_for_other_reasons_than_their_pods_are_no_candidates(cluster: Client):
    full_node(cluster, 0, 0, 0, 0, name="cordoned")
    full_node(cluster, 0, 0, 0, 0, name="tainted")
    taint = {"taints": [{"key": "a", "effect": "NoSchedule"}]}
    for name, spec in (("cordoned", {"unschedulable": True}), ("tainted", taint)):
        assert cluster.put(f"{CLUSTER}/nodes/{name}", node_manifests(name, spec=spec)).status_code == 200
    found = asked(cluster)
    assert found["node"] is None
    assert found["reason"].startswith("evicting pods would help on no node: 0/2 nodes are available: ")
    assert chosen(cluster, urgent(tolerations=[{"operator": "Exists"}]), nodes=["tainted"])[0] == "tainted"
    assert chosen(cluster, urgent(nodeSelector={"disk": "ssd"})) == (None, [])


def test_a_pod_that_is_larger_than_any_node_gets_none(cluster: Client):
    full_node(cluster)
    full_node(cluster, name="m")
    found = asked(cluster, urgent("32"))
    assert found["node"] is None
    assert found["reason"].startswith("evicting pods would not help on 2 node(s): ")


def test_pods_of_one_numa_node_go_where_only_alignment_refuses(cluster: Client):
    add_nodes(cluster, "n")
    running(cluster, "important-0", "0-3", priority=500)
    running(cluster, "important-1", "8-11", priority=500)
    low = [running(cluster, "low-0", "4-5"), running(cluster, "low-1", "12-13")]
    pod = urgent()
    pod["metadata"]["annotations"][NUMA_SPEC] = '{"numaTopologyPolicy":"SingleNUMANode"}'
    assert chosen(cluster, pod) == ("n", [low[1]])


def test_nodes_are_ranked_as_kube_scheduler_ranks_them(cluster: Client):
    """Each node is better than the one before, by the next member of the order."""
    full_node(cluster, 1, 50, 50, 50, name="violating")
    protected = ["uid-violating-0", *(f"uid-violating-{n}" for n in (1, 2, 3))]
    assert chosen(cluster, urgent(), *protected) == ("violating", ["uid-violating-0"])
    full_node(cluster, 20, 20, 60, 60, name="important")
    found = asked(cluster, urgent("8"), *protected)
    assert (found["node"], found["violations"]) == ("important", 0)
    full_node(cluster, 10, 19, 60, 60, name="sum")
    assert chosen(cluster, urgent("8"), *protected)[0] == "sum"
    full_node(cluster, 9, 19, 60, 60, name="tum")
    assert chosen(cluster, urgent("8"), *protected)[0] == "tum"
    add_nodes(cluster, "whole")
    running(cluster, "whole-0", "0-7", 19, "whole")
    running(cluster, "whole-1", "8-15", 60, "whole")
    assert chosen(cluster, urgent("8"), *protected) == ("whole", ["uid-whole-0"])


def test_protected_pods_stay_where_others_can_go(cluster: Client):
    pods = full_node(cluster)
    assert chosen(cluster, urgent(), pods[0]) == ("n", [pods[1]])
    found = asked(cluster, urgent(), *pods[:3])
    assert ([each["uid"] for each in found["victims"]], found["violations"]) == ([pods[3]], 0)
    found = asked(cluster, urgent(), *(uid.upper() for uid in pods), *pods)
    assert ([each["uid"] for each in found["victims"]], found["violations"]) == ([pods[0]], 1)


def test_nodes_come_a_hundred_at_a_time_and_their_pods_in_one_statement(
    cluster: Client, database: Database, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(preemption, "ENOUGH_NODES", 2)
    for name, priorities in (("a", (200,) * 4), ("b", (200,) * 4), ("c", (50,) * 4), ("d", (40,) * 4)):
        full_node(cluster, *priorities, name=name)
    full_node(cluster, name="e")
    assert chosen(cluster) == ("d", ["uid-d-3"])
    database.dispose()
    counter = Counter(database.engine)
    counts = list[int]()
    for nodes in (["a"], ["c"], ["c", "d"], ["a", "b", "c", "d"]):
        before = counter.count
        asked(cluster, nodes=nodes)
        counts.append(counter.count - before)
    assert counts[1] == counts[2] == counts[3] - 1


def test_time_that_is_up_leaves_what_was_found(cluster: Client, monkeypatch: pytest.MonkeyPatch):
    full_node(cluster, 50, 50, 50, 50, name="a")
    full_node(cluster, name="b")
    use_case = registry_of(cluster.http.application)[Preemption]
    looks = iter([False, True, True])
    monkeypatch.setattr(request_scope, "caller_is_gone", lambda: next(looks))
    assert use_case.choice("edge", urgent()).node == "a"
    monkeypatch.setattr(request_scope, "caller_is_gone", lambda: True)
    found = use_case.choice("edge", urgent())
    assert (found.node, found.reason) == (None, "time was up after 0 of 2 nodes where it may help")
    monkeypatch.undo()
    with request_scope.within(-1):
        assert time.monotonic() >= request_scope.deadline()
        assert use_case.choice("edge", urgent()).node is None


def test_bodies_that_are_none_are_refused(cluster: Client):
    add_nodes(cluster, "n")
    for body, field in (
        ({}, "/pod"),
        ({"pod": urgent(), "protected": "uid"}, "/protected"),
        ({"pod": urgent(), "protected": ["uid"] * 10_001}, "/protected"),
        ({"pod": urgent(), "protected": [""]}, "/protected/0"),
        ({"pod": urgent(), "nodes": [1]}, "/nodes/0"),
        ({"pod": urgent(), "victims": []}, "/victims"),
        ({"pod": {**urgent(), "kind": "Node"}}, "/kind"),
    ):
        answer = cluster.post(PREEMPTION, body)
        assert (answer.status_code, answer.json["errors"][0]["field"]) == (400, field), answer.text
    for pod in (None, 1, [], {"kind": "Pod"}, {"kind": "Pod", "spec": {"containers": [{"name": 1}]}}):
        assert cluster.post(PREEMPTION, {"pod": pod}).status_code == 400, pod
    assert cluster.post(PREEMPTION, {"pod": urgent(), "nodes": ["m"]}).status_code == 404
    assert cluster.post("/ext/v1/clusters/none/pods/preemption", {"pod": urgent()}).status_code == 404
    assert cluster.post(PREEMPTION, {"pod": urgent(), "protected": ["u"] * 10_000}).status_code == 200


# The whole choice against a naive one, on random small clusters.


class Held(NamedTuple):
    """A pod on a node: its place among those that came, and what it asks for."""

    number: int
    priority: int
    cpus: int
    is_protected: bool


class Machine(NamedTuple):
    """A node that takes this number of pods, and whether the pod in question may go there at all."""

    name: str
    most: int
    is_open: bool
    pods: list[Held]

    def takes(self, cpus: int, gone: set[int]) -> bool:
        staying = [pod for pod in self.pods if pod.number not in gone]
        return sum(pod.cpus for pod in staying) + cpus <= 16 and len(staying) < self.most


def naive(machines: list[Machine], cpus: int, priority: int) -> tuple[set[str], list[Held]]:
    """The nodes that fit as they are, without victims; else the best one, and who goes from there."""
    fitting = {each.name for each in machines if each.is_open and each.takes(cpus, set())}
    if fitting:
        return fitting, []
    ways = list[tuple[str, list[Held]]]()
    for machine in machines:
        lower = [pod for pod in machine.pods if pod.priority < priority]
        gone = {pod.number for pod in lower}
        if not machine.is_open or not machine.takes(cpus, gone):
            continue
        # Spare one after another: protected ones, then the most important, then the ones that came first.
        for pod in sorted(lower, key=lambda one: (not one.is_protected, -one.priority, one.number)):
            if machine.takes(cpus, gone - {pod.number}):
                gone.remove(pod.number)
        victims = [pod for pod in lower if pod.number in gone]
        ways.append((machine.name, sorted(victims, key=lambda one: (-one.priority, one.number))))
    # As kube-scheduler does: keep the best by one thing, then of these by the next.
    for cost in (
        lambda pods: sum(pod.is_protected for pod in pods),
        lambda pods: max(pod.priority for pod in pods),
        lambda pods: sum(pod.priority + 2**31 for pod in pods),
        len,
    ):
        least = min((cost(pods) for _, pods in ways), default=None)
        ways = [(name, pods) for name, pods in ways if cost(pods) == least]
    return ({ways[0][0]}, ways[0][1]) if ways else (set(), [])


def machines_of(chance: random.Random) -> Iterator[Machine]:
    numbers = iter(range(100))
    for name in ("a", "b", "c", "d"):
        pods, left, most = list[Held](), 16, chance.choice([3, 5, 110])
        while left and len(pods) < most and chance.random() < 0.92:
            cpus = chance.randint(1, min(6, left))
            left -= cpus
            pods.append(Held(next(numbers), chance.randint(-2, 3), cpus, chance.random() < 0.3))
        yield Machine(name, most, chance.random() < 0.85, pods)


@pytest.mark.parametrize("seed", range(40))
def test_the_choice_is_that_of_a_naive_one(embedded: Client, seed: int):
    chance = random.Random(seed)
    path = f"/ext/v1/clusters/random-{seed}"
    assert embedded.put(path).status_code == 201
    machines, items = list(machines_of(chance)), []
    for machine in machines:
        spec = {} if machine.is_open else {"unschedulable": True}
        body = node_manifests(machine.name, spec=spec, pods=str(machine.most))
        assert embedded.put(f"{path}/nodes/{machine.name}", body).status_code == 201
        for held in machine.pods:
            uid = f"uid-{seed}-{held.number}"
            pod = pod_manifest(str(held.cpus), "1Mi", qos=None, priority=held.priority, uid=uid)
            pod["metadata"] |= {"name": f"p{held.number}", "namespace": "default"}
            pod["spec"]["nodeName"] = machine.name
            items.append(pod)
    if items:
        answer = embedded.post(f"{path}/pods", {"kind": "List", "items": items})
        assert all(each["status"] == 201 for each in answer.json["pods"]), answer.text
    protected = [
        f"uid-{seed}-{pod.number}" for machine in machines for pod in machine.pods if pod.is_protected
    ]
    for cpus, priority in ((2, 1), (5, 3), (9, 2), (12, 4), (16, 4), (17, 4)):
        found = asked(
            embedded, urgent(str(cpus), priority, qos=None), *protected, path=f"{path}/pods/preemption"
        )
        nodes, victims = naive(machines, cpus, priority)
        assert found["node"] in (nodes or {None}), found
        assert [each["name"] for each in found["victims"]] == [f"p{pod.number}" for pod in victims]
        assert found["violations"] == sum(pod.is_protected for pod in victims)
