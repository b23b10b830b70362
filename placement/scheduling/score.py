"""How well a host suits a pod."""

from __future__ import annotations

from typing import NamedTuple

from placement.dialects.koordinator.pod.pod_request import PodRequest
from placement.numa.alignment.alignment import Alignment
from placement.numa.alignment.numa_exclusivity import favour_idle
from placement.numa.allocator import Allocation
from placement.numa.cpuset import mask_of
from placement.numa.demand import NumaPolicy, PodDemand
from placement.numa.host_score import (
    HostTotals,
    Scorer,
    host_scorer,
    score_on_numa_nodes,
)
from placement.numa.isolation import MISSED, missed
from placement.numa.refusal import Refusal, Refused
from placement.numa.reservations import NO_RESERVATIONS, Reservations
from placement.scheduling.host import Host
from placement.scheduling.host_demand import alignment_on, demand_on
from placement.scheduling.numa_fit import Fit
from placement.scheduling.reserve import try_allocate
from placement.scoring.order import Order

AVOIDED = 2 * MISSED + 1
"""What a host misses that a pod should avoid, whatever else it offers."""


class Rating(NamedTuple):
    """How well a host suits a pod: its score, and how much the pod misses of what it prefers."""

    scorer: Scorer
    missed: int = 0


def rate_host(
    host: Host,
    request: PodRequest,
    answer: Fit | Refusal,
    scoring: Order,
    reservations: Reservations = NO_RESERVATIONS,
) -> Rating:
    """The rating of a host by the answer that it gave to a pod: 0 if the pod cannot go there.

    Where a pod has a NUMA policy only the NUMA nodes count that it would use, whatever the totals are.
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
    except Refused:
        return Rating(worst)
    return Rating(
        _rate_aligned(host, demand, alignment, allocation, scoring)
        if is_aligned
        else host_scorer(host.state, demand, scoring),
        missed_on(host, request, allocation) if isolates else 0,
    )


def missed_on(host: Host, request: PodRequest, allocation: Allocation) -> int:
    """How much of what a pod prefers these CPUs of a host miss (koordinator.md, "Isolation")."""
    if host.bind.is_avoided(request):
        return AVOIDED
    return missed(host.state, allocation.cpus, host.bind.preference(request))


def worst(totals: HostTotals) -> int:
    """The score of hosts where nothing works."""
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
