"""The demand of a pod on a host, and the state of a host that decides about CPUs."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum, auto
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from placement.engine.domain.errors import Conflict
from placement.engine.domain.explanation import ConditionKind, Obstacle
from placement.engine.domain.units import LARGEST_AMOUNT
from placement.engine.numa.cpus import CpuLayout, CpuSet, mask_of
from placement.engine.scoring.host_scores import sum_scorer
from placement.engine.scoring.order import Order

CPU = "cpu"
MILLI = 1000

ResourceAmounts = Mapping[str, int]
"""Amounts by Kubernetes resource name: millicores of `cpu`, whole bytes or pieces of everything else."""

AmountsByNuma = Mapping[int, ResourceAmounts]


class NumaAmounts(dict[int, ResourceAmounts]):
    """Amounts by NUMA id, ascending. It never changes, so that it can be part of a key."""

    __slots__ = ("_hash",)

    def __init__(self, by_numa: AmountsByNuma = MappingProxyType({})) -> None:
        super().__init__()
        rows = []
        for numa in sorted(by_numa):
            self[numa] = row = dict(by_numa[numa])
            rows.append((numa, frozenset(row.items())))
        self._hash = hash(tuple(rows))

    def __hash__(self) -> int:  # type: ignore[override]
        return self._hash


NOTHING = NumaAmounts()


def summed(parts: Iterable[AmountsByNuma]) -> NumaAmounts:
    """Return the sum of all parts by NUMA node."""
    total: dict[int, dict[str, int]] = {}
    for part in parts:
        for numa, amounts in part.items():
            for resource, amount in amounts.items():
                row = total.setdefault(numa, {})
                row[resource] = row.get(resource, 0) + amount
    return NumaAmounts(total)


def bound_cost(milli: int, ratio: Fraction) -> int:
    """Return the cost in millicores of bound CPUs of this many millicores, rounded up.

    Source: koordinator.md, "CPU amplification".
    """
    if ratio == 1:
        return milli
    return min(LARGEST_AMOUNT, -(-milli * ratio.numerator // ratio.denominator))


def host_cpu_requested(requested: int, bound_cpus: int, ratio: Fraction) -> int:
    """Return the millicores requested on a whole host if `bound_cpus` of its CPUs are bound at that ratio.

    Nothing changes unless the requests cover the bound CPUs. Source: koordinator.md, "CPU amplification".
    """
    bound = 1000 * bound_cpus
    return requested - bound + bound_cost(bound, ratio) if requested >= bound else requested


def amplified(amounts: Mapping[str, int], ratios: Mapping[str, Fraction]) -> dict[str, int]:
    """Return the amounts times their ratios, rounded up in the units of the amounts, 2^63-1 at most."""
    return {
        name: min(LARGEST_AMOUNT, math.ceil(amount * ratios.get(name, 1))) for name, amount in amounts.items()
    }


# Policies, the demand of a pod, and the rules by which hosts choose.


class BindPolicy(StrEnum):
    """A policy for how bound CPUs lie on physical cores; `NONE` has no preference."""

    NONE = ""
    FULL_PCPUS = "FullPCPUs"
    SPREAD_BY_PCPUS = "SpreadByPCPUs"


class ExclusiveLevel(StrEnum):
    """A level at which a pod prefers not to have neighbours of that level."""

    NONE = "None"
    PCPU_LEVEL = "PCPULevel"
    NUMA_NODE_LEVEL = "NUMANodeLevel"


class NumaPolicy(StrEnum):
    """A policy for how strictly the resources of a pod are aligned to NUMA nodes."""

    NONE = "None"
    BEST_EFFORT = "BestEffort"
    RESTRICTED = "Restricted"
    SINGLE_NUMA_NODE = "SingleNUMANode"


class NumaStrategy(StrEnum):
    """A strategy for which NUMA node of a host is used first."""

    MOST_ALLOCATED = "MostAllocated"
    LEAST_ALLOCATED = "LeastAllocated"
    DISTRIBUTE_EVENLY = "DistributeEvenly"


class NumaExclusivity(StrEnum):
    """A rule for whether pods on one NUMA node and pods over several may share a NUMA node."""

    NONE = ""
    PREFERRED = "Preferred"
    REQUIRED = "Required"


class Distribution(Enum):
    """The NUMA nodes over which CPUs are dealt evenly: none at all, the fewest that can hold them, all."""

    PACKED = auto()
    OVER_NEEDED = auto()
    OVER_ALL = auto()


class CpuDemand(NamedTuple):
    """A demand of `need` whole CPUs for one pod; `strict` refuses what the bind policy does not allow.

    The pod shares no core, or no NUMA node, with other pods of its `group`.
    """

    need: int
    bind: BindPolicy = BindPolicy.NONE
    strict: bool = False
    exclusive: ExclusiveLevel = ExclusiveLevel.NONE
    group: str = ""


class PickRules(NamedTuple):
    """The rules by which a host chooses among its CPUs.

    A CPU may be held `share_limit` times. `fullest_first` prefers full NUMA nodes and sockets to empty ones.
    `downgrades`: without a clean NUMA node, NUMANodeLevel avoids exclusive neighbours on cores instead.
    `isolation_first`: among NUMA nodes that suit the alignment equally, NUMA nodes that meet the pod's CPU
    preferences come first, then the ones that the strategy prefers; whole cores stay whole.
    """

    share_limit: int = 1
    fullest_first: bool = False
    distribution: Distribution = Distribution.PACKED
    downgrades: bool = False
    isolation_first: bool = False


@dataclass(frozen=True)
class PodDemand:
    """A pod's demand on a host: amounts as the pod states them and, for a bound pod, CPUs of its own."""

    amounts: ResourceAmounts
    cpus: CpuDemand | None = None


