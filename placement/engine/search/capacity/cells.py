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
from placement.engine.search.filters import Choices
from placement.engine.search.query import ForestQuery, Slot

# The slots of a query in parts that do not influence each other: each can be counted by itself.
#
# Slots belong together if one provider can be asked for the same class by both, or must not serve both, or if
# a constraint names them together. Many consumers side by side meet wherever one consumer's groups could.


@dataclass(frozen=True, slots=True)
class SlotPart:
    """A part of a query: slots by number; `ties`: sets of slots that must be below one another.

    `coverage`: the trait conditions that the unsuffixed slots must meet between them.
    """

    slots: tuple[int, ...]
    ties: tuple[frozenset[int], ...] = ()
    coverage: tuple[frozenset[int], ...] = ()


def parts_of(
    forest: Forest, query: ForestQuery, slots: Sequence[Slot], choices: Sequence[Choices]
) -> list[SlotPart]:
    """Return the parts of a query, in the order of their first slots."""
    ties = list(_ties(query, slots))
    coverage = tuple(_open_conditions(forest, slots, choices))
    leader = list(range(len(slots)))

    def find(slot: int) -> int:
        while leader[slot] != slot:
            slot = leader[slot]
        return slot

    for tie in (*ties, *_collective(slots, coverage)):
        first, *others = sorted(tie)
        for other in others:
            leader[find(other)] = find(first)
    for one, other in combinations(range(len(slots)), 2):
        if find(one) != find(other) and _meet(query, slots, choices, one, other):
            leader[find(other)] = find(one)
    members: dict[int, list[int]] = {}
    for slot in range(len(slots)):
        members.setdefault(find(slot), []).append(slot)
    return [
        SlotPart(
            tuple(found),
            tuple(tie for tie in ties if tie <= set(found)),
            coverage if any(not slots[slot].suffixed for slot in found) else (),
        )
        for found in members.values()
    ]


def tops_of(query: ForestQuery, slots: Sequence[Slot]) -> Iterator[frozenset[int]]:
    """Yield the slots of each constraint on subtrees, including the slots that are split."""
    for names in query.same_subtree:
        yield frozenset(number for number, slot in enumerate(slots) if slot.suffix in names)


def _ties(query: ForestQuery, slots: Sequence[Slot]) -> Iterator[frozenset[int]]:
    """Yield the constraints on subtrees, and the slots of each group that splits something."""
    for tie in tops_of(query, slots):
        if len(tie) > 1:
            yield tie
    for suffix in dict.fromkeys(slot.suffix for slot in slots if slot.rule):
        tie = frozenset(number for number, slot in enumerate(slots) if slot.suffix == suffix)
        if len(tie) > 1:
            yield tie


def _collective(slots: Sequence[Slot], coverage: Sequence[frozenset[int]]) -> list[frozenset[int]]:
    together = frozenset(number for number, slot in enumerate(slots) if not slot.suffixed)
    return [together] if coverage and together else []


def _open_conditions(
    forest: Forest, slots: Sequence[Slot], choices: Sequence[Choices]
) -> Iterator[frozenset[int]]:
    """Yield the unsuffixed group's trait conditions that no slot of it meets with all its providers."""
    unsuffixed = [number for number, slot in enumerate(slots) if not slot.suffixed]
    for any_of in slots[unsuffixed[0]].group.required if unsuffixed else ():
        met = (
            forest.traits.satisfying(rows, (any_of,)).all()
            for number in unsuffixed
            for rows in (np.concatenate([choices[number].own, choices[number].foreign]),)
        )
        if not any(met):
            yield any_of


def _meet(
    query: ForestQuery, slots: Sequence[Slot], choices: Sequence[Choices], one: int, other: int
) -> bool:
    """Return whether it matters to one slot which provider the other one takes."""
    apart = query.isolate and slots[one].suffixed and slots[other].suffixed
    if slots[one].suffix == slots[other].suffix and slots[one].rule and slots[other].rule:
        apart = False
    classes = {class_id for class_id, _ in slots[one].resources}
    shared = any(class_id in classes for class_id, _ in slots[other].resources)
    return (apart or shared) and intersect(choices[one], choices[other])


def intersect(one: Choices, other: Choices) -> bool:
    """Return whether some provider can fill both slots."""
    if one is other:
        return bool(len(one.own) or len(one.foreign))
    able = one.own_mask | one.foreign_mask
    return bool((able & (other.own_mask | other.foreign_mask)).any())


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


