"""Why a pod fits nowhere: the stages of the filter in its order, and the nodes that came closest."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from placement.dialects.koordinator.pod.annotations import quantities
from placement.dialects.koordinator.pod.pod_request import PodRequest
from placement.dialects.koordinator.resources import CORE_CLASS, host_class
from placement.domain.explanation import (
    MOST_MISSES,
    Condition,
    Counted,
    Explanation,
    Kind,
    Miss,
    Obstacle,
    Reason,
    Shortage,
    Stage,
    first_empty,
)
from placement.explain.vocabulary import amount
from placement.forest.arrays import Shares
from placement.kubernetes.node_selection import CORDONED, NodeSelection, untolerated
from placement.numa.cpuset import format_cpu_list
from placement.numa.demand import NumaPolicy
from placement.numa.refusal import Refusal
from placement.scheduling.columns.node_columns import NodeColumns
from placement.scheduling.columns.shortages import asked_at
from placement.scheduling.node_info import NodeInfo
from placement.scheduling.node_offers import PODS_CLASS
from placement.scheduling.pipeline import PodShape
from placement.scheduling.remarks import in_plain_words

_FREE_OF_TAINTS = Condition(Kind.TAINTS, "no taint that the pod does not tolerate")
_NOT_CORDONED = Condition(Kind.CORDON, "not cordoned, or that is tolerated", forbidden=(str(CORDONED),))

# Rules about other pods, in the order of the filter; which one it was is what the obstacle is about.
_RULES = {
    Kind.TOPOLOGY_SPREAD: "topology spread",
    Kind.POD_AFFINITY: "pod affinity",
    Kind.POD_ANTI_AFFINITY: "pod anti-affinity",
    Kind.PLACED_ANTI_AFFINITY: "anti-affinity of placed pods",
}


def explain_pod(shape: PodShape, columns: NodeColumns, refusals: Mapping[str, Refusal]) -> Explanation:
    """The explanation of the refusals of a pod by some of these nodes, by name; it fits on the others.

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
        yield Stage(condition, Counted.NODES, came, passed, passed)
        came = passed


# -- the conditions -------------------------------------------------------------------------------------


def _conditions(shape: PodShape, failed: Collection[Obstacle]) -> Iterator[tuple[Obstacle, Condition]]:
    """What the pod asks for in the order of the filter, and what else nodes failed."""
    yield from _of_selection(shape.selection)
    yield Obstacle(Kind.AMOUNT, PODS_CLASS), amount(PODS_CLASS, 1)
    request = shape.request
    if request is not None:
        for resource, base in request.amounts.items():
            kind = host_class(resource)
            yield Obstacle(Kind.AMOUNT, kind.name), amount(kind.name, -(-base // kind.unit))
        for condition, is_stated in _of_policies(request):
            obstacle = Obstacle(condition.kind)
            if is_stated or obstacle in failed:
                yield obstacle, condition
    yield from _of_rules(failed)
    if Obstacle(Kind.INVENTORIES) in failed:
        yield Obstacle(Kind.INVENTORIES), Condition(Kind.INVENTORIES, "inventories as they were imported")


def _of_rules(failed: Collection[Obstacle]) -> Iterator[tuple[Obstacle, Condition]]:
    for kind, words in _RULES.items():
        for obstacle in failed:
            if obstacle.kind is kind:
                yield obstacle, Condition(kind, f"{words}: {obstacle.of}")


def _of_selection(selection: NodeSelection) -> Iterator[tuple[Obstacle, Condition]]:
    yield Obstacle(Kind.CORDON), _NOT_CORDONED
    yield Obstacle(Kind.TAINTS), _FREE_OF_TAINTS
    for key, value in selection.selector:
        label = f"{key}={value}"
        yield Obstacle(Kind.LABELS, key), Condition(Kind.LABELS, f"label {label}", required=((label,),))
    if selection.terms is not None:
        terms = tuple(map(str, selection.terms))
        text = f"node affinity: {' or '.join(terms)}"
        yield Obstacle(Kind.AFFINITY), Condition(Kind.AFFINITY, text, required=(terms,))


def _of_policies(request: PodRequest) -> Iterator[tuple[Condition, bool]]:
    """The conditions beyond amounts, and whether the pod states them by itself; else nodes do."""
    need, aligned = request.need, request.numa.policy is not NumaPolicy.NONE
    cpu = host_class("cpu").name
    yield Condition(Kind.NUMA_POLICY, f"NUMA policy {request.numa.policy}, or none"), aligned
    yield Condition(Kind.WHOLE_CPUS, "whole CPUs, where nodes give all pods CPUs of their own"), False
    yield Condition(Kind.AMPLIFIED_CPU, f"room for {cpu} at the ratio of the node", cpu), False
    yield Condition(Kind.CPU_BINDING, "CPUs that can be bound as pod and node require"), request.bound
    yield Condition(Kind.NUMA, "NUMA nodes to which the pod can be aligned"), aligned
    yield Condition(Kind.CPUS, f"{need} free CPUs under the bind policy", CORE_CLASS, need), request.bound
    pool = request.burst_limit
    yield Condition(Kind.SHARED_POOL, f"a shared pool of {pool} millicores", wanted=pool), pool is not None


# -- the near misses ------------------------------------------------------------------------------------


def _nearest(
    shape: PodShape, columns: NodeColumns, rows: Sequence[int], obstacle: Obstacle
) -> Iterator[tuple[NodeInfo, tuple[Shortage, ...]]]:
    """The nodes in these rows that lack least, and the amounts they lack."""
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
    if condition.kind is Kind.TAINTS:
        unwanted = tuple(map(str, untolerated(node.attributes.taints, selection.tolerations)))
    return Miss(
        node.root_uuid,
        shortages,
        lacking=tuple(name for any_of in condition.required for name in any_of),
        unwanted=unwanted,
        words=(*map(in_plain_words, refusal.reasons), *_of_reservations(node)),
    )


def _of_reservations(node: NodeInfo) -> Iterator[str]:
    """What is kept there for others than the pod, which was refused."""
    for each in node.reservations_left:
        cpus = f"CPUs {format_cpu_list(each.holding.cpus)}" if each.holding.cpus else ""
        amounts = (f"{name} {amount}" for name, amount in quantities(each.requests).items())
        kept = ", ".join(filter(None, (cpus, *amounts)))
        if kept:
            yield f"reservation {each.name} keeps {kept}"
