"""The CPUs and NUMA nodes of a host: the policies, and one decision on which of them a pod gets.

Bound CPUs, NUMA alignment, reservations and shared pools depend on each other, so one rule decides on them.
What it admits can be allocated, and the score is that of the allocation. Equal hosts answer once.
Source: koordinator.md, "Filter", "Score", "Reserve".
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

import numpy as np

from placement.allocations.kubernetes_resources import CORE_CLASS, CPU_CLASS
from placement.engine.domain.explanation import Condition, ConditionKind, Obstacle
from placement.engine.domain.units import of_resource
from placement.engine.forest.arrays import Amounts, Mask
from placement.engine.numa import allocator
from placement.engine.numa import host as numa_host
from placement.engine.numa.alignment import Alignment, choose_affinity, favour_idle
from placement.engine.numa.cpus import mask_of, members_of
from placement.engine.scoring.order import Order
from placement.pods.decide.rules.rule import Fit, HostAnswer, IncomingPod, Rule, Stated
from placement.pods.state import columns as state_columns
from placement.pods.state import model
from placement.pods.state.host import Host, alignment_on, demand_on, pod_bind_policy
from placement.pods.state.node_info import NodeInfo
from placement.pods.state.snapshot import NodeColumns

BIND_CONFLICT = "node(s) cpu bind policy conflicts with pod's required cpu bind policy"
NOT_WHOLE_CORES = "node(s) requested cpus not multiple cpus per core"
UNREADABLE_PODS = "node(s) have pods with unreadable resource-status"
UNREADABLE_RESERVATION = "node(s) have a reservation of CPUs that cannot be read"
POOLS_TOO_SMALL = "node(s) CPU shared pools do not cover the pod's CPU limit"
_POLICY, _WHOLE = Obstacle(ConditionKind.NUMA_POLICY), Obstacle(ConditionKind.WHOLE_CPUS)
_BINDING, _NUMA = Obstacle(ConditionKind.CPU_BINDING), Obstacle(ConditionKind.NUMA)
_CPUS, _POOL = Obstacle(ConditionKind.CPUS), Obstacle(ConditionKind.SHARED_POOL)


class MatchingPolicies(Rule):
    """A rule that the policies of pod and host agree, before CPUs are looked at."""

    def concerns(self, pod: IncomingPod) -> bool:
        """Return whether the pod requests anything."""
        return pod.request is not model.NO_REQUEST

    def mask(self, columns: NodeColumns, pod: IncomingPod) -> Mask:
        """Return the nodes with the NUMA policy of the pod, or where one of both has none."""
        return columns.table.where_kind(
            lambda kind: state_columns.effective_policy(pod.request, kind) is not None
        )

    def refuse(self, node: NodeInfo, pod: IncomingPod) -> numa_host.Refusal | None:
        """Return the refusal by the policies of the host."""
        found = answer_of(node.host, pod)
        return found.answer if found.by_policies and isinstance(found.answer, numa_host.Refusal) else None

    def conditions(self, pod: IncomingPod, obstacles: Collection[Obstacle]) -> Stated:
        """Yield the conditions that the pod states itself, and others that nodes do not meet."""
        policy = pod.request.numa.policy
        if policy is not numa_host.NumaPolicy.NONE or _POLICY in obstacles:
            yield _POLICY, Condition(_POLICY.kind, f"NUMA policy {policy}, or none")
        if _WHOLE in obstacles:
            yield _WHOLE, Condition(_WHOLE.kind, "whole CPUs, where nodes give all pods CPUs of their own")


class CpusAndNumaNodes(Rule):
    """A rule that the host has the CPUs of a bound pod, and NUMA nodes to which an aligned pod can go."""

    def concerns(self, pod: IncomingPod) -> bool:
        """Return whether the pod requests anything."""
        return pod.request is not model.NO_REQUEST

    def mask(self, columns: NodeColumns, pod: IncomingPod) -> Mask:
        """Return the nodes with as many free CPUs and amounts; which of them the pod gets, is not tried."""
        table, request = columns.table, pod.request
        if request.designated_status is not None:
            return np.ones(len(table), np.bool_)
        mask = state_columns.own_cpus(table, request).fits
        rows = np.flatnonzero(state_columns.is_aligned(table, request))
        if len(rows):
            # NUMA nodes, all together or a single one, must have room.
            aligned = table.rows(rows)
            room = (aligned[state_columns.NUMA_NODES] > 0) & state_columns.fits_all(
                aligned, state_columns.on_all_numa_nodes(aligned, request)
            )
            single = state_columns.stays_on_one(aligned, request)
            if single.any():
                fitting = [
                    state_columns.numa_fits(aligned, request, place) for place in range(aligned.numa_nodes)
                ]
                room &= ~single | np.logical_or.reduce(fitting)
            mask[rows] &= room
        return mask | (table[state_columns.VAST] > 0)

    def refuse(self, node: NodeInfo, pod: IncomingPod) -> numa_host.Refusal | None:
        """Return why the pod gets no CPUs, or no NUMA nodes."""
        answer = answer_of(node.host, pod).answer
        return answer if isinstance(answer, numa_host.Refusal) else None

    def conditions(self, pod: IncomingPod, obstacles: Collection[Obstacle]) -> Stated:
        """Yield the conditions that the pod states, and others that nodes do not meet."""
        request = pod.request
        if request is model.NO_REQUEST:
            return
        if request.bound or _BINDING in obstacles:
            yield _BINDING, Condition(_BINDING.kind, "CPUs that can be bound as pod and node require")
        if request.numa.policy is not numa_host.NumaPolicy.NONE or _NUMA in obstacles:
            yield _NUMA, Condition(_NUMA.kind, "NUMA nodes to which the pod can be aligned")
        need, pool = request.need, request.burst_limit
        if request.bound or _CPUS in obstacles:
            yield _CPUS, Condition(_CPUS.kind, f"{need} free CPUs under the bind policy", CORE_CLASS, need)
        if pool is not None or _POOL in obstacles:
            yield (
                _POOL,
                Condition(
                    _POOL.kind, f"a shared pool of {of_resource(pool or 0, CPU_CLASS, 'cpu')}", wanted=pool
                ),
            )

    def asked(
        self, kind: ConditionKind, table: state_columns.NodeTable, pod: IncomingPod
    ) -> list[state_columns.AskedAmount]:
        """Return the CPUs, or the amounts on NUMA nodes."""
        if kind is ConditionKind.CPUS:
            return [state_columns.own_cpus(table, pod.request)]
        return _of_numa_nodes(table, pod.request) if kind is ConditionKind.NUMA else []


def _of_numa_nodes(
    table: state_columns.NodeTable, request: model.PodRequest
) -> list[state_columns.AskedAmount]:
    """Return the amounts wanted of all NUMA nodes; where one must do, of the one that lacks least."""
    asked = [*state_columns.on_all_numa_nodes(table, request), state_columns.own_cpus(table, request)]
    single = state_columns.stays_on_one(table, request)
    if not single.any():
        return asked

    def nearest_of(by_place: Sequence[Amounts]) -> Amounts:
        there: Amounts = np.stack(by_place)[nearest, np.arange(len(nearest))]
        return there

    places = [list(state_columns.on_numa_node(table, request, place)) for place in range(table.numa_nodes)]
    gaps = np.array([np.sum([each.missing_shares for each in place], axis=0) for place in places])
    for place in range(len(places)):
        gaps[place][table[state_columns.NUMA_NODES] <= place] = np.inf
    nearest = np.argmin(gaps, axis=0)
    return [
        *(each._replace(wanted=np.where(single, 0, each.wanted)) for each in asked),
        *(
            alike[0]._replace(
                wanted=np.where(single, nearest_of([each.wanted for each in alike]), 0),
                free=nearest_of([each.free for each in alike]),
            )
            for alike in zip(*places, strict=True)
        ),
    ]


def answer_of(host: Host, pod: IncomingPod) -> HostAnswer:
    """Return the answer of a host to a pod, remembered for equal hosts."""
    found = pod.answers.get(host)
    if found is None:
        found = pod.answers[host] = _answer(host, pod)
    return found


def _answer(host: Host, pod: IncomingPod) -> HostAnswer:
    request, by_policies = pod.request, True
    if request is model.NO_REQUEST:
        return HostAnswer(Fit(nominated=0 if pod.reservations.matched else None))
    demand = demand_on(host.binding, request)
    try:
        alignment = alignment_on(host.numa_policy, request.numa, host.numa_scoring, host.favours_idle)
        if request.designated_status is not None:
            designated_allocation = allocator.Allocation(
                mask_of(request.designated_status.cpus), request.designated_status.amounts
            )
            fit = Fit(
                designated_allocation=allocator.allocate_designated(host.state, demand, designated_allocation)
            )
        elif host.binding.binds_all(request) and request.milli_cpus % 1000:
            raise numa_host.PodRefused(
                model.CPUS_MUST_BE_INTEGER, refusal_class=numa_host.RefusalClass.UNRESOLVABLE, obstacle=_WHOLE
            )
        else:
            by_policies = False
            fit = fit_host(host, request, demand, alignment, pod.reservations)
    except numa_host.PodRefused as refused:
        return HostAnswer(refused.refusal, by_policies)
    return rate_host(host, pod, fit, demand, alignment)


def fit_host(
    host: Host,
    request: model.PodRequest,
    demand: numa_host.PodDemand,
    alignment: Alignment,
    reservations: allocator.HostReservations,
) -> Fit:
    """Return how a pod fits on the CPUs and NUMA nodes of a host; the host's totals are not looked at.

    A pod that fits can be allocated. Raises PodRefused. Source: koordinator.md, "Filter".
    """
    _check_binding(host, request, demand)
    placing, cpus = allocator.ReservedPlacing(host.state, demand, reservations), demand.cpus
    limit = request.burst_limit if cpus is None else None
    affinity = nominated = None
    if alignment.policy is not numa_host.NumaPolicy.NONE:
        least = limit or 0

        def covering(numa_ids: Sequence[int]) -> bool:
            return bool(_pools(host.state, numa_ids, least)) and placing.fits(numa_ids)

        fits = placing.fits if limit is None else covering
        affinity = choose_affinity(placing.widest_allocator, alignment, fits)
        nominated = placing.explore(affinity).reservation
    elif cpus is not None and (cpus.strict or reservations != allocator.NO_RESERVATIONS):
        nominated = placing.explore(None).reservation
    elif cpus is not None:
        # Without a strict policy any free CPU is good enough.
        if placing.widest_allocator.free_cpus.bit_count() < cpus.need:
            raise numa_host.PodRefused(numa_host.NOT_ENOUGH_CPUS, obstacle=numa_host.NO_CPUS)
    elif reservations.matched:
        # The pod takes only of the host as a whole, where every matched reservation has enough.
        nominated = 0
    if limit is not None:
        choose_pool(host.state, affinity or host.state.layout.numa_nodes, limit)
    return Fit(affinity, nominated=nominated)


def _check_binding(host: Host, request: model.PodRequest, demand: numa_host.PodDemand) -> None:
    """Raise PodRefused if a host would have to bind CPUs for this pod, but never can.

    Source: koordinator.md, "Filter", "Recovery from pods".
    """
    cpus, layout, words = demand.cpus, host.state.layout, ""
    if cpus is None:
        return
    required = host.binding.required(request)
    if not layout.cpus:
        words = numa_host.INVALID_TOPOLOGY
    elif host.is_closed:
        words = UNREADABLE_RESERVATION
    elif host.unreadable_pods:
        words = f"{UNREADABLE_PODS}: {', '.join(host.unreadable_pods)}"
    elif required and pod_bind_policy(host.binding.policy, "", required)[0] != cpus.bind:
        words = BIND_CONFLICT
    elif cpus.strict and cpus.bind is numa_host.BindPolicy.FULL_PCPUS and not layout.can_be_whole(cpus.need):
        words = NOT_WHOLE_CORES
    if words:
        raise numa_host.PodRefused(
            words, refusal_class=numa_host.RefusalClass.UNRESOLVABLE, obstacle=_BINDING
        )


def choose_pool(host: numa_host.HostState, numa_ids: Iterable[int], limit: int) -> int:
    """Return the NUMA node with the smallest, or by strategy the largest, LS pool that covers the limit.

    Raises PodRefused if there is none. Source: koordinator.md, "ConstrainedBurst".
    """
    sign = 1 if host.rules.fullest_first else -1
    sizes = ((sign * size, numa) for numa, size in _pools(host, numa_ids, limit).items())
    chosen = min(sizes, default=None)
    if chosen is None:
        raise numa_host.PodRefused(POOLS_TOO_SMALL, obstacle=_POOL)
    return chosen[1]


def _pools(host: numa_host.HostState, numa_ids: Iterable[int], limit: int) -> dict[int, int]:
    """Return the millicores of the LS pools of these NUMA nodes that cover the limit."""
    pool, nodes = host.shared_pool, host.layout.numa_nodes
    sizes = {numa: 1000 * (pool & nodes.get(numa, 0)).bit_count() for numa in numa_ids}
    return {numa: size for numa, size in sizes.items() if size >= limit}


_POOL_POLICIES = (numa_host.NumaPolicy.RESTRICTED, numa_host.NumaPolicy.SINGLE_NUMA_NODE)


@lru_cache(maxsize=1024)
def allocate_on_host(
    host: Host,
    request: model.PodRequest,
    fit: Fit,
    reservations: allocator.HostReservations = allocator.NO_RESERVATIONS,
) -> tuple[model.ResourceStatus, numa_host.CpuDemand | None]:
    """Return the status of a pod on a host on which it fits, and its demand of CPUs if it gets its own there.

    The status is empty if nothing has to be remembered. Equal hosts get equal statuses, so the last ones are
    kept: a preview of ten empty nodes allocates once. Raises PodRefused if the pod does not fit after all.
    Source: koordinator.md, "Reserve".
    """
    if request is model.NO_REQUEST:
        return model.NOTHING_GIVEN, None
    demand, alignment, allocation = demand_on(host.binding, request), None, fit.designated_allocation
    if allocation is None:
        alignment = alignment_on(host.numa_policy, request.numa, host.numa_scoring, host.favours_idle)
        allocation = _allocate(host, demand, alignment, fit, reservations)
    cpus, pools = frozenset(members_of(allocation.cpus)), []
    if demand.cpus is not None:
        return model.ResourceStatus(cpus, allocation.amounts), demand.cpus
    if alignment is not None:
        sockets = host.state.layout.socket_of_numa
        for numa in _pools_to_keep(host, request, alignment, allocation.amounts):
            if numa in sockets:
                pools.append((sockets[numa], numa))
    return model.ResourceStatus(cpus, allocation.amounts, tuple(pools)), None


def _allocate(
    host: Host,
    demand: numa_host.PodDemand,
    alignment: Alignment,
    fit: Fit,
    reservations: allocator.HostReservations,
) -> allocator.Allocation:
    """Return the allocation of the pod, and nothing to write about it. Raises PodRefused."""
    if alignment.policy is numa_host.NumaPolicy.NONE and demand.cpus is None:
        return allocator.Allocation()
    if reservations.nominated is None:
        reservations = replace(reservations, nominated=fit.nominated)
    placing = allocator.ReservedPlacing(host.state, demand, reservations)
    affinity = fit.affinity
    if alignment.policy is numa_host.NumaPolicy.BEST_EFFORT and affinity is None:
        affinity = choose_affinity(placing.widest_allocator, alignment, placing.fits)
    return placing.allocate(affinity)


def _pools_to_keep(
    host: Host, request: model.PodRequest, alignment: Alignment, amounts: numa_host.NumaAmounts
) -> tuple[int, ...]:
    """Return the NUMA nodes with LS pools that an unbound pod must not leave (koordinator.md, "Profiles")."""
    if request.burst_limit is not None:
        numa_ids = amounts or host.state.layout.numa_nodes
        return (choose_pool(host.state, numa_ids, request.burst_limit),)
    if not request.uses_ls_pools or alignment.policy not in _POOL_POLICIES:
        return ()
    if not amounts and len(host.state.capacity) == 1 and request.milli_cpus:
        # The pod is aligned to the only NUMA node, without accounts there.
        return tuple(host.state.capacity)
    return tuple(numa for numa, given in amounts.items() if "cpu" in given)


AVOIDED = 2 * numa_host.MISSED + 1
"""The amount that a host misses if a pod should avoid it, whatever else it offers."""


def rate_host(
    host: Host, pod: IncomingPod, fit: Fit, demand: numa_host.PodDemand, alignment: Alignment
) -> HostAnswer:
    """Return the answer of a host on which a pod fits: with a score of 0 if it cannot be allocated there.

    Where a pod has a NUMA policy, only the NUMA nodes that it would use count, whatever the totals are.
    Source: koordinator.md, "Score", "Preferred NUMA exclusivity", "Isolation".
    """
    state, scoring = host.state, pod.scoring
    if demand.cpus is not None and not state.layout.cpus:
        return HostAnswer(fit)
    isolates = demand.cpus is not None and state.rules.isolation_first
    aligned = alignment.policy is not numa_host.NumaPolicy.NONE
    if not isolates and not aligned:
        return HostAnswer(fit, score=numa_host.host_scorer(state, demand, scoring))
    try:
        allocation = fit.designated_allocation or _allocate(host, demand, alignment, fit, pod.reservations)
    except numa_host.PodRefused:
        return HostAnswer(fit)
    if aligned:
        score = _score_aligned(host, demand, alignment, allocation, scoring)
    else:
        score = numa_host.host_scorer(state, demand, scoring)
    if not isolates:
        return HostAnswer(fit, score=score)
    is_avoided = host.binding.is_avoided(pod.request)
    lacks = (
        AVOIDED
        if is_avoided
        else numa_host.missed(state, allocation.cpus, host.binding.preference(pod.request))
    )
    return HostAnswer(fit, score=score, missed=lacks)


def _score_aligned(
    host: Host,
    demand: numa_host.PodDemand,
    alignment: Alignment,
    allocation: allocator.Allocation,
    scoring: Order,
) -> numa_host.Scorer:
    state, idle_counts = host.state, alignment.idle_counts
    numa_ids = allocation.amounts or state.capacity

    def idle_counted(score: int) -> int:
        mask = mask_of(numa_ids)
        return favour_idle(score, mask, state.neighbours, scoring.max_score) if idle_counts else score

    if allocation.amounts:
        score = idle_counted(numa_host.score_on_numa_nodes(state, demand, scoring, numa_ids))
        return lambda totals: score
    score_host = numa_host.host_scorer(state, demand, scoring, is_aligned=True)
    return lambda totals: idle_counted(score_host(totals))
