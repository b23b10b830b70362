"""The pools of CPUs that pods without CPUs of their own run on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

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
    pools = (SharedPool(socket, numa, cpus - exclusive) for socket, numa, cpus in topology.places)
    return trimmed((pool for pool in pools if pool.cpus), withheld)


def trimmed(pools: Iterable[SharedPool], withheld: CpuSet) -> tuple[SharedPool, ...]:
    """Return pools without these CPUs. Source: koordinator.md, "Pools"."""
    return tuple(SharedPool(pool.socket, pool.numa, pool.cpus - withheld) for pool in pools)
