"""Proofs that slots cannot all be served: by bipartite matching, and by bounds of bin packing.

A bound may let an impossible problem pass, but never refuses a possible one.
Source: Martello and Toth, Lower bounds for the bin packing problem (L2); Fekete and Schepers, New classes
of fast lower bounds for bin packing problems (dual feasible functions).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import accumulate

from placement.engine.search.budget import Budget
from placement.engine.search.problem import bits, union


def can_match(domains: Sequence[int], capacities: Sequence[int], budget: Budget) -> bool:
    """Return whether all slots can be placed at once, `capacities[p]` slots at position p.

    `domains` holds one bit set of positions per slot. Augmenting paths follow Kuhn, shortest first.
    Raises SearchEnded.
    """
    holders: dict[int, set[int]] = {}
    place_of: dict[int, int] = {}
    for newcomer in range(len(domains)):
        budget.spend()
        free, reached_by = _nearest_room(newcomer, domains, capacities, holders, budget)
        if free is None:
            return False
        # Each slot of the path moves to the position it reached, which frees its former one for the next.
        while free is not None:
            slot = reached_by[free]
            former = place_of.get(slot)
            if former is not None:
                holders[former].discard(slot)
            holders[free].add(slot)
            place_of[slot] = free
            free = former
    return True


def _nearest_room(
    newcomer: int,
    domains: Sequence[int],
    capacities: Sequence[int],
    holders: dict[int, set[int]],
    budget: Budget,
) -> tuple[int | None, dict[int, int]]:
    """Return the nearest position with a place if slots move, and the slot that reached each one first."""
    reached_by: dict[int, int] = {}
    queue, visited = [newcomer], 0
    for slot in queue:
        fresh = domains[slot] & ~visited
        visited |= fresh
        for position in bits(fresh):
            reached_by[position] = slot
            held = holders.setdefault(position, set())
            if len(held) < capacities[position]:
                return position, reached_by
            queue.extend(held)
        if len(queue) > 1:
            budget.spend()
    return None, reached_by


# Functions of Fekete and Schepers beyond these prove next to nothing more.
_MOST_PARTS = 5


def can_pack(demand: Sequence[int], free: Sequence[int], domains: Sequence[int], budget: Budget) -> bool:
    """Return whether the amounts could be placed: `demand[slot]` (0: none) in the bit set `domains[slot]`.

    `free[position]` is the most that a position can take in sum. Raises SearchEnded.
    """
    slots = [slot for slot, amount in enumerate(demand) if amount]
    if _fits_greedily(demand, free, domains, slots):
        return True
    for least in sorted({demand[slot] for slot in slots}):
        large = [slot for slot in slots if demand[slot] >= least]
        sums = _sums([demand[slot] for slot in large])
        capacities = [bisect_right(sums, left) for left in free]
        if not can_match([domains[slot] for slot in large], capacities, budget):
            return False
    return can_fill([demand[slot] for slot in slots], _reached(slots, free, domains))


def can_still_pack(
    demand: Sequence[int], free: Sequence[int], domains: Sequence[int], slots: Sequence[int]
) -> bool:
    """Return a weaker answer than `can_pack` for some slots, faster: each may go where any of them may."""
    asking = [slot for slot in slots if demand[slot]]
    if len(asking) < 2 or _fits_greedily(demand, free, domains, asking):
        return True
    return can_fill([demand[slot] for slot in asking], _reached(asking, free, domains))


def _fits_greedily(
    demand: Sequence[int], free: Sequence[int], domains: Sequence[int], slots: Sequence[int]
) -> bool:
    """Return whether first fit, the largest first, places all: then no bound can refuse them."""
    left = list(free)
    for slot in sorted(slots, key=demand.__getitem__, reverse=True):
        amount = demand[slot]
        place = next((position for position in bits(domains[slot]) if left[position] >= amount), None)
        if place is None:
            return False
        left[place] -= amount
    return True


def _reached(slots: Sequence[int], free: Sequence[int], domains: Sequence[int]) -> list[int]:
    return [free[position] for position in bits(union(domains[slot] for slot in slots))]


def can_fill(amounts: Sequence[int], rooms: Sequence[int]) -> bool:
    """Return whether the amounts (above 0) could fill bins of these sizes, each amount any bin."""
    ascending = sorted(amounts)
    for at in range(len(ascending)):
        if at and ascending[at] == ascending[at - 1]:
            continue
        # No bin holds more of the large ones than of the smallest among them.
        sums = _sums(ascending[at:])
        if sum(bisect_right(sums, free) for free in rooms) < len(sums):
            return False
    size = max(rooms, default=0)
    # Bins of one size, some of which hold something already.
    items = [*ascending, *(size - free for free in rooms if free < size)]
    return all(
        sum(map(function, items)) <= len(rooms) * function(size) for function in _functions(ascending, size)
    )


def _sums(ascending: Sequence[int]) -> list[int]:
    """Return the sums of the smallest one, two, three ... amounts."""
    return list(accumulate(sorted(ascending)))


def _functions(amounts: Sequence[int], size: int) -> Iterator[Callable[[int], int]]:
    """Yield functions of amounts: over one bin, their sum never exceeds the function of the bin's size."""
    thresholds = {amount if 2 * amount <= size else size - amount + 1 for amount in amounts}
    for threshold in sorted(thresholds):
        if 2 * threshold <= size:
            yield partial(_rounded, size, threshold)
    for parts in range(1, _MOST_PARTS + 1):
        yield partial(_in_parts, size, parts)


def _rounded(size: int, threshold: int, amount: int) -> int:
    """Round an amount: to the bin's size if it leaves less than the threshold, to 0 if it is below it."""
    if amount > size - threshold:
        return size
    return 0 if amount < threshold else amount


def _in_parts(size: int, parts: int, amount: int) -> int:
    """Return the amount in parts of the bin, rounded down unless it is whole: u(k) times k."""
    whole, rest = divmod((parts + 1) * amount, size)
    return whole * size if rest else parts * amount
