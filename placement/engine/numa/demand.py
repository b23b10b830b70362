"""What is asked of the CPUs of a host: the policies, the demand of a pod, the rules by which hosts choose."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, StrEnum, auto
from typing import NamedTuple

from placement.engine.domain.errors import Conflict
from placement.engine.domain.explanation import Kind, Obstacle
from placement.engine.numa.amounts import Amounts


class BindPolicy(StrEnum):
    """How bound CPUs lie on physical cores; `NONE` does not care."""

    NONE = ""
    FULL_PCPUS = "FullPCPUs"
    SPREAD_BY_PCPUS = "SpreadByPCPUs"


class ExclusiveLevel(StrEnum):
    """Which neighbours of its own level a pod would rather not have."""

    NONE = "None"
    PCPU_LEVEL = "PCPULevel"
    NUMA_NODE_LEVEL = "NUMANodeLevel"


class NumaPolicy(StrEnum):
    """How strictly the resources of a pod are aligned to NUMA nodes."""

    NONE = "None"
    BEST_EFFORT = "BestEffort"
    RESTRICTED = "Restricted"
    SINGLE_NUMA_NODE = "SingleNUMANode"


class NumaStrategy(StrEnum):
    """Which NUMA node of a host is used first."""

    MOST_ALLOCATED = "MostAllocated"
    LEAST_ALLOCATED = "LeastAllocated"
    DISTRIBUTE_EVENLY = "DistributeEvenly"


class NumaExclusivity(StrEnum):
    """Whether pods on one NUMA node and pods over several may meet on a NUMA node."""

    NONE = ""
    PREFERRED = "Preferred"
    REQUIRED = "Required"


class Distribution(Enum):
    """Over how many NUMA nodes CPUs are dealt out evenly: none at all, as few as can hold them, all."""

    PACKED = auto()
    OVER_NEEDED = auto()
    OVER_ALL = auto()


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


# Why a host cannot take a pod.


NOT_ENOUGH_CPUS = "not enough cpus available to satisfy request"
INVALID_TOPOLOGY = "node(s) invalid CPU Topology"


class RefusalClass(StrEnum):
    """Whether a refusal may go away when other pods leave, will not, or is an error."""

    UNSCHEDULABLE = "Unschedulable"
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    ERROR = "Error"


NO_CPUS, UNALIGNED = Obstacle(Kind.CPUS), Obstacle(Kind.NUMA)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The words that people search for, at least one, and their class (koordinator.md, "Filter").

    `obstacle` is the condition that the host failed; CPUs unless something else is told.
    """

    reasons: tuple[str, ...]
    status: RefusalClass = RefusalClass.UNSCHEDULABLE
    obstacle: Obstacle = NO_CPUS


class Refused(Conflict):
    """A host, or every host, cannot take a pod; `refusal` says why."""

    def __init__(
        self,
        *reasons: str,
        status: RefusalClass = RefusalClass.UNSCHEDULABLE,
        obstacle: Obstacle = NO_CPUS,
    ) -> None:
        super().__init__("; ".join(reasons))
        self.refusal = Refusal(reasons, status, obstacle)
