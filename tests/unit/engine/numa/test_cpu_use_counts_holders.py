"""How often CPUs are held, kept as masks, is what counting one by one gives."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from placement.engine.numa.cpus import layout_of
from placement.engine.numa.cpuset import lowest_bits, mask_of, members_of
from placement.engine.numa.demand import ExclusiveLevel
from placement.engine.numa.host import CpuUse
from tests.unit.engine.numa.samples import topologies, use_of

SETS = st.lists(st.frozensets(st.integers(0, 12)), max_size=6)


def counts(use):
    return {cpu: use.sum_of_counts(1 << cpu) for cpu in range(13)}


def counted(added, returned=()):
    tally = Counter(cpu for cpus in added for cpu in cpus)
    for cpus in returned:
        tally.subtract({cpu: 1 for cpu in cpus if tally[cpu]})
    return {cpu: tally[cpu] for cpu in range(13)}


@given(SETS)
def test_adding_counts_every_holder(added):
    use = CpuUse()
    for cpus in added:
        use = use.plus(mask_of(cpus))
    assert counts(use) == counted(added)
    for limit in (1, 2, 3):
        assert set(members_of(use.saturated(limit))) == {cpu for cpu, n in counts(use).items() if n >= limit}


@given(SETS, SETS)
def test_returning_takes_one_off_each_set_and_never_below_none(added, returned):
    use = CpuUse()
    for cpus in added:
        use = use.plus(mask_of(cpus), ExclusiveLevel.PCPU_LEVEL)
    after = use.without(mask_of(cpus) for cpus in returned)
    assert counts(after) == counted(added, returned)
    assert after.pcpu_level == after.held
    assert not after.counts or after.counts[-1]


def test_the_level_is_that_of_the_pod_added_last():
    use = use_of(("0-3", "PCPULevel"), ("1", "NUMANodeLevel"), "2")
    assert set(members_of(use.pcpu_level)) == {0, 3}
    assert set(members_of(use.numa_level)) == {1}


@given(st.integers(0, 2**20), st.integers(0, 24))
def test_the_lowest_bits_of_a_mask(mask, count):
    assert list(members_of(lowest_bits(mask, count))) == list(members_of(mask))[:count]


@given(topologies())
def test_places_of_a_layout_are_disjoint_and_complete(topology):
    layout = layout_of(topology)
    for places in (layout.cores, layout.numa_nodes.values(), layout.sockets.values()):
        assert sum(place.bit_count() for place in places) == layout.cpus.bit_count()
        assert sum(places) == layout.cpus
    assert sum(map(len, layout.cores_of_numa.values())) == len(layout.cores)
    assert sum(map(len, layout.cores_of_socket.values())) == len(layout.cores)


@given(topologies())
def test_hosts_built_alike_share_a_layout(topology):
    again = type(topology)(tuple(reversed(topology.rows)))
    assert layout_of(again) is layout_of(topology)
    assert type(layout_of(again))(again) == layout_of(topology)
