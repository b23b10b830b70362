"""How far the CPUs of a pod are from what it prefers."""

from __future__ import annotations

from typing import NamedTuple

from placement.numa.demand import BindPolicy, ExclusiveLevel
from placement.numa.host import HostState

MISSED = 2
"""What a policy counts that is not met at all."""
STEPPED_DOWN = 1
"""What NUMANodeLevel counts where it is met on cores only."""


class CpuPreference(NamedTuple):
    """What a pod would rather have of its CPUs."""

    bind: BindPolicy
    exclusive: ExclusiveLevel


def missed(host: HostState, cpus: int, preference: CpuPreference) -> int:
    """How much of what a pod prefers it misses on these CPUs (a mask), 0 if nothing; `host` is without it.

    A bind policy that is not met counts `MISSED`, and so does an exclusive policy, or `STEPPED_DOWN`.
    Source: koordinator.md, "Isolation".
    """
    is_bound = preference.bind is BindPolicy.NONE or _is_bound(host, cpus, preference.bind)
    unmet = (cost for cost, clean in clean_cpus(host, preference.exclusive) if not cpus & ~clean)
    return (0 if is_bound else MISSED) + next(unmet, MISSED)


def clean_cpus(host: HostState, level: ExclusiveLevel) -> list[tuple[int, int]]:
    """What is missed and where, best first: the free CPUs beside which a pod of that level avoids nobody.

    Source: koordinator.md, "Exclusivity", "Isolation".
    """
    layout, use, free = host.layout, host.use, host.free_cpus(host.use)
    if level is ExclusiveLevel.PCPU_LEVEL:
        return [(0, free & ~layout.cores_touching(use.pcpu_level))]
    if level is ExclusiveLevel.NUMA_NODE_LEVEL:
        return [
            (0, free & ~layout.numa_nodes_touching(use.numa_level)),
            (STEPPED_DOWN, free & ~layout.cores_touching(use.pcpu_level | use.numa_level)),
        ]
    return [(0, free)]


def _is_bound(host: HostState, cpus: int, bind: BindPolicy) -> bool:
    cores = sum(1 for core in host.layout.cores if core & cpus)
    if bind is BindPolicy.SPREAD_BY_PCPUS:
        return cores == cpus.bit_count()
    fewest = -(-cpus.bit_count() // host.layout.threads)
    return cores <= fewest and not cpus & ~host.layout.whole_cores(host.free_cpus(host.use))
