"""What decides among sets of NUMA nodes to which a pod may be aligned alike: isolation, then the strategy."""

from __future__ import annotations

from functools import cache

from placement.numa.alignment.hints import Score
from placement.numa.alignment.merging import Fitness
from placement.numa.allocator import NumaAllocator
from placement.numa.amounts import CPU
from placement.numa.cpuset import members_of
from placement.numa.demand import Distribution, NumaPolicy
from placement.numa.isolation import MISSED, CpuPreference, missed
from placement.numa.refusal import Refused

_WIDENED = (NumaPolicy.BEST_EFFORT, NumaPolicy.RESTRICTED)


def fitness_of(allocator: NumaAllocator, score: Score) -> Fitness:
    """How well any NUMA nodes (a mask) suit a pod: what it gets of what it prefers, then the score.

    Equal scores are decided by what is left of their CPU, in millicores, as the host prefers full or empty
    NUMA nodes. Source: koordinator.md, "The NUMA strategy under alignment", "Isolation".
    """
    sign = -1 if allocator.host.rules.fullest_first else 1

    @cache
    def fitness(affinity: int) -> tuple[int, ...]:
        numa_ids = tuple(members_of(affinity))
        left = sum(allocator.available[numa].get(CPU, 0) for numa in numa_ids)
        return -_missed_on(allocator, numa_ids), score(numa_ids), sign * left

    return fitness


def spreads_wide(allocator: NumaAllocator, policy: NumaPolicy) -> bool:
    """Whether the CPUs of a pod are distributed over all NUMA nodes that its policy admits.

    Source: koordinator.md, "DistributeEvenly".
    """
    distribution = allocator.host.rules.distribution
    is_bound = allocator.demand.cpus is not None
    return is_bound and distribution is Distribution.OVER_ALL and policy in _WIDENED


def _missed_on(allocator: NumaAllocator, numa_ids: tuple[int, ...]) -> int:
    cpus, host = allocator.demand.cpus, allocator.host
    if cpus is None:
        return 0
    try:
        taken = allocator.allocate(numa_ids).cpus
    except Refused:
        return 2 * MISSED
    return missed(host, taken, CpuPreference(cpus.bind, cpus.exclusive))
