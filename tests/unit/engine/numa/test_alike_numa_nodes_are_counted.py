"""NUMA nodes that are alike for a pod are looked at once; hosts of many are searched as far as helps."""

import os
import random
from itertools import combinations

import pytest

from placement.engine.numa.alignment import Alignment, choose_affinity
from placement.engine.numa.allocator import NumaAllocator
from placement.engine.numa.combinations import MOST_EXAMINED, NumaCombinations, kinds_of
from placement.engine.numa.cpus import format_cpu_list, mask_of
from placement.engine.numa.host import (
    Distribution,
    HostState,
    NumaExclusivity,
    NumaPolicy,
    PickRules,
    PodRefused,
)
from placement.engine.scoring.order import Strategy
from placement.engine.scoring.parameters import Weighted
from tests.naive_alignment import naive_affinity
from tests.unit.engine.numa.samples import holding, host, pod

# As many random hosts and pods; 10,000 were compared when alike NUMA nodes came to be counted.
CASES = int(os.environ.get("PLACEMENT_TEST_ALIGNMENTS", "150"))
POLICIES = (NumaPolicy.BEST_EFFORT, NumaPolicy.RESTRICTED, NumaPolicy.SINGLE_NUMA_NODE)


def random_case(chance: random.Random):
    """A host of up to twelve NUMA nodes, many of them alike, a pod, and how it is aligned."""
    count = chance.choice((2, 3, 5, 6, 7, 8, 8, 9, 10, 12))
    # The naive oracle tries each combination; so large hosts come rarely.
    count = count if count < 10 or chance.random() < 0.25 else 6
    cores, threads = chance.choice(((2, 2), (1, 2), (2, 1), (3, 2)))
    size = cores * threads
    kinds = [
        {"cpu": 1000 * chance.choice((size, size, size // 2)), "memory": chance.choice((4, 4, 2, 0))}
        for _ in range(chance.choice((1, 1, 2, 3)))
    ]
    capacity = {numa: chance.choice(kinds) for numa in range(count)}
    held = []
    for _ in range(chance.choice((0, 0, 1, 2, 4))):
        numa = chance.randrange(count)
        cpus = chance.sample(range(numa * size, (numa + 1) * size), chance.randint(1, size))
        level = chance.choice(("None", "None", "PCPULevel", "NUMANodeLevel"))
        amounts = {f"numa{numa}": {"cpu": 1000 * len(cpus), "memory": chance.choice((0, 1))}}
        if not any(set(cpus) & set(each.cpus) for each in held):
            held.append(holding(format_cpu_list(cpus), level, **amounts))
    rules = PickRules(
        fullest_first=chance.random() < 0.5,
        distribution=chance.choice((Distribution.PACKED, Distribution.PACKED, *Distribution)),
        downgrades=chance.random() < 0.5,
        isolation_first=chance.random() < 0.6,
    )
    state = host(1, count, cores, threads, capacity=capacity, holdings=held, rules=rules)
    bind = chance.choice((None, "", "FullPCPUs", "SpreadByPCPUs"))
    cpu = chance.randint(1, count * size) * 1000 + (0 if bind is not None else chance.choice((0, 500)))
    request = pod(
        bind,
        strict=chance.random() < 0.4,
        exclusive=chance.choice(("None", "None", "PCPULevel", "NUMANodeLevel")),
        cpu=cpu,
        memory=chance.randint(0, 2 * count),
    )
    scoring = Strategy(
        chance.choice(("LeastAllocated", "MostAllocated")), (Weighted("cpu", 1), Weighted("memory", 2))
    )
    alignment = Alignment(
        chance.choice(POLICIES), chance.choice(tuple(NumaExclusivity)), scoring, chance.random() < 0.5
    )
    return state, request, alignment


def chosen(state, request, alignment):
    try:
        affinity = choose_affinity(NumaAllocator(state, request), alignment)
    except PodRefused as refused:
        return refused.refusal.reasons
    return None if affinity is None else mask_of(affinity)


def test_the_same_numa_nodes_are_chosen_as_by_trying_all_combinations():
    chance = random.Random(16)
    for number in range(CASES):
        state, request, alignment = random_case(chance)
        expected = naive_affinity(state, request, alignment)
        assert chosen(state, request, alignment) == expected, (number, request, alignment)


def examined(state: HostState, request, policy=NumaPolicy.RESTRICTED) -> tuple[object, int]:
    """What a pod is aligned to, and how many combinations were tried for that."""
    allocator, tried = NumaAllocator(state, request), []

    def fits(nodes):
        tried.append(nodes)
        return allocator.fits(nodes)

    try:
        return choose_affinity(allocator, Alignment(policy), fits), len(tried)
    except PodRefused as refused:
        return refused.refusal.reasons, len(tried)


RULES = PickRules(downgrades=True, isolation_first=True)


@pytest.mark.parametrize("count", [13, 16, 32, 64])
def test_the_fewest_numa_nodes_of_many_are_found_by_few_trials(count):
    """Each NUMA node has four CPUs; one is full."""
    state = host(1, count, 2, 2, rules=RULES, holdings=[holding("0-3", numa0={"cpu": 4000, "memory": 4000})])
    for wanted in range(1, count):
        affinity, trials = examined(state, pod("FullPCPUs", cpu=4000 * wanted))
        assert affinity == tuple(range(1, wanted + 1))
        assert trials <= 4
    for policy in POLICIES:
        reasons, trials = examined(state, pod("FullPCPUs", cpu=4000 * count), policy)
        assert policy is NumaPolicy.BEST_EFFORT or reasons == ("Unsatisfied NUMA cpu",)
        assert trials <= 4


def fewest(capacity, cpu, memory):
    """How many NUMA nodes have so much together."""
    rows = [(row["cpu"], row["memory"]) for row in capacity.values()]
    return next(
        size
        for size in range(1, len(rows) + 1)
        for some in combinations(rows, size)
        if sum(each[0] for each in some) >= cpu and sum(each[1] for each in some) >= memory
    )


@pytest.mark.parametrize("count", [13, 16, 32, 64])
@pytest.mark.parametrize("fullest_first", [False, True])
def test_hosts_of_which_no_numa_nodes_are_alike_are_searched_as_far(count, fullest_first):
    """NUMA node 0 has the most of memory, the last one the most CPUs."""
    capacity = {numa: {"cpu": 1000 * (numa + 8), "memory": 2 * count - numa} for numa in range(count)}
    state = host(1, 1, 1, 1, capacity=capacity, rules=RULES._replace(fullest_first=fullest_first))
    for wanted in (1, count // 4, count // 2, count - 1):
        cpu = sum(capacity[numa]["cpu"] for numa in range(count - wanted, count))
        affinity, trials = examined(state, pod(cpu=cpu))
        assert affinity == tuple(range(count - wanted, count))
        assert trials <= 2 * MOST_EXAMINED
    cpu, memory = 4500 * count, count * count // 2
    affinity, trials = examined(state, pod(cpu=cpu, memory=memory))
    assert trials <= 2 * MOST_EXAMINED
    if count <= 16:
        assert len(affinity) == fewest(capacity, cpu, memory)


def test_a_refusal_on_a_host_of_many_numa_nodes_names_few_of_them():
    state = host(1, 16, 4, 2, rules=RULES, holdings=[holding("0", numa0={"cpu": 1000}), holding("40-41")])
    (reason,), _ = examined(state, pod("FullPCPUs", cpu=12_000), NumaPolicy.SINGLE_NUMA_NODE)
    assert reason.startswith("Unaligned NUMA Hint cause cpu prefer [11 0101 1001 ")
    assert " more] among [" in reason
    assert len(reason) < 1000


def test_numa_nodes_are_alike_only_where_their_cpus_are_used_alike():
    held = [holding("0"), holding("4"), holding("9", "PCPULevel")]
    state = host(1, 6, 2, 2, holdings=held)
    assert list(kinds_of(NumaAllocator(state, pod(cpu=1000))).values()) == [0, 0, 2, 3, 3, 3]


def test_every_combination_of_a_small_host_is_tried():
    state = host(1, 12, 1, 2)
    found = NumaCombinations(NumaAllocator(state, pod(cpu=1000)))
    for size in found.sizes:
        assert list(found.of_size(size)) == list(combinations(range(12), size))
