"""The CPUs that the node agent reserves for the operating system."""

from __future__ import annotations

from placement.dialects.koordinator.node.reservation import read_reservation
from placement.kubernetes.field import Field
from placement.numa.accumulator.kubelet_picker import pick_like_kubelet
from placement.numa.cpus import CpuTopology
from placement.numa.cpuset import CpuSet


def agent_reserved_cpus(annotation: Field, topology: CpuTopology) -> CpuSet:
    """The CPUs an agent publishes for a node's parsed reservation annotation.

    That is the explicit list, none if it does not parse; else as many as the quantity needs, chosen as
    kubelet would, none if there are not so many. Source: koordinator.md, "Reservation annotation".
    """
    reservation = read_reservation(annotation)
    if reservation.reserved_cpus:
        return annotation.member("reservedCPUs").cpu_list() or frozenset()
    return pick_like_kubelet(topology, reservation.reserved_count)
