"""The last stage of a search: candidates tree by tree, lazily, so that nothing is built beyond the limit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from placement.engine.forest.arrays import Amounts, Indices
from placement.engine.search.budget import Budget
from placement.engine.search.equivalence import EquivalenceClass, EquivalenceClasses
from placement.engine.search.problem import Solution
from placement.engine.search.solver import solutions

SMALLEST_CHUNK = 512
Candidates = NDArray[np.int32]


class _Lazy:
    """A lazy list of the solutions of one problem, worked out as far as requested."""

    def __init__(self, trees: EquivalenceClass, budget: Budget) -> None:
        self.trees = trees
        self._source = solutions(trees.problem, budget)
        self.exhausted = False

    def next(self, count: int) -> list[Solution]:
        """Return the next solutions, at most `count`."""
        found = list(islice(self._source, count))
        self.exhausted = len(found) < count
        return found


def breadth_first(equivalence: EquivalenceClasses, roots: Indices, maximum: int) -> Iterator[Candidates]:
    """Yield one candidate per root in turn. Roots beyond what the limit needs are not even looked at."""
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
    """Yield the first candidate of every root, as `breadth_first` begins."""
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
    """Return the next `rounds` candidates of every root: all first ones by root, then all second ones."""
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
    """Yield all candidates of one root before the next."""
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


# Candidates best first, tree by tree, where all candidates of a tree have one score.
#
# The candidates are the ones of the unordered enumeration, and so is their order among equal scores. Trees
# are taken in descending order of their scores. So the first candidates out are the ones that sorting all of
# them would put first.


Enumeration = Callable[[EquivalenceClasses, Indices, int], Iterator[Candidates]]
_PROBED = 4
_FIRST_BATCH, _GROWTH = 4, 8
# Numpy sorts small integers in linear time, one pass per byte; a score of one strategy is one byte.
_SMALL = (np.int8, np.int16)


def best_first(
    equivalence: EquivalenceClasses,
    roots: Indices,
    scores: Amounts,
    maximum: int,
    enumeration: Enumeration,
    *,
    by_turn: bool,
) -> Iterator[Candidates]:
    """Yield batches of candidates, best first; the caller stops reading when it has enough.

    `enumeration` yields the candidates of trees of one score in their order. `by_turn` tells that it yields
    one candidate per tree in turn, not tree by tree.
    """
    most = int(scores.max(initial=0))
    small = next((kind for kind in _SMALL if most <= np.iinfo(kind).max), np.int64)
    order = np.argsort((-scores).astype(small), kind="stable")
    roots, scores = roots[order], scores[order]
    if len(roots) > maximum and equivalence.are_small(roots[:_PROBED]):
        head = _head(equivalence, roots, scores, maximum, by_turn)
        if head is not None:
            yield head
            return
    yield from _batches(equivalence, roots, scores, maximum, enumeration, by_turn)


def _head(
    equivalence: EquivalenceClasses, roots: Indices, scores: Amounts, maximum: int, by_turn: bool
) -> Candidates | None:
    """Return the first `maximum` candidates from as many trees, None if these do not yield enough.

    This may cut a score in two, but what it leaves of that score is never ahead of what it takes. Of the last
    score only the first candidate of each tree counts, and the trees are in order.
    """
    found = _merged(equivalence, roots[:maximum], scores[:maximum], maximum, by_turn, cut=True)
    return found if len(found) >= maximum else None


def _batches(
    equivalence: EquivalenceClasses,
    roots: Indices,
    scores: Amounts,
    maximum: int,
    enumeration: Enumeration,
    by_turn: bool,
) -> Iterator[Candidates]:
    """Yield batches of few trees first, as some yield thousands each, and of more if these yield little.

    A batch splits no score; a score with many trees is a batch of its own.
    """
    ends = np.append(np.flatnonzero(scores[1:] != scores[:-1]) + 1, len(scores))
    start, size, found = 0, _FIRST_BATCH, 0
    while start < len(scores) and found < maximum:
        at = int(np.searchsorted(ends, min(start + size, len(scores))))
        end, previous = int(ends[at]), int(ends[at - 1]) if at else 0
        if end - start > 2 * size and previous > start:
            end = previous
        if scores[start] == scores[end - 1]:
            for batch in enumeration(equivalence, roots[start:end], maximum - found):
                found += len(batch)
                yield batch
        else:
            batch = _merged(equivalence, roots[start:end], scores[start:end], maximum - found, by_turn)
            found += len(batch)
            yield batch
        start = end
        size = min(_GROWTH * size, max(_FIRST_BATCH, start * (maximum - found) // max(1, found)))


def _merged(
    equivalence: EquivalenceClasses,
    roots: Indices,
    scores: Amounts,
    maximum: int,
    by_turn: bool,
    *,
    cut: bool = False,
) -> Candidates:
    """Return the first `maximum` candidates (or a few more) of trees of different scores.

    `cut`: trees of the last score are missing, so only what surely precedes their candidates is taken.
    """
    found: list[tuple[EquivalenceClass, list[Solution]]] = []
    counts = np.zeros(len(roots), np.int64)
    for trees in equivalence.of(roots):
        solved = list(islice(solutions(trees.problem, equivalence.budget), maximum))
        counts[trees.ranks] = len(solved)
        found.append((trees, solved))
    if counts.max(initial=0) <= 1:
        return _one_each(found, len(roots))
    # Tree by tree is as if every tree had a score of its own.
    levels = np.cumsum(np.append(0, scores[1:] != scores[:-1])) if by_turn else np.arange(len(roots))
    if cut and by_turn:
        last = levels == levels[-1]
        counts[last] = np.minimum(counts[last], 1)
    wanted = _wanted(counts, levels, maximum)
    turns = int(wanted.max(initial=0))
    tables: list[Candidates] = []
    keys: list[Amounts] = []
    for trees, solved in found:
        # One number for all trees, cut afterwards: a few candidates too many cost less than picking.
        number = int(wanted[trees.ranks].max())
        if number:
            positions = np.array(solved[:number], np.intp)
            ranks = np.repeat(trees.ranks.astype(np.int64), number)
            turn = np.tile(np.arange(number), len(trees.ranks))
            kept = turn < wanted[ranks]
            table = trees.providers[:, positions].reshape(-1, positions.shape[1])
            tables.append(table if kept.all() else table[kept])
            keys.append(((levels[ranks] * turns + turn) * len(roots) + ranks)[kept])
    if not tables:
        return np.empty(0, np.int32)
    ordered: Candidates = np.concatenate(tables)[np.argsort(np.concatenate(keys))]
    return ordered


def _one_each(found: Sequence[tuple[EquivalenceClass, list[Solution]]], count: int) -> Candidates:
    """Return the only candidate of each tree that has one, in order of the trees."""
    firsts = [(trees, np.array(solved[0], np.intp)) for trees, solved in found if solved]
    if not firsts:
        return np.empty(0, np.int32)
    if len(firsts) == 1:
        # Like trees come in order of their ranks.
        trees, positions = firsts[0]
        return trees.providers[:, positions]
    table = np.full((count, len(firsts[0][1])), -1, np.int32)
    for trees, positions in firsts:
        table[trees.ranks] = trees.providers[:, positions]
    return table[table[:, 0] >= 0]


def _wanted(counts: Amounts, levels: Amounts, maximum: int) -> Amounts:
    """Return how many candidates of each tree can be among the first `maximum`."""
    before = np.cumsum(counts) - counts
    wanted = counts.copy()
    # Trees before a level come before all trees of the level.
    first_of_level = np.searchsorted(levels, levels)
    wanted[before[first_of_level] >= maximum] = 0
    last = levels == levels[wanted > 0].max(initial=0)
    left = maximum - int(before[first_of_level[last]].min(initial=0))
    wanted[last] = np.minimum(wanted[last], _turns(counts[last], left))
    return wanted


def _turns(counts: Amounts, left: int) -> int:
    """Return the fewest turns in which trees with so many candidates yield `left` of them."""
    low, high = 0, int(counts.max(initial=0))
    while low < high:
        middle = (low + high) // 2
        if int(np.minimum(counts, middle).sum()) >= left:
            high = middle
        else:
            low = middle + 1
    return low
