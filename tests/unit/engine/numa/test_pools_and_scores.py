"""Shared pools, scores, amplified CPUs, designated allocations."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.engine.numa.alignment import favour_idle
from placement.engine.numa.allocator import Allocation, allocate_designated
from placement.engine.numa.amounts import NumaAmounts, bound_cost, host_cpu_requested
from placement.engine.numa.cpus import SharedPool, shared_pools, trimmed
from placement.engine.numa.demand import PodRefused
from placement.engine.numa.host import HostTotals, NumaNeighbours, host_scorer, score_on_numa_nodes
from placement.engine.scoring.order import DEFAULT_SCORING, POD_SCORING, Order, Strategy, score_host
from placement.engine.scoring.rule import Weighted
from tests.unit.engine.numa.samples import cpus, holding, host, pod, shown, some_of, topologies, topology


@given(topologies(), st.data())
def test_the_ls_pools_exclusive_cpus_and_withheld_cpus_are_all_cpus(drawn, data):
    exclusive, withheld = data.draw(some_of(drawn.cpus)), data.draw(some_of(drawn.cpus))
    pools = shared_pools(drawn, exclusive, withheld)
    pooled = [cpu for pool in pools for cpu in pool.cpus]
    assert len(pooled) == len(set(pooled))
    assert set(pooled) | exclusive | withheld == drawn.cpus
    assert not set(pooled) & (exclusive | withheld)


def test_pools_that_are_empty_before_cpus_are_withheld_are_left_out():
    pools = shared_pools(topology(2, 1, 2, 2), frozenset(range(4)), frozenset(range(4, 8)))
    assert pools == (SharedPool(1, 1, frozenset()),)
    assert trimmed([SharedPool(0, 0, frozenset({1, 2}))], frozenset({2})) == (
        SharedPool(0, 0, frozenset({1})),
    )


@pytest.mark.parametrize(
    ("kind", "requested", "asked", "points"),
    [
        ("LeastAllocated", {"cpu": 2000, "memory": 4}, {"cpu": 2000, "memory": 1}, (60 + 50) // 2),
        ("MostAllocated", {"cpu": 2000, "memory": 4}, {"cpu": 2000, "memory": 1}, (40 + 50) // 2),
        ("LeastAllocated", {"cpu": 9000}, {"cpu": 2000}, (0 + 100) // 2),
        ("MostAllocated", {"cpu": 9000}, {"cpu": 2000}, (100 + 0) // 2),
    ],
)
def test_scores_are_weighed_shares(kind, requested, asked, points):
    capacity = {"cpu": 10000, "memory": 10}
    assert score_host(replace(DEFAULT_SCORING, type=kind), requested, capacity, asked) == points


def test_only_requested_extended_resources_and_known_ones_count():
    scoring = Strategy("LeastAllocated", (Weighted("cpu", 1), Weighted("gpu", 3), Weighted("nic", 5)))
    capacity = {"cpu": 10, "gpu": 10}
    assert score_host(scoring, {}, capacity, {"cpu": 5}) == 50
    assert score_host(scoring, {}, capacity, {"cpu": 5, "gpu": 1}) == (50 + 3 * 90) // 4
    assert score_host(scoring, {}, capacity, {"nic": 1}) == 100
    assert score_host(scoring, {}, {}, {"cpu": 1}) == 0


def test_idle_numa_nodes_draw_a_score_up():
    assert favour_idle(40, 0b11, NumaNeighbours(single=0b01)) == (40 + 50) // 2
    assert favour_idle(40, 0b11, NumaNeighbours()) == 70


def test_bound_cpus_cost_the_ratio_rounded_up():
    assert bound_cost(3000, Fraction(3, 2)) == 4500
    assert bound_cost(1, Fraction(3, 2)) == 2
    assert host_cpu_requested(20000, 8, Fraction(2)) == 28000
    assert host_cpu_requested(7000, 8, Fraction(2)) == 7000
    assert host_cpu_requested(20000, 0, Fraction(2)) == 20000


def test_a_pod_without_numa_policy_is_scored_by_the_whole_host():
    state = host(2, 1, 8, 2, holdings=[holding("0-19")], ratio=2)
    totals = HostTotals({"cpu": 128000, "memory": 60}, {"cpu": 20000, "memory": 4})
    assert host_scorer(state, pod("", cpu=8000, memory=16), POD_SCORING)(totals) == (56 + 66) // 2
    assert host_scorer(state, pod(cpu=8000, memory=16), POD_SCORING)(totals) == (62 + 66) // 2


def test_a_bound_pod_with_numa_policy_but_no_numa_nodes_sees_only_bound_cpus_as_used():
    state = host(1, 1, 8, 2, holdings=[holding("0-3")])
    totals = HostTotals({"cpu": 16000, "memory": 60}, {"cpu": 15000, "memory": 30})
    score = host_scorer(state, pod("", cpu=4000, memory=0), POD_SCORING, is_aligned=True)
    assert score(totals) == (50 + 50) // 2


def test_a_pod_with_numa_policy_is_scored_by_its_numa_nodes_but_by_all_bound_cpus():
    state = host(2, 1, 8, 2, holdings=[holding("0-3", numa0={"cpu": 4000, "memory": 8000})])
    scoring = Order((replace(DEFAULT_SCORING, type="MostAllocated"),))
    assert score_on_numa_nodes(state, pod("", cpu=4000, memory=4000), scoring, (1,)) == (50 + 25) // 2
    assert score_on_numa_nodes(state, pod(cpu=4000, memory=4000), scoring, (1,)) == (25 + 25) // 2
    assert score_on_numa_nodes(state, pod(cpu=4000, memory=4000), scoring, (0,)) == (50 + 75) // 2


def test_a_designated_list_has_to_be_what_the_pod_would_get():
    state, request = host(2, 1, 4, 2, holdings=[holding("8-11")]), pod("FullPCPUs", strict=True, cpu=4000)
    assert shown(allocate_designated(state, request, Allocation(cpus("12-15"))).cpus) == "12-15"
    for listed in ("8-11", "20-23", "12-14", "13-15,7"):
        with pytest.raises(PodRefused):
            allocate_designated(state, request, Allocation(cpus(listed)))


def test_designated_amounts_stand_in_for_what_is_available():
    state = host(2, 1, 4, 2, holdings=[holding(numa1={"cpu": 8000})])
    designated = Allocation(cpus("8-9"), NumaAmounts({1: {"cpu": 2000}}))
    allocation = allocate_designated(state, pod("FullPCPUs", cpu=2000, memory=5), designated)
    assert (shown(allocation.cpus), dict(allocation.amounts)) == ("8-9", {1: {"cpu": 2000}})
    with pytest.raises(PodRefused, match="Insufficient NUMA cpu"):
        allocate_designated(state, pod("FullPCPUs", cpu=3000), designated)
