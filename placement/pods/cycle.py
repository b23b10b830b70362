"""The scheduling cycle of a pod: snapshot -> filter -> score -> the nodes one by one, best first.

Columns say for all nodes at once where a pod may fit and how well at most (`rules`, `column_score`).
Nodes are then looked at in that order, as long as something better may come. The results are kept for pods
of one shape, so that an unchanged node answers as before.
"""

from __future__ import annotations

import heapq
import re
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from placement.allocations.kubernetes_resources import CORE_CLASS, host_class, resource_names
from placement.engine.domain.explanation import (
    MOST_MISSES,
    Condition,
    ConditionKind,
    CountedUnit,
    Explanation,
    Miss,
    Obstacle,
    Reason,
    Shortage,
    Stage,
    first_empty,
)
from placement.engine.domain.units import of_resource
from placement.engine.forest.arrays import Amounts, Mask, Rows, Shares
from placement.engine.numa.allocator import NO_RESERVATIONS, PREFIX, HostReservations, Reservation
from placement.engine.numa.cpus import format_cpu_list, mask_of
from placement.engine.numa.host import BindPolicy, Refusal
from placement.engine.scoring.rule import BEST
from placement.pods.column_score import highest_scores, least_missed
from placement.pods.columns import Asked, kind_of, offering, stays_on_one, thinning
from placement.pods.host import counted_holding
from placement.pods.manifests.selection import untolerated
from placement.pods.model import RecordedPod
from placement.pods.node_info import NodeInfo
from placement.pods.rules import HOST, RULES, SELECTION
from placement.pods.rules.amounts import lacking
from placement.pods.rules.numa import answer_of
from placement.pods.rules.rule import Fit, IncomingPod, PodShape, Rule, concerned, may_pass
from placement.pods.snapshot import NodeColumns, NodeMarks

# What a node answers to a pod, rule by rule.


class FilterResult(NamedTuple):
    """A pod fits on a host with a score of 0 to 100, or it is refused.

    `missed`: how much of what the pod prefers it does not get there, 0 if nothing.
    """

    answer: Fit | Refusal
    score: int = 0
    missed: int = 0


def judged(rules: Iterable[Rule], node: NodeInfo, pod: IncomingPod) -> FilterResult:
    """Return the first refusal by rules that concern the pod, or how well the node suits it."""
    for rule in rules:
        refusal = rule.refuse(node, pod)
        if refusal is not None:
            return FilterResult(refusal)
    found = pod.answers.get(node.host) or answer_of(node.host, pod)
    return FilterResult(found.answer, found.score(node.totals), found.missed)


# How pods of one shape stand with the reservations of nodes, remembered until a node changes.


_LAST = 2**63


class Kept(NamedTuple):
    """A reservation on a node: all that it was given, and what it has left."""

    held: RecordedPod
    left: RecordedPod

    @property
    def is_restricted(self) -> bool:
        """Return whether owners get nothing beyond what is left of the reservation."""
        return self.held.keeps is not None and self.held.keeps.restricted


class ReservationMatch(NamedTuple):
    """A result of a look at a node with reservations that a pod may use.

    `kept` is the reservation that it would use, if it fits out of one. Of several such nodes, the one with
    the lowest `preference` is better: by the order that reservations name, then by which gets fullest.
    """

    result: FilterResult
    reservations: HostReservations = NO_RESERVATIONS
    kept: Kept | None = None
    preference: tuple[int, int] = (0, 0)


