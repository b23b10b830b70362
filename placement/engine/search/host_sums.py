"""Hosts as scoring sees them: capacity and use, summed over the providers that make up a host.

A host is the provider tree of a candidate, with the sharing providers of other trees that it draws on. In
the scope `allocated` it is, per class, only the providers that the candidate takes that class from.
Source: scoring.md, "A host in Placement terms".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from placement.engine.forest.arrays import Amounts, Indices, Mask, Rows
from placement.engine.forest.forest import Forest
from placement.engine.scoring.order import Scope
from placement.engine.scoring.rule import SAFE
from placement.engine.search.query import Slot

NO_TREE = -1


ClassSums = dict[str, tuple[Amounts, Amounts]]
"""Per class name what is in use and the capacity, one amount per host, in units of the class."""


class HostSums:
    """A calculator that sums the listed classes for any trees or candidates of one query.

    `ids` has the listed classes that exist; `sharers` flags the sharing providers.
    """

    def __init__(
        self,
        forest: Forest,
        slots: Sequence[Slot],
        sharers: Mask,
        names: Sequence[str],
        ids: Mapping[str, int],
    ) -> None:
        self._forest = forest
        self._slots = slots
        self._sharers = sharers
        self._columns = {name: forest.inventories.get(ids.get(name, -1)) for name in names}
        self._ids = ids
        self.drawing = [number for number, slot in enumerate(slots) if slot.resources]
        """The slots that draw on their providers."""

    def of_trees(self, roots: Indices | Rows) -> ClassSums:
        """Return the sums of whole trees."""
        sums: ClassSums = {}
        # Converted once, for numpy would do it for each column.
        roots = roots.astype(np.intp)
        sizes = self._forest.providers.tree_size
        flat = self._forest.is_flat or int(sizes[roots].max(initial=0)) <= 1
        for name, column in self._columns.items():
            if column is None:
                used = capacity = np.zeros(len(roots), np.int64)
            elif flat:
                at = column.entries_of(roots)
                used, capacity = column.entries.used.take(at), column.entries.capacity_of.take(at)
                absent = at < 0
                if absent.any():
                    capacity[absent] = used[absent] = 0
            else:
                occupied = column.occupied()
                tree = self._forest.providers.root[column.entries.provider[occupied]]
                used = self._summed(column.entries.used[occupied], tree)[roots]
                capacity = self._summed(column.entries.capacity_of[occupied], tree)[roots]
            sums[name] = used, capacity
        return sums

    def _summed(self, amounts: Amounts, rows: Indices) -> Amounts:
        """Return the sums by row of the forest."""
        amounts = _wide_enough(amounts)
        totals = np.zeros(self._forest.count, amounts.dtype)
        np.add.at(totals, rows, amounts)
        return totals

    def of_candidates(self, rows: Indices, scope: Scope) -> ClassSums:
        """Return the sums of the host of each candidate; one row per candidate, one column per slot."""
        if scope is Scope.ALLOCATED:
            asked = [{class_id for class_id, _ in slot.resources} for slot in self._slots]
            sums: ClassSums = {}
            for name in self._columns:
                asking = [number for number in self.drawing if self._ids.get(name) in asked[number]]
                sums[name] = self._drawn(name, list(first_uses(rows, asking)), len(rows))
            return sums
        anchors = anchors_of(self._forest, self._sharers, rows)
        if not self._sharers.any():
            return self.of_trees(anchors)
        # What candidates draw on beyond their tree counts, too.
        outside = [
            (providers, counts & (self._forest.providers.root[providers] != anchors))
            for providers, counts in first_uses(rows, self.drawing)
        ]
        homeless = anchors == NO_TREE
        sums = self.of_trees(np.where(homeless, 0, anchors))
        for name, (used, capacity) in sums.items():
            used_outside, capacity_outside = self._drawn(name, outside, len(rows))
            used, capacity = np.where(homeless, 0, used), np.where(homeless, 0, capacity)
            sums[name] = used + used_outside, capacity + capacity_outside
        return sums

    def _drawn(self, name: str, uses: Sequence[tuple[Indices, Mask]], count: int) -> tuple[Amounts, Amounts]:
        """Return use and capacity of a class, summed over the providers that each candidate uses."""
        column = self._columns[name]
        used: Amounts = np.zeros(count, np.int64)
        capacity: Amounts = np.zeros(count, np.int64)
        if column is None:
            return used, capacity
        for providers, counts in uses:
            at = column.entries_of(providers)
            counted = counts & (at >= 0)
            used = used + _wide_enough(np.where(counted, column.entries.used[at], 0))
            capacity = capacity + _wide_enough(np.where(counted, column.entries.capacity_of[at], 0))
        return used, capacity


def anchors_of(forest: Forest, sharers: Mask, rows: Indices) -> Indices:
    """Return the root of each candidate's tree: the root of its providers that do not share.

    If all of them share, it is the root of their common tree; NO_TREE if they are of several.
    """
    if not sharers.any():
        return forest.providers.root[rows[:, 0]]
    roots = forest.providers.root[rows]
    own: Indices = np.where(sharers[rows], NO_TREE, roots).max(axis=1, initial=NO_TREE)
    together = (roots == roots[:, :1]).all(axis=1)
    return np.where(own == NO_TREE, np.where(together, roots[:, 0], NO_TREE), own).astype(np.int32)


def first_uses(rows: Indices, columns: Sequence[int]) -> Iterator[tuple[Indices, Mask]]:
    """Yield some columns of the candidates, each with where its provider has not occurred before."""
    for at, number in enumerate(columns):
        providers = rows[:, number]
        first = np.ones(len(rows), bool)
        for earlier in columns[:at]:
            first &= rows[:, earlier] != providers
        yield providers, first


def _wide_enough(amounts: Amounts) -> Amounts:
    """Return the amounts, as integers of any length if a hundred times their sum could exceed 64 bits."""
    if len(amounts) and int(np.abs(amounts).max()) > SAFE // len(amounts):
        return amounts.astype(object)
    return amounts
