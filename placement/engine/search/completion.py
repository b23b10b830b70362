"""The proof that a half-filled problem can, or cannot, be completed at all.

The enumeration asks for it after one dead end after another. The answer is yes or no, so like positions are
tried once: positions with the same amounts free that the same slots could take, whole subtrees included. A
dead end is remembered as a state, wherever the state comes up again.

A problem that has a solution is never called impossible. States are equal only if swapping like positions
turns one into the other. The order of interchangeable slots, which the enumeration keeps, changes nothing
here: the open slots of a block have one domain, so the positions that they take can be sorted.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass

from placement.engine.search.assignment import Assignment
from placement.engine.search.budget import Budget
from placement.engine.search.packing import can_still_pack
from placement.engine.search.problem import Solution, bits

_NO_PARENT = -1


# The most entries kept of one problem, at some hundred bytes each; a state adds one or a few.
_MOST_NUMBERS = 200_000


class Completion:
    """A check of one problem, on the state of one `Assignment`, which is left as it was."""

    def __init__(self, assignment: Assignment, budget: Budget) -> None:
        self._assignment = assignment
        self._budget = budget
        self._known: dict[Hashable, bool] = {}
        self._numbers: dict[Hashable, int] = {}
        self._time = 0
        problem = assignment.problem
        width = max(len(problem.below), *(options.bit_length() for options in problem.options))
        self._parents = _parents(problem.below) if problem.subtrees else {}
        # Children before their parents.
        self._upwards = list(range(width))
        if self._parents:
            self._upwards.sort(key=lambda position: problem.below[position].bit_count())
        self._trees = [problem.exclusive[p] | 1 << p if problem.exclusive else 0 for p in range(width)]
        self._covering = [
            sum(1 << at for at, satisfying in enumerate(problem.coverage) if satisfying >> p & 1)
            for p in range(width)
        ]
        # The hardest slots first: the greatest share of the largest free amount, then the fewest positions.
        largest = [(each.demand, max(each.headroom) or 1) for each in problem.contentions]
        self._hardness = [
            (-max((demand[slot] / free for demand, free in largest), default=0.0), options.bit_count())
            for slot, options in enumerate(problem.options)
        ]

    def possible(self, unassigned: Solution, domains: list[int]) -> bool:
        """Return whether the unassigned slots find places. Raises SearchEnded."""
        assignment = self._assignment
        steps = [self._step(tuple(sorted(unassigned, key=self._hardness.__getitem__)), domains)]
        while True:
            step = steps[-1]
            if step.rest:
                assignment.unassign(step.rest[0])
            outcome = step.outcome
            if outcome is None:
                position = next(step.untried, None)
                if position is not None:
                    slot, rest = step.rest[0], step.rest[1:]
                    narrowed = assignment.assign(slot, position, rest, step.domains, ascending=False)
                    if narrowed is not None:
                        steps.append(self._step(rest, narrowed))
                    continue
                outcome = False
                self._budget.dead_ends[step.rest[0]] += 1
            if len(self._numbers) >= _MOST_NUMBERS:
                # Keys mean something else afterwards, so they carry the number of this reset.
                self._known, self._numbers = {}, {}
                self._time += 1
            self._known[step.key] = outcome
            steps.pop()
            if not steps:
                return outcome
            if outcome:
                steps[-1].outcome = True

    def _step(self, rest: Solution, domains: list[int]) -> _CompletionStep:
        if not rest:
            return _CompletionStep(rest, domains, (), iter(()), True)
        assignment = self._assignment
        self._budget.spend(1 + len(self._upwards) * len(rest) // 32)
        classes, key = self._classes(rest, domains)
        known = self._known.get(key)
        if known is None and not all(
            can_still_pack(contention.demand, free, domains, rest)
            for contention, free in zip(assignment.problem.contentions, assignment.free, strict=True)
        ):
            known = False
        first_of_class = {classes[p]: p for p in reversed(list(bits(domains[rest[0]])))}
        return _CompletionStep(rest, domains, key, iter(sorted(first_of_class.values())), known)

    # -- which positions, and which states, are alike ------------------------------------------------

    def _classes(self, rest: Solution, domains: list[int]) -> tuple[dict[int, int], Hashable]:
        """Return the class of each position, and a key that is equal for equal states."""
        looks = self._looks(rest, domains)
        inside: dict[int, list[int]] = {}
        shapes: dict[int, int] = {}
        for position in self._upwards:
            shapes[position] = self._number((looks[position], *sorted(inside.get(position, ()))))
            inside.setdefault(self._parents.get(position, _NO_PARENT), []).append(shapes[position])
        trees: dict[int, list[int]] = {}
        for position in self._upwards:
            if position not in self._parents:
                trees.setdefault(self._trees[position], []).append(shapes[position])
        alike = {tree: self._number(("tree", *sorted(found))) for tree, found in trees.items()}
        classes: dict[int, int] = {}
        for position in reversed(self._upwards):
            parent = self._parents.get(position, _NO_PARENT)
            around = alike[self._trees[position]] if parent == _NO_PARENT else classes[parent]
            classes[position] = self._number(("class", around, shapes[position]))
        return classes, (self._time, rest, tuple(self._assignment.uncovered()), tuple(sorted(alike.values())))

    def _looks(self, rest: Solution, domains: list[int]) -> list[Hashable]:
        """Return a key of each position: slots that could take it, amounts free, constraints on it."""
        assignment, problem = self._assignment, self._assignment.problem
        takers = [0] * len(self._upwards)
        holding = [0] * len(self._upwards)
        unassigned = 0
        for slot in rest:
            unassigned |= 1 << slot
            for position in bits(domains[slot]):
                takers[position] |= 1 << slot
        for at, constraint in enumerate(problem.subtrees):
            if constraint & unassigned:
                for slot in bits(constraint & ~unassigned):
                    holding[assignment.chosen[slot]] |= 1 << at
        asked = [
            free
            for contention, free in zip(problem.contentions, assignment.free, strict=True)
            if any(contention.demand[slot] for slot in rest)
        ]
        return [
            (takers[p], holding[p], self._covering[p], tuple(free[p] for free in asked) if takers[p] else ())
            for p in range(len(self._upwards))
        ]

    def _number(self, look: Hashable) -> int:
        """Return a small number in place of a nested tuple."""
        return self._numbers.setdefault(look, len(self._numbers))


@dataclass(slots=True)
class _CompletionStep:
    """A step for one slot: the positions still to try for it, and the answer as soon as it is known."""

    rest: Solution
    domains: list[int]
    key: Hashable
    untried: Iterator[int]
    outcome: bool | None


def _parents(below: tuple[int, ...]) -> dict[int, int]:
    """Return the nearest ancestor of each position that has one."""
    parents: dict[int, int] = {}
    # Large subtrees first, so that the nearest ancestor is the last to claim a position.
    for top in sorted(range(len(below)), key=lambda p: below[p].bit_count(), reverse=True):
        for position in bits(below[top] & ~(1 << top)):
            parents[position] = top
    return parents
