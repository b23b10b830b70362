"""The room for more requests, for queries and for pods, as answers show it.

The room for pods is read from columns where these are exact, else by placing pods one after another on copies
of NodeInfo; nothing is written. Reservations keep what they hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import orjson

from placement.allocations.kubernetes_resources import resource_names
from placement.allocations.world import NOTHING_DIFFERENT, WorldRequest, not_imagined
from placement.engine.domain.errors import BadRequest
from placement.engine.domain.identifiers import normalize_uuid
from placement.engine.forest.arrays import Amounts, Mask, Rows
from placement.engine.numa.host import FACE_VALUE, BindPolicy, HostTotals, NumaPolicy, PodRefused
from placement.engine.search.budget import Budget, SearchEnded
from placement.engine.search.capacity.capacity import (
    Capacity,
    HostRoom,
    Offered,
    Summary,
    summary_of,
    together,
)
from placement.engine.search.query import ForestQuery
from placement.pods import statements
from placement.pods.cache import ClusterSnapshot, NodeLoader, canonical_report
from placement.pods.columns import (
    VAST,
    Asked,
    NodeTable,
    binds,
    free_cpus,
    is_aligned,
    offering,
    on_all_numa_nodes,
    own_cpus,
    thinning,
)
from placement.pods.cycle import Ranked, ShapeRanking
from placement.pods.host import HOST
from placement.pods.koordinator import annotations as keys
from placement.pods.model import NO_REQUEST, HostIdentity, PodRequest, PodSpec
from placement.pods.node_info import NodeInfo, NodeTemplate
from placement.pods.placing import best_place, placed
from placement.pods.ranking import RuledRanking
from placement.pods.reading import PodDocument, import_pod
from placement.pods.rules import RULES, SELECTION
from placement.pods.rules.amounts import amplified_cpu, host_amounts
from placement.pods.rules.between_pods import PlacedPods, keep_off
from placement.pods.rules.rule import Fit, PodShape, may_pass
from placement.pods.snapshot import NodeColumns
from placement.providers.view import View
from placement.storage.database import Database

CapacityCount = Summary[str]
"""The room that some hosts have together, with the classes by name."""
HostCount = HostRoom[str]
"""The room of one host, with the classes by name."""


@dataclass(frozen=True, slots=True)
class KindRoom:
    """The room for one kind: in all, and where asked for by cluster, aggregate of roots and host."""

    total: CapacityCount
    clusters: Sequence[CapacityCount] | None = None
    aggregates: Sequence[CapacityCount] | None = None
    hosts: Sequence[HostCount] | None = None
    resources: Mapping[str, str] | None = None
    """The names that Kubernetes has for classes; None for queries."""


# Capacity for a query, summed by cluster and aggregate.


# Members that one claim is tried with.
_MOST_MEMBERS = 1000


class QueryCapacity:
    """A count of one query, which may ask something else of core trees. Raises SearchEnded."""

    def __init__(self, view: View, queries: Sequence[ForestQuery], place: Callable[[int], int]) -> None:
        """Prepare to count; `place` returns how many of so many members one claim would place."""
        self._names, self._ids = view.names.classes, view.forest.providers.id
        self._place = place
        self._counted = [Capacity(view.forest, view.sharing, query) for query in queries]
        self._shares = any(each.shares for each in self._counted)

    def room(self) -> CapacityCount:
        """Return the room of all hosts together."""
        return self._named(self._everywhere)

    @cached_property
    def _everywhere(self) -> Summary[int]:
        summary = self._summed([each.everywhere for each in self._counted])
        if summary.lower < summary.upper <= _MOST_MEMBERS:
            # One claim for many members tries other choices beside the first, which may be worth more.
            summary = replace(summary, lower=max(summary.lower, self._place(summary.upper)))
        return summary

    def by_aggregate(self, groups: Mapping[str, int]) -> list[CapacityCount]:
        """Return the room of hosts with roots in each aggregate; empty ones are left out."""
        found = [each.by_aggregate(groups.values()) for each in self._counted]
        rooms = []
        for at, name in enumerate(groups):
            summary = self._summed([each[at] for each in found])
            if summary.hosts and summary.hosts >= self._everywhere.hosts:
                # One of all hosts takes no less than `_everywhere`.
                summary = replace(summary, lower=max(summary.lower, self._everywhere.lower))
            if summary.hosts:
                rooms.append(self._named(summary, name))
        return rooms

    def aggregates(self) -> set[int]:
        """Return the ids of the aggregates that hosts are in by their roots."""
        return set().union(*(each.aggregates() for each in self._counted))

    def hosts(self, called: Mapping[int, str], like: Mapping[int, str]) -> Iterator[HostCount]:
        """Yield each host's room; `called`: names by root id, `like`: models of imagined ones, by row."""
        for counted in self._counted:
            for host in counted.hosts():
                name = None if host.row in like else called.get(int(self._ids[host.row]))
                classes = {self._names[id_]: each for id_, each in host.classes.items()}
                first, model = self._names[host.runs_out_first], like.get(host.row)
                yield HostRoom(host.uuid, host.lower, host.upper, first, classes, host.row, name, model)

    def _summed(self, summaries: Sequence[Summary[int]]) -> Summary[int]:
        return summaries[0] if len(summaries) == 1 else together(summaries, shares=self._shares)

    def _named(self, summary: Summary[int], place: str = "") -> CapacityCount:
        classes = {self._names[id_]: each for id_, each in summary.classes.items()}
        counts = summary.lower, summary.upper, summary.hosts, summary.taking, summary.ideal
        return Summary(*counts, classes, place)


