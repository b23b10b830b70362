"""How well a host suits a pod."""

from __future__ import annotations

from placement.dialects.koordinator.allocating import try_allocate
from placement.dialects.koordinator.fitting import Fit
from placement.dialects.koordinator.host import Host
from placement.dialects.koordinator.host_demand import alignment_on, demand_on
from placement.dialects.koordinator.pod_request import PodRequest
from placement.topology.host_score import HostTotals, score_on_host, score_on_numa_nodes
from placement.topology.masks import mask_of
from placement.topology.numa_exclusivity import favour_idle
from placement.topology.policies import NumaExclusivity, NumaPolicy
from placement.topology.refusal import Refused
from placement.topology.reservations import NO_RESERVATIONS, Reservations
from placement.topology.scoring import Scoring
from placement.topology.trial import Allocation


def score_host(
    host: Host,
    totals: HostTotals,
    request: PodRequest | None,
    fit: Fit,
    scoring: Scoring,
    reservations: Reservations = NO_RESERVATIONS,
) -> int:
    """The score of a host on which a pod was found to fit, 0 to 100; 0 if it cannot be allocated after all.

    Where a pod has a NUMA policy only the NUMA nodes count that it would use.
    Source: Koordinator semantics, score and profiles (preferred NUMA exclusivity).
    """
    if request is None:
        return 0
    try:
        demand, alignment = demand_on(host, request), alignment_on(host, request)
        if demand.cpus is not None and not host.state.has_cpus:
            return 0
        if alignment.policy is NumaPolicy.NONE:
            return score_on_host(host.state, totals, demand, scoring)
        allocation = fit.designated or try_allocate(host, demand, alignment, fit, reservations)
    except Refused:
        return 0
    score = score_on_numa_nodes(host.state, totals, demand, scoring, allocation)
    if alignment.favours_idle and alignment.exclusivity is NumaExclusivity.PREFERRED:
        return favour_idle(score, _numa_ids(host, allocation), host.state.neighbours)
    return score


def _numa_ids(host: Host, allocation: Allocation) -> int:
    return mask_of(allocation.amounts or host.state.capacity)
