"""Whether a half-filled problem can be completed at all.

The enumeration asks this when it has met one dead end after another. The answer is yes or no, so what looks
alike is tried once: positions with the same room that the same slots could take, whole subtrees included. A
state that was a dead end is remembered, and is one wherever it comes up again.

What this never does: call something impossible that has a solution. States are equal only if one can be
turned into the other by swapping like positions. The order of interchangeable slots, which the enumeration
keeps, changes nothing here: the slots of a block that are still to be placed have one domain, so whatever
places they take can be sorted.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator

from placement.search.assignment import Assignment
from placement.search.budget import Budget
from placement.search.packing import can_still_pack
from placement.search.problem import Problem, Solution, bits

_NO_PARENT = -1
# How much is remembered of one problem, at some hundred bytes each; a state adds one or a few.
_MOST_NUMBERS = 200_000


class Completion:
    """Answers for one problem, on the state of one `Assignment`, which is left as it was."""

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
        # The hardest slots first: the greatest share of the largest room, then the fewest positions.
        self._hardness = [
            (-_largest_share(problem, slot), options.bit_count())
            for slot, options in enumerate(problem.options)
        ]

    def possible(self, unassigned: Solution, domains: list[int]) -> bool:
        """Whether the unassigned slots find places. Raises SearchEnded."""
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
            self._remember(step.key, outcome)
            steps.pop()
            if not steps:
                return outcome
            if outcome:
                steps[-1].outcome = True

    def _step(self, rest: Solution, domains: list[int]) -> _Step:
        if not rest:
            return _Step(rest, domains, (), iter(()), True)
        self._budget.spend(1 + len(self._upwards) * len(rest) // 32)
        classes, key = self._classes(rest, domains)
        known = self._known.get(key)
        if known is None and not self._can_still_pack(rest, domains):
            known = False
        first_of_class = {classes[p]: p for p in reversed(list(bits(domains[rest[0]])))}
        return _Step(rest, domains, key, iter(sorted(first_of_class.values())), known)

    def _can_still_pack(self, rest: Solution, domains: list[int]) -> bool:
        return all(
            can_still_pack(contention.demand, room, domains, rest)
            for contention, room in zip(
                self._assignment.problem.contentions, self._assignment.room, strict=True
            )
        )

    def _remember(self, key: Hashable, outcome: bool) -> None:
        if len(self._numbers) >= _MOST_NUMBERS:
            # Keys mean something else afterwards, so they carry the number of this reset.
            self._known, self._numbers = {}, {}
            self._time += 1
        self._known[key] = outcome

    # -- which positions, and which states, are alike ------------------------------------------------

    def _classes(self, rest: Solution, domains: list[int]) -> tuple[dict[int, int], Hashable]:
        """The class of each position, and what the whole state is equal by."""
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
        """All that matters of each position by itself: who could take it, its room, who is there already."""
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
            room
            for contention, room in zip(problem.contentions, assignment.room, strict=True)
            if any(contention.demand[slot] for slot in rest)
        ]
        return [
            (takers[p], holding[p], self._covering[p], tuple(room[p] for room in asked) if takers[p] else ())
            for p in range(len(self._upwards))
        ]

    def _number(self, look: Hashable) -> int:
        """A small number instead of a nested tuple."""
        return self._numbers.setdefault(look, len(self._numbers))


class _Step:
    """One slot on the way: the positions still to try for it, and the answer as soon as it is known."""

    __slots__ = ("domains", "key", "outcome", "rest", "untried")

    def __init__(
        self,
        rest: Solution,
        domains: list[int],
        key: Hashable,
        untried: Iterator[int],
        outcome: bool | None,
    ) -> None:
        self.rest = rest
        self.domains = domains
        self.key = key
        self.untried = untried
        self.outcome = outcome


def _largest_share(problem: Problem, slot: int) -> float:
    """How much of the largest room of a class the slot takes, at most; only for choosing an order."""
    return max(
        (contention.demand[slot] / (max(contention.headroom) or 1) for contention in problem.contentions),
        default=0.0,
    )


def _parents(below: tuple[int, ...]) -> dict[int, int]:
    """The nearest ancestor of each position that has one."""
    parents: dict[int, int] = {}
    # Large subtrees first, so that the nearest ancestor is the last to claim a position.
    for top in sorted(range(len(below)), key=lambda p: below[p].bit_count(), reverse=True):
        for position in bits(below[top] & ~(1 << top)):
            parents[position] = top
    return parents
