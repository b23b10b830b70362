"""CPUs dealt evenly over NUMA nodes, which only the profile `design` knows."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from placement.engine.numa.accumulator import even_shares, take_cpus
from placement.engine.numa.allocator import NumaAllocator
from placement.engine.numa.demand import Distribution, PickRules
from tests.unit.engine.numa.samples import demand, host, layout, pod, shown, use_of

OVER_ALL = PickRules(distribution=Distribution.OVER_ALL)
OVER_NEEDED = PickRules(distribution=Distribution.OVER_NEEDED)


def taken(need, bind, rules, shape=(2, 1, 4, 2), in_use=(), exclusive="None"):
    place, use = layout(*shape), use_of(*in_use)
    asked = demand(need, bind, exclusive=exclusive)
    return shown(take_cpus(place, use, place.cpus & ~use.held, asked, rules))


@pytest.mark.parametrize(
    ("rules", "need", "bind", "cpus"),
    [
        (OVER_ALL, 4, "FullPCPUs", "0-1,8-9"),
        (OVER_ALL, 4, "SpreadByPCPUs", "0,2,8,10"),
        (OVER_ALL, 6, "FullPCPUs", "0-3,8-9"),  # three cores, the odd one to the lower NUMA node
        (OVER_ALL, 7, "FullPCPUs", "0-3,8-10"),  # the odd thread where less is taken
        (OVER_ALL, 16, "FullPCPUs", "0-15"),
        (OVER_NEEDED, 8, "FullPCPUs", "0-7"),  # one NUMA node can hold it
        (OVER_NEEDED, 10, "FullPCPUs", "0-5,8-11"),  # five cores: three on the lower NUMA node
    ],
)
def test_each_numa_node_is_dealt_its_share(rules, need, bind, cpus):
    assert taken(need, bind, rules) == cpus


def test_as_few_numa_nodes_as_can_hold_the_request_take_part():
    # NUMA nodes 1 and 3 have 8 CPUs left, the others 4.
    assert taken(12, "FullPCPUs", OVER_NEEDED, (4, 1, 4, 2), ["0-3", "16-19"]) == "8-13,24-29"


def test_numa_nodes_with_less_room_give_what_they_have():
    assert taken(8, "SpreadByPCPUs", OVER_ALL, (2, 1, 6, 2), ["0-7"]) == "8,10,12,14,16,18,20,22"


def test_broken_cores_are_dealt_when_whole_ones_do_not_suffice():
    # A core is left on each NUMA node, and single threads.
    assert taken(6, "FullPCPUs", OVER_ALL, in_use=["0,2,4,8,10,12"]) == "1,6-7,9,14-15"


def test_clean_numa_nodes_are_dealt_first():
    in_use = [("0", "NUMANodeLevel")]
    assert taken(4, "SpreadByPCPUs", OVER_ALL, in_use=in_use, exclusive="NUMANodeLevel") == "8,10,12,14"


def test_an_affinity_decides_the_numa_nodes_and_dealing_only_the_shares():
    request = pod("SpreadByPCPUs", cpu=3000)
    packed = NumaAllocator(host(2, 1, 4, 2), request).allocate((0, 1))
    dealt = NumaAllocator(host(2, 1, 4, 2, rules=OVER_ALL), request).allocate((0, 1))
    assert dict(packed.amounts) == {0: {"cpu": 1000}, 1: {"cpu": 2000}}
    assert dict(dealt.amounts) == {0: {"cpu": 2000}, 1: {"cpu": 1000}}
    assert shown(NumaAllocator(host(2, 1, 4, 2, rules=OVER_ALL), request).allocate((1,)).cpus) == "8,10,12"


@given(st.lists(st.integers(0, 9), min_size=1, max_size=5), st.data())
def test_shares_are_as_even_as_rooms_allow(rooms, data):
    units = data.draw(st.integers(0, sum(rooms)))
    shares = even_shares(rooms, units)
    assert sum(shares) == units
    assert all(share <= room for share, room in zip(shares, rooms, strict=True))
    with_room = [share for share, room in zip(shares, rooms, strict=True) if share < room]
    # Nobody who could take more has fewer than anybody else, except for remainders, which go to the first.
    assert max(shares) <= min(with_room, default=max(shares)) + 1
    assert with_room == sorted(with_room, reverse=True)
