"""kube-scheduler and the extender say the same of pods that say something about others; gangs are bound."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.around_kubernetes import Lab, lab
from tests.pod_rules import ruled_pod
from tests.real_kubernetes import ControlPlane
from tests.server import database_url
from tests.synchronizing import eventually

HOSTNAME = "kubernetes.io/hostname"
NODES = {
    f"n{number}": {**({"zone": zone} if zone else {}), **({"rack": rack} if rack else {})}
    for number, (zone, rack) in enumerate([("a", "1"), ("a", "2"), ("b", "2"), ("b", ""), ("", "3")])
}
GANG = "gang.scheduling.koordinator.sh"


@pytest.fixture
def around(kubernetes: ControlPlane, tmp_path: Path) -> Iterator[Lab]:
    with database_url("sqlite") as connection, lab(kubernetes, connection, tmp_path) as found:
        yield found


def some_term(chance: random.Random) -> list[Any]:
    return [chance.choice(["zone", "rack", HOSTNAME]), {"app": chance.choice(["web", "db"])}]


def some_pod(chance: random.Random, name: str, node: str) -> dict[str, Any]:
    """A pod with random rules that tolerates the taint of one node only."""
    said: dict[str, Any] = {"labels": {"app": chance.choice(["web", "db"])}}
    for kind in ("near", "apart"):
        if chance.random() < 0.3:
            said[kind] = [some_term(chance) for _ in range(chance.randint(1, 2))]
    if chance.random() < 0.4:
        key, labels = some_term(chance)
        said["spread"] = [[key, chance.randint(1, 2), labels]]
    pod = ruled_pod(name, said, qos=None)
    del pod["metadata"]["uid"], pod["spec"]["priority"]
    pod["spec"]["containers"][0]["image"] = "example.org/none"
    pod["spec"]["tolerations"] = [{"key": "only", "value": node, "effect": "NoSchedule"}]
    return pod


def verdict(around: Lab, name: str) -> bool | None:
    """Whether kube-scheduler bound the pod; None before it has tried."""
    pod = around.kubernetes.pod(name)
    assert pod is not None
    if pod["spec"].get("nodeName"):
        return True
    conditions = (pod.get("status") or {}).get("conditions") or []
    refused = [each for each in conditions if each["type"] == "PodScheduled" and each["status"] == "False"]
    return False if refused else None


def test_the_scheduler_alone_says_the_same_of_each_pod_and_node(around: Lab) -> None:
    for name, labels in NODES.items():
        taint = {"key": "only", "value": name, "effect": "NoSchedule"}
        around.add_node(name, labels=labels, spec={"taints": [taint]})
    with around.synchronized(len(NODES)):
        pass
    chance, said = random.Random(7), {True: 0, False: 0}
    with around.kubernetes.scheduler():
        for number in range(60):
            name, node = f"p{number}", chance.choice(list(NODES))
            pod = some_pod(chance, name, node)
            answer = around.service("POST", "/extender/filter", {"Pod": pod, "NodeNames": [node]})
            ours = answer["NodeNames"] == [node]
            around.kubernetes.create(pod)
            eventually(True, lambda name=name: verdict(around, name) is not None)
            assert verdict(around, name) is ours, (pod, answer)
            said[ours] += 1
            stored = around.kubernetes.pod(name)
            if ours:
                around.service("PUT", f"/pods/default/{name}", stored)
            else:
                around.kubernetes.delete_pod(name)
    assert min(said.values()) > 10, said


def test_a_gang_is_bound_when_it_is_whole(around: Lab) -> None:
    around.add_node("host-0")
    with around.synchronized(1), around.kubernetes.scheduler(around.extender()):
        for name in ("a", "b", "c"):
            if name == "c":
                eventually({"a", "b"}, lambda: set(around.claims()))
                assert around.bound() == set()
            around.create_pod(name, 4, {f"{GANG}/name": "g", f"{GANG}/min-available": "3"})
        eventually({"a", "b", "c"}, around.bound)
        eventually(12, lambda: around.used("host-0"))
