"""What the providers of a host offer: the host less its reservation, its NUMA nodes (zones), its cores."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from placement.dialects.koordinator.node.host_policies import HostBindPolicy
from placement.dialects.koordinator.resources import (
    CPU_CLASS,
    ResourceClass,
    ResourceNames,
    base_amount,
    host_class,
    numa_class,
)
from placement.domain.inventory import MAX_INT, Inventory
from placement.kubernetes.manifest import Field
from placement.numa.amounts import amplified
from placement.numa.consistency import MAX_ID
from placement.numa.cpus import CoreId, CpuTopology
from placement.numa.cpuset import CpuSet

_CPUS_ONLY = "ReservedCPUsOnly"
_NAME = re.compile(r"node-([0-9]{1,9})")
Inventories = Mapping[str, Inventory]


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


def read_amplification(annotation: Field) -> Mapping[str, Fraction]:
    """The ratios above 1 of a parsed resource-amplification-ratio annotation by Kubernetes resource name.

    Ratios up to 1 have no effect. Refused: ratios that are not finite numbers.
    Source: koordinator.md, "CPU amplification".
    """
    ratios = {resource: _read_ratio(ratio) for resource, ratio in annotation.members().items()}
    return {resource: ratio for resource, ratio in ratios.items() if ratio is not None and ratio > 1}


def _read_ratio(ratio: Field) -> Fraction | None:
    number = ratio.value
    if isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number):
        return Fraction(repr(number))
    ratio.complain("must be a number")
    return None


@dataclass(frozen=True, slots=True)
class Zone:
    """The allocatable amounts of one NUMA node by Kubernetes resource name, as reported.

    Millicores for `cpu`, bytes or pieces otherwise; nothing is subtracted or multiplied.
    """

    numa: int
    amounts: Mapping[str, int]


def read_zones(zones: Field, names: ResourceNames) -> tuple[Zone, ...]:
    """The zones of type `Node` called `node-<N>`, ascending by N; others are skipped with a warning.

    Refused: NUMA nodes or resources listed twice, amounts that are no quantities or negative, resource names
    that cannot be told apart as classes, ids beyond what a topology may have.
    Source: koordinator.md, "Unallocatable CPUs", "NUMA amounts".
    """
    found: dict[int, Zone] = {}
    for zone in zones.elements():
        numa = _numa_id(zone)
        if numa is None:
            continue
        if numa in found:
            zone.member("name").refuse(f"NUMA node {numa} is listed twice")
        found[numa] = Zone(numa, _read_amounts(zone.member("resources"), names))
    return tuple(found[numa] for numa in sorted(found))


def _numa_id(zone: Field) -> int | None:
    kind, name = zone.member("type").text(), zone.member("name").text()
    match = _NAME.fullmatch(name or "")
    if kind != "Node" or match is None:
        zone.warn(f"skipped: only zones of type Node called node-<number> count, this is {kind} {name!r}")
        return None
    numa = int(match[1])
    if numa > MAX_ID:
        zone.member("name").refuse(f"{numa} is above {MAX_ID}")
        return None
    return numa


def _read_amounts(resources: Field, names: ResourceNames) -> Mapping[str, int]:
    amounts: dict[str, int] = {}
    for entry in resources.elements():
        field = entry.member("name")
        resource, quantity = field.text(), entry.member("allocatable").quantity()
        if not names.admit(field, resource or "", numa_class(resource or "").name):
            continue
        if resource in amounts:
            field.refuse(f"{resource!r} is listed twice")
        elif resource is not None and quantity is not None:
            amounts[resource] = base_amount(resource, quantity)
    return amounts


def host_inventories(
    allocatable: Field, reserved: Mapping[str, Fraction], offered_below: Collection[str], names: ResourceNames
) -> dict[str, Inventory]:
    """What the host as a whole offers: `status.allocatable`, less what its reservation annotation takes.

    Classes that its NUMA nodes offer are left to them, so that nothing is offered twice.
    Source: koordinator.md, "Resource classes", "Reservation annotation".
    """
    offers: dict[str, Inventory] = {}
    for resource, amount in allocatable.members().items():
        resource_class, quantity = host_class(resource), amount.quantity()
        admitted = names.admit(amount, resource, resource_class.name)
        if quantity is None or not admitted or resource_class.name in offered_below:
            continue
        taken = base_amount(resource, reserved.get(resource, Fraction(0)))
        offer = _offer(amount, resource_class, base_amount(resource, quantity), taken)
        if offer is not None:
            offers[resource_class.name] = offer
    return offers


@dataclass(frozen=True, slots=True)
class NumaSupply:
    """All that decides what NUMA nodes offer; `field` is the place of the zones, for warnings.

    `ratios` apply to amounts that are not multiplied yet, which reported ones may be (`zones_amplified`).
    """

    field: Field
    zones: Mapping[int, Zone]
    topology: CpuTopology
    unallocatable: CpuSet
    ratios: Mapping[str, Fraction]
    zones_amplified: bool

    def inventories(self, numa: int) -> dict[str, Inventory]:
        """What that NUMA node offers; what unallocatable CPUs stand for is reserved.

        The capacity is what the scheduler counts with (`numa_capacity`): 1000 millicores for each
        unallocatable CPU are taken off first, then the rest is multiplied.
        Source: koordinator.md, "Resource classes", "NUMA amounts".
        """
        cpus = self.topology.numa_nodes.get(numa, ())
        reported = dict(self.zones[numa].amounts) if numa in self.zones else {}
        ratios: Mapping[str, Fraction] = {} if self.zones_amplified else self.ratios
        if cpus and "cpu" not in reported:
            self.field.warn(f"no cpu amount for NUMA node {numa}; counting its {len(cpus)} CPUs")
            reported["cpu"] = 1000 * len(cpus)
            ratios = {**ratios, "cpu": self.ratios.get("cpu", Fraction(1))}
        total = amplified(reported, ratios)
        usable = amplified(self._without_unallocatable(reported, cpus), ratios)
        offers: dict[str, Inventory] = {}
        for resource, amount in total.items():
            resource_class = numa_class(resource)
            offer = _offer(self.field, resource_class, amount, amount - usable[resource])
            if offer is not None:
                offers[resource_class.name] = offer
        return offers

    def _without_unallocatable(self, reported: Mapping[str, int], cpus: Collection[int]) -> dict[str, int]:
        lost = 1000 * len(self.unallocatable.intersection(cpus))
        if lost > reported.get("cpu", lost):
            self.field.warn(f"{lost} of {CPU_CLASS} are reserved but there are only {reported['cpu']}")
        return {
            resource: max(0, amount - lost) if resource == "cpu" else amount
            for resource, amount in reported.items()
        }


def core_inventories(
    topology: CpuTopology, reserved: CpuSet, bind_policy: HostBindPolicy
) -> dict[CoreId, Inventory]:
    """The threads of each physical core; on FullPCPUsOnly hosts only whole cores can be allocated.

    CPUs of pods that kubelet manages are not reserved: those pods are consumers that hold them.
    Source: koordinator.md, "Resource classes".
    """
    whole = bind_policy is HostBindPolicy.FULL_PCPUS_ONLY
    unit = topology.threads_per_core if whole else 1
    return {
        core: Inventory(
            total=len(cpus),
            reserved=len(reserved.intersection(cpus)),
            min_unit=unit,
            step_size=unit,
        )
        for core, cpus in topology.cores.items()
    }


def _offer(field: Field, resource_class: ResourceClass, amount: int, taken: int) -> Inventory | None:
    """The inventory of an amount in base units; None if not a single unit of the class is left in it."""
    total = amount // resource_class.unit
    if total > MAX_INT:
        field.warn(f"{total} of {resource_class.name} is more than an inventory can hold; offering {MAX_INT}")
        total = MAX_INT
    reserved = -(-taken // resource_class.unit)
    if reserved > total:
        field.warn(f"{reserved} of {resource_class.name} are reserved but there are only {total}")
    return Inventory(total=total, reserved=min(reserved, total)) if total else None
