"""A CPU topology as bit masks, in the forms that the choice of CPUs needs."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, lru_cache

from placement.numa.cpus import CpuTopology
from placement.numa.masks import mask_of

_LAYOUTS_KEPT = 4096


class CpuLayout:
    """The cores, NUMA nodes and sockets of a host as masks of CPU ids; equal for equal topologies.

    `cores` are ascending by (socket, core), `numa_nodes` and `sockets` by id. `threads`, `numa_size` and
    `socket_size` are averages over the whole host, rounded down. Source: koordinator.md, "Derived numbers".
    """

    def __init__(self, topology: CpuTopology) -> None:
        self.topology = topology
        self.cpus = mask_of(topology.cpus)
        self.threads = topology.threads_per_core
        self.numa_size = topology.cpus_per_numa_node
        self.socket_size = topology.cpus_per_socket
        self.cores = tuple(mask_of(cpus) for cpus in topology.cores.values())
        self.numa_nodes = {numa: mask_of(cpus) for numa, cpus in topology.numa_nodes.items()}
        self.sockets = {socket: mask_of(cpus) for socket, cpus in topology.sockets.items()}
        self._hash = hash(topology)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, CpuLayout) and self.topology == other.topology)

    @cached_property
    def socket_of_numa(self) -> Mapping[int, int]:
        """The socket of each NUMA node."""
        return {row.numa: row.socket for row in self.topology.rows}

    @cached_property
    def core_places(self) -> tuple[tuple[int, int, int], ...]:
        """The mask, NUMA node and socket of each core, in the order of `cores`."""
        rows = (self.topology.by_cpu[cpus[0]] for cpus in self.topology.cores.values())
        return tuple((mask, row.numa, row.socket) for mask, row in zip(self.cores, rows, strict=True))

    @cached_property
    def cores_of_numa(self) -> Mapping[int, tuple[int, ...]]:
        """The cores of each NUMA node, in core order."""
        return {
            numa: tuple(mask for mask, place, _ in self.core_places if place == numa)
            for numa in self.numa_nodes
        }

    @cached_property
    def cores_of_socket(self) -> Mapping[int, tuple[int, ...]]:
        """The cores of each socket, in core order."""
        return {
            socket: tuple(mask for mask, _, place in self.core_places if place == socket)
            for socket in self.sockets
        }

    def whole_cores(self, free: int) -> int:
        """The CPUs of `free` on cores that have exactly `threads` of them."""
        threads, whole = self.threads, 0
        for core in self.cores:
            rest = free & core
            if rest.bit_count() == threads:
                whole |= rest
        return whole

    def lowest_threads(self, free: int) -> int:
        """The lowest CPU of `free` on each core."""
        lowest = 0
        for core in self.cores:
            rest = free & core
            lowest |= rest & -rest
        return lowest

    def cores_touching(self, cpus: int) -> int:
        """All CPUs of the cores that have any of these."""
        return _union_touching(self.cores, cpus)

    def numa_nodes_touching(self, cpus: int) -> int:
        """All CPUs of the NUMA nodes that have any of these."""
        return _union_touching(tuple(self.numa_nodes.values()), cpus)

    def numa_ids(self, cpus: int) -> int:
        """The NUMA nodes that have any of these CPUs, as a mask of NUMA ids."""
        return mask_of(numa for numa, place in self.numa_nodes.items() if place & cpus)


def _union_touching(places: tuple[int, ...], cpus: int) -> int:
    touched = 0
    if cpus:
        for place in places:
            if place & cpus:
                touched |= place
    return touched


@lru_cache(maxsize=_LAYOUTS_KEPT)
def layout_of(topology: CpuTopology) -> CpuLayout:
    """The layout of a topology; hosts that are built alike share one."""
    return CpuLayout(topology)
