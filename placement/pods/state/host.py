"""A host as a pod without a place sees it: policies, CPUs, NUMA nodes, and the pods on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import NamedTuple

from placement.allocations.kubernetes_resources import CORE_CLASS, host_class, is_numa_only, numa_class
from placement.common.pod_identity import canonical_uid
from placement.engine.domain.explanation import ConditionKind, Obstacle
from placement.engine.domain.inventories import Inventory
from placement.engine.numa import host as numa_host
from placement.engine.numa.alignment import Alignment
from placement.engine.numa.cpus import CpuSet, SharedPool, format_cpu_list, layout_of, mask_of, shared_pools
from placement.engine.scoring.order import DEFAULT_SCORING, Strategy
from placement.pods.state.model import (
    HostBindPolicy,
    HostPolicies,
    KubeletPod,
    NodeImport,
    NumaTopologySpec,
    PodRequest,
    QosClass,
    RecordedPod,
    SchedulerSettings,
)

_POD_POLICIES = {HostBindPolicy.FULL_PCPUS_ONLY: "FullPCPUs", HostBindPolicy.SPREAD_BY_PCPUS: "SpreadByPCPUs"}


def pod_bind_policy(host_policy: HostBindPolicy, required: str, preferred: str) -> tuple[str, bool]:
    """Return the policy a bound pod gets on a host and whether it is strict; empty policies are not set.

    The requirement of the pod comes first, then the host (both strict), then the preference of the pod.
    Source: koordinator.md, "Strict bind policy".
    """
    strict = required or _POD_POLICIES.get(host_policy, "")
    return (strict, True) if strict else (preferred, False)


class HostBinding(NamedTuple):
    """A bind policy of a host.

    The second field: it gives CPUs of their own to all pods that request CPUs. `whole_cores_only`: no
    policies but FullPCPUs and NUMANodeLevel have an effect there.
    """

    policy: HostBindPolicy = HostBindPolicy.NONE
    all_pods: bool = False
    whole_cores_only: bool = False

    def binds(self, request: PodRequest) -> bool:
        """Return whether a pod gets CPUs of its own, because of itself or because of the host.

        Source: koordinator.md, "Bound pods", "Pods without CPUs of their own".
        """
        return request.bound or self.binds_all(request)

    def binds_all(self, request: PodRequest) -> bool:
        """Return whether the host binds this pod as it binds every pod that requests CPUs."""
        return self.all_pods and request.milli_cpus > 0

    def required(self, request: PodRequest) -> numa_host.BindPolicy:
        """Return the policy that a pod requires, if it has an effect (koordinator.md, "ARM hosts")."""
        without_effect = (
            self.whole_cores_only and request.required_bind is numa_host.BindPolicy.SPREAD_BY_PCPUS
        )
        return numa_host.BindPolicy.NONE if without_effect else request.required_bind

    def preference(self, request: PodRequest) -> numa_host.CpuPreference:
        """Return the preferences of a pod for its CPUs that have an effect.

        Source: koordinator.md, "ARM hosts", "Isolation".
        """
        bind, exclusive = request.required_bind or request.preferred_bind, request.exclusive
        if self.whole_cores_only:
            bind = numa_host.BindPolicy.FULL_PCPUS
            if exclusive is numa_host.ExclusiveLevel.PCPU_LEVEL:
                exclusive = numa_host.ExclusiveLevel.NONE
        return numa_host.CpuPreference(bind, exclusive)

    def is_avoided(self, request: PodRequest) -> bool:
        """Return whether a pod goes to such hosts last: it prefers to spread, but only whole cores are given.

        Source: koordinator.md, "Isolation".
        """
        spreads = (
            not request.required_bind
            and self.preference(request).bind is numa_host.BindPolicy.SPREAD_BY_PCPUS
        )
        return spreads and self.policy is HostBindPolicy.FULL_PCPUS_ONLY


UNBINDING = HostBinding()


# What the providers of a node offer, by their places below the host.

HOST = ""
PODS_CLASS = host_class("pods").name


class Place(NamedTuple):
    """A place of one inventory of a node: the path of its provider below the host, and its class."""

    path: str
    resource_class: str


@dataclass(frozen=True, eq=False)
class NodeOffers:
    """A record of all inventories of a node, and of where its logical CPUs sit.

    `cores` are the cores of CPUs as places. No consumer is given `unallocatable_cpus`; the
    `reserved_cpus` among them are taken off the inventories of cores. A bound CPU costs `ratio`.
    """

    inventories: Mapping[Place, Inventory]
    cores: Mapping[int, Place]
    numa_of: Mapping[int, int]
    numa_ids: tuple[int, ...]
    unallocatable_cpus: CpuSet
    reserved_cpus: CpuSet
    ratio: Fraction

    @cached_property
    def capacities(self) -> Mapping[Place, int]:
        """Return how many units each inventory has for consumers."""
        return {place: inventory.capacity for place, inventory in self.inventories.items()}

    @cached_property
    def below(self) -> tuple[Place, ...]:
        """Return the inventories of NUMA nodes in classes that the host lacks, for counting by host."""
        on_host = {place.resource_class for place in self.inventories if place.path == HOST}
        on_numa_nodes = {f"numa-{numa}" for numa in self.numa_ids}
        return tuple(
            place
            for place in self.inventories
            if place.path in on_numa_nodes
            and place.resource_class not in on_host
            and not is_numa_only(place.resource_class)
        )

    def host(self, resource: str) -> Place | None:
        """Return where the host as a whole offers a resource, if it does."""
        place, _ = host_place(resource)
        return place if place in self.inventories else None

    def on_numa_nodes(self, resource: str) -> dict[int, Place]:
        """Return where NUMA nodes offer a resource, by NUMA id."""
        places = {numa: numa_place(numa, resource)[0] for numa in self.numa_ids}
        return {numa: place for numa, place in places.items() if place in self.inventories}


@lru_cache(maxsize=1024)
def host_place(resource: str) -> tuple[Place, int]:
    """Return where a host that offers a resource as a whole does so, and how much of it is one unit."""
    kind = host_class(resource)
    return Place(HOST, kind.name), kind.unit


@lru_cache(maxsize=4096)
def numa_place(numa: int, resource: str) -> tuple[Place, int]:
    """Return where a NUMA node that offers a resource does so, and how much of it is one unit."""
    kind = numa_class(resource)
    return Place(f"numa-{numa}", kind.name), kind.unit


def offers_of(node: NodeImport, prefix: str) -> NodeOffers:
    """Return the offers of an imported node; `prefix` is the name of its host provider."""
    inventories = {
        Place(spec.name.removeprefix(prefix).removeprefix("/"), name): inventory
        for spec in node.tree.providers
        for name, inventory in spec.inventories.items()
    }
    rows = node.topology.by_cpu
    return NodeOffers(
        inventories=inventories,
        cores={cpu: Place(f"core-{row.socket}-{row.core}", CORE_CLASS) for cpu, row in rows.items()},
        numa_of={cpu: row.numa for cpu, row in rows.items()},
        numa_ids=tuple(sorted(node.zones.keys() | node.topology.numa_nodes.keys())),
        unallocatable_cpus=node.unallocatable_cpus,
        reserved_cpus=node.reserved_cpus,
        ratio=node.amplification.get("cpu", Fraction(1)),
    )


_SCORED_STRATEGIES = (numa_host.NumaStrategy.MOST_ALLOCATED, numa_host.NumaStrategy.LEAST_ALLOCATED)


@dataclass(frozen=True)
class Host:
    """A host: all that decides whether and where a pod fits on a node, apart from the totals of the node.

    `unreadable_pods` are names of pods there with a resource-status that does not parse: their CPUs are not
    known. `is_closed`: what withholds CPUs of the node cannot be read. `numa_scoring` and `favours_idle` say
    how its NUMA nodes are compared. The name of the node is not part of it: equal hosts get equal answers.
    The hash is computed once.
    """

    state: numa_host.HostState
    binding: HostBinding = UNBINDING
    numa_policy: numa_host.NumaPolicy = numa_host.NumaPolicy.NONE
    unreadable_pods: tuple[str, ...] = ()
    is_closed: bool = False
    numa_scoring: Strategy = DEFAULT_SCORING
    favours_idle: bool = False

    @cached_property
    def _hash(self) -> int:
        scoring = (self.numa_scoring, self.favours_idle)
        closed = (self.unreadable_pods, self.is_closed)
        return hash((self.state, self.binding, self.numa_policy, closed, scoring))

    def __hash__(self) -> int:
        return self._hash


def host_of(node: NodeImport, settings: SchedulerSettings) -> Host:
    """Return the host of an imported node without pods, under the settings of its cluster.

    Source: koordinator.md, "Keys on the node", "Scheduler settings", "Profiles", "The NUMA strategy under
    alignment".
    """
    layout = layout_of(node.topology)
    pinned = frozenset[int]().union(*(pod.cpus for pod in node.kubelet_pods))
    policies = node.policies
    default = settings.default_numa_policy if settings.follows_design else numa_host.NumaPolicy.NONE
    scoring, named = settings.numa_scoring, policies.strategy or settings.default_numa_strategy
    if settings.follows_design and named in _SCORED_STRATEGIES:
        # A strategy that host or cluster names comes before the scoring.
        scoring = Strategy(named, scoring.resources)
    return Host(
        state=numa_host.HostState(
            layout=layout,
            capacity=numa_capacity(node),
            unallocatable=mask_of(node.unallocatable_cpus),
            pool=layout.cpus & ~mask_of(pinned | node.withheld_cpus),
            cpu_ratio=node.amplification.get("cpu", Fraction(1)),
            rules=_pick_rules(policies, settings),
        ),
        binding=HostBinding(
            policies.bind,
            all_pods=not settings.follows_design and policies.bind is not HostBindPolicy.NONE,
            whole_cores_only=policies.whole_cores_only,
        ),
        numa_policy=default if policies.numa is None else policies.numa,
        is_closed=bool(node.unreadable),
        numa_scoring=scoring,
        favours_idle=settings.follows_design,
    )


def numa_capacity(node: NodeImport) -> numa_host.NumaAmounts:
    """Return the amounts that the NUMA nodes of a node have for aligned pods.

    That is what its zones report less 1000 millicores for each unallocatable CPU, at least 0. It is
    multiplied by the node's ratios unless it is reported multiplied.
    Source: koordinator.md, "NUMA amounts", "CPU amplification".
    """
    ratios: Mapping[str, Fraction] = {} if node.zones_amplified else node.amplification
    capacity = {}
    for numa, reported in node.zones.items():
        lost = node.unallocatable_cpus.intersection(node.topology.numa_nodes.get(numa, ()))
        amounts = dict(reported)
        if "cpu" in amounts:
            amounts["cpu"] = max(0, amounts["cpu"] - 1000 * len(lost))
        capacity[numa] = numa_host.amplified(amounts, ratios)
    return numa_host.NumaAmounts(capacity)


def _pick_rules(policies: HostPolicies, settings: SchedulerSettings) -> numa_host.PickRules:
    strategy = policies.strategy or settings.numa_strategy
    distribution = numa_host.Distribution.PACKED
    if policies.strategy is None and policies.distributes_over_numa:
        distribution = numa_host.Distribution.OVER_NEEDED
    elif strategy is numa_host.NumaStrategy.DISTRIBUTE_EVENLY:
        distribution = numa_host.Distribution.OVER_ALL
    return numa_host.PickRules(
        share_limit=settings.share_limit,
        fullest_first=strategy is numa_host.NumaStrategy.MOST_ALLOCATED,
        distribution=distribution,
        downgrades=settings.follows_design,
        isolation_first=settings.follows_design,
    )


def unknown_pods(node: NodeImport, pods: Collection[RecordedPod]) -> tuple[KubeletPod, ...]:
    """Return the pods that a node reports with CPUs from a scheduler, but that are not recorded there.

    Source: koordinator.md, "Reported pods".
    """
    uids, names = {pod.uid for pod in pods}, {pod.full_name for pod in pods}
    return tuple(
        pod
        for pod in node.reported_pods
        if canonical_uid(pod.uid) not in uids and f"{pod.namespace}/{pod.name}" not in names
    )


def ledger_of(node: NodeImport, pods: Collection[RecordedPod]) -> numa_host.HostLedger:
    """Return the holdings of recorded pods, in their order, and then of pods that are only reported.

    The latter have no CPUs that other pods hold. Source: koordinator.md, "Reported pods".
    """
    holdings = {pod.consumer: pod.holding for pod in pods}
    unknown = unknown_pods(node, pods) if node.reported_pods else ()
    if unknown:
        held = frozenset[int]().union(*(pod.holding.cpus for pod in pods)) | node.unallocatable_cpus
        for pod in unknown:
            # Its class is unknown and may be LSE, so best-effort pods keep off its CPUs.
            holdings[f"reported {pod.uid}"] = numa_host.Holding(
                pod.cpus - held, shares_with_best_effort=False
            )
    return numa_host.HostLedger(MappingProxyType(holdings))


def with_ledger(host: Host, ledger: numa_host.HostLedger, unreadable_pods: Sequence[str] = ()) -> Host:
    """Return a host with all pods that are recorded there."""
    layout = host.state.layout
    state = replace(
        host.state,
        use=ledger.cpu_use(layout),
        held=ledger.amounts(),
        neighbours=ledger.numa_neighbours(layout),
        grouped_cpus=ledger.grouped_cpus(layout),
    )
    return replace(host, state=state, unreadable_pods=tuple(unreadable_pods))


def without_taken(host: Host, taken: Mapping[Place, int]) -> Host:
    """Return a host with less on its NUMA nodes, in whole units, so that what fits here can be claimed.

    Source: koordinator.md, "Resource classes".
    """
    left: dict[int, dict[str, int]] = {}
    for numa, row in host.state.capacity.items():
        left[numa] = {}
        for resource, amount in row.items():
            place, unit = numa_place(numa, resource)
            left[numa][resource] = max(0, amount // unit - taken.get(place, 0)) * unit
    return replace(host, state=replace(host.state, capacity=numa_host.NumaAmounts(left)))


def occupied_host(
    bare_host: Host,
    node: NodeImport,
    offers: NodeOffers,
    pods: Sequence[RecordedPod],
    others: Mapping[Place, int],
) -> Host:
    """Return the host with its recorded pods; `others` is what consumers beside pods hold of its providers.

    `bare_host` is the host of the node without both, in whole units. CPUs of the pods' own count on their
    NUMA nodes even if the pods are aligned to none. A core is left alone altogether if others hold threads of
    it, as it is not known which threads. Source: koordinator.md, "Per-NUMA accounts".
    """
    counted, unreadable, taken = {}, [], Counter(others)
    for consumer, holding in ledger_of(node, pods).holdings.items():
        counted[consumer] = counted_holding(holding, offers)
    for pod in pods:
        if pod.unreadable:
            unreadable.append(pod.full_name)
        for numa, row in pod.loose_amounts.items():
            for resource, amount in row.items():
                place, unit = numa_place(numa, resource)
                taken[place] += -(-amount // unit)
    host = with_ledger(bare_host, numa_host.HostLedger(MappingProxyType(counted)), unreadable)
    if taken:
        host = without_taken(host, taken)
    if others:
        foreign, state = mask_of(foreign_cpus(offers, others)), host.state
        unallocatable, pool = state.unallocatable | foreign, state.pool & ~foreign
        host = replace(host, state=replace(state, unallocatable=unallocatable, pool=pool))
    return host


def foreign_cpus(offers: NodeOffers, others: Mapping[Place, int]) -> CpuSet:
    """Return the CPUs that consumers beside pods may use: all CPUs of cores where they hold threads.

    It is not known which threads these are; reserved CPUs belong to no consumer.
    """
    if not others:
        return frozenset()
    return frozenset(cpu for cpu, place in offers.cores.items() if place in others) - offers.reserved_cpus


def counted_holding(holding: numa_host.Holding, offers: NodeOffers) -> numa_host.Holding:
    """Return a holding as it counts on NUMA nodes: in whole units, own CPUs even of an unaligned pod.

    Source: koordinator.md, "Resource classes".
    """
    if not (holding.amounts or holding.cpus):
        return holding
    amounts: dict[int, dict[str, int]] = {}
    counts_cpu = False
    for numa, row in holding.amounts.items():
        amounts[numa] = {}
        for resource, amount in row.items():
            unit = numa_class(resource).unit
            amounts[numa][resource] = -(-amount // unit) * unit
        counts_cpu = counts_cpu or "cpu" in row
    if holding.cpus and not counts_cpu:
        for cpu in holding.cpus & offers.numa_of.keys():
            own = amounts.setdefault(offers.numa_of[cpu], {})
            own["cpu"] = own.get("cpu", 0) + 1000
    return replace(holding, amounts=numa_host.NumaAmounts(amounts)) if amounts else holding


# What a pod asks of one host in particular, where the policies of both meet.

POLICIES_DIFFER = "node(s) NUMA Topology policy not match"


@lru_cache(maxsize=4096)
def demand_on(binding: HostBinding, request: PodRequest) -> numa_host.PodDemand:
    """Return the demand of a pod on hosts with a bind policy; no CPUs if it gets none of its own there.

    Source: koordinator.md, "Bound pods", "Strict bind policy".
    """
    if not binding.binds(request):
        return numa_host.PodDemand(request.amounts)
    preferred, exclusive = binding.preference(request)
    policy, strict = pod_bind_policy(binding.policy, binding.required(request), preferred)
    cpus = numa_host.CpuDemand(request.need, numa_host.BindPolicy(policy), strict, exclusive, request.group)
    return numa_host.PodDemand(request.amounts, cpus)


@lru_cache(maxsize=4096)
def alignment_on(
    host_policy: numa_host.NumaPolicy, topology_spec: NumaTopologySpec, scoring: Strategy, favours_idle: bool
) -> Alignment:
    """Return how a pod is aligned on hosts with that NUMA policy, which compare NUMA nodes in that way.

    Raises PodRefused if the policies differ. Source: koordinator.md, "Effective policy", "NUMA exclusivity".
    """
    policy = merged_numa_policy(host_policy, topology_spec.policy)
    return Alignment(policy, topology_spec.effective_exclusivity, scoring, favours_idle)


def merged_numa_policy(
    host_policy: numa_host.NumaPolicy, pod_policy: numa_host.NumaPolicy
) -> numa_host.NumaPolicy:
    """Return the policy that host and pod agree on. Raises PodRefused if both set one and they differ.

    Source: koordinator.md, "Effective policy".
    """
    policies = {host_policy, pod_policy} - {numa_host.NumaPolicy.NONE}
    if len(policies) > 1:
        raise numa_host.PodRefused(
            POLICIES_DIFFER,
            refusal_class=numa_host.RefusalClass.UNRESOLVABLE,
            obstacle=Obstacle(ConditionKind.NUMA_POLICY),
        )
    return next(iter(policies), numa_host.NumaPolicy.NONE)


def remarks_on(host: Host, request: PodRequest) -> Iterator[str]:
    """Yield remarks about a pod on a host, one sentence each, whether it fits there or not.

    Source: koordinator.md, "Hardware", "Warnings and remarks".
    """
    demand = demand_on(host.binding, request).cpus
    if demand is not None:
        if not request.bound:
            policy = host.binding.policy
            yield f"the host's bind policy {policy} gives CPUs of their own to all pods that request CPUs"
        preferred = request.preferred_bind
        if preferred and demand.strict and demand.bind is not preferred:
            yield f"the preferred bind policy {preferred} gives way to the required {demand.bind}"
        if host.binding.whole_cores_only:
            if numa_host.BindPolicy.SPREAD_BY_PCPUS in (request.required_bind, preferred):
                yield "SpreadByPCPUs has no effect on ARM, which knows FullPCPUs only"
            if request.exclusive is numa_host.ExclusiveLevel.PCPU_LEVEL:
                yield "PCPULevel has no effect on ARM, which knows NUMANodeLevel only"
        elif host.state.layout.threads == 1:
            if demand.bind is numa_host.BindPolicy.SPREAD_BY_PCPUS:
                yield "cores have one thread: SpreadByPCPUs chooses as FullPCPUs does"
            if demand.exclusive is numa_host.ExclusiveLevel.PCPU_LEVEL:
                yield "cores have one thread: PCPULevel has no neighbours to avoid"
        ratio = float(host.state.cpu_ratio)
        if ratio > 1:
            yield f"the host advertises more CPUs than it has: each bound CPU costs {ratio:g}"
    # Policies that differ align nothing.
    if {host.numa_policy, request.numa.policy} - {numa_host.NumaPolicy.NONE} == {
        numa_host.NumaPolicy.SINGLE_NUMA_NODE
    }:
        yield from _remarks_on_alignment(host, is_bound=demand is not None)


def _remarks_on_alignment(host: Host, *, is_bound: bool) -> Iterator[str]:
    """Yield remarks about a pod that is aligned to a single NUMA node."""
    if is_bound and host.state.rules.distribution is numa_host.Distribution.OVER_ALL:
        gives_way = "DistributeEvenly gives way to the NUMA policy SingleNUMANode"
        yield f"{gives_way}: the pod stays on one NUMA node"
    if len(host.state.capacity) == 1:
        yield "the host has one NUMA node: aligned pods are not accounted for there"


# The shared pools of a host, computed from what is recorded there, and the CPUs on which each pod runs.

_CPU_RESOURCES = {"cpu", "kubernetes.io/batch-cpu"}


class HostPools(NamedTuple):
    """A pair of pool lists, where LS pods and where BE pods run, by socket and NUMA node."""

    ls_pools: tuple[SharedPool, ...]
    be_pools: tuple[SharedPool, ...]


def known_cpus(node: NodeImport, pod: RecordedPod) -> CpuSet:
    """Return the CPUs of a pod's list that the node has; a node without cpu-topology may have any CPU."""
    return pod.holding.cpus & node.topology.cpus if node.topology.logical_cpus else pod.holding.cpus


