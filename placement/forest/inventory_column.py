"""All inventories of one resource class, as columns."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np

from placement.forest.arrays import (
    HUGE,
    Amounts,
    Columns,
    Indices,
    Mask,
    Rows,
)
from placement.forest.records import InventoryRow


class _Slots(Columns):
    provider: Indices
    capacity_of: Amounts
    used: Amounts
    free: Amounts
    min_unit: Indices
    max_unit: Indices
    step_size: Indices


class _SlotOf(Columns):
    slot: Indices


class InventoryColumn:
    """One slot per inventory of the class, and from each provider row to its slot (-1: none)."""

    def __init__(self) -> None:
        self.slots = _Slots(
            {
                "provider": (np.int32, -1),
                "capacity_of": (np.int64, 0),
                "used": (np.int64, 0),
                "free": (np.int64, -HUGE),
                "min_unit": (np.int32, 1),
                "max_unit": (np.int32, 1),
                "step_size": (np.int32, 1),
            }
        )
        # Slot -1 stands for "none" and is masked out, but must be there to be looked at.
        self.slots.ensure(1)
        self._slot_of = _SlotOf({"slot": (np.int32, -1)})
        self._count = 0
        self._vacant: list[int] = []
        # Few classes use units; the filter skips the comparisons that cannot matter.
        self._uses_min = self._uses_max = self._uses_step = False
        # Whether every slot has the number of its provider, as in a cloud whose hosts all have the class.
        self._aligned = True

    def load(self, providers: Indices, rows: Amounts) -> None:
        """Start over from parallel arrays.

        The columns of `rows` are the fields of InventoryRow after class_id.
        """
        self.__init__()  # type: ignore[misc]
        count = len(providers)
        self.slots.ensure(count)
        self._count = count
        slots = self.slots
        slots.provider[:count] = providers
        slots.capacity_of[:count] = rows[:, 0]
        slots.min_unit[:count] = rows[:, 1]
        slots.max_unit[:count] = rows[:, 2]
        slots.step_size[:count] = rows[:, 3]
        slots.used[:count] = rows[:, 4]
        slots.free[:count] = slots.capacity_of[:count] - slots.used[:count]
        if count:
            self._slot_of.ensure(int(providers.max()) + 1)
            self._slot_of.slot[providers] = np.arange(count, dtype=np.int32)
        self._aligned = bool((providers == np.arange(count)).all())
        self._uses_min = bool((slots.min_unit[:count] > 1).any())
        self._uses_max = bool((slots.max_unit[:count] < slots.capacity_of[:count]).any())
        self._uses_step = bool((slots.step_size[:count] > 1).any())

    def frozen(self, providers: int) -> InventoryColumn:
        """A view of the column as it is now, for `providers` rows of the forest; it never changes."""
        self.reach(providers)
        twin = copy.copy(self)
        twin.slots, twin._slot_of = self.slots.frozen(), self._slot_of.frozen()
        return twin

    def unshare(self) -> None:
        """Note that no snapshot is in use any more, so that writing need not copy."""
        self.slots.is_shared = self._slot_of.is_shared = False

    def reach(self, providers: int) -> None:
        """Let looking for any of the first `providers` rows change nothing."""
        self._slot_of.ensure(providers)

    def put(self, provider: int, row: InventoryRow) -> None:
        """Insert or replace the inventory of one provider."""
        self._slot_of.ensure(provider + 1)
        slot = int(self._slot_of.slot[provider])
        slots = self.slots
        slots.own()
        if slot < 0:
            if self._vacant:
                slot = self._vacant.pop()
            else:
                slot = self._count
                slots.ensure(slot + 1)
                self._count += 1
            self._slot_of.own()
            self._slot_of.slot[provider] = slot
            self._aligned &= slot == provider
        capacity = max(-HUGE, min(row.capacity, HUGE))
        slots.provider[slot] = provider
        slots.capacity_of[slot] = capacity
        slots.used[slot] = row.used
        slots.free[slot] = capacity - row.used
        slots.min_unit[slot] = row.min_unit
        slots.max_unit[slot] = row.max_unit
        slots.step_size[slot] = row.step_size
        self._uses_min |= row.min_unit > 1
        self._uses_max |= row.max_unit < capacity
        self._uses_step |= row.step_size > 1

    def drop(self, provider: int) -> None:
        """Forget the inventory of one provider, if any."""
        slot = self.slot_of(provider)
        if slot < 0:
            return
        self._slot_of.own()
        self.slots.own()
        self._slot_of.slot[provider] = -1
        self.slots.provider[slot] = -1
        self.slots.free[slot] = -HUGE
        self._vacant.append(slot)

    def slot_of(self, provider: int) -> int:
        """The slot of one provider, -1 if it has no inventory of the class."""
        return int(self._slot_of.slot[provider]) if provider < self._slot_of.capacity else -1

    def slots_of(self, providers: Indices | Rows) -> Indices:
        """The slots of many providers, -1 where there is no inventory."""
        self._slot_of.ensure(int(providers.max()) + 1 if len(providers) else 0)
        return self._slot_of.slot[providers]

    def fitting(self, amount: int) -> Rows:
        """The providers that can take one allocation of `amount` now.

        Source: placement-api.md, "When does an allocation fit".
        """
        slots, count = self.slots, self._count
        fits = slots.free[:count] >= amount
        self._keep_admitting(fits, np.s_[:count], amount)
        chosen = np.flatnonzero(fits)
        return chosen if self._aligned else slots.provider[chosen].astype(np.intp)

    def among_fitting(self, providers: Rows, amount: int) -> Mask:
        """Which of the given providers can take one allocation of `amount` now."""
        at = self.slots_of(providers)
        fits: Mask = (at >= 0) & (self.slots.free[at] >= amount)
        self._keep_admitting(fits, at, amount)
        return fits

    def _keep_admitting(self, fits: Mask, at: slice | Indices, amount: int) -> None:
        slots = self.slots
        if self._uses_min:
            fits &= slots.min_unit[at] <= amount
        if self._uses_max:
            fits &= slots.max_unit[at] >= amount
        if self._uses_step:
            fits &= amount % slots.step_size[at].astype(np.int64) == 0

    def free_of(self, providers: Indices | Rows) -> Amounts:
        """How much is left at each provider, below zero if it is over-full; 0 if it has no inventory."""
        at = self.slots_of(providers)
        return np.where(at >= 0, self.slots.free[at], 0)

    def admits(self, provider: int, amounts: Sequence[int]) -> bool:
        """Whether the units of one provider allow these amounts of one consumer, whatever is left."""
        at = self.slot_of(provider)
        slots = self.slots
        return sum(amounts) <= slots.max_unit[at] and all(
            slots.min_unit[at] <= amount and amount % int(slots.step_size[at]) == 0 for amount in amounts
        )

    def headroom(self, providers: Indices | Rows) -> Amounts:
        """How much each provider can take in one consumer's sum: free, but at most max_unit; 0 if none."""
        at = self.slots_of(providers)
        room = np.minimum(self.slots.free[at], self.slots.max_unit[at])
        return np.where(at >= 0, room, 0)

    def parts(self, providers: Indices | Rows) -> tuple[Amounts, Amounts, Amounts, Amounts]:
        """What each provider can give of an amount that is split: `headroom`, min_unit, step_size, whole.

        `whole` is the capacity where nothing of it is in use and one consumer may have it all, 0 elsewhere.
        """
        at, slots = self.slots_of(providers), self.slots
        unused = (at >= 0) & (slots.used[at] == 0) & (slots.max_unit[at] >= slots.capacity_of[at])
        whole = np.where(unused, slots.capacity_of[at], 0)
        least, step = (units[at].astype(np.int64) for units in (slots.min_unit, slots.step_size))
        return self.headroom(providers), least, step, whole

    def occupied(self) -> Rows:
        """The slots that hold an inventory."""
        return np.flatnonzero(self.slots.provider[: self._count] >= 0)
