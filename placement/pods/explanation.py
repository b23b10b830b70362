"""An explanation of why a pod fits nowhere: the stages of the filter in order, and the nearest nodes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from placement.allocations.kubernetes_resources import CORE_CLASS, host_class
from placement.engine.domain.explanation import (
    MOST_MISSES,
    Condition,
    ConditionKind,
    CountedUnit,
    Explanation,
    Miss,
    Obstacle,
    Reason,
    Shortage,
    Stage,
    first_empty,
)
from placement.engine.forest.arrays import Shares
from placement.engine.numa.cpuset import format_cpu_list
from placement.engine.numa.demand import (
    BindPolicy,
    Distribution,
    ExclusiveLevel,
    NumaPolicy,
    PodRefused,
    Refusal,
)
from placement.engine.search.shortages import amount
from placement.pods.column_filter import asked_at
from placement.pods.cycle import PodShape
from placement.pods.host import PODS_CLASS, Host, alignment_on, demand_on
from placement.pods.koordinator.annotations import quantities
from placement.pods.koordinator.pod import PodRequest
from placement.pods.manifests.selection import CORDONED, NodeSelection, untolerated
from placement.pods.node_info import NodeInfo
from placement.pods.snapshot import NodeColumns

# Explanations for operators of where a pod goes, and where not: remarks, and reasons in plain words.


def remarks_on(host: Host, request: PodRequest) -> tuple[str, ...]:
    """Return what is remarkable about a pod on a host, one sentence each, whether it fits there or not.

    Source: koordinator.md, "Hardware", "Warnings and remarks".
    """
    return (*_on_binding(host, request), *_on_amplification(host, request), *_on_alignment(host, request))


def _on_binding(host: Host, request: PodRequest) -> Iterator[str]:
    cpus, policy = demand_on(host, request).cpus, host.bind.policy
    if cpus is None:
        return
    if not request.bound:
        yield f"the host's bind policy {policy} gives CPUs of their own to all pods that request CPUs"
    if request.preferred_bind and cpus.strict and cpus.bind is not request.preferred_bind:
        yield f"the preferred bind policy {request.preferred_bind} gives way to the required {cpus.bind}"
    if host.bind.whole_cores_only:
        if BindPolicy.SPREAD_BY_PCPUS in (request.required_bind, request.preferred_bind):
            yield "SpreadByPCPUs has no effect on ARM, which knows FullPCPUs only"
        if request.exclusive is ExclusiveLevel.PCPU_LEVEL:
            yield "PCPULevel has no effect on ARM, which knows NUMANodeLevel only"
    elif host.state.layout.threads == 1:
        if cpus.bind is BindPolicy.SPREAD_BY_PCPUS:
            yield "cores have one thread: SpreadByPCPUs chooses as FullPCPUs does"
        if cpus.exclusive is ExclusiveLevel.PCPU_LEVEL:
            yield "cores have one thread: PCPULevel has no neighbours to avoid"


def _on_amplification(host: Host, request: PodRequest) -> Iterator[str]:
    ratio = float(host.state.cpu_ratio)
    if ratio > 1 and demand_on(host, request).cpus is not None:
        yield f"the host advertises more CPUs than it has: each bound CPU costs {ratio:g}"


def _on_alignment(host: Host, request: PodRequest) -> Iterator[str]:
    try:
        policy = alignment_on(host, request).policy
    except PodRefused:
        return
    distributes = host.state.rules.distribution is Distribution.OVER_ALL
    if distributes and policy is NumaPolicy.SINGLE_NUMA_NODE and demand_on(host, request).cpus is not None:
        yield "DistributeEvenly gives way to the NUMA policy SingleNUMANode: the pod stays on one NUMA node"
    if policy is NumaPolicy.SINGLE_NUMA_NODE and len(host.state.capacity) == 1:
        yield "the host has one NUMA node: aligned pods are not accounted for there"


_UNALIGNED = "Unaligned NUMA Hint cause "
_HINT = re.compile(r"([^ ,]+) prefer \[[01 ]*\] among \[([01 ]*)\]")


def in_plain_words(reason: str) -> str:
    """Return the reason, followed by what it means if it needs that."""
    if not reason.startswith(_UNALIGNED):
        return reason
    places = "; ".join(f"{resource} fits on {_places(masks)}" for resource, masks in _HINT.findall(reason))
    return f"{reason} ({places}; the NUMA policy of the pod or of the node admits none of that)"


def _places(masks: str) -> str:
    """Return words for sets of NUMA nodes, given as binary numbers with NUMA node 0 as their last digit."""
    sets = [[numa for numa, digit in enumerate(reversed(mask)) if digit == "1"] for mask in masks.split()]
    return " or ".join(f"NUMA node{'s' * (len(ids) > 1)} {'+'.join(map(str, ids))}" for ids in sets)


_FREE_OF_TAINTS = Condition(ConditionKind.TAINTS, "no taint that the pod does not tolerate")
_NOT_CORDONED = Condition(
    ConditionKind.CORDON, "not cordoned, or that is tolerated", forbidden=(str(CORDONED),)
)

# Rules about other pods, in the order of the filter; the obstacle names the one that refused.
_RULES = {
    ConditionKind.TOPOLOGY_SPREAD: "topology spread",
    ConditionKind.POD_AFFINITY: "pod affinity",
    ConditionKind.POD_ANTI_AFFINITY: "pod anti-affinity",
    ConditionKind.PLACED_ANTI_AFFINITY: "anti-affinity of placed pods",
}


def explain_pod(shape: PodShape, columns: NodeColumns, refusals: Mapping[str, Refusal]) -> Explanation:
    """Explain the refusals of a pod by some of these nodes, by name; the pod fits on the others.

    Each node counts as refused at the obstacle of its refusal, and as passing the stages before.
    """
    failed: dict[Obstacle, list[int]] = {}
    for row, name in sorted((columns.row_of(name), name) for name in refusals):
        failed.setdefault(refusals[name].obstacle, []).append(row)
    conditions = dict(_conditions(shape, failed))
    stages = tuple(_stages(conditions, failed, len(columns.nodes)))
    empty = first_empty(stages)
    if empty is None:
        return Explanation(stages)
    obstacle, condition = list(conditions.items())[empty]
    near = list(_nearest(shape, columns, failed.get(obstacle, []), obstacle))
    misses = (
        _miss(node, shape.selection, refusals[node.name], shortages, condition) for node, shortages in near
    )
    return Explanation(stages, tuple(misses), names={node.root_uuid: node.provider_name for node, _ in near})


def _stages(
    conditions: Mapping[Obstacle, Condition], failed: Mapping[Obstacle, Sequence[int]], came: int
) -> Iterator[Stage]:
    for obstacle, condition in conditions.items():
        passed = came - len(failed.get(obstacle, ()))
        yield Stage(condition, CountedUnit.NODES, came, passed, passed)
        came = passed


# -- the conditions -------------------------------------------------------------------------------------


def _conditions(shape: PodShape, failed: Collection[Obstacle]) -> Iterator[tuple[Obstacle, Condition]]:
    """Yield what the pod asks for in the order of the filter, and what else nodes failed."""
    yield from _of_selection(shape.selection)
    yield Obstacle(ConditionKind.AMOUNT, PODS_CLASS), amount(PODS_CLASS, 1)
    request = shape.request
    if request is not None:
        for resource, base in request.amounts.items():
            kind = host_class(resource)
            yield Obstacle(ConditionKind.AMOUNT, kind.name), amount(kind.name, -(-base // kind.unit))
        for condition, is_stated in _of_policies(request):
            obstacle = Obstacle(condition.kind)
            if is_stated or obstacle in failed:
                yield obstacle, condition
    yield from _of_rules(failed)
    if Obstacle(ConditionKind.INVENTORIES) in failed:
        yield (
            Obstacle(ConditionKind.INVENTORIES),
            Condition(ConditionKind.INVENTORIES, "inventories as they were imported"),
        )


def _of_rules(failed: Collection[Obstacle]) -> Iterator[tuple[Obstacle, Condition]]:
    for kind, words in _RULES.items():
        for obstacle in failed:
            if obstacle.kind is kind:
                yield obstacle, Condition(kind, f"{words}: {obstacle.of}")


def _of_selection(selection: NodeSelection) -> Iterator[tuple[Obstacle, Condition]]:
    yield Obstacle(ConditionKind.CORDON), _NOT_CORDONED
    yield Obstacle(ConditionKind.TAINTS), _FREE_OF_TAINTS
    for key, value in selection.selector:
        label = f"{key}={value}"
        yield (
            Obstacle(ConditionKind.LABELS, key),
            Condition(ConditionKind.LABELS, f"label {label}", required=((label,),)),
        )
    if selection.terms is not None:
        terms = tuple(map(str, selection.terms))
        text = f"node affinity: {' or '.join(terms)}"
        yield Obstacle(ConditionKind.AFFINITY), Condition(ConditionKind.AFFINITY, text, required=(terms,))


def _of_policies(request: PodRequest) -> Iterator[tuple[Condition, bool]]:
    """Yield the conditions beyond amounts, and whether the pod itself states them; otherwise nodes do."""
    need, aligned = request.need, request.numa.policy is not NumaPolicy.NONE
    cpu = host_class("cpu").name
    yield Condition(ConditionKind.NUMA_POLICY, f"NUMA policy {request.numa.policy}, or none"), aligned
    yield (
        Condition(ConditionKind.WHOLE_CPUS, "whole CPUs, where nodes give all pods CPUs of their own"),
        False,
    )
    yield Condition(ConditionKind.AMPLIFIED_CPU, f"{cpu} free at the ratio of the node", cpu), False
    yield (
        Condition(ConditionKind.CPU_BINDING, "CPUs that can be bound as pod and node require"),
        request.bound,
    )
    yield Condition(ConditionKind.NUMA, "NUMA nodes to which the pod can be aligned"), aligned
    yield (
        Condition(ConditionKind.CPUS, f"{need} free CPUs under the bind policy", CORE_CLASS, need),
        request.bound,
    )
    pool = request.burst_limit
    yield (
        Condition(ConditionKind.SHARED_POOL, f"a shared pool of {pool} millicores", wanted=pool),
        pool is not None,
    )


# -- the near misses ------------------------------------------------------------------------------------


def _nearest(
    shape: PodShape, columns: NodeColumns, rows: Sequence[int], obstacle: Obstacle
) -> Iterator[tuple[NodeInfo, tuple[Shortage, ...]]]:
    """Yield the nodes in these rows that lack least, and the amounts that they lack."""
    asked = asked_at(obstacle.kind, columns.table.rows(np.array(rows, np.intp)), shape.request)
    gaps: Shares = np.sum([each.gap for each in asked], axis=0) if asked else np.zeros(len(rows))
    for at in np.argsort(gaps, kind="stable")[:MOST_MISSES].tolist():
        node = columns.nodes[rows[at]]
        yield (
            node,
            tuple(
                Shortage(Reason.AMOUNT, (), node.root_uuid, each.resource_class, wanted, free, wanted - free)
                for each in asked
                if (wanted := each.wanted_units(at)) > (free := each.free_units(at))
            ),
        )


def _miss(
    node: NodeInfo,
    selection: NodeSelection,
    refusal: Refusal,
    shortages: tuple[Shortage, ...],
    condition: Condition,
) -> Miss:
    unwanted = condition.forbidden
    if condition.kind is ConditionKind.TAINTS:
        unwanted = tuple(map(str, untolerated(node.attributes.taints, selection.tolerations)))
    return Miss(
        node.root_uuid,
        shortages,
        lacking=tuple(name for any_of in condition.required for name in any_of),
        unwanted=unwanted,
        words=(*map(in_plain_words, refusal.reasons), *_of_reservations(node)),
    )


def _of_reservations(node: NodeInfo) -> Iterator[str]:
    """Yield what reservations keep on the node from the pod that was refused."""
    for each in node.reservations_left:
        cpus = f"CPUs {format_cpu_list(each.holding.cpus)}" if each.holding.cpus else ""
        amounts = (f"{name} {amount}" for name, amount in quantities(each.requests).items())
        kept = ", ".join(filter(None, (cpus, *amounts)))
        if kept:
            yield f"reservation {each.name} keeps {kept}"
