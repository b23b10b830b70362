"""The ways to put one amount together from parts of several providers, the best by its rule first.

Providers that look alike are one kind. Only the numbers of a kind and their amounts are chosen, so the work
grows with the kinds and not with the providers.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import gcd
from typing import NamedTuple

from placement.engine.domain.groups import SplitRule
from placement.engine.search.budget import Budget

# Summing over this many kinds costs the budget one step.
_KINDS_PER_STEP = 16


@dataclass(frozen=True, slots=True)
class PositionKind:
    """A kind of `count` like providers that each give a multiple of `step` in `least..most`.

    `free` is all that such a provider has left; `unused`: nothing of it is used.
    """

    count: int
    least: int
    most: int
    step: int
    free: int
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
        """Return a sort key: kinds that the rule takes first; equal kinds keep their order."""
        kind = kinds[at]
        return (-kind.most, not kind.unused) if spread else (not kind.unused, -kind.free)

    order = sorted(range(len(kinds)), key=preference)
    search = _FillingSearch([kinds[at] for at in order], spread, budget)
    # As few providers as possible give the amount between them, or as many as possible.
    most = sorted((kind.most for kind in kinds for _ in range(kind.count)), reverse=True)
    least = sorted(kind.least for kind in kinds for _ in range(kind.count))
    fewest = next((n for n, total in enumerate(accumulate(most), 1) if total >= amount), len(most) + 1)
    highest = sum(total <= amount for total in accumulate(least))
    for size in range(highest, fewest - 1, -1) if spread else range(fewest, highest + 1):
        for parts in search.of_size(amount, size):
            yield tuple(SplitPart(order[part.kind], part.count, part.amount) for part in parts)


class _FillingState(NamedTuple):
    """A state of the search: `size` more providers give `amount`, from `kind` on.

    Of that kind `left` providers remain, and each gives at most `ceiling`: like ones are taken in one order.
    """

    kind: int
    ceiling: int
    left: int
    amount: int
    size: int


class _FillingSearch:
    """A walk over kinds in their order, with the choices that are still open on a stack."""

    def __init__(self, kinds: Sequence[PositionKind], spread: bool, budget: Budget) -> None:
        self._kinds = kinds
        self._spread = spread
        self._budget = budget
        self._steps = list(accumulate((kind.step for kind in reversed(kinds)), gcd))[::-1]

    def of_size(self, amount: int, size: int) -> Iterator[Filling]:
        """Yield all fillings with exactly `size` providers."""
        parts: list[SplitPart] = []
        stack = [self._choices(self._enter(0, amount, size))]
        while stack:
            step = next(stack[-1], None)
            if step is None:
                stack.pop()
                if stack:
                    parts.pop()
                continue
            part, state = step
            if not state.size:
                if not state.amount:
                    yield tuple(found for found in (*parts, part) if found.count)
                continue
            if self._is_possible(state):
                parts.append(part)
                stack.append(self._choices(state))

    def _enter(self, kind: int, amount: int, size: int) -> _FillingState:
        if kind == len(self._kinds):
            return _FillingState(kind, 0, 0, amount, size)
        return _FillingState(kind, self._kinds[kind].most, self._kinds[kind].count, amount, size)

    def _choices(self, state: _FillingState) -> Iterator[tuple[SplitPart, _FillingState]]:
        """Yield each part that the kind can give, and the state after it."""
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
        whole = kind.free if kind.free <= state.ceiling and kind.free == kind.most else 0
        if whole:
            yield from self._taking(state, (whole,))
        # A part of a provider is taken only where nothing else is left: the last kinds have the least room.
        yield self._leave(state)
        yield from self._taking(state, (amount for amount in amounts if amount != whole))

    def _taking(
        self, state: _FillingState, amounts: Iterable[int], done: tuple[int, int] | None = None
    ) -> Iterator[tuple[SplitPart, _FillingState]]:
        for amount in amounts:
            for count in range(min(state.left, state.size, state.amount // amount), 0, -1):
                if (count, amount) != done:
                    yield self._taken(state, count, amount)

    def _leave(self, state: _FillingState) -> tuple[SplitPart, _FillingState]:
        self._budget.spend()
        return SplitPart(state.kind, 0, 0), self._enter(state.kind + 1, state.amount, state.size)

    def _taken(self, state: _FillingState, count: int, amount: int) -> tuple[SplitPart, _FillingState]:
        self._budget.spend()
        ceiling, left = amount - self._kinds[state.kind].step, state.left - count
        after_state = _FillingState(
            state.kind, ceiling, left, state.amount - count * amount, state.size - count
        )
        return SplitPart(state.kind, count, amount), after_state

    def _is_possible(self, state: _FillingState) -> bool:
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

    def _open(self, state: _FillingState) -> list[tuple[int, int, int]]:
        """Return (most, least, how many) of the providers that can still be chosen."""
        kind = self._kinds[state.kind]
        later = [(each.most, each.least, each.count) for each in self._kinds[state.kind + 1 :]]
        if state.ceiling < kind.least:
            return later
        return [(min(kind.most, state.ceiling), kind.least, state.left), *later]

    def _preferred(self, state: _FillingState) -> tuple[int, int] | None:
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

    def _at_level(self, state: _FillingState, level: int) -> int:
        offers = ((min(most, level), count) for most, _, count in self._open(state))
        return _sum_of(state.size, sorted(offers, reverse=True))


def _sum_of(size: int, offers: Iterable[tuple[int, int]]) -> int:
    """Return the sum of the first `size` amounts, from pairs (amount, how many) in their order."""
    total = 0
    for amount, count in offers:
        total += amount * min(size, count)
        size -= min(size, count)
    return total
