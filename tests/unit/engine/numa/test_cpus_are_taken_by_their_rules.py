"""CPUs are taken exactly as the rules of their profile name them, and what a pod misses is counted."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from placement.engine.numa.accumulator import even_shares, take_cpus
from placement.engine.numa.allocator import NumaAllocator
from placement.engine.numa.cpus import mask_of
from placement.engine.numa.host import (
    BindPolicy,
    CpuPreference,
    CpuUse,
    Distribution,
    ExclusiveLevel,
    HostState,
    PickRules,
    PodRefused,
    missed,
)
from tests.unit.engine.numa.naive_accumulator import naive_take
from tests.unit.engine.numa.samples import demand, host, layout, pod, problems, shown, use_of


@settings(max_examples=300)
@given(problems())
def test_it_agrees_with_the_rules_taken_word_by_word(problem):
    assert shown(take_cpus(**problem)) == shown(mask_of(naive_take(**problem)))


@settings(max_examples=150)
@given(problems(tuple(Distribution), (False, True)))
def test_it_takes_exactly_what_is_needed_of_what_is_available_and_always_the_same(problem):
    taken = take_cpus(**problem)
    assert taken.bit_count() == problem["demand"].need
    assert not taken & ~problem["available"]
    assert take_cpus(**problem) == taken


@given(problems(), st.integers(1, 3))
def test_more_than_is_available_is_refused(problem, more):
    problem["demand"] = problem["demand"]._replace(need=problem["available"].bit_count() + more)
    with pytest.raises(PodRefused, match="not enough cpus available to satisfy request"):
        take_cpus(**problem)


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


OVER_ALL = PickRules(distribution=Distribution.OVER_ALL)
OVER_NEEDED = PickRules(distribution=Distribution.OVER_NEEDED)
DESIGN, KOORD = PickRules(fullest_first=True, downgrades=True), PickRules(fullest_first=True)
TWO, FOUR = (2, 1, 4, 2), (1, 4, 2, 2)
FULL, SPREAD, PCPU, NUMA = "FullPCPUs", "SpreadByPCPUs", "PCPULevel", "NUMANodeLevel"


def taken(rules, need, bind, shape=TWO, in_use=(), exclusive="None"):
    place, use = layout(*shape), use_of(*in_use)
    asked = demand(need, bind, exclusive=exclusive)
    return shown(take_cpus(place, use, place.cpus & ~use.held, asked, rules))


# Three or five cores leave an odd one to the lower NUMA node, an odd thread goes where less is taken; one
# NUMA node holds 8. Of four, 1 and 3 have 8 left and the others 4. NUMA nodes with less room give what they
# have; broken cores are dealt where whole ones do not suffice, and clean NUMA nodes come first.
@pytest.mark.parametrize(
    ("asked", "cpus"),
    [
        ((OVER_ALL, 4, FULL), "0-1,8-9"),
        ((OVER_ALL, 4, SPREAD), "0,2,8,10"),
        ((OVER_ALL, 6, FULL), "0-3,8-9"),
        ((OVER_ALL, 7, FULL), "0-3,8-10"),
        ((OVER_ALL, 16, FULL), "0-15"),
        ((OVER_NEEDED, 8, FULL), "0-7"),
        ((OVER_NEEDED, 10, FULL), "0-5,8-11"),
        ((OVER_NEEDED, 12, FULL, (4, 1, 4, 2), ["0-3", "16-19"]), "8-13,24-29"),
        ((OVER_ALL, 8, SPREAD, (2, 1, 6, 2), ["0-7"]), "8,10,12,14,16,18,20,22"),
        ((OVER_ALL, 6, FULL, TWO, ["0,2,4,8,10,12"]), "1,6-7,9,14-15"),
        ((OVER_ALL, 4, SPREAD, TWO, [("0", NUMA)], NUMA), "8,10,12,14"),
    ],
)
def test_each_numa_node_is_dealt_its_share(asked, cpus):
    assert taken(*asked) == cpus


def test_a_socket_that_holds_exactly_the_rest_is_taken_whole():
    """The first socket has 8 CPUs, the second 4, the third 2: a smaller socket must not come before."""
    assert taken(KOORD, 12, FULL, (3, 1, 4, 2), ["8-11", "16-21"]) == "0-7,12-15"


def test_an_affinity_decides_the_numa_nodes_and_dealing_only_the_shares():
    request, even = pod(SPREAD, cpu=3000), host(*TWO, rules=OVER_ALL)
    packed = NumaAllocator(host(*TWO), request).allocate((0, 1))
    dealt = NumaAllocator(even, request).allocate((0, 1))
    assert dict(packed.amounts) == {0: {"cpu": 1000}, 1: {"cpu": 2000}}
    assert dict(dealt.amounts) == {0: {"cpu": 2000}, 1: {"cpu": 1000}}
    assert shown(NumaAllocator(even, request).allocate((1,)).cpus) == "8,10,12"


# Cores of exclusive pods are avoided, also of pods with PCPULevel; without clean cores nothing is; a clean
# NUMA node is taken under both profiles; what is too large for a NUMA node; PCPULevel is as it was.
@pytest.mark.parametrize(
    ("shape", "in_use", "need", "level", "design", "koord"),
    [
        (TWO, [("0,2,8", NUMA)], 2, NUMA, "4,6", "1,3"),
        (TWO, [("0,8", NUMA), ("2", PCPU), "4"], 2, NUMA, "5-6", "1,3"),
        (TWO, [("0,2,4,6,8,10,12,14", NUMA)], 2, NUMA, "1,3", "1,3"),
        (TWO, [("0", NUMA)], 4, NUMA, "8,10,12,14", "8,10,12,14"),
        (FOUR, [("0", NUMA)], 5, NUMA, "2,4,6,8,10", "1-2,4,6,8"),
        (TWO, [("0", PCPU), ("2", NUMA)], 2, PCPU, "3-4", "3-4"),
    ],
)
def test_cores_are_avoided_where_numa_nodes_cannot_be(shape, in_use, need, level, design, koord):
    assert taken(DESIGN, need, SPREAD, shape, in_use, level) == design
    assert taken(KOORD, need, SPREAD, shape, in_use, level) == koord


def missed_of(cpus, held, bind, wanted=ExclusiveLevel.NONE, level=ExclusiveLevel.NONE):
    """What a pod with these CPUs misses on two sockets of four cores, with siblings adjacent."""
    state = HostState(layout(*TWO), CpuUse().plus(mask_of(held), level))
    return missed(state, mask_of(cpus), CpuPreference(bind, wanted))


@pytest.mark.parametrize(
    ("cpu", "wanted", "level", "expected"),
    [
        (1, PCPU, PCPU, 2),
        (1, PCPU, NUMA, 0),  # neighbours of another level do not count
        (2, PCPU, PCPU, 0),
        (8, NUMA, NUMA, 0),
        (2, NUMA, NUMA, 1),  # stepped down to cores
        (1, NUMA, NUMA, 2),
        (1, "None", NUMA, 0),
    ],
)
def test_exclusive_policies_are_met_stepped_down_or_missed(cpu, wanted, level, expected):
    levels = ExclusiveLevel(wanted), ExclusiveLevel(level)
    assert missed_of([cpu], [0], BindPolicy.NONE, *levels) == expected


@given(st.sets(st.integers(0, 15)), st.sets(st.integers(0, 15), min_size=1), st.sampled_from(BindPolicy))
def test_bind_policies_are_met_or_missed(held, taken, bind):
    taken -= held
    cores = {cpu // 2 for cpu in taken}
    if bind is BindPolicy.FULL_PCPUS:
        whole = all({2 * core, 2 * core + 1}.isdisjoint(held) for core in cores)
        is_met = whole and len(cores) <= (len(taken) + 1) // 2
    else:
        is_met = bind is BindPolicy.NONE or len(cores) == len(taken)
    assert missed_of(taken, held, bind) == (0 if is_met else 2)
