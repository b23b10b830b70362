"""Bipartite matching: can every slot get a position of its own? Proves infeasibility in polynomial time."""

from __future__ import annotations

from collections.abc import Sequence


def can_match(domains: Sequence[int], capacities: Sequence[int]) -> bool:
    """Whether all slots can be placed at once, `capacities[p]` slots at position p.

    `domains` holds one bit set of positions per slot. Augmenting paths after Kuhn.
    """
    holders: dict[int, list[int]] = {}
    return all(_augment(slot, domains, capacities, holders, [0]) for slot in range(len(domains)))


def _augment(
    slot: int,
    domains: Sequence[int],
    capacities: Sequence[int],
    holders: dict[int, list[int]],
    visited: list[int],
) -> bool:
    remaining = domains[slot] & ~visited[0]
    full = 0
    while remaining:
        low = remaining & -remaining
        remaining ^= low
        position = low.bit_length() - 1
        held = holders.setdefault(position, [])
        if len(held) < capacities[position]:
            held.append(slot)
            return True
        full |= low
    visited[0] |= full
    while full:
        low = full & -full
        full ^= low
        held = holders[low.bit_length() - 1]
        for at, other in enumerate(held):
            if _augment(other, domains, capacities, holders, visited):
                held[at] = slot
                return True
    return False
