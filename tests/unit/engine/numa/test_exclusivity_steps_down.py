"""Under `design` NUMANodeLevel without a clean NUMA node still keeps off exclusive neighbours' cores."""

import pytest

from placement.engine.numa.accumulator import take_cpus
from placement.engine.numa.demand import PickRules
from tests.unit.engine.numa.samples import demand, layout, shown, use_of

DESIGN, KOORD = PickRules(fullest_first=True, downgrades=True), PickRules(fullest_first=True)
BOTH_NUMA_NODES = [("0,2", "NUMANodeLevel"), ("8", "NUMANodeLevel")]


def taken(need, bind, rules, in_use, exclusive="NUMANodeLevel", shape=(2, 1, 4, 2)):
    place, use = layout(*shape), use_of(*in_use)
    asked = demand(need, bind, exclusive=exclusive)
    return shown(take_cpus(place, use, place.cpus & ~use.held, asked, rules))


def test_without_a_clean_numa_node_cores_of_exclusive_pods_are_avoided():
    assert taken(2, "SpreadByPCPUs", DESIGN, BOTH_NUMA_NODES) == "4,6"
    assert taken(2, "SpreadByPCPUs", KOORD, BOTH_NUMA_NODES) == "1,3"


def test_pcpulevel_neighbours_count_as_well_then():
    in_use = [("0", "NUMANodeLevel"), ("8", "NUMANodeLevel"), ("2", "PCPULevel"), "4"]
    assert taken(2, "SpreadByPCPUs", DESIGN, in_use) == "5-6"


def test_without_clean_cores_either_the_preference_is_dropped():
    in_use = [("0,2,4,6,8,10,12,14", "NUMANodeLevel")]
    assert taken(2, "SpreadByPCPUs", DESIGN, in_use) == taken(2, "SpreadByPCPUs", KOORD, in_use) == "1,3"


@pytest.mark.parametrize("bind", ["FullPCPUs", "SpreadByPCPUs"])
def test_a_clean_numa_node_is_taken_by_both_profiles(bind):
    in_use = [("0", "NUMANodeLevel")]
    assert taken(4, bind, DESIGN, in_use) == taken(4, bind, KOORD, in_use)


def test_what_is_too_large_for_a_numa_node_avoids_cores_as_well():
    shape, in_use = (1, 4, 2, 2), [("0", "NUMANodeLevel")]
    assert taken(5, "SpreadByPCPUs", DESIGN, in_use, shape=shape) == "2,4,6,8,10"
    assert taken(5, "SpreadByPCPUs", KOORD, in_use, shape=shape) == "1-2,4,6,8"


def test_pcpulevel_requesters_are_not_affected():
    in_use = [("0", "PCPULevel"), ("2", "NUMANodeLevel")]
    assert taken(2, "SpreadByPCPUs", DESIGN, in_use, "PCPULevel") == "3-4"
    assert taken(2, "SpreadByPCPUs", KOORD, in_use, "PCPULevel") == "3-4"
