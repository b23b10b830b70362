"""How many more of a part of a query each host has room for."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from placement.forest.arrays import Amounts, Mask, Rows
from placement.forest.forest import Forest
from placement.forest.inventory_column import InventoryColumn
from placement.forest.sharing import Sharing
from placement.search.capacity.parts import Part
from placement.search.capacity.patterns import Demands, count_patterns, feasible
from placement.search.capacity.rooms import (
    MOST,
    Anchors,
    Bounds,
    Entries,
    free_of,
    largest,
    most_of_one,
    own_rows,
    room_for,
)
from placement.search.capacity.stars import Cell, Pool, cells_of, pools
from placement.search.equivalence import EquivalenceClasses, Room
from placement.search.filters import Choices
from placement.search.query import ForestQuery, Slot


@dataclass(frozen=True, slots=True)
class Supply:
    """What a part can have of each provider that serves several hosts: `room` of its entries."""

    entries: Entries
    room: Amounts


@dataclass(frozen=True, slots=True)
class Counted:
    """How many consumers a part has room for on each host, if nobody else takes from sharing providers.

    `supply`: what sharing providers give, if that is all that hosts have in common and can be shared out.
    `full`: the providers that could take their slot, but have no room for a cell of it.
    """

    bounds: Bounds
    shares: bool
    supply: Supply | None = None
    able: tuple[tuple[int, Rows], ...] = ()


class Counting:
    """Counts the parts of one query at some hosts."""

    def __init__(
        self,
        query: ForestQuery,
        slots: Sequence[Slot],
        choices: Sequence[Choices],
        sharing: Sharing,
        anchors: Anchors,
    ) -> None:
        self._forest: Forest = anchors.forest
        self._query = query
        self._slots = slots
        self._choices = choices
        self._sharing = sharing
        self._anchors = anchors

    def count(self, part: Part) -> Counted:
        """The part at each host. Raises SearchEnded."""
        first = self._slots[part.slots[0]]
        shares = any(len(self._choices[number].foreign) for number in part.slots)
        alike = {id(self._choices[number]) for number in part.slots}
        if not part.ties and not part.coverage and len(alike) == 1 and len(part.slots) == 1:
            return self._one(part.slots[0], shares)
        if not part.ties and not part.coverage and not first.rule and self._are_alike(part.slots):
            return Counted(self._equal(part.slots), shares)
        cells = None if shares else cells_of(self._forest, self._query, self._slots, self._choices, part)
        if cells is not None:
            found = self._cells(part, cells)
            if found is not None:
                return found
        if any(self._slots[number].rule for number in part.slots):
            return Counted(self._roughly(part), shares)
        demands: Demands = [dict(self._slots[number].resources) for number in part.slots]
        bounds = self._patterns(part, demands, self._query, self._class_rooms(part.slots))
        return Counted(bounds.least(Bounds(bounds.upper, self._at_most(part))), shares)

    def _are_alike(self, numbers: Sequence[int]) -> bool:
        return len({self._slots[number].condition for number in numbers}) == 1

    # -- slots that do not depend on others -----------------------------------------------------------

    def _one(self, number: int, shares: bool) -> Counted:
        slot, anchors = self._slots[number], self._anchors
        entries = anchors.entries(self._choices[number])
        if slot.rule is None:
            room = room_for(self._forest, slot.resources, entries.rows)
            exact = anchors.sums(entries.hosts, room)
            supply = Supply(entries, room) if shares else None
            return Counted(Bounds(exact, exact), shares, supply)
        cell = Cell(number, ((number,),))
        roots = anchors.roots
        (pool,) = pools(
            self._forest, replace(self._query, isolate=False), self._slots, self._choices, cell, roots
        )
        return Counted(self._certain(Part((number,)), Bounds(pool.most, pool.most), pool.exact), shares)

    def _equal(self, numbers: Sequence[int]) -> Bounds:
        """Like slots: so many providers of each consumer, or amounts that may come from one."""
        slot = self._slots[numbers[0]]
        entries = self._anchors.entries(self._choices[numbers[0]])
        room = room_for(self._forest, slot.resources, entries.rows)
        apart = self._query.isolate and slot.suffixed
        most = np.ones(len(room), np.int64) if apart else most_of_one(self._forest, slot, entries.rows)
        exact = largest(room, most, len(numbers), entries.hosts, len(self._anchors))
        return Bounds(exact, exact)

    # -- cells ---------------------------------------------------------------------------------------

    def _cells(self, part: Part, cells: Sequence[Cell]) -> Counted | None:
        forms = {self._form(cell) for cell in cells}
        if len(forms) == 1:
            return self._equal_cells(part, cells)
        return self._unequal_cells(part, cells)

    def _form(self, cell: Cell) -> Hashable:
        below = ((self._slots[each[0]].condition, len(each)) for each in cell.below)
        return self._slots[cell.top].condition, tuple(sorted(below, key=repr))

    def _equal_cells(self, part: Part, cells: Sequence[Cell]) -> Counted:
        cell, query = cells[0], self._query
        slot = self._slots[cell.top]
        entries = self._anchors.entries(self._choices[cell.top])
        room = room_for(self._forest, slot.resources, entries.rows)
        found = list(pools(self._forest, query, self._slots, self._choices, cell, entries.rows))
        for pool in found:
            room = np.minimum(room, pool.most)
        able = ((cell.top, entries.rows[room > 0]),)
        one_each = np.ones(len(room), np.int64)
        most = one_each if query.isolate else most_of_one(self._forest, slot, entries.rows)
        hosts, count = entries.hosts, len(self._anchors)
        upper = largest(room, most, len(cells), hosts, count)
        lower = upper
        if len(cells) > 1 and not query.isolate and not all(pool.plain.all() for pool in found):
            lower = largest(room, one_each, len(cells), hosts, count)
        exact = self._where_all(hosts, [pool.exact for pool in found])
        return Counted(self._certain(part, Bounds(lower, upper), exact), shares=False, able=able)

    def _where_all(self, hosts: Rows, found: Sequence[Mask]) -> Mask:
        """The hosts for which all of these hold at all of their tops, given the host of each top."""
        holds = np.ones(len(self._anchors), bool)
        for mask in found:
            holds[hosts[~mask & (hosts >= 0)]] = False
        return holds

    def _unequal_cells(self, part: Part, cells: Sequence[Cell]) -> Counted | None:
        """Cells that ask for different amounts: in patterns of their tops, and of what these have below."""
        tops = own_rows(self._choices[cell.top] for cell in cells)
        rooms: dict[Hashable, Amounts] = {}
        givers: dict[Hashable, bytes] = {}
        demands: list[dict[Hashable, int]] = []
        certain: list[Mask] = []
        for cell in cells:
            demand: dict[Hashable, int] = dict(self._slots[cell.top].resources)
            found = pools(self._forest, self._query, self._slots, self._choices, cell, tops)
            for numbers, pool in zip(cell.below, found, strict=True):
                slot = self._slots[numbers[0]]
                resources = slot.resources if slot.rule is None else slot.resources[0][0]
                key = ("below", slot.rule, resources)
                rows = self._choices[numbers[0]].own.tobytes()
                if givers.setdefault(key, rows) != rows or not self._is_known(rooms, key, pool, tops):
                    return None
                demand[key] = pool.wanted
                certain.append(pool.exact & pool.plain)
            demands.append(demand)
        if self._overlap(cells, rooms):
            return None
        rooms |= self._class_rooms(cell.top for cell in cells)
        plain = replace(self._query, same_subtree=())
        bounds = self._patterns(Part(tuple(cell.top for cell in cells)), demands, plain, rooms)
        exact = self._where_all(self._anchors.hosts_of(tops), certain)
        return Counted(self._certain(part, bounds, exact), shares=False)

    def _is_known(self, rooms: dict[Hashable, Amounts], key: Hashable, pool: Pool, tops: Rows) -> bool:
        """Whether the pool is the same for all cells that have it; it is noted by the row of each top."""
        column = np.zeros(self._forest.count, np.int64)
        column[tops] = pool.room
        return bool((rooms.setdefault(key, column) == column).all())

    def _overlap(self, cells: Sequence[Cell], rooms: Mapping[Hashable, Amounts]) -> bool:
        """Whether different pools, or a pool and the tops, draw on one class."""
        of_tops = {class_id for cell in cells for class_id, _ in self._slots[cell.top].resources}
        of_pools = [key[2] if key[1] else dict(key[2]) for key in rooms]  # type: ignore[index]
        named = [{each} if isinstance(each, int) else set(each) for each in of_pools]
        together = [class_id for each in named for class_id in each]
        return len(together) != len(set(together)) or bool(of_tops & set(together))

    # -- everything else -----------------------------------------------------------------------------

    def _class_rooms(self, numbers: Iterable[int]) -> dict[Hashable, Amounts]:
        """What all providers have free of the classes that these slots ask for."""
        rows = np.arange(self._forest.count)
        classes = sorted({class_id for number in numbers for class_id, _ in self._slots[number].resources})
        return {class_id: free_of(self._forest, class_id, rows) for class_id in classes}

    def _patterns(
        self,
        part: Part,
        demands: Demands,
        query: ForestQuery,
        rooms: dict[Hashable, Amounts],
    ) -> Bounds:
        equivalence = self._equivalence(part, query, InventoryColumn.most)
        return count_patterns(equivalence, self._anchors.roots, demands, rooms, query.budget)

    def _equivalence(
        self, part: Part, query: ForestQuery, room: Room = InventoryColumn.headroom
    ) -> EquivalenceClasses:
        slots = [self._within(part, self._slots[number]) for number in part.slots]
        choices = [self._choices[number] for number in part.slots]
        return EquivalenceClasses(self._forest, query, slots, choices, self._sharing, room)

    @staticmethod
    def _within(part: Part, slot: Slot) -> Slot:
        """The slot without the trait conditions that the unsuffixed group meets in any case."""
        if slot.suffixed:
            return slot
        return replace(slot, group=replace(slot.group, required=part.coverage))

    def _roughly(self, part: Part) -> Bounds:
        most = self._at_most(part)
        return self._certain(part, Bounds(most, most), np.zeros(len(most), bool))

    def _certain(self, part: Part, bounds: Bounds, exact: Mask) -> Bounds:
        """The bounds where they are exact; elsewhere one is certain if one fits at all, and none else."""
        at = np.flatnonzero(~exact)
        if not len(at):
            return bounds
        lower, upper = bounds.lower.copy(), bounds.upper.copy()
        equivalence = self._equivalence(part, self._query)
        for places, fits in feasible(equivalence, self._anchors.roots[at], self._query.budget):
            lower[at[places]] = fits
            upper[at[places]] = np.maximum(upper[at[places]], 1) if fits else 0
        return Bounds(lower, upper)

    def _at_most(self, part: Part) -> Amounts:
        """What is free of each class, divided by all that is asked of it."""
        most = np.full(len(self._anchors), MOST, np.int64)
        for class_id, numbers in self._asking(part):
            merged = _merged([self._anchors.entries(self._choices[number]) for number in numbers])
            free = self._anchors.sums(merged.hosts, free_of(self._forest, class_id, merged.rows))
            asked = sum(dict(self._slots[number].resources)[class_id] for number in numbers)
            np.minimum(most, free // asked, out=most)
        return most

    def _asking(self, part: Part) -> Iterator[tuple[int, list[int]]]:
        asking: dict[int, list[int]] = {}
        for number in part.slots:
            for class_id, _ in self._slots[number].resources:
                asking.setdefault(class_id, []).append(number)
        yield from asking.items()


def _merged(found: Sequence[Entries]) -> Entries:
    """All different entries."""
    rows = np.concatenate([entries.rows for entries in found])
    hosts = np.concatenate([entries.hosts for entries in found])
    foreign = np.concatenate([entries.foreign for entries in found])
    keys = np.stack([hosts, rows])
    _, first = np.unique(keys, axis=1, return_index=True)
    return Entries(rows[first], hosts[first], foreign[first])
