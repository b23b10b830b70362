"""Hosts as scoring sees them: capacity and use summed over the providers that make up a host.

A host is the provider tree of a candidate, with the sharing providers of other trees that it draws on. In the
scope `allocated` it is, per class, only the providers that the candidate takes that class from.
Source: scoring.md, "A host in Placement terms".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from placement.engine.forest.arrays import Amounts, Indices, Mask, Rows
from placement.engine.forest.forest import Forest
from placement.engine.forest.inventories import InventoryColumn
from placement.engine.scoring.order import Scope
from placement.engine.search.query import Slot

NO_TREE = -1
# Sums below this can be multiplied by 100 in 64 bits.
_SAFE = 2**62 // 100


class ClassSums(NamedTuple):
    """A table that has per class name one amount per host, in units of the class."""

    capacity: dict[str, Amounts]
    used: dict[str, Amounts]

    @property
    def columns(self) -> dict[str, tuple[Amounts, Amounts]]:
        """Return per class name what is in use and the capacity, as scores are computed from them."""
        return {name: (used, self.capacity[name]) for name, used in self.used.items()}


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
        self._shares = bool(sharers.any())
        self._names = names
        self._columns = {name: forest.inventories.get(ids.get(name, -1)) for name in names}
        self._ids = ids
        self._drawing = [number for number, slot in enumerate(slots) if slot.resources]

    def of_trees(self, roots: Indices | Rows) -> ClassSums:
        """Return the sums of whole trees."""
        sums = ClassSums({}, {})
        # Converted once, for numpy would do it for each column.
        roots = roots.astype(np.intp)
        sizes = self._forest.providers.tree_size
        flat = self._forest.is_flat or int(sizes[roots].max(initial=0)) <= 1
        for name in self._names:
            column = self._columns[name]
            if column is None:
                capacity = used = np.zeros(len(roots), np.int64)
            elif flat:
                capacity, used = _of_providers(column, roots)
            else:
                capacity, used = self._of_members(column, roots)
            sums.capacity[name], sums.used[name] = capacity, used
        return sums

    def _of_members(self, column: InventoryColumn, roots: Rows) -> tuple[Amounts, Amounts]:
        occupied = column.occupied()
        tree = self._forest.providers.root[column.entries.provider[occupied]]
        sums = []
        for amounts in (column.entries.capacity_of, column.entries.used):
            taken = _wide_enough(amounts[occupied])
            totals = np.zeros(self._forest.count, taken.dtype)
            np.add.at(totals, tree, taken)
            sums.append(totals[roots])
        return sums[0], sums[1]

    def of_candidates(self, rows: Indices, scope: Scope) -> ClassSums:
        """Return the sums of the host of each candidate; one row per candidate, one column per slot."""
        if scope is Scope.ALLOCATED:
            return self._of_allocated(rows)
        anchors = self.anchors(rows)
        if not self._shares:
            return self.of_trees(anchors)
        homeless = anchors == NO_TREE
        whole = self.of_trees(np.where(homeless, 0, anchors))
        outside = list(self.outside(rows, anchors))
        for sums, kind in ((whole.capacity, "capacity_of"), (whole.used, "used")):
            for name in self._names:
                own = np.where(homeless, 0, sums[name])
                sums[name] = own + self._drawn(name, kind, outside, len(rows)) if outside else own
        return whole

    def _of_allocated(self, rows: Indices) -> ClassSums:
        sums = ClassSums({}, {})
        for name in self._names:
            class_id = self._ids.get(name)
            asking = [n for n in self._drawing if any(id_ == class_id for id_, _ in self._slots[n].resources)]
            taken = list(_first_uses(rows, asking))
            sums.capacity[name] = self._drawn(name, "capacity_of", taken, len(rows))
            sums.used[name] = self._drawn(name, "used", taken, len(rows))
        return sums

    def _drawn(self, name: str, kind: str, uses: Sequence[tuple[Indices, Mask]], count: int) -> Amounts:
        """Return the sum of what the used providers have of a class, per candidate."""
        column = self._columns[name]
        total: Amounts = np.zeros(count, np.int64)
        if column is None:
            return total
        for providers, counts in uses:
            at = column.entries_of(providers)
            amounts = np.where(counts & (at >= 0), getattr(column.entries, kind)[at], 0)
            total = total + _wide_enough(amounts)
        return total

    def anchors(self, rows: Indices) -> Indices:
        """Return the root of each candidate's tree, NO_TREE where there is none."""
        return anchors_of(self._forest, self._sharers, rows)

    def outside(self, rows: Indices, anchors: Indices) -> Iterator[tuple[Indices, Mask]]:
        """Yield the providers that candidates draw on beyond their tree, and where each is counted."""
        if not self._shares:
            return
        for providers, counts in _first_uses(rows, self._drawing):
            yield providers, counts & (self._forest.providers.root[providers] != anchors)

    def drawn(self, rows: Indices) -> Iterator[Indices]:
        """Yield the providers that candidates draw on, slot by slot."""
        for number in self._drawing:
            yield rows[:, number]


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


def _first_uses(rows: Indices, columns: Sequence[int]) -> Iterator[tuple[Indices, Mask]]:
    """Yield some columns of the candidates, each with where its provider has not occurred before."""
    for at, number in enumerate(columns):
        providers = rows[:, number]
        first = np.ones(len(rows), bool)
        for earlier in columns[:at]:
            first &= rows[:, earlier] != providers
        yield providers, first


def _of_providers(column: InventoryColumn, providers: Rows) -> tuple[Amounts, Amounts]:
    """Return capacity and use of each provider alone, 0 where it has no inventory of the class."""
    at = column.entries_of(providers)
    capacity, used = column.entries.capacity_of.take(at), column.entries.used.take(at)
    absent = at < 0
    if absent.any():
        capacity[absent] = used[absent] = 0
    return capacity, used


def _wide_enough(amounts: Amounts) -> Amounts:
    """Return the amounts, as integers of any length if a hundred times their sum could exceed 64 bits."""
    if len(amounts) and int(np.abs(amounts).max()) > _SAFE // len(amounts):
        return amounts.astype(object)
    return amounts
