"""Claims on a copy of the forest, one after another: as many as succeed are certain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from placement.engine.forest.arrays import Amounts, Rows
from placement.engine.forest.forest import Forest
from placement.engine.forest.sharing import SharingMap
from placement.engine.forest.simulation import SimulatedForest
from placement.engine.search.answer import Answer
from placement.engine.search.budget import SearchEnded
from placement.engine.search.query import ForestQuery
from placement.engine.search.search import search_rows

# The most steps of all claims for one query: one for each candidate, and one for so many providers seen.
_MOST_STEPS = 10_000


_PROVIDERS_PER_STEP = 64


# Which candidate is the first may change with each claim, so claims are made one by one while steps suffice.
_STEPS_ONE_BY_ONE = _MOST_STEPS // 2


class Claiming:
    """A count of claims that take the first candidate each, as claims without an order do."""

    def __init__(self, forest: Forest, sharing_map: SharingMap, query: ForestQuery) -> None:
        """Prepare to claim; at most half of the time that is left goes to it."""
        self._forest, self._sharing_map = forest, sharing_map
        self._query = replace(query, order=None, depth_first=False, budget=query.budget.half())
        # How amounts are split depends on what is free: what one claim takes may not be there for the next.
        self._splits = any(group.split for group in query.groups)
        self._left = _MOST_STEPS

    def by_host(self, roots: Rows) -> Amounts:
        """Return how many claims each host takes, for hosts that no provider of another tree serves.

        The count is lower where steps or time run out. Raises SearchEnded if the caller went away.
        """
        reached = np.zeros(self._forest.count, np.int64)
        for row, times in self._claims(roots, len(roots)):
            reached[self._forest.providers.root[row]] += times
        return reached[roots]

    def in_all(self, roots: Rows) -> int:
        """Return how many claims the hosts take together, with the limits and errors of `by_host`."""
        return sum(times for _, times in self._claims(roots, 1))

    def _claims(self, roots: Rows, at_once: int) -> Iterator[tuple[int, int]]:
        """Yield a provider of each candidate and how many claims take it, for several hosts in turn."""
        forest, rows = SimulatedForest(self._forest), self._forest.in_trees(roots)
        query = replace(self._query, maximum=max(1, at_once))
        try:
            while self._left > 0 and len(roots):
                query.budget.look()
                found = search_rows(forest, self._sharing_map, query, rows, one_each=True)
                self._left -= 1 + len(rows) // _PROVIDERS_PER_STEP + len(found.candidates)
                answer = Answer(forest, found)
                for at, row in enumerate(found.candidates[:, 0].tolist()):
                    query.budget.spend()
                    times, draws = 1, answer.draws(at)
                    if self._left < _STEPS_ONE_BY_ONE and not self._splits:
                        # As often as it fits, when steps get short.
                        times = min(forest.free(draw.row, draw.class_id) // draw.amount for draw in draws)
                    forest.take([draw._replace(amount=times * draw.amount) for draw in draws])
                    yield row, times
                if not len(answer):
                    break
        except SearchEnded as ended:
            if ended.abandoned:
                raise
