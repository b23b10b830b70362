"""Candidates best first, tree by tree, where all candidates of a tree have one score.

They are the candidates of the unordered enumeration, in its order among equal scores. Trees are taken in
descending order of their scores. So the first candidates are the ones that sorting all of them would put
first.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from placement.engine.forest.arrays import Amounts, Indices
from placement.engine.search.enumeration import Candidates, breadth_first, depth_first
from placement.engine.search.equivalence import EquivalenceClass, EquivalenceClasses
from placement.engine.search.problem import Solution
from placement.engine.search.solver import solutions

_PROBED = 4


_FIRST_BATCH, _ENUMERATION_GROWTH = 4, 8


# Numpy sorts small integers in linear time, one pass per byte; a score of one strategy is one byte.
_SMALL = (np.int8, np.int16)


def best_first(
    equivalence: EquivalenceClasses, roots: Indices, scores: Amounts, maximum: int, *, by_turn: bool
) -> Iterator[Candidates]:
    """Yield batches of candidates, best first; the caller stops reading when it has enough.

    `by_turn`: trees of one score yield one candidate in turn, not tree by tree.
    """
    most = int(scores.max(initial=0))
    small = next((kind for kind in _SMALL if most <= np.iinfo(kind).max), np.int64)
    order = np.argsort((-scores).astype(small), kind="stable")
    roots, scores = roots[order], scores[order]
    if len(roots) > maximum and equivalence.are_small(roots[:_PROBED]):
        # As many trees may be enough. They may cut a score in two, but what that leaves of the score is never
        # ahead of what is taken: of the last score only the first candidate of each tree counts, in order.
        head = _merged(equivalence, roots[:maximum], scores[:maximum], maximum, by_turn, cut=True)
        if len(head) >= maximum:
            yield head
            return
    # Few trees first, as some yield thousands each, and more if these yield little. A batch splits no score;
    # a score with many trees is a batch of its own.
    enumeration = breadth_first if by_turn else depth_first
    ends = np.append(np.flatnonzero(scores[1:] != scores[:-1]) + 1, len(scores))
    start, size, found = 0, _FIRST_BATCH, 0
    while start < len(scores) and found < maximum:
        at = int(np.searchsorted(ends, min(start + size, len(scores))))
        end, previous = int(ends[at]), int(ends[at - 1]) if at else 0
        if end - start > 2 * size and previous > start:
            end = previous
        wanted = maximum - found
        if scores[start] == scores[end - 1]:
            batches = enumeration(equivalence, roots[start:end], wanted)
        else:
            batches = iter([_merged(equivalence, roots[start:end], scores[start:end], wanted, by_turn)])
        for batch in batches:
            found += len(batch)
            yield batch
        start = end
        size = min(_ENUMERATION_GROWTH * size, max(_FIRST_BATCH, start * (maximum - found) // max(1, found)))


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

    `cut`: trees of the last score are missing, so only candidates before all of theirs are taken.
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
    # The fewest turns in which these trees yield what is left.
    turns = range(int(counts[last].max(initial=0)))
    enough = bisect_left(turns, left, key=lambda turn: int(np.minimum(counts[last], turn).sum()))
    wanted[last] = np.minimum(wanted[last], enough)
    return wanted
