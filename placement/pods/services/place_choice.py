"""The choice of a node for a pod: the best one, by filter, score and look.

Pods that are placed at the same time would all go to the same best node, and the second pod that comes to a
node was decided in vain. So of several equally good nodes, one is taken on which this process is placing no
other pod. While other processes were faster a moment ago, a random one is. The best stays best: only among
equals, which are otherwise taken by name, another node may be chosen.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from typing import NamedTuple

from placement.common.clock import agreed_now
from placement.engine.domain.errors import CapacityExceeded, Conflict, NameKind, NamesOf, RequestPlace
from placement.engine.domain.explanation import ConditionKind, Explanation, Obstacle
from placement.engine.numa.host import PodRefused, Refusal
from placement.pods.decide.adjustments import IgnoredReservations, RulesBetweenPods, UsedReservations
from placement.pods.decide.explanation import explain_pod
from placement.pods.decide.gangs import Waiting
from placement.pods.decide.ranking import Adjustment, PodRanking, Ranked, Ranking, ShapeCache, ShapeRanking
from placement.pods.decide.reading import PodDocument, reading_of
from placement.pods.decide.reservation_ends import due_on
from placement.pods.decide.reservations import ReservationLooks
from placement.pods.decide.rules.rule import PodShape
from placement.pods.services.placing import placed
from placement.pods.state.model import PodSpec
from placement.pods.state.node_info import NodeInfo
from placement.pods.state.snapshot import NodeColumns
from placement.pods.store.answers import PodPlacement
from placement.pods.store.cache import ClusterSnapshot
from placement.pods.store.rows import consumer_of
from placement.pods.store.statements import StoredPod

# More equals than concurrent writers are of no use.
_MOST_EQUALS = 64
_LOSS_LASTS_SECONDS = 1.0
_SUITABILITY = attrgetter("missed", "score", "used_reservation")
_INVENTORIES_DIFFER = Refusal(
    ("node(s) have inventories that differ from the imported node",),
    obstacle=Obstacle(ConditionKind.INVENTORIES),
)


class NoPlace(NamedTuple):
    """The reasons why no node takes a pod: by node, and stage by stage."""

    refusals: Mapping[str, Refusal]
    explanation: Explanation


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """A request to place a pod, only on the node of that name if one is given; `refusing` nodes take none.

    `may_wait`: it may take its place before enough others of its gang have theirs.
    """

    document: PodDocument
    node_name: str | None
    refusing: RefusingNodes
    may_wait: bool = False


class PlaceChoice:
    """The choice of the best node for a pod on a snapshot of its cluster; rankings are kept by shape."""

    def __init__(self) -> None:
        self._ranking_cache = ShapeCache(ShapeRanking)
        self._looks_cache = ShapeCache(ReservationLooks)
        self.active = ActivePlacements()

    def best(
        self,
        snapshot: ClusterSnapshot,
        request: PlacementRequest,
        pod: PodSpec | None = None,
        known_pods: Sequence[StoredPod] = (),
    ) -> PodPlacement | NoPlace:
        """Return the place of the pod on the best node when the known ones are gone, or why it has none.

        The steps have the numbers of placement/pods/README.md. Each is lazy: nodes are looked at until none
        that follows can be better. Raises ManifestError, and Conflict for a named node that is not there.
        """
        document, node_name, refusing = request.document, request.node_name, request.refusing
        pod = pod or reading_of(document.manifest, snapshot.facts.settings)
        columns = columns_without(snapshot, known_pods)
        # 2. Filter and 3. score: all nodes as columns, exactly or by bounds.
        ranking = self.ranking(pod, document, snapshot, columns)
        if node_name is not None:
            if node_name not in snapshot.by_name:
                raise _no_such_node(snapshot, document, node_name)
            columns = columns.among([node_name])
        doubtful = refusing.still_refusing(snapshot) if refusing.nodes else ()
        usable = columns.without(doubtful) if doubtful else columns
        # 4. Look: one node after another for certain, best first.
        best_first = self.active.spread(ranking.best_first(usable))
        # 5. Reserve: CPUs and amounts on the first node that gives them.
        unplaced: dict[str, Refusal] = {}
        placement = best_place(best_first, pod, document, unplaced)
        if placement is None:
            differ = {name: _INVENTORIES_DIFFER for name in doubtful if name in columns.by_name}
            refusals = {**ranking.refusals(columns), **unplaced, **differ}
            return NoPlace(refusals, explain_pod(ranking.shape, columns, refusals))
        return placement

    def ranking(
        self, pod: PodSpec, document: PodDocument, snapshot: ClusterSnapshot, columns: NodeColumns
    ) -> Ranking:
        """Return the ranking of the pod; `columns` are all nodes of the cluster, without the pod on them."""
        shape = PodShape(pod.request, pod.selection, snapshot.facts.settings)
        ranking = self._ranking_cache.of(snapshot.facts.id, shape, snapshot.columns)
        if document.keeps is not None:
            return ranking
        adjustments: list[Adjustment] = []
        if snapshot.reserved or pod.reservation_affinity:
            looks = self._looks_cache.of(snapshot.facts.id, shape, snapshot.columns)
            if pod.request.ignores_reservations:
                adjustments.append(IgnoredReservations(looks))
            else:
                nodes = [node.name for node in snapshot.reserved.values()]
                adjustments.append(UsedReservations(looks, pod, document.manifest, nodes, agreed_now()))
        if snapshot.has_affinity or pod.rules.say_anything:
            adjustments.append(RulesBetweenPods(shape, pod.rules, snapshot.placed, columns))
        return PodRanking(ranking, adjustments) if adjustments else ranking


def _no_such_node(snapshot: ClusterSnapshot, document: PodDocument, node_name: str) -> Conflict:
    """Return the error for a pod or a reservation that names a node; the node may come later."""
    place = RequestPlace("Node")
    if document.keeps is not None:
        place = RequestPlace("Reservation") / "spec" / "template" / "spec" / "nodeName"
    cluster = snapshot.facts.name
    return Conflict(
        f"no node {node_name!r} in cluster {cluster}",
        place=place,
        value=node_name,
        known=NamesOf(NameKind.NODE, cluster),
    )


def best_place(
    ranked_nodes: Iterable[Ranked],
    pod: PodSpec,
    document: PodDocument,
    unplaced: dict[str, Refusal],
) -> PodPlacement | None:
    """Return the place of the pod on the best node that takes it, or None.

    Refusals of nodes where it seemed to fit are added to `unplaced`.
    """
    for ranked in ranked_nodes:
        try:
            return placed(ranked, pod, document)
        except PodRefused as refused:
            unplaced[ranked.node.name] = refused.refusal
    return None


def columns_without(
    snapshot: ClusterSnapshot, leaving_pods: Sequence[StoredPod], late_waiting: Sequence[Waiting] = ()
) -> NodeColumns:
    """Return the nodes without these pods, and without reservations that have expired.

    Pods in `late_waiting` have waited too long: reads leave them out. A pod is placed after their release.
    """
    endings = due_on(snapshot.reserved) if snapshot.reserved else ()
    if not (leaving_pods or late_waiting or endings):
        return snapshot.columns
    gone = [(pod.root_id, consumer_of(pod)) for pod in leaving_pods]
    gone += [(each.root_id, each.reservation.consumer) for each in endings]
    gone += [(each.node.root_id, each.pod.consumer) for each in late_waiting]
    consumers, nodes = frozenset(consumer for _, consumer in gone), snapshot.nodes
    roots = {root_id for root_id, _ in gone if root_id is not None and root_id in nodes}
    return snapshot.columns.updated(nodes[root_id].without(consumers) for root_id in roots)


class ActivePlacements:
    """The nodes on which this process is placing pods, and whether other processes do; threads share it."""

    def __init__(self) -> None:
        self._taken: Counter[int] = Counter()
        self._lock = threading.Lock()
        self._lost_at = -_LOSS_LASTS_SECONDS

    @contextmanager
    def taking(self, root_id: int) -> Iterator[None]:
        """Mark the node with this host provider while a pod is placed on it."""
        with self._lock:
            self._taken[root_id] += 1
        try:
            yield
        finally:
            with self._lock:
                self._taken[root_id] -= 1
                if not self._taken[root_id]:
                    del self._taken[root_id]

    def lost(self) -> None:
        """Note that another process was faster."""
        self._lost_at = time.monotonic()

    def spread(self, best_first: Iterable[Ranked]) -> Iterator[Ranked]:
        """Return the nodes, best first; among equals, nodes where no pod is being placed come first."""
        ranked = iter(best_first)
        best = next(ranked, None)
        if best is None:
            return ranked
        is_lost = time.monotonic() - self._lost_at < _LOSS_LASTS_SECONDS
        if not is_lost and not self._taken[best.node.root_id]:
            return chain([best], ranked)
        equals, rest = [best], []
        for each in ranked:
            if _SUITABILITY(each) != _SUITABILITY(best):
                rest = [each]
                break
            equals.append(each)
            if len(equals) == _MOST_EQUALS:
                break
        if is_lost:
            random.shuffle(equals)
        equals.sort(key=lambda each: self._taken[each.node.root_id])
        return chain(equals, rest, ranked)


@dataclass(slots=True)
class RefusingNodes:
    """The nodes that refuse a pod, or several, for as long as they do not change.

    Writes to `clashed_nodes` were refused by a key of the database.
    """

    nodes: set[NodeInfo] = field(default_factory=set)
    clashed_nodes: list[NodeInfo] = field(default_factory=list)

    def still_refusing(self, snapshot: ClusterSnapshot) -> set[str]:
        """Return the names of the nodes that have not changed since they refused."""
        return {node.name for node in self.nodes if _is_same(snapshot.nodes.get(node.root_id), node)}

    def note_clash(self, nodes: Collection[NodeInfo]) -> bool:
        """Note that a database key refused a write to one of these nodes; return whether that may pass.

        The first time another writer may have been faster. Nodes that have not changed by the second time
        refuse for good: a CPU has an owner that follows from no pod, for example.
        """
        for_good = [node for node in nodes if any(_is_same(node, former) for former in self.clashed_nodes)]
        self.nodes.update(for_good)
        self.clashed_nodes += nodes
        return not for_good


def _is_same(node: NodeInfo | None, former_node: NodeInfo) -> bool:
    """Return whether the stored state of a node is unchanged."""
    former = former_node.root_id, former_node.revision
    return node is not None and (node.root_id, node.revision) == former


class Unschedulable(CapacityExceeded):
    """An error: no node can take the pod; `refusals` has reasons by node, `explanation` stage by stage."""

    code = "unschedulable"

    def __init__(self, no_place: NoPlace) -> None:
        super().__init__(nodes_available(no_place.refusals.values()))
        self.refusals, self.explanation = no_place


def nodes_available(refusals: Collection[Refusal], fitting: int = 0) -> str:
    """Return how many nodes are available and why the others are not, as kube-scheduler counts it."""
    counts = Counter(reason for refusal in refusals for reason in refusal.reasons)
    reasons = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    available = f"{fitting}/{fitting + len(refusals)} nodes are available"
    return f"{available}: {reasons}." if reasons else f"{available}."
