"""One run of the CPU accumulator: what is free, what is taken, what is still needed."""

from __future__ import annotations

from collections.abc import Iterator

from placement.numa.cpus import CpuLayout
from placement.numa.cpuset import lowest_bits, members_of
from placement.numa.demand import CpuDemand, ExclusiveLevel, PickRules
from placement.numa.ledger import CpuUse


class Run:
    """The moving parts of a run that looks for `need` CPUs among those of the mask `free`."""

    __slots__ = ("demand", "free", "layout", "need", "rules", "taken", "use")

    def __init__(
        self, layout: CpuLayout, use: CpuUse, free: int, demand: CpuDemand, rules: PickRules
    ) -> None:
        self.layout = layout
        self.use = use
        self.free = free
        self.taken = 0
        self.need = demand.need
        self.demand = demand
        self.rules = rules

    @property
    def shares(self) -> bool:
        """Whether CPUs may be held more than once, so that counts influence the orders."""
        return self.rules.share_limit > 1

    def take(self, cpus: int) -> None:
        """Move free CPUs to the result."""
        self.free &= ~cpus
        self.taken |= cpus
        self.need -= cpus.bit_count()

    def by_size(self, size: int) -> int:
        """A sort key that puts the places the strategy prefers first."""
        return size if self.rules.fullest_first else -size

    def count_groups(self, cpus: int) -> Iterator[int]:
        """The CPUs split by how often they are held, least first; one group if counts do not matter."""
        if self.shares:
            for layer in self.use.counts:
                yield cpus & ~layer
                cpus &= layer
        yield cpus

    def in_cpu_order(self, cpus: int) -> Iterator[int]:
        """The CPUs one by one: by their count if it matters, then by id."""
        for group in self.count_groups(cpus):
            yield from members_of(group)

    def first_cpus(self, cpus: int, count: int) -> int:
        """The first `count` of these CPUs in CPU order, or all of them."""
        chosen = 0
        for group in self.count_groups(cpus):
            chosen |= lowest_bits(group, count - chosen.bit_count())
        return chosen

    def first_threads(self, cpus: int, cores: tuple[int, ...]) -> int:
        """Of each core the first of these CPUs in CPU order."""
        first = 0
        for core in cores:
            rest = cpus & core
            if rest:
                first |= self.first_cpus(rest, 1) if self.shares else rest & -rest
        return first

    def avoided(self, *, cores: bool, numa_nodes: bool) -> list[int]:
        """The CPUs to leave out in each honouring pass of a step that honours these levels, best pass first.

        Neighbours count that were recorded with the requester's own level, and the CPUs of this run.
        Source: koordinator.md, "Exclusivity", "Profiles".
        """
        level, use = self.demand.exclusive, self.use
        if level is ExclusiveLevel.PCPU_LEVEL and cores:
            return [self.layout.cores_touching(use.pcpu_level | self.taken)]
        passes = []
        if level is ExclusiveLevel.NUMA_NODE_LEVEL:
            if numa_nodes:
                passes.append(self.layout.numa_nodes_touching(use.numa_level | self.taken))
            if self.rules.downgrades:
                neighbours = use.pcpu_level | use.numa_level | self.taken
                passes.append(self.layout.cores_touching(neighbours))
        return passes or [0]
