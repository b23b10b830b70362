"""The order of hosts as targets of moves: hosts for a purpose that a request does not have come last.

Among equals the fullest come first, so that what is free stays together. Fewest moves count before either.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable

import numpy as np

from placement.engine.forest.arrays import Amounts, Indices, Rows
from placement.engine.search.simulation import SearchedForest


class Targets:
    """The hosts of a simulated forest in the order in which they are tried as targets."""

    def __init__(self, forest: SearchedForest, common: Collection[int], purpose: Collection[int]) -> None:
        """Take the ids of the classes of any host, and of the traits of hosts for a purpose."""
        self._forest, self._purpose = forest, purpose
        self._devices = sorted(set(forest.inventories) - set(common))
        self._roots_of: dict[tuple[str, int], Rows] = {}
        self._burdens: dict[Hashable, Amounts] = {}

    def burdens(self, classes: Collection[int], traits: Collection[int]) -> Amounts:
        """Return by row how many device classes and purposes a host has beside these that a request names."""
        key = frozenset(classes), frozenset(traits)
        if key not in self._burdens:
            found = np.zeros(self._forest.count, np.int64)
            for class_id in self._devices:
                if class_id not in classes:
                    found[self._offering(class_id)] += 1
            for trait in self._purpose:
                if trait not in traits:
                    found[self._carrying(trait)] += 1
            self._burdens[key] = found
        return self._burdens[key]

    def ordered(self, roots: Collection[int], classes: Collection[int], traits: Collection[int]) -> list[int]:
        """Return hosts, the least burdened first, then the fullest by the classes of the request."""
        rows = np.array(list(roots), np.intp)
        burdens = self.burdens(classes, traits)[rows]
        shares = self._forest.shares(frozenset(classes))[rows]
        found: list[int] = rows[np.lexsort((-shares, burdens))].tolist()
        return found

    def _offering(self, class_id: int) -> Rows:
        """Return the roots of the trees that have some of a class to give, used or not."""
        if ("class", class_id) not in self._roots_of:
            column = self._forest.column(class_id)
            entries, held = column.entries, column.held
            rows = entries.provider[held][entries.capacity_of[held] > 0]
            self._roots_of["class", class_id] = self._roots(rows)
        return self._roots_of["class", class_id]

    def _carrying(self, trait: int) -> Rows:
        """Return the roots of the trees with the trait on some provider."""
        if ("trait", trait) not in self._roots_of:
            rows = self._forest.traits.rows_with((trait,), self._forest.count)
            self._roots_of["trait", trait] = self._roots(rows)
        return self._roots_of["trait", trait]

    def _roots(self, rows: Indices | Rows) -> Rows:
        return np.unique(self._forest.providers.root[rows]).astype(np.intp)