# The nodes of a cluster as pods would find them after a change.
_MOST_NODES = 10_000
_HOSTNAME = "kubernetes.io/hostname"


ImaginedCluster = tuple[ClusterSnapshot, Mapping[str, str]]
"""A cluster as it would be, and the uuid of the host that each new node is like, by its name."""


def imagined_cluster(
    database: Database, loader: NodeLoader, view: ClusterSnapshot, request: WorldRequest, budget: Budget
) -> ImaginedCluster:
    """Return the view after a change: with new nodes, which are empty, and without nodes that go.

    Nodes are named by node name, or by host name or uuid. Raises BadRequest naming the member,
    SearchTimeout, RequestTimeout.
    """
    if request == NOTHING_DIFFERENT:
        return view, {}
    if request.inventories:
        raise BadRequest("world.inventories: is not for pods; what nodes offer them follows from manifests")
    nodes = view.columns.nodes
    called = {node.root_uuid: node for node in nodes}
    called |= {node.provider_name: node for node in nodes} | {node.name: node for node in nodes}

    def known(name: str) -> NodeInfo | None:
        return called.get(name) or called.get(normalize_uuid(name) or "")

    new: list[NodeInfo] = []
    like: dict[str, str] = {}
    for at, each in enumerate(request.more):
        if len(new) + each.count > _MOST_NODES:
            raise BadRequest(f"world.more[{at}].count: at most {_MOST_NODES} nodes are imagined")
        node = known(each.like)
        template = None if node is None else _without_pods(database, loader, node)
        if node is None or template is None:
            raise BadRequest(
                f"world.more[{at}].like: there is no node {each.like!r} in cluster {view.facts.name}"
            )
        for number in range(len(new) + 1, len(new) + each.count + 1):
            try:
                budget.spend()
            except SearchEnded as error:
                raise not_imagined(error) from error
            copy = _empty(node, template, number)
            like[copy.name] = node.root_uuid
            new.append(copy)
    gone = {node.name for node in map(known, request.without) if node is not None}
    # The counts for placing pods are of the cluster as it is, so they are left out.
    changed = replace(view, columns=view.columns.updated(new, gone), placed=PlacedPods())
    return changed, like


def _without_pods(database: Database, loader: NodeLoader, node: NodeInfo) -> NodeTemplate | None:
    """Return the template of a node as if it reported no pods, or None if it is gone meanwhile.

    CPUs of reported pods are taken off what a node offers, so its manifests are read anew without them.
    """
    imported = node.template.imported
    if not (imported.kubelet_pods or imported.reported_pods):
        return node.template
    with database.read() as connection:
        found = statements.node_manifests(connection, [node.id]).get(node.id)
    if found is None:
        return None
    manifest, topology = found
    report = None if topology is None else orjson.loads(topology)
    if report:
        (report["metadata"].get("annotations") or {}).pop(keys.POD_CPU_ALLOCS, None)
    return loader.template(node.settings.profile, manifest, canonical_report(report))


def _empty(node: NodeInfo, template: NodeTemplate, number: int) -> NodeInfo:
    """Return an empty node like one, made from the template; each has a number of its own."""
    # No real node is called so, for names of nodes are DNS names, and ids of rows are positive.
    name, id_ = f"{node.name}~{number}", -number
    labels = node.attributes.labels
    if _HOSTNAME in labels:
        labels = {**labels, _HOSTNAME: name}
    identity = HostIdentity(node.identity.cluster, name, str(uuid4()))
    offered = template.offers.inventories.items()
    return replace(
        node,
        id=id_,
        name=name,
        root_id=id_,
        root_uuid=identity.uuid(),
        identity=identity,
        attributes=replace(node.attributes, name=name, labels=labels),
        template=template,
        pods=(),
        reservations=(),
        others={},
        beside={},
        unused={place.resource_class: each.capacity for place, each in offered if place.path == HOST},
        totals=HostTotals(node.totals.allocatable, {}),
        counted=None,
    )


# How many more pods of one shape each node has room for, as far as columns can tell.
#
# On nodes where only amounts count this is exact. Where a pod gets CPUs of its own or is aligned to NUMA
# nodes, it is an upper bound: what really fits is found by placing one after another.
_MOST = 2**40


