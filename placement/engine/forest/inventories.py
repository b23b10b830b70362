"""All inventories of one resource class, as columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from placement.engine.forest import arrays
from placement.engine.forest.providers import LARGEST_RATIO, MILLION, InventoryRow, NumberColumn


class InventoryColumn:
    """A column with an entry per inventory of the class, and the entry of each provider row (-1: none)."""

    def __init__(self) -> None:
        self.entries = InventoryEntries()
        self.offers = CapacityColumns()
        # Entry -1 stands for "none" and is masked out, but must exist, because it is read.
        self.entries.ensure(1)
        self.offers.ensure(1)
        self._entry_of = EntryOf()
        self._count = 0
        # Never altered in place: snapshots share it.
        self._vacant: list[int] = []
        # Few classes use units; the filter skips comparisons that cannot matter.
        self._uses_min = self._uses_max = self._uses_step = False
        # Whether every entry has the number of its provider, as in a cloud where all hosts have the class.
        self._aligned = True

    def frozen(self, providers: int) -> InventoryColumn:
        """Return the column as it is now, for `providers` rows of the forest: none alters the other."""
        self.reach(providers)
        twin = arrays.twin_of(self)
        twin.entries, twin._entry_of = self.entries.frozen(), self._entry_of.frozen()
        twin.offers = self.offers.frozen()
        return twin

    def reoffer(self, providers: arrays.Rows, ratio: float | None, reserved: int | None) -> None:
        """Set another ratio or reserved amount of existing inventories.

        Source: placement-api.md, "Inventories".
        """
        at = self.entries_of(providers)
        at = at[at >= 0]
        entries, offers = self.entries, self.offers
        entries.own()
        offers.own()
        if ratio is not None:
            offers.ratio[at] = ratio
        if reserved is not None:
            offers.reserved[at] = reserved
        # The columns hold 32-bit ratios; rounding restores the digits that were written.
        exact = np.round(offers.ratio[at].astype(np.float64), 6) if ratio is None else ratio
        entries.capacity_of[at] = whole((offers.total[at].astype(np.float64) - offers.reserved[at]) * exact)
        entries.free[at] = entries.capacity_of[at] - entries.used[at]
        self._uses_max |= bool((entries.max_unit[at] < entries.capacity_of[at]).any())

    def repeat(self, source: arrays.Rows, rows: arrays.Rows) -> None:
        """Give new providers unused inventories that equal the inventories of the sources."""
        self.reach(int(rows[-1]) + 1)
        at = self.entries_of(source)
        offered = at >= 0
        at, rows = at[offered], rows[offered]
        new = np.arange(self._count, self._count + len(rows))
        self._count += len(rows)
        self._entry_of.own()
        for columns in (self.entries, self.offers):
            columns.ensure(self._count)
            columns.own()
            columns.copy_rows(at, new)
        entries = self.entries
        entries.provider[new] = rows
        entries.used[new] = 0
        entries.free[new] = entries.capacity_of[new]
        self._entry_of.entry[rows] = new
        self._aligned &= bool((new == rows).all())

    def empty(self) -> None:
        """Set all usage to 0."""
        at, entries = self.occupied(), self.entries
        entries.own()
        entries.used[at] = 0
        entries.free[at] = entries.capacity_of[at]

    def cut(self, providers: arrays.Rows) -> None:
        """Remove the inventories of these providers."""
        at = self.entries_of(providers)
        providers, at = providers[at >= 0], at[at >= 0]
        if not len(at):
            return
        self._entry_of.own()
        self.entries.own()
        self._entry_of.entry[providers] = -1
        self.entries.provider[at] = -1
        self.entries.free[at] = -arrays.HUGE
        self._vacant = [*self._vacant, *at.tolist()]

    def unshare(self) -> None:
        """Note that no snapshot is in use, so that writing need not copy."""
        self.entries.is_shared = self._entry_of.is_shared = self.offers.is_shared = False

    def reach(self, providers: int) -> None:
        """Make room for `providers` rows, so that looking for any of these changes nothing."""
        self._entry_of.ensure(providers)

    def put(self, provider: int, row: InventoryRow) -> None:
        """Insert or replace the inventory of one provider."""
        entry, entries = self.entry_of(provider), self.entries
        if entry < 0:
            entry = int(self._entries_for(np.array([provider]))[0])
        entries.own()
        capacity = max(-arrays.HUGE, min(row.capacity, arrays.HUGE))
        entries.provider[entry] = provider
        entries.capacity_of[entry] = capacity
        entries.used[entry] = row.used
        entries.free[entry] = capacity - row.used
        offers, offer = self.offers, (row.total, row.reserved, np.float32(row.ratio_millionths / MILLION))
        # Seldom: writing may copy columns that a snapshot shares.
        if (offers.total[entry], offers.reserved[entry], offers.ratio[entry]) != offer:
            offers.own()
            offers.total[entry], offers.reserved[entry], offers.ratio[entry] = offer
        entries.min_unit[entry] = row.min_unit
        entries.max_unit[entry] = row.max_unit
        entries.step_size[entry] = row.step_size
        self._uses_min |= row.min_unit > 1
        self._uses_max |= row.max_unit < capacity
        self._uses_step |= row.step_size > 1

    def put_all(self, providers: arrays.Rows, offered: OfferedColumns) -> None:
        """Insert or replace the inventories of many distinct providers, as `put` does for one."""
        if not len(providers):
            return
        at, entries = self._entries_for(providers), self.entries
        entries.provider[at] = providers
        entries.capacity_of[at] = offered.capacity
        entries.used[at] = offered.used
        entries.free[at] = offered.capacity - offered.used
        entries.min_unit[at] = offered.min_unit
        entries.max_unit[at] = offered.max_unit
        entries.step_size[at] = offered.step_size
        self._uses_min |= bool((offered.min_unit > 1).any())
        self._uses_max |= bool((offered.max_unit < offered.capacity).any())
        self._uses_step |= bool((offered.step_size > 1).any())
        offers = self.offers
        ratio = offered.ratio.astype(np.float32)
        given = ((offers.total, offered.total), (offers.reserved, offered.reserved), (offers.ratio, ratio))
        # Seldom: writing may copy columns that a snapshot shares.
        if any((column[at] != values).any() for column, values in given):
            offers.own()
            offers.total[at], offers.reserved[at], offers.ratio[at] = offered.total, offered.reserved, ratio

    def use_all(self, providers: arrays.Rows, used: arrays.Amounts) -> None:
        """Set the usage of the inventories, which must exist, of many distinct providers."""
        at, entries = self.entries_of(providers), self.entries
        entries.own()
        entries.used[at] = used
        entries.free[at] = entries.capacity_of[at] - used

    def _entries_for(self, providers: arrays.Rows) -> arrays.Indices:
        """Return the entries of providers for writing; create missing ones."""
        at = self.entries_of(providers)
        self.entries.own()
        new = np.flatnonzero(at < 0)
        if len(new):
            kept = max(len(self._vacant) - len(new), 0)
            reused, self._vacant = self._vacant[kept:], self._vacant[:kept]
            last = self._count + len(new) - len(reused)
            at[new] = np.concatenate([np.array(reused, np.intp), np.arange(self._count, last)])
            self._count = last
            self.entries.ensure(self._count)
            self.offers.ensure(self._count)
            self._entry_of.own()
            self._entry_of.entry[providers[new]] = at[new]
            self._aligned &= bool((at[new] == providers[new]).all())
        return at

    def take(self, provider: int, amount: int) -> None:
        """Add an amount to the use of the inventory of a provider, which must exist."""
        entries, entry = self.entries, self._entry_of.entry[provider]
        entries.own()
        entries.used[entry] += amount
        entries.free[entry] -= amount

    @property
    def bytes(self) -> int:
        """The memory of the columns."""
        return self.entries.bytes + self.offers.bytes + self._entry_of.bytes

    def drop(self, provider: int) -> None:
        """Forget the inventory of one provider, if any."""
        if self.entry_of(provider) >= 0:
            self.cut(np.array([provider]))

    def entry_of(self, provider: int) -> int:
        """Return the entry of one provider, -1 if it has no inventory of the class."""
        return int(self._entry_of.entry[provider]) if provider < self._entry_of.capacity else -1

    def entries_of(self, providers: arrays.Indices | arrays.Rows) -> arrays.Indices:
        """Return the entries of many providers, -1 without an inventory."""
        self._entry_of.ensure(int(providers.max()) + 1 if len(providers) else 0)
        return self._entry_of.entry[providers]

    def fitting(self, amount: int) -> arrays.Rows:
        """Return the providers that can take one allocation of `amount` now.

        Source: placement-api.md, "When does an allocation fit".
        """
        chosen = np.flatnonzero(self._fitting_entries(amount))
        return chosen if self._aligned else self.entries.provider[chosen].astype(np.intp)

    def fitting_flags(self, amount: int, providers: int) -> arrays.Mask:
        """Return the providers of `fitting` as a flag for each of the `providers` rows of the forest."""
        fits = self._fitting_entries(amount)
        if self._aligned and len(fits) == providers:
            return fits
        flags = np.zeros(providers, bool)
        flags[self.entries.provider[: self._count][fits]] = True
        return flags

    def _fitting_entries(self, amount: int) -> arrays.Mask:
        """Return the mask of the entries that can take one allocation of `amount` now."""
        fits: arrays.Mask = self.entries.free[: self._count] >= amount
        self._keep_admitting(fits, np.s_[: self._count], amount)
        return fits

    def among_fitting(self, providers: arrays.Rows, amount: int) -> arrays.Mask:
        """Return the mask of the providers that can take one allocation of `amount` now."""
        at = self.entries_of(providers)
        fits: arrays.Mask = (at >= 0) & (self.entries.free[at] >= amount)
        self._keep_admitting(fits, at, amount)
        return fits

    def _keep_admitting(self, fits: arrays.Mask, at: slice | arrays.Indices, amount: int) -> None:
        entries = self.entries
        if self._uses_min:
            fits &= entries.min_unit[at] <= amount
        if self._uses_max:
            fits &= entries.max_unit[at] >= amount
        if self._uses_step:
            fits &= amount % entries.step_size[at].astype(np.int64) == 0

    def free_of(self, providers: arrays.Indices | arrays.Rows) -> arrays.Amounts:
        """Return the amount free at each provider, below 0 if it is overfull; 0 without an inventory."""
        at = self.entries_of(providers)
        return np.where(at >= 0, self.entries.free[at], 0)

    def admits(self, provider: int, amounts: Sequence[int]) -> bool:
        """Return whether the units of one provider allow these amounts of one consumer, whatever is left."""
        at = self.entry_of(provider)
        entries = self.entries
        return sum(amounts) <= entries.max_unit[at] and all(
            entries.min_unit[at] <= amount and amount % int(entries.step_size[at]) == 0 for amount in amounts
        )

    def headroom(self, providers: arrays.Indices | arrays.Rows) -> arrays.Amounts:
        """Return the sum that each provider can give one consumer: free, at most max_unit; 0 if none."""
        at = self.entries_of(providers)
        headroom = np.minimum(self.entries.free[at], self.entries.max_unit[at])
        return np.where(at >= 0, headroom, 0)

    def most(self, providers: arrays.Indices | arrays.Rows) -> arrays.Amounts:
        """Return how much one consumer may take from each provider in sum, regardless of use; 0 if none."""
        at = self.entries_of(providers)
        return np.where(at >= 0, self.entries.max_unit[at], 0).astype(np.int64)

    def parts(
        self, providers: arrays.Indices | arrays.Rows
    ) -> tuple[arrays.Amounts, arrays.Amounts, arrays.Amounts, arrays.Amounts]:
        """Return the limits of each provider for a split amount: `headroom`, min_unit, step_size, whole.

        `whole` is the capacity if it is unused and one consumer may have all of it, else 0.
        """
        at, entries = self.entries_of(providers), self.entries
        unused = (at >= 0) & (entries.used[at] == 0) & (entries.max_unit[at] >= entries.capacity_of[at])
        whole = np.where(unused, entries.capacity_of[at], 0)
        least, step = (units[at].astype(np.int64) for units in (entries.min_unit, entries.step_size))
        return self.headroom(providers), least, step, whole

    @property
    def count(self) -> int:
        """How many inventories there are."""
        return self._count - len(self._vacant)

    @property
    def held(self) -> slice | arrays.Rows:
        """The entries that hold an inventory, as an index that costs nothing where it can."""
        return self.occupied() if self._vacant else np.s_[: self._count]

    def occupied(self) -> arrays.Rows:
        """Return the entries that hold an inventory."""
        return np.flatnonzero(self.entries.provider[: self._count] >= 0)


class InventoryEntries(arrays.Columns):
    """The columns that searches read of each entry, and the provider of the entry."""

    provider: arrays.Indices = arrays.column_of(np.int32, -1)
    capacity_of: arrays.Amounts = arrays.column_of(np.int64, 0)
    used: arrays.Amounts = arrays.column_of(np.int64, 0)
    free: arrays.Amounts = arrays.column_of(np.int64, -arrays.HUGE)
    min_unit: arrays.Indices = arrays.column_of(np.int32, 1)
    max_unit: arrays.Indices = arrays.column_of(np.int32, 1)
    step_size: arrays.Indices = arrays.column_of(np.int32, 1)


class CapacityColumns(arrays.Columns):
    """Columns that make the capacity of each entry; searches do not read and usage does not change them."""

    total: arrays.Indices = arrays.column_of(np.int32, 0)
    reserved: arrays.Indices = arrays.column_of(np.int32, 0)
    ratio: arrays.Ratios = arrays.column_of(np.float32, 1.0)


class OfferedColumns(NamedTuple):
    """Columns of many inventories of one class, in the order of `InventoryRow`."""

    capacity: arrays.Amounts
    min_unit: arrays.Amounts
    max_unit: arrays.Amounts
    step_size: arrays.Amounts
    used: arrays.Amounts
    total: arrays.Amounts
    reserved: arrays.Amounts
    ratio: arrays.Floats


def by_class(
    inventories: Sequence[NumberColumn],
) -> Iterator[tuple[int, arrays.Amounts, OfferedColumns]]:
    """Yield each class, the ids of its providers and their offers, from columns as of `ProviderStates`."""
    provider, classes, total, reserved, *units_and_used, full_ratio = map(np.asarray, inventories)
    capacity = whole((total - reserved) * full_ratio)
    ratio = np.rint(np.minimum(full_ratio, LARGEST_RATIO) * MILLION) / MILLION
    columns = (capacity, *units_and_used, total, reserved, ratio)
    for class_id in np.unique(classes).tolist():
        of_class = classes == class_id
        yield class_id, provider[of_class], OfferedColumns(*(column[of_class] for column in columns))


def whole(offered: arrays.Floats) -> arrays.Amounts:
    """Return capacities, cut as in engine.domain.inventories and within the range of columns."""
    return np.clip(np.trunc(offered), -arrays.HUGE, arrays.HUGE).astype(np.int64)


class EntryOf(arrays.Columns):
    """A column with the entry of each provider."""

    entry: arrays.Indices = arrays.column_of(np.int32, -1)


class Draw(NamedTuple):
    """A part of a candidate that one inventory gives: the row of the provider, the class, the amount."""

    row: int
    class_id: int
    amount: int
