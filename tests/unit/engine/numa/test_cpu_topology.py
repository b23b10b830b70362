"""Derived numbers of a CPU topology, and what makes one unusable."""

from placement.engine.numa.cpus import CpuTopology, LogicalCpu, find_inconsistencies


def topology(*rows):
    return CpuTopology(tuple(LogicalCpu(*row) for row in rows))


def problems(*rows):
    return [tuple(found) for found in find_inconsistencies([LogicalCpu(*row) for row in rows])]


# Two sockets with two cores each; the siblings are four apart.
DISTANT = [(cpu, cpu % 4, cpu % 4 // 2, cpu % 4 // 2) for cpu in range(8)]


def test_core_numbers_may_repeat_from_socket_to_socket():
    assert list(topology((0, 0, 0, 0), (1, 0, 1, 1)).cores) == [(0, 0), (1, 0)]


def test_an_offline_sibling_lowers_the_threads_per_core_of_the_whole_host():
    assert topology(*DISTANT[:7]).threads_per_core == 1


def test_an_empty_topology_has_no_threads():
    empty = CpuTopology()
    assert (empty.threads_per_core, empty.cpus_per_numa_node, empty.cpus_per_socket) == (0, 0, 0)
    assert empty.cpus == frozenset()


def test_each_cpu_leads_to_its_row():
    assert topology(*DISTANT).by_cpu[6] == LogicalCpu(cpu=6, core=2, numa=1, socket=1)


def test_every_inconsistency_is_reported_in_row_order():
    assert [(row, field) for row, field, _ in problems((0, 0, 0, 0), (0, -1, 0, 1))] == [
        (1, "core"),
        (1, "cpu"),
        (1, "socket"),
    ]
