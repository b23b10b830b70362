"""Which pods hold what on a host."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from placement.numa.amounts import NOTHING, NumaAmounts, summed
from placement.numa.cpu_use import CpuUse
from placement.numa.cpuset import CpuSet
from placement.numa.layout import CpuLayout
from placement.numa.masks import mask_of
from placement.numa.policies import ExclusiveLevel


@dataclass(frozen=True, slots=True)
class Holding:
    """What one pod holds: logical CPUs of its own, and amounts on NUMA nodes.

    `shares_with_best_effort`: best-effort pods may run on these CPUs too, which LSE alone forbids.
    """

    cpus: CpuSet = frozenset()
    level: ExclusiveLevel = ExclusiveLevel.NONE
    amounts: NumaAmounts = NOTHING
    shares_with_best_effort: bool = True


@dataclass(frozen=True, slots=True)
class NumaNeighbours:
    """Masks of NUMA ids: where only bound pods of that one NUMA node live, and where some span several.

    NUMA nodes in neither are idle. Source: Koordinator semantics, NUMA exclusivity.
    """

    single: int = 0
    shared: int = 0


@dataclass(frozen=True)
class HostLedger:
    """The holdings of a host by pod, in the order in which they were recorded; never changed in place.

    CPUs may overlap, and may be unknown to the host: those count as soon as its topology has them.
    Source: Koordinator semantics, sharing and recovery from pods.
    """

    holdings: Mapping[str, Holding] = field(default_factory=lambda: MappingProxyType({}))

    def cpu_use(self, layout: CpuLayout) -> CpuUse:
        """How the CPUs of the host are used; the level of a CPU is that of its last recorded pod."""
        use = CpuUse()
        for holding in self.holdings.values():
            use = use.plus(mask_of(holding.cpus) & layout.cpus, holding.level)
        return use

    def amounts(self) -> NumaAmounts:
        """What the pods hold on each NUMA node."""
        return summed(holding.amounts for holding in self.holdings.values())

    def numa_neighbours(self, layout: CpuLayout) -> NumaNeighbours:
        """Which NUMA nodes have bound pods of which kind."""
        one, several = 0, 0
        for holding in self.holdings.values():
            numa_ids = layout.numa_ids(mask_of(holding.cpus))
            if numa_ids.bit_count() > 1:
                several |= numa_ids
            else:
                one |= numa_ids
        return NumaNeighbours(single=one & ~several, shared=several)

    def unlendable_cpus(self) -> CpuSet:
        """CPUs of pods with which best-effort pods may not share."""
        return frozenset().union(
            *(holding.cpus for holding in self.holdings.values() if not holding.shares_with_best_effort)
        )