def _asked(table: NodeTable, request: PodRequest) -> Iterator[Asked]:
    yield from host_amounts(table, request)
    if request is NO_REQUEST:
        return
    yield amplified_cpu(table, request)
    # CPUs for pods placed in turn: the sibling of a CPU of one pod may go to the next pod.
    asked = own_cpus(table, request)
    spread = table.where_kind(lambda kind: thinning(request, kind) is BindPolicy.SPREAD_BY_PCPUS)
    yield asked._replace(free=np.where(spread, table[free_cpus(BindPolicy.NONE)], asked.free))
    aligned = is_aligned(table, request)
    for asked in on_all_numa_nodes(table, request):
        yield asked._replace(wanted=np.where(aligned, asked.wanted, 0))


def _times(asked: Asked) -> Amounts:
    times: Amounts = np.where(
        asked.wanted > 0, np.maximum(asked.free, 0) // np.maximum(asked.wanted, 1), _MOST
    )
    return np.minimum(times, _MOST)


def _is_plain(table: NodeTable, request: PodRequest) -> Mask:
    """Return the mask of nodes where only amounts of the host as a whole decide."""
    if request is NO_REQUEST:
        return np.ones(len(table), np.bool_)
    if request.designated is not None or request.burst_limit is not None:
        return np.zeros(len(table), np.bool_)
    return table.where_kind(
        lambda kind: (
            not binds(request, kind)
            and {kind.numa_policy, request.numa.policy} == {NumaPolicy.NONE}
            and kind.ratio <= FACE_VALUE
        )
    )


class NodePods(NamedTuple):
    """A node, and how many more pods it has room for at least and at most."""

    node: NodeInfo
    lower: int
    upper: int


class PodCapacity:
    """A count of pods like one on the nodes of a cluster, as it is or as it would be.

    When the budget is used up, the count has what is known by then. Raises ManifestError.
    """

    def __init__(self, seen: ImaginedCluster, manifest: Mapping[str, Any], budget: Budget) -> None:
        view, self._like = seen
        cluster = view.facts.name
        self._document = PodDocument.unnamed(cluster, manifest)
        self._incoming: PodSpec = import_pod(self._document.manifest, view.facts.settings)
        self._budget = budget
        columns = view.columns
        shape = PodShape(self._incoming.request, self._incoming.selection, view.facts.settings)
        self._ranking = ShapeRanking(shape)
        # The nodes that a pod may go to by names, labels and taints, and how many more each takes at most.
        rows: Rows = np.flatnonzero(may_pass(SELECTION, columns, shape.incoming()))
        table = columns.table.rows(rows)
        self._asked = [asked for asked in _asked(table, shape.request) if (asked.wanted > 0).any()]
        counts = len(self._asked), len(rows)
        self._times = np.array([_times(asked) for asked in self._asked], np.int64).reshape(counts)
        # A node that has none of what is requested strands nothing.
        self._offering = offering(table, shape.request)
        names = resource_names(shape.request.amounts)
        self.resources = {each.resource_class: names[each.resource_class] for each in self._asked}
        """The names that Kubernetes has for the classes that are counted."""
        most = self._times.min(axis=0, initial=_MOST)
        most = np.where(may_pass(RULES, columns, shape.incoming())[rows], most, 0)
        exact = _is_plain(table, shape.request) & ~(table[VAST] > 0) | (most == 0)
        nodes = [columns.nodes[row] for row in rows.tolist()]
        self._most = list(zip(nodes, most.tolist(), exact.tolist(), strict=True))
        is_ruled = self._incoming.rules.refuse or keep_off(columns, self._incoming.rules, view.placed)
        self._counted = list(self._ruled(view, columns) if is_ruled else self._count())

    def _count(self) -> Iterator[NodePods]:
        # Like nodes share the count; no more than `most` are tried.
        known: dict[Hashable, tuple[int, int]] = {}
        for node, most, is_exact in self._most:
            if is_exact:
                yield NodePods(node, most, most)
                continue
            key = (_look(node), most)
            if key not in known:
                count, finished = self._placed(node, most)
                known[key] = (count, count if finished else max(most, count))
            yield NodePods(node, *known[key])

    def _ruled(self, view: ClusterSnapshot, columns: NodeColumns) -> Iterator[NodePods]:
        """Yield the counts by placing pods in turn as the scheduler would, for rules about other pods."""
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
                    recorded = placed(ranked, self._incoming, self._document).recorded
                except PodRefused:
                    break
                count += 1
                node = node.with_pod(replace(recorded, consumer=f"{recorded.consumer}-{count}"))
        except SearchEnded:
            return count, False
        return count, True

    def room(self) -> CapacityCount:
        """Return the room of all nodes together."""
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
        room = summary_of(lower, upper, len(counted), int(taking.sum()), classes)
        if not counted:
            return room
        names = Counter(self._asked[each].resource_class for each in np.argmin(self._times, axis=0).tolist())
        return replace(room, first=names.most_common(1)[0][0])

    def hosts(self) -> Iterator[HostCount]:
        """Yield the room of each node."""
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


def _look(node: NodeInfo) -> Hashable:
    """Return all that decides how many pods fit on a node."""
    if node.reservations:
        return node
    left = tuple(node.left(place) for place in node.offers.inventories)
    totals = node.totals
    amounts = (node.free, totals.allocatable, totals.requested)
    return node.template, node.host, left, *(frozenset(each.items()) for each in amounts)
