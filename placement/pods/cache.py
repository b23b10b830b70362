"""The image that a process has of clusters: every node with its pods, brought up to date before each use.

One statement asks what changed; a node is read again if any of its providers was stamped. The image is
advice: what is decided on it is only carried out if the node is still unchanged (PodWriter).
"""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property

from placement.engine.domain import request_scope
from placement.engine.domain.errors import Unavailable
from placement.pods.node_info import NodeInfo
from placement.pods.node_loading import ClusterFacts, NodeLoader, facts_of
from placement.pods.rules.between_pods import PlacedPods
from placement.pods.snapshot import NodeColumns
from placement.providers.statements.clusters import find, unknown
from placement.storage.backends.backend import Stamped
from placement.storage.database import Database
from placement.storage.feed import FeedBatch, Follower

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
        return self.columns.by_root

    @cached_property
    def by_name(self) -> Mapping[str, NodeInfo]:
        """Return the nodes by name."""
        return self.columns.by_name

    def with_node(self, node: NodeInfo) -> ClusterSnapshot:
        """Return the snapshot with another state of one of its nodes."""
        return self.updated([node.root_id], {node.root_id: node}, ())

    def updated(
        self, roots: Collection[int], fresh: Mapping[int, NodeInfo], gone: Collection[str]
    ) -> ClusterSnapshot:
        """Return the snapshot with fresh nodes in place of the nodes at `roots`, without names in `gone`."""
        reserved, waiting, has_affinity = dict[int, NodeInfo](), dict[int, NodeInfo](), self.has_affinity
        for root_id, node in fresh.items():
            has_affinity = has_affinity or bool(node.with_affinity)
            if node.reservations:
                reserved[root_id] = node
            if node.waiting:
                waiting[root_id] = node
        return replace(
            self,
            columns=self.columns.updated(fresh.values(), gone),
            reserved=_kept(self.reserved, roots, reserved),
            waiting=_kept(self.waiting, roots, waiting),
            has_affinity=has_affinity,
        )


class _Image:
    def __init__(self, facts: ClusterFacts, nodes: Mapping[int, NodeInfo], generation: int) -> None:
        empty = ClusterSnapshot(facts, NodeColumns(), rules_generation=generation)
        self.view = empty.updated((), nodes, ())
        self.pods = Counter(_pods_on(nodes.values()))

    def replace(self, roots: Iterable[int], fresh: Mapping[int, NodeInfo]) -> None:
        """Replace the nodes at these host providers by the fresh ones; nodes without a fresh one are gone."""
        nodes = self.view.nodes
        before = [nodes[root_id] for root_id in roots if root_id in nodes]
        left, gone = set[int](), set[str]()
        for state in before:
            left.add(state.root_id)
            gone.add(state.name)
        for state in fresh.values():
            gone.discard(state.name)
        # A thread that looks meanwhile finds every pod that stays and every pod in the view.
        self.pods.update(_pods_on(fresh.values()))
        self.view = self.view.updated(left, fresh, gone)
        for key in _pods_on(before):
            if self.pods[key] == 1:
                del self.pods[key]
            else:
                self.pods[key] -= 1


def _pods_on(nodes: Iterable[NodeInfo]) -> Iterator[PodName | str]:
    """Yield the name and the uid of every pod on nodes, reservations included."""
    for node in nodes:
        for holder in node.holders:
            yield holder.namespace, holder.name
            yield holder.uid


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
        self._images: dict[int, _Image] = {}
        self._ids: dict[str, int] = {}
        # Stamps of rows (by id) that need no reading: the last look brought them, or this process wrote them.
        self._seen: set[tuple[int, int]] = set()
        self._written: set[tuple[int, int]] = set()
        self.loader = NodeLoader()

    @property
    def held(self) -> tuple[int, int]:
        """Return how many nodes are remembered, and the bytes of their columns."""
        # The caller does not wait for threads that load or drop clusters meanwhile.
        tables = [image.view.columns.table for image in list(self._images.values())]
        return self._nodes_kept(), sum(table.bytes for table in tables)

    def view(self, cluster: str) -> ClusterSnapshot:
        """Return the cluster as it is now. Raises NotFound, Unavailable; never guesses.

        It is read over the connection of the feed, so a caller within a transaction needs no second one.
        """
        if not request_scope.admits(cluster):
            raise unknown(cluster)
        with self.caught_up():
            id_ = self._ids.get(cluster)
            if id_ is None:
                return self._load(cluster).view
            # The cluster asked for last is dropped last.
            image = self._images[id_] = self._images.pop(id_)
            return image.view

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
            is_known = image is not None and image.view.nodes.get(root_id) is before
            if image is None or not is_known or not self.feed.is_of(written.server, self.horizon):
                return
            horizon = self.horizon
            for provider_id, stamp in written.former:
                # The look that set the horizon, or an earlier one, brought all that is older.
                is_old = horizon is not None and stamp < horizon
                mine = (root_id, stamp) in self._written
                if not (is_old or mine or (provider_id, stamp) in self._seen):
                    return
            image.replace([root_id], {root_id: after})
            self._written.add((root_id, written.stamp))

    @property
    def clusters(self) -> Sequence[int]:
        """Return the ids of the clusters that are remembered."""
        return list(self._images)

    def begin(self) -> None:
        """Do nothing: clusters are loaded when they are asked for."""

    def apply(self, look: FeedBatch) -> bool:
        """Drop clusters that changed; read nodes with changed providers again. Raises Unavailable."""
        for id_ in look.clusters:
            self._drop(id_)
        rows = {(row.id, row.revision): row for row in look.changed if row.cluster_id in self._images}
        stale: dict[int, set[int]] = {}
        for key, row in rows.items():
            root_id = row.root_id or row.id
            if key not in self._seen and (root_id, row.revision) not in self._written:
                assert row.cluster_id is not None
                stale.setdefault(row.cluster_id, set()).add(root_id)
        for image in self._images.values():
            gone = image.view.nodes.keys() & set(look.deleted)
            if gone:
                image.replace(gone, {})
        for cluster_id, roots in stale.items():
            image = self._images[cluster_id]
            facts, nodes = image.view.facts, image.view.nodes
            known, fresh = roots & nodes.keys(), {}
            if known:
                parts = self.feed.node_parts(facts.id, known, look.horizon)
                fresh = self.loader.renewed(facts, parts, nodes)
            rest = roots - fresh.keys()
            if rest:
                with self.feed.one_state(look.horizon) as connection:
                    fresh |= self.loader.load(connection, facts, rest, nodes)
            image.replace(roots, fresh)
        for id_, generation in look.rules_generations.items():
            # Every pod that was counted is in what the look brought, or in what was read after it.
            known_image = self._images.get(id_)
            if known_image is not None and generation > known_image.view.rules_generation:
                known_image.view = replace(known_image.view, rules_generation=generation)
        # This look has brought what was written before it.
        self._seen, self._written = set(rows), set()
        return True

    def _load(self, name: str) -> _Image:
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

    def _read_all(self, name: str) -> _Image:
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
        image = _Image(facts, states, stored.rules_generation)
        if self.horizon is None:
            self.horizon = horizon
        self._images[facts.id] = image
        self._ids[name] = facts.id
        return image

    def _nodes_kept(self) -> int:
        return sum(len(image.view.nodes) for image in list(self._images.values()))

    def _drop(self, id_: int) -> None:
        image = self._images.pop(id_, None)
        if image is not None:
            del self._ids[image.view.facts.name]

    def forget(self) -> None:
        """Forget all clusters."""
        super().forget()
        self._images.clear()
        self._ids.clear()
        self._seen, self._written = set(), set()
