"""The nodes of clusters, loaded from rows: manifests, pods, inventories, allocations of others."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from placement.allocations.kubernetes_resources import host_class
from placement.common.manifest import ManifestError
from placement.engine.domain.errors import Finding
from placement.engine.numa.host import HostTotals
from placement.pods.koordinator.host_cpus import ANONYMOUS, anonymous_node
from placement.pods.koordinator.node import import_node
from placement.pods.koordinator.settings import scheduler_settings
from placement.pods.manifests.selection import NodeAttributes, read_attributes
from placement.pods.state.host import HOST, Place, offers_of
from placement.pods.state.model import HostIdentity, RecordedPod, SchedulerSettings
from placement.pods.state.node_info import (
    NodeInfo,
    NodeTemplate,
    NodeTemplates,
    holders,
    host_shares,
    sum_of,
)
from placement.pods.store import statements
from placement.pods.store.rows import labelled, lacking, record_of, rescued, with_ports
from placement.pods.store.topologies import CanonicalReport, TopologyTexts, canonical
from placement.providers.statements.clusters import Cluster
from placement.storage.database import Executor
from placement.storage.node_parts import HostRecord, NodeParts, NodeRow, PodRow

_AT_ONCE = 500
# Errors of reading stored manifests that were changed by hand, or kept other rules.
UNREADABLE = (ManifestError, AttributeError, TypeError, LookupError)
_STORED = "the stored manifests of the node cannot be read; import it again"
# No cluster has it: templates carry no name.
_CLUSTER = "c"


@dataclass(frozen=True, slots=True)
class ClusterFacts:
    """The properties of a cluster that decide how its pods are scheduled."""

    id: int
    name: str
    settings: SchedulerSettings


def facts_of(cluster: Cluster) -> ClusterFacts:
    """Return the facts of a stored cluster."""
    return ClusterFacts(cluster.id, cluster.name, scheduler_settings(cluster.settings))


@dataclass(frozen=True, slots=True)
class NodeDescription:
    """A description of a node by its manifests, beside its rows; a NodeInfo has the same attributes."""

    identity: HostIdentity
    attributes: NodeAttributes
    template: NodeTemplate


class NodeLoader:
    """The loader of nodes: reads rows, and keeps the templates of manifests that it has read."""

    def __init__(self) -> None:
        self._templates = NodeTemplates()

    def load(
        self,
        connection: Executor,
        cluster: ClusterFacts,
        roots: Collection[int] | None = None,
        known: Mapping[int, NodeInfo] | None = None,
        given: Mapping[int, NodeDescription] | None = None,
        *,
        strict: bool = False,
    ) -> dict[int, NodeInfo]:
        """Return the nodes with these host providers, or all nodes, by the id of the host provider.

        `known` are former nodes: manifests that did not change are not read again; manifests of `given` are
        not read at all. All reads of the connection should see one state of the database. Nodes at `roots`
        take one read, and more for unknown manifests. A node with manifests that cannot be read with the
        present settings offers nothing, so that it spoils no other node. Raises ManifestError for it if this
        is `strict`.
        """
        if roots is None:
            parts = statements.all_parts(connection, cluster.id)
        else:
            parts = statements.parts(connection, cluster.id, roots)
        descriptions = self._descriptions(connection, cluster, parts.nodes, known or {}, given or {}, strict)
        recorded: dict[int, list[RecordedPod]] = defaultdict(list)
        incomplete = [pod for pod in parts.pods if lacking(pod)]
        stated, specs = _stated_by_manifests(connection, incomplete) if incomplete else ({}, {})
        for pod in parts.pods:
            read = record_of(pod) or rescued(connection, cluster.id, cluster.name, cluster.settings, pod)
            if pod.id in stated:
                read = labelled(read, *stated[pod.id])
            if pod.id in specs:
                read = with_ports(read, specs[pod.id])
            recorded[pod.root_id].append(read)
        return self._nodes(cluster, parts, descriptions, recorded, known or {})

    def renewed(
        self, cluster: ClusterFacts, parts: NodeParts, known: Mapping[int, NodeInfo]
    ) -> dict[int, NodeInfo]:
        """Return the nodes of these parts, by the id of the host provider, as `load` would return them.

        Nodes that need more reads are left out: their manifests differ from the ones of the `known`, former
        nodes, or the row of a pod is incomplete.
        """
        descriptions: dict[int, NodeDescription | NodeInfo] = {}
        for row in parts.nodes:
            described = _still_described(cluster, row, known.get(row.root_id))
            if described is not None:
                descriptions[row.root_id] = described
        recorded: dict[int, list[RecordedPod]] = defaultdict(list)
        for pod in parts.pods:
            read = record_of(pod, as_a_whole=True)
            if read is None:
                descriptions.pop(pod.root_id, None)
            else:
                recorded[pod.root_id].append(read)
        return self._nodes(cluster, parts, descriptions, recorded, known)

    def _nodes(
        self,
        cluster: ClusterFacts,
        parts: NodeParts,
        descriptions: Mapping[int, NodeDescription | NodeInfo],
        recorded: Mapping[int, Sequence[RecordedPod]],
        known: Mapping[int, NodeInfo],
    ) -> dict[int, NodeInfo]:
        """Return the nodes that have descriptions; `known` are former nodes."""
        records: dict[int, list[HostRecord]] = defaultdict(list)
        for record in parts.records:
            records[record.root_id].append(record)
        others: dict[int, dict[str, Counter[Place]]] = {}
        names = {row.root_id: row.name for row in parts.nodes} if parts.others else {}
        for use in parts.others:
            if use.root_id in names:
                path = HostIdentity(cluster.name, names[use.root_id], "").path(use.provider_name)
                mine = others.setdefault(use.root_id, {}).setdefault(use.consumer, Counter())
                mine[Place(path, use.class_name)] += use.amount
        left: dict[tuple[object, ...], _CapacityLeft] = {}
        nodes = {}
        for row in parts.nodes:
            description = descriptions.get(row.root_id)
            if description is None:
                continue
            imported, offers = description.template.node_import, description.template.offers
            together, beside = dict[Place, int](), dict[Place, int]()
            if row.root_id in others:
                held = others[row.root_id].values()
                together, beside = sum_of(held), sum_of(host_shares(offers, each) for each in held)
            present, reserved = list[RecordedPod](), list[RecordedPod]()
            for pod in recorded.get(row.root_id, ()):
                (present if pod.keeps is None else reserved).append(pod)
            unused, totals = capacity_left(
                description.template,
                records.get(row.root_id, ()),
                holders(imported, offers, tuple(present), reserved) if reserved else present,
                together,
                left,
            )
            node = NodeInfo(
                **row._asdict(),
                cluster_id=cluster.id,
                identity=description.identity,
                attributes=description.attributes,
                template=description.template,
                settings=cluster.settings,
                pods=tuple(present),
                reservations=tuple(reserved),
                others=together,
                beside=beside,
                unused=unused,
                totals=totals,
                templates=self._templates,
            )
            former = known.get(row.root_id)
            nodes[row.root_id] = node if former is None else node.counted_on(former)
        return nodes

    def _descriptions(
        self,
        connection: Executor,
        cluster: ClusterFacts,
        rows: Sequence[NodeRow],
        known: Mapping[int, NodeInfo],
        given: Mapping[int, NodeDescription],
        strict: bool,
    ) -> dict[int, NodeDescription | NodeInfo]:
        descriptions: dict[int, NodeDescription | NodeInfo] = {**given}
        unknown = []
        for row in rows:
            if row.root_id in given:
                continue
            described = _still_described(cluster, row, known.get(row.root_id))
            if described is None:
                unknown.append(row)
            else:
                descriptions[row.root_id] = described
        topology_texts = TopologyTexts()
        for start in range(0, len(unknown), _AT_ONCE):
            batch = unknown[start : start + _AT_ONCE]
            manifests = statements.node_manifests(connection, [row.id for row in batch])
            for row in batch:
                node, text = manifests[row.id]
                try:
                    report = topology_texts.read(text, row.name)
                    descriptions[row.root_id] = self.description(cluster, row.name, node, report)
                except UNREADABLE as error:
                    if strict:
                        raise (
                            error if isinstance(error, ManifestError) else ManifestError([Finding(_STORED)])
                        ) from None
                    descriptions[row.root_id] = self._undescribed(cluster, row.name, node)
        read = {row.root_id for row in unknown} | given.keys()
        return descriptions | _with_stored_trees(
            connection, [row for row in rows if row.root_id in read], descriptions
        )

    def _undescribed(self, cluster: ClusterFacts, name: str, node: Any) -> NodeDescription:
        """Return a node with stored manifests that cannot be read: it offers nothing until it comes again."""
        stored = node if isinstance(node, Mapping) else {}

        def read() -> NodeTemplate:
            imported = import_node(_CLUSTER, anonymous_node({}), None)
            return NodeTemplate(replace(imported, unreadable=(_STORED,)), offers_of(imported, _CLUSTER))

        template = self._templates.of((b"unreadable",), read)
        return NodeDescription(_identity_of(cluster, name, stored), read_attributes(stored), template)

    def description(
        self, cluster: ClusterFacts, name: str, node: Mapping[str, Any], report: CanonicalReport
    ) -> NodeDescription:
        """Return the description of a node that was imported before, by its manifests.

        Raises ManifestError.
        """
        template = self.template(cluster.settings.profile, node, report)
        return NodeDescription(_identity_of(cluster, name, node), read_attributes(node), template)

    def template(self, profile: str, node: Mapping[str, Any], report: CanonicalReport) -> NodeTemplate:
        """Return the template that all nodes with like manifests share. Raises ManifestError."""
        reduced = anonymous_node(node)

        def read() -> NodeTemplate:
            imported = import_node(_CLUSTER, reduced, report.document, profile)
            return NodeTemplate(imported, offers_of(imported, f"{_CLUSTER}/{ANONYMOUS}"))

        return self._templates.of((profile.encode(), canonical(reduced), report.key), read)


def _stated_by_manifests(
    connection: Executor, pods: Sequence[PodRow]
) -> tuple[Mapping[int, tuple[Any, Any, Any]], Mapping[int, Any]]:
    """Return what the manifests of pods have that their rows lack: parts about labels, and specs, by id."""
    unlabelled = [pod.id for pod in pods if "labels" in lacking(pod)]
    without_ports = [pod.id for pod in pods if "ports" in lacking(pod)]
    stated = statements.manifest_parts(connection, unlabelled)
    return stated, statements.specs_with_ports(connection, without_ports)


def _still_described(cluster: ClusterFacts, row: NodeRow, former_node: NodeInfo | None) -> NodeInfo | None:
    """Return the former node, if it was read from these manifests under these settings."""
    if former_node is None or former_node.settings != cluster.settings:
        return None
    return former_node if (former_node.id, former_node.imported_at) == (row.id, row.imported_at) else None


def _identity_of(cluster: ClusterFacts, name: str, node: Mapping[str, Any]) -> HostIdentity:
    """Return the identity of the machine behind a node that was imported before."""
    metadata = node.get("metadata")
    uid = metadata.get("uid") if isinstance(metadata, Mapping) else None
    return HostIdentity(cluster.name, name, uid if uid and isinstance(uid, str) else name)


def _with_stored_trees(
    connection: Executor, rows: Sequence[NodeRow], descriptions: Mapping[int, NodeDescription | NodeInfo]
) -> dict[int, NodeDescription | NodeInfo]:
    """Return the descriptions of nodes with another tree than their manifests say, with the stored uuids.

    A manifest that was damaged lacks the uid, for example. Pods are still released from such a node.
    """
    other = {row.root_id: row for row in rows if descriptions[row.root_id].identity.uuid() != row.root_uuid}
    if not other:
        return {}
    found = {}
    for root_id, uuids in statements.tree_uuids(connection, other.keys()).items():
        identity = descriptions[root_id].identity
        stored = {identity.path(name): uuid for name, uuid in uuids.items()}
        found[root_id] = replace(descriptions[root_id], identity=replace(identity, stored=stored))
    return found


_CapacityLeft = tuple[Mapping[str, int], HostTotals]


def capacity_left(
    template: NodeTemplate,
    records: Sequence[HostRecord],
    pods: Sequence[RecordedPod],
    others: Mapping[Place, int],
    known: dict[tuple[object, ...], _CapacityLeft],
) -> _CapacityLeft:
    """Return the unheld units of each class, and the totals for the score; both only to be read.

    Like nodes without holders share an entry of `known`.
    """
    key: tuple[object, ...] | None = None
    if not (pods or others):
        key = (template, *((record.class_name, record.capacity, record.used) for record in records))
        if key in known:
            return known[key]
    unused: dict[str, int] = {}
    allocatable: dict[str, int] = {}
    requested: dict[str, int] = defaultdict(int)
    for record in records:
        unused[record.class_name] = record.capacity - record.used
        resource = template.node_import.resource_names.get(record.class_name)
        if resource is not None:
            unit = host_class(resource).unit
            allocatable[resource] = record.capacity * unit
            if held := others.get(Place(HOST, record.class_name)):
                requested[resource] += held * unit
    for pod in pods:
        for resource, amount in pod.requests.items():
            if amount:
                requested[resource] += amount
    left = unused, HostTotals(allocatable, dict(requested))
    if key is not None:
        known[key] = left
    return left
