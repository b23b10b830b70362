"""The CPUs that the node agent reserves for the operating system."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

from placement.common.manifest import Field
from placement.engine.numa.cpus import CpuTopology
from placement.engine.numa.cpuset import CpuSet
from placement.pods.koordinator.tree import NodeReservation, read_reservation
from tests.oracles.kubelet_picker import pick_like_kubelet


def agent_reserved_cpus(annotation: Field, topology: CpuTopology) -> CpuSet:
    """The CPUs an agent publishes for a node's parsed reservation annotation.

    That is the explicit list, none if it does not parse; else as many as the quantity needs, chosen as
    kubelet would, none if there are not so many.
    """
    reservation = read_reservation(annotation)
    if reservation.reserved_cpus:
        return annotation.member("reservedCPUs").cpu_list() or frozenset()
    return pick_like_kubelet(topology, reserved_count(reservation))


def reserved_count(reservation: NodeReservation) -> int:
    """How many CPUs to choose: the reserved quantity in whole CPUs, none with an explicit list."""
    return 0 if reservation.reserved_cpus else ceil(reservation.resources.get("cpu", Fraction(0)))
