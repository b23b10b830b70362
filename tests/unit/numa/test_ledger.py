"""What pods hold on a host, and what that adds up to."""

from hypothesis import given
from hypothesis import strategies as st

from placement.numa.amounts import NumaAmounts
from placement.numa.layout import layout_of
from placement.numa.ledger import Holding, HostLedger, NumaNeighbours
from placement.numa.masks import mask_of
from placement.numa.policies import ExclusiveLevel
from tests.unit.numa.samples import holding, layout, some_of, topologies

SMALL = layout(2, 1, 4, 2)


@st.composite
def holdings(draw, cpus):
    amounts = draw(
        st.dictionaries(st.integers(0, 2), st.dictionaries(st.sampled_from("ab"), st.integers(1, 9)))
    )
    return Holding(draw(some_of(cpus)), draw(st.sampled_from(ExclusiveLevel)), NumaAmounts(amounts))


@st.composite
def ledgers(draw):
    topology = draw(topologies())
    ledger = HostLedger()
    for name in draw(st.lists(st.sampled_from("pqrstu"))):
        ledger = ledger.add(name, draw(holdings(topology.cpus)))
    return layout_of(topology), ledger


def facts(ledger, layout):
    return (
        list(ledger.holdings.items()),
        ledger.cpu_use(layout),
        ledger.amounts(),
        ledger.numa_neighbours(layout),
        ledger.unlendable_cpus(),
    )


@given(ledgers(), st.data())
def test_adding_and_releasing_a_pod_restores_the_state(drawn, data):
    layout, ledger = drawn
    before = facts(ledger, layout)
    added = ledger.add("new", data.draw(holdings(layout.topology.cpus)))
    assert facts(added.release("new"), layout) == before
    assert facts(ledger, layout) == before


@given(ledgers(), st.data())
def test_adding_a_recorded_pod_again_changes_nothing(drawn, data):
    layout, ledger = drawn
    for name in ledger.holdings:
        assert ledger.add(name, data.draw(holdings(layout.topology.cpus))) is ledger
    assert ledger.release("nobody") is ledger


def test_overlapping_pods_are_counted():
    ledger = HostLedger().add("p", holding("1-4", "PCPULevel")).add("q", holding("2-5", "PCPULevel"))
    use = ledger.cpu_use(SMALL)
    assert use.counts == (mask_of(range(1, 6)), mask_of(range(2, 5)))
    assert ledger.release("p").cpu_use(SMALL).counts == (mask_of(range(2, 6)),)


def test_the_level_of_a_shared_cpu_is_that_of_the_last_pod_that_is_still_there():
    ledger = HostLedger().add("p", holding("0", "PCPULevel")).add("q", holding("0", "NUMANodeLevel"))
    assert ledger.cpu_use(SMALL).numa_level == 1
    assert ledger.release("q").cpu_use(SMALL).pcpu_level == 1


def test_cpus_the_host_does_not_have_count_once_its_topology_arrives():
    ledger = HostLedger().add("p", holding("6-9"))
    assert ledger.cpu_use(layout(1, 1, 4, 2)).held == mask_of((6, 7))
    assert ledger.cpu_use(SMALL).held == mask_of((6, 7, 8, 9))


def test_numa_nodes_are_idle_single_or_shared():
    ledger = HostLedger().add("p", holding("0")).add("q", holding("8,16")).add("r", holding("17"))
    neighbours = ledger.add("unbound", holding(numa3={"cpu": 1000})).numa_neighbours(layout(4, 1, 4, 2))
    assert neighbours == NumaNeighbours(single=0b0001, shared=0b0110)


def test_amounts_add_up_by_numa_node():
    ledger = (
        HostLedger().add("p", holding(numa0={"cpu": 500, "memory": 7})).add("q", holding(numa0={"cpu": 250}))
    )
    assert dict(ledger.amounts()) == {0: {"cpu": 750, "memory": 7}}
