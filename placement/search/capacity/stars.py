"""Cells: a slot and others that have to be below its provider, such as memory of a NUMA node and cores of it.

How many cells a provider has room for can be told without combining if the subtrees of such providers are
apart: each slot below counts by itself.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from placement.domain.groups import SplitRule
from placement.forest.arrays import Amounts, Mask, Rows
from placement.forest.forest import Forest
from placement.search.capacity.parts import Part, intersect
from placement.search.capacity.rooms import MOST, free_of, largest, most_of_one, own_rows, room_for
from placement.search.filters import Choices
from placement.search.query import ForestQuery, Slot

_NONE = -1
# A provider of less has no siblings to be kept together.
_FEWEST_SIBLINGS = 2


@dataclass(frozen=True, slots=True)
class Cell:
    """The number of a slot, and sets of like slots below it; a slot that is split is a set of its own."""

    top: int
    below: tuple[tuple[int, ...], ...] = ()


def cells_of(
    forest: Forest, query: ForestQuery, slots: Sequence[Slot], choices: Sequence[Choices], part: Part
) -> list[Cell] | None:
    """The slots of a part as cells, None if they cannot be seen so."""
    if part.coverage:
        return None
    left, cells = set(part.slots), []
    while left:
        members = _tied(part, min(left))
        left -= members
        candidates = sorted(number for number in members if not slots[number].rule)
        cell = next(
            (
                cell
                for top in candidates
                if (cell := _cell(slots, part, members, top)) is not None
                and _are_apart(forest, query, slots, choices, cell)
            ),
            None,
        )
        if cell is None:
            return None
        cells.append(cell)
    tops = own_rows(choices[cell.top] for cell in cells)
    if any(cell.below for cell in cells) and (nearest_of(forest, _flags(forest, tops), tops) >= 0).any():
        return None
    return cells


def _tied(part: Part, first: int) -> set[int]:
    found = {first}
    while True:
        reached = found.union(*(tie for tie in part.ties if tie & found))
        if reached == found:
            return found
        found = reached


def _cell(slots: Sequence[Slot], part: Part, members: set[int], top: int) -> Cell | None:
    """The cell with this slot on top; None if a constraint leaves it out."""
    ties = [tie for tie in part.ties if tie & members]
    if any(top not in tie for tie in ties):
        return None
    below: dict[object, list[int]] = {}
    for number in sorted(members - {top}):
        slot = slots[number]
        below.setdefault(number if slot.rule else slot.condition, []).append(number)
    return Cell(top, tuple(map(tuple, below.values())))


def _are_apart(
    forest: Forest, query: ForestQuery, slots: Sequence[Slot], choices: Sequence[Choices], cell: Cell
) -> bool:
    """Whether the slots of a cell take nothing from each other, and only the top can be on top."""
    if not cell.below:
        return True
    if any(len(choices[number].foreign) for number in (cell.top, *(each[0] for each in cell.below))):
        return False
    firsts = [cell.top, *(each[0] for each in cell.below)]
    for at, one in enumerate(firsts):
        classes = {class_id for class_id, _ in slots[one].resources}
        for other in firsts[at + 1 :]:
            # What splits next to its own top takes another class; who has to be apart is seen to below.
            apart = query.isolate and at > 0
            shared = any(class_id in classes for class_id, _ in slots[other].resources)
            if (apart or shared) and intersect(choices[one], choices[other]):
                return False
    plain = [choices[each[0]] for each in cell.below if not slots[each[0]].rule]
    if not plain:
        return True
    lower, concerned = own_rows(plain), own_rows(choices[number] for number in firsts)
    return not (nearest_of(forest, _flags(forest, lower), concerned) >= 0).any()


def _flags(forest: Forest, rows: Rows) -> Mask:
    flags = np.zeros(forest.count, bool)
    flags[rows] = True
    return flags


def nearest_of(forest: Forest, wanted: Mask, rows: Rows, *, or_self: bool = False) -> Rows:
    """The nearest ancestor of each provider that is wanted, -1 if there is none."""
    found = np.full(len(rows), _NONE, np.intp)
    current = rows if or_self else forest.providers.parent[rows].astype(np.intp)
    while True:
        open_ = (found < 0) & (current >= 0)
        if not open_.any():
            return found
        hit = open_ & wanted[current]
        found[hit] = current[hit]
        current = np.where(open_ & ~hit, forest.providers.parent[current], _NONE)


@dataclass(frozen=True, slots=True)
class Pool:
    """What slots can have below each top: `most` consumers, and `room` units, `wanted` by a consumer.

    `plain`: as many units as there is room for can be given to anybody, also if cells want different
    amounts. `exact`: as many consumers can be served, else these are only not more.
    """

    room: Amounts
    most: Amounts
    wanted: int
    plain: Mask
    exact: Mask


def pools(
    forest: Forest,
    query: ForestQuery,
    slots: Sequence[Slot],
    choices: Sequence[Choices],
    cell: Cell,
    tops: Rows,
) -> Iterator[Pool]:
    """What each set below can have at each of the tops."""
    place = np.full(forest.count, _NONE, np.intp)
    place[tops] = np.arange(len(tops))
    is_top = place >= 0
    for numbers in cell.below:
        slot = slots[numbers[0]]
        rows = choices[numbers[0]].own
        above = nearest_of(forest, is_top, rows, or_self=True)
        if query.isolate and slot.suffix != slots[cell.top].suffix:
            above = np.where(above == rows, _NONE, above)
        rows, at = rows[above >= 0], place[above[above >= 0]]
        if slot.rule is None:
            room = room_for(forest, slot.resources, rows)
            most = np.ones(len(rows), np.int64) if query.isolate else most_of_one(forest, slot, rows)
            yield _pool(room, most, len(numbers), at, len(tops))
        else:
            yield _split_pool(forest, slot, rows, at, len(tops))


def _pool(room: Amounts, most: Amounts, wanted: int, at: Rows, count: int) -> Pool:
    sums = np.bincount(at, room, count).astype(np.int64)
    served = largest(room, most, wanted, at, count)
    return Pool(sums, served, wanted, ~_any_at(most < room, at, count), np.ones(count, bool))


def _any_at(rows: Mask, at: Rows, count: int) -> Mask:
    """The tops below which any row is so."""
    found = np.zeros(count, bool)
    found[at[rows]] = True
    return found


def _split_pool(forest: Forest, slot: Slot, rows: Rows, at: Rows, count: int) -> Pool:
    ((class_id, amount),) = slot.resources
    column = forest.column(class_id)
    _, least, step, whole = column.parts(rows)
    whole = np.where((whole >= least) & (whole % step == 0), whole, 0)
    if slot.rule is SplitRule.ISOLATE:
        return _pool((whole >= 1).astype(np.int64), np.ones(len(rows), np.int64), amount, at, count)
    if slot.rule is SplitRule.REQUIRE:
        return _whole_pool(np.where(whole >= _FEWEST_SIBLINGS, np.minimum(whole, MOST), 0), amount, at, count)
    room = free_of(forest, class_id, rows)
    most = column.most(rows)
    found = _pool(room - room % step, most - most % step, amount, at, count)
    # Parts come in steps: with different ones, or a least part of several, some rests may be of no use.
    usual = _one_of(step, at, count)
    odd = (step != usual[at]) | (least > step) | (amount % step != 0)
    simple = ~_any_at(odd, at, count)
    return replace(found, plain=found.plain & simple, exact=simple)


def _one_of(numbers: Amounts, at: Rows, count: int) -> Amounts:
    """The number of some row at each top."""
    found = np.ones(count, np.int64)
    found[at] = numbers
    return found


def _whole_pool(whole: Amounts, amount: int, at: Rows, count: int) -> Pool:
    """Whole providers that make exactly the amount: certain where all of them are of one size."""
    at, whole = at[whole > 0], whole[whole > 0]
    room = np.bincount(at, whole, count).astype(np.int64)
    usual = _one_of(whole, at, count)
    alike = ~_any_at(whole != usual[at], at, count)
    never = alike & (amount % usual != 0)
    most = np.where(never, 0, room // amount)
    return Pool(np.where(never, 0, room), most, amount, alike, alike)
