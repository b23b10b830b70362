"""The combinations inside one tree: which position serves which slot.

A `Problem` speaks of positions 0..n-1 of one arena (the providers of one tree that matter, plus sharing
providers anchored there) and of slots (one per suffixed group, one per resource class of the unsuffixed
group). Trees that look alike are one problem, so a solution is found once and used for all of them.

Sets of positions are integers used as bit sets. Enumeration is lazy and assigns slots one by one,
narrowing what remains for the others, so that a dead prefix is cut at once. Interchangeable slots are
first taken in ascending order; their permutations, which the Placement API lists too, come last.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import reduce
from itertools import permutations, product
from operator import or_

from placement.candidates.matching import can_match

Solution = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Contention:
    """One resource class that several slots may draw from one provider.

    `demand[slot]` is the slot's amount (0: none), `headroom[position]` what one consumer's sum may reach.
    """

    demand: tuple[int, ...]
    headroom: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """One arena and what is asked of it; see the module for the words.

    `blocks` partition the slots into interchangeable ones. `isolated` is the set of slots whose positions
    must differ pairwise. Each of `subtrees` is a set of slots; `below[p]` is the set of positions in the
    subtree of p, itself included. `coverage` lists, per trait condition of the unsuffixed group, the
    positions that satisfy it; one of `collective` (slots) must take one of them. `exclusive[p]`, if given,
    are the positions that may not be used together with p.
    """

    options: tuple[int, ...]
    blocks: tuple[tuple[int, ...], ...]
    isolated: int = 0
    contentions: tuple[Contention, ...] = ()
    subtrees: tuple[int, ...] = ()
    below: tuple[int, ...] = ()
    collective: int = 0
    coverage: tuple[int, ...] = ()
    exclusive: tuple[int, ...] = ()


def bits(mask: int) -> Iterator[int]:
    """The members of a bit set, ascending."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def solutions(problem: Problem) -> Iterator[Solution]:
    """Every solution once: the position of each slot. Distinct allocations first, permutations last."""
    if _is_free(problem):
        yield from product(*(tuple(bits(options)) for options in problem.options))
        return
    yield from _Enumeration(problem).run()
    if any(len(block) > 1 for block in problem.blocks):
        for solution in _Enumeration(problem).run():
            yield from _permuted(problem.blocks, solution)


def _is_free(problem: Problem) -> bool:
    """Whether the slots do not influence each other at all."""
    return not (
        problem.isolated.bit_count() > 1
        or problem.contentions
        or problem.subtrees
        or problem.coverage
        or problem.exclusive
    )


def _permuted(blocks: tuple[tuple[int, ...], ...], solution: Solution) -> Iterator[Solution]:
    """The other assignments of the same positions to interchangeable slots."""
    for changed in _orders(blocks, 0, list(solution)):
        if changed != solution:
            yield changed


def _orders(blocks: tuple[tuple[int, ...], ...], depth: int, current: list[int]) -> Iterator[Solution]:
    if depth == len(blocks):
        yield tuple(current)
        return
    block = blocks[depth]
    if len(block) == 1:
        yield from _orders(blocks, depth + 1, current)
        return
    positions = sorted(current[slot] for slot in block)
    for order in _distinct_orders(positions):
        for slot, position in zip(block, order, strict=True):
            current[slot] = position
        yield from _orders(blocks, depth + 1, current)
    for slot, position in zip(block, positions, strict=True):
        current[slot] = position


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


