"""How far the CPUs of a pod are from what it prefers."""

from __future__ import annotations

from typing import NamedTuple

from placement.numa.cpus import CpuLayout
from placement.numa.demand import BindPolicy, ExclusiveLevel
from placement.numa.ledger import CpuUse

MISSED = 2
"""What a policy counts that is not met at all."""
STEPPED_DOWN = 1
"""What NUMANodeLevel counts where it is met on cores only."""


class Preference(NamedTuple):
    """What a pod would rather have of its CPUs."""

    bind: BindPolicy
    exclusive: ExclusiveLevel


class Occupied(NamedTuple):
    """The CPUs of a host before the pod came: those that it may be given, and the use of all."""

    layout: CpuLayout
    free: int
    use: CpuUse


def missed(host: Occupied, cpus: int, preference: Preference) -> int:
    """How much of what a pod prefers these CPUs (a mask) miss, 0 if nothing.

    A bind policy that is not met counts `MISSED`, and so does an exclusive policy, or `STEPPED_DOWN`.
    Source: koordinator.md, "Isolation".
    """
    is_bound = preference.bind is BindPolicy.NONE or _is_bound(host, cpus, preference.bind)
    unmet = (cost for cost, clean in clean_cpus(host, preference.exclusive) if not cpus & ~clean)
    return (0 if is_bound else MISSED) + next(unmet, MISSED)


def clean_cpus(host: Occupied, level: ExclusiveLevel) -> list[tuple[int, int]]:
    """The free CPUs on which a pod of a level has no neighbours it avoids, best first, and what these miss.

    Source: koordinator.md, "Exclusivity", "Isolation".
    """
    layout, use, free = host.layout, host.use, host.free
    if level is ExclusiveLevel.PCPU_LEVEL:
        return [(0, free & ~layout.cores_touching(use.pcpu_level))]
    if level is ExclusiveLevel.NUMA_NODE_LEVEL:
        return [
            (0, free & ~layout.numa_nodes_touching(use.numa_level)),
            (STEPPED_DOWN, free & ~layout.cores_touching(use.pcpu_level | use.numa_level)),
        ]
    return [(0, free)]


def _is_bound(host: Occupied, cpus: int, bind: BindPolicy) -> bool:
    cores = sum(1 for core in host.layout.cores if core & cpus)
    if bind is BindPolicy.SPREAD_BY_PCPUS:
        return cores == cpus.bit_count()
    fewest = -(-cpus.bit_count() // host.layout.threads)
    return cores <= fewest and not cpus & ~host.layout.whole_cores(host.free)
