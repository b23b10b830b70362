"""Cells: a slot and others that have to be below its provider, such as memory of a NUMA node and cores of it.

The number of cells that a provider has room for needs no combining if the subtrees of such providers are
apart: each slot below counts by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations

import numpy as np

from placement.engine.domain.groups import SplitRule
from placement.engine.forest.arrays import Amounts, Mask, Rows
from placement.engine.forest.forest import Forest
from placement.engine.search.capacity.anchors import MOST, free_of, largest, most_of_one, room_for
from placement.engine.search.distribution import FEWEST_SIBLINGS
from placement.engine.search.filters import Choices, FilledSlots, flags_of
from placement.engine.search.query import ForestQuery, Slot

_NONE = -1


@dataclass(frozen=True, slots=True)
class SlotPart:
    """A part of a query: slots by number; `ties`: sets of slots that must be below one another.

    `coverage`: the trait conditions that the slots of the base group must meet between them.
    """

    slots: tuple[int, ...]
    ties: tuple[frozenset[int], ...] = ()
    coverage: tuple[frozenset[int], ...] = ()


@dataclass(frozen=True, slots=True)
class SlotCell:
    """A slot by number, and sets of like slots below it; a slot that is split is a set of its own."""

    top: int
    below: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class TopPool:
    """A pool for slots below each top: `most` consumers, and `units`, `wanted` of them by a consumer.

    `plain`: any consumers can take all units that there is room for, also if cells want different amounts.
    `exact`: `most` consumers can be served; elsewhere `most` is only an upper bound.
    """

    units: Amounts
    most: Amounts
    wanted: int
    plain: Mask
    exact: Mask


def parts_of(filled: FilledSlots) -> list[SlotPart]:
    """Return the parts of the query, in the order of their first slots; each can be counted alone.

    Slots belong together if one provider can be asked for a class by both, or must not serve both, or if a
    constraint names both. Many consumers side by side meet wherever the groups of one could.
    """
    ties = _ties_of(filled)
    unsuffixed = [at for at, slot in enumerate(filled.slots) if not slot.group.suffix]
    coverage = tuple(_uncovered(filled, unsuffixed)) if unsuffixed else ()
    merged = _MergedSlots(len(filled.slots))
    for tie in (*ties, unsuffixed if coverage else ()):
        for other in tie:
            merged.join(min(tie), other)
    for one, other in combinations(range(len(filled.slots)), 2):
        apart = _are_apart(filled.query, filled.slots[one], filled.slots[other])
        if merged.leader(one) != merged.leader(other) and _meet(filled, one, other, apart=apart):
            merged.join(one, other)
    return [
        SlotPart(
            tuple(found),
            tuple(tie for tie in ties if tie <= set(found)),
            coverage if any(at in found for at in unsuffixed) else (),
        )
        for found in merged.members()
    ]


def _ties_of(filled: FilledSlots) -> list[frozenset[int]]:
    """Return the slots of each same_subtree constraint, and of each group that splits an amount."""
    split = dict.fromkeys(slot.group.suffix for slot in filled.slots if slot.rule)
    named = (*filled.query.same_subtree, *({suffix} for suffix in split))
    ties = (
        frozenset(at for at, slot in enumerate(filled.slots) if slot.group.suffix in names) for names in named
    )
    return [tie for tie in ties if len(tie) > 1]


class _MergedSlots:
    """The slots of a query, merged into sets; each set has one of its slots as its leader."""

    def __init__(self, count: int) -> None:
        self._leaders = list(range(count))

    def leader(self, slot: int) -> int:
        """Return the leader of the set of a slot."""
        while self._leaders[slot] != slot:
            slot = self._leaders[slot]
        return slot

    def join(self, one: int, other: int) -> None:
        """Merge the sets of two slots."""
        self._leaders[self.leader(other)] = self.leader(one)

    def members(self) -> Iterable[list[int]]:
        """Return the sets, in the order of their first slots."""
        found: dict[int, list[int]] = {}
        for slot in range(len(self._leaders)):
            found.setdefault(self.leader(slot), []).append(slot)
        return found.values()


def _are_apart(query: ForestQuery, slot: Slot, other_slot: Slot) -> bool:
    """Return whether one provider must not serve both slots; a group may split several amounts over it."""
    of_one_group = slot.group.suffix == other_slot.group.suffix and slot.rule and other_slot.rule
    are_named = slot.group.suffix and other_slot.group.suffix
    return bool(query.isolate and are_named and not of_one_group)


def _uncovered(filled: FilledSlots, unsuffixed: Sequence[int]) -> Iterator[frozenset[int]]:
    """Yield the base group's trait conditions that no slot of it meets with all its providers."""
    for any_of in filled.slots[unsuffixed[0]].group.required:
        givers = (np.concatenate([filled.choices[at].own, filled.choices[at].foreign]) for at in unsuffixed)
        if not any(filled.forest.traits.satisfying(rows, (any_of,)).all() for rows in givers):
            yield any_of


