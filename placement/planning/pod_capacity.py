"""The capacity for a pod: from columns where these are exact, else by placing pods one after another.

Pods are placed on copies of NodeInfo; nothing is written. Reservations keep what they hold.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import numpy as np
import orjson

from placement.allocations.world import NOTHING_DIFFERENT, WorldRequest, ended
from placement.engine.domain.errors import BadRequest
from placement.engine.domain.identifiers import normalize_uuid
from placement.engine.forest.arrays import Amounts, Mask, Rows
from placement.engine.numa.demand import BindPolicy, NumaPolicy, PodRefused
from placement.engine.numa.host import FACE_VALUE, HostTotals
from placement.engine.search.budget import Budget, SearchEnded
from placement.planning.room import CapacityCount, Classes, HostRoom
from placement.pods.cache import ClusterSnapshot
from placement.pods.columns import (
    VAST,
    Asked,
    NodeTable,
    binds,
    free_cpus,
    is_aligned,
    on_all_numa_nodes,
    own_cpus,
    thinning,
)
from placement.pods.cycle import Ranked, ShapeRanking
from placement.pods.documents import PodDocument
from placement.pods.host import HOST
from placement.pods.koordinator import annotations as keys
from placement.pods.model import HostIdentity, PodRequest, PodSpec
from placement.pods.node_info import NodeInfo, NodeTemplate
from placement.pods.node_loading import NodeLoader
from placement.pods.placing import best_place, placed
from placement.pods.ranking import RuledRanking
from placement.pods.reading import import_pod
from placement.pods.rules import RULES, SELECTION
from placement.pods.rules.amounts import amplified_cpu, host_amounts
from placement.pods.rules.between_pods import PlacedPods, keep_off
from placement.pods.rules.rule import Fit, PodShape, may_pass
from placement.pods.snapshot import NodeColumns
from placement.pods.statements import nodes as node_rows
from placement.storage.database import Database

# The nodes of a cluster as pods would find them after a change.


_MOST_NODES = 10_000
_HOSTNAME = "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True)
class ImaginedCluster:
    """A cluster as it would be; `like[name]` is the uuid of the host that a new node is like."""

    view: ClusterSnapshot
    like: Mapping[str, str]


def imagined_cluster(
    database: Database, loader: NodeLoader, view: ClusterSnapshot, request: WorldRequest, budget: Budget
) -> ImaginedCluster:
    """Return the view after a change: with new nodes, which are empty, and without nodes that go.

    Nodes are named by node name, or by host name or uuid. Raises BadRequest naming the member,
    SearchTimeout, RequestTimeout.
    """
    if request == NOTHING_DIFFERENT:
        return ImaginedCluster(view, {})
    if request.inventories:
        raise BadRequest("world.inventories: is not for pods; what nodes offer them follows from manifests")
    try:
        return _imagined(database, loader, view, request, budget)
    except SearchEnded as error:
        raise ended(error) from error


def _imagined(
    database: Database, loader: NodeLoader, view: ClusterSnapshot, request: WorldRequest, budget: Budget
) -> ImaginedCluster:
    called = _called(view)
    new: list[NodeInfo] = []
    like: dict[str, str] = {}
    for at, each in enumerate(request.more):
        if len(new) + each.count > _MOST_NODES:
            raise BadRequest(f"world.more[{at}].count: at most {_MOST_NODES} nodes are imagined")
        node = _found(called, each.like)
        template = None if node is None else _without_pods(database, loader, node)
        if node is None or template is None:
            raise BadRequest(
                f"world.more[{at}].like: there is no node {each.like!r} in cluster {view.facts.name}"
            )
        copies = []
        for number in range(1, each.count + 1):
            budget.spend()
            copies.append(_empty(node, template, len(new) + number))
        like |= {copy.name: node.root_uuid for copy in copies}
        new += copies
    gone = {node.name for node in (_found(called, name) for name in request.without) if node is not None}
    # The counts for placing pods are of the cluster as it is, so they are left out.
    changed = replace(view, columns=view.columns.updated(new, gone), placed=PlacedPods())
    return ImaginedCluster(changed, like)


def _called(view: ClusterSnapshot) -> dict[str, NodeInfo]:
    """Return the nodes by each of their names: node name, host name, host uuid."""
    nodes = view.columns.nodes
    by_uuid = {node.root_uuid: node for node in nodes}
    return by_uuid | {node.provider_name: node for node in nodes} | {node.name: node for node in nodes}


def _found(called: Mapping[str, NodeInfo], name: str) -> NodeInfo | None:
    return called.get(name) or called.get(normalize_uuid(name) or "")


def _without_pods(database: Database, loader: NodeLoader, node: NodeInfo) -> NodeTemplate | None:
    """Return the template of a node as if it reported no pods, or None if it is gone meanwhile.

    CPUs of reported pods are taken off what a node offers, so its manifests are read anew without them.
    """
    imported = node.template.imported
    if not (imported.kubelet_pods or imported.reported_pods):
        return node.template
    with database.read() as connection:
        found = node_rows.manifests(connection, [node.id]).get(node.id)
    if found is None:
        return None
    manifest, topology = found
    report = None if topology is None else orjson.loads(topology)
    return loader.template(node.settings.profile, manifest, report and _without_reported_pods(report))


def _without_reported_pods(report: Mapping[str, Any]) -> dict[str, Any]:
    metadata = report["metadata"]
    annotations = {**(metadata.get("annotations") or {})}
    annotations.pop(keys.POD_CPU_ALLOCS, None)
    return {**report, "metadata": {**metadata, "annotations": annotations}}


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
        unused={place.resource_class: each.capacity for place, each in offered if place.path == HOST},
        totals=HostTotals(node.totals.allocatable, {}),
        counted=None,
    )


# How many more pods of one shape each node has room for, as far as columns can tell.
#
# On nodes where only amounts count this is exact. Where a pod gets CPUs of its own or is aligned to NUMA
# nodes, it is an upper bound: what really fits is found by placing one after another.


_MOST = 2**40


@dataclass(frozen=True, slots=True)
class NodeAmount:
    """An amount of a class for pods on a node: `free`, and `wanted` by each pod, in the class's units."""

    resource_class: str
    free: int
    wanted: int


