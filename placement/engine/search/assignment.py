"""A half-filled problem: the slots that have positions, and the positions left for the others."""

from __future__ import annotations

from placement.engine.search.budget import Budget
from placement.engine.search.packing import can_match, can_pack
from placement.engine.search.problem import Problem, Solution, bits, union

_NOWHERE = -1


# Narrowing this many slots takes about as long as choosing a position.
_SLOTS_PER_STEP = 16


class Assignment:
    """A record of the positions chosen so far and the amounts that are left.

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
        self.free = [list(contention.headroom) for contention in problem.contentions]
        self._place_of = {slot: (block, at) for block in blocks for at, slot in enumerate(block)}
        self._constraints_of = [
            tuple(mask for mask in problem.subtrees if mask >> slot & 1) for slot in range(len(options))
        ]
        self._contended = [
            tuple(at for at, contention in enumerate(problem.contentions) if contention.demand[slot])
            for slot in range(len(options))
        ]

    def begin(self) -> list[int] | None:
        """Return the domains before any slot has a position, None if a solution is obviously impossible."""
        problem, domains = self.problem, list(self.problem.options)
        packs = (can_pack(each.demand, each.headroom, domains, self._budget) for each in problem.contentions)
        able = (
            self._contention_can_hold(self.order, domains)
            and all(packs)
            and all(self._narrow_subtree(each, self.order, domains) for each in problem.subtrees)
            and self._narrow_coverage(self.order, domains)
            and self._isolation_can_hold(self.order, domains)
        )
        return domains if able else None

    def assign(
        self, slot: int, position: int, unassigned: Solution, domains: list[int], *, ascending: bool
    ) -> list[int] | None:
        """Put the slot at a position; return the domains of the `unassigned` others, None if one is empty.

        `ascending`: interchangeable slots take ascending positions only. `unassign` undoes it in both cases.
        Raises SearchEnded.
        """
        self._budget.spend(1 + len(unassigned) // _SLOTS_PER_STEP)
        problem, here = self.problem, 1 << position
        self.chosen[slot] = position
        narrowed = domains.copy()
        if ascending:
            block, at = self._place_of[slot]
            for other in block[at + 1 :]:
                narrowed[other] &= -here
        if problem.isolated >> slot & 1:
            for other in unassigned:
                if problem.isolated >> other & 1:
                    narrowed[other] &= ~here
        if problem.exclusive:
            allowed = ~problem.exclusive[position]
            for other in unassigned:
                narrowed[other] &= allowed
        for at in self._contended[slot]:
            demand, free = problem.contentions[at].demand, self.free[at]
            free[position] -= demand[slot]
            for other in unassigned:
                if demand[other] > free[position]:
                    narrowed[other] &= ~here
        return narrowed if self._can_go_on(self._constraints_of[slot], unassigned, narrowed) else None

    def _can_go_on(self, constraints: tuple[int, ...], unassigned: Solution, domains: list[int]) -> bool:
        """Narrow the domains by conditions between slots; return False if a slot cannot be served."""
        problem = self.problem
        return (
            all(self._narrow_subtree(each, unassigned, domains) for each in constraints)
            and (not problem.coverage or self._narrow_coverage(unassigned, domains))
            and all(domains[other] for other in unassigned)
            and (not problem.isolated or self._isolation_can_hold(unassigned, domains))
            and (not problem.contentions or self._contention_can_hold(unassigned, domains))
        )

    def unassign(self, slot: int) -> None:
        """Take the slot from its position, if it has one."""
        position = self.chosen[slot]
        if position == _NOWHERE:
            return
        self.chosen[slot] = _NOWHERE
        for at in self._contended[slot]:
            self.free[at][position] += self.problem.contentions[at].demand[slot]

    def _narrow_subtree(self, constraint: int, unassigned: Solution, domains: list[int]) -> bool:
        """Keep the positions below each possible common ancestor; return False if none is possible."""
        below = self.problem.below
        still_open = [slot for slot in unassigned if constraint >> slot & 1]
        taken = union(1 << self.chosen[slot] for slot in bits(constraint) if self.chosen[slot] >= 0)
        allowed = 0
        for top in bits(union(domains[slot] for slot in still_open) | taken):
            under = below[top]
            if not taken & ~under and all(domains[slot] & under for slot in still_open):
                allowed |= under
        for slot in still_open:
            domains[slot] &= allowed
        return allowed != 0

    def _narrow_coverage(self, unassigned: Solution, domains: list[int]) -> bool:
        """Keep the base group's trait conditions met or within reach; return False if one is not."""
        still_open = [slot for slot in unassigned if self.problem.base_slots >> slot & 1]
        for satisfying in self.uncovered():
            able = [slot for slot in still_open if domains[slot] & satisfying]
            if not able:
                return False
            if len(able) == 1:
                domains[able[0]] &= satisfying
        return True

    def uncovered(self) -> list[int]:
        """Return the trait conditions of the base group that no chosen position meets."""
        problem, chosen = self.problem, self.chosen
        if not problem.coverage:
            return []
        taken = union(1 << chosen[slot] for slot in bits(problem.base_slots) if chosen[slot] >= 0)
        return [satisfying for satisfying in problem.coverage if not satisfying & taken]

    def _isolation_can_hold(self, unassigned: Solution, domains: list[int]) -> bool:
        isolated = [domains[slot] for slot in unassigned if self.problem.isolated >> slot & 1]
        if all(domain.bit_count() >= len(isolated) for domain in isolated):
            return True
        capacities = [1] * max(domain.bit_length() for domain in isolated)
        return can_match(isolated, capacities, self._budget)

    def _contention_can_hold(self, unassigned: Solution, domains: list[int]) -> bool:
        """Return whether for every class enough is left where the unassigned slots may take it."""
        for contention, free in zip(self.problem.contentions, self.free, strict=True):
            wanted = reachable = 0
            for slot in unassigned:
                if contention.demand[slot]:
                    wanted += contention.demand[slot]
                    reachable |= domains[slot]
            if wanted > sum(free[position] for position in bits(reachable)):
                return False
        return True