def own_rows(choices: Iterable[Choices]) -> Rows:
    """Return the providers that can fill some of the slots for their own trees, ascending."""
    return np.flatnonzero(np.logical_or.reduce([choice.own_mask for choice in choices]))


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
        hosts = self.hosts_of(choice.own)
        rows, hosts = choice.own[hosts >= 0], hosts[hosts >= 0]
        foreign = np.zeros(len(rows), bool)
        if len(choice.foreign):
            serving = choice.foreign_mask[self._sharing.pair_provider]
            served = self._place[self._sharing.pair_anchor[serving]]
            lent = self._sharing.pair_provider[serving][served >= 0].astype(np.intp)
            rows, hosts = np.concatenate([rows, lent]), np.concatenate([hosts, served[served >= 0]])
            foreign = np.concatenate([foreign, np.ones(len(lent), bool)])
        return SlotEntries(rows, hosts, foreign)

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


_NONE = -1
# A provider with a smaller capacity has no siblings to be kept together.
_FEWEST_SIBLINGS = 2


@dataclass(frozen=True, slots=True)
class SlotCell:
    """A slot by number, and sets of like slots below it; a slot that is split is a set of its own."""

    top: int
    below: tuple[tuple[int, ...], ...] = ()


def cells_of(
    forest: Forest, query: ForestQuery, slots: Sequence[Slot], choices: Sequence[Choices], part: SlotPart
) -> list[SlotCell] | None:
    """Return the slots of a part as cells, None if they do not form cells."""
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


def _tied(part: SlotPart, first: int) -> set[int]:
    found = {first}
    while True:
        reached = found.union(*(tie for tie in part.ties if tie & found))
        if reached == found:
            return found
        found = reached


def _cell(slots: Sequence[Slot], part: SlotPart, members: set[int], top: int) -> SlotCell | None:
    """Return the cell with this slot on top; None if a constraint leaves it out."""
    ties = [tie for tie in part.ties if tie & members]
    if any(top not in tie for tie in ties):
        return None
    below: dict[object, list[int]] = {}
    for number in sorted(members - {top}):
        slot = slots[number]
        below.setdefault(number if slot.rule else slot.condition, []).append(number)
    return SlotCell(top, tuple(map(tuple, below.values())))


def _are_apart(
    forest: Forest, query: ForestQuery, slots: Sequence[Slot], choices: Sequence[Choices], cell: SlotCell
) -> bool:
    """Return whether a cell's slots take nothing from each other, and only the top can be on top."""
    if not cell.below:
        return True
    if any(len(choices[number].foreign) for number in (cell.top, *(each[0] for each in cell.below))):
        return False
    firsts = [cell.top, *(each[0] for each in cell.below)]
    for at, one in enumerate(firsts):
        classes = {class_id for class_id, _ in slots[one].resources}
        for other in firsts[at + 1 :]:
            # A split next to its own top takes another class; `pools` keeps apart what has to be.
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


def pools(
    forest: Forest,
    query: ForestQuery,
    slots: Sequence[Slot],
    choices: Sequence[Choices],
    cell: SlotCell,
    tops: Rows,
) -> Iterator[TopPool]:
    """Yield the pool of each set of slots below, at all of the tops."""
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


def _pool(room: Amounts, most: Amounts, wanted: int, at: Rows, count: int) -> TopPool:
    sums = np.bincount(at, room, count).astype(np.int64)
    served = largest(room, most, wanted, at, count)
    return TopPool(sums, served, wanted, ~_any_at(most < room, at, count), np.ones(count, bool))


def _any_at(rows: Mask, at: Rows, count: int) -> Mask:
    """Return the tops below which any row is flagged."""
    found = np.zeros(count, bool)
    found[at[rows]] = True
    return found


def _split_pool(forest: Forest, slot: Slot, rows: Rows, at: Rows, count: int) -> TopPool:
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
    # Parts come in steps: with different steps, or a least part of several, some rests may be useless.
    usual = _one_of(step, at, count)
    odd = (step != usual[at]) | (least > step) | (amount % step != 0)
    simple = ~_any_at(odd, at, count)
    return replace(found, plain=found.plain & simple, exact=simple)


def _one_of(numbers: Amounts, at: Rows, count: int) -> Amounts:
    """Return the number of any one row at each top."""
    found = np.ones(count, np.int64)
    found[at] = numbers
    return found


def _whole_pool(whole: Amounts, amount: int, at: Rows, count: int) -> TopPool:
    """Return the pool of whole providers that make exactly the amount: certain if all have one size."""
    at, whole = at[whole > 0], whole[whole > 0]
    room = np.bincount(at, whole, count).astype(np.int64)
    usual = _one_of(whole, at, count)
    alike = ~_any_at(whole != usual[at], at, count)
    never = alike & (amount % usual != 0)
    most = np.where(never, 0, room // amount)
    return TopPool(np.where(never, 0, room), most, amount, alike, alike)
