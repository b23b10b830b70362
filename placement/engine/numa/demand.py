"""Demands on the CPUs of a host: the policies, the demand of a pod, the rules by which hosts choose."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import NamedTuple

from placement.engine.domain.errors import Conflict
from placement.engine.domain.explanation import ConditionKind, Obstacle
from placement.engine.numa.amounts import Amounts


class BindPolicy(StrEnum):
    """A policy for how bound CPUs lie on physical cores; `NONE` has no preference."""

    NONE = ""
    FULL_PCPUS = "FullPCPUs"
    SPREAD_BY_PCPUS = "SpreadByPCPUs"


class ExclusiveLevel(StrEnum):
    """A level at which a pod prefers not to have neighbours of that level."""

    NONE = "None"
    PCPU_LEVEL = "PCPULevel"
    NUMA_NODE_LEVEL = "NUMANodeLevel"


class NumaPolicy(StrEnum):
    """A policy for how strictly the resources of a pod are aligned to NUMA nodes."""

    NONE = "None"
    BEST_EFFORT = "BestEffort"
    RESTRICTED = "Restricted"
    SINGLE_NUMA_NODE = "SingleNUMANode"


class NumaStrategy(StrEnum):
    """A strategy for which NUMA node of a host is used first."""

    MOST_ALLOCATED = "MostAllocated"
    LEAST_ALLOCATED = "LeastAllocated"
    DISTRIBUTE_EVENLY = "DistributeEvenly"


class NumaExclusivity(StrEnum):
    """A rule for whether pods on one NUMA node and pods over several may share a NUMA node."""

    NONE = ""
    PREFERRED = "Preferred"
    REQUIRED = "Required"


class Distribution(Enum):
    """The NUMA nodes over which CPUs are dealt evenly: none at all, the fewest that can hold them, all."""

    PACKED = auto()
    OVER_NEEDED = auto()
    OVER_ALL = auto()


class CpuDemand(NamedTuple):
    """A demand of `need` whole CPUs for one pod; `strict` refuses what the bind policy does not allow.

    The pod shares no core, or no NUMA node, with other pods of its `group`.
    """

    need: int
    bind: BindPolicy = BindPolicy.NONE
    strict: bool = False
    exclusive: ExclusiveLevel = ExclusiveLevel.NONE
    group: str = ""


class PickRules(NamedTuple):
    """The rules by which a host chooses among its CPUs.

    A CPU may be held `share_limit` times. `fullest_first` prefers full NUMA nodes and sockets to empty ones.
    `downgrades`: without a clean NUMA node, NUMANodeLevel avoids exclusive neighbours on cores instead.
    `isolation_first`: among NUMA nodes that suit the alignment equally, NUMA nodes that meet the pod's CPU
    preferences come first, then the ones that the strategy prefers; whole cores stay whole.
    """

    share_limit: int = 1
    fullest_first: bool = False
    distribution: Distribution = Distribution.PACKED
    downgrades: bool = False
    isolation_first: bool = False


@dataclass(frozen=True)
class PodDemand:
    """A pod's demand on a host: amounts as the pod states them and, for a bound pod, CPUs of its own."""

    amounts: Amounts
    cpus: CpuDemand | None = None


# Reasons why a host cannot take a pod.


NOT_ENOUGH_CPUS = "not enough cpus available to satisfy request"
INVALID_TOPOLOGY = "node(s) invalid CPU Topology"


class RefusalClass(StrEnum):
    """A class of refusals: preemption may help, cannot help, or the refusal is an error."""

    UNSCHEDULABLE = "Unschedulable"
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    ERROR = "Error"


NO_CPUS, UNALIGNED = Obstacle(ConditionKind.CPUS), Obstacle(ConditionKind.NUMA)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reasons in the words of the scheduler, at least one, and their class (koordinator.md, "Filter").

    `obstacle` is the condition that the host failed; by default CPUs.
    """

    reasons: tuple[str, ...]
    status: RefusalClass = RefusalClass.UNSCHEDULABLE
    obstacle: Obstacle = NO_CPUS


class PodRefused(Conflict):
    """A host, or every host, cannot take a pod; `refusal` says why."""

    def __init__(
        self,
        *reasons: str,
        status: RefusalClass = RefusalClass.UNSCHEDULABLE,
        obstacle: Obstacle = NO_CPUS,
    ) -> None:
        super().__init__("; ".join(reasons))
        self.refusal = Refusal(reasons, status, obstacle)