# Reasons why a host cannot take a pod.

NOT_ENOUGH_CPUS = "not enough cpus available to satisfy request"
INVALID_TOPOLOGY = "node(s) invalid CPU Topology"


class RefusalClass(StrEnum):
    """A class of refusals: preemption may help, cannot help, or the refusal is an error."""

    UNSCHEDULABLE = "Unschedulable"
    UNRESOLVABLE = "UnschedulableAndUnresolvable"
    ERROR = "Error"


NO_CPUS, UNALIGNED = Obstacle(ConditionKind.CPUS), Obstacle(ConditionKind.NUMA)


@dataclass(frozen=True, slots=True)
class Refusal:
    """The reasons in the words of the scheduler, at least one, and their class (koordinator.md, "Filter").

    `obstacle` is the condition that the host failed.
    """

    reasons: tuple[str, ...]
    refusal_class: RefusalClass = RefusalClass.UNSCHEDULABLE
    obstacle: Obstacle = field(kw_only=True)


class PodRefused(Conflict):
    """A host, or every host, cannot take a pod; `refusal` says why."""

    def __init__(
        self,
        *reasons: str,
        refusal_class: RefusalClass = RefusalClass.UNSCHEDULABLE,
        obstacle: Obstacle = NO_CPUS,
    ) -> None:
        super().__init__("; ".join(reasons))
        self.refusal = Refusal(reasons, refusal_class, obstacle=obstacle)


# The holdings of pods on a host, and how often each CPU is held.


@dataclass(frozen=True, slots=True)
class CpuUse:
    """The held CPUs of a host as masks.

    `counts[i]` are the CPUs held at least i + 1 times, without empty masks at the end. `pcpu_level` and
    `numa_level` are the held CPUs for which the last recorded pod has that exclusive level.
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
        """Return the CPUs held `limit` times or more."""
        return self.counts[limit - 1] if len(self.counts) >= limit else 0

    def plus(self, cpus: int, level: ExclusiveLevel = ExclusiveLevel.NONE) -> CpuUse:
        """Return the use after one more pod of that level holds these CPUs."""
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
        """Return the use as if each set of CPUs were held once less; CPUs without a holder are free.

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
        """Return how often these CPUs are held, summed over them."""
        return sum((layer & cpus).bit_count() for layer in self.counts)


