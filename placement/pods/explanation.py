"""An explanation of why a pod fits nowhere: the stages of the filter in order, and the nearest nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

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
from placement.engine.numa.cpus import format_cpu_list
from placement.engine.numa.host import Refusal
from placement.pods.manifests.pod import quantities
from placement.pods.manifests.selection import untolerated
from placement.pods.node_info import NodeInfo
from placement.pods.rules import RULES
from placement.pods.rules.rule import IncomingPod, PodShape
from placement.pods.snapshot import NodeColumns

# Reasons in plain words.


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


_AS_IMPORTED = Obstacle(ConditionKind.INVENTORIES)
"""The obstacle of nodes that the write refused, not a rule."""


def explain_pod(shape: PodShape, columns: NodeColumns, refusals: Mapping[str, Refusal]) -> Explanation:
    """Explain the refusals of a pod by some of these nodes, by name; the pod fits on the others.

    Each node counts as refused at the obstacle of its refusal, and as passing the stages before.
    """
    failed: dict[Obstacle, list[int]] = {}
    for row, name in sorted((columns.row_of(name), name) for name in refusals):
        failed.setdefault(refusals[name].obstacle, []).append(row)
    pod = shape.incoming()
    stated = {obstacle: each for rule in RULES for obstacle, each in rule.conditions(pod, failed)}
    if _AS_IMPORTED in failed:
        stated[_AS_IMPORTED] = Condition(_AS_IMPORTED.kind, "inventories as they were imported")
    stages, came = list[Stage](), len(columns.nodes)
    for obstacle, condition in stated.items():
        passed = came - len(failed.get(obstacle, ()))
        stages.append(Stage(condition, CountedUnit.NODES, came, passed, passed))
        came = passed
    explained = tuple(stages)
    empty = first_empty(explained)
    if empty is None:
        return Explanation(explained)
    obstacle, condition = list(stated.items())[empty]
    misses, names = list[Miss](), dict[str, str]()
    for node, shortages in _nearest(pod, columns, failed.get(obstacle, []), obstacle):
        unwanted = condition.forbidden
        if condition.kind is ConditionKind.TAINTS:
            tolerated = shape.selection.tolerations
            unwanted = tuple(map(str, untolerated(node.attributes.taints, tolerated)))
        lacking = tuple(name for any_of in condition.required for name in any_of)
        words = (*map(in_plain_words, refusals[node.name].reasons), *_kept_on(node))
        misses.append(Miss(node.root_uuid, shortages, lacking=lacking, unwanted=unwanted, words=words))
        names[node.root_uuid] = node.provider_name
    return Explanation(explained, tuple(misses), names=names)


def _nearest(
    pod: IncomingPod, columns: NodeColumns, rows: Sequence[int], obstacle: Obstacle
) -> Iterator[tuple[NodeInfo, tuple[Shortage, ...]]]:
    """Yield the nodes in these rows that lack least, and the amounts that they lack."""
    table = columns.table.rows(np.array(rows, np.intp))
    asked = [each for rule in RULES for each in rule.asked(obstacle.kind, table, pod)]
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


def _kept_on(node: NodeInfo) -> Iterator[str]:
    """Yield what reservations keep on the node from the pod that was refused."""
    for each in node.reservations_left:
        cpus = f"CPUs {format_cpu_list(each.holding.cpus)}" if each.holding.cpus else ""
        amounts = (f"{name} {amount}" for name, amount in quantities(each.requests).items())
        kept = ", ".join(filter(None, (cpus, *amounts)))
        if kept:
            yield f"reservation {each.name} keeps {kept}"
