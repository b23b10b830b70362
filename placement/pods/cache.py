"""The image that a process has of clusters: every node with its pods, brought up to date before each use.

Nodes are read from rows: manifests, pods, inventories, and what other consumers hold. One statement asks what
changed; a node is read again if any of its providers was stamped. The image is advice: what is decided on it
is only carried out if the node is still unchanged (PodWriter).
"""

from __future__ import annotations

import gc
import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import orjson

from placement.allocations.kubernetes_resources import host_class
from placement.common.manifest import ManifestError
from placement.engine.domain import request_scope
from placement.engine.domain.errors import Unavailable
from placement.engine.numa.host import HostTotals
from placement.pods import statements
from placement.pods.host import HOST, Place, offers_of
from placement.pods.koordinator.host_cpus import ANONYMOUS, anonymous_node, anonymous_report
from placement.pods.koordinator.node import import_node
from placement.pods.koordinator.settings import scheduler_settings
from placement.pods.manifests.affinity import NO_AFFINITY
from placement.pods.manifests.selection import NodeAttributes, read_attributes
from placement.pods.model import HostIdentity, RecordedPod, SchedulerSettings
from placement.pods.node_info import (
    NodeInfo,
    NodeTemplate,
    NodeTemplates,
    holders,
    host_shares,
    sum_of,
)
from placement.pods.rows import labelled, lacks_labels, record_of, rescued
from placement.pods.rules.between_pods import PlacedPods
from placement.pods.snapshot import NodeColumns, NodeIndex
from placement.providers.statements.clusters import Cluster, find, unknown
from placement.storage import json_text
from placement.storage.backends.backend import Stamped
from placement.storage.database import Database, Executor
from placement.storage.feed import FeedBatch, Follower
from placement.storage.records import HostRecord, NodeParts, NodeRow

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
    """Return the canonical form of a NodeResourceTopology that can be imported."""
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
        # Former releases wrote a blank behind the colon.
        for colon in (":", ": "):
            naming, other = (f'"name"{colon}{json.dumps(each)}' for each in (name, f"not {name}"))
            head, found, tail = text.partition(naming)
            if found:
                break
        known = self._known.get((head, tail)) if found else None
        if known is not None:
            return known
        report = canonical_report(json_text.read(text))
        metadata = json_text.read(f"{head}{other}{tail}").get("metadata") if found else None
        if isinstance(metadata, dict) and metadata.get("name") == f"not {name}":
            if len(self._known) >= _KEPT:
                self._known.clear()
            self._known[head, tail] = report
        return report


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
    """A description of a node by its manifests, beside its rows; a NodeInfo has one, too."""

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
        *,
        strict: bool = False,
    ) -> dict[int, NodeInfo]:
        """Return the nodes with these host providers, or all nodes, by the id of the host provider.

        `known` are former states: manifests that did not change are not read again; manifests of `given` are
        not read at all. All reads of the connection should see one state of the database; certain hosts are
        one read, plus reads of what is not known of them. A node with manifests that cannot be read with the
        present settings offers nothing, so that it spoils no other node. Raises ManifestError for it if this
        is `strict`.
        """
        if roots is None:
            parts = statements.all_parts(connection, cluster.id)
        else:
            parts = statements.parts(connection, cluster.id, roots)
        descriptions = self._descriptions(connection, cluster, parts.nodes, known or {}, given or {}, strict)
        recorded: dict[int, list[RecordedPod]] = defaultdict(list)
        stated = statements.manifest_parts(connection, [pod.id for pod in parts.pods if lacks_labels(pod)])
        for pod in parts.pods:
            read = record_of(pod) or rescued(connection, cluster.id, cluster.name, cluster.settings, pod)
            recorded[pod.root_id].append(labelled(read, *stated[pod.id]) if pod.id in stated else read)
        return self._states(cluster, parts, descriptions, recorded, known or {})

    def renewed(
        self, cluster: ClusterFacts, parts: NodeParts, known: Mapping[int, NodeInfo]
    ) -> dict[int, NodeInfo]:
        """Return the nodes of these parts, by the id of the host provider, as `load` would return them.

        Nodes that need more reads are left out: `known`, the former states, lack what their manifests say, or
        the row of a pod is incomplete.
        """
        descriptions: dict[int, NodeDescription | NodeInfo] = {}
        for row in parts.nodes:
            described = _still_described(cluster, row, known.get(row.root_id))
            if described is not None:
                descriptions[row.root_id] = described
        recorded: dict[int, list[RecordedPod]] = defaultdict(list)
        for pod in parts.pods:
            read = record_of(pod, with_labels=True)
            if read is None:
                descriptions.pop(pod.root_id, None)
            else:
                recorded[pod.root_id].append(read)
        return self._states(cluster, parts, descriptions, recorded, known)

    def _states(
        self,
        cluster: ClusterFacts,
        parts: NodeParts,
        descriptions: Mapping[int, NodeDescription | NodeInfo],
        recorded: Mapping[int, Sequence[RecordedPod]],
        known: Mapping[int, NodeInfo],
    ) -> dict[int, NodeInfo]:
        """Return the nodes that have descriptions; `known` are former states."""
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
        left: dict[tuple[object, ...], Left] = {}
        states = {}
        for row in parts.nodes:
            description = descriptions.get(row.root_id)
            if description is None:
                continue
            imported, offers = description.template.imported, description.template.offers
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
            state = NodeInfo(
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
            states[row.root_id] = state if former is None else state.counted_on(former)
        return states

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
        topologies = TopologyTexts()
        for start in range(0, len(unknown), _AT_ONCE):
            batch = unknown[start : start + _AT_ONCE]
            manifests = statements.node_manifests(connection, [row.id for row in batch])
            for row in batch:
                node, text = manifests[row.id]
                try:
                    report = topologies.read(text, row.name)
                    descriptions[row.root_id] = self.description(cluster, row.name, node, report)
                except UNREADABLE as error:
                    if strict:
                        raise (
                            error if isinstance(error, ManifestError) else ManifestError([_STORED])
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
        """Return what the manifests of a node, imported before, say. Raises ManifestError."""
        template = self.template(cluster.settings.profile, node, report)
        return NodeDescription(_identity_of(cluster, name, node), read_attributes(node), template)

    def template(self, profile: str, node: Mapping[str, Any], report: CanonicalReport) -> NodeTemplate:
        """Return the template that all nodes with like manifests share. Raises ManifestError."""
        reduced = anonymous_node(node)

        def read() -> NodeTemplate:
            imported = import_node(_CLUSTER, reduced, report.document, profile)
            return NodeTemplate(imported, offers_of(imported, f"{_CLUSTER}/{ANONYMOUS}"))

        return self._templates.of((profile.encode(), canonical(reduced), report.key), read)


def _still_described(cluster: ClusterFacts, row: NodeRow, former: NodeInfo | None) -> NodeInfo | None:
    """Return a former state, if it was read of these manifests under these settings."""
    if former is None or former.settings != cluster.settings:
        return None
    return former if (former.id, former.imported_at) == (row.id, row.imported_at) else None


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


# Clusters that were asked for, as they are now.


# The clusters asked for last are kept, as many as have at most this number of nodes together.
_MOST_NODES = 50_000
# A look takes milliseconds.
_SHORTLY_SECONDS = 0.05

PodName = tuple[str, str]
"""The namespace and the name of a pod."""


@dataclass(frozen=True, eq=False)
class ClusterSnapshot:
    """A snapshot of the nodes of a cluster; `reserved` are the nodes with reservations.

    `waiting` are the nodes with pods that wait for others of their gangs.

    `has_affinity`: there are, or were, pods with rules about other pods. `rules_generation` counts the pods
    with required anti-affinity that had come by then, or fewer. `placed` counts pods.
    """

    facts: ClusterFacts
    columns: NodeColumns
    reserved: Mapping[int, NodeInfo] = field(default_factory=dict)
    waiting: Mapping[int, NodeInfo] = field(default_factory=dict)
    has_affinity: bool = False
    rules_generation: int = 0
    placed: PlacedPods = field(default_factory=PlacedPods)

    @cached_property
    def nodes(self) -> Mapping[int, NodeInfo]:
        """Return the nodes by the id of their host provider."""
        return NodeIndex(self.columns.order.by_root, self.columns.nodes)

    @cached_property
    def by_name(self) -> Mapping[str, NodeInfo]:
        """Return the nodes by name."""
        return self.columns.by_name

    def known(self, roots: Iterable[int]) -> dict[int, NodeInfo]:
        """Return the nodes that have these host providers; other providers are left out."""
        rows, nodes = self.columns.order.by_root, self.columns.nodes
        return {root_id: nodes[rows[root_id]] for root_id in roots if root_id in rows}

    def with_node(self, node: NodeInfo) -> ClusterSnapshot:
        """Return the snapshot with another state of one of its nodes."""
        return self.updated([node.root_id], {node.root_id: node}, ())

    def updated(
        self, roots: Collection[int], fresh: Mapping[int, NodeInfo], gone: Collection[str]
    ) -> ClusterSnapshot:
        """Return the snapshot with fresh nodes in place of the nodes at `roots`, without names in `gone`."""
        reserved, waiting, has_affinity = dict[int, NodeInfo](), dict[int, NodeInfo](), self.has_affinity
        for root_id, node in fresh.items():
            if node.reservations:
                reserved[root_id] = node
            for pod in node.pods:
                has_affinity = has_affinity or pod.affinity is not NO_AFFINITY
                if pod.membership is not None and pod.membership.waits_until is not None:
                    waiting[root_id] = node
        return replace(
            self,
            columns=self.columns.updated(fresh.values(), gone),
            reserved=_kept(self.reserved, roots, reserved),
            waiting=_kept(self.waiting, roots, waiting),
            has_affinity=has_affinity,
        )


class _CachedCluster:
    def __init__(self, facts: ClusterFacts, nodes: Mapping[int, NodeInfo], generation: int) -> None:
        empty = ClusterSnapshot(facts, NodeColumns(), rules_generation=generation)
        self.snapshot = empty.updated((), nodes, ())
        self.pods = Counter(_pods_on(nodes.values()))

    def replace(self, former: Mapping[int, NodeInfo], fresh: Mapping[int, NodeInfo]) -> None:
        """Replace former nodes by fresh ones, by host provider; nodes without a fresh one are gone."""
        gone = {node.name for node in former.values()}
        for state in fresh.values():
            gone.discard(state.name)
        # A thread that looks meanwhile finds every pod that stays and every pod in the view.
        self.pods.update(_pods_on(fresh.values()))
        self.snapshot = self.snapshot.updated(former.keys(), fresh, gone)
        for key in _pods_on(former.values()):
            if self.pods[key] == 1:
                del self.pods[key]
            else:
                self.pods[key] -= 1


def _pods_on(nodes: Iterable[NodeInfo]) -> Iterator[PodName | str]:
    """Yield the name and the uid of every pod on nodes, reservations included."""
    for node in nodes:
        for pod in (*node.pods, *node.reservations):
            yield pod.namespace, pod.name
            yield pod.uid


def _kept(
    nodes: Mapping[int, NodeInfo], roots: Collection[int], fresh: Mapping[int, NodeInfo]
) -> Mapping[int, NodeInfo]:
    """Return some nodes by host provider, with the fresh ones in place of the nodes at `roots`."""
    if not fresh and nodes.keys().isdisjoint(roots):
        return nodes
    return {**{root_id: node for root_id, node in nodes.items() if root_id not in roots}, **fresh}


class ClusterCache(Follower):
    """A cache of clusters that were asked for; a view has every write that was committed before."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, "nodes")
        self._images: dict[int, _CachedCluster] = {}
        # A view: it has the ids of whatever is remembered.
        self.clusters = self._images.keys()
        self._ids: dict[str, int] = {}
        # Stamps of rows (by id) that need no reading: the last look brought them, or this process wrote them.
        self._seen: set[tuple[int, int]] = set()
        self._written: set[tuple[int, int]] = set()
        self.loader = NodeLoader()

    @property
    def held(self) -> tuple[int, int]:
        """Return how many nodes are remembered, and the bytes of their columns."""
        # The caller does not wait for threads that load or drop clusters meanwhile.
        tables = [image.snapshot.columns.table for image in list(self._images.values())]
        return self._nodes_kept(), sum(table.bytes for table in tables)

    def snapshot(self, cluster: str) -> ClusterSnapshot:
        """Return the cluster as it is now. Raises NotFound, Unavailable; never guesses.

        It is read over the connection of the feed, so a caller within a transaction needs no second one.
        """
        if not request_scope.admits(cluster):
            raise unknown(cluster)
        with self.caught_up():
            id_ = self._ids.get(cluster)
            if id_ is None:
                return self._load(cluster).snapshot
            # The cluster asked for last is dropped last.
            image = self._images[id_] = self._images.pop(id_)
            return image.snapshot

    def may_be_new(self, view: ClusterSnapshot, pod: PodName) -> bool:
        """Return whether no pod of this name is known on nodes of the cluster by now; that is advice, too."""
        image = self._images.get(view.facts.id)
        return image is None or pod not in image.pods

    def may_have(self, view: ClusterSnapshot, keys: Iterable[PodName | str]) -> bool:
        """Return whether a pod or a reservation with one of these names or uids may be on a node of the view.

        It is never False for one that is on a node of the view and stays there.
        """
        image = self._images.get(view.facts.id)
        return image is None or any(key in image.pods for key in keys)

    def took_place(self, before: NodeInfo, after: NodeInfo, written: Stamped) -> None:
        """Note that a transaction of this process turned one state of a node into another.

        A node that was read since stays as it was read. The cached node also stays if a provider was written
        between the last look and that transaction: its stamp hides that write, and the next look reads it.
        """
        root_id = before.root_id
        # The pod is placed and its caller waits: if a thread loads nodes just now, the next look must do.
        with suppress(Unavailable), self.alone(_SHORTLY_SECONDS):
            image = self._images.get(before.cluster_id)
            is_known = image is not None and image.snapshot.nodes.get(root_id) is before
            if image is None or not is_known or not self.feed.is_of(written.server, self.horizon):
                return
            horizon = self.horizon
            for provider_id, stamp in written.former:
                # The look that set the horizon, or an earlier one, brought all that is older.
                is_old = horizon is not None and stamp < horizon
                mine = (root_id, stamp) in self._written
                if not (is_old or mine or (provider_id, stamp) in self._seen):
                    return
            image.replace({root_id: before}, {root_id: after})
            self._written.add((root_id, written.stamp))

    def begin(self) -> None:
        """Do nothing: clusters are loaded when they are asked for."""

    def apply(self, look: FeedBatch) -> bool:
        """Drop clusters that changed; read nodes with changed providers again. Raises Unavailable."""
        for id_ in look.clusters:
            self._drop(id_)
        seen, stale = set[tuple[int, int]](), dict[int, set[int]]()
        for row in look.changed:
            if row.cluster_id is not None and row.cluster_id in self._images:
                seen.add((row.id, row.revision))
                root_id = row.root_id or row.id
                is_known = (row.id, row.revision) in self._seen or (root_id, row.revision) in self._written
                if not is_known:
                    stale.setdefault(row.cluster_id, set()).add(root_id)
        for image in self._images.values():
            if gone := image.snapshot.known(look.deleted):
                image.replace(gone, {})
        for cluster_id, roots in stale.items():
            image = self._images[cluster_id]
            facts, former, fresh = image.snapshot.facts, image.snapshot.known(roots), dict[int, NodeInfo]()
            if former:
                parts = self.feed.node_parts(facts.id, former, look.horizon)
                fresh = self.loader.renewed(facts, parts, former)
            rest = roots - fresh.keys()
            if rest:
                with self.feed.one_state(look.horizon) as connection:
                    fresh |= self.loader.load(connection, facts, rest, former)
            image.replace(former, fresh)
        for id_, generation in look.rules_generations.items():
            # Every pod that was counted is in what the look brought, or in what was read after it.
            known_image = self._images.get(id_)
            if known_image is not None and generation > known_image.snapshot.rules_generation:
                known_image.snapshot = replace(known_image.snapshot, rules_generation=generation)
        # This look has brought what was written before it.
        self._seen, self._written = seen, set()
        return True

    def _load(self, name: str) -> _CachedCluster:
        was_enabled = gc.isenabled()
        # Each run of a collection would walk through all that was made so far.
        gc.disable()
        try:
            image = self._read_all(name)
        finally:
            if was_enabled:
                gc.enable()
        while len(self._images) > 1 and self._nodes_kept() > _MOST_NODES:
            self._drop(next(iter(self._images)))
        # Every full collection would walk through thousands of nodes that stay.
        gc.collect()
        gc.freeze()
        return image

    def _read_all(self, name: str) -> _CachedCluster:
        with self.feed.one_state() as connection:
            horizon = self.feed.horizon(connection)
            if self.horizon is not None and self.horizon.history != horizon.history:
                # What is known of other clusters is of another history.
                self.forget()
            stored = find(connection, name)
            facts = None if stored is None else facts_of(stored)
            states = {} if facts is None else self.loader.load(connection, facts)
        if stored is None or facts is None:
            raise unknown(name)
        # Columns of many nodes take a while; the server would keep its transaction open for that time.
        image = _CachedCluster(facts, states, stored.rules_generation)
        if self.horizon is None:
            self.horizon = horizon
        self._images[facts.id] = image
        self._ids[name] = facts.id
        return image

    def _nodes_kept(self) -> int:
        return sum(len(image.snapshot.nodes) for image in list(self._images.values()))

    def _drop(self, id_: int) -> None:
        image = self._images.pop(id_, None)
        if image is not None:
            del self._ids[image.snapshot.facts.name]

    def forget(self) -> None:
        """Forget all clusters."""
        super().forget()
        self._images.clear()
        self._ids.clear()
        self._seen, self._written = set(), set()
