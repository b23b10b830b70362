"""Under `design` NUMANodeLevel without a clean NUMA node still keeps off exclusive neighbours' cores."""

import pytest

from placement.engine.numa.accumulator import take_cpus
from placement.engine.numa.demand import PickRules
from tests.unit.engine.numa.samples import demand, layout, shown, use_of

DESIGN, KOORD = PickRules(fullest_first=True, downgrades=True), PickRules(fullest_first=True)
TWO_NUMA_NODES, FOUR_NUMA_NODES = (2, 1, 4, 2), (1, 4, 2, 2)


@pytest.mark.parametrize(
    ("shape", "in_use", "need", "level", "design", "koord"),
    [
        (TWO_NUMA_NODES, [("0,2,8", "NUMANodeLevel")], 2, "NUMANodeLevel", "4,6", "1,3"),
        (
            TWO_NUMA_NODES,
            [("0,8", "NUMANodeLevel"), ("2", "PCPULevel"), "4"],
            2,
            "NUMANodeLevel",
            "5-6",
            "1,3",
        ),
        (TWO_NUMA_NODES, [("0,2,4,6,8,10,12,14", "NUMANodeLevel")], 2, "NUMANodeLevel", "1,3", "1,3"),
        (TWO_NUMA_NODES, [("0", "NUMANodeLevel")], 4, "NUMANodeLevel", "8,10,12,14", "8,10,12,14"),
        (FOUR_NUMA_NODES, [("0", "NUMANodeLevel")], 5, "NUMANodeLevel", "2,4,6,8,10", "1-2,4,6,8"),
        (TWO_NUMA_NODES, [("0", "PCPULevel"), ("2", "NUMANodeLevel")], 2, "PCPULevel", "3-4", "3-4"),
    ],
    ids=[
        "cores of exclusive pods are avoided",
        "those of pods with PCPULevel as well",
        "without clean cores either",
        "a clean NUMA node is taken by both",
        "too large for a NUMA node",
        "PCPULevel is not affected",
    ],
)
def test_cores_are_avoided_where_numa_nodes_cannot_be(shape, in_use, need, level, design, koord):
    place, use = layout(*shape), use_of(*in_use)
    asked = demand(need, "SpreadByPCPUs", exclusive=level)
    chosen = [shown(take_cpus(place, use, place.cpus & ~use.held, asked, rules)) for rules in (DESIGN, KOORD)]
    assert chosen == [design, koord]