_NUMA_LEVEL = ExclusiveLevel.NUMA_NODE_LEVEL


@dataclass(frozen=True, slots=True)
class Holding:
    """The holding of one pod: logical CPUs of its own, and amounts on NUMA nodes.

    `shares_with_best_effort`: best-effort pods may run on these CPUs too, which LSE alone forbids.
    `group`: other pods of this group never get CPUs of the same cores, or NUMA nodes.
    """

    cpus: CpuSet = frozenset()
    level: ExclusiveLevel = ExclusiveLevel.NONE
    amounts: NumaAmounts = NOTHING
    shares_with_best_effort: bool = True
    group: str = ""


@dataclass(frozen=True, slots=True)
class NumaNeighbours:
    """Masks of NUMA ids: where bound pods use only that NUMA node, and where some span several.

    NUMA nodes in neither are idle. Source: koordinator.md, "NUMA exclusivity".
    """

    single: int = 0
    shared: int = 0


class GroupedCpus(NamedTuple):
    """The CPUs barred to further pods of a group: of PCPULevel or no level, and of NUMANodeLevel."""

    group: str
    on_cores: int
    on_numa_nodes: int


@dataclass(frozen=True)
class HostLedger:
    """The holdings of a host by pod, in the order of recording; never changed in place.

    CPUs may overlap. CPUs that the host does not know count as soon as its topology has them.
    Source: koordinator.md, "Sharing", "Recovery from pods".
    """

    holdings: Mapping[str, Holding] = field(default_factory=lambda: MappingProxyType({}))

    @cached_property
    def bound(self) -> Sequence[tuple[Holding, int]]:
        """The holdings with CPUs, each with their mask."""
        return [(holding, mask_of(holding.cpus)) for holding in self.holdings.values() if holding.cpus]

    def cpu_use(self, layout: CpuLayout) -> CpuUse:
        """Return how the CPUs of the host are used; the level of a CPU is that of its last recorded pod."""
        use = CpuUse()
        for holding, cpus in self.bound:
            use = use.plus(cpus & layout.cpus, holding.level)
        return use

    def amounts(self) -> NumaAmounts:
        """Return the amounts that pods hold on each NUMA node."""
        return summed([holding.amounts for holding in self.holdings.values()])

    def numa_neighbours(self, layout: CpuLayout) -> NumaNeighbours:
        """Return which NUMA nodes have bound pods of which kind."""
        one, several = 0, 0
        for _, cpus in self.bound:
            numa_ids = layout.numa_ids(cpus)
            if numa_ids.bit_count() > 1:
                several |= numa_ids
            else:
                one |= numa_ids
        return NumaNeighbours(single=one & ~several, shared=several)

    def grouped_cpus(self, layout: CpuLayout) -> tuple[GroupedCpus, ...]:
        """Return the CPUs barred to each group with pods on the host, by name; the stricter level counts.

        Source: koordinator.md, "Exclusivity groups".
        """
        barred: dict[str, GroupedCpus] = {}
        for holding, held in self.bound:
            if holding.group:
                _, on_cores, on_nodes = barred.get(holding.group, GroupedCpus("", 0, 0))
                cpus = held & layout.cpus
                nodes = layout.numa_nodes_touching(cpus)
                on_cores |= nodes if holding.level is _NUMA_LEVEL else layout.cores_touching(cpus)
                barred[holding.group] = GroupedCpus(holding.group, on_cores, on_nodes | nodes)
        return tuple(sorted(barred.values()))

    def unlendable_cpus(self) -> CpuSet:
        """Return the CPUs of pods that best-effort pods may not share with."""
        return frozenset().union(
            *(holding.cpus for holding in self.holdings.values() if not holding.shares_with_best_effort)
        )


