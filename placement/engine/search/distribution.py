"""The distribution of split amounts inside one tree, once all other groups have their places.

A choice of places has one answer, the one that the rules prefer. Several amounts are shared out one after the
other. If the preferred ways of all do not go together, all other ways are tried in turn.
Source: placement-api.md, "Split amounts".
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice
from math import gcd
from typing import NamedTuple

from placement.engine.domain.groups import SplitRule
from placement.engine.search.budget import Budget
from placement.engine.search.problem import Split, Splitting, bits, union

# The ways to put one amount together from parts of several providers, the one that its rule prefers first.
#
# Providers that look alike are one kind, and only how many of a kind give how much is chosen: the work grows
# with the kinds, not with the providers.


# Summing over this many kinds costs the budget one step.
_KINDS_PER_STEP = 16


@dataclass(frozen=True, slots=True)
class PositionKind:
    """A kind of `count` like providers that each give a multiple of `step` in `least..most`.

    `room` is all that such a provider has left; `unused` tells that nothing of it is used.
    """

    count: int
    least: int
    most: int
    step: int
    room: int
    unused: bool


@dataclass(frozen=True, slots=True)
class SplitPart:
    """A part of an amount: `count` providers of a kind (by its place) give `amount` each."""

    kind: int
    count: int
    amount: int


Filling = tuple[SplitPart, ...]


def fillings(
    kinds: Sequence[PositionKind], amount: int, rule: SplitRule, budget: Budget
) -> Iterator[Filling]:
    """Yield every way to give the amount, up to swapping providers of one kind; the preferred one first.

    Raises SearchEnded.
    """
    spread = rule is SplitRule.SPREAD

    def preference(at: int) -> tuple[object, ...]:
        """Return a sort key for what the rule takes first; equal kinds keep their order."""
        kind = kinds[at]
        return (-kind.most, not kind.unused) if spread else (not kind.unused, -kind.room)

    order = sorted(range(len(kinds)), key=preference)
    search = _Filling([kinds[at] for at in order], spread, budget)
    # As few providers as possible give the amount between them, or as many as possible.
    most = sorted((kind.most for kind in kinds for _ in range(kind.count)), reverse=True)
    least = sorted(kind.least for kind in kinds for _ in range(kind.count))
    fewest = next((n for n, total in enumerate(accumulate(most), 1) if total >= amount), len(most) + 1)
    highest = sum(total <= amount for total in accumulate(least))
    for size in range(highest, fewest - 1, -1) if spread else range(fewest, highest + 1):
        for parts in search.of_size(amount, size):
            yield tuple(SplitPart(order[part.kind], part.count, part.amount) for part in parts)


class _State(NamedTuple):
    """A state of the search: `size` more providers give `amount`, from `kind` on.

    Of that kind `left` providers remain, and each gives at most `ceiling`: like ones are taken in one order.
    """

    kind: int
    ceiling: int
    left: int
    amount: int
    size: int


class _Filling:
    """A walk over kinds in their order, with the choices that are still open on a stack."""

    def __init__(self, kinds: Sequence[PositionKind], spread: bool, budget: Budget) -> None:
        self._kinds = kinds
        self._spread = spread
        self._budget = budget
        self._steps = list(accumulate((kind.step for kind in reversed(kinds)), gcd))[::-1]

    def of_size(self, amount: int, size: int) -> Iterator[Filling]:
        """Yield all fillings with exactly `size` providers."""
        path: list[SplitPart] = []
        stack = [self._choices(self._enter(0, amount, size))]
        while stack:
            step = next(stack[-1], None)
            if step is None:
                stack.pop()
                if stack:
                    path.pop()
                continue
            part, state = step
            if not state.size:
                if not state.amount:
                    yield tuple(found for found in (*path, part) if found.count)
                continue
            if self._is_possible(state):
                path.append(part)
                stack.append(self._choices(state))

    def _enter(self, kind: int, amount: int, size: int) -> _State:
        if kind == len(self._kinds):
            return _State(kind, 0, 0, amount, size)
        return _State(kind, self._kinds[kind].most, self._kinds[kind].count, amount, size)

    def _choices(self, state: _State) -> Iterator[tuple[SplitPart, _State]]:
        """Yield how many of the kind give how much, and what is left to do then."""
        kind = self._kinds[state.kind]
        top = min(state.ceiling, state.amount)
        amounts = range(top - top % kind.step, kind.least - 1, -kind.step)
        if self._spread:
            preferred = self._preferred(state)
            if preferred is not None:
                yield self._taken(state, *preferred)
            yield from self._taking(state, amounts, preferred)
            yield self._leave(state)
            return
        whole = kind.room if kind.room <= state.ceiling and kind.room == kind.most else 0
        if whole:
            yield from self._taking(state, (whole,))
        # A part of a provider is taken only where nothing else is left: the last kinds have the least room.
        yield self._leave(state)
        yield from self._taking(state, (amount for amount in amounts if amount != whole))

    def _taking(
        self, state: _State, amounts: Iterable[int], done: tuple[int, int] | None = None
    ) -> Iterator[tuple[SplitPart, _State]]:
        for amount in amounts:
            for count in range(min(state.left, state.size, state.amount // amount), 0, -1):
                if (count, amount) != done:
                    yield self._taken(state, count, amount)

    def _leave(self, state: _State) -> tuple[SplitPart, _State]:
        self._budget.spend()
        return SplitPart(state.kind, 0, 0), self._enter(state.kind + 1, state.amount, state.size)

    def _taken(self, state: _State, count: int, amount: int) -> tuple[SplitPart, _State]:
        self._budget.spend()
        ceiling, left = amount - self._kinds[state.kind].step, state.left - count
        after = _State(state.kind, ceiling, left, state.amount - count * amount, state.size - count)
        return SplitPart(state.kind, count, amount), after

    def _is_possible(self, state: _State) -> bool:
        """Return whether amounts and steps leave a way at all."""
        if state.kind == len(self._kinds) or state.amount < state.size:
            return False
        self._budget.spend(1 + (len(self._kinds) - state.kind) // _KINDS_PER_STEP)
        if state.amount % self._steps[state.kind]:
            return False
        offers = self._open(state)
        if sum(count for _, _, count in offers) < state.size:
            return False
        most = _sum_of(state.size, sorted(((most, count) for most, _, count in offers), reverse=True))
        least = _sum_of(state.size, sorted((least, count) for _, least, count in offers))
        return least <= state.amount <= most

    def _open(self, state: _State) -> list[tuple[int, int, int]]:
        """Return (most, least, how many) of the providers that can still be chosen."""
        kind = self._kinds[state.kind]
        later = [(each.most, each.least, each.count) for each in self._kinds[state.kind + 1 :]]
        if state.ceiling < kind.least:
            return later
        return [(min(kind.most, state.ceiling), kind.least, state.left), *later]

    def _preferred(self, state: _State) -> tuple[int, int] | None:
        """Return how many of the kind give how much if all give as evenly as possible."""
        kind = self._kinds[state.kind]
        if not state.left or state.ceiling < kind.least:
            return None
        # The lowest bound on all parts under which they still make up the amount.
        levels = range(state.amount)
        level = bisect_left(levels, state.amount, key=lambda each: self._at_level(state, each))
        amount = min(kind.most, level, state.ceiling)
        amount -= amount % kind.step
        count = min(state.left, state.size)
        if amount == level:
            count = min(count, state.amount - self._at_level(state, level - 1))
        return (count, amount) if amount >= kind.least and count > 0 else None

    def _at_level(self, state: _State, level: int) -> int:
        offers = ((min(most, level), count) for most, _, count in self._open(state))
        return _sum_of(state.size, sorted(offers, reverse=True))


def _sum_of(size: int, offers: Iterable[tuple[int, int]]) -> int:
    """Return the sum of the first `size` amounts, from pairs (amount, how many) in their order."""
    total = 0
    for amount, count in offers:
        total += amount * min(size, count)
        size -= min(size, count)
    return total


Parts = dict[int, int]
"""Position and amount, positions ascending."""

_WHOLE_RULES = (SplitRule.REQUIRE, SplitRule.ISOLATE)
FEWEST_SIBLINGS = 2
"""A provider with a smaller capacity has no siblings to be kept together."""
_POSITIONS_PER_STEP = 16


def distribute(splitting: Splitting, places: Sequence[int], budget: Budget) -> list[Parts] | None:
    """Return the parts of each split, None if there is no way; `places` are the other slots' positions.

    Parts are what is taken, which under `isolate` may be more than what is asked for. Raises SearchEnded.
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
    room = splitting.supplies[splits[0].supply].room
    reach = union(split.options for split in splits) & under
    if sum(split.amount for split in splits) > sum(max(room[position], 0) for position in bits(reach)):
        return False
    alone = (replace(split, options=split.options & under, tops=()) for split in splits)
    return all(distribute(replace(splitting, splits=(split,)), (), budget) is not None for split in alone)


