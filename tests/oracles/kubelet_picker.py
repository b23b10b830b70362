"""How kubelet itself chooses CPUs on an empty host."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from placement.engine.numa.cpus import CpuSet, CpuTopology


def pick_like_kubelet(topology: CpuTopology, count: int) -> CpuSet:
    """That many logical CPUs of an empty host; none if it has fewer.

    Whole sockets and NUMA nodes come first, the larger before the smaller, then whole cores, then single
    threads; each time from the fullest places, low ids first.
    """
    if count > len(topology.logical_cpus):
        return frozenset()
    taken: set[int] = set()
    for places in (*_large_places(topology), topology.cores.values()):
        for cpus in _fullest_first(topology, places, taken):
            if taken.isdisjoint(cpus) and len(cpus) <= count - len(taken):
                taken.update(cpus)
    for cpus in _fullest_first(topology, topology.cores.values(), taken):
        taken.update([cpu for cpu in cpus if cpu not in taken][: count - len(taken)])
    return frozenset(taken)


def _large_places(topology: CpuTopology) -> list[Collection[tuple[int, ...]]]:
    return sorted((topology.sockets.values(), topology.numa_nodes.values()), key=len)


def _fullest_first(
    topology: CpuTopology, places: Iterable[tuple[int, ...]], taken: set[int]
) -> list[tuple[int, ...]]:
    """The places by the free CPUs of their socket, of their NUMA node and of their own, then by ids."""

    def free(cpus: Iterable[int]) -> int:
        return sum(cpu not in taken for cpu in cpus)

    def key(cpus: tuple[int, ...]) -> tuple[int, ...]:
        row = topology.by_cpu[cpus[0]]
        on_socket, on_numa = free(topology.sockets[row.socket]), free(topology.numa_nodes[row.numa])
        return on_socket, row.socket, on_numa, row.numa, free(cpus)

    return sorted(places, key=key)
