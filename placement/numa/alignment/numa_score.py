"""The score of combinations of NUMA nodes for a pod."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from placement.numa.alignment.hints import Score
from placement.numa.alignment.numa_exclusivity import favour_idle
from placement.numa.allocator import NumaAllocator
from placement.numa.amounts import Amounts, bound_cost
from placement.numa.cpuset import mask_of
from placement.numa.split import CPU
from placement.scoring.host import scorer_for
from placement.scoring.strategy import Strategy


def numa_scorer(allocator: NumaAllocator, scoring: Strategy, idle_counts: bool) -> Score:
    """How well a pod would sit on any NUMA nodes: what is used there and its request against the capacity.

    `idle_counts`: those without bound pods score higher.
    Source: koordinator.md, "Hints", "Preferred NUMA exclusivity".
    """
    host, weighted = allocator.host, [resource for resource, _ in scoring.resources]
    capacity = {resource: _of(host.capacity, resource) for resource in weighted}
    used = {
        resource: {numa: amount - allocator.available[numa].get(resource, 0) for numa, amount in row.items()}
        for resource, row in capacity.items()
    }
    request = dict(allocator.demand.amounts)
    if allocator.demand.cpus is not None and CPU in request:
        request[CPU] = bound_cost(request[CPU], host.cpu_ratio)

    score_of, best = scorer_for(scoring, request), scoring.max_score

    def score(numa_ids: Sequence[int]) -> int:
        points = score_of(_summed(used, numa_ids), _summed(capacity, numa_ids))
        return favour_idle(points, mask_of(numa_ids), host.neighbours, best) if idle_counts else points

    return score


def _of(by_numa: Mapping[int, Amounts], resource: str) -> dict[int, int]:
    return {numa: amounts.get(resource, 0) for numa, amounts in by_numa.items()}


def _summed(rows: Mapping[str, Mapping[int, int]], numa_ids: Sequence[int]) -> Amounts:
    return {resource: sum(map(row.__getitem__, numa_ids)) for resource, row in rows.items()}