def _meet(filled: FilledSlots, one: int, other: int, *, apart: bool) -> bool:
    """Return whether it matters to a slot which provider another takes; `apart`: not the same one."""
    classes = {class_id for class_id, _ in filled.slots[one].resources}
    if not (apart or any(class_id in classes for class_id, _ in filled.slots[other].resources)):
        return False
    mine, theirs = filled.choices[one], filled.choices[other]
    if mine is theirs:
        return bool(len(mine.own) or len(mine.foreign))
    return bool(((mine.own_mask | mine.foreign_mask) & (theirs.own_mask | theirs.foreign_mask)).any())


def cells_of(filled: FilledSlots, part: SlotPart) -> list[SlotCell] | None:
    """Return the slots of a part as cells, None if they do not form cells."""
    if part.coverage:
        return None
    left, cells = set(part.slots), []
    while left:
        members = {min(left)}
        while (reached := members.union(*(tie for tie in part.ties if tie & members))) != members:
            members = reached
        left -= members
        tops = (number for number in sorted(members) if not filled.slots[number].rule)
        cell = next(filter(None, (_cell(filled, part, members, top) for top in tops)), None)
        if cell is None:
            return None
        cells.append(cell)
    if any(cell.below for cell in cells):
        rows = Choices.union(filled.choices[cell.top] for cell in cells).own
        if (nearest_of(filled.forest, flags_of(filled.forest.count, rows), rows) >= 0).any():
            return None
    return cells


def _cell(filled: FilledSlots, part: SlotPart, members: set[int], top: int) -> SlotCell | None:
    """Return the cell with this slot on top.

    None if a constraint leaves it out, if slots of the cell take something from each other, or if another
    slot can be on top.
    """
    if any(top not in tie for tie in part.ties if tie & members):
        return None
    sets: dict[object, list[int]] = {}
    for number in sorted(members - {top}):
        slot = filled.slots[number]
        sets.setdefault(number if slot.rule else slot.condition, []).append(number)
    cell = SlotCell(top, tuple(map(tuple, sets.values())))
    if not sets:
        return cell
    lower = [each[0] for each in cell.below]
    if any(len(filled.choices[number].foreign) for number in (top, *lower)):
        return None
    return None if _influence_each_other(filled, top, lower) or _are_nested(filled, top, lower) else cell


def _influence_each_other(filled: FilledSlots, top: int, lower: Sequence[int]) -> bool:
    """Return whether the top and slots below it, or two slots below it, may take from one provider."""
    # A split next to its own top takes another class; `pools` keeps apart what has to be.
    if any(_meet(filled, top, other, apart=False) for other in lower):
        return True
    pairs = combinations(lower, 2)
    return any(_meet(filled, one, other, apart=filled.query.isolate) for one, other in pairs)


