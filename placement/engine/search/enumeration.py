"""The last stage of a search: candidates tree by tree, lazily, so that none is built beyond the limit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from placement.engine.forest.arrays import Indices
from placement.engine.search.equivalence import EquivalenceClass, EquivalenceClasses
from placement.engine.search.problem import Solution
from placement.engine.search.solver import solutions

SMALLEST_CHUNK = 512


Candidates = NDArray[np.int32]


_Pending = tuple[int, EquivalenceClass, Iterator[Solution]]
"""The rank of the first root of a chunk, like trees of the chunk, and their solutions still to come."""


def breadth_first(
    equivalence: EquivalenceClasses, roots: Indices, maximum: int, *, one_each: bool = False
) -> Iterator[Candidates]:
    """Yield one candidate per root in turn, or `one_each` only; roots beyond the limit are not looked at."""
    pending: list[_Pending] = []
    chunk = max(SMALLEST_CHUNK, min(maximum, len(roots)))
    for start in range(0, len(roots), chunk):
        batch, left = _round(
            [
                (start, trees, solutions(trees.problem, equivalence.budget))
                for trees in equivalence.of(roots[start : start + chunk])
            ],
            1,
        )
        yield batch
        pending += left
    rounds = 1
    while pending and not one_each:
        batch, pending = _round(pending, rounds)
        yield batch
        alive = sum(len(trees.ranks) for _, trees, _ in pending)
        rounds = max(1, min(2 * rounds, maximum // max(1, alive)))


def _round(pending: Sequence[_Pending], rounds: int) -> tuple[Candidates, list[_Pending]]:
    """Return the next `rounds` candidates of every root, and the chunks that may have more.

    All first candidates come by root, then all second ones.
    """
    taken = [(start, trees, list(islice(source, rounds))) for start, trees, source in pending]
    left = [each for each, (*_, found) in zip(pending, taken, strict=True) if len(found) == rounds]
    taken = [each for each in taken if each[2]]
    if not taken:
        return np.empty(0, np.int32), left
    tables = [
        trees.providers[:, np.array(found, np.intp)].reshape(-1, len(found[0])) for _, trees, found in taken
    ]
    if len(tables) == 1 and rounds == 1:
        return tables[0], left
    keys = []
    for start, trees, found in taken:
        turn = np.tile(np.arange(len(found), dtype=np.int64), len(trees.ranks))
        rank = np.repeat(trees.ranks.astype(np.int64) + start, len(found))
        keys.append(turn << 40 | rank)
    return np.concatenate(tables)[np.argsort(np.concatenate(keys))], left


def depth_first(equivalence: EquivalenceClasses, roots: Indices, maximum: int) -> Iterator[Candidates]:
    """Yield all candidates of one root before the next."""
    for start in range(0, len(roots), SMALLEST_CHUNK):
        chunk = roots[start : start + SMALLEST_CHUNK]
        places = [
            (rank, at, trees)
            for trees in equivalence.of(chunk)
            for at, rank in enumerate(trees.ranks.tolist())
        ]
        for _, at, trees in sorted(places, key=itemgetter(0)):
            found = list(islice(solutions(trees.problem, equivalence.budget), maximum))
            if found:
                yield trees.providers[at][np.array(found, np.intp)]
