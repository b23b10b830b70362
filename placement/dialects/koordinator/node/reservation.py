"""What a node keeps for itself: the reservation annotation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from placement.kubernetes.manifest import Field

_CPUS_ONLY = "ReservedCPUsOnly"


@dataclass(frozen=True, slots=True)
class NodeReservation:
    """A reservation annotation: its CPU list verbatim, and amounts by Kubernetes resource name."""

    reserved_cpus: str = ""
    resources: Mapping[str, Fraction] = field(default_factory=dict)
    cpus_only: bool = False


def read_reservation(annotation: Field) -> NodeReservation:
    """The reservation a parsed annotation describes; what cannot be read is ignored with a warning.

    An explicit CPU list wins over the quantity of `cpu`. Source: koordinator.md, "Reservation annotation".
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
    and no batch resources ever. Source: koordinator.md, "Reservation annotation".
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
