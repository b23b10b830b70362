"""How many more pods like one fit on the nodes of a cluster, in all and by node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from placement.allocations.kubernetes_resources import resource_names
from placement.engine.forest.arrays import Amounts, Mask, Rows
from placement.engine.numa.host import FACE_VALUE, BindPolicy, NumaPolicy, PodRefused
from placement.engine.search.budget import Budget, SearchEnded
from placement.engine.search.capacity.capacity import HostRoom, Offered, summary_of
from placement.planning.counts import CapacityCount, HostCount
from placement.planning.imagined_clusters import ImaginedCluster
from placement.pods.decide.adjustments import RulesBetweenPods
from placement.pods.decide.ranking import PodRanking, Ranked, ShapeRanking
from placement.pods.decide.reading import PodDocument, import_pod
from placement.pods.decide.rules import RULES, SELECTION
from placement.pods.decide.rules.amounts import amplified_cpu, host_amounts
from placement.pods.decide.rules.between_pods import keep_off
from placement.pods.decide.rules.rule import Fit, PodShape, may_pass
from placement.pods.services.place_choice import best_place
from placement.pods.services.placing import placed
from placement.pods.state import columns as state_columns
from placement.pods.state.model import NO_REQUEST, PodRequest, PodSpec
from placement.pods.state.node_info import NodeInfo
from placement.pods.state.snapshot import NodeColumns
from placement.pods.store.cache import ClusterSnapshot

_MOST = 2**40


class NodePods(NamedTuple):
    """A node, and how many more pods fit on it at least and at most."""

    node: NodeInfo
    lower: int
    upper: int


class PodCapacity:
    """The count of pods like one on the nodes of a cluster, as it is or as it would be.

    It is read from columns where these are exact, else found by placing pods one after another on copies of
    NodeInfo; nothing is written. Reservations keep what they hold. When the budget is used up, the
    count covers the pods placed by then. Raises ManifestError.
    """

    def __init__(self, cluster: ImaginedCluster, manifest: Mapping[str, Any], budget: Budget) -> None:
        snapshot, self._like = cluster
        self._document = PodDocument.unnamed(snapshot.facts.name, manifest)
        self._pod_spec: PodSpec = import_pod(self._document.manifest, snapshot.facts.settings)
        self._budget = budget
        node_columns = snapshot.columns
        shape = PodShape(self._pod_spec.request, self._pod_spec.selection, snapshot.facts.settings)
        self._ranking = ShapeRanking(shape)
        # The nodes that a pod may go to by names, labels and taints, and how many more each takes at most.
        rows: Rows = np.flatnonzero(may_pass(SELECTION, node_columns, shape.incoming()))
        table = node_columns.table.rows(rows)
        self._asked = [asked for asked in _asked(table, shape.request) if (asked.wanted > 0).any()]
        counts = len(self._asked), len(rows)
        self._times = np.array([_times(asked) for asked in self._asked], np.int64).reshape(counts)
        # A node that has none of what is requested strands nothing.
        self._offering = state_columns.offering(table, shape.request)
        names = resource_names(shape.request.amounts)
        self.resources = {each.resource_class: names[each.resource_class] for each in self._asked}
        """The names that Kubernetes has for the classes that are counted."""
        most = self._times.min(axis=0, initial=_MOST)
        if shape.selection.host_ports:
            # No node has the same port twice.
            most = np.minimum(most, 1)
        most = np.where(may_pass(RULES, node_columns, shape.incoming())[rows], most, 0)
        exact = _is_plain(table, shape.request) & ~(table[state_columns.VAST] > 0) | (most == 0)
        nodes = [node_columns.nodes[row] for row in rows.tolist()]
        self._most = list(zip(nodes, most.tolist(), exact.tolist(), strict=True))
        is_ruled = self._pod_spec.rules.refuse or keep_off(
            node_columns, self._pod_spec.rules, snapshot.placed
        )
        self._counted = list(self._ruled(snapshot, node_columns) if is_ruled else self._count())

    def _count(self) -> Iterator[NodePods]:
        # Like nodes share the count; no more than `most` are tried.
        known: dict[Hashable, tuple[int, int]] = {}
        for node, most, is_exact in self._most:
            if is_exact:
                yield NodePods(node, most, most)
                continue
            key = (_key(node), most)
            if key not in known:
                count, finished = self._placed(node, most)
                known[key] = (count, count if finished else max(most, count))
            yield NodePods(node, *known[key])

    def _ruled(self, snapshot: ClusterSnapshot, node_columns: NodeColumns) -> Iterator[NodePods]:
        """Yield the counts by placing pods in turn as the scheduler would, for rules about other pods."""
        counts: Counter[str] = Counter()
        now, finished = node_columns, False
        try:
            while not finished:
                self._budget.look()
                rules = RulesBetweenPods(self._ranking.shape, self._pod_spec.rules, snapshot.placed, now)
                ranking = PodRanking(self._ranking, [rules])
                place = best_place(ranking.best_first(now), self._pod_spec, self._document, {})
                finished = place is None
                if place is not None:
                    name = place.node.name
                    consumer = f"{place.recorded.consumer}-{counts.total()}"
                    counts[name] += 1
                    now = now.updated(
                        [now.by_name[name].with_pod(replace(place.recorded, consumer=consumer))]
                    )
        except SearchEnded:
            pass
        for node, most, _ in self._most:
            yield NodePods(node, counts[node.name], counts[node.name] if finished else most)

    def _placed(self, node: NodeInfo, most: int) -> tuple[int, bool]:
        """Return how many pods were placed, and whether no more fit."""
        count = 0
        try:
            while count < most:
                self._budget.look()
                result = self._ranking.look(node)
                if not isinstance(result.answer, Fit):
                    break
                ranked = Ranked(node, result.missed, result.score, result.answer)
                try:
                    recorded = placed(ranked, self._pod_spec, self._document).recorded
                except PodRefused:
                    break
                count += 1
                node = node.with_pod(replace(recorded, consumer=f"{recorded.consumer}-{count}"))
        except SearchEnded:
            return count, False
        return count, True

    def total(self) -> CapacityCount:
        """Return the count of all nodes together."""
        counted = self._counted
        taking = np.array([each.upper > 0 for each in counted], np.bool_)
        stranding = ~taking & self._offering
        classes: dict[str, Offered] = {}
        for asked in self._asked:
            if asked.resource_class not in classes:
                free = np.where(asked.wanted > 0, np.maximum(asked.free, 0) // asked.unit, 0)
                wanted, total = -(-int(asked.wanted.max()) // asked.unit), int(free.sum())
                stranded = int(free[stranding].sum())
                classes[asked.resource_class] = Offered(total, wanted, total // wanted, stranded)
        lower, upper = sum(each.lower for each in counted), sum(each.upper for each in counted)
        summary = summary_of(lower, upper, len(counted), int(taking.sum()), classes)
        if not counted:
            return summary
        names = Counter(self._asked[each].resource_class for each in np.argmin(self._times, axis=0).tolist())
        return replace(summary, first=names.most_common(1)[0][0])

    def hosts(self) -> Iterator[HostCount]:
        """Yield the count of each node."""
        for at, (node, lower, upper) in enumerate(self._counted):
            # The class that runs out first is first.
            classes: dict[str, Offered] = {}
            for number in np.argsort(self._times[:, at], kind="stable").tolist():
                asked = self._asked[number]
                if asked.wanted[at] > 0 and asked.resource_class not in classes:
                    free, wanted = asked.free_units(at), max(1, asked.wanted_units(at))
                    stranded = free if self._offering[at] and not upper else 0
                    classes[asked.resource_class] = Offered(free, wanted, free // wanted, stranded)
            like = self._like.get(node.name)
            called = None if like else node.provider_name
            first = next(iter(classes))
            yield HostRoom(node.root_uuid, lower, upper, first, classes, name=called, like=like)


def _asked(table: state_columns.NodeTable, request: PodRequest) -> Iterator[state_columns.AskedAmount]:
    """Yield the amounts that bound how many pods fit.

    The bound is exact on nodes where only amounts count. Where a pod gets CPUs of its own or is aligned to
    NUMA nodes, the exact number is found by placing one after another.
    """
    yield from host_amounts(table, request)
    if request is NO_REQUEST:
        return
    yield amplified_cpu(table, request)
    # CPUs for pods placed in turn: the sibling of a CPU of one pod may go to the next pod.
    asked = state_columns.own_cpus(table, request)
    spread = table.where_kind(
        lambda kind: state_columns.thinning(request, kind) is BindPolicy.SPREAD_BY_PCPUS
    )
    yield asked._replace(free=np.where(spread, table[state_columns.free_cpus(BindPolicy.NONE)], asked.free))
    aligned = state_columns.is_aligned(table, request)
    for asked in state_columns.on_all_numa_nodes(table, request):
        yield asked._replace(wanted=np.where(aligned, asked.wanted, 0))


def _times(asked: state_columns.AskedAmount) -> Amounts:
    times: Amounts = np.where(
        asked.wanted > 0, np.maximum(asked.free, 0) // np.maximum(asked.wanted, 1), _MOST
    )
    return np.minimum(times, _MOST)


def _is_plain(table: state_columns.NodeTable, request: PodRequest) -> Mask:
    """Return the mask of nodes where only amounts of the host as a whole decide."""
    if request is NO_REQUEST:
        return np.ones(len(table), np.bool_)
    if request.designated_status is not None or request.burst_limit is not None:
        return np.zeros(len(table), np.bool_)
    return table.where_kind(
        lambda kind: (
            not state_columns.binds(request, kind)
            and {kind.numa_policy, request.numa.policy} == {NumaPolicy.NONE}
            and kind.ratio <= FACE_VALUE
        )
    )


def _key(node: NodeInfo) -> Hashable:
    """Return a key that is equal for nodes on which equally many pods fit."""
    if node.reservations:
        return node
    left = tuple(node.left(place) for place in node.offers.inventories)
    totals = node.totals
    amounts = (node.free, totals.allocatable, totals.requested)
    return node.template, node.host, left, *(frozenset(each.items()) for each in amounts)
