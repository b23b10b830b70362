"""The policies by which pods and hosts say how CPUs and NUMA nodes are chosen."""

from __future__ import annotations

from enum import Enum, StrEnum, auto


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
