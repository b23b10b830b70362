"""Dealing CPUs out evenly over NUMA nodes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Mapping

from placement.numa.accumulator.run import Run
from placement.numa.demand import BindPolicy, Distribution


def deal_over_numa_nodes(run: Run) -> Mapping[int, int]:
    """How many of the needed CPUs each NUMA node gives, ids ascending; empty if one of them can hold all.

    As few NUMA nodes as can hold the request take part, those with most room, or all that have room. CPUs
    without exclusive neighbours are dealt first, in whole cores or on a core each if the policy asks for
    that; any free CPU will do in the end. Expects as many free CPUs as are needed.
    Source: koordinator.md, "DistributeEvenly".
    """
    *offers, anything = _offers(run)
    nodes = _participants(run, *anything)
    if len(nodes) == 1 and run.rules.distribution is Distribution.OVER_NEEDED:
        return {}
    for usable, grain in offers:
        better = _participants(run, usable, grain)
        if better and (len(better) == len(nodes) or run.rules.distribution is Distribution.OVER_ALL):
            return _deal(run, better, grain)
    return _deal(run, nodes, 1)


def _offers(run: Run) -> Iterator[tuple[int, int]]:
    """CPUs that may be dealt, and how many of them stay together; any free CPU comes last."""
    layout = run.layout
    for avoided in dict.fromkeys((*run.avoided(cores=True, numa_nodes=True), 0)):
        usable = run.free & ~avoided
        if run.demand.bind is BindPolicy.FULL_PCPUS:
            yield layout.whole_cores(usable), layout.threads
        else:
            yield run.first_threads(usable, layout.cores), 1
    yield run.free, 1


def _participants(run: Run, usable: int, grain: int) -> dict[int, int]:
    """The room in each NUMA node to deal over, ids ascending; empty if all together have too little room."""
    rooms = {numa: (usable & mask).bit_count() for numa, mask in run.layout.numa_nodes.items()}
    missing = -(-run.need // grain) * grain
    if sum(rooms.values()) < missing:
        return {}
    if run.rules.distribution is Distribution.OVER_ALL:
        return {numa: room for numa, room in rooms.items() if room}
    chosen: set[int] = set()
    for numa in sorted(rooms, key=lambda numa: (-rooms[numa], numa)):
        if missing > 0:
            chosen.add(numa)
            missing -= rooms[numa]
    return {numa: room for numa, room in rooms.items() if numa in chosen}


def _deal(run: Run, rooms: Mapping[int, int], grain: int) -> Mapping[int, int]:
    units = even_shares([room // grain for room in rooms.values()], run.need // grain)
    shares = {numa: unit * grain for numa, unit in zip(rooms, units, strict=True)}
    odd = run.need % grain
    if odd:
        poorest = min((numa for numa in rooms if rooms[numa] > shares[numa]), key=shares.__getitem__)
        shares[poorest] += odd
    return {numa: share for numa, share in shares.items() if share}


def even_shares(rooms: list[int], units: int) -> list[int]:
    """Units dealt over places with that much room as evenly as possible, remainders to the first places.

    Expects no more units than there is room.
    """
    level = bisect_right(
        range(max(rooms, default=0) + 1), units, key=lambda level: sum(min(room, level) for room in rooms)
    )
    shares = [min(room, level - 1) for room in rooms]
    rest = units - sum(shares)
    for place, room in enumerate(rooms):
        if rest and room > shares[place]:
            shares[place] += 1
            rest -= 1
    return shares
