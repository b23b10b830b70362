"""Loading nodes from rows: manifests, pods, inventories, and what other consumers hold."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import orjson

from placement.allocations.kubernetes_resources import host_class
from placement.common.manifest import ManifestError
from placement.engine.numa.host import HostTotals
from placement.pods.host import HOST, Place, offers_of
from placement.pods.koordinator.host_cpus import ANONYMOUS, anonymous_node, anonymous_report
from placement.pods.koordinator.node import import_node
from placement.pods.koordinator.settings import scheduler_settings
from placement.pods.manifests.selection import NodeAttributes, read_attributes
from placement.pods.model import HostIdentity, KubeletPolicy, RecordedPod, SchedulerSettings
from placement.pods.node_info import (
    CpuOwner,
    NodeAllocations,
    NodeInfo,
    NodeTemplate,
    NodeTemplates,
    holders,
)
from placement.pods.reading import import_running_pod
from placement.pods.rows import consumer_of, labelled, lacks_labels, record_of, rescued
from placement.pods.statements import nodes, pods
from placement.providers.statements.clusters import Cluster
from placement.storage.database import Executor
from placement.storage.records import HostRecord, NodeParts, NodeRow, PodRow

# What nodes as a whole have left, by their inventories and by the holders on them.


Left = tuple[Mapping[str, int], HostTotals]


def capacity_left(
    template: NodeTemplate,
    records: Sequence[HostRecord],
    pods: Sequence[RecordedPod],
    others: Mapping[Place, int],
    known: dict[tuple[object, ...], Left],
) -> Left:
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
        resource = template.imported.resource_names.get(record.class_name)
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


# Stored NodeResourceTopologies; the topologies of like nodes are read once.


# This many different ones are kept. Where nodes differ more than that, each is read by itself.
_KEPT = 64


class CanonicalReport(NamedTuple):
    """A topology, or None, reduced to what an import depends on; topologies of like nodes have equal keys."""

    document: Mapping[str, Any] | None
    key: bytes


def canonical_report(nrt: Mapping[str, Any] | None) -> CanonicalReport:
    """Return the canonical form of a NodeResourceTopology that was imported before."""
    document = None if nrt is None else anonymous_report(nrt)
    return CanonicalReport(document, canonical(document))


def canonical(document: Mapping[str, Any] | None) -> bytes:
    """Return bytes that are equal for equal documents."""
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS)


class TopologyTexts:
    """A reader of stored topologies, some kilobytes each, reduced to what imports depend on.

    Two topologies share what was read only if their texts differ in nothing but `metadata.name`, on which no
    result depends. Whether the name stands there is checked by reading another name in its place: a zone may
    have the same name. A text that names its node nowhere, or elsewhere first, is read by itself.
    """

    def __init__(self) -> None:
        # By the texts before and after the name.
        self._known: dict[tuple[str, str], CanonicalReport] = {}

    def read(self, text: str | None, name: str) -> CanonicalReport:
        """Return the topology of the node of that name; it was imported before, so it can be read."""
        if text is None:
            return canonical_report(None)
        naming, other = (f'"name": {json.dumps(each)}' for each in (name, f"not {name}"))
        head, found, tail = text.partition(naming)
        known = self._known.get((head, tail)) if found else None
        if known is not None:
            return known
        report = canonical_report(orjson.loads(text))
        metadata = orjson.loads(f"{head}{other}{tail}").get("metadata") if found else None
        if isinstance(metadata, dict) and metadata.get("name") == f"not {name}":
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[head, tail] = report
        return report


_AT_ONCE = 500
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
    """A description of a node by its manifests."""

    identity: HostIdentity
    attributes: NodeAttributes
    template: NodeTemplate


class NodeLoader:
    """A loader of the nodes of clusters that keeps what it has read from manifests."""

    def __init__(self) -> None:
        self._templates = NodeTemplates()

    def load(
        self,
        connection: Executor,
        cluster: ClusterFacts,
        roots: Collection[int] | None = None,
        known: Mapping[int, NodeInfo] | None = None,
        given: Mapping[int, NodeDescription] | None = None,
    ) -> dict[int, NodeInfo]:
        """Return the nodes with these host providers, or all nodes, by the id of the host provider.

        `known` are former states: manifests that did not change are not read again; manifests of `given` are
        not read at all. All reads of the connection should see one state of the database; certain hosts are
        one read, plus reads of what is not known of them. Raises ManifestError for manifests that cannot be
        read with the present settings.
        """
        if roots is None:
            parts = nodes.all_parts(connection, cluster.id)
        else:
            parts = nodes.parts(connection, cluster.id, roots)
        descriptions = self._descriptions(connection, cluster, parts.nodes, known or {}, given or {})
        recorded: dict[int, list[RecordedPod]] = defaultdict(list)
        stated = pods.said(connection, [pod.id for pod in parts.pods if lacks_labels(pod)])
        for pod in parts.pods:
            read = record_of(pod) or _rescued(connection, cluster, pod)
            recorded[pod.root_id].append(labelled(read, *stated[pod.id]) if pod.id in stated else read)
        return self._states(cluster, parts, descriptions, recorded, known or {})

    def renewed(
        self, cluster: ClusterFacts, parts: NodeParts, known: Mapping[int, NodeInfo]
    ) -> dict[int, NodeInfo]:
        """Return the nodes of these parts, by the id of the host provider, as `load` would return them.

        Nodes that need more reads are left out: `known`, the former states, lack what their manifests say, or
        the row of a pod is incomplete.
        """
        descriptions: dict[int, NodeDescription] = {}
        for row in parts.nodes:
            described = _still_described(cluster, row, known.get(row.root_id))
            if described is not None:
                descriptions[row.root_id] = described
        recorded: dict[int, list[RecordedPod]] = defaultdict(list)
        for pod in parts.pods:
            read = None if lacks_labels(pod) else record_of(pod)
            if read is None:
                descriptions.pop(pod.root_id, None)
            else:
                recorded[pod.root_id].append(read)
        return self._states(cluster, parts, descriptions, recorded, known)

    def _states(
        self,
        cluster: ClusterFacts,
        parts: NodeParts,
        descriptions: Mapping[int, NodeDescription],
        recorded: Mapping[int, Sequence[RecordedPod]],
        known: Mapping[int, NodeInfo],
    ) -> dict[int, NodeInfo]:
        """Return the nodes that have descriptions; `known` are former states."""
        records: dict[int, list[HostRecord]] = defaultdict(list)
        for record in parts.records:
            records[record.root_id].append(record)
        others: dict[int, dict[Place, int]] = {}
        names = {row.root_id: row.name for row in parts.nodes} if parts.others else {}
        for use in parts.others:
            if use.root_id in names:
                path = HostIdentity(cluster.name, names[use.root_id], "").path(use.provider_name)
                others.setdefault(use.root_id, {})[Place(path, use.class_name)] = use.amount
        left: dict[tuple[object, ...], Left] = {}
        states = {}
        for row in parts.nodes:
            description = descriptions.get(row.root_id)
            if description is None:
                continue
            imported, offers = description.template.imported, description.template.offers
            here = recorded.get(row.root_id, ())
            reservations = tuple(pod for pod in here if pod.keeps is not None)
            present = tuple(pod for pod in here if pod.keeps is None) if reservations else tuple(here)
            unused, totals = capacity_left(
                description.template,
                records.get(row.root_id, ()),
                holders(imported, offers, present, reservations),
                others.get(row.root_id, {}),
                left,
            )
            state = NodeInfo(
                **row._asdict(),
                cluster_id=cluster.id,
                identity=description.identity,
                attributes=description.attributes,
                template=description.template,
                settings=cluster.settings,
                pods=present,
                reservations=reservations,
                others=others.get(row.root_id, {}),
                unused=unused,
                totals=totals,
                templates=self._templates,
            )
            former = known.get(row.root_id)
            states[row.root_id] = state if former is None else state.counted_on(former)
        return states

    def _descriptions(
        self,
        connection: Executor,
        cluster: ClusterFacts,
        rows: Sequence[NodeRow],
        known: Mapping[int, NodeInfo],
        given: Mapping[int, NodeDescription],
    ) -> dict[int, NodeDescription]:
        descriptions = dict(given)
        unknown = []
        for row in rows:
            if row.root_id in given:
                continue
            described = _still_described(cluster, row, known.get(row.root_id))
            if described is None:
                unknown.append(row)
            else:
                descriptions[row.root_id] = described
        topologies = TopologyTexts()
        for start in range(0, len(unknown), _AT_ONCE):
            batch = unknown[start : start + _AT_ONCE]
            manifests = nodes.manifests(connection, [row.id for row in batch])
            for row in batch:
                node, text = manifests[row.id]
                report = topologies.read(text, row.name)
                descriptions[row.root_id] = self.description(cluster, row.name, node, report)
        return descriptions

    def description(
        self, cluster: ClusterFacts, name: str, node: Mapping[str, Any], report: CanonicalReport
    ) -> NodeDescription:
        """Return what the manifests of a node, imported before, say. Raises ManifestError."""
        template = self._template(cluster.settings.profile, node, report)
        return NodeDescription(identity_of(cluster, name, node), read_attributes(node), template)

    def template(self, profile: str, node: Mapping[str, Any], nrt: Mapping[str, Any] | None) -> NodeTemplate:
        """Return the template that all nodes with like manifests share. Raises ManifestError."""
        return self._template(profile, node, canonical_report(nrt))

    def _template(self, profile: str, node: Mapping[str, Any], report: CanonicalReport) -> NodeTemplate:
        reduced = anonymous_node(node)

        def read() -> NodeTemplate:
            imported = import_node(_CLUSTER, reduced, report.document, profile)
            return NodeTemplate(imported, offers_of(imported, f"{_CLUSTER}/{ANONYMOUS}"))

        return self._templates.of((profile.encode(), canonical(reduced), report.key), read)


def _still_described(cluster: ClusterFacts, row: NodeRow, former: NodeInfo | None) -> NodeDescription | None:
    """Return the description in a former state, if it was read of these manifests under these settings."""
    if former is None or (former.id, former.imported_at) != (row.id, row.imported_at):
        return None
    if former.settings != cluster.settings:
        return None
    return NodeDescription(former.identity, former.attributes, former.template)


def _rescued(connection: Executor, cluster: ClusterFacts, pod: PodRow) -> RecordedPod:
    """Return a substitute for a pod with an unreadable row: its manifest's requests, and its stored CPUs."""
    cpus = pods.cpus_of(connection, consumer_of(pod))
    try:
        (manifest,) = pods.manifests(connection, cluster.id, [pod.uid])
        requests = import_running_pod(manifest, cluster.settings, KubeletPolicy()).requests
    except (ManifestError, ValueError, TypeError, LookupError, AttributeError):
        requests = {}
    return rescued(pod, requests, cpus)


