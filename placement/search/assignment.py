"""A half-filled problem: the slots that have positions, and what that leaves for the others."""

from __future__ import annotations

from functools import reduce
from operator import or_

from placement.search.budget import Budget
from placement.search.matching import can_match
from placement.search.packing import can_pack
from placement.search.problem import Problem, Solution, bits

_NOWHERE = -1
# As many slots are narrowed in about the time that choosing a position takes.
_SLOTS_PER_STEP = 16


class Assignment:
    """The positions chosen so far and the room that is left.

    Domains, one bit set of positions per slot, are passed along instead: each step has its own.
    """

    def __init__(self, problem: Problem, budget: Budget) -> None:
        self.problem = problem
        self._budget = budget
        options = problem.options
        # The tightest block first: a wrong choice then shows early.
        blocks = sorted(problem.blocks, key=lambda block: options[block[0]].bit_count())
        self.order = tuple(slot for block in blocks for slot in block)
        self.chosen = [_NOWHERE] * len(options)
        self.room = [list(contention.headroom) for contention in problem.contentions]
        self._place_of = {slot: (block, at) for block in blocks for at, slot in enumerate(block)}
        self._constraints_of = [
            tuple(mask for mask in problem.subtrees if mask >> slot & 1) for slot in range(len(options))
        ]
        self._contended = [
            tuple(at for at, contention in enumerate(problem.contentions) if contention.demand[slot])
            for slot in range(len(options))
        ]

    def begin(self) -> list[int] | None:
        """The domains before any slot has a position, None if the problem obviously has no solution."""
        domains = list(self.problem.options)
        if not self._contention_can_hold(self.order, domains):
            return None
        for contention in self.problem.contentions:
            if not can_pack(contention.demand, contention.headroom, domains, self._budget):
                return None
        for constraint in self.problem.subtrees:
            if not self._narrow_subtree(constraint, self.order, domains):
                return None
        able = self._narrow_coverage(self.order, domains) and self._isolation_can_hold(self.order, domains)
        return domains if able else None

    def assign(
        self, slot: int, position: int, unassigned: Solution, domains: list[int], *, ascending: bool
    ) -> list[int] | None:
        """Put the slot at a position: the domains left for the `unassigned` others, None if one is empty.

        `ascending`: interchangeable slots take ascending positions only. `unassign` undoes it in both cases.
        Raises SearchEnded.
        """
        self._budget.spend(1 + len(unassigned) // _SLOTS_PER_STEP)
        self.chosen[slot] = position
        for at in self._contended[slot]:
            self.room[at][position] -= self.problem.contentions[at].demand[slot]
        narrowed = domains.copy()
        if ascending:
            block, at = self._place_of[slot]
            for other in block[at + 1 :]:
                narrowed[other] &= -1 << position
        return narrowed if self._narrow(slot, position, unassigned, narrowed) else None

    def unassign(self, slot: int) -> None:
        """Take the slot from its position, if it has one."""
        position = self.chosen[slot]
        if position == _NOWHERE:
            return
        self.chosen[slot] = _NOWHERE
        for at in self._contended[slot]:
            self.room[at][position] += self.problem.contentions[at].demand[slot]

    def _narrow(self, slot: int, position: int, unassigned: Solution, domains: list[int]) -> bool:
        """Remove from the domains what the choice forbids; False if one becomes empty."""
        problem = self.problem
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
        elsewhere = ~(1 << position)
        for at in self._contended[slot]:
            demand, left = self.problem.contentions[at].demand, self.room[at][position]
            for other in unassigned:
                if demand[other] > left:
                    domains[other] &= elsewhere

    def _narrow_subtree(self, constraint: int, unassigned: Solution, domains: list[int]) -> bool:
        """Keep what lies below a position that can still be the common ancestor."""
        below = self.problem.below
        still_open = [slot for slot in unassigned if constraint >> slot & 1]
        taken = reduce(
            or_, (1 << self.chosen[slot] for slot in bits(constraint) if self.chosen[slot] >= 0), 0
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
        still_open = [slot for slot in unassigned if self.problem.collective >> slot & 1]
        for satisfying in self.uncovered():
            able = [slot for slot in still_open if domains[slot] & satisfying]
            if not able:
                return False
            if len(able) == 1:
                domains[able[0]] &= satisfying
        return True

    def uncovered(self) -> list[int]:
        """The trait conditions of the unsuffixed group that no chosen position meets."""
        problem = self.problem
        if not problem.coverage:
            return []
        taken = [self.chosen[slot] for slot in bits(problem.collective) if self.chosen[slot] >= 0]
        return [
            satisfying
            for satisfying in problem.coverage
            if not any(satisfying >> position & 1 for position in taken)
        ]

    def _isolation_can_hold(self, unassigned: Solution, domains: list[int]) -> bool:
        isolated = [domains[slot] for slot in unassigned if self.problem.isolated >> slot & 1]
        if all(domain.bit_count() >= len(isolated) for domain in isolated):
            return True
        capacities = [1] * max(domain.bit_length() for domain in isolated)
        return can_match(isolated, capacities, self._budget)

    def _contention_can_hold(self, unassigned: Solution, domains: list[int]) -> bool:
        """Whether for every class enough is left where the unassigned slots may take it."""
        for contention, room in zip(self.problem.contentions, self.room, strict=True):
            wanted = reachable = 0
            for slot in unassigned:
                if contention.demand[slot]:
                    wanted += contention.demand[slot]
                    reachable |= domains[slot]
            if wanted > sum(room[position] for position in bits(reachable)):
                return False
        return True
