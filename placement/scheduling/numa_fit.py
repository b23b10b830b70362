"""Whether a pod fits on a host: aligned to which of its NUMA nodes, and with which shared pool."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from placement.dialects.koordinator.pod.annotations import ResourceStatus
from placement.dialects.koordinator.pod.pod_request import PodRequest
from placement.domain.explanation import Kind, Obstacle
from placement.numa.alignment.alignment import choose_affinity
from placement.numa.alignment.hints import Fits
from placement.numa.allocator import Allocation
from placement.numa.amounts import bound_cost, host_cpu_requested
from placement.numa.cpuset import mask_of
from placement.numa.demand import CpuDemand, NumaPolicy, PodDemand
from placement.numa.host import FACE_VALUE, HostState
from placement.numa.host_score import HostTotals
from placement.numa.preassigned import allocate_designated
from placement.numa.refusal import NOT_ENOUGH_CPUS, Refusal, Refused
from placement.numa.reservations import NO_RESERVATIONS, Placing, Reservation, Reservations
from placement.scheduling.host import Host
from placement.scheduling.host_demand import (
    alignment_on,
    check_binding,
    check_whole_cpus,
    demand_on,
)

POOLS_TOO_SMALL = "node(s) CPU shared pools do not cover the pod's CPU limit"


def covers(host: HostState, numa_ids: Iterable[int], limit: int) -> bool:
    """Whether the LS pool of any of these NUMA nodes has that many millicores.

    Source: koordinator.md, "ConstrainedBurst".
    """
    return any(_pool_size(host, numa) >= limit for numa in numa_ids)


def choose_pool(host: HostState, numa_ids: Iterable[int], limit: int) -> int:
    """The NUMA node whose LS pool covers the limit, the smallest or the largest such as the strategy asks.

    Raises Refused if there is none. Source: koordinator.md, "ConstrainedBurst".
    """
    sign = 1 if host.rules.fullest_first else -1
    sizes = ((sign * _pool_size(host, numa), numa) for numa in numa_ids if covers(host, [numa], limit))
    chosen = min(sizes, default=None)
    if chosen is None:
        raise Refused(POOLS_TOO_SMALL, obstacle=Obstacle(Kind.SHARED_POOL))
    return chosen[1]


def _pool_size(host: HostState, numa: int) -> int:
    return 1000 * (host.shared_pool & host.layout.numa_nodes.get(numa, 0)).bit_count()


AMPLIFIED = "Insufficient amplified cpu"


@dataclass(frozen=True, slots=True)
class Fit:
    """A pod fits: aligned to these NUMA ids, if to any.

    `designated` is what it gets if somebody else decided that; `nominated` is the place of the matched
    reservation it would use.
    """

    affinity: tuple[int, ...] | None = None
    designated: Allocation | None = None
    nominated: int | None = None


def screen_host(host: Host, request: PodRequest) -> Fit | Refusal | None:
    """What is known about a pod on a host before its totals and CPUs are looked at; None if nothing is.

    Source: koordinator.md, "Filter".
    """
    try:
        alignment_on(host, request)
        if request.designated is not None:
            return Fit(designated=_designated(host, request.designated, demand_on(host, request)))
        check_whole_cpus(host, request)
    except Refused as refused:
        return refused.refusal
    return None


def fit_host(
    host: Host,
    request: PodRequest,
    reservations: Reservations = NO_RESERVATIONS,
) -> Fit | Refusal:
    """Whether a host has the CPUs and NUMA amounts for a pod; the totals of the host are not looked at.

    Expects a host that `screen_host` has nothing to say about. Depends on nothing but its arguments, so that
    answers for equal hosts can be remembered. What fits can be allocated (`allocate_on_host`).
    Source: koordinator.md, "Filter".
    """
    try:
        demand, alignment = demand_on(host, request), alignment_on(host, request)
        check_binding(host, request, demand)
        placing = Placing(host.state, demand, reservations)
        limit = request.burst_limit if demand.cpus is None else None
        affinity = nominated = None
        if alignment.policy is not NumaPolicy.NONE:
            fits = placing.fits if limit is None else _covering(host, limit, placing)
            affinity = choose_affinity(placing.widest_allocator, alignment, fits)
            nominated = placing.explore(affinity).reservation
        elif demand.cpus is not None:
            nominated = _explore_free_cpus(demand.cpus, placing, reservations)
        elif reservations.matched:
            # It takes of the host as a whole only, where every matched reservation has enough.
            nominated = 0
        if limit is not None:
            choose_pool(host.state, affinity or host.state.layout.numa_nodes, limit)
    except Refused as refused:
        return refused.refusal
    return Fit(affinity, nominated=nominated)


def check_amplified(
    host: Host, totals: HostTotals, demand: PodDemand, reservations: Reservations = NO_RESERVATIONS
) -> None:
    """Raise Refused if an amplified host has too little CPU, where bound CPUs cost the ratio.

    CPUs that the pod may take out of reservations are returned first.
    Source: koordinator.md, "CPU amplification".
    """
    ratio, milli = host.state.cpu_ratio, demand.amounts.get("cpu", 0)
    if ratio <= FACE_VALUE:
        return
    cost = milli if demand.cpus is None else bound_cost(milli, ratio)
    cpus_back, milli_back = _returned(reservations)
    requested = host_cpu_requested(
        totals.requested.get("cpu", 0) - milli_back, host.state.use.held.bit_count() - cpus_back, ratio
    )
    if cost > totals.allocatable.get("cpu", 0) - requested:
        raise Refused(AMPLIFIED, obstacle=Obstacle(Kind.AMPLIFIED_CPU))


def _returned(reservations: Reservations) -> tuple[int, int]:
    """The CPUs, and the millicores of the host as a whole, that a pod gets back of what reservations hold."""
    return max(map(_size, reservations.matched), default=(0, 0))


def _size(reservation: Reservation) -> tuple[int, int]:
    cpus = reservation.cpus.bit_count()
    return cpus, max(reservation.milli_cpus, 1000 * cpus)


def _designated(host: Host, status: ResourceStatus, demand: PodDemand) -> Allocation:
    return allocate_designated(host.state, demand, Allocation(mask_of(status.cpus), status.amounts))


def _explore_free_cpus(cpus: CpuDemand, placing: Placing, reservations: Reservations) -> int | None:
    """A strict policy has to be tried; otherwise counting will do, as any free CPU is good enough."""
    if cpus.strict or reservations != NO_RESERVATIONS:
        return placing.explore(None).reservation
    if placing.widest_allocator.free_cpus.bit_count() < cpus.need:
        raise Refused(NOT_ENOUGH_CPUS)
    return None


def _covering(host: Host, limit: int, placing: Placing) -> Fits:
    """Whether a pod fits on NUMA nodes of which one has a shared pool that covers its limit."""
    return lambda affinity: covers(host.state, affinity, limit) and placing.fits(affinity)
