"""The fit of a pod on a host: the NUMA nodes to which it is aligned, and its shared pool."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from placement.engine.domain.explanation import ConditionKind, Obstacle
from placement.engine.numa.alignment import Alignment, choose_affinity
from placement.engine.numa.allocator import Allocation, allocate_designated
from placement.engine.numa.amounts import NumaAmounts, bound_cost, host_cpu_requested
from placement.engine.numa.cpuset import mask_of, members_of
from placement.engine.numa.demand import (
    NOT_ENOUGH_CPUS,
    BindPolicy,
    CpuDemand,
    ExclusiveLevel,
    NumaPolicy,
    PodDemand,
    PodRefused,
    Refusal,
)
from placement.engine.numa.hints import Fits
from placement.engine.numa.host import FACE_VALUE, Holding, HostState, HostTotals
from placement.engine.numa.reservations import NO_RESERVATIONS, HostReservations, Reservation, ReservedPlacing
from placement.pods.host import Host, alignment_on, check_binding, check_whole_cpus, demand_on
from placement.pods.koordinator.annotations import (
    NOTHING_GIVEN,
    ResourceSpec,
    ResourceStatus,
    completed_spec,
    status_document,
)
from placement.pods.koordinator.pod import PodRequest
from placement.pods.koordinator.qos import QosClass

POOLS_TOO_SMALL = "node(s) CPU shared pools do not cover the pod's CPU limit"


def covers(host: HostState, numa_ids: Iterable[int], limit: int) -> bool:
    """Return whether the LS pool of any of these NUMA nodes has that many millicores.

    Source: koordinator.md, "ConstrainedBurst".
    """
    return any(_pool_size(host, numa) >= limit for numa in numa_ids)


def choose_pool(host: HostState, numa_ids: Iterable[int], limit: int) -> int:
    """Return the NUMA node with the smallest, or by strategy the largest, LS pool that covers the limit.

    Raises PodRefused if there is none. Source: koordinator.md, "ConstrainedBurst".
    """
    sign = 1 if host.rules.fullest_first else -1
    sizes = ((sign * _pool_size(host, numa), numa) for numa in numa_ids if covers(host, [numa], limit))
    chosen = min(sizes, default=None)
    if chosen is None:
        raise PodRefused(POOLS_TOO_SMALL, obstacle=Obstacle(ConditionKind.SHARED_POOL))
    return chosen[1]


def _pool_size(host: HostState, numa: int) -> int:
    return 1000 * (host.shared_pool & host.layout.numa_nodes.get(numa, 0)).bit_count()


AMPLIFIED = "Insufficient amplified cpu"


@dataclass(frozen=True, slots=True)
class Fit:
    """An answer that a pod fits: aligned to these NUMA ids, if to any.

    `designated` is what it gets if another scheduler decided that; `nominated` is the position of the matched
    reservation that it would use.
    """

    affinity: tuple[int, ...] | None = None
    designated: Allocation | None = None
    nominated: int | None = None


def screen_host(host: Host, request: PodRequest) -> Fit | Refusal | None:
    """Return the answer of a host before its totals and CPUs are looked at; None if there is none yet.

    Source: koordinator.md, "Filter".
    """
    try:
        alignment_on(host, request)
        if request.designated is not None:
            return Fit(designated=_designated(host, request.designated, demand_on(host, request)))
        check_whole_cpus(host, request)
    except PodRefused as refused:
        return refused.refusal
    return None


def fit_host(
    host: Host,
    request: PodRequest,
    reservations: HostReservations = NO_RESERVATIONS,
) -> Fit | Refusal:
    """Return whether a host has the CPUs and NUMA amounts for a pod; the host's totals are not looked at.

    Expects a host for which `screen_host` returns None. Depends on nothing but its arguments, so that answers
    for equal hosts can be remembered. What fits can be allocated (`allocate_on_host`).
    Source: koordinator.md, "Filter".
    """
    try:
        demand, alignment = demand_on(host, request), alignment_on(host, request)
        check_binding(host, request, demand)
        placing = ReservedPlacing(host.state, demand, reservations)
        limit = request.burst_limit if demand.cpus is None else None
        affinity = nominated = None
        if alignment.policy is not NumaPolicy.NONE:
            fits = placing.fits if limit is None else _covering(host, limit, placing)
            affinity = choose_affinity(placing.widest_allocator, alignment, fits)
            nominated = placing.explore(affinity).reservation
        elif demand.cpus is not None:
            nominated = _explore_free_cpus(demand.cpus, placing, reservations)
        elif reservations.matched:
            # The pod takes only of the host as a whole, where every matched reservation has enough.
            nominated = 0
        if limit is not None:
            choose_pool(host.state, affinity or host.state.layout.numa_nodes, limit)
    except PodRefused as refused:
        return refused.refusal
    return Fit(affinity, nominated=nominated)


def check_amplified(
    host: Host, totals: HostTotals, demand: PodDemand, reservations: HostReservations = NO_RESERVATIONS
) -> None:
    """Raise PodRefused if an amplified host has too little CPU, where bound CPUs cost the ratio.

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
        raise PodRefused(AMPLIFIED, obstacle=Obstacle(ConditionKind.AMPLIFIED_CPU))


def _returned(reservations: HostReservations) -> tuple[int, int]:
    """Return the CPUs and the millicores of the host as a whole that reservations give back to a pod."""
    return max(map(_size, reservations.matched), default=(0, 0))


