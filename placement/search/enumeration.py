"""Last stage of a search: candidates tree by tree, lazily, so that nothing is built beyond the limit."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from placement.forest.arrays import Indices
from placement.search.budget import Budget
from placement.search.equivalence import EquivalenceClass, EquivalenceClasses
from placement.search.problem import Solution
from placement.search.solver import solutions

SMALLEST_CHUNK = 512
Candidates = NDArray[np.int32]


class _Lazy:
    """The solutions of one problem, worked out as far as they were asked for."""

    def __init__(self, trees: EquivalenceClass, budget: Budget) -> None:
        self.trees = trees
        self._source = solutions(trees.problem, budget)
        self.exhausted = False

    def next(self, count: int) -> list[Solution]:
        """The next solutions, at most `count`."""
        found = list(islice(self._source, count))
        self.exhausted = len(found) < count
        return found


def breadth_first(equivalence: EquivalenceClasses, roots: Indices, maximum: int) -> Iterator[Candidates]:
    """One candidate per root in turn. Roots beyond what the limit needs are not even looked at."""
    pending: list[tuple[int, _Lazy]] = []
    for batch, fresh in _first_round(equivalence, roots, maximum):
        yield batch
        pending.extend(fresh)
    rounds = 1
    while pending := [(start, lazy) for start, lazy in pending if not lazy.exhausted]:
        yield _round(pending, rounds)
        alive = sum(len(lazy.trees.ranks) for _, lazy in pending)
        rounds = max(1, min(2 * rounds, maximum // max(1, alive)))


def one_of_each(equivalence: EquivalenceClasses, roots: Indices, maximum: int) -> Iterator[Candidates]:
    """The first candidate of every root: how `breadth_first` begins."""
    for batch, _ in _first_round(equivalence, roots, maximum):
        yield batch


def _first_round(
    equivalence: EquivalenceClasses, roots: Indices, maximum: int
) -> Iterator[tuple[Candidates, list[tuple[int, _Lazy]]]]:
    chunk = max(SMALLEST_CHUNK, min(maximum, len(roots)))
    for start in range(0, len(roots), chunk):
        fresh = [
            (start, _Lazy(trees, equivalence.budget))
            for trees in equivalence.of(roots[start : start + chunk])
        ]
        yield _round(fresh, 1), fresh


def _round(lazies: list[tuple[int, _Lazy]], rounds: int) -> Candidates:
    """The next `rounds` candidates of every root: all first ones by root, then all second ones."""
    taken = [(start, lazy.trees, found) for start, lazy in lazies if (found := lazy.next(rounds))]
    if not taken:
        return np.empty(0, np.int32)
    tables = [
        trees.providers[:, np.array(found, np.intp)].reshape(-1, len(found[0])) for _, trees, found in taken
    ]
    if len(tables) == 1 and rounds == 1:
        return tables[0]
    keys = []
    for start, trees, found in taken:
        turn = np.tile(np.arange(len(found), dtype=np.int64), len(trees.ranks))
        rank = np.repeat(trees.ranks.astype(np.int64) + start, len(found))
        keys.append(turn << 40 | rank)
    return np.concatenate(tables)[np.argsort(np.concatenate(keys))]


def depth_first(equivalence: EquivalenceClasses, roots: Indices, maximum: int) -> Iterator[Candidates]:
    """All candidates of one root before the next."""
    for start in range(0, len(roots), SMALLEST_CHUNK):
        chunk = roots[start : start + SMALLEST_CHUNK]
        place: dict[int, tuple[EquivalenceClass, int]] = {}
        for trees in equivalence.of(chunk):
            for at, rank in enumerate(trees.ranks.tolist()):
                place[rank] = (trees, at)
        for rank in sorted(place):
            trees, at = place[rank]
            found = list(islice(solutions(trees.problem, equivalence.budget), maximum))
            if found:
                yield trees.providers[at][np.array(found, np.intp)]
