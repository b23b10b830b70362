"""Where cores have different numbers of CPUs, a pod that requires whole cores gets whole cores."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.engine.numa.alignment import Alignment, choose_affinity
from placement.engine.numa.allocator import NumaAllocator
from placement.engine.numa.cpus import CpuTopology, LogicalCpu, layout_of, mask_of, members_of
from placement.engine.numa.host import (
    CpuUse,
    Distribution,
    HostState,
    NumaAmounts,
    NumaPolicy,
    PickRules,
    PodRefused,
)
from tests.unit.engine.numa.samples import pod, shown

FULL = "FullPCPUs"


def host_of(sizes, *, per_core=True, free=None, rules=None):
    """A host of these numbers of CPUs by core, by NUMA node; `free` are the CPUs that no pod has."""
    rows = []
    for numa, cores in enumerate(sizes):
        for size in cores:
            core = len({row.core for row in rows})
            rows += [LogicalCpu(len(rows) + thread, core, numa, numa) for thread in range(size)]
    layout = layout_of(CpuTopology(tuple(rows), per_core=per_core))
    use = CpuUse() if free is None else CpuUse().plus(layout.cpus & ~mask_of(free))
    capacity = {numa: {"cpu": 1000 * mask.bit_count()} for numa, mask in layout.numa_nodes.items()}
    return HostState(layout, use, NumaAmounts(capacity), rules=rules or PickRules(isolation_first=True))


def given_to(host, need, affinity=None, *, strict=True):
    """The CPUs of a pod that needs so many, none if it is refused."""
    request = pod(FULL, strict=strict, cpu=1000 * need)
    try:
        return NumaAllocator(host, request).allocate(affinity).cpus
    except PodRefused:
        return 0


def free_cores(host):
    free = host.free_cpus(host.use)
    return [core for core in host.layout.cores if not core & ~free]


def sums(cores):
    return {sum(map(int.bit_count, some)) for some in product(*((0, core) for core in cores))}


# Sixteen CPUs on eight cores, the last without its second thread.
OFFLINE = [[2, 2, 2, 2], [2, 2, 2, 1]]
# Four fast cores of two threads, eight slow ones of one.
HYBRID = [[2, 2, 2, 2, 1, 1, 1, 1, 1, 1, 1, 1]]


@pytest.mark.parametrize(
    ("sizes", "need", "cpus"),
    [
        (OFFLINE, 2, "0-1"),
        (OFFLINE, 4, "0-3"),
        (OFFLINE, 8, "0-7"),
        (OFFLINE, 14, "0-13"),
        (OFFLINE, 15, "0-14"),
        (OFFLINE, 3, "8-9,14"),
        (HYBRID, 4, "0-3"),
        (HYBRID, 9, "0-8"),
        (HYBRID, 16, "0-15"),
    ],
)
def test_whole_cores_are_given_where_one_thread_is_offline_or_cores_are_of_two_kinds(sizes, need, cpus):
    assert shown(given_to(host_of(sizes), need)) == cpus


def test_the_average_counts_under_the_profile_of_the_scheduler():
    host = host_of(OFFLINE, per_core=False)
    assert host.layout.threads == 1
    assert not given_to(host, 2)


def test_cores_that_cannot_have_that_many_cpus_are_named_before_any_is_looked_for():
    layout = host_of([[4, 3]]).layout
    assert [count for count in range(1, 8) if layout.can_be_whole(count)] == [3, 4, 7]
    assert layout.can_be_whole(9)  # there are too few, which is another reason


SIZES = st.lists(st.lists(st.integers(1, 3), min_size=1, max_size=4), min_size=1, max_size=3)


@settings(max_examples=300)
@given(SIZES, st.sampled_from(Distribution), st.booleans(), st.data())
def test_what_whole_cores_can_give_is_given_and_nothing_else(sizes, distribution, fullest_first, data):
    rules = PickRules(fullest_first=fullest_first, distribution=distribution, isolation_first=True)
    count = sum(map(sum, sizes))
    free = data.draw(st.sets(st.integers(0, count - 1)))
    host = host_of(sizes, free=free, rules=rules)
    need = data.draw(st.integers(1, count))
    possible = sums(free_cores(host))
    found = given_to(host, need)
    if host.layout.is_uneven or need % host.layout.threads == 0:
        assert bool(found) == (need in possible)
    if found:
        assert found.bit_count() == need
        assert found in {sum(some) for some in product(*((0, core) for core in free_cores(host)))}
    affinity = tuple(range(len(sizes)))
    if host.layout.is_uneven:
        aligned = given_to(host, need, affinity)
        assert aligned.bit_count() == (need if need in possible else 0)


@settings(max_examples=100)
@given(SIZES, st.booleans(), st.data())
def test_a_pod_is_aligned_where_it_can_be_allocated(sizes, strict, data):
    count = sum(map(sum, sizes))
    host = host_of(sizes, free=data.draw(st.sets(st.integers(0, count - 1))))
    request = pod(FULL, strict=strict, cpu=1000 * data.draw(st.integers(1, count)))
    allocator = NumaAllocator(host, request)
    try:
        affinity = choose_affinity(allocator, Alignment(NumaPolicy.RESTRICTED))
    except PodRefused:
        return
    taken = allocator.allocate(affinity).cpus
    assert taken.bit_count() == request.cpus.need
    assert not strict or host.layout.fills_cores(taken) or not host.layout.is_uneven
    assert {host.layout.topology.by_cpu[cpu].numa for cpu in members_of(taken)} <= set(affinity)


def test_a_numa_node_with_any_amount_of_cpu_gives_the_cores_that_it_has():
    host = host_of(OFFLINE)
    state = replace(host, capacity=NumaAmounts({0: {"cpu": 2**63 - 1}, 1: {"cpu": 2**63 - 1}}))
    assert given_to(state, 15, (0, 1)).bit_count() == 15
    assert not given_to(state, 2**50, (0, 1))


def test_a_preference_is_met_by_whole_cores_and_at_most_one_broken_one():
    host = host_of(OFFLINE)
    assert shown(given_to(host, 5, strict=False)) == "8-11,14"