def _size(reservation: Reservation) -> tuple[int, int]:
    cpus = reservation.cpus.bit_count()
    return cpus, max(reservation.milli_cpus, 1000 * cpus)


def _designated(host: Host, status: ResourceStatus, demand: PodDemand) -> Allocation:
    return allocate_designated(host.state, demand, Allocation(mask_of(status.cpus), status.amounts))


def _explore_free_cpus(
    cpus: CpuDemand, placing: ReservedPlacing, reservations: HostReservations
) -> int | None:
    """Try a strict policy; otherwise count, as any free CPU is good enough. Raises PodRefused."""
    if cpus.strict or reservations != NO_RESERVATIONS:
        return placing.explore(None).reservation
    if placing.widest_allocator.free_cpus.bit_count() < cpus.need:
        raise PodRefused(NOT_ENOUGH_CPUS)
    return None


def _covering(host: Host, limit: int, placing: ReservedPlacing) -> Fits:
    """Return a check that a pod fits on NUMA nodes, one of them with a shared pool that covers its limit."""
    return lambda affinity: covers(host.state, affinity, limit) and placing.fits(affinity)


# The place of a pod on a host, and how it is written down.


_POOL_POLICIES = (NumaPolicy.RESTRICTED, NumaPolicy.SINGLE_NUMA_NODE)


@dataclass(frozen=True, slots=True)
class PodAllocation:
    """An allocation of a pod on a host, and the bind policy under which its CPUs were chosen.

    `bind` is NONE for pods that are not bound; `strict` if the policy had to be kept.
    """

    status: ResourceStatus = NOTHING_GIVEN
    bind: BindPolicy = BindPolicy.NONE
    strict: bool = False
    level: ExclusiveLevel = ExclusiveLevel.NONE
    group: str = ""

    @property
    def lifts_cfs_quota(self) -> bool:
        """Return whether to lift the containers' CFS quota: on CPUs of their own it only throttles them."""
        return bool(self.status.cpus)

    def holding(self, qos: QosClass) -> Holding:
        """Return what to record for the pod; its label names the class `qos`."""
        return self.status.holding(self.level, qos, self.group)

    def annotations(self, spec: ResourceSpec) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
        """Return the pod's resource-status, empty if it was given nothing, and its completed resource-spec.

        Source: koordinator.md, "What is written".
        """
        return status_document(self.status), completed_spec(spec, self.bind, self.strict)


def allocate_on_host(
    host: Host,
    request: PodRequest | None,
    fit: Fit,
    reservations: HostReservations = NO_RESERVATIONS,
) -> PodAllocation:
    """Return what a pod gets on a host on which it fits; nothing if nothing has to be remembered.

    Raises PodRefused if it does not fit after all. Source: koordinator.md, "Reserve".
    """
    if request is None:
        return PodAllocation()
    demand = demand_on(host, request)
    if fit.designated is not None:
        return _written(host, request, demand, fit.designated, ())
    alignment = alignment_on(host, request)
    allocation = try_allocate(host, demand, alignment, fit, reservations)
    pools = _pools(host, request, alignment, allocation.amounts) if demand.cpus is None else ()
    return _written(host, request, demand, allocation, pools)


def try_allocate(
    host: Host, demand: PodDemand, alignment: Alignment, fit: Fit, reservations: HostReservations
) -> Allocation:
    """Return the allocation of the pod, and nothing to write about it. Raises PodRefused."""
    if alignment.policy is NumaPolicy.NONE and demand.cpus is None:
        return Allocation()
    if reservations.nominated is None:
        reservations = replace(reservations, nominated=fit.nominated)
    placing = ReservedPlacing(host.state, demand, reservations)
    affinity = fit.affinity
    if alignment.policy is NumaPolicy.BEST_EFFORT and affinity is None:
        affinity = choose_affinity(placing.widest_allocator, alignment, placing.fits)
    return placing.allocate(affinity)


def _written(
    host: Host,
    request: PodRequest,
    demand: PodDemand,
    allocation: Allocation,
    numa_ids: tuple[int, ...],
) -> PodAllocation:
    sockets = host.state.layout.socket_of_numa
    pools = tuple((sockets[numa], numa) for numa in numa_ids if numa in sockets)
    status = ResourceStatus(frozenset(members_of(allocation.cpus)), allocation.amounts, pools)
    if demand.cpus is None:
        return PodAllocation(status)
    return PodAllocation(status, demand.cpus.bind, demand.cpus.strict, request.exclusive, request.group)


def _pools(host: Host, request: PodRequest, alignment: Alignment, amounts: NumaAmounts) -> tuple[int, ...]:
    """Return the NUMA nodes with LS pools that an unbound pod must not leave (koordinator.md, "Profiles")."""
    if request.burst_limit is not None:
        numa_ids = amounts or host.state.layout.numa_nodes
        return (choose_pool(host.state, numa_ids, request.burst_limit),)
    if not request.uses_ls_pools or alignment.policy not in _POOL_POLICIES:
        return ()
    if not amounts and len(host.state.capacity) == 1 and request.milli_cpus:
        # The pod is aligned to the only NUMA node, without accounts there.
        return tuple(host.state.capacity)
    return tuple(numa for numa, given in amounts.items() if "cpu" in given)
