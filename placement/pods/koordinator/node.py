"""A Kubernetes node and its NodeResourceTopology as one value: its CPUs, its policies, and its provider tree.

The tree is the host, its NUMA nodes and its physical cores, each with what it offers.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import fields, replace
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
from placement.common.manifest import (
    Field,
    Manifest,
    ManifestError,
    ManifestReport,
    Profile,
    read_manifest,
    shown,
)
from placement.engine.domain.inventories import MAX_INT, NUMA_ROOT, Inventory, ProviderSpec, TreeSpec
from placement.engine.numa.cpus import (
    MAX_ID,
    MAX_NUMA_NODES,
    CoreId,
    CpuTopology,
    parse_typed_cpu_list,
)
from placement.engine.numa.host import Amounts, NumaPolicy, NumaStrategy, amplified
from placement.pods.koordinator import annotations as keys
from placement.pods.koordinator.host_cpus import (
    read_host_cpus,
    read_host_policies,
    read_known_cpus,
    read_kubelet_policy,
    read_shared_pools,
    read_system_cpus,
    read_withheld,
)
from placement.pods.manifests.selection import read_attributes
from placement.pods.model import HostBindPolicy, HostCpus, HostIdentity, HostPolicies, NodeImport

_NRT = "NodeResourceTopology"
_HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_UID = re.compile(r"[!-.0-~]{1,128}")
_LONGEST_NAME = 200
_LONGEST_PATH = "core-4096-4096"

Inventories = Mapping[str, Inventory]


def import_node(
    cluster: str,
    node: Mapping[str, Any],
    nrt: Mapping[str, Any] | None,
    profile: str = "design",
    labels: Collection[str] = (),
) -> NodeImport:
    """Return what a parsed Node and its NodeResourceTopology, if there is one, say about a host of a cluster.

    `labels` are the keys of labels that become traits. Equal manifests always give equal values.
    Raises ManifestError with every finding at once.
    Source: koordinator.md, "Host ingestion, recovery and pools", "Placement mapping".
    """
    if profile not in set(Profile):
        choices = " and ".join(Profile)
        raise ManifestError([f"profile: must be one of {choices}, not {shown(profile)}"])
    report, names, reading = ManifestReport(), ResourceNames(), Profile(profile)
    host, topology, identity = _read_manifests(cluster, node, nrt, report)
    cpus = read_host_cpus(host, topology, reading)
    policies = read_host_policies(host, topology.root.member("topologyPolicies"), cpus.kubelet, reading)
    zones = topology.root.member("zones")
    amounts = read_zones(zones, names)
    numa_ids = sorted(amounts.keys() | cpus.topology.numa_nodes.keys())
    if len(numa_ids) > MAX_NUMA_NODES:
        zones.refuse(f"there are more than {MAX_NUMA_NODES} NUMA nodes")
    # Ratios in the report itself only say that its amounts are multiplied already (CPU amplification).
    reported = topology.annotation(keys.AMPLIFICATION_RATIO).json()
    ratios = read_amplification(host.annotation(keys.AMPLIFICATION_RATIO).json())
    is_amplified = bool(reported.mapping())
    offers = {
        f"numa-{numa}": numa_inventories(zones, numa, amounts.get(numa, {}), cpus, ratios, is_amplified)
        for numa in numa_ids
    }
    offered_below = frozenset[str]().union(*offers.values())
    offers[""] = host_inventories(host, offered_below, names)
    cores = core_inventories(cpus, policies.bind)
    classes = frozenset({CORE_CLASS} if cores else ()).union(*offers.values())
    traits = host_traits(host, policies, cpus)
    of_labels = label_traits({key: host.label(key) for key in labels})
    ls_pools, be_pools = (
        read_shared_pools(topology.annotation(key).softly().json())
        for key in (keys.LS_SHARED_POOLS, keys.BE_SHARED_POOLS)
    )
    report.raise_findings()
    return NodeImport(
        **{each.name: getattr(cpus, each.name) for each in fields(cpus)},
        name=identity.host,
        tree=build_tree(identity, offers, cores, traits, of_labels, cpus.topology),
        policies=policies,
        amplification=ratios,
        zones_amplified=is_amplified,
        zones=amounts,
        resource_names={name: names.of(name) for name in sorted(classes)},
        ls_pools=ls_pools,
        be_pools=be_pools,
        warnings=report.warnings,
        withholding=report.withholding,
    )


def import_like(
    cluster: str,
    node: Mapping[str, Any],
    nrt: Mapping[str, Any] | None,
    like: NodeImport,
    labels: Collection[str] = (),
) -> NodeImport | None:
    """Return what `import_node` returns for manifests with the canonical form of `like`, without a full read.

    Returns None if there are findings or warnings that `like` lacks: then the manifests must be read in full.
    """
    report = ManifestReport()
    host, _, identity = _read_manifests(cluster, node, nrt, report)
    of_labels = label_traits({key: host.label(key) for key in labels})
    if report.findings or not set(report.warnings) <= set(like.warnings):
        return None
    return replace(like, name=identity.host, tree=renamed(like.tree, identity, of_labels))


def _read_manifests(
    cluster: str, node: Mapping[str, Any], nrt: Mapping[str, Any] | None, report: ManifestReport
) -> tuple[Manifest, Manifest, HostIdentity]:
    host = read_manifest(node, "v1", "Node", report)
    if nrt is None:
        topology = Manifest(Field(_NRT, {}, report))
        topology.root.warn("is missing; nothing is known about CPUs and NUMA nodes")
    else:
        topology = read_manifest(nrt, "topology.node.k8s.io/v1alpha1", _NRT, report)
        given, expected = topology.name.value, host.name.value
        if given != expected:
            topology.name.refuse(f"must be the name of the node, {shown(expected)}, not {shown(given)}")
    # What pods choose nodes by is read anew when pods come; findings about it are reported now.
    read_attributes(node, report)
    name, uid = host.name.text() or "", host.uid.text() or ""
    identity = HostIdentity(cluster, name, uid or name)
    if not cluster or "/" in cluster or not cluster.isprintable():
        report.refuse(f"cluster: {shown(cluster)} cannot be part of a provider name")
    if name and not _HOST_NAME.fullmatch(name):
        host.name.refuse(f"{shown(name)} is not a DNS name")
    if uid and not _UID.fullmatch(uid):
        host.uid.refuse(f"{shown(uid)} is not a uid")
    if len(identity.name(_LONGEST_PATH)) > _LONGEST_NAME:
        host.name.refuse(f"names of its providers would be longer than {_LONGEST_NAME} characters")
    return host, topology, identity


# What a node withholds stays as it was while a new version of it cannot be read.


_WITHHOLDING = (keys.RESERVATION, keys.SYSTEM_QOS_RESOURCE, keys.CPU_MANAGER_POLICY)


def unreadable_withholding(
    node: Mapping[str, Any], nrt: Mapping[str, Any] | None, profile: str
) -> tuple[str, ...]:
    """Return warnings about what a node withholds and cannot be read, whatever its topology."""
    report = ManifestReport()
    host = Manifest(Field("Node", node, report))
    topology = Manifest(Field(_NRT, nrt or {}, report))
    read_withheld(host, topology, CpuTopology(), Profile(profile))
    host_reservation(host.annotation(keys.RESERVATION))
    return report.withholding


def with_former_withholding(
    manifest: Mapping[str, Any], former: Mapping[str, Any]
) -> tuple[Mapping[str, Any], list[str]]:
    """Return a Node or a NodeResourceTopology with former annotations in place of ones that cannot be read.

    These are the annotations that withhold CPUs or amounts from pods; there is a warning for each. A former
    one that cannot be read, or was not there, replaces nothing. Source: koordinator.md, "Unallocatable CPUs".
    """
    root, before = (Field(str(each.get("kind")), each, ManifestReport()) for each in (manifest, former))
    given = root.member("metadata").member("annotations")
    known = before.member("metadata").member("annotations")
    kept: dict[str, Any] = {}
    warnings = []
    for key in _WITHHOLDING:
        finding = _why_unreadable(key, given.member(key))
        if finding and known.member(key).text() and not _why_unreadable(key, known.member(key)):
            kept[key] = known.member(key).value
            warnings.append(f"{finding}; what the annotation said before stays in force")
    if not kept:
        return manifest, []
    metadata = {**manifest["metadata"], "annotations": {**manifest["metadata"]["annotations"], **kept}}
    return {**manifest, "metadata": metadata}, warnings


def _why_unreadable(key: str, annotation: Field) -> str:
    """Return the first reason why such an annotation cannot be read, empty without one."""
    report, nothing = ManifestReport(), CpuTopology()
    parsed = annotation.softly().reported_to(report).json()
    if key == keys.SYSTEM_QOS_RESOURCE:
        read_system_cpus(parsed, nothing)
    else:
        read_known_cpus(parsed.member("reservedCPUs"), nothing)
    if key == keys.CPU_MANAGER_POLICY:
        read_kubelet_policy(parsed)
    if key == keys.RESERVATION:
        for name, amount in parsed.member("resources").members().items():
            amount.quantity(name)
    return next(iter(report.overlooked), "")


# What the providers of a host offer: the host less its reservation, its NUMA nodes (zones), its cores.


_CPUS_ONLY = "ReservedCPUsOnly"
_ZONE_NAME = re.compile(r"node-([0-9]{1,9})")


_ALL_TAKEN = "until it can be read, the node offers nothing of what it may reserve"


def host_reservation(annotation: Field) -> Callable[[str, Fraction], Fraction]:
    """Return what the reservation annotation of a node takes from its allocatable of a resource.

    `cpu` is the length of the CPU list if a readable one is given. Nothing is taken with ReservedCPUsOnly,
    and no batch resources ever. All of a resource is taken if it cannot be read how much, and of each
    resource if the annotation cannot be read at all. Source: koordinator.md, "Reservation annotation".
    """
    own = ManifestReport(consequence=_ALL_TAKEN, withholds=True)
    parsed = annotation.softly().reported_to(own).json()
    resources = parsed.member("resources").members()
    is_readable = not own.overlooked
    policy = parsed.member("applyPolicy").text() or "Default"
    if policy not in ("Default", _CPUS_ONLY):
        parsed.member("applyPolicy").warn(f"unknown policy {policy!r} counts as Default")
    amounts = {name: amount.quantity(name) for name, amount in resources.items()}
    # Reading the CPUs themselves warns of a list that cannot be read.
    listed = parsed.member("reservedCPUs").reported_to(ManifestReport())
    if cpus := listed.cpu_list(parse_typed_cpu_list):
        amounts["cpu"] = Fraction(len(cpus))
    annotation.report.include(own)

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


def read_zones(zones: Field, names: ResourceNames) -> Mapping[int, Amounts]:
    """Return the amounts of zones of type `Node` called `node-<N>`, ascending by N; others are skipped.

    Refused: NUMA nodes or resources listed twice, amounts that are no quantities or negative, resource names
    that are not distinct as classes, ids beyond what a topology may have.
    Source: koordinator.md, "Unallocatable CPUs", "NUMA amounts".
    """
    found: dict[int, Amounts] = {}
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
            if not names.admit(field, resource, numa_class(resource).name):
                continue
            if resource in amounts:
                field.refuse(f"{resource!r} is listed twice")
            elif quantity is not None:
                amounts[resource] = base_amount(resource, quantity)
        found[numa] = amounts
    return dict(sorted(found.items()))


def host_inventories(
    host: Manifest, offered_below: Collection[str], names: ResourceNames
) -> dict[str, Inventory]:
    """Return what the host as a whole offers: `status.allocatable`, less what its reservation takes.

    Classes that its NUMA nodes offer are left to them, so that nothing is offered twice.
    Source: koordinator.md, "Resource classes", "Reservation annotation".
    """
    allocatable = host.root.member("status").member("allocatable")
    if allocatable.value is None:
        allocatable.warn("is missing; the host as a whole offers nothing")
    reserved = host_reservation(host.annotation(keys.RESERVATION))
    offers: dict[str, Inventory] = {}
    for resource, amount in allocatable.members().items():
        resource_class, quantity = host_class(resource), amount.quantity(resource)
        admitted = names.admit(amount, resource, resource_class.name)
        if quantity is None or not admitted or resource_class.name in offered_below:
            continue
        taken = base_amount(resource, reserved(resource, quantity))
        offers |= _offer(amount, resource_class, base_amount(resource, quantity), taken)
    return offers


def numa_inventories(
    zones: Field,
    numa: int,
    amounts: Amounts,
    host: HostCpus,
    ratios: Mapping[str, Fraction],
    is_amplified: bool,
) -> dict[str, Inventory]:
    """Return what a NUMA node with these amounts offers; the share of unallocatable CPUs is reserved.

    The capacity is what the scheduler counts with (`numa_capacity`): 1000 millicores for each unallocatable
    CPU are taken off first. Then the rest is multiplied, unless the report `is_amplified`.
    Source: koordinator.md, "Resource classes", "NUMA amounts".
    """
    cpus = host.topology.numa_nodes.get(numa, ())
    reported, factors = dict(amounts), {} if is_amplified else dict(ratios)
    if cpus and "cpu" not in reported:
        zones.warn(f"no cpu amount for NUMA node {numa}; counting its {len(cpus)} CPUs")
        reported["cpu"] = 1000 * len(cpus)
        factors["cpu"] = ratios.get("cpu", Fraction(1))
    lost = 1000 * len(host.unallocatable.intersection(cpus))
    if lost > reported.get("cpu", lost):
        zones.warn(f"{lost} of {CPU_CLASS} are reserved but there are only {reported['cpu']}")
    left = {**reported, "cpu": max(0, reported.get("cpu", 0) - lost)}
    usable = amplified(left, factors)
    offers: dict[str, Inventory] = {}
    for resource, amount in amplified(reported, factors).items():
        offers |= _offer(zones, numa_class(resource), amount, amount - usable[resource])
    return offers


def core_inventories(host: HostCpus, bind_policy: HostBindPolicy) -> dict[CoreId, Inventory]:
    """Return the threads of each physical core; on FullPCPUsOnly hosts only whole cores can be allocated.

    CPUs of pods that kubelet manages are not reserved: these pods are consumers that hold them.
    Source: koordinator.md, "Resource classes".
    """
    unit = host.topology.threads_per_core if bind_policy is HostBindPolicy.FULL_PCPUS_ONLY else 1
    return {
        core: Inventory(
            total=len(cpus),
            reserved=len(host.reserved.intersection(cpus)),
            min_unit=unit,
            step_size=unit,
        )
        for core, cpus in host.topology.cores.items()
    }


def _offer(field: Field, resource_class: ResourceClass, amount: int, taken: int) -> dict[str, Inventory]:
    """Return the inventory of an amount in base units; none if it is less than one unit of the class."""
    name, total = resource_class.name, amount // resource_class.unit
    if total > MAX_INT:
        field.warn(f"{total} of {name} is more than an inventory can hold; offering {MAX_INT}")
        total = MAX_INT
    reserved = -(-taken // resource_class.unit)
    if reserved > total:
        field.warn(f"{reserved} of {name} are reserved but there are only {total}")
    return {name: Inventory(total=total, reserved=min(reserved, total))} if total else {}


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


def host_traits(host: Manifest, policies: HostPolicies, cpus: HostCpus) -> frozenset[str]:
    """Return the traits of the root provider; there is a warning if its architecture has none.

    Source: koordinator.md, "Traits".
    """
    architecture = host.root.member("status").member("nodeInfo").member("architecture")
    name, threads = architecture.text(), cpus.topology.threads_per_core
    if name not in _ARCHITECTURES:
        architecture.warn(f"no trait for the architecture {name!r}" if name else "is missing")
    traits = (
        BIND_TRAITS.get(policies.bind),
        NUMA_POLICY_TRAITS.get(policies.numa) if policies.numa else None,
        _NUMA_STRATEGY.get(policies.strategy) if policies.strategy else None,
        _ARCHITECTURES.get(name or ""),
        "CUSTOM_KOORD_KUBELET_STATIC" if cpus.kubelet.is_static else None,
        f"CUSTOM_SMT_{threads}" if threads else "CUSTOM_KOORD_NO_CPU_TOPOLOGY",
        "HW_CPU_HYPERTHREADING" if threads > 1 else None,
    )
    return frozenset(filter(None, traits))


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
        trait = None if text is None else label_trait(key, text)
        if trait is not None:
            found.add(trait)
        elif text is not None:
            label.warn(f"no trait: its name would be longer than {_LONGEST_TRAIT} characters")
    return frozenset(found)


# The tree: the host, then its NUMA nodes, then its cores.


def build_tree(
    identity: HostIdentity,
    offers: Mapping[str, Inventories],
    cores: Mapping[CoreId, Inventory],
    traits: frozenset[str],
    of_labels: frozenset[str],
    topology: CpuTopology,
) -> TreeSpec:
    """Return the tree of a host with its own traits and the ones of its labels.

    `offers` are by path, every core lies in a NUMA node. Traits of labels may be left out. Traits of the host
    may not, because queries of pods forbid some of them. The socket is no level of its own (koordinator.md,
    "Tree").
    """

    def providers() -> Iterator[ProviderSpec]:
        root = identity.uuid()
        yield ProviderSpec(root, identity.name(), None, offers[""], traits | of_labels, of_labels)
        for path, inventories in offers.items():
            if path:
                yield ProviderSpec(identity.uuid(path), identity.name(path), root, inventories, NUMA_TRAITS)
        for (socket, core), inventory in cores.items():
            path = f"core-{socket}-{core}"
            above = identity.uuid(f"numa-{topology.by_cpu[topology.cores[socket, core][0]].numa}")
            yield ProviderSpec(identity.uuid(path), identity.name(path), above, {CORE_CLASS: inventory})

    return TreeSpec(tuple(providers()))


def renamed(tree: TreeSpec, identity: HostIdentity, of_labels: frozenset[str]) -> TreeSpec:
    """Return the tree of another host that is like this one without labels, with the traits of its labels."""
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
                spec.traits if spec.parent_uuid is not None else spec.traits | of_labels,
                spec.optional_traits if spec.parent_uuid is not None else of_labels,
            )
            for spec in tree.providers
        )
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

    def admitted(zone: Any) -> Any:
        resources = zone.get("resources") if isinstance(zone, Mapping) else None
        if not isinstance(resources, list):
            return zone
        kept = [each for each in resources if not isinstance(each, Mapping) or admits(each.get("name"))]
        return {**zone, "resources": kept}

    status = node.get("status")
    allocatable = status.get("allocatable") if isinstance(status, Mapping) else None
    if isinstance(status, Mapping) and isinstance(allocatable, Mapping):
        kept = {name: amount for name, amount in allocatable.items() if admits(name)}
        node = {**node, "status": {**status, "allocatable": kept}}
    zones = topology.get("zones") if topology is not None else None
    if topology is not None and isinstance(zones, list):
        topology = {**topology, "zones": list(map(admitted, zones))}
    return node, topology, sorted(left_out)
