"""Bipartite matching: can every slot get a position of its own? Proves infeasibility in polynomial time."""

from __future__ import annotations

from collections.abc import Sequence

from placement.search.budget import Budget


def can_match(domains: Sequence[int], capacities: Sequence[int], budget: Budget | None = None) -> bool:
    """Whether all slots can be placed at once, `capacities[p]` slots at position p.

    `domains` holds one bit set of positions per slot. Augmenting paths after Kuhn, shortest first.
    Raises SearchEnded.
    """
    matching = _Matching(domains, capacities)
    for slot in range(len(domains)):
        if budget is not None:
            budget.spend()
        if not matching.admit(slot, budget):
            return False
    return True


class _Matching:
    def __init__(self, domains: Sequence[int], capacities: Sequence[int]) -> None:
        self._domains = domains
        self._capacities = capacities
        self._holders: dict[int, set[int]] = {}
        self._place_of: dict[int, int] = {}

    def admit(self, newcomer: int, budget: Budget | None) -> bool:
        """Give one more slot a position, moving others as needed; False if that is impossible."""
        reached_by: dict[int, int] = {}
        queue, visited = [newcomer], 0
        for slot in queue:
            remaining = self._domains[slot] & ~visited
            visited |= remaining
            while remaining:
                low = remaining & -remaining
                remaining ^= low
                position = low.bit_length() - 1
                reached_by[position] = slot
                held = self._holders.setdefault(position, set())
                if len(held) < self._capacities[position]:
                    self._shift(position, reached_by)
                    return True
                queue.extend(held)
            if budget is not None and len(queue) > 1:
                budget.spend()
        return False

    def _shift(self, position: int, reached_by: dict[int, int]) -> None:
        """Move each slot of the path to the position it reached, which frees its former one for the next."""
        free: int | None = position
        while free is not None:
            slot = reached_by[free]
            former = self._place_of.get(slot)
            if former is not None:
                self._holders[former].discard(slot)
            self._holders[free].add(slot)
            self._place_of[slot] = free
            free = former
