"""Which pods hold what on a host, and how often each CPU is held."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from placement.numa.amounts import NOTHING, NumaAmounts, summed
from placement.numa.cpus import CpuLayout
from placement.numa.cpuset import CpuSet, mask_of
from placement.numa.demand import ExclusiveLevel


@dataclass(frozen=True, slots=True)
class CpuUse:
    """The held CPUs of a host as masks.

    `counts[i]` are the CPUs held at least i + 1 times, without empty masks at the end; `pcpu_level` and
    `numa_level` are held CPUs whose last recorded pod has that exclusive level.
    Source: koordinator.md, "Sharing", "Exclusivity".
    """

    counts: tuple[int, ...] = ()
    pcpu_level: int = 0
    numa_level: int = 0

    @property
    def held(self) -> int:
        """Every CPU that is held at all."""
        return self.counts[0] if self.counts else 0

    def saturated(self, limit: int) -> int:
        """The CPUs held `limit` times or more."""
        return self.counts[limit - 1] if len(self.counts) >= limit else 0

    def plus(self, cpus: int, level: ExclusiveLevel = ExclusiveLevel.NONE) -> CpuUse:
        """The use after one more pod of that level holds these CPUs."""
        counts, carried = [], cpus
        for layer in self.counts:
            counts.append(layer | carried)
            carried &= layer
        if carried:
            counts.append(carried)
        return CpuUse(
            tuple(counts),
            self.pcpu_level | cpus if level is ExclusiveLevel.PCPU_LEVEL else self.pcpu_level & ~cpus,
            self.numa_level | cpus if level is ExclusiveLevel.NUMA_NODE_LEVEL else self.numa_level & ~cpus,
        )

    def without(self, returned: Iterable[int]) -> CpuUse:
        """The use as if each of these sets of CPUs were held once less; CPUs without a holder are free.

        Source: koordinator.md, "Available CPUs and the view".
        """
        counts = self.counts
        for cpus in returned:
            above = (*counts[1:], 0)
            counts = tuple((layer & ~cpus) | (above[i] & cpus) for i, layer in enumerate(counts))
        while counts and not counts[-1]:
            counts = counts[:-1]
        held = counts[0] if counts else 0
        return CpuUse(counts, self.pcpu_level & held, self.numa_level & held)

    def sum_of_counts(self, cpus: int) -> int:
        """How often these CPUs are held, summed over them."""
        return sum((layer & cpus).bit_count() for layer in self.counts)


_NUMA_LEVEL = ExclusiveLevel.NUMA_NODE_LEVEL


@dataclass(frozen=True, slots=True)
class Holding:
    """What one pod holds: logical CPUs of its own, and amounts on NUMA nodes.

    `shares_with_best_effort`: best-effort pods may run on these CPUs too, which LSE alone forbids.
    `group`: other pods of it never get CPUs of the same cores, or NUMA nodes.
    """

    cpus: CpuSet = frozenset()
    level: ExclusiveLevel = ExclusiveLevel.NONE
    amounts: NumaAmounts = NOTHING
    shares_with_best_effort: bool = True
    group: str = ""


@dataclass(frozen=True, slots=True)
class NumaNeighbours:
    """Masks of NUMA ids: where only bound pods of that one NUMA node live, and where some span several.

    NUMA nodes in neither are idle. Source: koordinator.md, "NUMA exclusivity".
    """

    single: int = 0
    shared: int = 0


class GroupedCpus(NamedTuple):
    """The CPUs that no further pod of a group may have, by its level: PCPULevel or none, NUMANodeLevel."""

    group: str
    on_cores: int
    on_numa_nodes: int


@dataclass(frozen=True)
class HostLedger:
    """The holdings of a host by pod, in the order in which they were recorded; never changed in place.

    CPUs may overlap, and may be unknown to the host: those count as soon as its topology has them.
    Source: koordinator.md, "Sharing", "Recovery from pods".
    """

    holdings: Mapping[str, Holding] = field(default_factory=lambda: MappingProxyType({}))

    def cpu_use(self, layout: CpuLayout) -> CpuUse:
        """How the CPUs of the host are used; the level of a CPU is that of its last recorded pod."""
        use = CpuUse()
        for holding in self.holdings.values():
            if holding.cpus:
                use = use.plus(mask_of(holding.cpus) & layout.cpus, holding.level)
        return use

    def amounts(self) -> NumaAmounts:
        """What the pods hold on each NUMA node."""
        return summed(holding.amounts for holding in self.holdings.values())

    def numa_neighbours(self, layout: CpuLayout) -> NumaNeighbours:
        """Which NUMA nodes have bound pods of which kind."""
        one, several = 0, 0
        for holding in self.holdings.values():
            numa_ids = layout.numa_ids(mask_of(holding.cpus)) if holding.cpus else 0
            if numa_ids.bit_count() > 1:
                several |= numa_ids
            else:
                one |= numa_ids
        return NumaNeighbours(single=one & ~several, shared=several)

    def grouped_cpus(self, layout: CpuLayout) -> tuple[GroupedCpus, ...]:
        """What is barred to each group that has pods on the host, by name; the stricter of two levels counts.

        Source: koordinator.md, "Exclusivity groups".
        """
        barred: dict[str, GroupedCpus] = {}
        for holding in self.holdings.values():
            if holding.group and holding.cpus:
                _, on_cores, on_nodes = barred.get(holding.group, GroupedCpus("", 0, 0))
                cpus = mask_of(holding.cpus) & layout.cpus
                nodes = layout.numa_nodes_touching(cpus)
                on_cores |= nodes if holding.level is _NUMA_LEVEL else layout.cores_touching(cpus)
                barred[holding.group] = GroupedCpus(holding.group, on_cores, on_nodes | nodes)
        return tuple(barred[group] for group in sorted(barred))

    def unlendable_cpus(self) -> CpuSet:
        """CPUs of pods with which best-effort pods may not share."""
        return frozenset().union(
            *(holding.cpus for holding in self.holdings.values() if not holding.shares_with_best_effort)
        )
