"""The image that a process has of clusters: every node with its pods, brought up to date before each use.

Nodes are read from rows: manifests, pods, inventories, and allocations of other consumers. One statement asks
for changes; a node is read again if any of its providers was stamped. The image is advice: decisions on it
are only carried out if the node is still unchanged (PodWriter).
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

from placement.engine.domain import request_scope
from placement.engine.domain.errors import Unavailable
from placement.pods.decide.rules.placed_pods import PlacedPods
from placement.pods.manifests.affinity import NO_AFFINITY
from placement.pods.state.node_info import NodeInfo
from placement.pods.state.snapshot import NodeColumns, NodeIndex
from placement.pods.store.loader import ClusterFacts, NodeLoader, facts_of
from placement.providers.statements.clusters import find, unknown
from placement.storage.backends.backend import Stamped
from placement.storage.database import Database
from placement.storage.feed import FeedBatch
from placement.storage.follower import Follower

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


class ClusterCache(Follower):
    """A cache of clusters that were asked for; a snapshot has every write that was committed before."""

    def __init__(self, database: Database) -> None:
        super().__init__(database, "nodes")
        self._cached_clusters: dict[int, _CachedCluster] = {}
        # The ids of all clusters that are cached.
        self.clusters = self._cached_clusters.keys()
        self._ids: dict[str, int] = {}
        # Stamps of rows (by id) that need no reading: the last look brought them, or this process wrote them.
        self._seen: set[tuple[int, int]] = set()
        self._written: set[tuple[int, int]] = set()
        self.loader = NodeLoader()

    @property
    def held(self) -> tuple[int, int]:
        """Return how many nodes are remembered, and the bytes of their columns."""
        # The caller does not wait for threads that load or drop clusters meanwhile.
        tables = [cached.snapshot.columns.table for cached in list(self._cached_clusters.values())]
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
            cached = self._cached_clusters[id_] = self._cached_clusters.pop(id_)
            return cached.snapshot

    def may_be_new(self, cluster_id: int, pod: PodName) -> bool:
        """Return whether no pod of this name is known on nodes of the cluster by now; this is advice."""
        cached = self._cached_clusters.get(cluster_id)
        return cached is None or pod not in cached.pods

    def may_have(self, snapshot: ClusterSnapshot, keys: Iterable[PodName | str]) -> bool:
        """Return whether a pod or a reservation with one of these names or uids may be on a node.

        It is never False for one that is on a node of the snapshot and stays there.
        """
        cached = self._cached_clusters.get(snapshot.facts.id)
        return cached is None or any(key in cached.pods for key in keys)

    def note_written(self, former_node: NodeInfo, node: NodeInfo, stamped: Stamped) -> None:
        """Note that a transaction of this process turned one state of a node into another.

        A node that was read since stays as it was read. The cached node also stays if a provider was written
        between the last look and that transaction: its stamp hides that write, and the next look reads it.
        """
        root_id = former_node.root_id
        # The pod is placed and its caller waits: if a thread loads nodes just now, the next look must do.
        with suppress(Unavailable), self.alone(_SHORTLY_SECONDS):
            cached = self._cached_clusters.get(former_node.cluster_id)
            is_known = cached is not None and cached.snapshot.nodes.get(root_id) is former_node
            if cached is None or not is_known or not self.feed.is_of(stamped.server, self.horizon):
                return
            horizon = self.horizon
            for provider_id, stamp in stamped.former:
                # The look that set the horizon, or an earlier one, brought all that is older.
                is_old = horizon is not None and stamp < horizon
                mine = (root_id, stamp) in self._written
                if not (is_old or mine or (provider_id, stamp) in self._seen):
                    return
            cached.replace({root_id: former_node}, {root_id: node})
            self._written.add((root_id, stamped.stamp))

    def begin(self) -> None:
        """Do nothing: clusters are loaded when they are asked for."""

    def apply(self, batch: FeedBatch) -> bool:
        """Drop clusters that changed; read nodes with changed providers again. Raises Unavailable."""
        for id_ in batch.clusters:
            self._drop(id_)
        seen, stale = set[tuple[int, int]](), dict[int, set[int]]()
        for row in batch.changed:
            if row.cluster_id is not None and row.cluster_id in self._cached_clusters:
                seen.add((row.id, row.revision))
                root_id = row.root_id or row.id
                is_known = (row.id, row.revision) in self._seen or (root_id, row.revision) in self._written
                if not is_known:
                    stale.setdefault(row.cluster_id, set()).add(root_id)
        for cached in self._cached_clusters.values():
            if gone := cached.snapshot.known(batch.deleted):
                cached.replace(gone, {})
        for cluster_id, roots in stale.items():
            cached = self._cached_clusters[cluster_id]
            facts, former, fresh = cached.snapshot.facts, cached.snapshot.known(roots), dict[int, NodeInfo]()
            if former:
                parts = self.feed.node_parts(facts.id, former, batch.horizon)
                fresh = self.loader.renewed(facts, parts, former)
            rest = roots - fresh.keys()
            if rest:
                with self.feed.one_state(batch.horizon) as connection:
                    fresh |= self.loader.load(connection, facts, rest, former)
            cached.replace(former, fresh)
        if batch.rules_generations:
            self._note_rules(batch.rules_generations)
        # This look has brought what was written before it.
        self._seen, self._written = seen, set()
        return True

    def _note_rules(self, generations: Mapping[int, int]) -> None:
        """Note the generations of rules of clusters by id, once all pods that were counted are known.

        The look brought each of these pods, or a read after it.
        """
        for id_, generation in generations.items():
            cached = self._cached_clusters.get(id_)
            if cached is not None and generation > cached.snapshot.rules_generation:
                cached.snapshot = replace(cached.snapshot, rules_generation=generation)

    def _load(self, name: str) -> _CachedCluster:
        was_enabled = gc.isenabled()
        # Each run of a collection would walk through all that was made so far.
        gc.disable()
        try:
            cached = self._read_all(name)
        finally:
            if was_enabled:
                gc.enable()
        while len(self._cached_clusters) > 1 and self._nodes_kept() > _MOST_NODES:
            self._drop(next(iter(self._cached_clusters)))
        # Every full collection would walk through thousands of nodes that stay.
        gc.collect()
        gc.freeze()
        return cached

    def _read_all(self, name: str) -> _CachedCluster:
        with self.feed.one_state() as connection:
            horizon = self.feed.horizon(connection)
            if self.horizon is not None and self.horizon.history != horizon.history:
                # What is known of other clusters is of another history.
                self.forget()
            stored = find(connection, name)
            facts = None if stored is None else facts_of(stored)
            nodes = {} if facts is None else self.loader.load(connection, facts)
        if stored is None or facts is None:
            raise unknown(name)
        # Columns of many nodes take a while; the server would keep its transaction open for that time.
        cached = _CachedCluster(facts, nodes, stored.rules_generation)
        if self.horizon is None:
            self.horizon = horizon
        self._cached_clusters[facts.id] = cached
        self._ids[name] = facts.id
        return cached

    def _nodes_kept(self) -> int:
        return sum(len(cached.snapshot.nodes) for cached in list(self._cached_clusters.values()))

    def _drop(self, id_: int) -> None:
        cached = self._cached_clusters.pop(id_, None)
        if cached is not None:
            del self._ids[cached.snapshot.facts.name]

    def forget(self) -> None:
        """Forget all clusters."""
        super().forget()
        self._cached_clusters.clear()
        self._ids.clear()
        self._seen, self._written = set(), set()


class _CachedCluster:
    """A cluster in the cache: its snapshot as of now, and the names and uids of its pods, counted."""

    def __init__(self, facts: ClusterFacts, nodes: Mapping[int, NodeInfo], generation: int) -> None:
        snapshot = ClusterSnapshot(facts, NodeColumns(), rules_generation=generation)
        self.snapshot = snapshot.updated((), nodes, ())
        self.pods = Counter(_pods_on(nodes.values()))

    def replace(self, former: Mapping[int, NodeInfo], fresh: Mapping[int, NodeInfo]) -> None:
        """Replace former nodes by fresh ones, by host provider; nodes without a fresh one are gone."""
        gone = {node.name for node in former.values()}
        for node in fresh.values():
            gone.discard(node.name)
        # A thread that looks meanwhile finds every pod that stays and every pod in the snapshot.
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
