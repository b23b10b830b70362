"""Shared pools, scores, amplified CPUs, designated allocations."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.engine.numa.alignment import favour_idle
from placement.engine.numa.allocator import Allocation, allocate_designated
from placement.engine.numa.amounts import NumaAmounts
from placement.engine.numa.cpus import shared_pools
from placement.engine.numa.demand import PodRefused
from placement.engine.numa.host import HostTotals, NumaNeighbours, host_scorer, score_on_numa_nodes
from placement.engine.scoring.order import DEFAULT_SCORING, POD_SCORING, Order
from tests.unit.engine.numa.samples import cpus, holding, host, pod, shown, some_of, topologies


@given(topologies(), st.data())
def test_the_ls_pools_exclusive_cpus_and_withheld_cpus_are_all_cpus(drawn, data):
    exclusive, withheld = data.draw(some_of(drawn.cpus)), data.draw(some_of(drawn.cpus))
    pools = shared_pools(drawn, exclusive, withheld)
    pooled = [cpu for pool in pools for cpu in pool.cpus]
    assert len(pooled) == len(set(pooled))
    assert set(pooled) | exclusive | withheld == drawn.cpus
    assert not set(pooled) & (exclusive | withheld)


def test_idle_numa_nodes_draw_a_score_up():
    assert favour_idle(40, 0b11, NumaNeighbours(single=0b01)) == (40 + 50) // 2
    assert favour_idle(40, 0b11, NumaNeighbours()) == 70


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