class ReservationLooks:
    """A cache of looks at nodes with reservations, for pods of one shape.

    Threads share it: all threads would note equal results of a node, and each note is a single step.
    """

    def __init__(self, shape: PodShape) -> None:
        self._request = shape.request
        self._pod = shape.incoming()
        self._selecting, self._of_host = concerned(SELECTION, self._pod), concerned(HOST, self._pod)
        self.looks: dict[int, dict[tuple[frozenset[str], bool], ReservationMatch]] = {}
        self._opened: tuple[NodeColumns, NodeColumns] | None = None

    def look(self, node: NodeInfo, matched: Sequence[Kept], *, required: bool) -> ReservationMatch:
        """Return how a pod stands with a node if it may use the `matched` reservations there.

        `required`: the pod must use one. It can use a reservation if the host as a whole has enough with it.
        """
        known = self.looks.setdefault(node.serial, {})
        key = frozenset(kept.held.consumer for kept in matched), required
        found = known.get(key)
        if found is None:
            found = known[key] = self._looked(node, sorted(matched, key=self._preference), required)
        return found

    def opened(self, columns: NodeColumns) -> NodeColumns:
        """Return the nodes as if nothing were reserved; only nodes changed since the last call are made."""
        known, nodes = self._opened, columns.nodes
        if known is not None and known[0].order is known[1].order is columns.order:
            changed = (nodes[row] for row in columns.nodes.changed_since(known[0].nodes.marks))
            made = known[1].updated(node.opened(node.reserving) for node in changed)
        else:
            made = columns.updated(node.opened(node.reserving) for node in nodes if node.reservations)
        # Being asked about a few nodes is no reason to forget the others.
        if known is None or 2 * len(nodes) > len(known[0].nodes):
            self._opened = columns, made
        return made

    def _looked(self, node: NodeInfo, matched: Sequence[Kept], required: bool) -> ReservationMatch:
        for rule in self._selecting:
            refusal = rule.refuse(node, self._pod)
            if refusal is not None:
                return ReservationMatch(FilterResult(refusal))
        lacks = [self._lacks(node, kept) for kept in matched]
        usable = [kept for kept, lack in zip(matched, lacks, strict=True) if lack is None]
        if usable:
            return self._judged(node, usable, required)
        found = [lack for lack in lacks if lack is not None]
        reasons = dict.fromkeys(f"{PREFIX}{reason}" for lack in found for reason in lack.reasons)
        return ReservationMatch(FilterResult(replace(found[0], reasons=tuple(reasons))))

    def _lacks(self, node: NodeInfo, kept: Kept) -> Refusal | None:
        amounts, bound = self._request.amounts, node.host.bind.binds(self._request)
        short = [
            name
            for name in sorted(amounts.keys() & kept.held.requests.keys())
            if kept.is_restricted and amounts[name] > kept.left.requests.get(name, 0)
            # CPUs of a pod's own are looked for one by one.
            if not (bound and name == "cpu")
        ]
        if short:
            obstacle = Obstacle(ConditionKind.AMOUNT, host_class(short[0]).name)
            return Refusal(tuple(f"Insufficient {name}" for name in short), obstacle=obstacle)
        opened = node.opened(frozenset({kept.held.consumer}))
        return lacking(opened.offers, opened.free, opened.left, amounts, bound=bound)

    def _judged(self, node: NodeInfo, usable: Sequence[Kept], required: bool) -> ReservationMatch:
        """Judge a pod on what a reservation has left, then on the rest of the node if that is allowed."""
        seen = as_seen(node, usable)
        alone = tuple(replace(each, restricted=True) for each in seen)
        for reservations in (
            HostReservations(alone, required=True),
            HostReservations(seen, required=required),
        ):
            pod = replace(self._pod, reservations=reservations, answers={})
            result = judged(self._of_host, node, pod)
            if not isinstance(result.answer, Refusal) and result.answer.nominated is not None:
                kept = usable[result.answer.nominated]
                return ReservationMatch(result, reservations, kept, self._preference(kept))
        return ReservationMatch(result, reservations)

    def _preference(self, kept: Kept) -> tuple[int, int]:
        """Return the order that a reservation names, and how full it would be, on average of its resources.

        That is 0 to 100, counted downwards; an exceeded resource counts 0.
        """
        assert kept.held.keeps is not None
        held = kept.held.requests
        asked = self._request.amounts
        shares = []
        for resource in asked.keys() & held.keys():
            used = held[resource] - kept.left.requests.get(resource, 0) + asked[resource]
            shares.append(100 * used // held[resource] if used <= held[resource] else 0)
        return kept.held.keeps.order or _LAST, -(sum(shares) // max(1, len(shares)))


def kept_on(node: NodeInfo) -> Iterator[Kept]:
    """Yield the reservations of a node, in their order."""
    yield from map(Kept, node.reservations, node.reservations_left)


def as_seen(node: NodeInfo, kept: Iterable[Kept]) -> tuple[Reservation, ...]:
    """Return reservations of a node as the NUMA allocator sees them."""
    return tuple(
        Reservation(
            cpus=mask_of(each.left.holding.cpus),
            remaining=counted_holding(each.left.holding, node.offers).amounts,
            total=counted_holding(each.held.holding, node.offers).amounts,
            restricted=each.is_restricted,
            milli_cpus=each.left.requests.get("cpu", 0),
        )
        for each in kept
    )


_SHAPES_KEPT = 32
_CHANGES_KEPT = 20
# Up to so many nodes are looked at one by one, which is faster than columns.
_FEW = 4
# Most walks end early, so this many nodes are converted at a time.
_AT_ONCE = 64


class Ranked(NamedTuple):
    """A node on which a pod fits, and how well, 0 to 100; `missed`: what the pod prefers and does not get.

    `reservations` are the reservations of the node that the pod may use; `used` is the one that it uses.
    `opened` is the node as if nothing that the pod may have were reserved there.
    """

    node: NodeInfo
    missed: int
    score: int
    fit: Fit
    reservations: HostReservations = NO_RESERVATIONS
    used: RecordedPod | None = None
    opened: NodeInfo | None = None


@dataclass(frozen=True, slots=True)
class Estimates:
    """A set of estimates by row of nodes: whether a pod may fit, what it misses there at least of what it
    prefers, and its score at most.
    """

    order: object
    marks: NodeMarks
    fits: Mask
    missed: Amounts
    highest: Amounts

    def with_rows(self, columns: NodeColumns, rows: Rows, part: Estimates) -> Estimates:
        """Return the estimates for columns in which these rows changed; `part` are the estimates of these."""
        fits, missed, highest = self.fits.copy(), self.missed.copy(), self.highest.copy()
        fits[rows], missed[rows], highest[rows] = part.fits, part.missed, part.highest
        return Estimates(columns.order, columns.nodes.marks, fits, missed, highest)


class Evaluation(NamedTuple):
    """A certain result for nodes: how a pod stands with each, and why it does not fit on some, by name."""

    standings: Estimates
    refusals: Mapping[str, Refusal]


class ShapeRanking:
    """A ranking of the nodes of a cluster for pods of one shape."""

    def __init__(self, shape: PodShape) -> None:
        self.shape = shape
        self._estimates: Estimates | None = None
        self._looked: Evaluation | None = None
        self._pod = shape.incoming()
        self._rules = concerned(RULES, self._pod)
        self._highest = shape.settings.host_scoring.max_score
        self.on_reservations = ReservationLooks(shape)
        self._results: dict[int, FilterResult] = {}

    def best_first(self, columns: NodeColumns, allowed: Mask | None = None) -> Iterator[Ranked]:
        """Yield the nodes on which the pod fits, looked at one by one; only allowed rows, if they are given.

        The order is by what the pod misses of what it prefers, then by descending score, then by name.
        """
        estimates = self._estimated(columns)
        rows = np.flatnonzero(estimates.fits if allowed is None else estimates.fits & allowed)
        missed, scores = estimates.missed[rows], estimates.highest[rows]
        # Small numbers sort fastest in a small type; sums of several strategies may be large.
        kind = np.int16 if self._highest <= BEST else np.int64
        # The order that the nodes would have if the estimates were exact.
        order = np.argsort((missed * (self._highest + 1) - scores).astype(kind), kind="stable")
        found: list[tuple[int, int, int, Ranked]] = []
        for start in range(0, len(order), _AT_ONCE):
            some = order[start : start + _AT_ONCE]
            estimated = zip(rows[some].tolist(), missed[some].tolist(), scores[some].tolist(), strict=True)
            for row, least, highest in estimated:
                # A node that was found is next if no later node can be better.
                while found and found[0] < (least, -highest, row):
                    yield heapq.heappop(found)[3]
                node = columns.nodes[row]
                result = self.look(node)
                if isinstance(result.answer, Fit):
                    ranked = Ranked(node, result.missed, result.score, result.answer)
                    heapq.heappush(found, (result.missed, -result.score, row, ranked))
        while found:
            yield heapq.heappop(found)[3]

    def refusals(self, columns: NodeColumns) -> Mapping[str, Refusal]:
        """Return why the pod does not fit on nodes, by name; nodes on which it fits are left out."""
        return self._all_looked(columns).refusals

    def standings(self, columns: NodeColumns) -> Estimates:
        """Return on which nodes the pod fits, what it misses there and its scores, with nothing estimated."""
        return self._all_looked(columns).standings

    def look(self, node: NodeInfo) -> FilterResult:
        """Return how the pod stands with one node, for certain."""
        result = self._results.get(node.serial)
        if result is None:
            result = self._results[node.serial] = judged(self._rules, node, self._pod)
        return result

    def ranked_on(self, node: NodeInfo) -> Ranked:
        """Return how well the pod fits on a node; the caller knows that it fits."""
        result = self.look(node)
        assert isinstance(result.answer, Fit)
        return Ranked(node, result.missed, result.score, result.answer)

    def trim(self, columns: NodeColumns) -> None:
        """Forget the former states of nodes of the cluster, once there are many."""
        count = len(columns.nodes)
        most = count + count // 4 + _CHANGES_KEPT
        if len(looks := self.on_reservations.looks) > most:
            kept = {node.serial: looks[node.serial] for node in columns.nodes if node.serial in looks}
            self.on_reservations.looks = kept
        if len(self._results) > most:
            known = self._results
            if self.shape.request.ignores_reservations:
                seen: Iterable[NodeInfo] = (node.opened(node.reserving) for node in columns.nodes)
            else:
                seen = columns.nodes
            self._results = {node.serial: known[node.serial] for node in seen if node.serial in known}
            self._pod = self.shape.incoming()

    def _all_looked(self, columns: NodeColumns) -> Evaluation:
        """Return the results of looks at all these nodes.

        Only nodes that changed since the last call are looked at; each result is for the node in `columns`.
        """
        known = self._looked
        if known is not None and known.standings.order is columns.order:
            if known.standings.marks is columns.nodes.marks:
                return known
            rows = np.array(columns.nodes.changed_since(known.standings.marks), np.intp)
            part, refusals = self._looked_at(columns, rows)
            kept = {**known.refusals}
            for row in rows:
                kept.pop(columns.nodes[row].name, None)
            made = Evaluation(known.standings.with_rows(columns, rows, part), kept | refusals)
        else:
            made = Evaluation(*self._looked_at(columns, np.arange(len(columns.nodes))))
        if known is None or 2 * len(made.standings.fits) > len(known.standings.fits):
            self._looked = made
        return made

    def _looked_at(self, columns: NodeColumns, rows: Rows) -> tuple[Estimates, dict[str, Refusal]]:
        """Return the results of looks at some rows, and why the pod does not fit there, by name."""
        figures, refusals = list[tuple[bool, int, int]](), dict[str, Refusal]()
        for node in columns.nodes.at(rows.tolist()):
            result = self._results.get(node.serial) or self.look(node)
            fits = not isinstance(result.answer, Refusal)
            if isinstance(result.answer, Refusal):
                refusals[node.name] = result.answer
            figures.append((fits, result.missed, result.score))
        fitting, missed, scores = np.array(figures, np.int64).reshape(-1, 3).T
        marks = columns.nodes.marks
        return Estimates(columns.order, marks, fitting.astype(np.bool_), missed, scores), refusals

    def _estimated(self, columns: NodeColumns) -> Estimates:
        """Return the estimates for these nodes; only nodes that changed since the last call are estimated."""
        known = self._estimates
        if known is None or known.order is not columns.order:
            made = self._made(columns)
        else:
            changed = np.array(columns.nodes.changed_since(known.marks), np.intp)
            made = known.with_rows(columns, changed, self._made(columns, changed))
        # Being asked about a few nodes is no reason to forget the others.
        if known is None or 2 * len(made.fits) > len(known.fits):
            self._estimates = made
        return made

    def _made(self, columns: NodeColumns, some: Rows | None = None) -> Estimates:
        """Return the estimates for all rows, or some; a few are looked at, which is faster than columns."""
        count = len(columns.nodes) if some is None else len(some)
        if count <= _FEW:
            return self._looked_at(columns, np.arange(count) if some is None else some)[0]
        if some is not None:
            columns = columns.rows(some)
        shape = self.shape
        fits = may_pass(self._rules, columns, self._pod)
        rows = np.flatnonzero(fits)
        table = columns.table.rows(rows)
        missed, highest = np.zeros((2, count), np.int64)
        missed[rows] = least_missed(table, shape.request, shape.settings)
        highest[rows] = highest_scores(table, shape.request, shape.settings.host_scoring)
        return Estimates(columns.order, columns.nodes.marks, fits, missed, highest)


class ShapeRankings:
    """A cache of the rankings of the shapes that were asked for last, for each cluster by itself.

    Threads share them: all threads would note equal results of a node, and each note is a single step.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[int, PodShape], ShapeRanking] = {}
        self._lock = threading.Lock()

    def of(self, cluster_id: int, shape: PodShape, columns: NodeColumns) -> ShapeRanking:
        """Return the ranking for pods of a shape; `columns` are the whole cluster, asked about or not."""
        key = (cluster_id, shape)
        with self._lock:
            ranking = self._kept.pop(key, None) or ShapeRanking(shape)
            self._kept[key] = ranking
            if len(self._kept) > _SHAPES_KEPT:
                del self._kept[next(iter(self._kept))]
        ranking.trim(columns)
        return ranking


# Why a pod fits nowhere: the stages of the filter in order, and the nearest nodes.


# Reasons in plain words.


_UNALIGNED = "Unaligned NUMA Hint cause "
_HINT = re.compile(r"([^ ,]+) prefer \[[01 ]*\] among \[([01 ]*)\]")


def in_plain_words(reason: str) -> str:
    """Return the reason, followed by what it means if it needs that."""
    if not reason.startswith(_UNALIGNED):
        return reason
    places = "; ".join(f"{resource} fits on {_places(masks)}" for resource, masks in _HINT.findall(reason))
    return f"{reason} ({places}; the NUMA policy of the pod or of the node admits none of that)"


def _places(masks: str) -> str:
    """Return words for sets of NUMA nodes, given as binary numbers with NUMA node 0 as their last digit."""
    sets = [[numa for numa, digit in enumerate(reversed(mask)) if digit == "1"] for mask in masks.split()]
    return " or ".join(f"NUMA node{'s' * (len(ids) > 1)} {'+'.join(map(str, ids))}" for ids in sets)


_AS_IMPORTED = Obstacle(ConditionKind.INVENTORIES)
"""The obstacle of nodes that the write refused, not a rule."""


def explain_pod(shape: PodShape, columns: NodeColumns, refusals: Mapping[str, Refusal]) -> Explanation:
    """Explain the refusals of a pod by some of these nodes, by name; the pod fits on the others.

    Each node counts as refused at the obstacle of its refusal, and as passing the stages before.
    """
    failed: dict[Obstacle, list[int]] = {}
    for row, name in sorted((columns.row_of(name), name) for name in refusals):
        failed.setdefault(refusals[name].obstacle, []).append(row)
    pod = shape.incoming()
    stated = {obstacle: each for rule in RULES for obstacle, each in rule.conditions(pod, failed)}
    if _AS_IMPORTED in failed:
        stated[_AS_IMPORTED] = Condition(_AS_IMPORTED.kind, "inventories as they were imported")
    stages, came = list[Stage](), len(columns.nodes)
    for obstacle, condition in stated.items():
        passed = came - len(failed.get(obstacle, ()))
        stages.append(Stage(condition, CountedUnit.NODES, came, passed, passed))
        came = passed
    explained = tuple(stages)
    empty = first_empty(explained)
    if empty is None:
        return Explanation(explained)
    obstacle, condition = list(stated.items())[empty]
    misses, names = list[Miss](), dict[str, str]()
    for node, shortages in _nearest(pod, columns, failed.get(obstacle, []), obstacle):
        unwanted = condition.forbidden
        if condition.kind is ConditionKind.TAINTS:
            tolerated = shape.selection.tolerations
            unwanted = tuple(map(str, untolerated(node.attributes.taints, tolerated)))
        lacking = tuple(name for any_of in condition.required for name in any_of)
        words = (*map(in_plain_words, refusals[node.name].reasons), *_kept_on(node))
        misses.append(Miss(node.root_uuid, shortages, lacking=lacking, unwanted=unwanted, words=words))
        names[node.root_uuid] = node.provider_name
    resources = resource_names(shape.request.amounts)
    return Explanation(explained, tuple(misses), names=names, resources=resources)


def _nearest(
    pod: IncomingPod, columns: NodeColumns, rows: Sequence[int], obstacle: Obstacle
) -> Iterator[tuple[NodeInfo, tuple[Shortage, ...]]]:
    """Yield the nodes in these rows that lack least, and the amounts that they lack."""
    table = columns.table.rows(np.array(rows, np.intp))
    asked = [each for rule in RULES for each in rule.asked(obstacle.kind, table, pod)]
    gaps: Shares = np.sum([each.gap for each in asked], axis=0) if asked else np.zeros(len(rows))
    # A node that has none of a class is farther than one where all of it is in use.
    lacking = ~offering(table, pod.request) if asked else np.zeros(len(rows), np.bool_)
    on_one = stays_on_one(table, pod.request) & (obstacle.kind is ConditionKind.NUMA)
    for at in np.lexsort((gaps, lacking))[:MOST_MISSES].tolist():
        node, shortages = columns.nodes[rows[at]], list[Shortage]()
        bind = thinning(pod.request, kind_of(node.host))
        for each in asked:
            amounts = wanted, free = each.wanted_units(at), each.free_units(at)
            if wanted > free:
                name, counted = each.resource_class, _counted(each, free, bind, on_one=bool(on_one[at]))
                missing = Shortage(Reason.AMOUNT, (), node.root_uuid, name, *amounts, wanted - free)
                shortages.append(replace(missing, counted=counted))
        yield node, tuple(shortages)


def _counted(asked: Asked, free: int, bind: BindPolicy | None, *, on_one: bool) -> str:
    """Return of what there are so many free; `bind` is the strict policy that leaves some CPUs out."""
    where = " on one NUMA node" if on_one else ""
    if asked.resource_class == CORE_CLASS and bind is BindPolicy.SPREAD_BY_PCPUS:
        return f"core{'' if free == 1 else 's'} with a free CPU{where}, and {bind} takes one CPU of each"
    if asked.resource_class == CORE_CLASS and bind is BindPolicy.FULL_PCPUS:
        return f"free in whole cores{where}, and {bind} takes no others"
    return f"free{where}"


def _kept_on(node: NodeInfo) -> Iterator[str]:
    """Yield what reservations keep on the node from the pod that was refused."""
    for each in node.reservations_left:
        cpus = f"CPUs {format_cpu_list(each.holding.cpus)}" if each.holding.cpus else ""
        classes = ((name, amount, host_class(name)) for name, amount in each.requests.items() if amount)
        amounts = (of_resource(-(-amount // of.unit), of.name, name) for name, amount, of in classes)
        kept = ", ".join(filter(None, (cpus, *amounts)))
        if kept:
            yield f"reservation {each.name} keeps {kept}"
