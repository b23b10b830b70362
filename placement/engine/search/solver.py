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

from placement.engine.search.assignment import Assignment
from placement.engine.search.budget import Budget
from placement.engine.search.completion import Completion
from placement.engine.search.distribution import distribute, narrowed
from placement.engine.search.problem import Problem, Solution, Splitting, bits

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
    """Yield the solutions for the other slots after which the split amounts can be shared out."""
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
