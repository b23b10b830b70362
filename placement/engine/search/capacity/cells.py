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
from placement.engine.forest.arrays import Amounts, Mask, Rows, Shares
from placement.engine.forest.forest import Forest
from placement.engine.forest.sharing import Sharing
from placement.engine.search.distribution import FEWEST_SIBLINGS
from placement.engine.search.filters import Choices, FilledSlots, flags_of
from placement.engine.search.query import Slot

# How many requests providers have room for, as numbers by host.


MOST = 2**40
"""More than this is not counted: sums of it over a tree are exact as floating point numbers, too."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """A pair of bounds: at least `lower`, at most `upper`, by host; equal where they are exact."""

    lower: Amounts
    upper: Amounts

    def least(self, other: Bounds) -> Bounds:
        """Return the smaller bounds, for what needs both."""
        return Bounds(np.minimum(self.lower, other.lower), np.minimum(self.upper, other.upper))


@dataclass(frozen=True, slots=True)
class SlotEntries:
    """A list of providers that can fill a slot, each with the host (by its place) that it does so for.

    A sharing provider of another tree is listed once for each host that it serves, with `foreign` set.
    """

    rows: Rows
    hosts: Rows
    foreign: Mask


class Anchors:
    """The hosts to count for, by their roots."""

    def __init__(self, forest: Forest, roots: Rows, sharing: Sharing) -> None:
        self.forest = forest
        self.roots = roots
        self._sharing = sharing
        self._place = np.full(forest.count, -1, np.intp)
        self._place[roots] = np.arange(len(roots))

    def __len__(self) -> int:
        return len(self.roots)

    def hosts_of(self, rows: Rows) -> Rows:
        """Return the host of each provider, by the tree that it is in; -1 if it is in none of them."""
        return self._place[self.forest.roots_of(rows)]

    def entries(self, choice: Choices) -> SlotEntries:
        """Return the providers of a choice that serve some of the hosts."""
        roots, rows = choice.served(self.forest, self._sharing)
        hosts = self._place[roots]
        kept, foreign = hosts >= 0, np.arange(len(rows)) >= len(choice.own)
        return SlotEntries(rows[kept], hosts[kept], foreign[kept])

    def sums(self, hosts: Rows, numbers: Amounts | Shares) -> Amounts:
        """Return the sum of the numbers of each host."""
        return np.bincount(hosts, numbers, len(self)).astype(np.int64)


def free_of(forest: Forest, class_id: int, rows: Rows) -> Amounts:
    """Return what is free of a class at providers, as far as it is counted; 0 where there is none."""
    return np.clip(forest.column(class_id).free_of(rows), 0, MOST)


def room_for(forest: Forest, resources: Iterable[tuple[int, int]], rows: Rows) -> Amounts:
    """Return how many times each provider can give all of the resources."""
    room = np.full(len(rows), MOST, np.int64)
    for class_id, amount in resources:
        np.minimum(room, free_of(forest, class_id, rows) // amount, out=room)
    return room


def most_of_one(forest: Forest, slot: Slot, rows: Rows) -> Amounts:
    """Return how often one consumer may take a slot's resources from each provider, whatever is free."""
    most = np.full(len(rows), MOST, np.int64)
    for class_id, amount in slot.resources:
        np.minimum(most, forest.column(class_id).most(rows) // amount, out=most)
    return most


def largest(room: Amounts, most: Amounts, wanted: int, hosts: Rows, count: int) -> Amounts:
    """Return for each of `count` hosts the largest t with sum(min(room, most * t)) >= wanted * t.

    That many consumers can take `wanted` each from providers that have `room` for all of them together and
    give one consumer at most `most`. The left side is concave in t, and a share-out exists exactly where no
    provider has to give more (max-flow min-cut).
    """
    within = room.astype(np.float64)
    high = (np.bincount(hosts, within, count) // wanted).astype(np.int64)
    if not (most < room).any():
        return high
    low = np.zeros(count, np.int64)
    while (low < high).any():
        middle = (low + high + 1) // 2
        given = np.bincount(hosts, np.minimum(within, most * middle[hosts].astype(np.float64)), count)
        enough = given >= wanted * middle
        low, high = np.where(enough, middle, low), np.where(enough, high, middle - 1)
    return low


# The slots of a query in parts that do not influence each other: each can be counted by itself.
#
# Slots belong together if one provider can be asked for the same class by both, or must not serve both, or if
# a constraint names them together. Many consumers side by side meet wherever one consumer's groups could.


_NONE = -1


@dataclass(frozen=True, slots=True)
class SlotPart:
    """A part of a query: slots by number; `ties`: sets of slots that must be below one another.

    `coverage`: the trait conditions that the unsuffixed slots must meet between them.
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
    """A pool for slots below each top: `most` consumers, and `room` units, `wanted` by a consumer.

    `plain`: any consumers can take all units that there is room for, also if cells want different amounts.
    `exact`: `most` consumers can be served; elsewhere `most` is only an upper bound.
    """

    room: Amounts
    most: Amounts
    wanted: int
    plain: Mask
    exact: Mask


def parts_of(filled: FilledSlots) -> list[SlotPart]:
    """Return the parts of the query, in the order of their first slots."""
    slots = filled.slots
    split = dict.fromkeys(slot.suffix for slot in slots if slot.rule)
    # The constraints on subtrees, and the slots of each group that splits something.
    named = (*filled.query.same_subtree, *({suffix} for suffix in split))
    tied = [frozenset(at for at, slot in enumerate(slots) if slot.suffix in names) for names in named]
    ties = [tie for tie in tied if len(tie) > 1]
    unsuffixed = [at for at, slot in enumerate(slots) if not slot.suffixed]
    coverage = tuple(_uncovered(filled, unsuffixed)) if unsuffixed else ()
    leader = list(range(len(slots)))

    def find(slot: int) -> int:
        while leader[slot] != slot:
            slot = leader[slot]
        return slot

    for tie in (*ties, unsuffixed if coverage else ()):
        for other in tie:
            leader[find(other)] = find(min(tie))
    for one, other in combinations(range(len(slots)), 2):
        if find(one) != find(other):
            group = slots[one].suffix == slots[other].suffix and slots[one].rule and slots[other].rule
            apart = filled.query.isolate and slots[one].suffixed and slots[other].suffixed and not group
            if _meet(filled, one, other, apart=apart):
                leader[find(other)] = find(one)
    members: dict[int, list[int]] = {}
    for at in range(len(slots)):
        members.setdefault(find(at), []).append(at)
    return [
        SlotPart(
            tuple(found),
            tuple(tie for tie in ties if tie <= set(found)),
            coverage if any(at in found for at in unsuffixed) else (),
        )
        for found in members.values()
    ]


def _uncovered(filled: FilledSlots, unsuffixed: Sequence[int]) -> Iterator[frozenset[int]]:
    """Yield the unsuffixed group's trait conditions that no slot of it meets with all its providers."""
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
    # A split next to its own top takes another class; `pools` keeps apart what has to be.
    if any(_meet(filled, top, other, apart=False) for other in lower):
        return None
    if any(_meet(filled, one, other, apart=filled.query.isolate) for one, other in combinations(lower, 2)):
        return None
    plain = [filled.choices[number] for number in lower if not filled.slots[number].rule]
    if plain:
        concerned = Choices.union(filled.choices[number] for number in (top, *lower)).own
        flags = flags_of(filled.forest.count, Choices.union(plain).own)
        if (nearest_of(filled.forest, flags, concerned) >= 0).any():
            return None
    return cell


def pools(filled: FilledSlots, cell: SlotCell, tops: Rows) -> Iterator[TopPool]:
    """Yield the pool of each set of slots below, at all of the tops."""
    place = np.full(filled.forest.count, _NONE, np.intp)
    place[tops] = np.arange(len(tops))
    is_top = place >= 0
    for numbers in cell.below:
        slot, rows = filled.slots[numbers[0]], filled.choices[numbers[0]].own
        above = nearest_of(filled.forest, is_top, rows, or_self=True)
        if filled.query.isolate and slot.suffix != filled.slots[cell.top].suffix:
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
