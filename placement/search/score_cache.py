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

# 16 bytes each, over all boards; one board is kept however large it is.
_MOST_ROWS = 2_000_000


class _Board(NamedTuple):
    """Per row of a root its score, and the stamp of the tree it is of; stamps begin at 1."""

    scores: Amounts
    stamps: Amounts


class Scoreboards:
    """One board per question; the questions asked last are kept."""

    def __init__(self, most_rows: int = _MOST_ROWS) -> None:
        self._most_rows = most_rows
        self._boards: dict[Hashable, _Board] = {}
        self._lock = threading.Lock()

    def of(
        self, forest: Forest, question: Hashable, roots: Indices, score: Callable[[Indices], Amounts]
    ) -> Amounts:
        """The scores of the trees; `score` is asked for those that changed since they were scored."""
        present = forest.providers.tree_stamp[roots]
        with self._lock:
            board = self._board(question, forest.count)
            scores = board.scores[roots]
            stale = board.stamps[roots] != present
        if stale.any():
            changed, stamps = roots[stale], present[stale]
            scores[stale] = score(changed)
            with self._lock:
                # A search on a newer snapshot may have been faster.
                newer = stamps > board.stamps[changed]
                board.scores[changed[newer]] = scores[stale][newer]
                board.stamps[changed[newer]] = stamps[newer]
        return scores

    def _board(self, question: Hashable, rows: int) -> _Board:
        board = self._boards.pop(question, None)
        if board is None or len(board.scores) < rows:
            # Memory that is never written to costs nothing, so there may be room for more rows to come.
            board = _Board(*(np.zeros(rows + rows // 8, np.int64) for _ in range(2)))
            self._make_room(len(board.scores))
        self._boards[question] = board
        return board

    def _make_room(self, rows: int) -> None:
        """Forget the questions that were asked longest ago."""
        while self._boards and rows + sum(len(b.scores) for b in self._boards.values()) > self._most_rows:
            del self._boards[next(iter(self._boards))]