class PodColumns:
    """The nodes that a pod may go to by names, labels and taints, and how many more pods each could take."""

    def __init__(self, columns: NodeColumns, shape: PodShape) -> None:
        self.rows: Rows = np.flatnonzero(may_pass(SELECTION, columns, shape.incoming()))
        table = columns.table.rows(self.rows)
        request = shape.request
        self._asked = [asked for asked in _asked(table, request) if (asked.wanted > 0).any()]
        fits = may_pass(RULES, columns, shape.incoming())[self.rows]
        self._most = np.full(len(self.rows), _MOST, np.int64)
        for asked in self._asked:
            np.minimum(self._most, _times(asked), out=self._most)
        self._most = np.where(fits, self._most, 0)
        self._exact = _is_plain(table, request) & ~(table[VAST] > 0) | (self._most == 0)

    def counts(self) -> Sequence[tuple[int, bool]]:
        """Return for each row how many pods fit at most, and whether that is exact."""
        return list(zip(self._most.tolist(), self._exact.tolist(), strict=True))

    def sums(self, taking: Sequence[bool]) -> dict[str, tuple[NodeAmount, int]]:
        """Return by class what is free in all, the most wanted, and what is free on rows that take no pod."""
        refusing = ~np.array(taking, np.bool_)
        found: dict[str, tuple[NodeAmount, int]] = {}
        for asked in self._asked:
            concerned = asked.wanted > 0
            if concerned.any() and asked.resource_class not in found:
                free = np.where(concerned, np.maximum(asked.free, 0) // asked.unit, 0)
                wanted = -(-int(asked.wanted.max()) // asked.unit)
                amount = NodeAmount(asked.resource_class, int(free.sum()), wanted)
                found[asked.resource_class] = (amount, int(free[refusing].sum()))
        return found

    def amounts(self, at: int) -> Iterator[NodeAmount]:
        """Yield what the node in row `at` has of each class; the class that runs out first is first."""
        order = sorted(self._asked, key=lambda asked: int(_times(asked)[at]))
        shown = set()
        for asked in order:
            if asked.wanted[at] > 0 and asked.resource_class not in shown:
                shown.add(asked.resource_class)
                yield NodeAmount(asked.resource_class, asked.free_units(at), max(1, asked.wanted_units(at)))


def _asked(table: NodeTable, request: PodRequest | None) -> Iterator[Asked]:
    yield from host_amounts(table, request)
    if request is None:
        return
    yield amplified_cpu(table, request)
    yield _cpus_one_after_another(table, request)
    aligned = is_aligned(table, request)
    for asked in on_all_numa_nodes(table, request):
        yield asked._replace(wanted=np.where(aligned, asked.wanted, 0))


def _cpus_one_after_another(table: NodeTable, request: PodRequest) -> Asked:
    """Return the CPUs for pods placed in turn: the sibling of a CPU of one pod may go to the next pod."""
    asked = own_cpus(table, request)
    spread = table.where_kind(lambda kind: thinning(request, kind) is BindPolicy.SPREAD_BY_PCPUS)
    return asked._replace(free=np.where(spread, table[free_cpus(BindPolicy.NONE)], asked.free))


def _times(asked: Asked) -> Amounts:
    times: Amounts = np.where(
        asked.wanted > 0, np.maximum(asked.free, 0) // np.maximum(asked.wanted, 1), _MOST
    )
    return np.minimum(times, _MOST)


def _is_plain(table: NodeTable, request: PodRequest | None) -> Mask:
    """Return the mask of nodes where only amounts of the host as a whole decide."""
    if request is None:
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


@dataclass(frozen=True, slots=True)
class _NodeCounts:
    node: NodeInfo
    lower: int
    upper: int


class PodCapacity:
    """A count of pods like one on the nodes of a cluster, as it is or as it would be.

    When the budget is used up, the count has what is known by then. Raises ManifestError.
    """

    def __init__(self, seen: ImaginedCluster, manifest: Mapping[str, Any], budget: Budget) -> None:
        view, self._like = seen.view, seen.like
        cluster = view.facts.name
        self._document = PodDocument.unnamed(cluster, manifest)
        self._incoming: PodSpec = import_pod(self._document.manifest, view.facts.settings)
        self._budget = budget
        self._known: dict[Hashable, tuple[int, int]] = {}
        columns = view.columns
        shape = PodShape(self._incoming.request, self._incoming.selection, view.facts.settings)
        self._ranking = ShapeRanking(shape)
        self._columns = PodColumns(columns, shape)
        is_ruled = self._incoming.rules.refuse or keep_off(columns, self._incoming.rules, view.placed)
        self._counted = list(self._ruled(view, columns) if is_ruled else self._count(columns))

    def _count(self, columns: NodeColumns) -> Iterator[_NodeCounts]:
        for row, (most, exact) in zip(self._columns.rows.tolist(), self._columns.counts(), strict=True):
            node = columns.nodes[row]
            lower = upper = most
            if not exact:
                lower, upper = self._tried(node, most)
            yield _NodeCounts(node, lower, upper)

    def _ruled(self, view: ClusterSnapshot, columns: NodeColumns) -> Iterator[_NodeCounts]:
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
        for row, (most, _) in zip(self._columns.rows.tolist(), self._columns.counts(), strict=True):
            node = columns.nodes[row]
            yield _NodeCounts(node, counts[node.name], counts[node.name] if finished else most)

    def _tried(self, node: NodeInfo, most: int) -> tuple[int, int]:
        """Return how many pods fit on a node in turn, at least and at most; like nodes share the count."""
        # No more than `most` are tried.
        key = (_look(node), most)
        if key not in self._known:
            count, finished = self._placed(node, most)
            self._known[key] = (count, count if finished else max(most, count))
        return self._known[key]

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
        sums = self._columns.sums([each.upper > 0 for each in counted])
        classes = {
            name: Classes(amount.free, amount.wanted, stranded) for name, (amount, stranded) in sums.items()
        }
        lower = sum(each.lower for each in counted)
        ideal = min((each.free // each.wanted for each in classes.values()), default=0)
        first = min(classes, key=lambda name: classes[name].free // classes[name].wanted, default=None)
        return CapacityCount(
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
        """Yield the room of each node."""
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
    """Return all that decides how many pods fit on a node."""
    if node.reservations:
        return node
    left = tuple(node.left(place) for place in node.offers.inventories)
    totals = node.totals
    amounts = (node.free, totals.allocatable, totals.requested)
    return node.template, node.host, left, *(frozenset(each.items()) for each in amounts)
