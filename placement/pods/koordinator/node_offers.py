"""Offers of the providers of a host: the host less its reservation, its NUMA nodes (zones), its cores."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping
from fractions import Fraction

from placement.allocations import kubernetes_resources
from placement.common.manifest import Field, Manifest, ManifestReport
from placement.engine.domain.inventories import MAX_INT, Inventory
from placement.engine.numa.cpus import MAX_ID, CoreId, parse_typed_cpu_list
from placement.engine.numa.host import ResourceAmounts, amplified
from placement.pods.koordinator import annotations as keys
from placement.pods.state.model import HostBindPolicy, HostCpus

_CPUS_ONLY = "ReservedCPUsOnly"
_ZONE_NAME = re.compile(r"node-([0-9]{1,9})")


_ALL_TAKEN = "until it can be read, the node offers nothing that it may reserve"


def host_reservation(annotation: Field) -> Callable[[str, Fraction], Fraction]:
    """Return the amount that the reservation annotation of a node takes from a resource, as a function.

    `cpu` is the length of the CPU list if a readable one is given. Nothing is taken with ReservedCPUsOnly,
    and no batch resources ever. All of a resource is taken if it cannot be read how much, and of each
    resource if the annotation cannot be read at all. Source: koordinator.md, "Reservation annotation".
    """
    own_report = ManifestReport(consequence=_ALL_TAKEN, withholds=True)
    parsed = annotation.softly().reported_to(own_report).json()
    resources = parsed.member("resources").members()
    is_readable = not own_report.overlooked
    policy = parsed.member("applyPolicy").text() or "Default"
    if policy not in ("Default", _CPUS_ONLY):
        parsed.member("applyPolicy").warn(f"unknown policy {policy!r} counts as Default")
    amounts = {name: amount.quantity(name) for name, amount in resources.items()}
    # Reading the CPUs themselves warns of a list that cannot be read.
    listed = parsed.member("reservedCPUs").reported_to(ManifestReport())
    if cpus := listed.cpu_list(parse_typed_cpu_list):
        amounts["cpu"] = Fraction(len(cpus))
    annotation.report.include(own_report)

    def taken(resource: str, allocatable: Fraction) -> Fraction:
        if policy == _CPUS_ONLY or resource.startswith("kubernetes.io/batch-"):
            return Fraction(0)
        amount = amounts.get(resource, Fraction(0) if is_readable else None)
        return allocatable if amount is None else amount

    return taken


def read_amplification(annotation: Field) -> Mapping[str, Fraction]:
    """Return the ratios above 1 of a parsed resource-amplification-ratio annotation, by resource name.

    Ratios up to 1 have no effect. Refused: ratios that are not finite numbers.
    Source: koordinator.md, "CPU amplification".
    """
    ratios = {}
    for resource, ratio in annotation.members().items():
        number = ratio.value
        if isinstance(number, int | float) and not isinstance(number, bool) and math.isfinite(number):
            ratios[resource] = Fraction(repr(number))
        else:
            ratio.complain("must be a number")
    return {resource: ratio for resource, ratio in ratios.items() if ratio > 1}


def read_zones(zones: Field, names: kubernetes_resources.ResourceNames) -> Mapping[int, ResourceAmounts]:
    """Return the amounts of zones of type `Node` called `node-<N>`, ascending by N; others are skipped.

    Refused: NUMA nodes or resources listed twice, amounts that are not quantities or negative, resource names
    that are not distinct as classes, ids beyond what a topology may have.
    Source: koordinator.md, "Unallocatable CPUs", "NUMA amounts".
    """
    found: dict[int, ResourceAmounts] = {}
    for zone in zones.elements():
        kind, name = zone.member("type").text(), zone.member("name").text()
        match = _ZONE_NAME.fullmatch(name or "")
        if kind != "Node" or match is None:
            only = "only zones of type Node called node-<number> count"
            zone.warn(f"skipped: {only}, this is {kind} {name!r}")
            continue
        numa = int(match[1])
        if numa > MAX_ID:
            zone.member("name").refuse(f"{numa} is above {MAX_ID}")
            continue
        if numa in found:
            zone.member("name").refuse(f"NUMA node {numa} is listed twice")
        amounts: dict[str, int] = {}
        for entry in zone.member("resources").elements():
            field = entry.member("name")
            resource, quantity = field.text() or "", entry.member("allocatable").quantity(field.text() or "")
            if not names.admit(field, resource, kubernetes_resources.numa_class(resource).name):
                continue
            if resource in amounts:
                field.refuse(f"{resource!r} is listed twice")
            elif quantity is not None:
                amounts[resource] = kubernetes_resources.base_amount(resource, quantity)
        found[numa] = amounts
    return dict(sorted(found.items()))


def host_inventories(
    node_manifest: Manifest, offered_below: Collection[str], names: kubernetes_resources.ResourceNames
) -> dict[str, Inventory]:
    """Return the inventories of the host as a whole: `status.allocatable` less its reservation.

    Classes that its NUMA nodes offer are left to them, so that nothing is offered twice.
    Source: koordinator.md, "Resource classes", "Reservation annotation".
    """
    allocatable = node_manifest.root.member("status").member("allocatable")
    if allocatable.value is None:
        allocatable.warn("is missing; the host as a whole offers nothing")
    reserved = host_reservation(node_manifest.annotation(keys.RESERVATION))
    offers: dict[str, Inventory] = {}
    for resource, amount in allocatable.members().items():
        resource_class, quantity = (
            kubernetes_resources.host_class(resource),
            amount.quantity_or_zero(resource),
        )
        admitted = names.admit(amount, resource, resource_class.name)
        if quantity is None or not admitted or resource_class.name in offered_below:
            continue
        taken = kubernetes_resources.base_amount(resource, reserved(resource, quantity))
        offers |= _offer(amount, resource_class, kubernetes_resources.base_amount(resource, quantity), taken)
    return offers


def numa_inventories(
    zones: Field,
    numa: int,
    amounts: ResourceAmounts,
    host_cpus: HostCpus,
    ratios: Mapping[str, Fraction],
    is_amplified: bool,
) -> dict[str, Inventory]:
    """Return the inventories of a NUMA node with these amounts; unallocatable CPUs are reserved.

    The capacity is what the scheduler counts with (`numa_capacity`): 1000 millicores for each unallocatable
    CPU are taken off first. Then the rest is multiplied, unless the report `is_amplified`.
    Source: koordinator.md, "Resource classes", "NUMA amounts".
    """
    cpus = host_cpus.topology.numa_nodes.get(numa, ())
    reported, factors = dict(amounts), {} if is_amplified else dict(ratios)
    if cpus and "cpu" not in reported:
        zones.warn(f"no cpu amount for NUMA node {numa}; counting its {len(cpus)} CPUs")
        reported["cpu"] = 1000 * len(cpus)
        factors["cpu"] = ratios.get("cpu", Fraction(1))
    lost = 1000 * len(host_cpus.unallocatable_cpus.intersection(cpus))
    if lost > reported.get("cpu", lost):
        zones.warn(
            f"{lost} of {kubernetes_resources.CPU_CLASS} are reserved but there are only {reported['cpu']}"
        )
    left = {**reported, "cpu": max(0, reported.get("cpu", 0) - lost)}
    usable = amplified(left, factors)
    offers: dict[str, Inventory] = {}
    for resource, amount in amplified(reported, factors).items():
        offers |= _offer(zones, kubernetes_resources.numa_class(resource), amount, amount - usable[resource])
    return offers


def core_inventories(host_cpus: HostCpus, bind_policy: HostBindPolicy) -> dict[CoreId, Inventory]:
    """Return the threads of each physical core; on FullPCPUsOnly hosts only whole cores can be allocated.

    CPUs of pods that kubelet manages are not reserved: these pods are consumers that hold them.
    Source: koordinator.md, "Resource classes".
    """
    topology = host_cpus.topology

    def unit(cpus: Collection[int]) -> int:
        if bind_policy is not HostBindPolicy.FULL_PCPUS_ONLY:
            return 1
        return len(cpus) if topology.per_core else topology.threads_per_core

    return {
        core: Inventory(
            total=len(cpus),
            reserved=len(host_cpus.reserved_cpus.intersection(cpus)),
            min_unit=unit(cpus),
            step_size=unit(cpus),
        )
        for core, cpus in topology.cores.items()
    }


def _offer(
    field: Field, resource_class: kubernetes_resources.ResourceClass, amount: int, taken: int
) -> dict[str, Inventory]:
    """Return the inventory of an amount in base units; none if it is less than one unit of the class."""
    name, total = resource_class.name, amount // resource_class.unit
    if total > MAX_INT:
        field.warn(f"{total} of {name} is more than an inventory can hold; offering {MAX_INT}")
        total = MAX_INT
    reserved = -(-taken // resource_class.unit)
    if reserved > total:
        field.warn(f"{reserved} of {name} are reserved but there are only {total}")
    return {name: Inventory(total=total, reserved=min(reserved, total))} if total else {}
