"""A count of how many more of a part of a query each host has room for."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np

from placement.engine.forest.arrays import Amounts, Mask, Rows
from placement.engine.forest.inventories import InventoryColumn
from placement.engine.search.budget import Budget
from placement.engine.search.capacity.cells import (
    MOST,
    Anchors,
    Bounds,
    SlotCell,
    SlotEntries,
    SlotPart,
    cells_of,
    free_of,
    largest,
    most_of_one,
    pools,
    room_for,
)
from placement.engine.search.equivalence import EquivalenceClass, EquivalenceClasses, Room
from placement.engine.search.filters import Choices, FilledSlots
from placement.engine.search.query import ForestQuery
from placement.engine.search.solver import solutions

# Counting by patterns: the ways in which one tree can serve one consumer, and how many of each go together.
#
# Trees where the same providers can serve the same slots have the same patterns and are counted at once. One
# or two patterns are counted exactly. For more, a greedy choice is a lower bound, and sums are an upper one.
# Where these differ, choices are tried one by one, up to a number of steps.


Demands = Sequence[Mapping[Any, int]]
"""For each slot the amounts that it takes of the provider's room, by any keys."""

_MOST_PATTERNS = 64
# The most tries of a pattern in a greedy count, and the most steps of a search for a state.
_MOST_ROUNDS = 4096
_STEPS_PER_TREE = 3000
_STEPS_IN_ALL = 150_000
_ROUNDS_PER_LOOK = 16


