"""Filtering and scoring many hosts for one pod: first the host as a whole, then its NUMA nodes and CPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from placement.allocations.kubernetes_resources import host_class, numa_class
from placement.engine.domain.explanation import ConditionKind, Obstacle
from placement.engine.numa.alignment import Alignment, favour_idle
from placement.engine.numa.allocator import Allocation
from placement.engine.numa.amounts import Amounts, NumaAmounts, bound_cost
from placement.engine.numa.cpuset import mask_of
from placement.engine.numa.demand import NumaPolicy, PodDemand, PodRefused, Refusal
from placement.engine.numa.host import MISSED, HostTotals, Scorer, host_scorer, missed, score_on_numa_nodes
from placement.engine.numa.reservations import NO_RESERVATIONS, HostReservations
from placement.engine.scoring.order import POD_SCORING, Order
from placement.pods.host import PODS_CLASS, Host, NodeOffers, Place, alignment_on, demand_on
from placement.pods.koordinator.pod import PodRequest
from placement.pods.numa_fit import AMPLIFIED, Fit, check_amplified, fit_host, screen_host, try_allocate

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
