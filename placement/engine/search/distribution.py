"""The distribution of split amounts inside one tree, once all other groups have their places.

A choice of places has one answer, the one that the rules prefer. Several amounts are shared out one after the
other. If the preferred ways of all do not go together, all other ways are tried in turn.
Source: placement-api.md, "Split amounts".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from placement.engine.domain.groups import SplitRule
from placement.engine.search.budget import Budget
from placement.engine.search.fillings import PositionKind, fillings
from placement.engine.search.problem import Split, Splitting, bits, union

Parts = dict[int, int]
"""Position and amount, positions ascending."""

_WHOLE_RULES = (SplitRule.REQUIRE, SplitRule.ISOLATE)
FEWEST_SIBLINGS = 2
"""A provider with a smaller capacity has no siblings to be kept together."""
_POSITIONS_PER_STEP = 16


def distribute(splitting: Splitting, places: Sequence[int], budget: Budget) -> list[Parts] | None:
    """Return the parts of each split, None if there is no way; `places` are the other slots' positions.

    Parts are the amounts taken; under `isolate` they may exceed the amounts asked for. Raises SearchEnded.
    """
    distribution = _Distribution(splitting, places, budget)
    if not distribution.succeeds(0):
        return None
    return [distribution.found[split.slot] for split in splitting.splits]


def narrowed(options: Sequence[int], splitting: Splitting, budget: Budget) -> tuple[int, ...] | None:
    """Return the other slots' positions outside subtrees that cannot give an amount, None if none are left.

    Each amount is checked alone, and amounts of the same subtrees also in sum. Raises SearchEnded.
    """
    left = list(options)
    alike: dict[object, list[Split]] = {}
    for split in splitting.splits:
        alike.setdefault((split.supply, split.tops), []).append(split)
    for splits in alike.values():
        for slots in splits[0].tops:
            tops = union(left[slot] for slot in bits(slots))
            able = [top for top in bits(tops) if _can_give(splitting, splits, splitting.below[top], budget)]
            under = union(splitting.below[top] for top in able)
            for slot in bits(slots):
                left[slot] &= under
                if not left[slot]:
                    return None
        if not splits[0].tops and not _can_give(splitting, splits, -1, budget):
            return None
    return tuple(left)


def _can_give(splitting: Splitting, splits: Sequence[Split], under: int, budget: Budget) -> bool:
    """Return whether these positions could give each of the amounts, and all of them by their sum."""
    headroom = splitting.supplies[splits[0].supply].headroom
    reach = union(split.options for split in splits) & under
    if sum(split.amount for split in splits) > sum(max(headroom[position], 0) for position in bits(reach)):
        return False
    alone = (replace(split, options=split.options & under, tops=()) for split in splits)
    return all(distribute(replace(splitting, splits=(split,)), (), budget) is not None for split in alone)


class _Distribution:
    def __init__(self, splitting: Splitting, places: Sequence[int], budget: Budget) -> None:
        self._budget = budget
        self._supplies = splitting.supplies
        self._group_of = splitting.group_of
        self._free = [list(supply.headroom) for supply in splitting.supplies]
        self._whole = [list(supply.whole) for supply in splitting.supplies]
        # Positions that only one group may use -> the number of the group, for groups kept apart.
        self._holder: dict[int, int] = {}
        self._dead: set[object] = set()
        # The parts of each split by its slot, noted once all are found.
        self.found: dict[int, Parts] = {}
        split = {each.slot for each in splitting.splits}
        for slot, position in enumerate(places):
            if slot in split:
                continue
            if self._group_of[slot] >= 0:
                self._holder[position] = self._group_of[slot]
            for at, supply in enumerate(self._supplies):
                if supply.demand[slot]:
                    self._free[at][position] -= supply.demand[slot]
                    self._whole[at][position] = 0
        reached = [(split, splitting.reach(split, places)) for split in splitting.splits]
        # Whole providers and small subtrees first: what is left is easier to share out.
        self._order = sorted(
            reached, key=lambda each: (each[0].rule not in _WHOLE_RULES, each[1].bit_count(), each[0].slot)
        )

    def succeeds(self, at: int) -> bool:
        """Return whether the splits from this one on find their parts, which are noted then."""
        if at == len(self._order):
            return True
        if not self._can_hold(at):
            return False
        amounts = tuple((*free, *whole) for free, whole in zip(self._free, self._whole, strict=True))
        state = (at, amounts, tuple(sorted(self._holder.items())))
        if state in self._dead:
            return False
        split, reach = self._order[at]
        for parts in self._ways(split, reach, at):
            free, whole = self._free[split.supply], self._whole[split.supply]
            before = free.copy(), whole.copy(), self._holder.copy()
            for position, amount in parts.items():
                free[position] -= amount
                whole[position] = 0
                if self._group_of[split.slot] >= 0:
                    self._holder[position] = self._group_of[split.slot]
            if self.succeeds(at + 1):
                self.found[split.slot] = dict(sorted(parts.items()))
                return True
            self._free[split.supply], self._whole[split.supply], self._holder = before
        self._dead.add(state)
        return False

    def _can_hold(self, at: int) -> bool:
        """Return whether every subtree has the amounts asked of it: necessary, not sufficient."""
        rest = self._order[at:]
        self._budget.spend(1 + len(rest) * len(self._supplies[0].headroom) // _POSITIONS_PER_STEP)
        for number, free in enumerate(self._free):
            asking = [(split, reach) for split, reach in rest if split.supply == number]
            everywhere = union(reach for _, reach in asking)
            for bound in {everywhere, *(reach for _, reach in asking)}:
                wanted = sum(split.amount for split, reach in asking if not reach & ~bound)
                if wanted > sum(max(free[position], 0) for position in bits(bound)):
                    return False
        return True

    # -- one split ----------------------------------------------------------------------------------

    def _ways(self, split: Split, reach: int, at: int) -> Iterator[Parts]:
        """Yield all ways to share out one amount, the preferred one first."""
        alike: dict[tuple[PositionKind, object], list[int]] = {}
        for position in bits(reach):
            kind = self._kind(split, position)
            if kind is not None:
                alike.setdefault((kind, tuple(self._look(position, at))), []).append(position)
        looks = list(alike)
        isolate = split.rule is SplitRule.ISOLATE
        if isolate:
            # The smallest providers first: they give the least beyond the amount.
            looks.sort(key=lambda look: self._whole[split.supply][alike[look][0]])
        counted = [replace(look[0], count=len(alike[look])) for look in looks]
        for filling in fillings(counted, split.amount, split.rule, self._budget):
            whole, members = self._whole[split.supply], [iter(alike[look]) for look in looks]
            yield {
                position: whole[position] if isolate else part.amount
                for part in filling
                for position in islice(members[part.kind], part.count)
            }

    def _kind(self, split: Split, position: int) -> PositionKind | None:
        """Return the kind of the position for the split, None if it can give no part."""
        group = self._group_of[split.slot]
        if group >= 0 and self._holder.get(position, group) != group:
            return None
        supply = self._supplies[split.supply]
        free, whole = self._free[split.supply][position], self._whole[split.supply][position]
        step = supply.step[position]
        least = -(-supply.least[position] // step) * step
        if split.rule not in _WHOLE_RULES:
            most = min(free, split.amount)
            most -= most % step
            return PositionKind(1, least, most, step, free, whole > 0) if most >= least else None
        if not whole or free < whole or whole < least or whole % step:
            return None
        if split.rule is SplitRule.ISOLATE:
            return PositionKind(1, 1, 1, 1, whole, unused=True)
        return PositionKind(1, whole, whole, whole, whole, unused=True) if whole >= FEWEST_SIBLINGS else None

    def _look(self, position: int, at: int) -> Iterator[object]:
        """Yield all that matters of a position to the splits that come later."""
        for split, reach in self._order[at + 1 :]:
            number = split.supply
            supply = self._supplies[number]
            yield reach >> position & 1
            yield self._free[number][position], self._whole[number][position]
            yield supply.least[position], supply.step[position]
        yield self._holder.get(position)
