"""How pods are spread over places that have a label in common.

Source: kube-scheduler, plugin PodTopologySpread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from placement.domain.explanation import Kind, Obstacle
from placement.forest.arrays import Amounts, Mask, Rows
from placement.kubernetes.node_selection import NodeSelection
from placement.kubernetes.pod_rules import PodRules
from placement.kubernetes.topology_spread import SpreadConstraint
from placement.numa.refusal import Refusal, RefusalClass
from placement.scheduling.columns.filter import labelled
from placement.scheduling.columns.node_columns import NodeColumns
from placement.scheduling.pod_rules.placed_pods import PlacedPods, per_place, places
from placement.scoring.rule import BEST

UNEVEN = "node(s) didn't match pod topology spread constraints"
NOT_LABELLED = f"{UNEVEN} (missing required label)"
# A place of its own for every node, which is not looked up as one.
_HOSTNAME = "kubernetes.io/hostname"


def refused_by_spread(
    columns: NodeColumns, rules: PodRules, selection: NodeSelection, placed: PlacedPods
) -> Iterator[tuple[Mask, Refusal]]:
    """The nodes that required constraints keep a pod off, and why."""
    constraints = [each for each in rules.spread if each.is_required]
    everywhere = _with_all_keys(columns, constraints)
    for each in constraints:
        obstacle = Obstacle(Kind.TOPOLOGY_SPREAD, str(each))
        at = places(columns, each.topology_key)
        yield at < 0, Refusal((NOT_LABELLED,), RefusalClass.UNRESOLVABLE, obstacle)
        counting = everywhere & _counts(columns, each, selection)
        counts = placed.matching(columns, (each.pods,), staying=True)
        there = per_place(at, np.where(counting, counts, 0))
        least = int(there[counting].min(initial=np.iinfo(np.int64).max))
        if len(np.unique(at[counting])) < each.min_domains:
            least = 0
        with_pod = there + each.pods.selects(rules.bearer)
        yield with_pod - least > each.max_skew, Refusal((UNEVEN,), obstacle=obstacle)


def _with_all_keys(columns: NodeColumns, constraints: Sequence[SpreadConstraint]) -> Mask:
    mask = np.ones(len(columns.nodes), np.bool_)
    for each in constraints:
        mask &= places(columns, each.topology_key) >= 0
    return mask


def _counts(columns: NodeColumns, constraint: SpreadConstraint, selection: NodeSelection) -> Mask:
    """The nodes that count for a constraint of a pod with this selection."""
    mask = np.ones(len(columns.nodes), np.bool_)
    if constraint.honors_affinity:
        mask &= labelled(columns, selection)
    if constraint.honors_taints:
        mask &= columns.table.where_guard(
            lambda guard: selection.guard_refusal(guard.taints, unschedulable=False) is None
        )
    return mask


def spread_scores(
    columns: NodeColumns, rules: PodRules, selection: NodeSelection, placed: PlacedPods, rows: Rows
) -> Amounts | None:
    """How well the nodes in these rows suit a pod that is to be spread, 0 to 100; None if it is not.

    Nodes without all the labels have 0. The more places there are, the more a pod in one of them counts.
    """
    constraints = [each for each in rules.spread if not each.is_required]
    if not constraints or not len(rows):
        return None
    everywhere = _with_all_keys(columns, constraints)
    is_known = everywhere[rows]
    uneven = np.zeros(len(rows))
    for each in constraints:
        at = places(columns, each.topology_key)
        counts = placed.matching(columns, (each.pods,), staying=True)
        if each.topology_key == _HOSTNAME:
            there, size = counts, int(is_known.sum())
        else:
            there = per_place(at, np.where(everywhere & _counts(columns, each, selection), counts, 0))
            size = len(np.unique(at[rows][is_known]))
        uneven += there[rows] * np.log(size + 2) + (each.max_skew - 1)
    raw = np.floor(uneven + 0.5).astype(np.int64)
    scores = np.zeros(len(rows), np.int64)
    if is_known.any():
        least, most = int(raw[is_known].min()), int(raw[is_known].max())
        scores[is_known] = BEST * (most + least - raw[is_known]) // most if most else BEST
    return scores
