"""Filtering and scoring many hosts for one pod: first the host as a whole, then its NUMA nodes and CPUs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from placement.dialects.koordinator.pod.pod_request import PodRequest
from placement.dialects.koordinator.resources import host_class, numa_class
from placement.domain.explanation import Kind, Obstacle
from placement.numa.amounts import Amounts, NumaAmounts, bound_cost
from placement.numa.demand import PodDemand
from placement.numa.host_score import HostTotals
from placement.numa.refusal import Refusal, Refused
from placement.numa.reservations import NO_RESERVATIONS, Reservations
from placement.scheduling.host import Host
from placement.scheduling.host_demand import demand_on
from placement.scheduling.node_offers import PODS_CLASS, NodeOffers, Place
from placement.scheduling.numa_fit import (
    AMPLIFIED,
    Fit,
    check_amplified,
    fit_host,
    screen_host,
)
from placement.scheduling.score import Rating, rate_host
from placement.scoring.order import POD_SCORING, Order

TOO_MANY_PODS = "Too many pods"
Left = Callable[[Place], int]
"""The units that are left at a place."""


def lacking(
    offers: NodeOffers, free: Mapping[str, int], left: Left, requests: Amounts, *, bound: bool
) -> Refusal | None:
    """Everything a host has too little of for a pod, None if it fits; the first of it is the obstacle.

    `free` are the units left of each class of the host itself, `left` tells those of its NUMA nodes, which
    count for what the host does not offer as a whole. The comparison is the one that the claim makes.
    `bound`: the pod would get CPUs of its own, each of which costs the ratio of the host.
    """
    lacks = list(_lacking(offers, free, left, requests, bound))
    if not lacks:
        return None
    return Refusal(tuple(words for _, words in lacks), obstacle=Obstacle(Kind.AMOUNT, lacks[0][0]))


def _lacking(
    offers: NodeOffers, free: Mapping[str, int], left: Left, requests: Amounts, bound: bool
) -> Iterator[tuple[str, str]]:
    """The class of each amount that is too large, and the words for it."""
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
    """Where to count requests that only NUMA nodes offer, of a pod that is aligned to none with them.

    NUMA nodes give what they have left, lowest ids first; less than the request if there is not enough.
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
    """Where NUMA nodes offer what the host as a whole would otherwise offer in the same class."""
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
        """Whether the pod can go there."""
        return isinstance(self.answer, Fit)


class _HostResult(NamedTuple):
    """What holds for a pod on all equal hosts: said at once or after the totals are checked, the rating."""

    at_once: Fit | Refusal | None
    demand: PodDemand
    answer: Fit | Refusal
    rating: Rating


class PodJudge:
    """The phases filter and score for one pod, None if it requests nothing.

    Equal hosts are looked at once; only what depends on their totals is found out for each.
    Source: koordinator.md, "Filter", "Score".
    """

    def __init__(self, request: PodRequest | None, scoring: Order = POD_SCORING) -> None:
        self._request = request
        self._scoring = scoring
        self._host_results: dict[Host, _HostResult] = {}

    def judge(
        self, host: Host, totals: HostTotals, reservations: Reservations = NO_RESERVATIONS
    ) -> FilterResult:
        """Whether the pod can go to a host with these totals, and how well that suits."""
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

    def _host_result(self, request: PodRequest, host: Host, reservations: Reservations) -> _HostResult:
        demand, at_once = demand_on(host, request), screen_host(host, request)
        answer = at_once or fit_host(host, request, reservations)
        rating = rate_host(host, request, answer, self._scoring, reservations)
        return _HostResult(at_once, demand, answer, rating)


def _filter_result(
    host: Host, totals: HostTotals, reservations: Reservations, found: _HostResult
) -> FilterResult:
    answer = found.answer
    if found.at_once is None:
        try:
            check_amplified(host, totals, found.demand, reservations)
        except Refused as refused:
            return FilterResult(refused.refusal)
    return FilterResult(answer, found.rating.scorer(totals), found.rating.missed)
