"""A Kubernetes node and its NodeResourceTopology as one value."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from placement.allocations.kubernetes_resources import ResourceNames
from placement.common.manifest import (
    Field,
    Manifest,
    ManifestError,
    ManifestReport,
    Profile,
    read_manifest,
    shown,
)
from placement.engine.numa.cpus import MAX_NUMA_NODES
from placement.pods.koordinator import annotations as keys
from placement.pods.koordinator.host_cpus import (
    HostCpus,
    read_host_cpus,
    read_host_policies,
    read_shared_pools,
)
from placement.pods.koordinator.tree import (
    NumaSupply,
    TreeOffers,
    architecture_trait,
    build_tree,
    core_inventories,
    host_inventories,
    host_reservation,
    host_traits,
    label_traits,
    read_amplification,
    read_zones,
    renamed,
)
from placement.pods.manifests.selection import read_attributes
from placement.pods.model import (
    HostIdentity,
    HostPolicies,
    NodeImport,
)

_NRT = "NodeResourceTopology"
_HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?")
_UID = re.compile(r"[!-.0-~]{1,128}")
_LONGEST_NAME = 200
_LONGEST_PATH = "core-4096-4096"


def import_node(
    cluster: str,
    node: Mapping[str, Any],
    nrt: Mapping[str, Any] | None,
    profile: str = "design",
    labels: Collection[str] = (),
) -> NodeImport:
    """Return what a parsed Node and its NodeResourceTopology, if there is one, say about a host of a cluster.

    `labels` are the keys of labels that become traits.

    Equal manifests always give equal values. Raises ManifestError with every finding at once.
    Source: koordinator.md, "Host ingestion, recovery and pools", "Placement mapping".
    """
    report = ManifestReport()
    reading = _read_profile(profile)
    host, topology = _read_manifests(node, nrt, report)
    # What pods choose nodes by is read anew when pods come; findings about it are reported now.
    read_attributes(node, report)
    identity = _read_identity(cluster, host, report)
    names = ResourceNames()
    cpus = read_host_cpus(host, topology, reading)
    policies = read_host_policies(host, topology.root.member("topologyPolicies"), cpus.kubelet, reading)
    supply = _read_supply(host, topology, cpus, names)
    offers = _read_offers(host, cpus, policies, supply, names)
    architecture = host.root.member("status").member("nodeInfo").member("architecture")
    traits = host_traits(policies, cpus.topology, cpus.kubelet.is_static, architecture_trait(architecture))
    traits |= label_traits({key: host.label(key) for key in labels})
    pools = [
        read_shared_pools(topology.annotation(key).softly().json())
        for key in (keys.LS_SHARED_POOLS, keys.BE_SHARED_POOLS)
    ]
    report.raise_findings()
    return NodeImport(
        name=identity.host,
        tree=build_tree(identity, offers, traits, cpus.topology),
        topology=cpus.topology,
        unallocatable=cpus.unallocatable,
        withheld=cpus.withheld,
        reserved=cpus.reserved,
        system=cpus.system,
        kubelet=cpus.kubelet,
        kubelet_pods=cpus.kubelet_pods,
        takeover=cpus.takeover,
        policies=policies,
        amplification=supply.ratios,
        zones_amplified=supply.zones_amplified,
        zones=tuple(supply.zones.values()),
        resource_names={name: names.of(name) for name in sorted(offers.classes)},
        ls_pools=pools[0],
        be_pools=pools[1],
        reported_pods=cpus.reported_pods,
        warnings=report.warnings,
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
    host, _ = _read_manifests(node, nrt, report)
    read_attributes(node, report)
    identity = _read_identity(cluster, host, report)
    traits = label_traits({key: host.label(key) for key in labels})
    if report.findings or not set(report.warnings) <= set(like.warnings):
        return None
    return replace(like, name=identity.host, tree=renamed(like.tree, identity, traits))


def _read_profile(profile: str) -> Profile:
    if profile not in set(Profile):
        choices = " and ".join(Profile)
        raise ManifestError([f"profile: must be one of {choices}, not {shown(profile)}"])
    return Profile(profile)


def _read_manifests(
    node: Mapping[str, Any], nrt: Mapping[str, Any] | None, report: ManifestReport
) -> tuple[Manifest, Manifest]:
    host = read_manifest(node, "v1", "Node", report)
    if nrt is None:
        absent = Field(_NRT, {}, report)
        absent.warn("is missing; nothing is known about CPUs and NUMA nodes")
        return host, Manifest(absent)
    topology = read_manifest(nrt, "topology.node.k8s.io/v1alpha1", _NRT, report)
    if topology.name.value != host.name.value:
        topology.name.refuse(
            f"must be the name of the node, {shown(host.name.value)}, not {shown(topology.name.value)}"
        )
    return host, topology


def _read_identity(cluster: str, host: Manifest, report: ManifestReport) -> HostIdentity:
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
    return identity


def _read_supply(host: Manifest, topology: Manifest, cpus: HostCpus, names: ResourceNames) -> NumaSupply:
    zones = topology.root.member("zones")
    by_numa = {zone.numa: zone for zone in read_zones(zones, names)}
    if len(by_numa.keys() | cpus.topology.numa_nodes.keys()) > MAX_NUMA_NODES:
        zones.refuse(f"there are more than {MAX_NUMA_NODES} NUMA nodes")
    # Ratios in the report itself only say that its amounts are multiplied already (CPU amplification).
    reported = topology.annotation(keys.AMPLIFICATION_RATIO).json()
    return NumaSupply(
        field=zones,
        zones=by_numa,
        topology=cpus.topology,
        unallocatable=cpus.unallocatable,
        ratios=read_amplification(host.annotation(keys.AMPLIFICATION_RATIO).json()),
        zones_amplified=bool(reported.mapping()),
    )


def _read_offers(
    host: Manifest, cpus: HostCpus, policies: HostPolicies, supply: NumaSupply, names: ResourceNames
) -> TreeOffers:
    numa_ids = sorted(supply.zones.keys() | cpus.topology.numa_nodes.keys())
    numa_nodes = {numa: supply.inventories(numa) for numa in numa_ids}
    allocatable = host.root.member("status").member("allocatable")
    if allocatable.value is None:
        allocatable.warn("is missing; the host as a whole offers nothing")
    reserved = host_reservation(host.annotation(keys.RESERVATION).softly().json())
    offered_below = frozenset().union(*numa_nodes.values())
    return TreeOffers(
        host=host_inventories(allocatable, reserved, offered_below, names),
        numa_nodes=numa_nodes,
        cores=core_inventories(cpus.topology, cpus.reserved, policies.bind),
    )