UNUSED = CpuUse()
NO_NEIGHBOURS = NumaNeighbours()
FACE_VALUE = Fraction(1)
DEFAULT_RULES = PickRules()


@dataclass(frozen=True)
class HostState:
    """The state that the choice of CPUs and NUMA nodes depends on, without names: like hosts are equal.

    A layout without CPUs means that none are known: no pod can be bound there. `capacity` is what NUMA
    nodes have, multiplied by the amplification ratios; its keys are the NUMA nodes of the host. `held` is
    what recorded pods hold there. `unallocatable` are CPUs that no pod may get, `pool` the ones that unbound
    pods may run on while no pod is bound (masks). `cpu_ratio` is the cost of a bound CPU. `grouped_cpus`: the
    CPUs barred to further pods of exclusivity groups. Answers about a host can be cached by its state: the
    hash is computed once, and comparing a state with itself is free, so keep one object for equal hosts.
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
    grouped_cpus: tuple[GroupedCpus, ...] = ()

    @cached_property
    def _hash(self) -> int:
        parts = (self.layout, self.use, self.capacity, self.held, self.neighbours, self.rules)
        return hash((*parts, self.unallocatable, self.pool, self.cpu_ratio, self.grouped_cpus))

    def __hash__(self) -> int:
        return self._hash

    def free_cpus(self, use: CpuUse) -> int:
        """Return the CPUs that a pod may still get under this use of the host.

        Source: koordinator.md, "Available CPUs and the view".
        """
        return self.layout.cpus & ~use.saturated(self.rules.share_limit) & ~self.unallocatable

    def barred_cpus(self, group: str, level: ExclusiveLevel) -> int:
        """Return the CPUs that a pod of a group may not get at that level.

        Source: koordinator.md, "Exclusivity groups".
        """
        for name, on_cores, on_numa_nodes in self.grouped_cpus:
            if name == group:
                return on_numa_nodes if level is ExclusiveLevel.NUMA_NODE_LEVEL else on_cores
        return 0

    @property
    def shared_pool(self) -> int:
        """The CPUs that unbound pods run on: the pool without the CPUs of bound pods."""
        return self.pool & ~self.use.held


def numa_used(host: HostState, use: CpuUse, reusable: AmountsByNuma) -> dict[int, dict[str, int]]:
    """Return the used amounts on NUMA nodes with any record: held less reusable, at least 0.

    Bound CPUs cost more than their face value where the host is amplified.
    Source: koordinator.md, "Per-NUMA accounts".
    """
    used = {numa: dict(host.held[numa]) for numa in host.capacity if numa in host.held}
    if host.cpu_ratio > FACE_VALUE:
        for numa in host.capacity:
            bound = MILLI * (use.held & host.layout.numa_nodes.get(numa, 0)).bit_count()
            if bound:
                row = used.setdefault(numa, {})
                row[CPU] = row.get(CPU, 0) + bound_cost(bound, host.cpu_ratio) - bound
    for numa, amounts in reusable.items():
        for resource, amount in amounts.items():
            if resource in used.get(numa, {}):
                used[numa][resource] = max(0, used[numa][resource] - amount)
    return used


# The score of a host for a pod.


@dataclass(frozen=True)
class HostTotals:
    """The totals of a host: what it can give, amplified, and what all its pods have requested."""

    allocatable: ResourceAmounts
    requested: ResourceAmounts

    @cached_property
    def _hash(self) -> int:
        return hash((frozenset(self.allocatable.items()), frozenset(self.requested.items())))

    def __hash__(self) -> int:
        return self._hash


Scorer = Callable[[HostTotals], int]
"""The score of one host for one pod, by the totals of the host."""


def host_scorer(host: HostState, demand: PodDemand, scoring: Order, is_aligned: bool = False) -> Scorer:
    """Return a scorer, by the totals of the host, for a pod to which the host as a whole counts.

    That is a pod without a NUMA policy, or one with a policy (`is_aligned`) that got no NUMA nodes.
    Source: koordinator.md, "Score".
    """
    held, score_of = host.use.held.bit_count(), sum_scorer(scoring, demand_costs(host, demand))
    only_bound_cpus = is_aligned and demand.cpus is not None
    is_amplified = host.cpu_ratio > FACE_VALUE

    def score(totals: HostTotals) -> int:
        requested = totals.requested
        if only_bound_cpus:
            requested = {**requested, CPU: bound_cost(MILLI * held, host.cpu_ratio)}
        elif is_amplified:
            cpu = host_cpu_requested(requested.get(CPU, 0), held, host.cpu_ratio)
            requested = {**requested, CPU: cpu}
        return score_of(requested, totals.allocatable)

    return score


def score_on_numa_nodes(host: HostState, demand: PodDemand, scoring: Order, numa_ids: Collection[int]) -> int:
    """Return the score of a pod that would use these NUMA nodes: nothing else of the host counts.

    There is one exception: for a bound pod, all bound CPUs of the host count as used.
    Source: koordinator.md, "Score".
    """
    used = numa_used(host, host.use, NOTHING)
    requested = _sum([used.get(numa, {}) for numa in numa_ids])
    if demand.cpus is not None:
        requested[CPU] = bound_cost(MILLI * host.use.held.bit_count(), host.cpu_ratio)
    capacity = _sum([host.capacity[numa] for numa in numa_ids])
    return sum_scorer(scoring, demand_costs(host, demand))(requested, capacity)


def demand_costs(host: HostState, demand: PodDemand) -> ResourceAmounts:
    """Return the cost of a pod on a host, where CPUs of its own are multiplied by the ratio."""
    if demand.cpus is None or CPU not in demand.amounts or host.cpu_ratio == FACE_VALUE:
        return demand.amounts
    return {**demand.amounts, CPU: bound_cost(demand.amounts[CPU], host.cpu_ratio)}


def _sum(parts: list[ResourceAmounts]) -> dict[str, int]:
    return {name: sum(part.get(name, 0) for part in parts) for part in parts for name in part}


# The distance of the CPUs of a pod from its preferences.

MISSED = 2
"""The cost of a policy that is not met at all."""
STEPPED_DOWN = 1
"""The cost of NUMANodeLevel where it is met on cores only."""


class CpuPreference(NamedTuple):
    """The preferences of a pod for its CPUs."""

    bind: BindPolicy
    exclusive: ExclusiveLevel


def missed(host: HostState, cpus: int, preference: CpuPreference) -> int:
    """Return the cost, at least 0, of what a pod prefers and misses on CPUs; `host` is without the pod.

    A bind policy that is not met costs `MISSED`; an exclusive policy costs `MISSED` or `STEPPED_DOWN`.
    Source: koordinator.md, "Isolation".
    """
    is_bound = preference.bind is BindPolicy.NONE or _is_bound(host, cpus, preference.bind)
    unmet = (cost for cost, clean in clean_cpus(host, preference.exclusive) if not cpus & ~clean)
    return (0 if is_bound else MISSED) + next(unmet, MISSED)


def clean_cpus(host: HostState, level: ExclusiveLevel) -> list[tuple[int, int]]:
    """Return costs and free CPUs without neighbours that a pod of that level avoids, best first.

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
    layout = host.layout
    touched = [core for core in layout.cores if core & cpus]
    if bind is BindPolicy.SPREAD_BY_PCPUS:
        return len(touched) == cpus.bit_count()
    if layout.is_uneven:
        are_few = sum(1 for core in touched if core & ~cpus) <= 1
    else:
        are_few = len(touched) <= -(-cpus.bit_count() // layout.threads)
    return are_few and not cpus & ~layout.whole_cores(host.free_cpus(host.use))