def own_cpus(node: NodeImport, pods: Iterable[RecordedPod], pod: RecordedPod) -> CpuSet:
    """Return the CPUs of a pod's list that the node has and that no pod recorded before it holds.

    A pod that is not among `pods` comes last.
    Source: koordinator.md, "Recovery from pods".
    """
    cpus = known_cpus(node, pod)
    for other in pods:
        if other.consumer == pod.consumer:
            break
        cpus -= other.holding.cpus
    return cpus


def pod_cpus(
    node: NodeImport, pods: Iterable[RecordedPod], pod: RecordedPod, pools: Callable[[], HostPools]
) -> CpuSet | None:
    """Return the CPUs on which the containers of a recorded pod run; None if its own are not known.

    `pools` is called only for a pod without CPUs of its own.
    Source: koordinator.md, "CPU lists of containers".
    """
    if pod.unreadable:
        return None
    if pod.holding.cpus:
        return own_cpus(node, pods, pod) or None
    pinned = (entry.cpus for entry in node.kubelet_pods if canonical_uid(entry.uid) == pod.uid)
    own = next(pinned, frozenset[int]())
    if own:
        return own
    qos = QosClass(pod.treated_as or pod.qos)
    if is_pinned_unseen(node, pod):
        return None
    if qos.uses_system_cpus and node.system_cpus:
        return node.system_cpus
    aligned = [numa for numa, given in pod.holding.amounts.items() if given.keys() & _CPU_RESOURCES]
    stays_in = pod.pools or aligned
    usable = pools().be_pools if qos.is_best_effort else pools().ls_pools
    chosen = (pool.cpus for pool in usable if not stays_in or pool.numa in stays_in)
    return frozenset[int]().union(*chosen)


