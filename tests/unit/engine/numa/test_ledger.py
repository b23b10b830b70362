"""What pods hold on a host, what NUMA nodes have left, and how a request is split over them and scored."""

from collections import Counter
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.engine.domain.units import LARGEST_AMOUNT
from placement.engine.numa.alignment import favour_idle
from placement.engine.numa.allocator import (
    NO_CREDIT,
    Allocation,
    NumaAllocator,
    ReservedCredit,
    allocate_designated,
    split_amount,
)
from placement.engine.numa.cpus import layout_of, mask_of, members_of, shared_pools
from placement.engine.numa.host import (
    NOTHING,
    CpuUse,
    Distribution,
    ExclusiveLevel,
    Holding,
    HostLedger,
    HostState,
    HostTotals,
    NumaAmounts,
    NumaNeighbours,
    PodDemand,
    PodRefused,
    amplified,
    bound_cost,
    host_scorer,
    numa_used,
)
from placement.engine.scoring.order import POD_SCORING
from tests.unit.engine.numa.samples import (
    cpus,
    holding,
    host,
    layout,
    pod,
    problems,
    shown,
    some_of,
    topologies,
)

SMALL = layout(2, 1, 4, 2)
AMOUNTS = st.dictionaries(st.integers(0, 2), st.dictionaries(st.sampled_from("ab"), st.integers(1, 9)))


@given(topologies(), st.data())
def test_every_cpu_and_amount_of_a_host_counts_once_for_each_pod_that_holds_it(topology, data):
    levels, amounts = st.sampled_from(ExclusiveLevel), AMOUNTS.map(NumaAmounts)
    held_by_pods = st.builds(Holding, some_of(topology.cpus), levels, amounts, st.booleans())
    ledger = HostLedger(data.draw(st.dictionaries(st.sampled_from("pqrstu"), held_by_pods)))
    sums = Counter()
    for held in ledger.holdings.values():
        sums.update({(n, name): amount for n, row in held.amounts.items() for name, amount in row.items()})
    assert {(n, name): amount for n, row in ledger.amounts().items() for name, amount in row.items()} == sums
    use = ledger.cpu_use(layout_of(topology))
    for cpu in topology.cpus:
        holders = [held for held in ledger.holdings.values() if cpu in held.cpus]
        assert use.sum_of_counts(1 << cpu) == len(holders)
        assert (cpu in ledger.unlendable_cpus()) == any(not held.shares_with_best_effort for held in holders)


def test_cpus_count_once_the_host_has_them_and_the_last_pod_says_their_level():
    ledger = HostLedger({"p": holding("6-9")})
    assert ledger.cpu_use(layout(1, 1, 4, 2)).held == mask_of((6, 7))
    assert ledger.cpu_use(SMALL).held == mask_of((6, 7, 8, 9))
    first, last = holding("0", "PCPULevel"), holding("0", "NUMANodeLevel")
    assert HostLedger({"p": first, "q": last}).cpu_use(SMALL).numa_level == 1
    assert HostLedger({"p": last, "q": first}).cpu_use(SMALL).pcpu_level == 1


def test_numa_nodes_are_idle_single_or_shared_and_idle_ones_draw_a_score_up():
    held = {"p": holding("0"), "q": holding("8,16"), "r": holding("17")}
    ledger = HostLedger({**held, "unbound": holding(numa3={"cpu": 1000})})
    assert ledger.numa_neighbours(layout(4, 1, 4, 2)) == NumaNeighbours(single=0b0001, shared=0b0110)
    assert favour_idle(40, 0b11, NumaNeighbours(single=0b01)) == (40 + 50) // 2
    assert favour_idle(40, 0b11, NumaNeighbours()) == 70


SETS = st.lists(st.frozensets(st.integers(0, 12)), max_size=6)


@given(SETS, SETS)
def test_use_is_what_counting_one_by_one_gives_and_never_below_none(added, returned):
    tally, use = Counter(cpu for held in added for cpu in held), CpuUse()
    for held in added:
        use = use.plus(mask_of(held), ExclusiveLevel.PCPU_LEVEL)
    for limit in (1, 2, 3):
        assert {*members_of(use.saturated(limit))} == {cpu for cpu, held in tally.items() if held >= limit}
    for held in returned:
        tally.subtract({cpu: 1 for cpu in held if tally[cpu]})
    after = use.without(mask_of(held) for held in returned)
    assert {cpu: after.sum_of_counts(1 << cpu) for cpu in range(13)} == {cpu: tally[cpu] for cpu in range(13)}
    assert after.pcpu_level == after.held
    assert not after.counts or after.counts[-1]


