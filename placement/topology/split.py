"""Dividing a request over the NUMA nodes of an affinity."""

from __future__ import annotations

from collections.abc import Sequence

from placement.topology.amounts import Amounts, AmountsByNuma
from placement.topology.distribution import even_shares
from placement.topology.refusal import Refused

CPU = "cpu"
MILLI = 1000


def split_request(
    request: Amounts, available: AmountsByNuma, affinity: Sequence[int], cpu_grain: int = 1
) -> dict[int, dict[str, int]]:
    """What each NUMA node of an ascending affinity gives: the poorest first, an equal share of what is left.

    `cpu` is divided in multiples of `cpu_grain` millicores. Resources that no NUMA node of the host reports
    are left out. Raises Refused naming every resource that does not fit.
    Source: Koordinator semantics, splitting a request.
    """
    shares: dict[int, dict[str, int]] = {numa: {} for numa in affinity}
    missing = []
    for resource, amount in request.items():
        if not any(resource in reported for reported in available.values()):
            continue
        grain = cpu_grain if resource == CPU else 1
        rest = amount
        rooms = sorted((available.get(numa, {}).get(resource, 0), numa) for numa in affinity)
        for position, (room, numa) in enumerate(rooms):
            share = min(room, rest // grain // (len(rooms) - position) * grain)
            if share:
                shares[numa][resource] = share
                rest -= share
        if rest:
            missing.append(resource)
    if missing:
        raise Refused(*(f"Insufficient NUMA {resource}" for resource in sorted(missing)))
    return {numa: amounts for numa, amounts in shares.items() if amounts}


def deal_cpus(milli: int, available: AmountsByNuma, affinity: Sequence[int], grain: int) -> dict[int, int]:
    """Millicores dealt evenly over an ascending affinity in multiples of `grain`, remainders to the first.

    Empty if the affinity has too little room for that.
    Source: Koordinator semantics, profiles (DistributeEvenly).
    """
    rooms = [available.get(numa, {}).get(CPU, 0) // grain for numa in affinity]
    if milli % grain or sum(rooms) * grain < milli:
        return {}
    shares = even_shares(rooms, milli // grain)
    return {numa: share * grain for numa, share in zip(affinity, shares, strict=True) if share}
