"""The state of a host, as far as the choice of CPUs and NUMA nodes depends on it."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from placement.numa.amounts import NOTHING, NumaAmounts
from placement.numa.cpu_use import CpuUse
from placement.numa.demand import PickRules
from placement.numa.layout import CpuLayout
from placement.numa.ledger import GroupedCpus, NumaNeighbours
from placement.numa.policies import ExclusiveLevel

UNUSED = CpuUse()
NO_NEIGHBOURS = NumaNeighbours()
FACE_VALUE = Fraction(1)
DEFAULT_RULES = PickRules()


@dataclass(frozen=True)
class HostState:
    """All that the choice of CPUs and NUMA nodes depends on, and no names: alike hosts are equal.

    `capacity` is what NUMA nodes have, multiplied by the amplification ratios; its keys are the NUMA nodes of
    the host. `held` is what recorded pods hold there. `unallocatable` are CPUs that no pod may be given,
    `pool` those that unbound pods may run on as long as no pod is bound (masks). `cpu_ratio` is what a bound
    CPU costs. `groups`: what is barred to further pods of exclusivity groups. Answers about a host can be
    remembered by its state: the hash is computed once, and the comparison of a state with itself is free, so
    keep one object for equal hosts.
    """

    layout: CpuLayout
    use: CpuUse = UNUSED
    capacity: NumaAmounts = NOTHING
    held: NumaAmounts = NOTHING
    neighbours: NumaNeighbours = NO_NEIGHBOURS
    unallocatable: int = 0
    pool: int = 0
    cpu_ratio: Fraction = FACE_VALUE
    rules: PickRules = DEFAULT_RULES
    groups: tuple[GroupedCpus, ...] = ()

    @cached_property
    def _hash(self) -> int:
        parts = (self.layout, self.use, self.capacity, self.held, self.neighbours, self.rules)
        return hash((*parts, self.unallocatable, self.pool, self.cpu_ratio, self.groups))

    def __hash__(self) -> int:
        return self._hash

    @property
    def has_cpus(self) -> bool:
        """Whether CPUs are known at all; without them no pod can be bound."""
        return bool(self.layout.cpus)

    def free_cpus(self, use: CpuUse) -> int:
        """The CPUs that may still be given to a pod if the host is used like that.

        Source: koordinator.md, "Available CPUs and the view".
        """
        return self.layout.cpus & ~use.saturated(self.rules.share_limit) & ~self.unallocatable

    def barred_cpus(self, group: str, level: ExclusiveLevel) -> int:
        """The CPUs that a pod of a group may not be given at that level.

        Source: koordinator.md, "Exclusivity groups".
        """
        for name, on_cores, on_numa_nodes in self.groups:
            if name == group:
                return on_numa_nodes if level is ExclusiveLevel.NUMA_NODE_LEVEL else on_cores
        return 0

    @property
    def shared_pool(self) -> int:
        """The CPUs that unbound pods run on, that is the pool without the CPUs of bound pods."""
        return self.pool & ~self.use.held
