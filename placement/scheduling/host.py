"""A node as pods see it that look for a place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

from placement.dialects.koordinator.node.host_policies import HostBindPolicy, HostPolicies
from placement.dialects.koordinator.node.node import NodeImport
from placement.dialects.koordinator.settings.settings import SchedulerSettings
from placement.numa.amounts import NumaAmounts
from placement.numa.amplification import amplified
from placement.numa.demand import PickRules
from placement.numa.host import HostState
from placement.numa.layout import layout_of
from placement.numa.ledger import HostLedger
from placement.numa.masks import mask_of
from placement.numa.policies import Distribution, NumaPolicy, NumaStrategy
from placement.scheduling.binding import UNBINDING, HostBinding
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
