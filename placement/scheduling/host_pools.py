"""The shared pools of a node, computed from what is recorded there."""

from __future__ import annotations

from typing import NamedTuple

from placement.dialects.koordinator.node.node import NodeImport
from placement.numa.cpuset import CpuSet
from placement.numa.ledger import HostLedger
from placement.numa.pools import SharedPool, shared_pools


class HostPools(NamedTuple):
    """Where LS pods and where BE pods run, by socket and NUMA node."""

    ls: tuple[SharedPool, ...]
    be: tuple[SharedPool, ...]


def host_pools(node: NodeImport, ledger: HostLedger) -> HostPools:
    """The pools of a node. CPUs of LSR pods are shared with BE, those of LSE pods with nobody.

    Source: koordinator.md, "Pools".
    """
    pinned: CpuSet = frozenset[int]().union(*(pod.cpus for pod in node.kubelet_pods))
    bound: CpuSet = frozenset[int]().union(*(holding.cpus for holding in ledger.holdings.values()))
    return HostPools(
        ls=shared_pools(node.topology, pinned | bound, node.withheld),
        be=shared_pools(node.topology, pinned | ledger.unlendable_cpus(), node.withheld),
    )
