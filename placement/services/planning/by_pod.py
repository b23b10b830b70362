"""Capacity for a pod: what columns tell exactly, and where they do not, by placing pods one after another.

Pods are placed on pictures of nodes; nothing is written. Reservations keep what they hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from placement.dialects.koordinator.pod.pod_request import PodImport, import_pod
from placement.numa.refusal import Refused
from placement.scheduling.capacity import PodColumns
from placement.scheduling.columns.node_columns import NodeColumns
from placement.scheduling.node_info import NodeInfo
from placement.scheduling.numa_fit import Fit
from placement.scheduling.pipeline import PodShape, Ranked, ShapeRanking
from placement.scheduling.pod_rules.inter_pod_affinity import keep_off
from placement.scheduling.pod_rules.ruled_ranking import RuledRanking
from placement.search.budget import Budget, SearchEnded
from placement.services.clusters.pod_documents import PodDocument
from placement.services.clusters.pod_placing import best_place, placed
from placement.services.following.cluster_cache import ClusterSnapshot
from placement.services.planning.answer import Classes, HostRoom, Room
from placement.services.planning.pod_world import ImaginedCluster


@dataclass(frozen=True, slots=True)
class _Counted:
    node: NodeInfo
    lower: int
    upper: int


class PodCapacity:
    """Counts pods like one on the nodes of a cluster, as it is or as it would be.

    When the budget is used up, what is known by then counts. Raises ManifestError.
    """

    def __init__(self, seen: ImaginedCluster, manifest: Mapping[str, Any], budget: Budget) -> None:
        view, self._like = seen.view, seen.like
        cluster = view.facts.name
        self._document = PodDocument.unnamed(cluster, manifest)
        self._incoming: PodImport = import_pod(self._document.manifest, view.facts.settings)
        self._budget = budget
        self._known: dict[Hashable, tuple[int, int]] = {}
        columns = view.columns
        shape = PodShape(self._incoming.request, self._incoming.selection, view.facts.settings)
        self._ranking = ShapeRanking(shape)
        self._columns = PodColumns(columns, shape)
        is_ruled = self._incoming.rules.refuse or keep_off(columns, self._incoming.rules, view.placed)
        self._counted = list(self._ruled(view, columns) if is_ruled else self._count(columns))

    def _count(self, columns: NodeColumns) -> Iterator[_Counted]:
        for row, (most, exact) in zip(self._columns.rows.tolist(), self._columns.counts(), strict=True):
            node = columns.nodes[row]
            lower = upper = most
            if not exact:
                lower, upper = self._tried(node, most)
            yield _Counted(node, lower, upper)

    def _ruled(self, view: ClusterSnapshot, columns: NodeColumns) -> Iterator[_Counted]:
        """Where rules are about other pods, all are placed one after another as the scheduler would."""
        counts: Counter[str] = Counter()
        now, finished = columns, False
        try:
            while not finished:
                self._budget.look()
                ranking = RuledRanking(self._ranking, self._incoming.rules, view.placed, now)
                place = best_place(ranking.best_first(now), self._incoming, self._document, {})
                finished = place is None
                if place is not None:
                    name = place.state.name
                    consumer = f"{place.recorded.consumer}-{counts.total()}"
                    counts[name] += 1
                    now = now.updated(
                        [now.by_name[name].with_pod(replace(place.recorded, consumer=consumer))]
                    )
        except SearchEnded:
            pass
        for row, (most, _) in zip(self._columns.rows.tolist(), self._columns.counts(), strict=True):
            node = columns.nodes[row]
            yield _Counted(node, counts[node.name], counts[node.name] if finished else most)

    def _tried(self, node: NodeInfo, most: int) -> tuple[int, int]:
        """How many pods fit on a node one after another; the same on nodes that look the same to pods."""
        # No more than `most` are tried.
        key = (_look(node), most)
        if key not in self._known:
            count, finished = self._placed(node, most)
            self._known[key] = (count, count if finished else max(most, count))
        return self._known[key]

    def _placed(self, node: NodeInfo, most: int) -> tuple[int, bool]:
        """How many pods were placed, and whether no more fit."""
        count = 0
        try:
            while count < most:
                self._budget.look()
                result = self._ranking.look(node)
                if not isinstance(result.answer, Fit):
                    break
                ranked = Ranked(node, result.missed, result.score, result.answer)
                try:
                    recorded = placed(ranked, self._incoming, self._document).recorded
                except Refused:
                    break
                count += 1
                node = node.with_pod(replace(recorded, consumer=f"{recorded.consumer}-{count}"))
        except SearchEnded:
            return count, False
        return count, True

    def room(self) -> Room:
        """All nodes together."""
        counted = self._counted
        sums = self._columns.sums([each.upper > 0 for each in counted])
        classes = {
            name: Classes(amount.free, amount.wanted, stranded) for name, (amount, stranded) in sums.items()
        }
        lower = sum(each.lower for each in counted)
        ideal = min((each.free // each.wanted for each in classes.values()), default=0)
        first = min(classes, key=lambda name: classes[name].free // classes[name].wanted, default=None)
        return Room(
            lower,
            sum(each.upper for each in counted),
            len(counted),
            sum(each.upper > 0 for each in counted),
            first,
            ideal,
            round(max(0.0, 1 - lower / ideal), 4) if ideal else 0.0,
            classes,
        )

    def hosts(self) -> Iterator[HostRoom]:
        """Each node."""
        for at, each in enumerate(self._counted):
            # What runs out first comes first.
            classes = {
                amount.resource_class: Classes(amount.free, amount.wanted, 0 if each.upper else amount.free)
                for amount in self._columns.amounts(at)
            }
            first, node = next(iter(classes)), each.node
            like = self._like.get(node.name)
            called = None if like else node.provider_name
            yield HostRoom(node.root_uuid, called, each.lower, each.upper, first, classes, like)


def _look(node: NodeInfo) -> Hashable:
    """All that decides how many pods fit on a node."""
    if node.reservations:
        return node
    left = tuple(node.left(place) for place in node.offers.inventories)
    totals = node.totals
    amounts = (node.free, totals.allocatable, totals.requested)
    return node.template, node.host, left, *(frozenset(each.items()) for each in amounts)