@dataclass(slots=True)
class PatternCounter:
    """A counter of consumers by patterns; `room` has a number per row of the forest, by keys of `demands`."""

    _demands: Demands
    _room: Mapping[Hashable, Amounts]
    _budget: Budget
    _steps_left: int = _STEPS_IN_ALL

    def count(self, equivalence: EquivalenceClasses, roots: Rows) -> Bounds:
        """Return how many consumers each of the roots has room for.

        The equivalence classes must not depend on what is free. Raises SearchEnded.
        """
        lower, upper = np.zeros((2, len(roots)), np.int64)
        for trees in equivalence.of(roots.astype(np.int32)):
            self._budget.look()
            found = self._of_class(trees)
            lower[trees.ranks], upper[trees.ranks] = found.lower, found.upper
        return Bounds(lower, upper)

    def _of_class(self, trees: EquivalenceClass) -> Bounds:
        places = [(position, key) for position in range(trees.providers.shape[1]) for key in self._room]
        number = {place: at for at, place in enumerate(places)}
        patterns: dict[tuple[int, ...], None] = {}
        found = islice(solutions(trees.problem, self._budget), _MOST_PATTERNS**2)
        for solution in found:
            taken = [0] * len(places)
            for slot, position in enumerate(solution):
                for key, amount in self._demands[slot].items():
                    taken[number[position, key]] += amount
            patterns[tuple(taken)] = None
            if len(patterns) > _MOST_PATTERNS:
                break
        if not (patterns and places):
            # Slots without resources can be filled again and again, if they can at all.
            exact = np.full(len(trees.ranks), MOST if patterns else 0, np.int64)
            return Bounds(exact, exact)
        free = np.stack([self._room[key][trees.providers[:, position]] for position, key in places], axis=1)
        table = np.array(list(patterns), np.int64)
        used = table.any(axis=0)
        all_known = len(patterns) <= _MOST_PATTERNS and next(found, None) is None
        keys = np.array([list(self._room).index(key) for _, key in places])
        return self._packed(table[:, used], free[:, used], keys[used], all_known)

    def _packed(self, patterns: Amounts, free: Amounts, keys: Amounts, all_known: bool) -> Bounds:
        """Return how many patterns fit side by side into each row of `free`."""
        if all_known and len(patterns) <= 2:
            exact = _times(patterns[0], free)
            if len(patterns) == 2:
                exact = _of_two(patterns, free, self._budget)
            return Bounds(exact, exact)
        lower = _greedy(patterns, free, self._budget)
        if not all_known:
            wanted = patterns.sum(axis=1).min()
            return Bounds(lower, np.maximum(lower, free.sum(axis=1) // max(int(wanted), 1)))
        upper = np.maximum(_bound(patterns, free, keys), lower)
        for at in np.flatnonzero(lower < upper).tolist():
            if self._steps_left <= 0:
                break
            self._budget.look()
            steps = min(_STEPS_PER_TREE, self._steps_left)
            search = _PatternSearch(patterns, free[at], int(lower[at]), int(upper[at]), steps)
            lower[at], upper[at] = search.run()
            self._steps_left -= search.steps
        return Bounds(lower, upper)


def _times(pattern: Amounts, free: Amounts) -> Amounts:
    """Return how many times one pattern fits."""
    asked = pattern > 0
    if not asked.any():
        return np.full(len(free), MOST, np.int64)
    times: Amounts = (np.maximum(free[:, asked], 0) // pattern[asked]).min(axis=1)
    return times


def _of_two(patterns: Amounts, free: Amounts, budget: Budget) -> Amounts:
    """Return the best of all mixtures of two patterns: exact."""
    one, other = patterns
    best = _times(other, free)
    most = _times(one, free)
    if np.minimum(one, other).any():
        for times in range(1, min(int(most.max(initial=0)), _MOST_ROUNDS) + 1):
            if times % _ROUNDS_PER_LOOK == 0:
                budget.look()
            able = times <= most
            best[able] = np.maximum(best[able], times + _times(other, free[able] - times * one))
        return best
    either: Amounts = np.minimum(best + most, MOST)
    return either


def _greedy(patterns: Amounts, free: Amounts, budget: Budget) -> Amounts:
    """Return how many fit if the pattern that leaves most room for others is taken again and again."""
    left, placed = free.copy(), np.zeros(len(free), np.int64)
    active = np.arange(len(free))
    for _ in range(_MOST_ROUNDS):
        budget.look()
        remaining = np.stack([_slack(patterns, left[active] - pattern) for pattern in patterns], axis=1)
        choice = remaining.argmax(axis=1)
        fits = remaining[np.arange(len(active)), choice] >= 0
        active, choice = active[fits], choice[fits]
        if not len(active):
            break
        left[active] -= patterns[choice]
        placed[active] += 1
    return placed


def _slack(patterns: Amounts, left: Amounts) -> Amounts:
    """Return a fine measure of how often patterns would fit one by one; below 0 in an impossible state."""
    rooms = np.stack([_times(pattern, left) for pattern in patterns], axis=1)
    finely = (rooms.sum(axis=1) * 2**16) + (rooms > 0).sum(axis=1)
    return np.where((left < 0).any(axis=1), -1, finely)


def _bound(patterns: Amounts, free: Amounts, keys: Amounts) -> Amounts:
    """Return an upper bound: of the patterns one by one in sum, and of each key over all positions."""
    bound: Amounts = np.stack([_times(pattern, free) for pattern in patterns], axis=1).sum(axis=1)
    for key in np.unique(keys).tolist():
        chosen = keys == key
        wanted = int(patterns[:, chosen].sum(axis=1).min())
        if wanted:
            bound = np.minimum(bound, np.maximum(free[:, chosen], 0).sum(axis=1) // wanted)
    return bound


class _PatternSearch:
    """A search for the most patterns that fit into one tree, by trying how often each is taken."""

    def __init__(self, patterns: Amounts, free: Amounts, lower: int, upper: int, steps: int) -> None:
        self._patterns: list[tuple[int, ...]] = [tuple(pattern) for pattern in patterns.tolist()]
        self._free: tuple[int, ...] = tuple(free.tolist())
        self._best, self._upper = lower, upper
        self._allowed = steps
        self.steps = 0

    def run(self) -> tuple[int, int]:
        """Return the bounds: equal unless it took too many steps."""
        finished = self._try(0, self._free, 0)
        return self._best, self._best if finished else self._upper

    def _try(self, at: int, free: tuple[int, ...], placed: int) -> bool:
        self.steps += 1
        if placed > self._best:
            self._best = placed
        if self._best >= self._upper or at == len(self._patterns):
            return True
        if self.steps > self._allowed:
            return False
        fitting = [
            min((room // amount for room, amount in zip(free, pattern, strict=True) if amount), default=MOST)
            for pattern in self._patterns[at:]
        ]
        if placed + sum(fitting) <= self._best or placed + self._most(at, free) <= self._best:
            return True
        pattern = self._patterns[at]
        for times in range(fitting[0], -1, -1):
            left = tuple(room - times * amount for room, amount in zip(free, pattern, strict=True))
            if not self._try(at + 1, left, placed + times):
                return False
        return True

    def _most(self, at: int, free: tuple[int, ...]) -> int:
        """Return an upper bound: what is free together, divided by the smallest pattern."""
        least = min(sum(pattern) for pattern in self._patterns[at:])
        touched = [any(amounts) for amounts in zip(*self._patterns[at:], strict=True)]
        return sum(room for room, is_used in zip(free, touched, strict=True) if is_used) // max(least, 1)


@dataclass(frozen=True, slots=True)
class SharedSupply:
    """A supply for a part, from providers that serve several hosts: `room` of its entries."""

    entries: SlotEntries
    room: Amounts


@dataclass(frozen=True, slots=True)
class PartCount:
    """A count of consumers that a part has room for on each host, if others leave sharers alone.

    `supply`: what sharing providers give, if that is all that hosts have in common and can be shared out.
    `able`: the providers that have room for the top of a cell and for what is below it.
    """

    bounds: Bounds
    shares: bool
    supply: SharedSupply | None = None
    able: Rows | None = None


class Counting:
    """A counter for the parts of one query at some hosts."""

    def __init__(self, filled: FilledSlots, anchors: Anchors) -> None:
        self._filled = filled
        self._forest = filled.forest
        self._query = filled.query
        self._slots = filled.slots
        self._choices = filled.choices
        self._anchors = anchors

    def count(self, part: SlotPart) -> PartCount:
        """Count the part at each host. Raises SearchEnded."""
        shares = any(len(self._choices[number].foreign) for number in part.slots)
        splits = any(self._slots[number].rule for number in part.slots)
        if not part.ties and not part.coverage:
            if not splits and len({self._slots[number].condition for number in part.slots}) == 1:
                return self._equal_cells(part, [SlotCell(number) for number in part.slots], shares=shares)
            if splits and len(part.slots) == 1:
                alone = replace(self._filled, query=replace(self._query, isolate=False))
                (pool,) = pools(alone, SlotCell(part.slots[0], (part.slots,)), self._anchors.roots)
                return PartCount(self._certain(part, Bounds(pool.most, pool.most), pool.exact), shares)
        cells = None if shares else cells_of(self._filled, part)
        if cells is not None:
            forms = {self._form(cell) for cell in cells}
            if len(forms) == 1:
                return self._equal_cells(part, cells, shares=False)
            found = self._unequal_cells(part, cells)
            if found is not None:
                return found
        most = self._at_most(part)
        if splits:
            return PartCount(self._certain(part, Bounds(most, most), np.zeros(len(most), bool)), shares)
        demands = [dict(self._slots[number].resources) for number in part.slots]
        bounds = self._patterns(part, demands, self._query, self._class_rooms(part.slots))
        return PartCount(bounds.least(Bounds(bounds.upper, most)), shares)

    # -- cells ---------------------------------------------------------------------------------------

    def _form(self, cell: SlotCell) -> Hashable:
        below = ((self._slots[each[0]].condition, len(each)) for each in cell.below)
        return self._slots[cell.top].condition, tuple(sorted(below, key=repr))

    def _equal_cells(self, part: SlotPart, cells: Sequence[SlotCell], *, shares: bool) -> PartCount:
        """Count like cells: each top of a consumer has a provider of its own, or several may share one."""
        cell, anchors, slot = cells[0], self._anchors, self._slots[cells[0].top]
        entries = anchors.entries(self._choices[cell.top])
        room = room_for(self._forest, slot.resources, entries.rows)
        found = list(pools(self._filled, cell, entries.rows))
        for pool in found:
            room = np.minimum(room, pool.most)
        if len(cells) == 1:
            lower = upper = anchors.sums(entries.hosts, room)
        else:
            one_each, apart = np.ones(len(room), np.int64), self._query.isolate and slot.suffixed
            most = one_each if apart else most_of_one(self._forest, slot, entries.rows)
            lower = upper = largest(room, most, len(cells), entries.hosts, len(anchors))
            if not apart and not all(pool.plain.all() for pool in found):
                lower = largest(room, one_each, len(cells), entries.hosts, len(anchors))
        exact = self._where_all(entries.hosts, [pool.exact for pool in found])
        supply = SharedSupply(entries, room) if shares and len(cells) == 1 else None
        able = entries.rows[room > 0] if found else None
        return PartCount(self._certain(part, Bounds(lower, upper), exact), shares, supply, able)

    def _unequal_cells(self, part: SlotPart, cells: Sequence[SlotCell]) -> PartCount | None:
        """Count cells that ask for different amounts: by patterns of their tops and of what is below.

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
                column[tops] = pool.room
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
        """Return what all providers have free of the classes that these slots ask for."""
        rows = np.arange(self._forest.count)
        classes = sorted({class_id for number in numbers for class_id, _ in self._slots[number].resources})
        return {class_id: free_of(self._forest, class_id, rows) for class_id in classes}

    def _patterns(
        self, part: SlotPart, demands: Demands, query: ForestQuery, rooms: Mapping[Hashable, Amounts]
    ) -> Bounds:
        equivalence = self._equivalence(part, query, InventoryColumn.most)
        return PatternCounter(demands, rooms, query.budget).count(equivalence, self._anchors.roots)

    def _equivalence(
        self, part: SlotPart, query: ForestQuery, room: Room = InventoryColumn.headroom
    ) -> EquivalenceClasses:
        # Without the trait conditions that the unsuffixed group meets in any case.
        slots = tuple(
            slot if slot.suffixed else replace(slot, group=replace(slot.group, required=part.coverage))
            for slot in (self._slots[number] for number in part.slots)
        )
        choices = [self._choices[number] for number in part.slots]
        return EquivalenceClasses(replace(self._filled, query=query, slots=slots, choices=choices), room)

    def _certain(self, part: SlotPart, bounds: Bounds, exact: Mask) -> Bounds:
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
        return Bounds(lower, upper)

    def _at_most(self, part: SlotPart) -> Amounts:
        """Return the least over the classes of what is free, divided by all that is asked of it."""
        asking: dict[int, list[int]] = {}
        for number in part.slots:
            for class_id, _ in self._slots[number].resources:
                asking.setdefault(class_id, []).append(number)
        most = np.full(len(self._anchors), MOST, np.int64)
        for class_id, numbers in asking.items():
            found = [self._anchors.entries(self._choices[number]) for number in numbers]
            pairs = np.concatenate([np.stack([each.hosts, each.rows]) for each in found], axis=1)
            hosts, rows = np.unique(pairs, axis=1)
            free = self._anchors.sums(hosts, free_of(self._forest, class_id, rows))
            asked = sum(dict(self._slots[number].resources)[class_id] for number in numbers)
            np.minimum(most, free // asked, out=most)
        return most
