"""Scores of whole trees, kept until something in the tree changes.

The same few requests come again and again while most trees stand still, and scoring ten thousand trees costs
more than all the rest of an ordered search.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import NamedTuple

import numpy as np

from placement.forest.arrays import Amounts, Indices
from placement.forest.forest import Forest

# 16 bytes each, over all questions; the scores of one are kept however large they are.
_MOST_ROWS = 2_000_000


class _Scores(NamedTuple):
    """Per row of a root its score, and the stamp of the tree it is of; stamps begin at 1."""

    scores: Amounts
    stamps: Amounts


class ScoreCache:
    """The scores for the questions asked last."""

    def __init__(self, most_rows: int = _MOST_ROWS) -> None:
        self._most_rows = most_rows
        self._kept: dict[Hashable, _Scores] = {}
        self._lock = threading.Lock()

    def of(
        self, forest: Forest, question: Hashable, roots: Indices, score: Callable[[Indices], Amounts]
    ) -> Amounts:
        """The scores of the trees; `score` is asked for those that changed since they were scored."""
        present = forest.providers.tree_stamp[roots]
        with self._lock:
            known = self._scores_of(question, forest.count)
        if known is None:
            scores = score(roots)
            self._keep(question, forest.count, roots, scores, present)
            return scores
        with self._lock:
            scores = known.scores[roots]
            stale = known.stamps[roots] != present
        if stale.any():
            changed, stamps = roots[stale], present[stale]
            scores[stale] = score(changed)
            with self._lock:
                # A search on a newer snapshot may have been faster.
                newer = stamps > known.stamps[changed]
                known.scores[changed[newer]] = scores[stale][newer]
                known.stamps[changed[newer]] = stamps[newer]
        return scores

    def _scores_of(self, question: Hashable, rows: int) -> _Scores | None:
        """What is kept for the question, None if it has to be scored from the beginning."""
        known = self._kept.pop(question, None)
        if known is None or len(known.scores) < rows:
            return None
        self._kept[question] = known
        return known

    def _keep(self, question: Hashable, rows: int, roots: Indices, scores: Amounts, stamps: Amounts) -> None:
        # Memory that was never written to costs nothing, so there may be room for more rows to come.
        known = _Scores(*(np.zeros(rows + rows // 8, np.int64) for _ in range(2)))
        places = roots.astype(np.intp)
        known.scores[places], known.stamps[places] = scores, stamps
        with self._lock:
            self._kept.pop(question, None)
            self._make_room(len(known.scores))
            self._kept[question] = known

    def _make_room(self, rows: int) -> None:
        """Forget the questions that were asked longest ago."""
        while self._kept and rows + sum(len(each.scores) for each in self._kept.values()) > self._most_rows:
            del self._kept[next(iter(self._kept))]
