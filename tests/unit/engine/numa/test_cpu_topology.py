"""Derived numbers of a CPU topology, and what makes one unusable."""

import pytest

from placement.engine.numa.cpus import CpuTopology, LogicalCpu, find_inconsistencies


def topology(*rows):
    return CpuTopology(tuple(LogicalCpu(*row) for row in rows))


def problems(*rows):
    return [tuple(found) for found in find_inconsistencies([LogicalCpu(*row) for row in rows])]


# Two sockets with two cores each; the siblings are four apart.
DISTANT = [(cpu, cpu % 4, cpu % 4 // 2, cpu % 4 // 2) for cpu in range(8)]


def test_siblings_may_be_distant():
    host = topology(*DISTANT)
    assert host.cores == {(0, 0): (0, 4), (0, 1): (1, 5), (1, 2): (2, 6), (1, 3): (3, 7)}
    assert (host.threads_per_core, host.cpus_per_numa_node, host.cpus_per_socket) == (2, 4, 4)


def test_a_socket_may_have_several_numa_nodes():
    host = topology(*[(cpu, cpu, cpu // 2, cpu // 4) for cpu in range(8)])
    assert list(host.numa_nodes) == [0, 1, 2, 3]
    assert host.sockets == {0: (0, 1, 2, 3), 1: (4, 5, 6, 7)}


def test_core_numbers_may_repeat_from_socket_to_socket():
    assert list(topology((0, 0, 0, 0), (1, 0, 1, 1)).cores) == [(0, 0), (1, 0)]


def test_an_offline_sibling_lowers_the_threads_per_core_of_the_whole_host():
    assert topology(*DISTANT[:7]).threads_per_core == 1


def test_an_empty_topology_has_no_threads():
    empty = CpuTopology()
    assert (empty.threads_per_core, empty.cpus_per_numa_node, empty.cpus_per_socket) == (0, 0, 0)
    assert empty.cpus == frozenset()


def test_the_order_of_the_rows_does_not_matter():
    assert topology(*DISTANT) == topology(*reversed(DISTANT))


def test_each_cpu_leads_to_its_row():
    assert topology(*DISTANT).by_cpu[6] == LogicalCpu(cpu=6, core=2, numa=1, socket=1)


def test_a_good_topology_has_no_inconsistencies():
    assert problems(*DISTANT) == []


@pytest.mark.parametrize(
    ("rows", "found"),
    [
        ([(-1, 0, 0, 0)], (0, "cpu", "-1 is negative")),
        ([(0, 0, 0, -2)], (0, "socket", "-2 is negative")),
        ([(4097, 0, 0, 0)], (0, "cpu", "4097 is above 4096")),
        ([(0, 5000, 0, 0)], (0, "core", "5000 is above 4096")),
        ([(3, 0, 0, 0), (3, 1, 0, 0)], (1, "cpu", "CPU 3 is listed twice")),
        ([(0, 0, 0, 0), (1, 0, 1, 0)], (1, "numa", "core 0 of socket 0 lies in NUMA nodes 0 and 1")),
        ([(0, 0, 0, 0), (1, 1, 0, 1)], (1, "socket", "NUMA node 0 lies in sockets 0 and 1")),
    ],
)
def test_an_inconsistency_names_the_row_and_the_field(rows, found):
    assert problems(*rows) == [found]


def test_more_than_64_numa_nodes_are_refused_once():
    assert problems(*[(n, n, n, 0) for n in range(64)]) == []
    assert problems(*[(n, n, n, 0) for n in range(70)]) == [(64, "numa", "there are more than 64 NUMA nodes")]


def test_every_inconsistency_is_reported_in_row_order():
    assert [(row, field) for row, field, _ in problems((0, 0, 0, 0), (0, -1, 0, 1))] == [
        (1, "core"),
        (1, "cpu"),
        (1, "socket"),
    ]
