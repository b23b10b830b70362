"""Filtering and scoring many hosts for one pod."""

from __future__ import annotations

from typing import NamedTuple

from placement.dialects.koordinator.pod.pod_request import PodRequest
from placement.numa.demand import PodDemand
from placement.numa.host import FACE_VALUE
from placement.numa.host_score import HostTotals
from placement.numa.refusal import Refusal, Refused
from placement.numa.reservations import NO_RESERVATIONS, Reservations
from placement.scheduling.host import Host
from placement.scheduling.host_demand import demand_on
from placement.scheduling.numa_fit import (
    Fit,
    check_amplified,
    fit_host,
    screen_host,
)
from placement.scheduling.score import Rating, rate_host
from placement.scoring.strategy import DEFAULT_SCORING, Strategy


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

    def __init__(self, request: PodRequest | None, scoring: Strategy = DEFAULT_SCORING) -> None:
        self._request = request
        self._scoring = scoring
        self._opinions: dict[Host, _HostResult] = {}

    def judge(
        self, host: Host, totals: HostTotals, reservations: Reservations = NO_RESERVATIONS
    ) -> FilterResult:
        """Whether the pod can go to a host with these totals, and how well that suits."""
        if self._request is None:
            return FilterResult(Fit())
        if reservations is not NO_RESERVATIONS:
            return _verdict(host, totals, reservations, self._form_opinion(self._request, host, reservations))
        opinion = self._opinions.get(host)
        if opinion is None:
            opinion = self._form_opinion(self._request, host, reservations)
            self._opinions[host] = opinion
        return _verdict(host, totals, reservations, opinion)

    def _form_opinion(self, request: PodRequest, host: Host, reservations: Reservations) -> _HostResult:
        demand, at_once = demand_on(host, request), screen_host(host, request)
        answer = at_once or fit_host(host, request, reservations)
        rating = rate_host(host, request, answer, self._scoring, reservations)
        return _HostResult(at_once, demand, answer, rating)


def _verdict(
    host: Host, totals: HostTotals, reservations: Reservations, opinion: _HostResult
) -> FilterResult:
    answer = opinion.answer
    if opinion.at_once is None and host.state.cpu_ratio > FACE_VALUE:
        try:
            check_amplified(host, totals, opinion.demand, reservations)
        except Refused as refused:
            return FilterResult(refused.refusal)
    return FilterResult(answer, opinion.rating.scorer(totals), opinion.rating.missed)
