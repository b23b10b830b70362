"""Sums over hosts, where sharing providers give what they have once and not to each host."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np

from placement.engine.forest.arrays import Amounts, Mask, Rows
from placement.engine.search.capacity.cells import Bounds
from placement.engine.search.capacity.counting import PartCount, SharedSupply

Total = tuple[int, int]
"""At least so many and at most so many."""


def total(alone: Bounds, parts: Sequence[PartCount], sharers: Mask, among: Mask) -> Total:
    """Return how many some of the hosts have room for in sum; `alone`: each if the others take nothing.

    `sharers`: which rows of the forest share.
    """
    lower, upper = alone.lower[among], alone.upper[among]
    sharing = [part for part in parts if part.shares]
    if not sharing or not among.any():
        return int(lower.sum()), int(upper.sum())
    own = _least([part.bounds for part in parts if not part.shares], alone)
    supplies = [part.supply for part in sharing if part.supply is not None]
    flows = [_most_by_flow(supply, own.upper, sharers, among) for supply in supplies]
    most = min([int(upper.sum()), *flows])
    if len(sharing) == len(supplies) == 1:
        return min(_most_by_flow(supplies[0], own.lower, sharers, among), most), most
    return min(_at_least(sharing, own.lower, lower, sharers, among), most), most


def _least(found: Sequence[Bounds], alone: Bounds) -> Bounds:
    """Return what parts without sharing providers leave for each host; endless if there are no such parts."""
    if not found:
        endless = np.full(len(alone.lower), np.iinfo(np.int64).max // 4)
        return Bounds(endless, endless)
    return Bounds(
        np.minimum.reduce([each.lower for each in found]), np.minimum.reduce([each.upper for each in found])
    )


def _most_by_flow(supply: SharedSupply, bound: Amounts, sharers: Mask, among: Mask) -> int:
    """Return the most that hosts take in all, each up to its bound: first of their own, then of sharers."""
    entries, room = supply.entries, supply.room
    kept = among[entries.hosts]
    rows, hosts, room = entries.rows[kept], entries.hosts[kept], room[kept]
    lent = sharers[rows]
    own = np.bincount(hosts[~lent], room[~lent], len(bound)).astype(np.int64)
    at_home = np.minimum(bound, own)
    missing = np.where(among, bound - at_home, 0)
    return int(at_home[among].sum()) + _flow(rows[lent], hosts[lent], room[lent], missing)


def _flow(providers: Rows, hosts: Rows, room: Amounts, missing: Amounts) -> int:
    """Return the most that providers give to hosts that miss something; hosts of equal providers are one."""
    if not len(providers):
        return 0
    _, first, number = np.unique(providers, return_index=True, return_inverse=True)
    served: dict[int, list[int]] = {}
    for host, provider in zip(hosts.tolist(), number.ravel().tolist(), strict=True):
        served.setdefault(host, []).append(provider)
    wanted: dict[frozenset[int], int] = {}
    for host, found in served.items():
        key = frozenset(found)
        wanted[key] = wanted.get(key, 0) + int(missing[host])
    return max_flow(room[first].tolist(), list(wanted), list(wanted.values()))


def max_flow(supply: Sequence[int], givers: Sequence[frozenset[int]], wanted: Sequence[int]) -> int:
    """Return the most that can flow: `supply` by giver, `wanted` by taker, `givers` of each taker.

    It uses augmenting paths, shortest first (Edmonds and Karp).
    """
    left, missing = list(supply), list(wanted)
    given: list[dict[int, int]] = [dict.fromkeys(each, 0) for each in givers]
    takers: list[list[int]] = [[] for _ in supply]
    for taker, each in enumerate(givers):
        for giver in each:
            takers[giver].append(taker)
    for taker, each in enumerate(givers):
        for giver in each:
            _give(left, missing, given, giver, taker, min(left[giver], missing[taker]))
    while (path := _path(left, missing, given, takers)) is not None:
        # taker, giver, taker, giver ...: a giver gives to the taker before it what the taker after it had.
        amount = min(missing[path[0]], left[path[-1]])
        for at in range(1, len(path) - 1, 2):
            amount = min(amount, given[path[at + 1]][path[at]])
        for at in range(1, len(path), 2):
            given[path[at - 1]][path[at]] += amount
            if at + 1 < len(path):
                given[path[at + 1]][path[at]] -= amount
        missing[path[0]] -= amount
        left[path[-1]] -= amount
    return sum(wanted) - sum(missing)


def _give(
    left: list[int], missing: list[int], given: list[dict[int, int]], giver: int, taker: int, amount: int
) -> None:
    left[giver] -= amount
    missing[taker] -= amount
    given[taker][giver] += amount


def _path(
    left: Sequence[int], missing: Sequence[int], given: Sequence[dict[int, int]], takers: Sequence[list[int]]
) -> list[int] | None:
    """Return a path from a taker that misses something to a giver that has something left."""
    came: dict[tuple[bool, int], tuple[bool, int] | None] = {
        (True, taker): None for taker, amount in enumerate(missing) if amount
    }
    queue = deque(came)
    while queue:
        is_taker, node = here = queue.popleft()
        if is_taker:
            following = [(False, giver) for giver in given[node]]
        elif left[node]:
            return _back(came, here)
        else:
            following = [(True, taker) for taker in takers[node] if given[taker][node]]
        for each in following:
            if each not in came:
                came[each] = here
                queue.append(each)
    return None


def _back(came: dict[tuple[bool, int], tuple[bool, int] | None], end: tuple[bool, int]) -> list[int]:
    path: list[int] = []
    at: tuple[bool, int] | None = end
    while at is not None:
        path.append(at[1])
        at = came[at]
    return path[::-1]


def _at_least(
    sharing: Sequence[PartCount], bound: Amounts, alone: Amounts, sharers: Mask, among: Mask
) -> int:
    """Return what hosts take in turn, each of what the hosts before it left in sharing providers."""
    if any(part.supply is None for part in sharing):
        # One host alone is certain.
        return int(alone[among].max())
    supplies = [part.supply for part in sharing if part.supply is not None]
    left: list[dict[int, int]] = [
        dict(zip(supply.entries.rows.tolist(), supply.room.tolist(), strict=True)) for supply in supplies
    ]
    members = [_by_host(supply, sharers) for supply in supplies]
    placed = 0
    for host in np.flatnonzero(among).tolist():
        takes = int(bound[host])
        for rooms, givers in zip(left, members, strict=True):
            takes = min(takes, sum(rooms[row] for row in givers.get(host, ())))
        for rooms, givers in zip(left, members, strict=True):
            rest = takes
            for row in givers.get(host, ()):
                amount = min(rest, rooms[row])
                rooms[row] -= amount
                rest -= amount
        placed += takes
    return placed


def _by_host(supply: SharedSupply, sharers: Mask) -> dict[int, list[int]]:
    """Return the providers of each host, its own first."""
    found: dict[int, list[int]] = {}
    order = np.argsort(sharers[supply.entries.rows], kind="stable")
    for at in order.tolist():
        found.setdefault(int(supply.entries.hosts[at]), []).append(int(supply.entries.rows[at]))
    return found
