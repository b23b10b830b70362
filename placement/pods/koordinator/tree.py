"""The provider tree of a host: host, NUMA nodes, physical cores."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from placement.allocations.kubernetes_resources import (
    CORE_CLASS,
    CPU_CLASS,
    ResourceClass,
    ResourceNames,
    base_amount,
    host_class,
    is_built_in,
    numa_class,
)
from placement.common.manifest import Field
from placement.engine.domain.inventories import MAX_INT, NUMA_ROOT, Inventory, ProviderSpec, TreeSpec
from placement.engine.numa.amounts import amplified
from placement.engine.numa.cpus import MAX_ID, CoreId, CpuTopology
from placement.engine.numa.cpuset import CpuSet
from placement.engine.numa.demand import NumaPolicy, NumaStrategy
from placement.pods.model import HostBindPolicy, HostIdentity, HostPolicies, Zone

# What the providers of a host offer: the host less its reservation, its NUMA nodes (zones), its cores.


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
    """Return the reservation a parsed annotation describes; what cannot be read is ignored with a warning.

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
    """Return what a node's parsed reservation annotation takes from its allocatable, by resource name.

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
    """Return the ratios above 1 of a parsed resource-amplification-ratio annotation, by resource name.

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


def read_zones(zones: Field, names: ResourceNames) -> tuple[Zone, ...]:
    """Return the zones of type `Node` called `node-<N>`, ascending by N; others are skipped with a warning.

    Refused: NUMA nodes or resources listed twice, amounts that are no quantities or negative, resource names
    that are not distinct as classes, ids beyond what a topology may have.
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
    """Return what the host as a whole offers: `status.allocatable`, less what its reservation takes.

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
    """The facts that decide what NUMA nodes offer; `field` is the place of the zones, for warnings.

    `ratios` apply to amounts that are not multiplied yet, which reported ones may be (`zones_amplified`).
    """

    field: Field
    zones: Mapping[int, Zone]
    topology: CpuTopology
    unallocatable: CpuSet
    ratios: Mapping[str, Fraction]
    zones_amplified: bool

    def inventories(self, numa: int) -> dict[str, Inventory]:
        """Return what that NUMA node offers; the share of unallocatable CPUs is reserved.

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
    """Return the threads of each physical core; on FullPCPUsOnly hosts only whole cores can be allocated.

    CPUs of pods that kubelet manages are not reserved: these pods are consumers that hold them.
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
    """Return the inventory of an amount in base units; None if it is less than one unit of the class."""
    total = amount // resource_class.unit
    if total > MAX_INT:
        field.warn(f"{total} of {resource_class.name} is more than an inventory can hold; offering {MAX_INT}")
        total = MAX_INT
    reserved = -(-taken // resource_class.unit)
    if reserved > total:
        field.warn(f"{reserved} of {resource_class.name} are reserved but there are only {total}")
    return Inventory(total=total, reserved=min(reserved, total)) if total else None


# The traits of imported hosts.


_OTHER = re.compile(r"[^A-Z0-9_]")
_LONGEST_TRAIT = 255

NUMA_TRAITS = frozenset({NUMA_ROOT})

_ARCHITECTURES = {"amd64": "HW_ARCH_X86_64", "arm64": "HW_ARCH_AARCH64"}
BIND_TRAITS = {
    HostBindPolicy.FULL_PCPUS_ONLY: "CUSTOM_KOORD_BIND_FULL_PCPUS_ONLY",
    HostBindPolicy.SPREAD_BY_PCPUS: "CUSTOM_KOORD_BIND_SPREAD_BY_PCPUS",
}
NUMA_POLICY_TRAITS = {
    NumaPolicy.BEST_EFFORT: "CUSTOM_KOORD_NUMA_POLICY_BEST_EFFORT",
    NumaPolicy.RESTRICTED: "CUSTOM_KOORD_NUMA_POLICY_RESTRICTED",
    NumaPolicy.SINGLE_NUMA_NODE: "CUSTOM_KOORD_NUMA_POLICY_SINGLE_NUMA_NODE",
}
_NUMA_STRATEGY = {
    NumaStrategy.MOST_ALLOCATED: "CUSTOM_KOORD_NUMA_STRATEGY_MOST",
    NumaStrategy.LEAST_ALLOCATED: "CUSTOM_KOORD_NUMA_STRATEGY_LEAST",
    NumaStrategy.DISTRIBUTE_EVENLY: "CUSTOM_KOORD_NUMA_STRATEGY_EVEN",
}


def host_traits(
    policies: HostPolicies, topology: CpuTopology, kubelet_static: bool, architecture: str | None
) -> frozenset[str]:
    """Return the traits of the root provider (koordinator.md, "Traits")."""
    named = (
        BIND_TRAITS.get(policies.bind),
        NUMA_POLICY_TRAITS.get(policies.numa) if policies.numa else None,
        _NUMA_STRATEGY.get(policies.strategy) if policies.strategy else None,
        architecture,
        "CUSTOM_KOORD_KUBELET_STATIC" if kubelet_static else None,
    )
    return frozenset([trait for trait in named if trait is not None] + list(_thread_traits(topology)))


def _thread_traits(topology: CpuTopology) -> Iterator[str]:
    threads = topology.threads_per_core
    if not threads:
        yield "CUSTOM_KOORD_NO_CPU_TOPOLOGY"
        return
    yield f"CUSTOM_SMT_{threads}"
    if threads > 1:
        yield "HW_CPU_HYPERTHREADING"


def architecture_trait(architecture: Field) -> str | None:
    """Return the trait of `status.nodeInfo.architecture`; None, with a warning, if missing or unknown."""
    name = architecture.text()
    if name not in _ARCHITECTURES:
        architecture.warn(f"no trait for the architecture {name!r}" if name else "is missing")
        return None
    return _ARCHITECTURES[name]


def label_trait(key: str, value: str) -> str | None:
    """Return the trait of a label with that value; None if it would be longer than a trait may be.

    Source: koordinator.md, "Traits".
    """
    name = _OTHER.sub("_", f"CUSTOM_LABEL_{key}_{value}".upper())
    return name if len(name) <= _LONGEST_TRAIT else None


def label_traits(labels: Mapping[str, Field]) -> frozenset[str]:
    """Return the traits of labels of a node, by key; what cannot be a trait is left out with a warning."""
    found = set()
    for key, label in labels.items():
        text = label.text()
        if text is None:
            continue
        trait = label_trait(key, text)
        if trait is None:
            label.warn(f"no trait: its name would be longer than {_LONGEST_TRAIT} characters")
        else:
            found.add(trait)
    return frozenset(found)


@dataclass(frozen=True, slots=True)
class TreeOffers:
    """The offers of a host, its NUMA nodes and its cores; every core lies in one of these NUMA nodes."""

    host: Inventories
    numa_nodes: Mapping[int, Inventories]
    cores: Mapping[CoreId, Inventory]

    @property
    def classes(self) -> frozenset[str]:
        """Return every resource class that is offered."""
        levels = [self.host, *self.numa_nodes.values(), {CORE_CLASS: None} if self.cores else {}]
        return frozenset().union(*levels)


def build_tree(
    identity: HostIdentity, offers: TreeOffers, traits: frozenset[str], topology: CpuTopology
) -> TreeSpec:
    """Return the tree of a host with these traits: the root, then NUMA nodes, then cores.

    The socket is no level of its own (koordinator.md, "Tree").
    """
    root = ProviderSpec(identity.uuid(), identity.name(), None, offers.host, traits)
    numa_nodes = _numa_providers(identity, offers.numa_nodes)
    return TreeSpec((root, *numa_nodes, *_core_providers(identity, offers.cores, topology)))


def renamed(tree: TreeSpec, identity: HostIdentity, traits: frozenset[str]) -> TreeSpec:
    """Return the tree of another host that is like this one, with more traits at its root."""
    host = tree.root.name
    paths = {spec.uuid: spec.name.removeprefix(host).removeprefix("/") for spec in tree.providers}
    uuids = {uuid: identity.uuid(path) for uuid, path in paths.items()}
    return TreeSpec(
        tuple(
            ProviderSpec(
                uuids[spec.uuid],
                identity.name(paths[spec.uuid]),
                None if spec.parent_uuid is None else uuids[spec.parent_uuid],
                spec.inventories,
                spec.traits if spec.parent_uuid is not None else spec.traits | traits,
            )
            for spec in tree.providers
        )
    )


def _numa_providers(identity: HostIdentity, numa_nodes: Mapping[int, Inventories]) -> Iterator[ProviderSpec]:
    for numa, inventories in numa_nodes.items():
        path = f"numa-{numa}"
        yield ProviderSpec(
            identity.uuid(path), identity.name(path), identity.uuid(), inventories, NUMA_TRAITS
        )


def _core_providers(
    identity: HostIdentity, cores: Mapping[CoreId, Inventory], topology: CpuTopology
) -> Iterator[ProviderSpec]:
    for (socket, core), inventory in cores.items():
        path = f"core-{socket}-{core}"
        numa = topology.by_cpu[topology.cores[socket, core][0]].numa
        yield ProviderSpec(
            identity.uuid(path), identity.name(path), identity.uuid(f"numa-{numa}"), {CORE_CLASS: inventory}
        )


# Which resources of a node may be offered where an operator lists their prefixes.


def with_admitted(
    node: Mapping[str, Any], topology: Mapping[str, Any] | None, prefixes: Sequence[str]
) -> tuple[Mapping[str, Any], Mapping[str, Any] | None, list[str]]:
    """Return the manifests with resources of these prefixes only, and the names that are left out, sorted.

    Built-in resources always stay. The manifests need not be well-formed; what is no list of resources stays.
    """
    left_out: set[str] = set()

    def admits(name: object) -> bool:
        if not isinstance(name, str) or is_built_in(name) or name.startswith(tuple(prefixes)):
            return True
        left_out.add(name)
        return False

    status = node.get("status")
    allocatable = status.get("allocatable") if isinstance(status, Mapping) else None
    if isinstance(status, Mapping) and isinstance(allocatable, Mapping):
        kept = {name: amount for name, amount in allocatable.items() if admits(name)}
        node = {**node, "status": {**status, "allocatable": kept}}
    zones = topology.get("zones") if topology is not None else None
    if topology is not None and isinstance(zones, list):
        topology = {**topology, "zones": [_zone(zone, admits) for zone in zones]}
    return node, topology, sorted(left_out)


def _zone(zone: Any, admits: Callable[[object], bool]) -> Any:
    resources = zone.get("resources") if isinstance(zone, Mapping) else None
    if not isinstance(resources, list):
        return zone
    kept = [entry for entry in resources if not isinstance(entry, Mapping) or admits(entry.get("name"))]
    return {**zone, "resources": kept}
