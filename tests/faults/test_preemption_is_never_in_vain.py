"""Preemption on a real Kubernetes: those go whose CPUs the pod lacks, nobody else, and then it is bound."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.around_kubernetes import Lab, lab
from tests.kubernetes import KUBELET, RESERVATION
from tests.real_kubernetes import ControlPlane
from tests.server import database_url
from tests.synchronizing import eventually

# What kubelet reports that was told to reserve CPUs: it takes them off what the node says it has.
RESERVED = {KUBELET: {"policy": "none", "reservedCPUs": "12-15"}}
CLASSES = {"low": 9000, "middle": 9100, "high": 9500}


@pytest.fixture
def around(kubernetes: ControlPlane, tmp_path: Path) -> Iterator[Lab]:
    for name, value in CLASSES.items():
        manifest = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": value}
        kubernetes.ensure({**manifest, "metadata": {"name": name}})
    with database_url("sqlite") as connection, lab(kubernetes, connection, tmp_path) as found:
        yield found


def create(around: Lab, name: str, cpus: int, class_name: str) -> None:
    around.create_pod(name, cpus, priorityClassName=class_name)


def evicted(around: Lab) -> set[str]:
    return {
        pod["metadata"]["name"]
        for pod in around.kubernetes.pods()
        if pod["metadata"].get("deletionTimestamp")
    }


def fill(around: Lab, pods: dict[str, int], class_name: str) -> None:
    """One after the other, so that it is known which CPUs each has."""
    for name, cpus in pods.items():
        create(around, name, cpus, class_name)
        eventually(True, lambda name=name: name in around.bound())


def end_of(around: Lab, victims: set[str]) -> None:
    """What kubelet does with pods that were evicted."""
    for name in victims:
        around.kubernetes.delete_pod(name)


def refused(around: Lab, name: str) -> Any:
    """What kube-scheduler says of a pod that it has tried to place in vain."""
    pod = around.kubernetes.pod(name)
    assert pod is not None
    conditions = pod["status"].get("conditions") or []
    said = [one for one in conditions if one["type"] == "PodScheduled" and one["status"] == "False"]
    return said[0]["message"] if said else None


@pytest.mark.parametrize("cache", [True, False])
def test_where_the_scheduler_counts_as_the_service_does_exactly_those_go_that_must(around, cache):
    """Of 16 CPUs 4 are reserved, which kubelet takes off what the node says it has."""
    around.add_node("host-0", nrt=RESERVED, cpu="12")
    with around.synchronized(1), around.kubernetes.scheduler(around.extender(nodeCacheCapable=cache)):
        fill(around, {"low-0": 4, "low-1": 4, "low-2": 4}, "low")
        create(around, "urgent", 8, "high")
        eventually(2, lambda: len(evicted(around)))
        end_of(around, evicted(around))
        eventually(True, lambda: "urgent" in around.bound())
        assert evicted(around) == set()
        assert len(around.bound()) == 2


class Asking:
    """Asks the extender as kube-scheduler does.

    1.20.2, which tests can have, hands its extenders to nobody who preempts, so that it never asks itself.
    """

    def __init__(self, around: Lab) -> None:
        self._around = around

    def preempt(self, name: str, proposed: list[str]) -> list[str] | None:
        """The names of the victims on the node; None if it is no good."""
        pods = {pod["metadata"]["name"]: pod for pod in self._around.kubernetes.pods()}
        victims = [{"UID": pods[one]["metadata"]["uid"]} for one in proposed]
        body = {
            "Pod": pods[name],
            "NodeNameToMetaVictims": {"host-0": {"Pods": victims, "NumPDBViolations": 0}},
        }
        found = self._around.service("POST", "/extender/preempt", body)["NodeNameToMetaVictims"]
        if "host-0" not in found:
            return None
        uids = {pod["metadata"]["uid"]: one for one, pod in pods.items()}
        return sorted(uids[victim["UID"]] for victim in found["host-0"]["Pods"])

    def fits(self, name: str) -> bool:
        """Whether the pod fits on the node."""
        pod = self._around.kubernetes.pod(name)
        assert pod is not None
        answer = self._around.service("POST", "/extender/filter", {"Pod": pod, "NodeNames": ["host-0"]})
        return answer["NodeNames"] == ["host-0"]

    def bind(self, name: str) -> None:
        """Bind the pod to the node."""
        pod = self._around.kubernetes.pod(name)
        assert pod is not None
        assert self._around.bind(name, pod["metadata"]["uid"], "host-0") == ""


@pytest.fixture
def asking(around: Lab) -> Asking:
    """A node of 16 CPUs of which 4 are reserved, full of pods that were bound to it; nobody watches."""
    around.add_node("host-0", annotations={RESERVATION: {"reservedCPUs": "12-15"}})
    with around.synchronized(1):
        pass
    found = Asking(around)
    for number in range(3):
        create(around, f"low-{number}", 4, "low")
        found.bind(f"low-{number}")
    return found


def test_reserved_cpus_that_the_scheduler_counts_cost_neither_too_many_nor_too_few(around, asking):
    """It counts 16 CPUs and 12 in use, and so takes 4 for free and one victim for enough for 8."""
    create(around, "urgent", 8, "high")
    assert not asking.fits("urgent")
    assert asking.preempt("urgent", ["low-2"]) == ["low-1", "low-2"]
    assert asking.preempt("urgent", []) == ["low-1", "low-2"]
    create(around, "too-much", 13, "high")
    assert asking.preempt("too-much", ["low-0", "low-1", "low-2"]) is None


def test_victims_that_are_gone_are_taken_for_gone_before_anybody_reports_it(around, asking):
    create(around, "urgent", 4, "high")
    assert asking.preempt("urgent", []) == ["low-2"]
    around.kubernetes.delete_pod("low-2")
    # Whoever is told so late must not cost another pod its place.
    assert asking.preempt("urgent", []) is None
    create(around, "second", 4, "middle")
    around.kubernetes.set_phase("low-1", "Succeeded")
    asking.bind("urgent")
    assert asking.fits("second")
    asking.bind("second")
    with around.synchronized(1):
        eventually({"low-0": "host-0", "urgent": "host-0", "second": "host-0"}, around.claims)


def test_nobody_goes_where_it_does_not_help(around):
    around.add_node("host-0", nrt=RESERVED, cpu="12")
    with around.synchronized(1), around.kubernetes.scheduler(around.extender()):
        fill(around, {"high-0": 4, "high-1": 4}, "high")
        fill(around, {"low-0": 4}, "low")
        create(around, "urgent", 8, "middle")
        eventually(True, lambda: refused(around, "urgent") is not None)
        pod = around.kubernetes.pod("urgent")
        assert pod is not None
        assert "nominatedNodeName" not in pod["status"]
        assert evicted(around) == set()
