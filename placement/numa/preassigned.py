"""Allocations that somebody else has decided on already."""

from __future__ import annotations

from dataclasses import replace

from placement.numa.allocator import Allocation, NumaAllocator, ReservedCredit
from placement.numa.amounts import NOTHING
from placement.numa.demand import PodDemand
from placement.numa.host import FACE_VALUE, HostState
from placement.numa.refusal import NOT_ENOUGH_CPUS, Refused


def allocate_designated(host: HostState, demand: PodDemand, designated: Allocation) -> Allocation:
    """The designated CPUs, and the request split over the designated amounts.

    Raises Refused unless the pod would get exactly these CPUs and finds its amounts in these.
    Source: Koordinator semantics, designated allocation.
    """
    given = replace(host, capacity=designated.amounts, held=NOTHING, cpu_ratio=FACE_VALUE)
    affinity = tuple(designated.amounts) or None
    allocation = NumaAllocator(given, demand, ReservedCredit(preferred=designated.cpus)).allocate(affinity)
    if allocation.cpus != designated.cpus:
        raise Refused(NOT_ENOUGH_CPUS)
    return allocation
