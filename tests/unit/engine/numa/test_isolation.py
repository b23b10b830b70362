"""What a pod prefers of its CPUs and does not get is counted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.engine.numa.cpus import layout_of
from placement.engine.numa.cpuset import mask_of, members_of
from placement.engine.numa.demand import BindPolicy, ExclusiveLevel
from placement.engine.numa.host import CpuPreference, CpuUse, HostState, missed
from tests.unit.engine.numa.samples import topology

FULL, SPREAD, NONE = BindPolicy.FULL_PCPUS, BindPolicy.SPREAD_BY_PCPUS, BindPolicy.NONE
PCPU, NUMA = ExclusiveLevel.PCPU_LEVEL, ExclusiveLevel.NUMA_NODE_LEVEL
# Two sockets with one NUMA node of four cores each, siblings adjacent: CPUs 0-7 and 8-15.
LAYOUT = layout_of(topology(2, 1, 4, 2))


def host(held=(), level=ExclusiveLevel.NONE):
    return HostState(LAYOUT, CpuUse().plus(mask_of(held), level))


@pytest.mark.parametrize(
    ("cpus", "wanted", "held", "level", "expected"),
    [
        ([1], PCPU, [0], PCPU, 2),
        ([1], PCPU, [0], NUMA, 0),  # neighbours of another level do not count
        ([2], PCPU, [0], PCPU, 0),
        ([8], NUMA, [0], NUMA, 0),
        ([2], NUMA, [0], NUMA, 1),  # stepped down to cores
        ([1], NUMA, [0], NUMA, 2),
        ([1], ExclusiveLevel.NONE, [0], NUMA, 0),
    ],
)
def test_exclusive_policies_are_met_stepped_down_or_missed(cpus, wanted, held, level, expected):
    assert missed(host(held, level), mask_of(cpus), CpuPreference(NONE, wanted)) == expected


@given(st.sets(st.integers(0, 15)), st.sets(st.integers(0, 15), min_size=1), st.sampled_from(BindPolicy))
def test_bind_policies_as_they_are_told(held, taken, bind):
    taken -= held
    cores = {cpu // 2 for cpu in taken}
    if bind is FULL:
        whole = all({2 * core, 2 * core + 1}.isdisjoint(held) for core in cores)
        is_met = whole and len(cores) <= (len(taken) + 1) // 2
    else:
        is_met = bind is NONE or len(cores) == len(taken)
    found = missed(host(held), mask_of(taken), CpuPreference(bind, ExclusiveLevel.NONE))
    assert found == (0 if is_met else 2)
    assert set(members_of(mask_of(taken))) == taken
