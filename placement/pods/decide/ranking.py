"""The ranking of the nodes of a cluster for a pod: filter -> score -> nodes one by one, best first.

Columns say for all nodes at once where a pod may fit and how well at most (`rules`, `column_score`).
Nodes are then looked at in that order, as long as something better may come. The results are kept for pods
of one shape, so that an unchanged node answers as before.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Generic, NamedTuple, Protocol, TypeVar

import numpy as np

from placement.engine.forest.arrays import Amounts, Mask, Rows
from placement.engine.numa.allocator import NO_RESERVATIONS, HostReservations
from placement.engine.numa.host import Refusal
from placement.engine.scoring.rule import BEST
from placement.pods.decide.column_score import highest_scores, least_missed
from placement.pods.decide.rules import RULES
from placement.pods.decide.rules.numa import answer_of
from placement.pods.decide.rules.rule import Fit, IncomingPod, PodShape, Rule, concerned, may_pass
from placement.pods.state.model import RecordedReservation
from placement.pods.state.node_info import NodeInfo
from placement.pods.state.snapshot import NodeColumns, NodeMarks

_SHAPES_KEPT = 32
_CHANGES_KEPT = 20
# Up to this many nodes are looked at one by one, which is faster than columns.
_FEW = 4
# Most walks end early, so this many nodes are converted at a time.
_AT_ONCE = 64


class Ranked(NamedTuple):
    """A node on which a pod fits, and how well, 0 to 100; `missed`: what the pod prefers and does not get.

    `reservations` are the ones of the node that the pod may use; `used_reservation` is the one that it uses.
    `opened_node` is the node as if nothing that the pod may have were reserved there.
    """

    node: NodeInfo
    missed: int
    score: int
    fit: Fit
    reservations: HostReservations = NO_RESERVATIONS
    used_reservation: RecordedReservation | None = None
    opened_node: NodeInfo | None = None


class FilterResult(NamedTuple):
    """A pod fits on a host with a score of 0 to 100, or it is refused.

    `missed`: how much of what the pod prefers it does not get there, 0 if nothing.
    """

    answer: Fit | Refusal
    score: int = 0
    missed: int = 0


@dataclass(frozen=True, slots=True)
class NodeScores:
    """Columns by row of nodes: whether a pod fits, what it misses of what it prefers, and its score.

    They are exact, or estimates: it may fit, misses at least that, and scores at most `highest`.
    """

    order: object
    marks: NodeMarks
    fits: Mask
    missed: Amounts
    highest: Amounts

    def with_rows(self, columns: NodeColumns, rows: Rows, scores_of_rows: NodeScores) -> NodeScores:
        """Return the scores for columns after these rows changed to the other scores."""
        fits, missed, highest = self.fits.copy(), self.missed.copy(), self.highest.copy()
        fits[rows], missed[rows], highest[rows] = (
            scores_of_rows.fits,
            scores_of_rows.missed,
            scores_of_rows.highest,
        )
        return NodeScores(columns.order, columns.nodes.marks, fits, missed, highest)


class Evaluation(NamedTuple):
    """A certain result for nodes: the scores of a pod, and why it does not fit on some, by name."""

    scores: NodeScores
    refusals: Mapping[str, Refusal]


class Adjustment:
    """A change to the ranking of a pod that its shape does not say; as it stands here it changes nothing.

    `is_exclusive`: only nodes that it adds can take the pod.
    """

    is_exclusive = False

    def seen(self, columns: NodeColumns) -> NodeColumns:
        """Return the nodes as the pod finds them, in the same rows."""
        return columns

    def restored(self, ranked: Iterator[Ranked], columns: NodeColumns) -> Iterator[Ranked]:
        """Return the nodes as they are in `columns`, after they were ranked as `seen` shows them."""
        return ranked

    def allowed(self, columns: NodeColumns) -> Mask | None:
        """Return the rows of nodes to which the pod may go; None if all."""
        return None

    def best_first(
        self, ranked: Iterator[Ranked], columns: NodeColumns, allowed: Mask | None, ranking: PodRanking
    ) -> Iterator[Ranked]:
        """Return the ranked nodes in the order of this adjustment; `ranking` has all adjustments."""
        return ranked

    def refusals(self, refusals: Mapping[str, Refusal], columns: NodeColumns) -> Mapping[str, Refusal]:
        """Return why the pod does not fit on nodes, by name, after the refusals that are known so far."""
        return refusals

    def scores(self, scores: NodeScores, columns: NodeColumns) -> NodeScores:
        """Return the exact scores, from the ones that are known so far."""
        return scores


@dataclass(slots=True)
class _ShapeResults:
    """All that is remembered of nodes for pods of one shape; all rankings of such pods share it."""

    pod: IncomingPod
    by_serial: dict[int, FilterResult] = field(default_factory=dict)
    estimated_scores: NodeScores | None = None
    evaluation: Evaluation | None = None


class ShapeRanking:
    """A ranking of the nodes of a cluster for pods of one shape."""

    def __init__(self, shape: PodShape) -> None:
        self.shape = shape
        self._results = _ShapeResults(shape.incoming())
        self._rules = concerned(RULES, self._results.pod)
        self._highest = shape.settings.host_scoring.max_score

    def best_first(self, columns: NodeColumns, allowed: Mask | None = None) -> Iterator[Ranked]:
        """Yield the nodes on which the pod fits, looked at one by one; only allowed rows, if they are given.

        The order is by what the pod misses of what it prefers, then by descending score, then by name.
        """
        estimated_scores = self._estimated(columns)
        rows = np.flatnonzero(estimated_scores.fits if allowed is None else estimated_scores.fits & allowed)
        missed, scores = estimated_scores.missed[rows], estimated_scores.highest[rows]
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

    def in_rows(self, columns: NodeColumns, rows: Iterable[int]) -> Iterator[Ranked]:
        """Yield the nodes in these rows, looked at in turn; the caller knows that the pod fits."""
        for row in rows:
            node = columns.nodes[row]
            result = self.look(node)
            assert isinstance(result.answer, Fit)
            yield Ranked(node, result.missed, result.score, result.answer)

    def refusals(self, columns: NodeColumns) -> Mapping[str, Refusal]:
        """Return why the pod does not fit on nodes, by name; nodes on which it fits are left out."""
        return self._evaluated(columns).refusals

    def scores(self, columns: NodeColumns) -> NodeScores:
        """Return on which nodes the pod fits, what it misses there and its scores, with nothing estimated."""
        return self._evaluated(columns).scores

    def look(self, node: NodeInfo) -> FilterResult:
        """Return for certain how a pod of the shape fits on one node."""
        known = self._results
        result = known.by_serial.get(node.serial)
        if result is None:
            result = known.by_serial[node.serial] = judged(self._rules, node, known.pod)
        return result

    def trim(self, columns: NodeColumns, most: int) -> None:
        """Forget the former states of nodes of the cluster, once there are more than `most`."""
        known = self._results.by_serial
        if len(known) > most:
            nodes: Iterable[NodeInfo] = columns.nodes
            if self.shape.request.ignores_reservations:
                nodes = (node.opened(node.reserving) for node in columns.nodes)
            self._results.by_serial = {
                node.serial: known[node.serial] for node in nodes if node.serial in known
            }
            self._results.pod = self.shape.incoming()

    def _evaluated(self, columns: NodeColumns) -> Evaluation:
        """Return the results of looks at all these nodes.

        Only nodes that changed since the last call are looked at; each result is for the node in `columns`.
        """
        known = self._results.evaluation
        if known is not None and known.scores.order is columns.order:
            if known.scores.marks is columns.nodes.marks:
                return known
            rows = np.array(columns.nodes.changed_since(known.scores.marks), np.intp)
            scores, refusals = self._looked_at(columns, rows)
            kept = {**known.refusals}
            for row in rows:
                kept.pop(columns.nodes[row].name, None)
            evaluation = Evaluation(known.scores.with_rows(columns, rows, scores), kept | refusals)
        else:
            evaluation = Evaluation(*self._looked_at(columns, np.arange(len(columns.nodes))))
        if known is None or 2 * len(evaluation.scores.fits) > len(known.scores.fits):
            self._results.evaluation = evaluation
        return evaluation

    def _looked_at(self, columns: NodeColumns, rows: Rows) -> tuple[NodeScores, dict[str, Refusal]]:
        """Return the results of looks at some rows, and why the pod does not fit there, by name."""
        figures, refusals = list[tuple[bool, int, int]](), dict[str, Refusal]()
        results = self._results.by_serial
        for node in columns.nodes.at(rows.tolist()):
            result = results.get(node.serial) or self.look(node)
            fits = not isinstance(result.answer, Refusal)
            if isinstance(result.answer, Refusal):
                refusals[node.name] = result.answer
            figures.append((fits, result.missed, result.score))
        fitting, missed, scores = np.array(figures, np.int64).reshape(-1, 3).T
        marks = columns.nodes.marks
        return NodeScores(columns.order, marks, fitting.astype(np.bool_), missed, scores), refusals

    def _estimated(self, columns: NodeColumns) -> NodeScores:
        """Return the estimates for these nodes; only nodes that changed since the last call are estimated."""
        known = self._results.estimated_scores
        if known is None or known.order is not columns.order:
            estimated_scores = self._estimated_anew(columns)
        else:
            changed = np.array(columns.nodes.changed_since(known.marks), np.intp)
            estimated_scores = known.with_rows(columns, changed, self._estimated_anew(columns, changed))
        # A question about a few nodes is no reason to forget the others.
        if known is None or 2 * len(estimated_scores.fits) > len(known.fits):
            self._results.estimated_scores = estimated_scores
        return estimated_scores

    def _estimated_anew(self, columns: NodeColumns, some: Rows | None = None) -> NodeScores:
        """Return the estimates for all rows, or some; a few are looked at, which is faster than columns."""
        count = len(columns.nodes) if some is None else len(some)
        if count <= _FEW:
            return self._looked_at(columns, np.arange(count) if some is None else some)[0]
        if some is not None:
            columns = columns.rows(some)
        shape = self.shape
        fits = may_pass(self._rules, columns, self._results.pod)
        rows = np.flatnonzero(fits)
        table = columns.table.rows(rows)
        missed, highest = np.zeros((2, count), np.int64)
        missed[rows] = least_missed(table, shape.request, shape.settings)
        highest[rows] = highest_scores(table, shape.request, shape.settings.host_scoring)
        return NodeScores(columns.order, columns.nodes.marks, fits, missed, highest)


class PodRanking:
    """A ranking of the nodes of a cluster for one pod: that of its shape, with adjustments in their order."""

    def __init__(self, shape_ranking: ShapeRanking, adjustments: Iterable[Adjustment]) -> None:
        self.shape = shape_ranking.shape
        self._shape_ranking = shape_ranking
        self._adjustments = tuple(adjustments)
        self._is_exclusive = any(adjustment.is_exclusive for adjustment in self._adjustments)

    def best_first(self, columns: NodeColumns) -> Iterator[Ranked]:
        """Return the nodes on which the pod fits in the order of all adjustments, looked at one by one."""
        allowed: Mask | None = None
        for adjustment in self._adjustments:
            mask = adjustment.allowed(columns)
            if mask is not None:
                allowed = mask if allowed is None else allowed & mask
        ranked: Iterator[Ranked] = iter(())
        if not self._is_exclusive:
            ranked = self._shape_ranking.best_first(self._seen(columns), allowed)
        for adjustment in self._adjustments:
            ranked = adjustment.best_first(adjustment.restored(ranked, columns), columns, allowed, self)
        return ranked

    def in_rows(self, columns: NodeColumns, rows: Iterable[int]) -> Iterator[Ranked]:
        """Return the nodes in these rows, looked at in turn; the caller knows that the pod fits."""
        ranked = self._shape_ranking.in_rows(self._seen(columns), rows)
        for adjustment in self._adjustments:
            ranked = adjustment.restored(ranked, columns)
        return ranked

    def refusals(self, columns: NodeColumns) -> Mapping[str, Refusal]:
        """Return why the pod does not fit on nodes, by name; nodes on which it fits are left out."""
        refusals: Mapping[str, Refusal] = {}
        if not self._is_exclusive:
            refusals = self._shape_ranking.refusals(self._seen(columns))
        for adjustment in self._adjustments:
            refusals = adjustment.refusals(refusals, columns)
        return refusals

    def scores(self, columns: NodeColumns) -> NodeScores:
        """Return on which nodes the pod fits, what it misses there and its scores, with nothing estimated."""
        scores = self._shape_ranking.scores(self._seen(columns))
        for adjustment in self._adjustments:
            scores = adjustment.scores(scores, columns)
        return scores

    def _seen(self, columns: NodeColumns) -> NodeColumns:
        """Return the nodes as the pod finds them."""
        for adjustment in self._adjustments:
            columns = adjustment.seen(columns)
        return columns


Ranking = ShapeRanking | PodRanking
"""A ranking for pods of a shape, or for one of them."""


def judged(rules: Iterable[Rule], node: NodeInfo, pod: IncomingPod) -> FilterResult:
    """Return the first refusal by rules that concern the pod, or how well the node suits it."""
    for rule in rules:
        refusal = rule.refuse(node, pod)
        if refusal is not None:
            return FilterResult(refusal)
    found = pod.answers.get(node.host) or answer_of(node.host, pod)
    return FilterResult(found.answer, found.score(node.totals), found.missed)


class _Trimmed(Protocol):
    def trim(self, columns: NodeColumns, most: int) -> None: ...


_ByShape = TypeVar("_ByShape", bound=_Trimmed)


class ShapeCache(Generic[_ByShape]):
    """A cache by cluster and shape of pods: an entry for each of the shapes that were asked for last.

    Threads share entries: all threads would note equal results of a node, and each note is a single step.
    """

    def __init__(self, make: Callable[[PodShape], _ByShape]) -> None:
        self._make = make
        self._entries: dict[tuple[int, PodShape], _ByShape] = {}
        self._lock = threading.Lock()

    def of(self, cluster_id: int, shape: PodShape, columns: NodeColumns) -> _ByShape:
        """Return the entry for pods of a shape; `columns` are the whole cluster, asked about or not."""
        key = (cluster_id, shape)
        with self._lock:
            entry = self._entries.pop(key, None) or self._make(shape)
            self._entries[key] = entry
            if len(self._entries) > _SHAPES_KEPT:
                del self._entries[next(iter(self._entries))]
        count = len(columns.nodes)
        entry.trim(columns, count + count // 4 + _CHANGES_KEPT)
        return entry


def priorities(ranking: Ranking, columns: NodeColumns, best: int) -> dict[str, int]:
    """Return the score of each node on which the pod fits, 0 to 100, by name; rankings score up to `best`.

    Nodes on which the pod uses a reservation stay first, then nodes where it gets more of what it prefers.
    """
    scores = ranking.scores(columns)
    rows = np.flatnonzero(scores.fits)
    missed = scores.missed[rows]
    levels = missed - min(0, missed.min(initial=0))
    worst = levels.max(initial=0)
    points = (scores.highest[rows] * BEST // best + BEST * (worst - levels)) // (worst + 1)
    names = list(columns.names)
    return dict(zip(map(names.__getitem__, rows.tolist()), points.tolist(), strict=True))