class _Distribution:
    def __init__(self, splitting: Splitting, places: Sequence[int], budget: Budget) -> None:
        self._budget = budget
        self._supplies = splitting.supplies
        self._group_of = splitting.group_of
        self._room = [list(supply.room) for supply in splitting.supplies]
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
                    self._room[at][position] -= supply.demand[slot]
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
        rooms = tuple((*room, *whole) for room, whole in zip(self._room, self._whole, strict=True))
        state = (at, rooms, tuple(sorted(self._holder.items())))
        if state in self._dead:
            return False
        split, reach = self._order[at]
        for parts in self._ways(split, reach, at):
            room, whole = self._room[split.supply], self._whole[split.supply]
            before = room.copy(), whole.copy(), self._holder.copy()
            for position, amount in parts.items():
                room[position] -= amount
                whole[position] = 0
                if self._group_of[split.slot] >= 0:
                    self._holder[position] = self._group_of[split.slot]
            if self.succeeds(at + 1):
                self.found[split.slot] = dict(sorted(parts.items()))
                return True
            self._room[split.supply], self._whole[split.supply], self._holder = before
        self._dead.add(state)
        return False

    def _can_hold(self, at: int) -> bool:
        """Return whether every subtree has what is asked of it: necessary, not sufficient."""
        rest = self._order[at:]
        self._budget.spend(1 + len(rest) * len(self._supplies[0].room) // _POSITIONS_PER_STEP)
        for number, room in enumerate(self._room):
            asking = [(split, reach) for split, reach in rest if split.supply == number]
            everywhere = union(reach for _, reach in asking)
            for bound in {everywhere, *(reach for _, reach in asking)}:
                wanted = sum(split.amount for split, reach in asking if not reach & ~bound)
                if wanted > sum(max(room[position], 0) for position in bits(bound)):
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
        """Return what the position can give to the split, None if nothing."""
        group = self._group_of[split.slot]
        if group >= 0 and self._holder.get(position, group) != group:
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
        return PositionKind(1, whole, whole, whole, whole, unused=True) if whole >= FEWEST_SIBLINGS else None

    def _look(self, position: int, at: int) -> Iterator[object]:
        """Yield all that matters of a position to the splits that come later."""
        for split, reach in self._order[at + 1 :]:
            number = split.supply
            supply = self._supplies[number]
            yield reach >> position & 1
            yield self._room[number][position], self._whole[number][position]
            yield supply.least[position], supply.step[position]
        yield self._holder.get(position)
