"""Dividing an amount over the NUMA nodes of an affinity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from placement.numa.accumulator.distribution import even_shares


def split_amount(
    amount: int, rooms: Mapping[int, int], affinity: Sequence[int], grain: int = 1
) -> dict[int, int]:
    """What each NUMA node of an affinity gives: the poorest first, an equal share of what is left.

    Shares are multiples of `grain` unless there is less room. They add up to less than the amount if it does
    not fit; `rooms` is what each NUMA node has. Source: koordinator.md, "Splitting a request".
    """
    shares = {}
    nodes = len(affinity)
    for room, numa in sorted([(rooms.get(numa, 0), numa) for numa in affinity]):
        share = min(room, amount // grain // nodes * grain)
        nodes -= 1
        if share:
            shares[numa] = share
            amount -= share
    return shares


def deal_amount(amount: int, rooms: Mapping[int, int], affinity: Sequence[int], grain: int) -> dict[int, int]:
    """An amount dealt evenly over an ascending affinity in multiples of `grain`, remainders to the first.

    Empty if the affinity has too little room for that. Source: koordinator.md, "DistributeEvenly".
    """
    units = [rooms.get(numa, 0) // grain for numa in affinity]
    if amount % grain or sum(units) * grain < amount:
        return {}
    shares = even_shares(units, amount // grain)
    return {numa: share * grain for numa, share in zip(affinity, shares, strict=True) if share}
