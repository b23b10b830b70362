"""Where a pod goes: snapshot -> filter -> score -> the nodes one by one, best first.

Columns say of all nodes at once where a pod may fit and how well at most (`columns.filter`, `columns.score`).
Nodes are then looked at in that order, and no longer than something better may come. What was found out by
looking is kept for pods of the same shape: a node that nobody changed answers as before.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from placement.dialects.koordinator.pod.pod_request import PodRequest
from placement.dialects.koordinator.settings.settings import SchedulerSettings
from placement.forest.arrays import Amounts, Mask
from placement.kubernetes.node_selection import NodeSelection
from placement.numa.refusal import Refusal
from placement.scheduling.columns.filter import may_fit
from placement.scheduling.columns.node_columns import NodeColumns
from placement.scheduling.columns.score import highest_scores
from placement.scheduling.filter import FilterResult, PodJudge
from placement.scheduling.host_demand import is_bound_on
from placement.scheduling.host_fit import lacking
from placement.scheduling.node_info import NodeInfo
from placement.scheduling.numa_fit import Fit

_SHAPES_KEPT = 32
_CHANGES_KEPT = 20
# Most walks end early: so many nodes are told at a time.
_AT_ONCE = 64


@dataclass(frozen=True, slots=True)
class PodShape:
    """All that decides on which nodes a pod fits, and how well."""

    request: PodRequest | None
    selection: NodeSelection
    settings: SchedulerSettings


@dataclass(frozen=True, slots=True)
class Ranked:
    """A node on which a pod fits, and how well, 0 to 100."""

    node: NodeInfo
    score: int
    fit: Fit


@dataclass(frozen=True, slots=True)
class Estimates:
    """What columns say of the nodes in their rows: whether a pod may fit, and the score then at most."""

    columns: NodeColumns
    fits: Mask
    highest: Amounts


class ShapeRanking:
    """Pods of one shape and the nodes of a cluster."""

    def __init__(self, shape: PodShape) -> None:
        self.shape = shape
        self._estimates: Estimates | None = None
        self._judge = PodJudge(shape.request, shape.settings.host_scoring)
        self._verdicts: dict[NodeInfo, FilterResult] = {}

    def best_first(self, columns: NodeColumns) -> Iterator[Ranked]:
        """The nodes on which the pod fits, by descending score, then by name; looked at one by one."""
        found: list[tuple[int, int, Fit]] = []
        for row, highest in self._foretold(columns):
            # What was found may be as good as anything that comes: then it is next.
            while found and found[0][:2] < (-highest, row):
                yield _ranked(columns, *heapq.heappop(found))
            verdict = self.look(columns.nodes[row])
            if isinstance(verdict.answer, Fit):
                heapq.heappush(found, (-verdict.score, row, verdict.answer))
        while found:
            yield _ranked(columns, *heapq.heappop(found))

    def refusals(self, columns: NodeColumns) -> dict[str, Refusal]:
        """Why the pod does not fit on nodes, by name; nodes on which it does are left out."""
        found = {}
        for node in columns.nodes:
            answer = self.look(node).answer
            if isinstance(answer, Refusal):
                found[node.name] = answer
        return found

    def look(self, node: NodeInfo) -> FilterResult:
        """How the pod stands with one node, for certain."""
        verdict = self._verdicts.get(node)
        if verdict is None:
            refusal = self._screen(node)
            verdict = self._judge.judge(node.host, node.totals) if refusal is None else FilterResult(refusal)
            self._verdicts[node] = verdict
        return verdict

    def trim(self, columns: NodeColumns) -> None:
        """Forget now and then what the nodes of the cluster were before they were what they are now."""
        if len(self._verdicts) > len(columns.nodes) + len(columns.nodes) // 4 + _CHANGES_KEPT:
            known = self._verdicts
            self._verdicts = {node: known[node] for node in columns.nodes if node in known}
            self._judge = PodJudge(self.shape.request, self.shape.settings.host_scoring)

    def _foretold(self, columns: NodeColumns) -> Iterator[tuple[int, int]]:
        """The rows of nodes that may take the pod and their scores at most, descending, then by name."""
        estimates = self._estimated(columns)
        rows = np.flatnonzero(estimates.fits)
        scores = estimates.highest[rows]
        # Scores of 0 to 100 are sorted fastest as the small numbers that they are.
        order = np.argsort((-scores).astype(np.int8), kind="stable")
        for start in range(0, len(order), _AT_ONCE):
            some = order[start : start + _AT_ONCE]
            yield from zip(rows[some].tolist(), scores[some].tolist(), strict=True)

    def _estimated(self, columns: NodeColumns) -> Estimates:
        """The estimates for these nodes: only for those that changed since the last time are they made."""
        known = self._estimates
        changed = None if known is None else columns.changed_since(known.columns)
        if known is None or changed is None or 2 * len(changed) > len(columns.nodes):
            made = self._made(columns)
        else:
            fits, highest = known.fits.copy(), known.highest.copy()
            part = self._made(columns.rows(changed))
            fits[changed], highest[changed] = part.fits, part.highest
            made = Estimates(columns, fits, highest)
        # Being asked about a few nodes is no reason to forget the others.
        if known is None or 2 * len(columns.nodes) > len(known.columns.nodes):
            self._estimates = made
        return made

    def _made(self, columns: NodeColumns) -> Estimates:
        shape = self.shape
        fits = may_fit(columns, shape.selection, shape.request)
        rows = np.flatnonzero(fits)
        highest = np.zeros(len(columns.nodes), np.int64)
        highest[rows] = highest_scores(columns.table.rows(rows), shape.request, shape.settings.host_scoring)
        return Estimates(columns, fits, highest)

    def _screen(self, node: NodeInfo) -> Refusal | None:
        """What the names, labels, taints and totals of a node have against the pod."""
        refusal = self.shape.selection.refusal(node.attributes)
        if refusal is not None:
            return refusal
        request = self.shape.request
        amounts = {} if request is None else request.amounts
        bound = request is not None and is_bound_on(node.host, request)
        return lacking(node.offers, node.free, node.left, amounts, bound=bound)


def _ranked(columns: NodeColumns, height: int, row: int, fit: Fit) -> Ranked:
    return Ranked(columns.nodes[row], -height, fit)


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
