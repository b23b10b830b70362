"""Counting by patterns: the ways in which one tree serves one consumer, and how many of each go together.

Trees where the same providers can serve the same slots have the same patterns and are counted at once. One
or two patterns are counted exactly. For more, a greedy choice is a lower bound, and sums are an upper one.
Where these differ, choices are tried one by one, up to a number of steps.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from placement.engine.forest.arrays import Amounts, Rows
from placement.engine.search.budget import Budget
from placement.engine.search.capacity.anchors import (
    MOST,
    Bounds,
)
from placement.engine.search.equivalence import EquivalenceClass, EquivalenceClasses
from placement.engine.search.solver import solutions

Demands = Sequence[Mapping[Any, int]]
"""For each slot the amounts that it takes of the provider's room, by any keys."""


_MOST_PATTERNS = 64


# The most tries of a pattern in a greedy count, and the most steps of a search for a state.
_MOST_ROUNDS = 4096


_STEPS_PER_TREE = 3000


_STEPS_IN_ALL = 150_000


_ROUNDS_PER_LOOK = 16


@dataclass(slots=True)
class PatternCounter:
    """The counting of consumers by patterns; free amounts are per row of the forest, by keys of `demands`."""

    _demands: Demands
    _free: Mapping[Hashable, Amounts]
    _budget: Budget
    _steps_left: int = _STEPS_IN_ALL

    def count(self, equivalence: EquivalenceClasses, roots: Rows) -> Bounds:
        """Return how many consumers each of the roots has room for.

        The equivalence classes must not depend on free amounts. Raises SearchEnded.
        """
        lower, upper = np.zeros((2, len(roots)), np.int64)
        for trees in equivalence.of(roots.astype(np.int32)):
            self._budget.look()
            found = self._of_class(trees)
            lower[trees.ranks], upper[trees.ranks] = found.lower, found.upper
        return Bounds(lower, upper)

    def _of_class(self, equivalence: EquivalenceClass) -> Bounds:
        places = [(position, key) for position in range(equivalence.providers.shape[1]) for key in self._free]
        number = {place: at for at, place in enumerate(places)}
        patterns: dict[tuple[int, ...], None] = {}
        found = islice(solutions(equivalence.problem, self._budget), _MOST_PATTERNS**2)
        for solution in found:
            taken = [0] * len(places)
            for slot, position in enumerate(solution):
                for key, amount in self._demands[slot].items():
                    taken[number[position, key]] += amount
            patterns[tuple(taken)] = None
            if len(patterns) > _MOST_PATTERNS:
                break
        if not (patterns and places):
            # Slots without resources can be filled again and again, if they can at all.
            exact = np.full(len(equivalence.ranks), MOST if patterns else 0, np.int64)
            return Bounds(exact, exact)
        free = np.stack(
            [self._free[key][equivalence.providers[:, position]] for position, key in places], axis=1
        )
        table = np.array(list(patterns), np.int64)
        used = table.any(axis=0)
        all_known = len(patterns) <= _MOST_PATTERNS and next(found, None) is None
        keys = np.array([list(self._free).index(key) for _, key in places])
        return self._packed(table[:, used], free[:, used], keys[used], all_known)

    def _packed(self, patterns: Amounts, free: Amounts, keys: Amounts, all_known: bool) -> Bounds:
        """Return how many patterns fit side by side into each row of `free`."""
        if all_known and len(patterns) <= 2:
            exact = _times(patterns[0], free)
            if len(patterns) == 2:
                exact = _of_two(patterns, free, self._budget)
            return Bounds(exact, exact)
        lower = _greedy(patterns, free, self._budget)
        if not all_known:
            wanted = patterns.sum(axis=1).min()
            return Bounds(lower, np.maximum(lower, free.sum(axis=1) // max(int(wanted), 1)))
        upper = np.maximum(_bound(patterns, free, keys), lower)
        for at in np.flatnonzero(lower < upper).tolist():
            if self._steps_left <= 0:
                break
            self._budget.look()
            steps = min(_STEPS_PER_TREE, self._steps_left)
            search = _PatternSearch(patterns, free[at], int(lower[at]), int(upper[at]), steps)
            lower[at], upper[at] = search.run()
            self._steps_left -= search.steps
        return Bounds(lower, upper)


def _times(pattern: Amounts, free: Amounts) -> Amounts:
    """Return how many times one pattern fits."""
    asked = pattern > 0
    if not asked.any():
        return np.full(len(free), MOST, np.int64)
    times: Amounts = (np.maximum(free[:, asked], 0) // pattern[asked]).min(axis=1)
    return times


def _of_two(patterns: Amounts, free: Amounts, budget: Budget) -> Amounts:
    """Return the best of all mixtures of two patterns: exact."""
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
    """Return how many fit if the pattern that leaves most room for others is taken again and again."""
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
    """Return a fine measure of how often patterns would fit one by one; below 0 in an impossible state."""
    rooms = np.stack([_times(pattern, left) for pattern in patterns], axis=1)
    finely = (rooms.sum(axis=1) * 2**16) + (rooms > 0).sum(axis=1)
    return np.where((left < 0).any(axis=1), -1, finely)


def _bound(patterns: Amounts, free: Amounts, keys: Amounts) -> Amounts:
    """Return an upper bound: of the patterns one by one in sum, and of each key over all positions."""
    bound: Amounts = np.stack([_times(pattern, free) for pattern in patterns], axis=1).sum(axis=1)
    for key in np.unique(keys).tolist():
        chosen = keys == key
        wanted = int(patterns[:, chosen].sum(axis=1).min())
        if wanted:
            bound = np.minimum(bound, np.maximum(free[:, chosen], 0).sum(axis=1) // wanted)
    return bound


class _PatternSearch:
    """A search for the most patterns that fit into one tree, by trying how often each is taken."""

    def __init__(self, patterns: Amounts, free: Amounts, lower: int, upper: int, steps: int) -> None:
        self._patterns: list[tuple[int, ...]] = [tuple(pattern) for pattern in patterns.tolist()]
        self._free: tuple[int, ...] = tuple(free.tolist())
        self._best, self._upper = lower, upper
        self._allowed = steps
        self.steps = 0

    def run(self) -> tuple[int, int]:
        """Return the bounds: equal unless it took too many steps."""
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
        fitting = [
            min((left // amount for left, amount in zip(free, pattern, strict=True) if amount), default=MOST)
            for pattern in self._patterns[at:]
        ]
        if placed + sum(fitting) <= self._best or placed + self._most(at, free) <= self._best:
            return True
        pattern = self._patterns[at]
        for times in range(fitting[0], -1, -1):
            left = tuple(each - times * amount for each, amount in zip(free, pattern, strict=True))
            if not self._try(at + 1, left, placed + times):
                return False
        return True

    def _most(self, at: int, free: tuple[int, ...]) -> int:
        """Return an upper bound: the sum of free amounts, divided by the smallest pattern."""
        least = min(sum(pattern) for pattern in self._patterns[at:])
        touched = [any(amounts) for amounts in zip(*self._patterns[at:], strict=True)]
        return sum(left for left, is_used in zip(free, touched, strict=True) if is_used) // max(least, 1)
