"""The pools of CPUs that pods without CPUs of their own run on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from placement.numa.cpus import CpuTopology
from placement.numa.cpuset import CpuSet


@dataclass(frozen=True, slots=True)
class SharedPool:
    """The logical CPUs that unbound pods share on one NUMA node of one socket."""

    socket: int
    numa: int
    cpus: CpuSet


def shared_pools(topology: CpuTopology, exclusive: CpuSet, withheld: CpuSet) -> tuple[SharedPool, ...]:
    """The pools of a host by socket and NUMA node, without exclusive and withheld CPUs.

    Exclusive are kubelet-managed CPUs and, for the LS pools, those of every pod with a list of its own, for
    the BE pools those of LSE pods only. Withheld are the node's reservation and an exclusive SYSTEM list.
    NUMA nodes that are wholly exclusive have no pool; the others have one, even if nothing is left in it.
    Source: koordinator.md, "Pools".
    """
    sockets = {row.numa: row.socket for row in topology.rows}
    places = sorted((sockets[numa], numa) for numa in topology.numa_nodes)
    pools = (
        SharedPool(socket, numa, frozenset(topology.numa_nodes[numa]) - exclusive) for socket, numa in places
    )
    return trimmed((pool for pool in pools if pool.cpus), withheld)


def trimmed(pools: Iterable[SharedPool], withheld: CpuSet) -> tuple[SharedPool, ...]:
    """The same pools without these CPUs (koordinator.md, "Pools")."""
    return tuple(replace(pool, cpus=pool.cpus - withheld) for pool in pools)