def _are_nested(filled: FilledSlots, top: int, lower: Sequence[int]) -> bool:
    """Return whether providers of the cell may be below a provider of a slot that is not split."""
    plain = [filled.choices[number] for number in lower if not filled.slots[number].rule]
    if not plain:
        return False
    concerned = Choices.union(filled.choices[number] for number in (top, *lower)).own
    flags = flags_of(filled.forest.count, Choices.union(plain).own)
    return bool((nearest_of(filled.forest, flags, concerned) >= 0).any())


def pools(filled: FilledSlots, cell: SlotCell, tops: Rows) -> Iterator[TopPool]:
    """Yield the pool of each set of slots below, at all of the tops."""
    place = np.full(filled.forest.count, _NONE, np.intp)
    place[tops] = np.arange(len(tops))
    is_top = place >= 0
    for numbers in cell.below:
        slot, rows = filled.slots[numbers[0]], filled.choices[numbers[0]].own
        above = nearest_of(filled.forest, is_top, rows, or_self=True)
        if filled.query.isolate and slot.group.suffix != filled.slots[cell.top].group.suffix:
            above = np.where(above == rows, _NONE, above)
        rows, at = rows[above >= 0], place[above[above >= 0]]
        if slot.rule is None:
            room = room_for(filled.forest, slot.resources, rows)
            alone = filled.query.isolate
            most = np.ones(len(rows), np.int64) if alone else most_of_one(filled.forest, slot, rows)
            yield _pool(room, most, len(numbers), at, len(tops))
        else:
            yield _split_pool(filled.forest, slot, rows, at, len(tops))


def nearest_of(forest: Forest, wanted: Mask, rows: Rows, *, or_self: bool = False) -> Rows:
    """Return each provider's nearest ancestor that is wanted (`or_self`: or itself), -1 if there is none."""
    found = np.full(len(rows), _NONE, np.intp)
    current = rows if or_self else forest.providers.parent[rows].astype(np.intp)
    while True:
        open_ = (found < 0) & (current >= 0)
        if not open_.any():
            return found
        hit = open_ & wanted[current]
        found[hit] = current[hit]
        current = np.where(open_ & ~hit, forest.providers.parent[current], _NONE)


def _pool(room: Amounts, most: Amounts, wanted: int, at: Rows, count: int) -> TopPool:
    sums = np.bincount(at, room, count).astype(np.int64)
    served = largest(room, most, wanted, at, count)
    return TopPool(sums, served, wanted, ~flags_of(count, at[most < room]), np.ones(count, bool))


def _split_pool(forest: Forest, slot: Slot, rows: Rows, at: Rows, count: int) -> TopPool:
    ((class_id, amount),) = slot.resources
    column = forest.column(class_id)
    _, least, step, whole = column.parts(rows)
    whole = np.where((whole >= least) & (whole % step == 0), whole, 0)
    # The number of any one row at each top, to see whether all have that one.
    usual = np.ones(count, np.int64)
    if slot.rule is SplitRule.ISOLATE:
        return _pool((whole >= 1).astype(np.int64), np.ones(len(rows), np.int64), amount, at, count)
    if slot.rule is SplitRule.REQUIRE:
        # Whole providers make exactly the amount: certain if all have one size.
        able = whole >= FEWEST_SIBLINGS
        at, whole = at[able], np.minimum(whole[able], MOST)
        room = np.bincount(at, whole, count).astype(np.int64)
        usual[at] = whole
        alike = ~flags_of(count, at[whole != usual[at]])
        never = alike & (amount % usual != 0)
        return TopPool(np.where(never, 0, room), np.where(never, 0, room // amount), amount, alike, alike)
    room = free_of(forest, class_id, rows)
    most = column.most(rows)
    found = _pool(room - room % step, most - most % step, amount, at, count)
    # Parts come in steps: with different steps, or a least part of several, some rests may be useless.
    usual[at] = step
    simple = ~flags_of(count, at[(step != usual[at]) | (least > step) | (amount % step != 0)])
    return replace(found, plain=found.plain & simple, exact=simple)
