"""What the providers of a host offer: the host itself, its NUMA nodes, its physical cores."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fractions import Fraction

from placement.dialects.koordinator.bind_policy import HostBindPolicy
from placement.dialects.koordinator.node.amplification import amplified
from placement.dialects.koordinator.node.zones import Zone
from placement.dialects.koordinator.resources import (
    CPU_CLASS,
    ResourceClass,
    ResourceNames,
    base_amount,
    host_class,
    numa_class,
)
from placement.domain.inventory import MAX_INT, Inventory
from placement.kubernetes.field import Field
from placement.numa.cpus import CoreId, CpuTopology
from placement.numa.cpuset import CpuSet

Inventories = Mapping[str, Inventory]


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
