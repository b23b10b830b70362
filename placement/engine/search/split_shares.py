"""The providers that give the parts of split amounts, worked out again for the candidates of an answer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placement.engine.forest.arrays import Indices, Rows
from placement.engine.forest.forest import Forest
from placement.engine.search.distribution import distribute
from placement.engine.search.equivalence import EquivalenceClasses
from placement.engine.search.problem import Solution
from placement.engine.search.query import Slot

SplitShares = dict[int, dict[int, int]]
"""Slot -> row of a provider -> amount it gives, providers by id."""


def shares_of(
    forest: Forest, equivalence: EquivalenceClasses, slots: Sequence[Slot], candidates: Indices
) -> list[SplitShares]:
    """Return the shares of each candidate. Raises SearchEnded."""
    if not len(candidates):
        return []
    shares: list[SplitShares] = [{} for _ in range(len(candidates))]
    split = [number for number, slot in enumerate(slots) if slot.rule]
    roots, tree_of = np.unique(forest.providers.root[candidates[:, split[0]]], return_inverse=True)
    places = _places_of_trees(tree_of, len(roots))
    for trees in equivalence.of(roots.astype(np.int32)):
        splitting = trees.problem.splitting
        assert splitting is not None
        known: dict[Solution, list[dict[int, int]] | None] = {}
        for rank, rows in zip(trees.ranks.tolist(), trees.providers.tolist(), strict=True):
            for place in places[rank]:
                candidate = enumerate(candidates[place].tolist())
                solution = tuple(0 if slot in split else rows.index(row) for slot, row in candidate)
                if solution not in known:
                    known[solution] = distribute(splitting, solution, equivalence.budget)
                parts = known[solution]
                assert parts is not None
                shares[place] = {
                    slot: {rows[position]: amount for position, amount in each.items()}
                    for slot, each in zip(split, parts, strict=True)
                }
    return shares


def _places_of_trees(tree_of: Rows, count: int) -> list[list[int]]:
    """Return the places of the candidates of each tree."""
    places: list[list[int]] = [[] for _ in range(count)]
    for place, tree in enumerate(tree_of.ravel().tolist()):
        places[tree].append(place)
    return places
