"""The count of further consumers that each host has room for, part by part of a query."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from placement.engine.forest.arrays import Amounts, Mask, Rows
from placement.engine.forest.inventories import InventoryColumn
from placement.engine.search.capacity import anchors as capacity_anchors
from placement.engine.search.capacity.cells import SlotCell, SlotPart, cells_of, pools
from placement.engine.search.capacity.patterns import Demands, PatternCounter
from placement.engine.search.equivalence import EquivalenceClasses, HeadroomOf
from placement.engine.search.filters import Choices, FilledSlots
from placement.engine.search.query import ForestQuery
from placement.engine.search.solver import solutions


class Counting:
    """The counting of the parts of one query at some hosts."""

    def __init__(self, filled: FilledSlots, anchors: capacity_anchors.Anchors) -> None:
        self._filled = filled
        self._forest = filled.forest
        self._query = filled.query
        self._slots = filled.slots
        self._choices = filled.choices
        self._anchors = anchors

    def count(self, part: SlotPart) -> PartCount:
        """Count the part at each host, in the first way that suits it. Raises SearchEnded."""
        shares = any(len(self._choices[number].foreign) for number in part.slots)
        splits = any(self._slots[number].rule for number in part.slots)
        found = None if part.ties or part.coverage else self._count_alone(part, shares, splits)
        if found is None and not shares:
            found = self._count_cells(part)
        return self._count_patterns(part, shares, splits) if found is None else found

    def _count_alone(self, part: SlotPart, shares: bool, splits: bool) -> PartCount | None:
        """Count like slots that no constraint ties, or a single slot that is split."""
        if not splits and len({self._slots[number].condition for number in part.slots}) == 1:
            return self._equal_cells(part, [SlotCell(number) for number in part.slots], shares=shares)
        if splits and len(part.slots) == 1:
            alone = replace(self._filled, query=replace(self._query, isolate=False))
            (pool,) = pools(alone, SlotCell(part.slots[0], (part.slots,)), self._anchors.roots)
            return PartCount(
                self._certain(part, capacity_anchors.Bounds(pool.most, pool.most), pool.exact), shares
            )
        return None

    def _count_cells(self, part: SlotPart) -> PartCount | None:
        cells = cells_of(self._filled, part)
        if cells is None:
            return None
        if len({self._form(cell) for cell in cells}) == 1:
            return self._equal_cells(part, cells, shares=False)
        return self._unequal_cells(part, cells)

    def _count_patterns(self, part: SlotPart, shares: bool, splits: bool) -> PartCount:
        """Count any part; if amounts are split, only whether one fits at all and an upper bound are known."""
        most = self._at_most(part)
        if splits:
            return PartCount(
                self._certain(part, capacity_anchors.Bounds(most, most), np.zeros(len(most), bool)), shares
            )
        demands = [dict(self._slots[number].resources) for number in part.slots]
        bounds = self._patterns(part, demands, self._query, self._class_rooms(part.slots))
        return PartCount(bounds.least(capacity_anchors.Bounds(bounds.upper, most)), shares)

    # -- cells ---------------------------------------------------------------------------------------

    def _form(self, cell: SlotCell) -> Hashable:
        below = ((self._slots[each[0]].condition, len(each)) for each in cell.below)
        return self._slots[cell.top].condition, tuple(sorted(below, key=repr))

    def _equal_cells(self, part: SlotPart, cells: Sequence[SlotCell], *, shares: bool) -> PartCount:
        """Count like cells: each top of a consumer has a provider of its own, or several may share one."""
        cell, anchors, slot = cells[0], self._anchors, self._slots[cells[0].top]
        entries = anchors.entries(self._choices[cell.top])
        room = capacity_anchors.room_for(self._forest, slot.resources, entries.rows)
        found = list(pools(self._filled, cell, entries.rows))
        for pool in found:
            room = np.minimum(room, pool.most)
        if len(cells) == 1:
            lower = upper = anchors.sums(entries.hosts, room)
        else:
            one_each, apart = np.ones(len(room), np.int64), self._query.isolate and slot.group.suffix
            most = one_each if apart else capacity_anchors.most_of_one(self._forest, slot, entries.rows)
            lower = upper = capacity_anchors.largest(room, most, len(cells), entries.hosts, len(anchors))
            if not apart and not all(pool.plain.all() for pool in found):
                lower = capacity_anchors.largest(room, one_each, len(cells), entries.hosts, len(anchors))
        exact = self._where_all(entries.hosts, [pool.exact for pool in found])
        supply = SharedSupply(entries, room) if shares and len(cells) == 1 else None
        able = entries.rows[room > 0] if found else None
        return PartCount(
            self._certain(part, capacity_anchors.Bounds(lower, upper), exact), shares, supply, able
        )

    def _unequal_cells(self, part: SlotPart, cells: Sequence[SlotCell]) -> PartCount | None:
        """Count cells that ask for different amounts: by patterns of their tops and of the slots below.

        None if different pools, or a pool and the tops, draw on one class, or if a pool differs by cell.
        """
        tops = Choices.union(self._choices[cell.top] for cell in cells).own
        rooms: dict[Hashable, Amounts] = {}
        givers: dict[Hashable, bytes] = {}
        drawn: dict[Hashable, set[int]] = {"top": set()}
        demands: list[dict[Hashable, int]] = []
        certain: list[Mask] = []
        for cell in cells:
            demand: dict[Hashable, int] = dict(self._slots[cell.top].resources)
            drawn["top"].update(class_id for class_id, _ in self._slots[cell.top].resources)
            for numbers, pool in zip(cell.below, pools(self._filled, cell, tops), strict=True):
                slot = self._slots[numbers[0]]
                key = ("below", slot.rule, slot.resources if slot.rule is None else slot.resources[0][0])
                drawn[key] = {class_id for class_id, _ in slot.resources}
                # A pool is noted by the row of each top.
                column = np.zeros(self._forest.count, np.int64)
                column[tops] = pool.units
                rows = self._choices[numbers[0]].own.tobytes()
                if givers.setdefault(key, rows) != rows or (rooms.setdefault(key, column) != column).any():
                    return None
                demand[key] = pool.wanted
                certain.append(pool.exact & pool.plain)
            demands.append(demand)
        if len(set().union(*drawn.values())) < sum(map(len, drawn.values())):
            return None
        rooms |= self._class_rooms(cell.top for cell in cells)
        plain = replace(self._query, same_subtree=())
        bounds = self._patterns(SlotPart(tuple(cell.top for cell in cells)), demands, plain, rooms)
        exact = self._where_all(self._anchors.hosts_of(tops), certain)
        return PartCount(self._certain(part, bounds, exact), shares=False)

    def _where_all(self, hosts: Rows, found: Sequence[Mask]) -> Mask:
        """Return the hosts where all masks hold at all of their tops; `hosts` has the host of each top."""
        holds = np.ones(len(self._anchors), bool)
        for mask in found:
            holds[hosts[~mask & (hosts >= 0)]] = False
        return holds

    # -- everything else -----------------------------------------------------------------------------

    def _class_rooms(self, numbers: Iterable[int]) -> dict[Hashable, Amounts]:
        """Return the free amounts of all providers, by the classes that these slots ask for."""
        rows = np.arange(self._forest.count)
        classes = sorted({class_id for number in numbers for class_id, _ in self._slots[number].resources})
        return {class_id: capacity_anchors.free_of(self._forest, class_id, rows) for class_id in classes}

    def _patterns(
        self, part: SlotPart, demands: Demands, query: ForestQuery, rooms: Mapping[Hashable, Amounts]
    ) -> capacity_anchors.Bounds:
        equivalence = self._equivalence(part, query, InventoryColumn.most)
        return PatternCounter(demands, rooms, query.budget).count(equivalence, self._anchors.roots)

    def _equivalence(
        self, part: SlotPart, query: ForestQuery, headroom_of: HeadroomOf = InventoryColumn.headroom
    ) -> EquivalenceClasses:
        # Without the trait conditions that the base group meets in any case.
        slots = tuple(
            slot if slot.group.suffix else replace(slot, group=replace(slot.group, required=part.coverage))
            for slot in (self._slots[number] for number in part.slots)
        )
        choices = [self._choices[number] for number in part.slots]
        return EquivalenceClasses(
            replace(self._filled, query=query, slots=slots, choices=choices), headroom_of
        )

    def _certain(
        self, part: SlotPart, bounds: capacity_anchors.Bounds, exact: Mask
    ) -> capacity_anchors.Bounds:
        """Return the bounds; where they are not exact, `lower` is 1 if one fits at all, else both are 0."""
        at = np.flatnonzero(~exact)
        if not len(at):
            return bounds
        lower, upper = bounds.lower.copy(), bounds.upper.copy()
        for trees in self._equivalence(part, self._query).of(self._anchors.roots[at].astype(np.int32)):
            fits = next(solutions(trees.problem, self._query.budget), None) is not None
            places = at[trees.ranks]
            lower[places] = fits
            upper[places] = np.maximum(upper[places], 1) if fits else 0
        return capacity_anchors.Bounds(lower, upper)

    def _at_most(self, part: SlotPart) -> Amounts:
        """Return the least quotient over the classes: all that is free, divided by all that is asked."""
        asking: dict[int, list[int]] = {}
        for number in part.slots:
            for class_id, _ in self._slots[number].resources:
                asking.setdefault(class_id, []).append(number)
        most = np.full(len(self._anchors), capacity_anchors.MOST, np.int64)
        for class_id, numbers in asking.items():
            found = [self._anchors.entries(self._choices[number]) for number in numbers]
            pairs = np.concatenate([np.stack([each.hosts, each.rows]) for each in found], axis=1)
            hosts, rows = np.unique(pairs, axis=1)
            free = self._anchors.sums(hosts, capacity_anchors.free_of(self._forest, class_id, rows))
            asked = sum(dict(self._slots[number].resources)[class_id] for number in numbers)
            np.minimum(most, free // asked, out=most)
        return most


@dataclass(frozen=True, slots=True)
class SharedSupply:
    """A supply for a part, from providers that serve several hosts: `room` of its entries."""

    entries: capacity_anchors.SlotEntries
    room: Amounts


@dataclass(frozen=True, slots=True)
class PartCount:
    """The consumers of a part that each host has room for, if others take nothing of sharers.

    `supply`: amounts of sharing providers, if hosts share nothing else and these can be shared out.
    `able`: the providers with room for the top of a cell and for the slots below it.
    """

    bounds: capacity_anchors.Bounds
    shares: bool
    supply: SharedSupply | None = None
    able: Rows | None = None
