"""The choice of NUMA nodes as it is specified: every combination is tried, by size and then in turn."""

from functools import partial
from itertools import combinations

from placement.engine.numa.alignment import (
    Hint,
    MergeCriteria,
    is_allowed,
    numa_scorer,
    select_affinity,
    spreads_wide,
)
from placement.engine.numa.allocator import NumaAllocator
from placement.engine.numa.cpus import mask_of, members_of
from placement.engine.numa.host import CPU, MISSED, CpuPreference, NumaPolicy, PodRefused, missed


def naive_affinity(host, request, alignment):
    """The mask of NUMA nodes that a pod is aligned to (None: to none in particular), or why it is refused."""
    allocator = NumaAllocator(host, request)
    policy, design = alignment.policy, host.rules.isolation_first
    scored = numa_scorer(allocator, alignment.scoring, alignment.idle_counts)
    widest_first = spreads_wide(allocator, policy)
    all_preferred = policy is NumaPolicy.RESTRICTED or widest_first
    hints = {resource: [] for resource in allocator.known_requests}
    numa_ids = sorted(host.capacity)
    sizes = range(1, len(numa_ids) + 1)
    for size in reversed(sizes) if widest_first else sizes:
        smallest = {resource for resource in hints if not hints[resource]}
        for nodes in combinations(numa_ids, size):
            if not allocator.fits(nodes):
                continue
            one = policy is not NumaPolicy.SINGLE_NUMA_NODE or size == 1
            score = 0 if design or not one else scored(nodes)
            for resource, found in hints.items():
                if all(allocator.available[numa].get(resource, 0) for numa in nodes):
                    preferred = all_preferred or resource in smallest
                    found.append(Hint(mask_of(nodes), preferred, False, score))
    allowed = partial(is_allowed, exclusivity=alignment.exclusivity, neighbours=host.neighbours)
    fitness = partial(naive_fitness, host, request, scored) if design else None
    criteria = MergeCriteria(allowed, fitness, widest_first)
    found = select_affinity(policy, [hints], mask_of(numa_ids), criteria)
    return found.reasons or found.affinity


def naive_fitness(host, request, scored, affinity):
    """How well NUMA nodes suit a pod: what it misses, their score, what is left of their CPUs."""
    allocator, nodes = NumaAllocator(host, request), tuple(members_of(affinity))
    cost = 0
    if request.cpus is not None:
        try:
            preference = CpuPreference(request.cpus.bind, request.cpus.exclusive)
            cost = missed(host, allocator.allocate(nodes).cpus, preference)
        except PodRefused:
            cost = 2 * MISSED
    left = sum(allocator.available[numa].get(CPU, 0) for numa in nodes)
    return -cost, scored(nodes), -left if host.rules.fullest_first else left
