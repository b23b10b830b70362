"""A node as pods see it that look for a place: policies, CPUs, NUMA nodes, and who is on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType

from placement.dialects.koordinator.node.host_cpus import KubeletPod
from placement.dialects.koordinator.node.host_policies import HostBindPolicy, HostPolicies
from placement.dialects.koordinator.node.node import NodeImport
from placement.dialects.koordinator.resources import numa_class
from placement.dialects.koordinator.settings.settings import SchedulerSettings
from placement.dialects.koordinator.status.recorded_pod import RecordedPod
from placement.kubernetes.pod_identity import canonical_uid
from placement.numa.amounts import NumaAmounts, amplified
from placement.numa.cpus import layout_of
from placement.numa.cpuset import CpuSet, mask_of
from placement.numa.demand import Distribution, NumaPolicy, NumaStrategy, PickRules
from placement.numa.host import HostState
from placement.numa.ledger import Holding, HostLedger
from placement.scheduling.binding import UNBINDING, HostBinding
from placement.scheduling.node_offers import NodeOffers, Place
from placement.scoring.strategy import DEFAULT_SCORING, Strategy

_SCORED_STRATEGIES = (NumaStrategy.MOST_ALLOCATED, NumaStrategy.LEAST_ALLOCATED)


@dataclass(frozen=True)
class Host:
    """All that decides whether and where a pod fits on a node, apart from the totals of the node.

    `unreadable_pods` are names of pods there whose resource-status does not parse, so that nobody knows which
    CPUs they hold. `numa_scoring` and `favours_idle` say how its NUMA nodes are compared. The name of the
    node is no part of it: equal hosts get equal answers, and the hash is computed once.
    """

    state: HostState
    bind: HostBinding = UNBINDING
    numa_policy: NumaPolicy = NumaPolicy.NONE
    unreadable_pods: tuple[str, ...] = ()
    numa_scoring: Strategy = DEFAULT_SCORING
    favours_idle: bool = False

    @cached_property
    def _hash(self) -> int:
        scoring = (self.numa_scoring, self.favours_idle)
        return hash((self.state, self.bind, self.numa_policy, self.unreadable_pods, scoring))

    def __hash__(self) -> int:
        return self._hash


def host_of(
    node: NodeImport, ledger: HostLedger, settings: SchedulerSettings, unreadable_pods: Sequence[str] = ()
) -> Host:
    """An imported node with the pods recorded there, under the settings of its cluster.

    Source: koordinator.md, "Keys on the node", "Scheduler settings", "Profiles".
    """
    layout = layout_of(node.topology)
    pinned = frozenset[int]().union(*(pod.cpus for pod in node.kubelet_pods))
    policies = node.policies
    default = settings.default_numa_policy if settings.follows_design else NumaPolicy.NONE
    return Host(
        state=HostState(
            layout=layout,
            use=ledger.cpu_use(layout),
            capacity=numa_capacity(node),
            held=ledger.amounts(),
            neighbours=ledger.numa_neighbours(layout),
            unallocatable=mask_of(node.unallocatable),
            pool=layout.cpus & ~mask_of(pinned | node.withheld),
            cpu_ratio=node.amplification.get("cpu", Fraction(1)),
            rules=_pick_rules(policies, settings),
            groups=ledger.grouped_cpus(layout),
        ),
        bind=HostBinding(
            policies.bind,
            everybody=not settings.follows_design and policies.bind is not HostBindPolicy.NONE,
            whole_cores_only=policies.whole_cores_only,
        ),
        numa_policy=default if policies.numa is None else policies.numa,
        unreadable_pods=tuple(unreadable_pods),
        numa_scoring=_numa_scoring(policies, settings),
        favours_idle=settings.follows_design,
    )


def numa_capacity(node: NodeImport) -> NumaAmounts:
    """What the NUMA nodes of a node have for aligned pods.

    That is what its zones report less 1000 millicores for each unallocatable CPU, at least 0, multiplied by
    the node's ratios unless it is reported multiplied.
    Source: koordinator.md, "NUMA amounts", "CPU amplification".
    """
    ratios: Mapping[str, Fraction] = {} if node.zones_amplified else node.amplification
    capacity = {}
    for zone in node.zones:
        lost = node.unallocatable.intersection(node.topology.numa_nodes.get(zone.numa, ()))
        amounts = dict(zone.amounts)
        if "cpu" in amounts:
            amounts["cpu"] = max(0, amounts["cpu"] - 1000 * len(lost))
        capacity[zone.numa] = amplified(amounts, ratios)
    return NumaAmounts(capacity)


def _numa_scoring(policies: HostPolicies, settings: SchedulerSettings) -> Strategy:
    """How NUMA nodes are compared: a strategy that host or cluster name comes before the scoring.

    Source: koordinator.md, "The NUMA strategy under alignment".
    """
    named = policies.strategy or settings.default_numa_strategy
    if not settings.follows_design or named not in _SCORED_STRATEGIES:
        return settings.numa_scoring
    return Strategy(named, settings.numa_scoring.resources)


def _pick_rules(policies: HostPolicies, settings: SchedulerSettings) -> PickRules:
    strategy = policies.strategy or settings.numa_strategy
    distribution = Distribution.PACKED
    if policies.strategy is None and policies.distributes_over_numa:
        distribution = Distribution.OVER_NEEDED
    elif strategy is NumaStrategy.DISTRIBUTE_EVENLY:
        distribution = Distribution.OVER_ALL
    return PickRules(
        share_limit=settings.share_limit,
        fullest_first=strategy is NumaStrategy.MOST_ALLOCATED,
        distribution=distribution,
        downgrades=settings.follows_design,
        isolation_first=settings.follows_design,
    )


def unknown_pods(node: NodeImport, pods: Collection[RecordedPod]) -> tuple[KubeletPod, ...]:
    """The pods that a node reports with CPUs of a scheduler's, but are not recorded there.

    Source: koordinator.md, "Reported pods".
    """
    if not node.reported_pods:
        return ()
    uids, names = {pod.uid for pod in pods}, {pod.full_name for pod in pods}
    return tuple(
        pod
        for pod in node.reported_pods
        if canonical_uid(pod.uid) not in uids and f"{pod.namespace}/{pod.name}" not in names
    )


def ledger_of(node: NodeImport, pods: Collection[RecordedPod]) -> HostLedger:
    """The holdings of recorded pods, in their order, and then of those that are only reported."""
    return HostLedger(
        MappingProxyType({**{pod.consumer: pod.holding for pod in pods}, **_of_unknown(node, pods)})
    )


def _of_unknown(node: NodeImport, pods: Collection[RecordedPod]) -> dict[str, Holding]:
    """Return what pods hold that are only reported, as far as no other pod does.

    Their class is unknown and may be LSE, so best-effort pods keep off these CPUs.
    Source: koordinator.md, "Reported pods".
    """
    held = frozenset[int]().union(*(pod.holding.cpus for pod in pods)) | node.unallocatable
    return {
        f"reported {pod.uid}": Holding(pod.cpus - held, shares_with_best_effort=False)
        for pod in unknown_pods(node, pods)
    }


def occupied_host(
    node: NodeImport,
    offers: NodeOffers,
    pods: Iterable[RecordedPod],
    others: Mapping[Place, int],
    settings: SchedulerSettings,
) -> Host:
    """The host with its recorded pods; `others` is what consumers beside pods hold of its providers.

    NUMA amounts are whole units of their classes, so that what fits here can be claimed. CPUs of the pods'
    own count on their NUMA nodes even if the pods are aligned to none. Cores of which others hold threads
    are left alone altogether, as nobody says which threads those are.
    Source: koordinator.md, "Resource classes", "Per-NUMA accounts".
    """
    recorded = list(pods)
    holdings = ledger_of(node, recorded).holdings
    counted = {consumer: counted_holding(holding, offers) for consumer, holding in holdings.items()}
    unreadable = [pod.full_name for pod in recorded if pod.unreadable]
    host = host_of(node, HostLedger(MappingProxyType(counted)), settings, unreadable)
    taken = _taken_by_others(recorded, others)
    foreign = foreign_cpus(offers, others)
    state = replace(
        host.state,
        capacity=_left_over(host.state.capacity, taken),
        unallocatable=host.state.unallocatable | mask_of(foreign),
        pool=host.state.pool & ~mask_of(foreign),
    )
    return replace(host, state=state)


def foreign_cpus(offers: NodeOffers, others: Mapping[Place, int]) -> CpuSet:
    """What consumers beside pods may be on: all CPUs of the cores of which they hold threads.

    Nobody says which threads those are; reserved CPUs are nobody's.
    """
    if not others:
        return frozenset()
    return frozenset(cpu for cpu, place in offers.cores.items() if place in others) - offers.reserved


def counted_holding(holding: Holding, offers: NodeOffers) -> Holding:
    """A holding as it counts on NUMA nodes: in whole units, CPUs of a pod's own even if it is not aligned.

    Source: koordinator.md, "Resource classes".
    """
    if not (holding.amounts or holding.cpus):
        return holding
    amounts = {
        numa: {resource: _rounded_up(resource, amount) for resource, amount in row.items()}
        for numa, row in holding.amounts.items()
    }
    if holding.cpus and not any("cpu" in row for row in amounts.values()):
        for numa, count in Counter(offers.numa_of.get(cpu) for cpu in holding.cpus).items():
            if numa is not None:
                amounts.setdefault(numa, {})["cpu"] = 1000 * count
    return replace(holding, amounts=NumaAmounts(amounts)) if amounts else holding


def _taken_by_others(pods: Iterable[RecordedPod], others: Mapping[Place, int]) -> Counter[Place]:
    taken = Counter(others)
    for pod in pods:
        for numa, row in pod.loose.items():
            for resource, amount in row.items():
                kind = numa_class(resource)
                taken[Place(f"numa-{numa}", kind.name)] += -(-amount // kind.unit)
    return taken


def _left_over(capacity: NumaAmounts, taken: Mapping[Place, int]) -> NumaAmounts:
    left = {}
    for numa, row in capacity.items():
        left[numa] = {
            resource: max(0, amount // kind.unit - taken.get(Place(f"numa-{numa}", kind.name), 0)) * kind.unit
            for resource, amount in row.items()
            for kind in (numa_class(resource),)
        }
    return NumaAmounts(left)


def _rounded_up(resource: str, amount: int) -> int:
    unit = numa_class(resource).unit
    return -(-amount // unit) * unit
