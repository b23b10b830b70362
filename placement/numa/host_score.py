"""The score of a host for a pod."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property

from placement.numa.amounts import CPU, MILLI, NOTHING, Amounts, bound_cost, host_cpu_requested
from placement.numa.demand import PodDemand
from placement.numa.host import FACE_VALUE, HostState, numa_used
from placement.scoring.host import sum_scorer
from placement.scoring.order import Order


@dataclass(frozen=True)
class HostTotals:
    """What a host as a whole can give, amplified, and what all pods on it have requested."""

    allocatable: Amounts
    requested: Amounts

    @cached_property
    def _hash(self) -> int:
        return hash((frozenset(self.allocatable.items()), frozenset(self.requested.items())))

    def __hash__(self) -> int:
        return self._hash


Scorer = Callable[[HostTotals], int]
"""The score of one host for one pod, by the totals of the host."""


def host_scorer(host: HostState, demand: PodDemand, scoring: Order, is_aligned: bool = False) -> Scorer:
    """The score of a pod for which the host as a whole counts, by the totals of the host.

    That is a pod without NUMA policy, or one that has one (`is_aligned`) but got no NUMA nodes.
    Source: koordinator.md, "Score".
    """
    costs, held = demand_costs(host, demand), host.use.held.bit_count()
    score_of = sum_scorer(scoring, costs)

    def score(totals: HostTotals) -> int:
        return score_of(totals.requested, totals.allocatable)

    def score_with_bound_cpus_only(totals: HostTotals) -> int:
        requested = {**totals.requested, CPU: bound_cost(MILLI * held, host.cpu_ratio)}
        return score_of(requested, totals.allocatable)

    def score_amplified(totals: HostTotals) -> int:
        cpu = host_cpu_requested(totals.requested.get(CPU, 0), held, host.cpu_ratio)
        return score_of({**totals.requested, CPU: cpu}, totals.allocatable)

    if is_aligned and demand.cpus is not None:
        return score_with_bound_cpus_only
    return score_amplified if host.cpu_ratio > FACE_VALUE else score


def score_on_numa_nodes(host: HostState, demand: PodDemand, scoring: Order, numa_ids: Collection[int]) -> int:
    """The score of a pod that would use these NUMA nodes: nothing else of the host counts.

    Except that for a bound pod all CPUs that are bound on the host count as used.
    Source: koordinator.md, "Score".
    """
    used = numa_used(host, host.use, NOTHING)
    requested = _sum([used.get(numa, {}) for numa in numa_ids])
    if demand.cpus is not None:
        requested[CPU] = bound_cost(MILLI * host.use.held.bit_count(), host.cpu_ratio)
    capacity = _sum([host.capacity[numa] for numa in numa_ids])
    return sum_scorer(scoring, demand_costs(host, demand))(requested, capacity)


def demand_costs(host: HostState, demand: PodDemand) -> Amounts:
    """What a pod costs on a host: CPUs of its own cost the ratio of the host."""
    if demand.cpus is None or CPU not in demand.amounts or host.cpu_ratio == FACE_VALUE:
        return demand.amounts
    return {**demand.amounts, CPU: bound_cost(demand.amounts[CPU], host.cpu_ratio)}


def _sum(parts: list[Amounts]) -> dict[str, int]:
    return {name: sum(part.get(name, 0) for part in parts) for part in parts for name in part}
