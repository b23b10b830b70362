"""The CPUs that the node agent reserves for the operating system."""

from __future__ import annotations

from math import ceil

from placement.common.manifest import Field
from placement.engine.numa.cpus import CpuSet, CpuTopology
from tests.oracles.kubelet_picker import pick_like_kubelet


def agent_reserved_cpus(annotation: Field, topology: CpuTopology) -> CpuSet:
    """The CPUs an agent publishes for a node's parsed reservation annotation.

    That is the explicit list, none if it does not parse; else as many as the quantity needs, chosen as
    kubelet would, none if there are not so many.
    """
    if annotation.member("reservedCPUs").text():
        return annotation.member("reservedCPUs").cpu_list() or frozenset()
    return pick_like_kubelet(topology, reserved_count(annotation))


def reserved_count(annotation: Field) -> int:
    """How many CPUs to choose: the reserved quantity in whole CPUs, none with an explicit list."""
    if annotation.member("reservedCPUs").text():
        return 0
    cpu = annotation.member("resources").softly().members().get("cpu")
    return ceil((cpu and cpu.quantity("cpu")) or 0)
