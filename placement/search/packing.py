"""Bounds of bin packing: proofs that amounts cannot be placed, without trying.

A bound may let something impossible pass; what it refuses is impossible.
Source: Martello and Toth, Lower bounds for the bin packing problem (L2); Fekete and Schepers, New classes of
fast lower bounds for bin packing problems (dual feasible functions).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import partial, reduce
from itertools import accumulate
from operator import or_

from placement.search.budget import Budget
from placement.search.matching import can_match
from placement.search.problem import bits

# Functions of Fekete and Schepers beyond these prove next to nothing more.
_MOST_PARTS = 5


def can_pack(demand: Sequence[int], room: Sequence[int], domains: Sequence[int], budget: Budget) -> bool:
    """Whether the amounts could be placed: `demand[slot]` (0: none) within `domains[slot]`, a bit set.

    `room[position]` is what a position can take in sum. Raises SearchEnded.
    """
    slots = [slot for slot, amount in enumerate(demand) if amount]
    if _fits_greedily(demand, room, domains, slots):
        return True
    for least in sorted({demand[slot] for slot in slots}):
        large = [slot for slot in slots if demand[slot] >= least]
        sums = _sums([demand[slot] for slot in large])
        capacities = [bisect_right(sums, left) for left in room]
        if not can_match([domains[slot] for slot in large], capacities, budget):
            return False
    return can_fill([demand[slot] for slot in slots], _reached(slots, room, domains))


def can_still_pack(
    demand: Sequence[int], room: Sequence[int], domains: Sequence[int], slots: Sequence[int]
) -> bool:
    """A weaker form of `can_pack` for some slots, with less effort: each may go where any of them may."""
    asking = [slot for slot in slots if demand[slot]]
    if len(asking) < 2 or _fits_greedily(demand, room, domains, asking):
        return True
    return can_fill([demand[slot] for slot in asking], _reached(asking, room, domains))


def _fits_greedily(
    demand: Sequence[int], room: Sequence[int], domains: Sequence[int], slots: Sequence[int]
) -> bool:
    """Whether the largest first, each where it fits first, places all: then no bound can refuse them."""
    left = list(room)
    for slot in sorted(slots, key=demand.__getitem__, reverse=True):
        amount = demand[slot]
        place = next((position for position in bits(domains[slot]) if left[position] >= amount), None)
        if place is None:
            return False
        left[place] -= amount
    return True


def _reached(slots: Sequence[int], room: Sequence[int], domains: Sequence[int]) -> list[int]:
    return [room[position] for position in bits(reduce(or_, (domains[slot] for slot in slots), 0))]


def can_fill(amounts: Sequence[int], rooms: Sequence[int]) -> bool:
    """Whether the amounts (above 0) could fill bins of these sizes, each amount any bin."""
    ascending = sorted(amounts)
    for at in range(len(ascending)):
        if at and ascending[at] == ascending[at - 1]:
            continue
        # No bin holds more of the large ones than of the smallest among them.
        sums = _sums(ascending[at:])
        if sum(bisect_right(sums, room) for room in rooms) < len(sums):
            return False
    size = max(rooms, default=0)
    # Bins of one size, some of which hold something already.
    items = [*ascending, *(size - room for room in rooms if room < size)]
    return all(
        sum(map(function, items)) <= len(rooms) * function(size) for function in _functions(ascending, size)
    )


def _sums(ascending: Sequence[int]) -> list[int]:
    """The sums of the smallest one, two, three ... amounts."""
    return list(accumulate(sorted(ascending)))


def _functions(amounts: Sequence[int], size: int) -> Iterator[Callable[[int], int]]:
    """Functions of amounts whose sum over one bin never exceeds that of its size."""
    thresholds = {amount if 2 * amount <= size else size - amount + 1 for amount in amounts}
    for threshold in sorted(thresholds):
        if 2 * threshold <= size:
            yield partial(_rounded, size, threshold)
    for parts in range(1, _MOST_PARTS + 1):
        yield partial(_in_parts, size, parts)


def _rounded(size: int, threshold: int, amount: int) -> int:
    """What leaves less than the threshold counts as the whole bin, what is less than it as nothing."""
    if amount > size - threshold:
        return size
    return 0 if amount < threshold else amount


def _in_parts(size: int, parts: int, amount: int) -> int:
    """Amounts in parts of the bin, rounded down except where they are whole; u(k) times k."""
    whole, rest = divmod((parts + 1) * amount, size)
    return whole * size if rest else parts * amount