def identity_of(cluster: ClusterFacts, name: str, node: Mapping[str, Any]) -> HostIdentity:
    """Return the identity of the machine behind a node that was imported before."""
    return HostIdentity(cluster.name, name, node["metadata"].get("uid") or name)


def stored_accounts(connection: Executor, state: NodeInfo) -> NodeAllocations:
    """Return the stored allocations and CPU owners of a node."""
    return all_stored_accounts(connection, [state])[state.root_id]


def all_stored_accounts(connection: Executor, states: Collection[NodeInfo]) -> dict[int, NodeAllocations]:
    """Return the stored allocations and CPU owners of some nodes of one cluster, by their host providers."""
    if not states:
        return {}
    by_root = {state.root_id: state for state in states}
    cluster_id = next(iter(states)).cluster_id
    shares: dict[int, dict[str, dict[Place, int]]] = {root_id: {} for root_id in by_root}
    for use in nodes.own_uses(connection, cluster_id, by_root.keys()):
        path = by_root[use.root_id].identity.path(use.provider_name)
        held = shares[use.root_id].setdefault(use.consumer_uuid, {})
        held[Place(path, use.class_name)] = use.amount
    owners: dict[int, Mapping[int, CpuOwner]] = {}
    stored = pods.owners(connection, [state.id for state in states])
    for root_id, state in by_root.items():
        owners[root_id] = {cpu: CpuOwner(*owner) for cpu, owner in stored.get(state.id, {}).items()}
        for owner in owners[root_id].values():
            shares[root_id].setdefault(owner.consumer, {})
    return {root_id: NodeAllocations(shares[root_id], owners[root_id]) for root_id in by_root}
