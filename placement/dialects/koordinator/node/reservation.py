"""What a node keeps for itself: the reservation and system-qos-resource annotations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from placement.dialects.koordinator.node.cpu_topology import read_known_cpus
from placement.kubernetes.field import Field
from placement.numa.cpus import CpuTopology
from placement.numa.cpuset import CpuSet

_CPUS_ONLY = "ReservedCPUsOnly"


@dataclass(frozen=True, slots=True)
class NodeReservation:
    """A reservation annotation: its CPU list verbatim, and amounts by Kubernetes resource name."""

    reserved_cpus: str = ""
    resources: Mapping[str, Fraction] = field(default_factory=dict)
    cpus_only: bool = False


def read_reservation(annotation: Field) -> NodeReservation:
    """The reservation a parsed annotation describes; what cannot be read is ignored with a warning.

    An explicit CPU list wins over the quantity of `cpu`.
    Source: Koordinator semantics, reservation annotation.
    """
    policy = annotation.member("applyPolicy").text() or "Default"
    if policy not in ("Default", _CPUS_ONLY):
        annotation.member("applyPolicy").warn(f"unknown policy {policy!r} counts as Default")
    amounts = {
        name: amount.quantity() for name, amount in annotation.member("resources").softly().members().items()
    }
    return NodeReservation(
        reserved_cpus=annotation.member("reservedCPUs").text() or "",
        resources={name: amount for name, amount in amounts.items() if amount is not None},
        cpus_only=policy == _CPUS_ONLY,
    )


def host_reservation(annotation: Field) -> Mapping[str, Fraction]:
    """What a node's parsed reservation annotation takes from its allocatable, by Kubernetes resource name.

    `cpu` is the length of the CPU list if a readable one is given. Nothing is taken with ReservedCPUsOnly,
    and no batch resources ever. Source: Koordinator semantics, reservation annotation.
    """
    reservation = read_reservation(annotation)
    if reservation.cpus_only:
        return {}
    taken = {
        name: amount
        for name, amount in reservation.resources.items()
        if not name.startswith("kubernetes.io/batch-")
    }
    listed = annotation.member("reservedCPUs").cpu_list()
    return {**taken, "cpu": Fraction(len(listed))} if listed else taken


def read_system_cpus(annotation: Field, topology: CpuTopology) -> CpuSet:
    """The CPUs that a parsed system-qos-resource annotation takes away from everybody else.

    None unless the list is exclusive, which is the default.
    Source: Koordinator semantics, unallocatable CPUs.
    """
    cpus = read_known_cpus(annotation.member("cpuset"), topology)
    return cpus if annotation.member("cpusetExclusive").flag(default=True) else frozenset()
