"""Sums over hosts, where sharing providers give their amounts once and not to each host."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from placement.engine.forest.arrays import Amounts, Mask
from placement.engine.search.capacity.anchors import Bounds
from placement.engine.search.capacity.counting import PartCount, SharedSupply

Total = tuple[int, int]
"""A lower and an upper bound."""


def total(bounds: Bounds, parts: Sequence[PartCount], sharers: Mask, among: Mask) -> Total:
    """Return how many consumers some of the hosts have room for together.

    `bounds` are of each host if the others take nothing. `sharers`: which rows of the forest share.
    """
    lower, upper = bounds.lower[among], bounds.upper[among]
    sharing = [part for part in parts if part.shares]
    if not sharing or not among.any():
        return int(lower.sum()), int(upper.sum())
    # What parts without sharing providers leave for each host; endless if there are no such parts.
    own_bounds = Bounds(*np.full((2, len(bounds.lower)), np.iinfo(np.int64).max // 4))
    for part in parts:
        own_bounds = own_bounds if part.shares else own_bounds.least(part.bounds)
    supplies = [part.supply for part in sharing if part.supply is not None]
    flows = [_most_by_flow(supply, own_bounds.upper, sharers, among) for supply in supplies]
    most = min([int(upper.sum()), *flows])
    if len(sharing) == len(supplies) == 1:
        return min(_most_by_flow(supplies[0], own_bounds.lower, sharers, among), most), most
    if len(supplies) < len(sharing):
        # One host alone is certain.
        return min(int(lower.max()), most), most
    return min(_in_turn(supplies, own_bounds.lower, sharers, among), most), most


def _most_by_flow(supply: SharedSupply, bound: Amounts, sharers: Mask, among: Mask) -> int:
    """Return the most that hosts take in all, each up to its bound: first of their own, then of sharers."""
    entries, room = supply.entries, supply.room
    kept = among[entries.hosts]
    rows, hosts, room = entries.rows[kept], entries.hosts[kept], room[kept]
    lent = sharers[rows]
    own = np.bincount(hosts[~lent], room[~lent], len(bound)).astype(np.int64)
    at_home = np.minimum(bound, own)
    placed = int(at_home[among].sum())
    if not lent.any():
        return placed
    # Hosts that the same providers serve are one.
    _, first, number = np.unique(rows[lent], return_index=True, return_inverse=True)
    served: dict[int, list[int]] = {}
    for host, provider in zip(hosts[lent].tolist(), number.ravel().tolist(), strict=True):
        served.setdefault(host, []).append(provider)
    wanted: dict[frozenset[int], int] = {}
    for host, found in served.items():
        key = frozenset(found)
        wanted[key] = wanted.get(key, 0) + int(bound[host] - at_home[host])
    return placed + max_flow(room[lent][first].tolist(), list(wanted), list(wanted.values()))


def max_flow(supply: Sequence[int], givers: Sequence[frozenset[int]], wanted: Sequence[int]) -> int:
    """Return the most that can flow: `supply` by giver, `wanted` by taker, `givers` of each taker."""
    source, sink, first = -1, -2, len(supply)
    edges: Edges = {node: {} for node in (source, sink, *range(first + len(givers)))}
    for giver, amount in enumerate(supply):
        connect(edges, source, giver, amount)
    for taker, (each, amount) in enumerate(zip(givers, wanted, strict=True), first):
        connect(edges, taker, sink, amount)
        for giver in each:
            connect(edges, giver, taker, min(supply[giver], amount))
            # Nearly everything flows on these ways; one search for each of them would be quadratic.
            at_once = min(edges[source][giver], edges[taker][sink])
            _push(edges, (source, giver, taker, sink), at_once)
    saturate(edges, source, sink)
    return sum(edges[sink].values())


Edges = dict[int, dict[int, int]]
"""What can still flow from one node to another; each edge has one back, for what flows already."""


def connect(edges: Edges, here: int, there: int, amount: int) -> None:
    """Add an edge on which this amount can flow."""
    edges[here][there] = amount
    edges[there][here] = 0


def saturate(edges: Edges, source: int, sink: int) -> None:
    """Let the most flow from the source to the sink, on shortest ways first (Edmonds and Karp)."""
    while True:
        came = {source: source}
        queue = deque([source])
        while queue and sink not in came:
            here = queue.popleft()
            for there, amount in edges[here].items():
                if amount and there not in came:
                    came[there] = here
                    queue.append(there)
        if sink not in came:
            return
        way = [sink]
        while way[-1] != source:
            way.append(came[way[-1]])
        way.reverse()
        _push(edges, way, min(edges[here][there] for here, there in pairwise(way)))


def _push(edges: Edges, way: Sequence[int], amount: int) -> None:
    for here, there in pairwise(way):
        edges[here][there] -= amount
        edges[there][here] += amount


def _in_turn(shared_supplies: Sequence[SharedSupply], bound: Amounts, sharers: Mask, among: Mask) -> int:
    """Return the sum over hosts in turn; each takes what earlier ones left in sharing providers."""
    left: list[dict[int, int]] = []
    # The providers of each host, its own first.
    members: list[dict[int, list[int]]] = []
    for supply in shared_supplies:
        rows, hosts = supply.entries.rows, supply.entries.hosts
        left.append(dict(zip(rows.tolist(), supply.room.tolist(), strict=True)))
        order = np.argsort(sharers[rows], kind="stable")
        by_host: dict[int, list[int]] = {}
        for host, row in zip(hosts[order].tolist(), rows[order].tolist(), strict=True):
            by_host.setdefault(host, []).append(row)
        members.append(by_host)
    placed = 0
    for host in np.flatnonzero(among).tolist():
        found = [(rooms, by_host.get(host, ())) for rooms, by_host in zip(left, members, strict=True)]
        takes = min(int(bound[host]), *(sum(rooms[row] for row in givers) for rooms, givers in found))
        for rooms, givers in found:
            rest = takes
            for row in givers:
                amount = min(rest, rooms[row])
                rooms[row] -= amount
                rest -= amount
        placed += takes
    return placed
