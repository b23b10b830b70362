"""Counting by patterns: the ways in which one tree can serve one consumer, and how many of each go together.

Trees where the same providers can serve the same slots have the same patterns, so many trees are counted at
once: exactly for one or two patterns; for more a greedy choice is a lower bound and sums are an upper one,
and where these differ the choices are tried one by one, as long as that does not take too many steps.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from placement.forest.arrays import Amounts, Indices, Rows
from placement.search.budget import Budget
from placement.search.capacity.rooms import MOST, Bounds
from placement.search.equivalence import EquivalenceClass, EquivalenceClasses
from placement.search.solver import solutions

Demands = Sequence[Mapping[Any, int]]
"""For each slot what it takes of what the provider has room for, by any keys."""

_MOST_PATTERNS = 64
# A pattern is tried so many times in a greedy count, and a state is searched for so many steps.
_MOST_ROUNDS = 4096
_STEPS_PER_TREE = 3000
_STEPS_IN_ALL = 150_000
_ROUNDS_PER_LOOK = 16


@dataclass(slots=True)
class _Steps:
    left: int


def count_patterns(
    equivalence: EquivalenceClasses,
    roots: Rows,
    demands: Demands,
    room: Mapping[Hashable, Amounts],
    budget: Budget,
) -> Bounds:
    """How many consumers each of the roots has room for; `room` has a number for each row of the forest.

    The equivalence classes must not depend on what is free. Raises SearchEnded.
    """
    lower, upper = np.zeros((2, len(roots)), np.int64)
    steps = _Steps(_STEPS_IN_ALL)
    for trees in equivalence.of(roots.astype(np.int32)):
        budget.look()
        found = _of_class(trees, demands, room, budget, steps)
        lower[trees.ranks], upper[trees.ranks] = found.lower, found.upper
    return Bounds(lower, upper)


def _of_class(
    trees: EquivalenceClass,
    demands: Demands,
    room: Mapping[Hashable, Amounts],
    budget: Budget,
    steps: _Steps,
) -> Bounds:
    places = [(position, key) for position in range(trees.providers.shape[1]) for key in room]
    number = {place: at for at, place in enumerate(places)}
    patterns: dict[tuple[int, ...], None] = {}
    found = islice(solutions(trees.problem, budget), _MOST_PATTERNS**2)
    for solution in found:
        taken = [0] * len(places)
        for slot, position in enumerate(solution):
            for key, amount in demands[slot].items():
                taken[number[position, key]] += amount
        patterns[tuple(taken)] = None
        if len(patterns) > _MOST_PATTERNS:
            break
    if not (patterns and places):
        # Slots without resources can be filled again and again, if they can at all.
        exact = np.full(len(trees.ranks), MOST if patterns else 0, np.int64)
        return Bounds(exact, exact)
    free = np.stack([room[key][trees.providers[:, position]] for position, key in places], axis=1)
    table = np.array(list(patterns), np.int64)
    used = table.any(axis=0)
    all_known = len(patterns) <= _MOST_PATTERNS and next(found, None) is None
    keys = [list(room).index(key) for _, key in places]
    return _packed(table[:, used], free[:, used], np.array(keys)[used], all_known, budget, steps)


def _packed(
    patterns: Amounts, free: Amounts, keys: Amounts, all_known: bool, budget: Budget, steps: _Steps
) -> Bounds:
    """How many patterns fit side by side into each row of `free`."""
    if all_known and len(patterns) == 1:
        exact = _times(patterns[0], free)
        return Bounds(exact, exact)
    if all_known and len(patterns) == 2:
        exact = _of_two(patterns, free, budget)
        return Bounds(exact, exact)
    lower = _greedy(patterns, free, budget)
    if not all_known:
        wanted = patterns.sum(axis=1).min()
        return Bounds(lower, np.maximum(lower, free.sum(axis=1) // max(int(wanted), 1)))
    upper = np.maximum(_bound(patterns, free, keys), lower)
    for at in np.flatnonzero(lower < upper).tolist():
        if steps.left <= 0:
            break
        budget.look()
        search = _Search(patterns, free[at], int(lower[at]), int(upper[at]), min(_STEPS_PER_TREE, steps.left))
        lower[at], upper[at] = search.run()
        steps.left -= search.steps
    return Bounds(lower, upper)


def _times(pattern: Amounts, free: Amounts) -> Amounts:
    """How many times one pattern fits."""
    asked = pattern > 0
    if not asked.any():
        return np.full(len(free), MOST, np.int64)
    times: Amounts = (np.maximum(free[:, asked], 0) // pattern[asked]).min(axis=1)
    return times


def _of_two(patterns: Amounts, free: Amounts, budget: Budget) -> Amounts:
    """The best of all shares of two patterns: exact."""
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
    """How many fit if the pattern that leaves most room for others is taken again and again."""
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
    """How often the patterns would fit one by one, finely; below 0 where the state is impossible."""
    rooms = np.stack([_times(pattern, left) for pattern in patterns], axis=1)
    finely = (rooms.sum(axis=1) * 2**16) + (rooms > 0).sum(axis=1)
    return np.where((left < 0).any(axis=1), -1, finely)


def _bound(patterns: Amounts, free: Amounts, keys: Amounts) -> Amounts:
    """More than this do not fit: the sum of the patterns one by one, and of each key over all positions."""
    bound: Amounts = np.stack([_times(pattern, free) for pattern in patterns], axis=1).sum(axis=1)
    for key in np.unique(keys).tolist():
        chosen = keys == key
        wanted = int(patterns[:, chosen].sum(axis=1).min())
        if wanted:
            bound = np.minimum(bound, np.maximum(free[:, chosen], 0).sum(axis=1) // wanted)
    return bound


class _Search:
    """The most patterns that fit into one tree, by trying how often each is taken."""

    def __init__(self, patterns: Amounts, free: Amounts, lower: int, upper: int, steps: int) -> None:
        self._patterns: list[tuple[int, ...]] = [tuple(pattern) for pattern in patterns.tolist()]
        self._free: tuple[int, ...] = tuple(free.tolist())
        self._best, self._upper = lower, upper
        self._allowed = steps
        self.steps = 0

    def run(self) -> tuple[int, int]:
        """The bounds: equal unless it took too many steps."""
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
        fitting = [_fit(pattern, free) for pattern in self._patterns[at:]]
        if placed + sum(fitting) <= self._best or placed + self._most(at, free) <= self._best:
            return True
        pattern = self._patterns[at]
        for times in range(fitting[0], -1, -1):
            left = tuple(room - times * amount for room, amount in zip(free, pattern, strict=True))
            if not self._try(at + 1, left, placed + times):
                return False
        return True

    def _most(self, at: int, free: tuple[int, ...]) -> int:
        """No more fit by all that is free together."""
        least = min(sum(pattern) for pattern in self._patterns[at:])
        touched = [any(amounts) for amounts in zip(*self._patterns[at:], strict=True)]
        return sum(room for room, is_used in zip(free, touched, strict=True) if is_used) // max(least, 1)


def _fit(pattern: tuple[int, ...], free: tuple[int, ...]) -> int:
    times = (room // amount for room, amount in zip(free, pattern, strict=True) if amount)
    fitting: int = min(times, default=MOST)
    return fitting


def feasible(equivalence: EquivalenceClasses, roots: Rows, budget: Budget) -> Iterator[tuple[Indices, bool]]:
    """Places of roots, and whether a single consumer fits there. Raises SearchEnded."""
    for trees in equivalence.of(roots.astype(np.int32)):
        yield trees.ranks, next(solutions(trees.problem, budget), None) is not None
