"""A Kubernetes node and its NodeResourceTopology as one value: its CPUs, its policies, and its provider tree.

The tree is the host, its NUMA nodes and its physical cores, each with what it offers.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from placement.allocations.kubernetes_resources import (
    CORE_CLASS,
    ResourceNames,
    is_built_in,
)
from placement.common.documents import TOPOLOGY_API_VERSIONS
from placement.common.manifest import (
    Field,
    Manifest,
    ManifestError,
    ManifestReport,
    Profile,
    read_manifest,
    shown,
)
from placement.engine.domain.errors import BODY, Finding, parameter
from placement.engine.domain.inventories import Inventory
from placement.engine.domain.tree_specs import NUMA_ROOT, ProviderSpec, TreeSpec
from placement.engine.numa.cpus import (
    MAX_NUMA_NODES,
    CoreId,
    CpuTopology,
)
from placement.engine.numa.host import NumaPolicy, NumaStrategy
from placement.pods.koordinator import annotations as keys
from placement.pods.koordinator import host_cpus as koordinator_host_cpus
from placement.pods.koordinator import node_offers
from placement.pods.manifests.selection import read_attributes
from placement.pods.state.model import HostBindPolicy, HostCpus, HostIdentity, HostPolicies, NodeImport

_NRT = "NodeResourceTopology"
_HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_UID = re.compile(r"[!-.0-~]{1,128}")
_LONGEST_NAME = 200
_LONGEST_PATH = "core-4096-4096"

InventoryByClass = Mapping[str, Inventory]


def import_node(
    cluster: str,
    node: Mapping[str, Any],
    nrt: Mapping[str, Any] | None,
    profile: str = "design",
    labels: Collection[str] = (),
) -> NodeImport:
    """Return a host of a cluster from a parsed Node and its NodeResourceTopology, if there is one.

    `labels` are the keys of labels that become traits. Equal manifests always give equal values.
    Raises ManifestError with every finding at once.
    Source: koordinator.md, "Host ingestion, recovery and pools", "Placement mapping".
    """
    if profile not in set(Profile):
        choices = " and ".join(Profile)
        what = f"must be one of {choices}, not {shown(profile)}"
        raise ManifestError([Finding(what, BODY / "profile")])
    report, names, reading = ManifestReport(), ResourceNames(), Profile(profile)
    node_manifest, nrt_manifest, identity = _read_manifests(cluster, node, nrt, report)
    cpus = koordinator_host_cpus.read_host_cpus(node_manifest, nrt_manifest, reading)
    policies = koordinator_host_cpus.read_host_policies(node_manifest, nrt_manifest, cpus.kubelet, reading)
    zones = nrt_manifest.root.member("zones")
    amounts = node_offers.read_zones(zones, names)
    numa_ids = sorted(amounts.keys() | cpus.topology.numa_nodes.keys())
    if len(numa_ids) > MAX_NUMA_NODES:
        zones.refuse(f"there are more than {MAX_NUMA_NODES} NUMA nodes")
    # Ratios in the report itself only say that its amounts are multiplied already (CPU amplification).
    reported = nrt_manifest.annotation(keys.AMPLIFICATION_RATIO).json()
    ratios = node_offers.read_amplification(node_manifest.annotation(keys.AMPLIFICATION_RATIO).json())
    is_amplified = bool(reported.mapping())
    offers = {
        f"numa-{numa}": node_offers.numa_inventories(
            zones, numa, amounts.get(numa, {}), cpus, ratios, is_amplified
        )
        for numa in numa_ids
    }
    offered_below = frozenset[str]().union(*offers.values())
    offers[""] = node_offers.host_inventories(node_manifest, offered_below, names)
    cores = node_offers.core_inventories(cpus, policies.bind)
    classes = frozenset({CORE_CLASS} if cores else ()).union(*offers.values())
    traits = host_traits(node_manifest, policies, cpus)
    of_labels = label_traits({key: node_manifest.label(key) for key in labels})
    ls_pools, be_pools = (
        koordinator_host_cpus.read_shared_pools(nrt_manifest.annotation(key).softly().json())
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
    like_import: NodeImport,
    labels: Collection[str] = (),
) -> NodeImport | None:
    """Return the result of `import_node` for manifests with the canonical form of another import, faster.

    Return None if there are findings or warnings that `like_import` lacks: then a full read has to follow.
    """
    report = ManifestReport()
    node_manifest, _, identity = _read_manifests(cluster, node, nrt, report)
    of_labels = label_traits({key: node_manifest.label(key) for key in labels})
    if report.findings or not set(report.warnings) <= set(like_import.warnings):
        return None
    return replace(like_import, name=identity.host, tree=renamed(like_import.tree, identity, of_labels))


def _read_manifests(
    cluster: str, node: Mapping[str, Any], nrt: Mapping[str, Any] | None, report: ManifestReport
) -> tuple[Manifest, Manifest, HostIdentity]:
    node_manifest = read_manifest(node, "v1", "Node", report)
    if nrt is None:
        nrt_manifest = Manifest(Field(_NRT, {}, report))
        nrt_manifest.root.warn("is missing; nothing is known about CPUs and NUMA nodes")
    else:
        version = nrt.get("apiVersion") if isinstance(nrt, Mapping) else None
        known = version if version in TOPOLOGY_API_VERSIONS else TOPOLOGY_API_VERSIONS[0]
        nrt_manifest = read_manifest(nrt, known, _NRT, report)
        given, expected = nrt_manifest.name.value, node_manifest.name.value
        if given != expected:
            nrt_manifest.name.refuse(f"must be the name of the node, {shown(expected)}, not {shown(given)}")
    # The attributes are read anew when pods come; findings about them are reported now.
    read_attributes(node, report)
    name, uid = node_manifest.name.text() or "", node_manifest.uid.text() or ""
    identity = HostIdentity(cluster, name, uid or name)
    if not cluster or "/" in cluster or not cluster.isprintable():
        report.refuse(f"{shown(cluster)} cannot be part of a provider name", parameter("cluster"))
    if name and not _HOST_NAME.fullmatch(name):
        node_manifest.name.refuse(f"{shown(name)} is not a DNS name")
    if uid and not _UID.fullmatch(uid):
        node_manifest.uid.refuse(f"{shown(uid)} is not a uid")
    if len(identity.name(_LONGEST_PATH)) > _LONGEST_NAME:
        node_manifest.name.refuse(f"names of its providers would be longer than {_LONGEST_NAME} characters")
    return node_manifest, nrt_manifest, identity


# What a node withholds stays as it was while a new version of it cannot be read.


_WITHHOLDING = (keys.RESERVATION, keys.SYSTEM_QOS_RESOURCE, keys.CPU_MANAGER_POLICY)


def unreadable_withholding(
    node: Mapping[str, Any], nrt: Mapping[str, Any] | None, profile: str
) -> tuple[str, ...]:
    """Return warnings about what a node withholds and cannot be read, whatever its topology."""
    report = ManifestReport()
    node_manifest = Manifest(Field("Node", node, report))
    nrt_manifest = Manifest(Field(_NRT, nrt or {}, report))
    koordinator_host_cpus.read_withheld(node_manifest, nrt_manifest, CpuTopology(), Profile(profile))
    node_offers.host_reservation(node_manifest.annotation(keys.RESERVATION))
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
            warnings.append(f"{finding}; the former annotation stays in force")
    if not kept:
        return manifest, []
    metadata = {**manifest["metadata"], "annotations": {**manifest["metadata"]["annotations"], **kept}}
    return {**manifest, "metadata": metadata}, warnings


def _why_unreadable(key: str, annotation: Field) -> str:
    """Return the first reason why such an annotation cannot be read, empty without one."""
    report, nothing = ManifestReport(), CpuTopology()
    parsed = annotation.softly().reported_to(report).json()
    if key == keys.SYSTEM_QOS_RESOURCE:
        koordinator_host_cpus.read_system_cpus(parsed, nothing)
    else:
        koordinator_host_cpus.read_known_cpus(parsed.member("reservedCPUs"), nothing)
    if key == keys.CPU_MANAGER_POLICY:
        koordinator_host_cpus.read_kubelet_policy(parsed)
    if key == keys.RESERVATION:
        for name, amount in parsed.member("resources").members().items():
            amount.quantity(name)
    return next(iter(report.overlooked), "")


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


def host_traits(node_manifest: Manifest, policies: HostPolicies, host_cpus: HostCpus) -> frozenset[str]:
    """Return the traits of the root provider; there is a warning if its architecture has none.

    Source: koordinator.md, "Traits".
    """
    architecture = node_manifest.root.member("status").member("nodeInfo").member("architecture")
    name, threads = architecture.text(), host_cpus.topology.threads_per_core
    if name not in _ARCHITECTURES:
        architecture.warn(f"no trait for the architecture {name!r}" if name else "is missing")
    traits = (
        BIND_TRAITS.get(policies.bind),
        NUMA_POLICY_TRAITS.get(policies.numa) if policies.numa else None,
        _NUMA_STRATEGY.get(policies.strategy) if policies.strategy else None,
        _ARCHITECTURES.get(name or ""),
        "CUSTOM_KOORD_KUBELET_STATIC" if host_cpus.kubelet.is_static else None,
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
    offers: Mapping[str, InventoryByClass],
    cores: Mapping[CoreId, Inventory],
    traits: frozenset[str],
    of_labels: frozenset[str],
    topology: CpuTopology,
) -> TreeSpec:
    """Return the tree of a host with its own traits and the ones of its labels.

    `offers` are by path, every core lies in a NUMA node. Traits of labels may be left out. Traits of the host
    may not, because queries of pods forbid some of them. The socket is not a level (koordinator.md,
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

    Built-in resources always stay. The manifests need not be well-formed: members of other types stay.
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
