"""Filtering and scoring many hosts for one pod: first the host as a whole, then its NUMA nodes and CPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from placement.allocations.kubernetes_resources import host_class, numa_class
from placement.engine.domain.explanation import ConditionKind, Obstacle
from placement.engine.numa.alignment import Alignment, choose_affinity, favour_idle
from placement.engine.numa.allocator import Allocation, allocate_designated
from placement.engine.numa.amounts import Amounts, NumaAmounts, bound_cost, host_cpu_requested
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
from placement.engine.numa.host import (
    FACE_VALUE,
    MISSED,
    Holding,
    HostState,
    HostTotals,
    Scorer,
    host_scorer,
    missed,
    score_on_numa_nodes,
)
from placement.engine.numa.reservations import NO_RESERVATIONS, HostReservations, Reservation, ReservedPlacing
from placement.engine.scoring.order import POD_SCORING, Order
from placement.pods.host import (
    PODS_CLASS,
    Host,
    NodeOffers,
    Place,
    alignment_on,
    check_binding,
    check_whole_cpus,
    demand_on,
)
from placement.pods.koordinator.annotations import (
    NOTHING_GIVEN,
    ResourceSpec,
    ResourceStatus,
    completed_spec,
    status_document,
)
from placement.pods.koordinator.pod import PodRequest
from placement.pods.koordinator.policies import QosClass

# The fit of a pod on a host: the NUMA nodes to which it is aligned, and its shared pool.


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


# How well a host suits a pod.


AVOIDED = 2 * MISSED + 1
"""The amount that a host misses if a pod should avoid it, whatever else it offers."""


class Rating(NamedTuple):
    """A rating of a host for a pod: its score, and how much the pod misses of what it prefers."""

    scorer: Scorer
    missed: int = 0


def rate_host(
    host: Host,
    request: PodRequest,
    answer: Fit | Refusal,
    scoring: Order,
    reservations: HostReservations = NO_RESERVATIONS,
) -> Rating:
    """Return the rating of a host from its answer to a pod: a score of 0 if the pod cannot go there.

    Where a pod has a NUMA policy, only the NUMA nodes that it would use count, whatever the totals are.
    Source: koordinator.md, "Score", "Preferred NUMA exclusivity", "Isolation".
    """
    if isinstance(answer, Refusal):
        return Rating(worst)
    try:
        demand, alignment = demand_on(host, request), alignment_on(host, request)
        if demand.cpus is not None and not host.state.has_cpus:
            return Rating(worst)
        isolates = demand.cpus is not None and host.state.rules.isolation_first
        is_aligned = alignment.policy is not NumaPolicy.NONE
        if not isolates and not is_aligned:
            return Rating(host_scorer(host.state, demand, scoring))
        allocation = answer.designated or try_allocate(host, demand, alignment, answer, reservations)
    except PodRefused:
        return Rating(worst)
    return Rating(
        _rate_aligned(host, demand, alignment, allocation, scoring)
        if is_aligned
        else host_scorer(host.state, demand, scoring),
        missed_on(host, request, allocation) if isolates else 0,
    )


def missed_on(host: Host, request: PodRequest, allocation: Allocation) -> int:
    """Return how much a pod misses of what it prefers on these CPUs (koordinator.md, "Isolation")."""
    if host.bind.is_avoided(request):
        return AVOIDED
    return missed(host.state, allocation.cpus, host.bind.preference(request))


def worst(totals: HostTotals) -> int:
    """Return 0, the score of hosts where nothing works."""
    return 0


def _rate_aligned(
    host: Host, demand: PodDemand, alignment: Alignment, allocation: Allocation, scoring: Order
) -> Scorer:
    state = host.state
    numa_ids = allocation.amounts or state.capacity

    def idle_counted(score: int) -> int:
        idle_counts, best = alignment.idle_counts, scoring.max_score
        return favour_idle(score, mask_of(numa_ids), state.neighbours, best) if idle_counts else score

    if allocation.amounts:
        score = idle_counted(score_on_numa_nodes(state, demand, scoring, numa_ids))
        return lambda totals: score
    score_host = host_scorer(state, demand, scoring, is_aligned=True)
    return lambda totals: idle_counted(score_host(totals))


TOO_MANY_PODS = "Too many pods"
Left = Callable[[Place], int]
"""The units that are left at a place."""


def lacking(
    offers: NodeOffers, free: Mapping[str, int], left: Left, requests: Amounts, *, bound: bool
) -> Refusal | None:
    """Return all that a host has too little of for a pod, None if it fits; the first lack is the obstacle.

    `free` has the units left of each class of the host itself. `left` returns the units left on its NUMA
    nodes, which count for what the host as a whole does not offer. The claim makes the same comparison.
    `bound`: the pod would get CPUs of its own, each of which costs the ratio of the host.
    """
    lacks = list(_lacking(offers, free, left, requests, bound))
    if not lacks:
        return None
    return Refusal(tuple(words for _, words in lacks), obstacle=Obstacle(ConditionKind.AMOUNT, lacks[0][0]))


def _lacking(
    offers: NodeOffers, free: Mapping[str, int], left: Left, requests: Amounts, bound: bool
) -> Iterator[tuple[str, str]]:
    """Yield the class of each amount that is too large, and the message for it."""
    if free.get(PODS_CLASS, 0) < 1:
        yield PODS_CLASS, TOO_MANY_PODS
    for resource, amount in requests.items():
        kind = host_class(resource)
        room = free.get(kind.name)
        if room is None:
            room = sum(left(place) for place in _below(offers, resource).values())
        if -(-amount // kind.unit) > room:
            yield kind.name, f"Insufficient {resource}"
        elif resource == "cpu" and bound and bound_cost(amount, offers.ratio) > room:
            yield kind.name, AMPLIFIED


def loose_amounts(offers: NodeOffers, left: Left, requests: Amounts, aligned: NumaAmounts) -> NumaAmounts:
    """Return where to count requests that only NUMA nodes offer, of a pod that no alignment covers for them.

    NUMA nodes give what they have left, lowest ids first; together less than the request if they lack it.
    """
    given: dict[int, dict[str, int]] = {}
    for resource, amount in requests.items():
        if any(resource in row for row in aligned.values()):
            continue
        unit = numa_class(resource).unit
        for numa, place in _below(offers, resource).items():
            share = min(amount, left(place) * unit)
            if share:
                given.setdefault(numa, {})[resource] = share
                amount -= share
    return NumaAmounts(given)


def _below(offers: NodeOffers, resource: str) -> dict[int, Place]:
    """Return the places on NUMA nodes that offer what the host could offer in this class, but does not."""
    if host_class(resource) != numa_class(resource) or offers.host(resource) is not None:
        return {}
    return offers.on_numa_nodes(resource)


class FilterResult(NamedTuple):
    """A pod fits on a host with a score of 0 to 100, or it is refused.

    `missed`: how much of what the pod prefers it does not get there, 0 if nothing.
    """

    answer: Fit | Refusal
    score: int = 0
    missed: int = 0

    @property
    def fits(self) -> bool:
        """Return whether the pod can go there."""
        return isinstance(self.answer, Fit)


class _HostResult(NamedTuple):
    """A result for a pod on all equal hosts; `at_once` is the answer that does not depend on their totals."""

    at_once: Fit | Refusal | None
    demand: PodDemand
    answer: Fit | Refusal
    rating: Rating


class NodeFilter:
    """The filter and score phases for one pod; its request is None if it requests nothing.

    Equal hosts are evaluated once; only what depends on their totals is evaluated for each.
    Source: koordinator.md, "Filter", "Score".
    """

    def __init__(self, request: PodRequest | None, scoring: Order = POD_SCORING) -> None:
        self._request = request
        self._scoring = scoring
        self._host_results: dict[Host, _HostResult] = {}

    def judge(
        self, host: Host, totals: HostTotals, reservations: HostReservations = NO_RESERVATIONS
    ) -> FilterResult:
        """Return whether the pod can go to a host with these totals, and how well the host suits it."""
        if self._request is None:
            return FilterResult(Fit(nominated=0 if reservations.matched else None))
        if reservations is not NO_RESERVATIONS:
            return _filter_result(
                host, totals, reservations, self._host_result(self._request, host, reservations)
            )
        found = self._host_results.get(host)
        if found is None:
            found = self._host_result(self._request, host, reservations)
            self._host_results[host] = found
        return _filter_result(host, totals, reservations, found)

    def _host_result(self, request: PodRequest, host: Host, reservations: HostReservations) -> _HostResult:
        demand, at_once = demand_on(host, request), screen_host(host, request)
        answer = at_once or fit_host(host, request, reservations)
        rating = rate_host(host, request, answer, self._scoring, reservations)
        return _HostResult(at_once, demand, answer, rating)


def _filter_result(
    host: Host, totals: HostTotals, reservations: HostReservations, found: _HostResult
) -> FilterResult:
    answer = found.answer
    if found.at_once is None:
        try:
            check_amplified(host, totals, found.demand, reservations)
        except PodRefused as refused:
            return FilterResult(refused.refusal)
    return FilterResult(answer, found.rating.scorer(totals), found.rating.missed)
