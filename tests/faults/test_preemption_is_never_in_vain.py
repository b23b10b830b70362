"""kube-scheduler preempts through the extender: those go whose CPUs the pod lacks, and then it is bound."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.faults.around_kubernetes import Lab, lab
from tests.kubernetes import NUMA_SPEC, RESERVATION
from tests.real_kubernetes import ControlPlane
from tests.server import database_url
from tests.synchronizing import eventually, pod_manifest

CLASSES = {"low": 9000, "middle": 9100, "high": 9500}


@pytest.fixture
def around(kubernetes: ControlPlane, tmp_path: Path) -> Iterator[Lab]:
    for name, value in CLASSES.items():
        manifest = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": value}
        kubernetes.ensure({**manifest, "metadata": {"name": name}})
    with database_url("sqlite") as connection, lab(kubernetes, connection, tmp_path) as found:
        yield found


def create(around: Lab, name: str, cpus: int, class_name: str, **annotations: str) -> None:
    manifest = pod_manifest(name, cpus=cpus)
    del manifest["metadata"]["uid"], manifest["status"]
    manifest["metadata"]["annotations"] = annotations
    manifest["spec"]["priorityClassName"] = class_name
    around.kubernetes.create(manifest)


def bound(around: Lab) -> set[str]:
    return {pod["metadata"]["name"] for pod in around.kubernetes.pods() if pod["spec"].get("nodeName")}


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
        eventually(True, lambda name=name: name in bound(around))


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
def test_reserved_cpus_that_the_scheduler_counts_cost_no_pod_too_many_and_none_too_few(around, cache):
    """It counts 16 CPUs of which 4 are reserved, so that it takes less for enough than is."""
    around.add_node("host-0", annotations={RESERVATION: {"reservedCPUs": "12-15"}})
    with around.synchronized(1), around.kubernetes.scheduler(around.extender(nodeCacheCapable=cache)):
        fill(around, {"low-0": 4, "low-1": 4, "low-2": 4}, "low")
        create(around, "urgent", 8, "high")
        eventually(2, lambda: len(evicted(around)))
        victims = evicted(around)
        end_of(around, victims)
        eventually(True, lambda: "urgent" in bound(around))
        assert evicted(around) == set()
        assert len(bound(around)) == 2


def test_where_only_alignment_refuses_the_right_one_goes(around):
    around.add_node("host-0")
    with around.synchronized(1), around.kubernetes.scheduler(around.extender()):
        # Whole NUMA nodes of 8 CPUs: 0-5 and 8-13 are in use, 6-7 and 14-15 are not.
        fill(around, {"middle-0": 6}, "middle")
        create(around, "low-1", 6, "low", **{NUMA_SPEC: '{"numaTopologyPolicy":"SingleNUMANode"}'})
        eventually(True, lambda: "low-1" in bound(around))
        create(around, "urgent", 4, "high", **{NUMA_SPEC: '{"numaTopologyPolicy":"SingleNUMANode"}'})
        eventually({"low-1"}, lambda: evicted(around))
        end_of(around, {"low-1"})
        eventually({"middle-0", "urgent"}, lambda: bound(around))


def test_nobody_goes_where_it_does_not_help(around):
    around.add_node("host-0", annotations={RESERVATION: {"reservedCPUs": "12-15"}})
    with around.synchronized(1), around.kubernetes.scheduler(around.extender()):
        fill(around, {"high-0": 4, "high-1": 4}, "high")
        fill(around, {"low-0": 4}, "low")
        # 16 less 12 and the victim would be enough for the scheduler; it is not for 8 CPUs beside 8 of 12.
        create(around, "urgent", 8, "middle")
        eventually(True, lambda: refused(around, "urgent") is not None)
        create(around, "other", 1, "low")
        eventually(True, lambda: refused(around, "other") is not None)
        pod = around.kubernetes.pod("urgent")
        assert "nominatedNodeName" not in pod["status"]
        assert evicted(around) == set()
