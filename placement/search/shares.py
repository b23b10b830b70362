"""Which providers give the parts of what is split: worked out again for the candidates of an answer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from placement.forest.arrays import Indices
from placement.forest.forest import Forest
from placement.search.distribution import distribute
from placement.search.equivalence import EquivalenceClass, EquivalenceClasses
from placement.search.problem import Solution
from placement.search.query import Slot

Shares = dict[int, dict[int, int]]
"""Slot -> row of a provider -> amount it gives, providers by id."""


def shares_of(
    forest: Forest, equivalence: EquivalenceClasses, slots: Sequence[Slot], candidates: Indices
) -> list[Shares]:
    """The shares of each candidate. Raises SearchEnded."""
    if not len(candidates):
        return []
    found: list[Shares] = [{} for _ in range(len(candidates))]
    split = next(number for number, slot in enumerate(slots) if slot.rule)
    roots, tree_of = np.unique(forest.providers.root[candidates[:, split]], return_inverse=True)
    places: list[list[int]] = [[] for _ in roots]
    for place, tree in enumerate(tree_of.ravel().tolist()):
        places[tree].append(place)
    for trees in equivalence.of(roots.astype(np.int32)):
        class_shares = _ClassShares(trees, equivalence)
        for at, rank in enumerate(trees.ranks.tolist()):
            rows = trees.providers[at].tolist()
            for place in places[rank]:
                found[place] = class_shares.of(rows, candidates[place].tolist())
    return found


class _ClassShares:
    """The shares of candidates at trees that pose one problem: worked out once per solution."""

    def __init__(self, trees: EquivalenceClass, equivalence: EquivalenceClasses) -> None:
        assert trees.problem.splitting is not None
        self._splitting = trees.problem.splitting
        self._budget = equivalence.budget
        self._known: dict[Solution, list[dict[int, int]]] = {}
        self._split = {split.slot for split in self._splitting.splits}

    def of(self, rows: list[int], candidate: list[int]) -> Shares:
        """The shares of a candidate, `rows` being the providers that matter of its tree."""
        solution = tuple(self._positions(rows, candidate))
        if solution not in self._known:
            found = distribute(self._splitting, solution, self._budget)
            assert found is not None
            self._known[solution] = found
        return {
            split.slot: {rows[position]: amount for position, amount in parts.items()}
            for split, parts in zip(self._splitting.splits, self._known[solution], strict=True)
        }

    def _positions(self, rows: list[int], candidate: list[int]) -> Iterator[int]:
        for slot, row in enumerate(candidate):
            yield 0 if slot in self._split else rows.index(row)
