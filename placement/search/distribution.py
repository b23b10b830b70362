"""How the amounts that groups split are shared out inside one tree, once all other groups have their places.

One answer for a choice of places, the one that the rules prefer: several amounts are shared out one after the
other, and if the preferred ways of all do not go together, the next ways are tried, through all there are.
Source: placement-api.md, "Split amounts".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from operator import or_

from placement.domain.groups import SplitRule
from placement.search.budget import Budget
from placement.search.fillings import Filling, PositionKind, fillings
from placement.search.problem import Split, Splitting, bits

Parts = dict[int, int]
"""Position and amount, positions ascending."""

_WHOLE_RULES = (SplitRule.REQUIRE, SplitRule.ISOLATE)
# A provider of less has no siblings to be kept together.
_FEWEST_SIBLINGS = 2
_POSITIONS_PER_STEP = 16


def distribute(splitting: Splitting, places: Sequence[int], budget: Budget) -> list[Parts] | None:
    """The parts of each split, None if there is no way; `places` are those of the other slots.

    Parts are what is taken, which under `isolate` is more than what is asked for. Raises SearchEnded.
    """
    distribution = _Distribution(splitting, places, budget)
    return distribution.parts() if distribution.succeeds(0) else None


def narrowed(options: Sequence[int], splitting: Splitting, budget: Budget) -> tuple[int, ...] | None:
    """The positions of the other slots without those in subtrees that cannot give an amount, None if all are.

    Each amount is looked at alone, and the sum of those of one subtree. Raises SearchEnded.
    """
    left = list(options)
    alike: dict[object, list[Split]] = {}
    for split in splitting.splits:
        alike.setdefault((split.supply, split.tops), []).append(split)
    for splits in alike.values():
        for slots in splits[0].tops:
            tops = reduce(or_, (left[slot] for slot in bits(slots)))
            able = [top for top in bits(tops) if _can_give(splitting, splits, splitting.below[top], budget)]
            under = reduce(or_, (splitting.below[top] for top in able), 0)
            for slot in bits(slots):
                left[slot] &= under
                if not left[slot]:
                    return None
        if not splits[0].tops and not _can_give(splitting, splits, -1, budget):
            return None
    return tuple(left)


def _can_give(splitting: Splitting, splits: Sequence[Split], under: int, budget: Budget) -> bool:
    """Whether these positions could give each of the amounts, and all of them by their sum."""
    room = splitting.supplies[splits[0].supply].room
    reach = reduce(or_, (split.options for split in splits)) & under
    if sum(split.amount for split in splits) > sum(max(room[position], 0) for position in bits(reach)):
        return False
    alone = (replace(split, options=split.options & under, tops=()) for split in splits)
    return all(distribute(replace(splitting, splits=(split,)), (), budget) is not None for split in alone)


class _Distribution:
    def __init__(self, splitting: Splitting, places: Sequence[int], budget: Budget) -> None:
        self._budget = budget
        self._supplies = splitting.supplies
        self._room = [list(supply.room) for supply in splitting.supplies]
        self._whole = [list(supply.whole) for supply in splitting.supplies]
        # Who must be left alone where: position -> the number of the group, for groups kept apart.
        self._holder: dict[int, int] = {}
        self._dead: set[object] = set()
        self._found: dict[int, Parts] = {}
        self._slots = [split.slot for split in splitting.splits]
        self._draw_places(splitting, places)
        reached = [(split, splitting.reach(split, places)) for split in splitting.splits]
        # Whole providers and small subtrees first: what is left is easier to share out.
        self._order = sorted(
            reached, key=lambda each: (each[0].rule not in _WHOLE_RULES, each[1].bit_count(), each[0].slot)
        )

    def _draw_places(self, splitting: Splitting, places: Sequence[int]) -> None:
        split = set(self._slots)
        for slot, position in enumerate(places):
            if slot in split:
                continue
            if splitting.group_of[slot] >= 0:
                self._holder[position] = splitting.group_of[slot]
            for at, supply in enumerate(self._supplies):
                if supply.demand[slot]:
                    self._room[at][position] -= supply.demand[slot]
                    self._whole[at][position] = 0

    def parts(self) -> list[Parts]:
        """The parts of each split, in the order of the splits."""
        return [dict(sorted(self._found[slot].items())) for slot in self._slots]

    def succeeds(self, at: int) -> bool:
        """Whether the splits from this one on find their parts, which are noted then."""
        if at == len(self._order):
            return True
        if not self._can_hold(at):
            return False
        state = self._state(at)
        if state in self._dead:
            return False
        split, reach = self._order[at]
        for parts in self._ways(split, reach, at):
            before = self._take(split, parts)
            if self.succeeds(at + 1):
                self._found[split.slot] = parts
                return True
            self._put_back(split, before)
        self._dead.add(state)
        return False

    def _state(self, at: int) -> object:
        rooms = tuple((*room, *whole) for room, whole in zip(self._room, self._whole, strict=True))
        return (at, rooms, tuple(sorted(self._holder.items())))

    def _can_hold(self, at: int) -> bool:
        """Whether no subtree is asked for more than it has: necessary, not sufficient."""
        rest = self._order[at:]
        self._budget.spend(1 + len(rest) * len(self._supplies[0].room) // _POSITIONS_PER_STEP)
        for number, room in enumerate(self._room):
            asking = [(split, reach) for split, reach in rest if split.supply == number]
            everywhere = reduce(or_, (reach for _, reach in asking), 0)
            for bound in {everywhere, *(reach for _, reach in asking)}:
                wanted = sum(split.amount for split, reach in asking if not reach & ~bound)
                if wanted > sum(max(room[position], 0) for position in bits(bound)):
                    return False
        return True

    def _take(self, split: Split, parts: Parts) -> tuple[list[int], list[int], dict[int, int]]:
        room, whole = self._room[split.supply], self._whole[split.supply]
        before = room.copy(), whole.copy(), self._holder.copy()
        for position, amount in parts.items():
            room[position] -= amount
            whole[position] = 0
            if split.apart:
                self._holder[position] = split.group
        return before

    def _put_back(self, split: Split, before: tuple[list[int], list[int], dict[int, int]]) -> None:
        self._room[split.supply], self._whole[split.supply], self._holder = before

    # -- one split ----------------------------------------------------------------------------------

    def _ways(self, split: Split, reach: int, at: int) -> Iterator[Parts]:
        """All ways to share out one amount, the preferred one first."""
        alike: dict[object, list[int]] = {}
        kinds: dict[object, PositionKind] = {}
        for position in bits(reach):
            kind = self._kind(split, position)
            if kind is not None:
                look = (kind, *self._look(position, at))
                alike.setdefault(look, []).append(position)
                kinds[look] = kind
        looks = list(alike)
        if split.rule is SplitRule.ISOLATE:
            # What is taken beyond the amount is least on the smallest ones.
            looks.sort(key=lambda look: self._whole[split.supply][alike[look][0]])
        counted = [replace(kinds[look], count=len(alike[look])) for look in looks]
        for filling in fillings(counted, split.amount, split.rule, self._budget):
            yield self._taken(split, filling, [alike[look] for look in looks])

    def _taken(self, split: Split, filling: Filling, members: Sequence[Sequence[int]]) -> Parts:
        parts: Parts = {}
        whole = self._whole[split.supply]
        begun = dict.fromkeys(range(len(members)), 0)
        for part in filling:
            start = begun[part.kind]
            begun[part.kind] += part.count
            for position in members[part.kind][start : start + part.count]:
                parts[position] = whole[position] if split.rule is SplitRule.ISOLATE else part.amount
        return parts

    def _kind(self, split: Split, position: int) -> PositionKind | None:
        """What the position can give to the split, None if nothing."""
        if split.apart and self._holder.get(position, split.group) != split.group:
            return None
        supply = self._supplies[split.supply]
        room, whole = self._room[split.supply][position], self._whole[split.supply][position]
        step = supply.step[position]
        least = -(-supply.least[position] // step) * step
        if split.rule not in _WHOLE_RULES:
            most = min(room, split.amount)
            most -= most % step
            return PositionKind(1, least, most, step, room, whole > 0) if most >= least else None
        if not whole or room < whole or whole < least or whole % step:
            return None
        if split.rule is SplitRule.ISOLATE:
            return PositionKind(1, 1, 1, 1, whole, unused=True)
        return PositionKind(1, whole, whole, whole, whole, unused=True) if whole >= _FEWEST_SIBLINGS else None

    def _look(self, position: int, at: int) -> Iterator[object]:
        """All that matters of a position to the splits that come later."""
        for split, reach in self._order[at + 1 :]:
            number = split.supply
            supply = self._supplies[number]
            yield reach >> position & 1
            yield self._room[number][position], self._whole[number][position]
            yield supply.least[position], supply.step[position]
        yield self._holder.get(position)
