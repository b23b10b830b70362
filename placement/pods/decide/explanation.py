"""Explanations why a pod fits nowhere: the stages of the filter in order, and the nearest nodes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from placement.allocations.kubernetes_resources import CORE_CLASS, host_class, resource_names
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
from placement.engine.domain.units import of_resource
from placement.engine.forest.arrays import Floats
from placement.engine.numa.cpus import format_cpu_list
from placement.engine.numa.host import BindPolicy, Refusal
from placement.pods.decide.rules import RULES
from placement.pods.decide.rules.rule import IncomingPod, PodShape
from placement.pods.manifests.selection import untolerated
from placement.pods.state.columns import AskedAmount, kind_of, offering, stays_on_one, thinning
from placement.pods.state.node_info import NodeInfo
from placement.pods.state.snapshot import NodeColumns

_ACCEPTED = Obstacle(ConditionKind.RESERVATION_AFFINITY)
_RESERVATION = "a reservation that the pod may use and that its affinity accepts"
_AS_IMPORTED = Obstacle(ConditionKind.INVENTORIES)
"""The obstacle of nodes that the write refused, not a rule."""
_UNALIGNED = "Unaligned NUMA Hint cause "
_HINT = re.compile(r"([^ ,]+) prefer \[[^]]*\] among \[([01 ]*)( and [0-9]+ more)?\]")


def explain_pod(shape: PodShape, columns: NodeColumns, refusals: Mapping[str, Refusal]) -> Explanation:
    """Explain the refusals of a pod by some of these nodes, by name; the pod fits on the others.

    Each node counts as refused at the obstacle of its refusal, and as passing the stages before.
    """
    failed: dict[Obstacle, list[int]] = {}
    for row, name in sorted((columns.row_of(name), name) for name in refusals):
        failed.setdefault(refusals[name].obstacle, []).append(row)
    pod = shape.incoming()
    conditions = _conditions(pod, failed)
    stages = _stages(conditions, failed, len(columns.nodes))
    empty = first_empty(stages)
    if empty is None:
        return Explanation(stages)
    obstacle, condition = list(conditions.items())[empty]
    misses, names = list[Miss](), dict[str, str]()
    for node, shortages in _nearest(pod, columns, failed.get(obstacle, []), obstacle):
        misses.append(_miss(shape, node, condition, shortages, refusals[node.name]))
        names[node.root_uuid] = node.provider_name
    resources = resource_names(shape.request.amounts)
    return Explanation(stages, tuple(misses), names=names, resources=resources)


def _conditions(pod: IncomingPod, obstacles: Collection[Obstacle]) -> dict[Obstacle, Condition]:
    """Return the conditions in their order by obstacle; conditions that no rule states are first or last."""
    conditions = {}
    if _ACCEPTED in obstacles:
        conditions[_ACCEPTED] = Condition(_ACCEPTED.kind, _RESERVATION)
    conditions |= {obstacle: each for rule in RULES for obstacle, each in rule.conditions(pod, obstacles)}
    if _AS_IMPORTED in obstacles:
        conditions[_AS_IMPORTED] = Condition(_AS_IMPORTED.kind, "inventories as they were imported")
    for obstacle in obstacles:
        # Without a stage, a node that failed it would count as one on which the pod fits.
        if obstacle not in conditions:
            about = f": {obstacle.of}" if obstacle.of else ""
            conditions[obstacle] = Condition(obstacle.kind, f"{obstacle.kind.replace('_', ' ')}{about}")
    return conditions


def _stages(
    conditions: Mapping[Obstacle, Condition], failed: Mapping[Obstacle, Sequence[int]], count: int
) -> tuple[Stage, ...]:
    """Return a stage for each condition in turn; `count` nodes come to the first."""
    stages, came = list[Stage](), count
    for obstacle, condition in conditions.items():
        passed = came - len(failed.get(obstacle, ()))
        stages.append(Stage(condition, CountedUnit.NODES, came, passed, passed, trees_came=came))
        came = passed
    return tuple(stages)


def _miss(
    shape: PodShape,
    node: NodeInfo,
    condition: Condition,
    shortages: tuple[Shortage, ...],
    refusal: Refusal,
) -> Miss:
    unwanted = condition.forbidden
    if condition.kind is ConditionKind.TAINTS:
        tolerated = shape.selection.tolerations
        unwanted = tuple(map(str, untolerated(node.attributes.taints, tolerated)))
    lacking = tuple(name for any_of in condition.required for name in any_of)
    words = (*map(in_plain_words, refusal.reasons), *_kept_on(node))
    return Miss(node.root_uuid, shortages, lacking=lacking, unwanted=unwanted, words=words)


def _nearest(
    pod: IncomingPod, columns: NodeColumns, rows: Sequence[int], obstacle: Obstacle
) -> Iterator[tuple[NodeInfo, tuple[Shortage, ...]]]:
    """Yield the nodes in these rows that lack least, and the amounts that they lack."""
    table = columns.table.rows(np.array(rows, np.intp))
    asked = [each for rule in RULES for each in rule.asked(obstacle.kind, table, pod)]
    missing_shares: Floats = sum((each.missing_shares for each in asked), np.zeros(len(rows)))
    # A node that has none of a class is farther than one where all of it is in use.
    lacking = ~offering(table, pod.request) if asked else np.zeros(len(rows), np.bool_)
    on_one = stays_on_one(table, pod.request) & (obstacle.kind is ConditionKind.NUMA)
    for at in np.lexsort((missing_shares, lacking))[:MOST_MISSES].tolist():
        node = columns.nodes[rows[at]]
        bind = thinning(pod.request, kind_of(node.host))
        short = [each for each in asked if each.wanted_units(at) > each.free_units(at)]
        yield node, tuple(_shortage(node, each, at, bind, on_one=bool(on_one[at])) for each in short)


def _shortage(
    node: NodeInfo, asked: AskedAmount, row: int, bind: BindPolicy | None, *, on_one: bool
) -> Shortage:
    """Return how much of an amount a node lacks, which has this row among the amounts."""
    wanted, free = asked.wanted_units(row), asked.free_units(row)
    counted = _counted(asked, free, bind, on_one=on_one)
    name = asked.resource_class
    return Shortage(Reason.AMOUNT, (), node.root_uuid, name, wanted, free, wanted - free, counted=counted)


def _counted(asked: AskedAmount, free: int, bind: BindPolicy | None, *, on_one: bool) -> str:
    """Return words for the units that are free; `bind` is the strict policy that leaves some CPUs out."""
    where = " on one NUMA node" if on_one else ""
    if asked.resource_class == CORE_CLASS and bind is BindPolicy.SPREAD_BY_PCPUS:
        return f"core{'' if free == 1 else 's'} with a free CPU{where}, and {bind} takes one CPU of each"
    if asked.resource_class == CORE_CLASS and bind is BindPolicy.FULL_PCPUS:
        return f"free in whole cores{where}, and {bind} takes no others"
    return f"free{where}"


def _kept_on(node: NodeInfo) -> Iterator[str]:
    """Yield the CPUs and amounts of the node that reservations keep from the refused pod, in words."""
    for each in node.reservations_left:
        cpus = f"CPUs {format_cpu_list(each.holding.cpus)}" if each.holding.cpus else ""
        classes = ((name, amount, host_class(name)) for name, amount in each.requests.items() if amount)
        amounts = (of_resource(-(-amount // of.unit), of.name, name) for name, amount, of in classes)
        kept = ", ".join(filter(None, (cpus, *amounts)))
        if kept:
            yield f"reservation {each.name} keeps {kept}"


def in_plain_words(reason: str) -> str:
    """Return the reason, followed by what it means if it needs that."""
    if not reason.startswith(_UNALIGNED):
        return reason
    found = _HINT.findall(reason)
    places = "; ".join(f"{resource} fits on {_places(masks)}{more}" for resource, masks, more in found)
    return f"{reason} ({places}; the NUMA policy of the pod or of the node admits none of these)"


def _places(masks: str) -> str:
    """Return words for sets of NUMA nodes, given as binary numbers with NUMA node 0 as their last digit."""
    sets = [[numa for numa, digit in enumerate(reversed(mask)) if digit == "1"] for mask in masks.split()]
    return " or ".join(f"NUMA node{'s' * (len(ids) > 1)} {'+'.join(map(str, ids))}" for ids in sets)
