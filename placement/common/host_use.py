"""CPUs and memory of a host, or of several, whatever classes count them there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

NODE_CPU, NODE_MEMORY = "CUSTOM_NODE_CPU_MILLI", "CUSTOM_NODE_MEMORY_MB"
"""The requests of all pods of a Kubernetes node; other classes count pods that are aligned there."""
# CPUs and memory are counted by what a Kubernetes node as a whole offers, else by the class of nova. With
# each class comes how many units of it are a CPU, or a MiB.
_SHARED = ((NODE_CPU, 1000), ("VCPU", 1))
_DEDICATED = (("PCPU", 1),)
_MEMORY = ((NODE_MEMORY, 1), ("MEMORY_MB", 1))
_DISK = (("DISK_GB", 1),)

ALL_CPUS, ALL_MEMORY = "CPU", "Memory"
"""Names of both where they are listed beside classes."""

UseByClass = Mapping[str, Mapping[str, int]]


class CapacityUse(NamedTuple):
    """The capacity and the use of something, in CPUs, MiB or GB."""

    capacity: float
    used: float

    @property
    def free(self) -> float:
        """Return the rest, below 0 where the use exceeds the capacity."""
        return self.capacity - self.used


def cpus(resources: UseByClass) -> CapacityUse:
    """Return the CPUs of a host or of several: all of a Kubernetes node, else the class that is fuller.

    VCPU and PCPU may be the same CPUs, so they have no sum.
    """
    uses = [shared_cpus(resources)]
    if NODE_CPU not in resources:
        uses.append(dedicated_cpus(resources))
    return max(uses, key=lambda each: each.used / each.capacity if each.capacity else -1)


def shared_cpus(resources: UseByClass) -> CapacityUse:
    """Return all CPUs of a Kubernetes node, else the ones that servers share."""
    return _use(resources, _SHARED)


def dedicated_cpus(resources: UseByClass) -> CapacityUse:
    """Return the CPUs that consumers have for themselves."""
    return _use(resources, _DEDICATED)


def memory(resources: UseByClass) -> CapacityUse:
    """Return the memory of a host or of several in MiB."""
    return _use(resources, _MEMORY)


def disk(resources: UseByClass) -> CapacityUse:
    """Return the disk of a host or of several in GB."""
    return _use(resources, _DISK)


def _use(resources: UseByClass, ways: tuple[tuple[str, int], ...]) -> CapacityUse:
    for name, unit in ways:
        if name in resources:
            return CapacityUse(*(resources[name][part] / unit for part in ("capacity", "used")))
    return CapacityUse(0, 0)
