"""The combinations inside one tree: which position serves which slot.

Enumeration is lazy and assigns slots one by one, narrowing what remains for the others, so that a dead prefix
is cut at once. Where that is not enough, it asks whether the rest can be completed at all before it goes on.
Interchangeable slots are first taken in ascending order; their permutations, which the Placement API lists
too, come last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import permutations, product

from placement.search.assignment import Assignment
from placement.search.budget import Budget
from placement.search.completion import Completion
from placement.search.distribution import distribute, narrowed
from placement.search.problem import Problem, Solution, Splitting, bits

# Dead ends in a row after which it pays to ask whether the rest can be completed.
_PATIENCE = 64


def solutions(problem: Problem, budget: Budget | None = None) -> Iterator[Solution]:
    """Every solution once: the position of each slot. Distinct allocations first, permutations last.

    A slot that is split has the first of its positions. Raises SearchEnded.
    """
    if problem.splitting is not None:
        yield from _split(problem, problem.splitting, budget or Budget())
        return
    if problem.is_free:
        yield from product(*(tuple(bits(options)) for options in problem.options))
        return
    budget = budget or Budget()
    yield from _Enumeration(problem, budget).run()
    if any(len(block) > 1 for block in problem.blocks):
        for solution in _Enumeration(problem, budget).run():
            yield from _permuted(problem.blocks, solution)


def _split(problem: Problem, splitting: Splitting, budget: Budget) -> Iterator[Solution]:
    """The solutions for the other slots after which what is split can be shared out, too."""
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


class _Enumeration:
    """One walk over the canonical solutions of a problem: interchangeable slots take ascending positions."""

    def __init__(self, problem: Problem, budget: Budget) -> None:
        self._assignment = Assignment(problem, budget)
        self._budget = budget
        self._completion: Completion | None = None
        self._dead_ends = 0
        # The last slot cannot fail any more unless more than room and isolation counts.
        self._last_is_plain = not (problem.subtrees or problem.coverage)

    def run(self) -> Iterator[Solution]:
        """All canonical solutions."""
        self._budget.look()
        domains = self._assignment.begin()
        if domains is not None:
            yield from self._walk(domains)

    def _walk(self, domains: list[int]) -> Iterator[Solution]:
        assignment, order = self._assignment, self._assignment.order
        last = len(order) - 1
        unassigned = [order[depth + 1 :] for depth in range(len(order))]
        path, untried = [domains], [domains[order[0]]]
        while path:
            depth = len(path) - 1
            slot = order[depth]
            assignment.unassign(slot)
            if depth == last and self._last_is_plain:
                yield from self._last_ones(slot, untried[-1])
                untried[-1] = 0
            if not untried[-1]:
                path.pop()
                untried.pop()
                continue
            low = untried[-1] & -untried[-1]
            untried[-1] ^= low
            narrowed = assignment.assign(
                slot, low.bit_length() - 1, unassigned[depth], path[-1], ascending=True
            )
            if narrowed is None or not self._is_promising(unassigned[depth], narrowed):
                self._dead_ends += 1
                self._budget.dead_ends[slot] += 1
            elif depth == last:
                self._dead_ends = 0
                yield tuple(assignment.chosen)
            else:
                path.append(narrowed)
                untried.append(narrowed[order[depth + 1]])

    def _last_ones(self, slot: int, positions: int) -> Iterator[Solution]:
        """All positions of the last slot; they have been narrowed to those that it can take."""
        chosen = self._assignment.chosen
        for position in bits(positions):
            chosen[slot] = position
            self._budget.spend()
            yield tuple(chosen)
        chosen[slot] = -1
        self._dead_ends = 0

    def _is_promising(self, unassigned: Solution, domains: list[int]) -> bool:
        """Whether to go on from here: as long as dead ends are few, they cost less than asking."""
        if self._dead_ends < _PATIENCE:
            return True
        if self._completion is None:
            self._completion = Completion(self._assignment, self._budget)
        return self._completion.possible(unassigned, domains)


def _permuted(blocks: tuple[tuple[int, ...], ...], solution: Solution) -> Iterator[Solution]:
    """The other assignments of the same positions to interchangeable slots."""
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
    """All distinct orders of ascending positions, lexicographically."""
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
