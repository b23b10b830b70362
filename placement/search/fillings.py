"""The ways to put one amount together from parts of several providers, the one that its rule prefers first.

Providers that look alike are one kind, and only how many of a kind give how much is chosen: the work grows
with the kinds, not with the providers.
Source: placement-api.md, "Split amounts".
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import gcd

from placement.domain.groups import SplitRule
from placement.search.budget import Budget

# What kinds cost the budget when sums over them are looked at.
_KINDS_PER_STEP = 16


@dataclass(frozen=True, slots=True)
class PositionKind:
    """Providers that are alike: `count` of them, each of which gives a multiple of `step` in `least..most`.

    `room` is all that such a provider has left; `unused` tells that nothing of it is used.
    """

    count: int
    least: int
    most: int
    step: int
    room: int
    unused: bool


@dataclass(frozen=True, slots=True)
class Part:
    """`count` providers of a kind (by its place) give `amount` each."""

    kind: int
    count: int
    amount: int


Filling = tuple[Part, ...]


def fillings(
    kinds: Sequence[PositionKind], amount: int, rule: SplitRule, budget: Budget
) -> Iterator[Filling]:
    """Every way to give the amount, up to swapping providers of one kind; the preferred one first.

    Raises SearchEnded.
    """
    order = sorted(range(len(kinds)), key=lambda at: _preference(kinds[at], rule))
    search = _Filling([kinds[at] for at in order], rule is SplitRule.SPREAD, budget)
    for size in _sizes(kinds, amount, spread=rule is SplitRule.SPREAD):
        for parts in search.of_size(amount, size):
            yield tuple(Part(order[part.kind], part.count, part.amount) for part in parts)


def _preference(kind: PositionKind, rule: SplitRule) -> tuple[object, ...]:
    """Sorts the kinds by what a rule takes first; kinds that it does not tell apart stay as they come."""
    if rule is SplitRule.SPREAD:
        return (-kind.most, not kind.unused)
    return (not kind.unused, -kind.room)


def _sizes(kinds: Sequence[PositionKind], amount: int, *, spread: bool) -> range:
    """How many providers may give the amount between them: as few as possible first, or as many."""
    most = sorted((kind.most for kind in kinds for _ in range(kind.count)), reverse=True)
    least = sorted(kind.least for kind in kinds for _ in range(kind.count))
    fewest = next((n for n, total in enumerate(accumulate(most), 1) if total >= amount), len(most) + 1)
    highest = sum(total <= amount for total in accumulate(least))
    return range(highest, fewest - 1, -1) if spread else range(fewest, highest + 1)


@dataclass(slots=True)
class _State:
    """What is left to do: `size` providers give `amount`, from `kind` on.

    Of that kind so many are `left`, and each gives at most `ceiling`: alike ones are taken in one order.
    """

    kind: int
    ceiling: int
    left: int
    amount: int
    size: int


class _Filling:
    """Walks over kinds in their order, with the choices that are still open on a stack."""

    def __init__(self, kinds: Sequence[PositionKind], spread: bool, budget: Budget) -> None:
        self._kinds = kinds
        self._spread = spread
        self._budget = budget
        self._steps = list(accumulate((kind.step for kind in reversed(kinds)), gcd))[::-1]

    def of_size(self, amount: int, size: int) -> Iterator[Filling]:
        """All fillings with exactly so many providers."""
        path: list[Part] = []
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

    def _choices(self, state: _State) -> Iterator[tuple[Part, _State]]:
        """How many of the kind give how much, and what is left to do then."""
        if self._spread:
            preferred = self._preferred(state)
            if preferred is not None:
                yield self._taken(state, *preferred)
            yield from self._of_amounts(state, preferred)
            yield self._leave(state)
            return
        room = self._kinds[state.kind].room
        whole = room if room <= state.ceiling and room == self._kinds[state.kind].most else 0
        if whole:
            yield from self._taking(state, whole, None)
        # Part of a provider only where nothing else is left: the last kinds have the least room.
        yield self._leave(state)
        yield from self._of_amounts(state, None, without=whole)

    def _leave(self, state: _State) -> tuple[Part, _State]:
        self._budget.spend()
        return Part(state.kind, 0, 0), self._enter(state.kind + 1, state.amount, state.size)

    def _of_amounts(
        self, state: _State, done: tuple[int, int] | None, without: int = 0
    ) -> Iterator[tuple[Part, _State]]:
        kind = self._kinds[state.kind]
        top = min(state.ceiling, state.amount)
        for amount in range(top - top % kind.step, kind.least - 1, -kind.step):
            if amount != without:
                yield from self._taking(state, amount, done)

    def _taking(
        self, state: _State, amount: int, done: tuple[int, int] | None
    ) -> Iterator[tuple[Part, _State]]:
        for count in range(min(state.left, state.size, state.amount // amount), 0, -1):
            if (count, amount) != done:
                yield self._taken(state, count, amount)

    def _taken(self, state: _State, count: int, amount: int) -> tuple[Part, _State]:
        self._budget.spend()
        left = _State(
            state.kind,
            amount - self._kinds[state.kind].step,
            state.left - count,
            state.amount - count * amount,
            state.size - count,
        )
        return Part(state.kind, count, amount), left

    def _is_possible(self, state: _State) -> bool:
        """Whether amounts and steps leave a way at all."""
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
        """(most, least, how many) of the providers that can still be chosen."""
        kind = self._kinds[state.kind]
        later = [(each.most, each.least, each.count) for each in self._kinds[state.kind + 1 :]]
        if state.ceiling < kind.least:
            return later
        return [(min(kind.most, state.ceiling), kind.least, state.left), *later]

    def _preferred(self, state: _State) -> tuple[int, int] | None:
        """How many of the kind give how much if all give as evenly as possible."""
        kind = self._kinds[state.kind]
        if not state.left or state.ceiling < kind.least:
            return None
        level = self._level(state)
        amount = min(kind.most, level, state.ceiling)
        amount -= amount % kind.step
        count = min(state.left, state.size)
        if amount == level:
            count = min(count, state.amount - self._at_level(state, level - 1))
        return (count, amount) if amount >= kind.least and count > 0 else None

    def _level(self, state: _State) -> int:
        """The lowest bound on all parts under which they still make up the amount."""
        low, high = 0, state.amount
        while low < high:
            middle = (low + high) // 2
            if self._at_level(state, middle) >= state.amount:
                high = middle
            else:
                low = middle + 1
        return low

    def _at_level(self, state: _State, level: int) -> int:
        offers = ((min(most, level), count) for most, _, count in self._open(state))
        return _sum_of(state.size, sorted(offers, reverse=True))


def _sum_of(size: int, offers: Iterable[tuple[int, int]]) -> int:
    """The sum of the first so many (amount, how many) in their order."""
    total = 0
    for amount, count in offers:
        total += amount * min(size, count)
        size -= min(size, count)
    return total