def is_pinned_unseen(node: NodeImport, pod: RecordedPod) -> bool:
    """Return whether kubelet pinned a pod to CPUs that the node does not report.

    Such a pod has no class by label, and kubelet's static policy treats it as LSR. The node agent leaves its
    containers alone. Source: koordinator.md, "CPU lists of containers".
    """
    if pod.holding.cpus or pod.qos or not node.kubelet.is_static or not QosClass(pod.treated_as).owns_cpus:
        return False
    return not any(canonical_uid(entry.uid) == pod.uid for entry in node.kubelet_pods)


def report_differences(
    node: NodeImport, pods: Iterable[RecordedPod], computed_pools: HostPools
) -> Iterator[str]:
    """Yield where the node agent reports CPUs of pods other than recorded, or pools other than computed.

    Source: koordinator.md, "Reported pods", "Reported pools".
    """
    recorded = {pod.uid: pod for pod in pods}
    for report in node.reported_pods:
        known = recorded.get(canonical_uid(report.uid))
        holder, reported = f"{report.namespace}/{report.name}", format_cpu_list(report.cpus)
        if known is None:
            yield f"CPUs {reported} are reported for pod {holder}, which is not recorded here"
        elif known.holding.cpus != report.cpus:
            held = format_cpu_list(known.holding.cpus) or "none"
            yield f"CPUs {reported} are reported for pod {holder}, recorded are {held}"
    for kind, shown, pools in (
        ("LS", node.ls_pools, computed_pools.ls_pools),
        ("BE", node.be_pools, computed_pools.be_pools),
    ):
        by_numa = {pool.numa: pool.cpus for pool in pools}
        for pool in shown:
            cpus = by_numa.get(pool.numa, frozenset())
            if cpus != pool.cpus:
                which = f"the {kind} pool of NUMA node {pool.numa}"
                reported, found = format_cpu_list(pool.cpus) or "none", format_cpu_list(cpus) or "none"
                yield f"{which} has CPUs {found}; the node agent last reported {reported}"


def host_pools(node: NodeImport, ledger: numa_host.HostLedger, cpus_of_others: CpuSet) -> HostPools:
    """Return the pools of a node. CPUs of LSR pods are shared with BE pods, CPUs of LSE pods with no pod.

    `cpus_of_others` are the CPUs of cores that consumers beside pods hold, which are shared with no pod.
    Source: koordinator.md, "Pools".
    """
    pinned_cpus: CpuSet = frozenset[int]().union(*(pod.cpus for pod in node.kubelet_pods))
    bound_cpus: CpuSet = frozenset[int]().union(*(holding.cpus for holding in ledger.holdings.values()))
    return HostPools(
        ls_pools=shared_pools(node.topology, pinned_cpus | cpus_of_others | bound_cpus, node.withheld_cpus),
        be_pools=shared_pools(
            node.topology, pinned_cpus | cpus_of_others | ledger.unlendable_cpus(), node.withheld_cpus
        ),
    )
