"""The state of a host, as far as the choice of CPUs and NUMA nodes depends on it: used, left, shared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from placement.numa.amounts import NOTHING, Amounts, AmountsByNuma, NumaAmounts, bound_cost
from placement.numa.cpus import CpuLayout
from placement.numa.demand import ExclusiveLevel, PickRules
from placement.numa.ledger import CpuUse, GroupedCpus, NumaNeighbours

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


_EMPTY: Amounts = {}


def numa_used(host: HostState, use: CpuUse, reusable: AmountsByNuma) -> dict[int, dict[str, int]]:
    """What counts as used on NUMA nodes that have any record: held amounts less reusable ones, at least 0.

    Bound CPUs cost more than their face value where the host is amplified.
    Source: koordinator.md, "Per-NUMA accounts".
    """
    used = {numa: dict(host.held[numa]) for numa in host.capacity if numa in host.held}
    if host.cpu_ratio > FACE_VALUE:
        for numa, surcharge in _surcharges(host, use).items():
            row = used.setdefault(numa, {})
            row["cpu"] = row.get("cpu", 0) + surcharge
    for numa, amounts in reusable.items():
        for resource, amount in amounts.items():
            if resource in used.get(numa, _EMPTY):
                used[numa][resource] = max(0, used[numa][resource] - amount)
    return used


def _surcharges(host: HostState, use: CpuUse) -> dict[int, int]:
    surcharges = {}
    for numa in host.capacity:
        bound = 1000 * (use.held & host.layout.numa_nodes.get(numa, 0)).bit_count()
        if bound:
            surcharges[numa] = bound_cost(bound, host.cpu_ratio) - bound
    return surcharges


def numa_available(host: HostState, used: AmountsByNuma) -> dict[int, dict[str, int]]:
    """What is left of the capacity of every NUMA node, at least 0.

    Source: koordinator.md, "Per-NUMA accounts".
    """
    return {numa: _left(capacity, used.get(numa, _EMPTY)) for numa, capacity in host.capacity.items()}


def _left(capacity: Amounts, used: Mapping[str, int]) -> dict[str, int]:
    return {resource: max(0, amount - used.get(resource, 0)) for resource, amount in capacity.items()}
