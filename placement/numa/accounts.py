"""What is used and what is left on the NUMA nodes of a host."""

from __future__ import annotations

from collections.abc import Mapping

from placement.numa.amounts import Amounts, AmountsByNuma
from placement.numa.amplification import bound_cost
from placement.numa.cpu_use import CpuUse
from placement.numa.host import FACE_VALUE, HostState

_EMPTY: Amounts = {}


def numa_used(host: HostState, use: CpuUse, reusable: AmountsByNuma) -> dict[int, dict[str, int]]:
    """What counts as used on NUMA nodes that have any record: held amounts less reusable ones, at least 0.

    Bound CPUs cost more than their face value where the host is amplified.
    Source: koordinator.md, "Per-NUMA accounts".
    """
    used = {numa: dict(host.held[numa]) for numa in host.capacity if numa in host.held}
    if host.cpu_ratio > FACE_VALUE:
        for numa, surcharge in _surcharges(host, use).items():
            row = used.setdefault(numa, {})
            row["cpu"] = row.get("cpu", 0) + surcharge
    for numa, amounts in reusable.items():
        for resource, amount in amounts.items():
            if resource in used.get(numa, _EMPTY):
                used[numa][resource] = max(0, used[numa][resource] - amount)
    return used


def _surcharges(host: HostState, use: CpuUse) -> dict[int, int]:
    surcharges = {}
    for numa in host.capacity:
        bound = 1000 * (use.held & host.layout.numa_nodes.get(numa, 0)).bit_count()
        if bound:
            surcharges[numa] = bound_cost(bound, host.cpu_ratio) - bound
    return surcharges


def numa_available(host: HostState, used: AmountsByNuma) -> dict[int, dict[str, int]]:
    """What is left of the capacity of every NUMA node, at least 0.

    Source: koordinator.md, "Per-NUMA accounts".
    """
    return {numa: _left(capacity, used.get(numa, _EMPTY)) for numa, capacity in host.capacity.items()}


def _left(capacity: Amounts, used: Mapping[str, int]) -> dict[str, int]:
    return {resource: max(0, amount - used.get(resource, 0)) for resource, amount in capacity.items()}
