"""The demand of a pod for CPUs of a host, and the rules by which the host chooses them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from placement.numa.amounts import Amounts
from placement.numa.policies import BindPolicy, Distribution, ExclusiveLevel


class CpuDemand(NamedTuple):
    """`need` whole CPUs for one pod; `strict` refuses what the bind policy does not allow.

    It shares no core, or NUMA node, with others of its `group`.
    """

    need: int
    bind: BindPolicy = BindPolicy.NONE
    strict: bool = False
    exclusive: ExclusiveLevel = ExclusiveLevel.NONE
    group: str = ""


class PickRules(NamedTuple):
    """How a host chooses among its CPUs.

    A CPU may be held `share_limit` times. `fullest_first` prefers full NUMA nodes and sockets to empty ones.
    `downgrades`: without a clean NUMA node NUMANodeLevel avoids exclusive neighbours on cores instead.
    `isolation_first`: among NUMA nodes to which a pod may be aligned alike, those come first where it gets
    what it prefers of its CPUs, then those that the strategy names; whole cores stay whole.
    """

    share_limit: int = 1
    fullest_first: bool = False
    distribution: Distribution = Distribution.PACKED
    downgrades: bool = False
    isolation_first: bool = False


@dataclass(frozen=True)
class PodDemand:
    """What a pod asks of a host: amounts as the pod states them and, for a bound pod, CPUs of its own."""

    amounts: Amounts
    cpus: CpuDemand | None = None
