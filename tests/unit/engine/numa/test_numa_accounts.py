"""What NUMA nodes have left, and how a request is split over them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.engine.numa.allocator import NO_CREDIT, NumaAllocator, ReservedCredit, split_amount
from placement.engine.numa.amounts import NOTHING, NumaAmounts
from placement.engine.numa.cpus import layout_of
from placement.engine.numa.cpuset import mask_of
from placement.engine.numa.demand import Distribution, PodDemand, PodRefused
from placement.engine.numa.host import HostState, numa_used
from tests.unit.engine.numa.samples import cpus, holding, host, pod, problems, shown


def accounts(state, reusable=NOTHING):
    available = NumaAllocator(state, PodDemand({}), ReservedCredit(reusable=reusable)).available
    return numa_used(state, state.use, reusable), available


def test_bound_cpus_cost_it_also_where_nothing_is_accounted_for():
    used, _ = accounts(host(2, 1, 8, 2, holdings=[holding("0-2")], ratio="1.001"))
    assert used == {0: {"cpu": 3}}  # 3.003 CPUs cost more than 3: 3 millicores


def test_reusable_amounts_are_handed_back_but_never_more_than_is_used():
    state = host(1, 1, 2, 2, holdings=[holding(numa0={"cpu": 3000})])
    used, available = accounts(state, NumaAmounts({0: {"cpu": 5000, "memory": 10}, 7: {"cpu": 1}}))
    assert used == {0: {"cpu": 0}}
    assert available[0] == {"cpu": 4000, "memory": 4000}


def test_limits_bound_what_numa_nodes_give_of_the_resources_they_name():
    limited = ReservedCredit(limits=NumaAmounts({0: {"cpu": 1500}}))
    available = NumaAllocator(host(2, 1, 1, 2), pod(cpu=1000), limited).available
    assert available == {0: {"cpu": 1500, "memory": 2000}, 1: {"cpu": 0, "memory": 2000}}


@pytest.mark.parametrize(
    ("amount", "rooms", "grain", "shares"),
    [
        (5, {0: 16, 1: 16}, 1, {0: 2, 1: 3}),  # the last one takes the remainder
        (6000, {0: 8000, 1: 8000}, 2000, {0: 2000, 1: 4000}),  # three cores: one, then two
        (4, {0: 9, 1: 1}, 1, {1: 1, 0: 3}),  # the poorest first
        (4, {0: 2, 1: 2}, 1, {0: 2, 1: 2}),
        (4, {0: 0, 1: 9}, 1, {1: 4}),  # nothing is no share
        (5, {0: 2, 1: 2}, 1, {0: 2, 1: 2}),  # it does not fit
        (3000, {3: 9000, 1: 9000, 2: 8000}, 1000, {2: 1000, 1: 1000, 3: 1000}),
    ],
)
def test_each_numa_node_gives_an_equal_share_of_what_is_left(amount, rooms, grain, shares):
    assert split_amount(amount, rooms, tuple(rooms), grain) == shares


@given(st.dictionaries(st.integers(0, 7), st.integers(0, 20), min_size=1), st.integers(1, 90))
def test_what_there_is_room_for_can_always_be_split(rooms, amount):
    shares = split_amount(amount, rooms, tuple(rooms))
    assert sum(shares.values()) == min(amount, sum(rooms.values()))
    assert all(share <= rooms[numa] for numa, share in shares.items())


def test_a_strict_policy_is_verified_after_the_choice():
    with pytest.raises(PodRefused, match="insufficient CPUs to satisfy required cpu bind policy FullPCPUs"):
        NumaAllocator(host(2, 1, 2, 2), pod("FullPCPUs", strict=True, cpu=3000)).allocate(None)


def test_without_cpus_of_its_own_a_host_binds_nobody():
    with pytest.raises(PodRefused) as refused:
        NumaAllocator(
            HostState(layout_of(type(host(1, 1, 1, 1).layout.topology)())), pod("FullPCPUs")
        ).allocate(None)
    assert refused.value.refusal.status == "Error"


@settings(max_examples=200)
@given(problems(tuple(Distribution), (False, True)), st.booleans(), st.booleans(), st.data())
def test_counting_whether_a_pod_fits_agrees_with_allocating_it(problem, strict, bound, data):
    layout, asked = problem["layout"], problem["demand"]._replace(strict=strict)
    amounts = st.fixed_dictionaries(
        {"cpu": st.integers(0, 9).map(lambda n: n * 500), "memory": st.integers(0, 9)}
    )
    capacity = NumaAmounts({numa: data.draw(amounts) for numa in layout.numa_nodes})
    state = HostState(
        layout,
        use=problem["use"],
        capacity=capacity,
        unallocatable=layout.cpus & ~problem["available"],
        rules=problem["rules"],
    )
    requests = {"cpu": 1000 * asked.need, "memory": data.draw(st.integers(0, 9)), "other": 1}
    request = type(pod())(requests, asked if bound else None)
    credit = data.draw(
        st.sampled_from((NO_CREDIT, ReservedCredit(problem["preferred"], (problem["preferred"],))))
    )
    allocator = NumaAllocator(state, request, credit)
    numa_ids = sorted(capacity)
    affinity = tuple(sorted(data.draw(st.sets(st.sampled_from(numa_ids), min_size=1))))
    try:
        allocation = allocator.allocate(affinity)
    except PodRefused:
        assert not allocator.fits(affinity)
    else:
        assert allocator.fits(affinity)
        assert allocation.cpus.bit_count() == (asked.need if bound else 0)
        assert len(affinity) >= (allocator.fewest_numa_nodes if allocator.known_requests else 0)
        assert set(allocation.amounts) <= set(affinity)


def test_unallocatable_cpus_are_never_handed_out_not_even_out_of_a_reservation():
    state = host(1, 1, 4, 2, holdings=[holding("0-3")], unallocatable=cpus("0-1"))
    credit = ReservedCredit(cpus("0-3"), (cpus("0-3"),))
    allocation = NumaAllocator(state, pod("FullPCPUs", cpu=4000), credit).allocate(None)
    assert shown(allocation.cpus) == "2-5"
    assert mask_of((0, 1)) & allocation.cpus == 0
