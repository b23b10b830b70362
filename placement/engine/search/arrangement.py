"""The arrangement inside one tree that lacks the least for a request: one position for each slot.

The module `problem` defines the terms. Amounts may be exceeded here: the excess is what the tree lacks.
group_policy and same_subtree hold; trait conditions that several slots meet between them are left out. Slots
are placed one by one and stay there, so the cost is bounded by slots times positions. The arrangement is a
good one, not always the best.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from placement.engine.search.budget import Budget
from placement.engine.search.packing import can_match
from placement.engine.search.problem import Problem, bits, union

NO_POSITION = -1
# Missing amounts of different classes are compared as shares of what is asked, in units of 1 / _WHOLE.
_WHOLE = 2**20


class Arrangement:
    """An arrangement: `positions` of the slots, NO_POSITION where no position is left.

    `tops` has per slot the position that the slot must be below, NO_POSITION if there is no such rule.
    """

    def __init__(
        self,
        problem: Problem,
        demands: Sequence[Sequence[int]],
        free: Iterable[Sequence[int]],
        budget: Budget,
    ) -> None:
        """Place the slots; options of `problem` are positions that could serve, apart from amounts.

        Per class, `demands` has the amount of each slot (0: none), `free` the amount of each position. Whole
        subtrees are settled first, then slot by slot, the slots with the least choice first. Raises
        SearchEnded.
        """
        self.positions = [NO_POSITION] * len(problem.options)
        self.tops = [NO_POSITION] * len(problem.options)
        self._problem = problem
        self._budget = budget
        self._demands = demands
        self._free = [list(amounts) for amounts in free]
        self._domains = list(problem.options)
        # The widest constraints first: narrower ones choose among what these leave.
        for constraint in sorted(problem.subtrees, key=int.bit_count, reverse=True):
            self._settle(constraint)
        isolated = self._open(bits(problem.isolated))
        self._matchable = self._can_be_apart([self._domains[slot] for slot in isolated])
        groups = self._alike(self._open(range(len(self._domains))))
        for slots in sorted(groups, key=self._choice):
            for slot in slots:
                self._place(slot)

    def _open(self, slots: Iterable[int]) -> Iterator[int]:
        return (slot for slot in slots if self.positions[slot] == NO_POSITION)

    def _alike(self, slots: Iterable[int]) -> list[list[int]]:
        """Return the slots, grouped by the amounts and the positions that they ask for."""
        groups: dict[object, list[int]] = {}
        for slot in slots:
            asked = tuple(demand[slot] for demand in self._demands)
            groups.setdefault((self._domains[slot], asked), []).append(slot)
        return list(groups.values())

    def _choice(self, slots: Sequence[int]) -> int:
        """Return how many positions have room for one of like slots."""
        return sum(not self._gap(slots[0], position) for position in bits(self._domains[slots[0]]))

    def _gap(self, slot: int, position: int) -> int:
        """Return the lack of the position for one more slot, as shares of the demand."""
        gap = 0
        for demand, free in zip(self._demands, self._free, strict=True):
            wanted = demand[slot]
            if wanted and wanted > free[position]:
                gap += (wanted - max(free[position], 0)) * _WHOLE // wanted
        return gap

    def _place(self, slot: int) -> None:
        """Place the slot where it lacks the least and, among such positions, where the least is left over."""
        classes = zip(self._demands, self._free, strict=True)
        asked = [(demand[slot], free) for demand, free in classes if demand[slot]]
        best: tuple[int, int, int] | None = None
        for position in bits(self._domains[slot]):
            self._budget.spend()
            gap = self._gap(slot, position)
            if best is not None and gap > best[0]:
                continue
            left = sum(free[position] - wanted for wanted, free in asked)
            found = (gap, left, position)
            if (best is None or found < best) and self._others_find_some(slot, position):
                best = found
                if not (gap or left):
                    break
        if best is not None:
            self._take(slot, best[2])

    def _others_find_some(self, slot: int, position: int) -> bool:
        """Return whether isolated slots to be placed keep positions of their own, if all could have them."""
        isolated = self._problem.isolated
        if not (self._matchable and isolated >> slot & 1):
            return True
        others = [self._domains[other] for other in self._open(bits(isolated)) if other != slot]
        if all(domain.bit_count() > len(others) for domain in others):
            return True
        return self._can_be_apart([domain & ~(1 << position) for domain in others])

    def _can_be_apart(self, domains: Sequence[int]) -> bool:
        """Return whether all slots can have positions of their own."""
        positions = max((domain.bit_length() for domain in domains), default=0)
        return can_match(domains, [1] * positions, self._budget)

    def _take(self, slot: int, position: int) -> None:
        problem = self._problem
        self.positions[slot] = position
        self._domains[slot] = 1 << position
        for demand, free in zip(self._demands, self._free, strict=True):
            free[position] -= demand[slot]
        banned = problem.exclusive[position] if problem.exclusive else 0
        for other in self._open(range(len(self._domains))):
            if problem.isolated >> slot & problem.isolated >> other & 1:
                self._domains[other] &= ~(1 << position)
            self._domains[other] &= ~banned

    def _settle(self, constraint: int) -> None:
        """Choose the common ancestor of a same_subtree constraint and hold its slots below it."""
        members = [slot for slot in bits(constraint) if self._domains[slot]]
        below = self._problem.below
        tops = list(bits(union(self._domains[slot] for slot in members)))
        if not tops:
            return
        top = self._best_top(members, tops)
        if all(self.positions[slot] != top for slot in members):
            able = [slot for slot in self._open(members) if self._domains[slot] >> top & 1]
            if able:
                # The ancestor is the position of one of them.
                self._take(min(able, key=lambda slot: (self._gap(slot, top), slot)), top)
        for slot in members:
            position = self.positions[slot]
            if position != NO_POSITION and not below[top] >> position & 1:
                # Another constraint holds the slot somewhere else: no place serves both.
                self._give_up(slot, position)
        for slot in self._open(members):
            self._domains[slot] &= below[top]
            self.tops[slot] = top

    def _best_top(self, members: Sequence[int], tops: Sequence[int]) -> int:
        """Return the ancestor that most of the slots can be below and, among these, with the least gap."""
        below = self._problem.below
        served = [sum(self._domains[slot] & below[top] != 0 for slot in members) for top in tops]
        most = max(served)
        fullest = [top for top, number in zip(tops, served, strict=True) if number == most]
        _, best = min((self._gap_below(members, top), top) for top in fullest)
        return best

    def _give_up(self, slot: int, position: int) -> None:
        """Take a slot from its position for good."""
        for demand, free in zip(self._demands, self._free, strict=True):
            free[position] += demand[slot]
        self.positions[slot] = NO_POSITION
        self._domains[slot] = 0

    def _gap_below(self, members: Sequence[int], top: int) -> int:
        """Return the lack of the slots below a position: of each at its best position, and of all in sum."""
        under = self._problem.below[top]
        total = 0
        for slots in self._alike(members):
            self._budget.spend()
            reach = bits(self._domains[slots[0]] & under)
            total += len(slots) * min((self._gap(slots[0], position) for position in reach), default=0)
        for demand, free in zip(self._demands, self._free, strict=True):
            asking = [slot for slot in self._open(members) if demand[slot]]
            wanted = sum(demand[slot] for slot in asking)
            places = union(self._domains[slot] & under for slot in asking)
            available = sum(max(free[position], 0) for position in bits(places))
            if wanted > available:
                total += (wanted - available) * _WHOLE // wanted
        return total
