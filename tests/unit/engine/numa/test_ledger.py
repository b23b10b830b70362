"""What pods hold on a host, and what that adds up to."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from placement.engine.numa.amounts import NumaAmounts
from placement.engine.numa.cpus import layout_of
from placement.engine.numa.cpuset import mask_of, members_of
from placement.engine.numa.demand import ExclusiveLevel
from placement.engine.numa.host import CpuUse, Holding, HostLedger, NumaNeighbours
from tests.unit.engine.numa.samples import holding, layout, some_of, topologies

SMALL = layout(2, 1, 4, 2)


@st.composite
def holdings(draw, cpus):
    amounts = draw(
        st.dictionaries(st.integers(0, 2), st.dictionaries(st.sampled_from("ab"), st.integers(1, 9)))
    )
    level = draw(st.sampled_from(ExclusiveLevel))
    return Holding(draw(some_of(cpus)), level, NumaAmounts(amounts), draw(st.booleans()))


@st.composite
def ledgers(draw):
    topology = draw(topologies())
    names = draw(st.lists(st.sampled_from("pqrstu"), unique=True))
    return layout_of(topology), HostLedger({name: draw(holdings(topology.cpus)) for name in names})


@given(ledgers())
def test_every_cpu_of_a_host_counts_once_for_each_pod_that_holds_it(drawn):
    layout, ledger = drawn
    use = ledger.cpu_use(layout)
    for cpu in layout.topology.cpus:
        holders = [held for held in ledger.holdings.values() if cpu in held.cpus]
        assert use.sum_of_counts(1 << cpu) == len(holders)
        assert (cpu in ledger.unlendable_cpus()) == any(not held.shares_with_best_effort for held in holders)


def test_the_level_of_a_shared_cpu_is_that_of_the_last_recorded_pod():
    first, last = holding("0", "PCPULevel"), holding("0", "NUMANodeLevel")
    assert HostLedger({"p": first, "q": last}).cpu_use(SMALL).numa_level == 1
    assert HostLedger({"p": last, "q": first}).cpu_use(SMALL).pcpu_level == 1


def test_cpus_the_host_does_not_have_count_once_its_topology_arrives():
    ledger = HostLedger({"p": holding("6-9")})
    assert ledger.cpu_use(layout(1, 1, 4, 2)).held == mask_of((6, 7))
    assert ledger.cpu_use(SMALL).held == mask_of((6, 7, 8, 9))


def test_numa_nodes_are_idle_single_or_shared():
    held = {"p": holding("0"), "q": holding("8,16"), "r": holding("17")}
    ledger = HostLedger({**held, "unbound": holding(numa3={"cpu": 1000})})
    assert ledger.numa_neighbours(layout(4, 1, 4, 2)) == NumaNeighbours(single=0b0001, shared=0b0110)


def test_amounts_add_up_by_numa_node():
    ledger = HostLedger({"p": holding(numa0={"cpu": 500, "memory": 7}), "q": holding(numa0={"cpu": 250})})
    assert dict(ledger.amounts()) == {0: {"cpu": 750, "memory": 7}}


SETS = st.lists(st.frozensets(st.integers(0, 12)), max_size=6)


@given(SETS, SETS)
def test_use_is_what_counting_one_by_one_gives_and_never_below_none(added, returned):
    tally, use = Counter(cpu for cpus in added for cpu in cpus), CpuUse()
    for cpus in added:
        use = use.plus(mask_of(cpus), ExclusiveLevel.PCPU_LEVEL)
    for limit in (1, 2, 3):
        assert set(members_of(use.saturated(limit))) == {
            cpu for cpu, count in tally.items() if count >= limit
        }
    for cpus in returned:
        tally.subtract({cpu: 1 for cpu in cpus if tally[cpu]})
    after = use.without(mask_of(cpus) for cpus in returned)
    assert {cpu: after.sum_of_counts(1 << cpu) for cpu in range(13)} == {cpu: tally[cpu] for cpu in range(13)}
    assert after.pcpu_level == after.held
    assert not after.counts or after.counts[-1]