def test_amplified_amounts_stay_within_64_bits():
    ratio = Fraction(4)
    assert amplified({"memory": LARGEST_AMOUNT // 2, "cpu": 3}, {"memory": ratio}) == {
        "memory": LARGEST_AMOUNT,
        "cpu": 3,
    }
    assert bound_cost(LARGEST_AMOUNT // 2, ratio) == LARGEST_AMOUNT


def test_bound_cpus_cost_their_ratio_and_reusable_amounts_are_handed_back():
    advertised = host(2, 1, 8, 2, holdings=[holding("0-2")], ratio="1.001")
    # 3.003 CPUs cost 3 millicores more than 3.
    assert numa_used(advertised, advertised.use, NOTHING) == {0: {"cpu": 3}}
    state = host(1, 1, 2, 2, holdings=[holding(numa0={"cpu": 3000})])
    reusable = NumaAmounts({0: {"cpu": 5000, "memory": 10}, 7: {"cpu": 1}})
    available = NumaAllocator(state, PodDemand({}), ReservedCredit(reusable_amounts=reusable)).available
    assert numa_used(state, state.use, reusable) == {0: {"cpu": 0}}
    assert available[0] == {"cpu": 4000, "memory": 4000}


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


@settings(max_examples=200)
@given(problems(tuple(Distribution), (False, True)), st.booleans(), st.booleans(), st.data())
def test_counting_whether_a_pod_fits_agrees_with_allocating_it(problem, strict, bound, data):
    layout, asked = problem["layout"], problem["demand"]._replace(strict=strict)
    halves = st.integers(0, 9).map(lambda n: n * 500)
    amounts = st.fixed_dictionaries({"cpu": halves, "memory": st.integers(0, 9)})
    capacity = NumaAmounts({numa: data.draw(amounts) for numa in layout.numa_nodes})
    state = HostState(
        layout,
        use=problem["use"],
        capacity=capacity,
        unallocatable=layout.cpus & ~problem["available"],
        rules=problem["rules"],
    )
    requests = {"cpu": 1000 * asked.need, "memory": data.draw(st.integers(0, 9)), "other": 1}
    request = PodDemand(requests, asked if bound else None)
    reserved = ReservedCredit(problem["preferred"], (problem["preferred"],))
    allocator = NumaAllocator(state, request, data.draw(st.sampled_from((NO_CREDIT, reserved))))
    affinity = tuple(sorted(data.draw(st.sets(st.sampled_from(sorted(capacity)), min_size=1))))
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


@given(topologies(), st.data())
def test_the_ls_pools_exclusive_cpus_and_withheld_cpus_are_all_cpus(drawn, data):
    exclusive, withheld = data.draw(some_of(drawn.cpus)), data.draw(some_of(drawn.cpus))
    pools = shared_pools(drawn, exclusive, withheld)
    pooled = [cpu for pool in pools for cpu in pool.cpus]
    assert len(pooled) == len(set(pooled))
    assert set(pooled) | exclusive | withheld == drawn.cpus
    assert not set(pooled) & (exclusive | withheld)


def test_a_bound_pod_with_a_numa_policy_but_no_numa_nodes_sees_only_bound_cpus_as_used():
    state = host(1, 1, 8, 2, holdings=[holding("0-3")])
    totals = HostTotals({"cpu": 16000, "memory": 60}, {"cpu": 15000, "memory": 30})
    score = host_scorer(state, pod("", cpu=4000, memory=0), POD_SCORING, is_aligned=True)
    assert score(totals) == (50 + 50) // 2


def test_designated_amounts_stand_in_for_what_is_available():
    state = host(2, 1, 4, 2, holdings=[holding(numa1={"cpu": 8000})])
    designated = Allocation(cpus("8-9"), NumaAmounts({1: {"cpu": 2000}}))
    allocation = allocate_designated(state, pod("FullPCPUs", cpu=2000, memory=5), designated)
    assert (shown(allocation.cpus), dict(allocation.amounts)) == ("8-9", {1: {"cpu": 2000}})
    with pytest.raises(PodRefused, match="Insufficient NUMA cpu"):
        allocate_designated(state, pod("FullPCPUs", cpu=3000), designated)