class _Enumeration:
    """One walk over the canonical solutions of a problem: interchangeable slots take ascending positions."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        options = problem.options
        # The tightest block first: a wrong choice then shows early.
        blocks = sorted(problem.blocks, key=lambda block: options[block[0]].bit_count())
        self._order = tuple(slot for block in blocks for slot in block)
        self._chosen = [-1] * len(options)
        self._room = [list(contention.headroom) for contention in problem.contentions]
        self._later = self._later_in_block(blocks)
        self._constraints_of = [
            tuple(mask for mask in problem.subtrees if mask >> slot & 1) for slot in range(len(options))
        ]

    @staticmethod
    def _later_in_block(blocks: list[tuple[int, ...]]) -> dict[int, tuple[int, ...]]:
        return {slot: block[at + 1 :] for block in blocks for at, slot in enumerate(block)}

    def run(self) -> Iterator[Solution]:
        """All canonical solutions."""
        domains = list(self._problem.options)
        unassigned = self._order
        if not self._contention_can_hold(unassigned, domains) or not self._demand_can_match(domains):
            return
        for constraint in self._problem.subtrees:
            if not self._narrow_subtree(constraint, unassigned, domains):
                return
        if self._narrow_coverage(unassigned, domains) and self._isolation_can_hold(unassigned, domains):
            yield from self._walk(0, domains)

    def _walk(self, depth: int, domains: list[int]) -> Iterator[Solution]:
        if depth == len(self._order):
            yield tuple(self._chosen)
            return
        slot = self._order[depth]
        unassigned = self._order[depth + 1 :]
        for position in bits(domains[slot]):
            self._chosen[slot] = position
            for contention, room in zip(self._problem.contentions, self._room, strict=True):
                room[position] -= contention.demand[slot]
            narrowed = domains.copy()
            if self._narrow(slot, position, unassigned, narrowed):
                yield from self._walk(depth + 1, narrowed)
            for contention, room in zip(self._problem.contentions, self._room, strict=True):
                room[position] += contention.demand[slot]
        self._chosen[slot] = -1

    def _narrow(self, slot: int, position: int, unassigned: Solution, domains: list[int]) -> bool:
        """Take from the unassigned slots what the choice forbids; False if one is left with nothing."""
        problem = self._problem
        for other in self._later[slot]:
            domains[other] &= -1 << position
        if problem.isolated >> slot & 1:
            taken = ~(1 << position)
            for other in unassigned:
                if problem.isolated >> other & 1:
                    domains[other] &= taken
        if problem.exclusive:
            allowed = ~problem.exclusive[position]
            for other in unassigned:
                domains[other] &= allowed
        self._narrow_contended(slot, position, unassigned, domains)
        for constraint in self._constraints_of[slot]:
            if not self._narrow_subtree(constraint, unassigned, domains):
                return False
        if problem.coverage and not self._narrow_coverage(unassigned, domains):
            return False
        return (
            all(domains[other] for other in unassigned)
            and self._isolation_can_hold(unassigned, domains)
            and self._contention_can_hold(unassigned, domains)
        )

    def _narrow_contended(self, slot: int, position: int, unassigned: Solution, domains: list[int]) -> None:
        for contention, room in zip(self._problem.contentions, self._room, strict=True):
            if contention.demand[slot]:
                left = room[position]
                for other in unassigned:
                    if contention.demand[other] > left:
                        domains[other] &= ~(1 << position)

    def _narrow_subtree(self, constraint: int, unassigned: Solution, domains: list[int]) -> bool:
        """Keep what lies below a position that can still be the common ancestor."""
        below = self._problem.below
        still_open = [slot for slot in unassigned if constraint >> slot & 1]
        taken = reduce(
            or_, (1 << self._chosen[slot] for slot in bits(constraint) if self._chosen[slot] >= 0), 0
        )
        allowed = 0
        for top in bits(reduce(or_, (domains[slot] for slot in still_open), taken)):
            under = below[top]
            if not taken & ~under and all(domains[slot] & under for slot in still_open):
                allowed |= under
        for slot in still_open:
            domains[slot] &= allowed
        return allowed != 0

    def _narrow_coverage(self, unassigned: Solution, domains: list[int]) -> bool:
        """Every trait condition of the unsuffixed group must be met, or still be within reach."""
        problem = self._problem
        still_open = [slot for slot in unassigned if problem.collective >> slot & 1]
        for satisfying in problem.coverage:
            if any(
                satisfying >> self._chosen[slot] & 1
                for slot in bits(problem.collective)
                if self._chosen[slot] >= 0
            ):
                continue
            able = [slot for slot in still_open if domains[slot] & satisfying]
            if not able:
                return False
            if len(able) == 1:
                domains[able[0]] &= satisfying
        return True

    def _isolation_can_hold(self, unassigned: Solution, domains: list[int]) -> bool:
        isolated = [domains[slot] for slot in unassigned if self._problem.isolated >> slot & 1]
        if all(domain.bit_count() >= len(isolated) for domain in isolated):
            return True
        return can_match(isolated, [1] * max(domain.bit_length() for domain in isolated))

    def _contention_can_hold(self, unassigned: Solution, domains: list[int]) -> bool:
        """No class is asked for more than is left where it may come from."""
        for contention, room in zip(self._problem.contentions, self._room, strict=True):
            wanted = reachable = 0
            for slot in unassigned:
                if contention.demand[slot]:
                    wanted += contention.demand[slot]
                    reachable |= domains[slot]
            if wanted > sum(room[position] for position in bits(reachable)):
                return False
        return True

    def _demand_can_match(self, domains: list[int]) -> bool:
        """Each position can hold at most as many slots as the smallest demand fits into its headroom."""
        for contention in self._problem.contentions:
            slots = [slot for slot, amount in enumerate(contention.demand) if amount]
            least = min(contention.demand[slot] for slot in slots)
            capacities = [room // least for room in contention.headroom]
            if not can_match([domains[slot] for slot in slots], capacities):
                return False
        return True
