"""The combinations inside one tree: which position serves which slot.

Enumeration is lazy and assigns slots one by one, narrowing what remains for the others, so that a dead prefix
is cut at once. Where that is not enough, it asks whether the rest can be completed at all before it goes on.
Interchangeable slots are first taken in ascending order; their permutations, which the Placement API lists
too, come last.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass, replace
from itertools import permutations, product

from placement.engine.search.budget import Budget
from placement.engine.search.distribution import distribute, narrowed
from placement.engine.search.problem import Assignment, Problem, Solution, Splitting, bits, can_still_pack

# Whether a half-filled problem can be completed at all.
#
# The enumeration asks this when it has met one dead end after another. The answer is yes or no, so what looks
# alike is tried once: positions with the same room that the same slots could take, whole subtrees included. A
# state that was a dead end is remembered, and is one wherever it comes up again.
#
# It never calls something impossible that has a solution. States are equal only if one can be turned into the
# other by swapping like positions. The order of interchangeable slots, which the enumeration keeps, changes
# nothing here: the open slots of a block have one domain, so whatever places they take can be sorted.


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
        # The hardest slots first: the greatest share of the largest room, then the fewest positions.
        largest = [(each.demand, max(each.headroom) or 1) for each in problem.contentions]
        self._hardness = [
            (-max((demand[slot] / room for demand, room in largest), default=0.0), options.bit_count())
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

    def _step(self, rest: Solution, domains: list[int]) -> _Step:
        if not rest:
            return _Step(rest, domains, (), iter(()), True)
        assignment = self._assignment
        self._budget.spend(1 + len(self._upwards) * len(rest) // 32)
        classes, key = self._classes(rest, domains)
        known = self._known.get(key)
        if known is None and not all(
            can_still_pack(contention.demand, room, domains, rest)
            for contention, room in zip(assignment.problem.contentions, assignment.room, strict=True)
        ):
            known = False
        first_of_class = {classes[p]: p for p in reversed(list(bits(domains[rest[0]])))}
        return _Step(rest, domains, key, iter(sorted(first_of_class.values())), known)

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
        """Return what matters of each position: slots that could take it, its room, constraints on it."""
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
        """Return a small number in place of a nested tuple."""
        return self._numbers.setdefault(look, len(self._numbers))


@dataclass(slots=True)
class _Step:
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


# Dead ends in a row after which it pays to ask whether the rest can be completed.
_PATIENCE = 64


def solutions(problem: Problem, budget: Budget) -> Iterator[Solution]:
    """Yield every solution once: the position of each slot. Distinct allocations first, permutations last.

    A slot that is split has the first of its positions. Raises SearchEnded.
    """
    if problem.splitting is not None:
        yield from _split(problem, problem.splitting, budget)
    elif problem.is_free:
        yield from product(*(tuple(bits(options)) for options in problem.options))
    else:
        yield from _canonical(problem, budget)
        if any(len(block) > 1 for block in problem.blocks):
            for solution in _canonical(problem, budget):
                yield from _permuted(problem.blocks, solution)


def _split(problem: Problem, splitting: Splitting, budget: Budget) -> Iterator[Solution]:
    """Yield the solutions for the other slots after which what is split can be shared out, too."""
    options = narrowed(problem.options, splitting, budget)
    if options is None:
        budget.dead_ends.update(split.slot for split in splitting.splits)
        return
    for places in solutions(replace(problem, options=options, splitting=None), budget):
        shares = distribute(splitting, places, budget)
        if shares is None:
            budget.dead_ends.update(split.slot for split in splitting.splits)
            continue
        complete = list(places)
        for split, parts in zip(splitting.splits, shares, strict=True):
            complete[split.slot] = next(iter(parts))
        yield tuple(complete)


def _canonical(problem: Problem, budget: Budget) -> Iterator[Solution]:
    """Yield the solutions in which interchangeable slots take ascending positions."""
    assignment = Assignment(problem, budget)
    budget.look()
    order, domains = assignment.order, assignment.begin()
    if domains is None:
        return
    completion: Completion | None = None
    dead_ends = 0
    # The last slot can only fail where more than room and isolation counts.
    last, last_is_plain = len(order) - 1, not (problem.subtrees or problem.coverage)
    unassigned = [order[depth + 1 :] for depth in range(len(order))]
    path, untried = [domains], [domains[order[0]]]
    while path:
        depth = len(path) - 1
        slot, rest = order[depth], unassigned[depth]
        assignment.unassign(slot)
        if depth == last and last_is_plain:
            for position in bits(untried[-1]):
                budget.spend()
                assignment.chosen[slot] = position
                yield tuple(assignment.chosen)
            assignment.chosen[slot] = -1
            dead_ends = untried[-1] = 0
        if not untried[-1]:
            path.pop()
            untried.pop()
            continue
        position = (untried[-1] & -untried[-1]).bit_length() - 1
        untried[-1] ^= 1 << position
        narrowed = assignment.assign(slot, position, rest, path[-1], ascending=True)
        if narrowed is not None and dead_ends >= _PATIENCE:
            # As long as dead ends are few, they cost less than asking.
            completion = completion or Completion(assignment, budget)
            narrowed = narrowed if completion.possible(rest, narrowed) else None
        if narrowed is None:
            dead_ends += 1
            budget.dead_ends[slot] += 1
        elif depth == last:
            dead_ends = 0
            yield tuple(assignment.chosen)
        else:
            path.append(narrowed)
            untried.append(narrowed[order[depth + 1]])


def _permuted(blocks: tuple[tuple[int, ...], ...], solution: Solution) -> Iterator[Solution]:
    """Yield the other assignments of the same positions to interchangeable slots."""
    blocks = tuple(block for block in blocks if len(block) > 1)
    positions = [sorted(solution[slot] for slot in block) for block in blocks]
    current = list(solution)
    orders = [_distinct_orders(positions[0])]
    while orders:
        depth = len(orders)
        order = next(orders[-1], None)
        if order is None:
            orders.pop()
            continue
        for slot, position in zip(blocks[depth - 1], order, strict=True):
            current[slot] = position
        if depth < len(blocks):
            orders.append(_distinct_orders(positions[depth]))
        elif (changed := tuple(current)) != solution:
            yield changed


def _distinct_orders(positions: list[int]) -> Iterator[Solution]:
    """Yield all distinct orders of ascending positions, lexicographically."""
    if len(set(positions)) == len(positions):
        yield from permutations(positions)
        return
    order = list(positions)
    while True:
        yield tuple(order)
        pivot = len(order) - 2
        while pivot >= 0 and order[pivot] >= order[pivot + 1]:
            pivot -= 1
        if pivot < 0:
            return
        swap = len(order) - 1
        while order[swap] <= order[pivot]:
            swap -= 1
        order[pivot], order[swap] = order[swap], order[pivot]
        order[pivot + 1 :] = reversed(order[pivot + 1 :])
