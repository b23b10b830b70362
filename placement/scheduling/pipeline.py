"""Where a pod goes: snapshot -> filter -> score -> the nodes one by one, best first.

Columns say of all nodes at once where a pod may fit and how well at most (`columns.filter`, `columns.score`).
Nodes are then looked at in that order, and no longer than something better may come. What was found out by
looking is kept for pods of the same shape: a node that nobody changed answers as before.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from placement.dialects.koordinator.pod.pod_request import PodRequest
from placement.dialects.koordinator.settings.settings import SchedulerSettings
from placement.dialects.koordinator.status.recorded_pod import RecordedPod
from placement.forest.arrays import Amounts, Mask, Rows
from placement.kubernetes.node_selection import NodeSelection
from placement.numa.refusal import Refusal
from placement.numa.reservations import NO_RESERVATIONS, Reservations
from placement.scheduling.columns.filter import may_fit
from placement.scheduling.columns.isolation import least_missed
from placement.scheduling.columns.node_columns import NodeColumns
from placement.scheduling.columns.node_rows import NodeMarks
from placement.scheduling.columns.score import highest_scores
from placement.scheduling.filter import FilterResult, PodJudge, lacking
from placement.scheduling.node_info import NodeInfo
from placement.scheduling.numa_fit import Fit
from placement.scheduling.reservation_looks import ReservationLooks
from placement.scoring.rule import BEST

_SHAPES_KEPT = 32
_CHANGES_KEPT = 20
# So many nodes are looked at one by one rather than asked for by columns.
_FEW = 4
# Most walks end early: so many nodes are told at a time.
_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class PodShape:
    """All that decides on which nodes a pod fits, and how well."""

    request: PodRequest | None
    selection: NodeSelection
    settings: SchedulerSettings


class Ranked(NamedTuple):
    """A node on which a pod fits, and how well, 0 to 100; `missed`: what the pod prefers and does not get.

    `reservations` are those of the node that the pod may use. `used` is the one that it does use, `opened`
    the node as if nothing were kept there that the pod may have.
    """

    node: NodeInfo
    missed: int
    score: int
    fit: Fit
    reservations: Reservations = NO_RESERVATIONS
    used: RecordedPod | None = None
    opened: NodeInfo | None = None


@dataclass(frozen=True, slots=True)
class Estimates:
    """What columns say of the nodes in their rows: whether a pod may fit, what of that which it prefers it
    misses there at least, and the score at most.
    """

    order: object
    marks: NodeMarks
    fits: Mask
    missed: Amounts
    highest: Amounts

    def with_rows(self, columns: NodeColumns, rows: Rows, part: Estimates) -> Estimates:
        """The estimates for columns in which these rows changed, of which `part` are the estimates."""
        fits, missed, highest = self.fits.copy(), self.missed.copy(), self.highest.copy()
        fits[rows], missed[rows], highest[rows] = part.fits, part.missed, part.highest
        return Estimates(columns.order, columns.marks, fits, missed, highest)


class Looked(NamedTuple):
    """How a pod stands with nodes, for certain, and why it does not fit on some of them, by name."""

    standings: Estimates
    refusals: Mapping[str, Refusal]


class ShapeRanking:
    """Pods of one shape and the nodes of a cluster."""

    def __init__(self, shape: PodShape) -> None:
        self.shape = shape
        self._estimates: Estimates | None = None
        self._looked: Looked | None = None
        self._judge = PodJudge(shape.request, shape.settings.host_scoring)
        self.on_reservations = ReservationLooks(shape.request, shape.selection, shape.settings.host_scoring)
        self._results: dict[int, FilterResult] = {}

    def best_first(self, columns: NodeColumns, allowed: Mask | None = None) -> Iterator[Ranked]:
        """The nodes on which the pod fits, in allowed rows if only some are, looked at one by one.

        Those come first where it misses least of what it prefers, then by descending score, then by name.
        """
        found: list[tuple[int, int, int, Fit]] = []
        for row, least, highest in self._foretold(columns, allowed):
            # What was found may be as good as anything that comes: then it is next.
            while found and found[0] < (least, -highest, row):
                yield _ranked(columns, *heapq.heappop(found))
            result = self.look(columns.nodes[row])
            if isinstance(result.answer, Fit):
                heapq.heappush(found, (result.missed, -result.score, row, result.answer))
        while found:
            yield _ranked(columns, *heapq.heappop(found))

    def refusals(self, columns: NodeColumns) -> Mapping[str, Refusal]:
        """Why the pod does not fit on nodes, by name; nodes on which it does are left out."""
        return self._all_looked(columns).refusals

    def standings(self, columns: NodeColumns) -> Estimates:
        """On which nodes the pod fits, what it misses there and its scores: here nothing is estimated."""
        return self._all_looked(columns).standings

    def look(self, node: NodeInfo) -> FilterResult:
        """How the pod stands with one node, for certain."""
        result = self._results.get(node.serial)
        if result is None:
            refusal = self._screen(node)
            result = self._judge.judge(node.host, node.totals) if refusal is None else FilterResult(refusal)
            self._results[node.serial] = result
        return result

    def ranked_on(self, node: NodeInfo) -> Ranked:
        """How well the pod fits on a node, where it does."""
        result = self.look(node)
        assert isinstance(result.answer, Fit)
        return Ranked(node, result.missed, result.score, result.answer)

    def trim(self, columns: NodeColumns) -> None:
        """Forget now and then what the nodes of the cluster were before they were what they are now."""
        most = len(columns.nodes) + len(columns.nodes) // 4 + _CHANGES_KEPT
        self.on_reservations.trim(columns, most)
        if len(self._results) > most:
            known = self._results
            # What a pod sees that ignores reservations are nodes without these.
            seen = (node.opened(node.reserving) if self._ignores else node for node in columns.nodes)
            self._results = {node.serial: known[node.serial] for node in seen if node.serial in known}
            self._judge = PodJudge(self.shape.request, self.shape.settings.host_scoring)

    @property
    def _ignores(self) -> bool:
        return self.shape.request is not None and self.shape.request.ignores_reservations

    def _foretold(self, columns: NodeColumns, allowed: Mask | None) -> Iterator[tuple[int, int, int]]:
        """The rows of nodes that may take the pod, what it misses there at least and their scores at most.

        In the order that they would have if that were so.
        """
        estimates = self._estimated(columns)
        rows = np.flatnonzero(estimates.fits if allowed is None else estimates.fits & allowed)
        missed, scores = estimates.missed[rows], estimates.highest[rows]
        best = self.shape.settings.host_scoring.max_score
        # Small numbers are sorted fastest as what they are; sums of several strategies may be large.
        kind = np.int16 if best <= BEST else np.int64
        order = np.argsort((missed * (best + 1) - scores).astype(kind), kind="stable")
        for start in range(0, len(order), _AT_ONCE):
            some = order[start : start + _AT_ONCE]
            yield from zip(rows[some].tolist(), missed[some].tolist(), scores[some].tolist(), strict=True)

    def _all_looked(self, columns: NodeColumns) -> Looked:
        """What looks at all these nodes say.

        Only nodes that changed since the last time are looked at, and what is said of each is what a look at
        it as it is in `columns` says.
        """
        known = self._looked
        if known is not None and known.standings.order is columns.order:
            if known.standings.marks is columns.marks:
                return known
            rows = columns.changed_since(known.standings.marks)
            part, refusals = self._looked_at(columns, rows)
            kept = {**known.refusals}
            for row in rows:
                kept.pop(columns.nodes[row].name, None)
            made = Looked(known.standings.with_rows(columns, rows, part), kept | refusals)
        else:
            made = Looked(*self._looked_at(columns, np.arange(len(columns.nodes))))
        if known is None or 2 * len(columns.nodes) > known.standings.marks.count:
            self._looked = made
        return made

    def _looked_at(self, columns: NodeColumns, rows: Rows) -> tuple[Estimates, dict[str, Refusal]]:
        """What looks at some rows say, row by row; and why the pod does not fit there, by name."""
        nodes, known = columns.nodes.at(rows.tolist()), self._results
        results = [known.get(node.serial) or self.look(node) for node in nodes]
        figures = [(result.fits, result.missed, result.score) for result in results]
        fits, missed, scores = np.array(figures, np.int64).reshape(-1, 3).T
        refusals = {
            node.name: result.answer
            for node, result in zip(nodes, results, strict=True)
            if isinstance(result.answer, Refusal)
        }
        return Estimates(columns.order, columns.marks, fits.astype(np.bool_), missed, scores), refusals

    def _estimated(self, columns: NodeColumns) -> Estimates:
        """The estimates for these nodes: only for those that changed since the last time are they made."""
        known = self._estimates
        if known is None or known.order is not columns.order:
            made = self._anew(columns)
        else:
            changed = columns.changed_since(known.marks)
            made = known.with_rows(columns, changed, self._part(columns, changed))
        # Being asked about a few nodes is no reason to forget the others.
        if known is None or 2 * len(columns.nodes) > known.marks.count:
            self._estimates = made
        return made

    def _anew(self, columns: NodeColumns) -> Estimates:
        """The estimates for nodes of which nothing is known; a few are looked at sooner than columns are."""
        count = len(columns.nodes)
        return self._made(columns) if count > _FEW else self._looked_at(columns, np.arange(count))[0]

    def _part(self, columns: NodeColumns, rows: Rows) -> Estimates:
        """The estimates for some rows, likewise."""
        if len(rows) > _FEW:
            return self._made(columns.rows(rows))
        return self._looked_at(columns, rows)[0]

    def _made(self, columns: NodeColumns) -> Estimates:
        shape = self.shape
        fits = may_fit(columns, shape.selection, shape.request)
        rows = np.flatnonzero(fits)
        table = columns.table.rows(rows)
        missed, highest = np.zeros((2, len(columns.nodes)), np.int64)
        missed[rows] = least_missed(table, shape.request, shape.settings)
        highest[rows] = highest_scores(table, shape.request, shape.settings.host_scoring)
        return Estimates(columns.order, columns.marks, fits, missed, highest)

    def _screen(self, node: NodeInfo) -> Refusal | None:
        """What the names, labels, taints and totals of a node have against the pod."""
        refusal = self.shape.selection.refusal(node.attributes)
        if refusal is not None:
            return refusal
        request = self.shape.request
        amounts = {} if request is None else request.amounts
        bound = request is not None and node.host.bind.binds(request)
        return lacking(node.offers, node.free, node.left, amounts, bound=bound)


def _ranked(columns: NodeColumns, missed: int, height: int, row: int, fit: Fit) -> Ranked:
    return Ranked(columns.nodes[row], missed, -height, fit)


class ShapeRankings:
    """The rankings of the shapes that were asked for last, for each cluster by itself.

    Threads share them: what they note about a node is the same whoever notes it, and is noted at once.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[int, PodShape], ShapeRanking] = {}
        self._lock = threading.Lock()

    def of(self, cluster_id: int, shape: PodShape, columns: NodeColumns) -> ShapeRanking:
        """The ranking for pods of a shape; `columns` are all nodes of the cluster, asked about now or not."""
        key = (cluster_id, shape)
        with self._lock:
            ranking = self._kept.pop(key, None) or ShapeRanking(shape)
            self._kept[key] = ranking
            if len(self._kept) > _SHAPES_KEPT:
                del self._kept[next(iter(self._kept))]
        ranking.trim(columns)
        return ranking
