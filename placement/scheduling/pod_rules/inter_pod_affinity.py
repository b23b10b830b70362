"""Affinity and anti-affinity between pods, of those that come and of those that are placed.

Source: kube-scheduler, plugin InterPodAffinity.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from placement.domain.explanation import Kind, Obstacle
from placement.forest.arrays import Amounts, Mask, Rows
from placement.kubernetes.pod_affinity import PodTerm, WeightedTerm
from placement.kubernetes.pod_rules import PodRules
from placement.numa.refusal import Refusal, RefusalClass
from placement.scheduling.columns.node_columns import NodeColumns
from placement.scheduling.pod_rules.placed_pods import PlacedPods, in_rows, per_place, places
from placement.scoring.rule import BEST

NOT_NEAR = "node(s) didn't match pod affinity rules"
NOT_APART = "node(s) didn't match pod anti-affinity rules"
KEPT_OFF = "node(s) didn't satisfy existing pods anti-affinity rules"


def refused_by_affinity(
    columns: NodeColumns, rules: PodRules, placed: PlacedPods
) -> Iterator[tuple[Mask, Refusal]]:
    """The nodes that required terms keep a pod off, and why, in the order in which that counts."""
    affinity = rules.affinity
    if affinity.near:
        far = ~_near(columns, rules, placed)
        of = " and ".join(map(str, affinity.near))
        yield far, Refusal((NOT_NEAR,), RefusalClass.UNRESOLVABLE, Obstacle(Kind.POD_AFFINITY, of))
    for term in affinity.apart:
        there = per_place(places(columns, term.topology_key), placed.matching(columns, (term.pods,)))
        yield there > 0, Refusal((NOT_APART,), obstacle=Obstacle(Kind.POD_ANTI_AFFINITY, str(term)))
    for wish, rows in placed.wishes_about(columns, rules.bearer).items():
        if isinstance(wish, PodTerm):
            having = per_place(places(columns, wish.topology_key), in_rows(rows, len(columns.nodes)))
            yield having > 0, Refusal((KEPT_OFF,), obstacle=Obstacle(Kind.PLACED_ANTI_AFFINITY, str(wish)))


def keep_off(columns: NodeColumns, rules: PodRules, placed: PlacedPods) -> bool:
    """Whether placed pods keep this one off some nodes by required anti-affinity."""
    return any(isinstance(wish, PodTerm) for wish in placed.wishes_about(columns, rules.bearer))


def _near(columns: NodeColumns, rules: PodRules, placed: PlacedPods) -> Mask:
    """The nodes near which are pods that all required terms select.

    Where there are none yet, a pod that its own terms select is the first of them, and may go anywhere.
    """
    terms = rules.affinity.near
    selectors = tuple(dict.fromkeys(term.pods for term in terms))
    counts = placed.matching(columns, selectors)
    labelled = np.ones(len(columns.nodes), np.bool_)
    near = labelled.copy()
    anybody = False
    for term in terms:
        at = places(columns, term.topology_key)
        there = per_place(at, counts)
        labelled &= at >= 0
        near &= there > 0
        anybody = anybody or bool(there.any())
    is_first = not anybody and all(each.selects(rules.bearer) for each in selectors)
    return labelled if is_first else labelled & near


def affinity_scores(columns: NodeColumns, rules: PodRules, placed: PlacedPods, rows: Rows) -> Amounts | None:
    """How well the nodes in these rows suit a pod by preferred terms, 0 to 100; None if that is all the same.

    Its own terms count, those of placed pods, and required affinity of placed pods a little.
    """
    total = np.zeros(len(columns.nodes), np.int64)
    affinity = rules.affinity
    own = [
        *affinity.rather_near,
        *(WeightedTerm(-weight, term) for weight, term in affinity.rather_apart),
    ]
    for weight, term in own:
        counts = placed.matching(columns, (term.pods,))
        total += weight * per_place(places(columns, term.topology_key), counts)
    for wish, having in placed.wishes_about(columns, rules.bearer).items():
        if isinstance(wish, WeightedTerm):
            counts = in_rows(having, len(columns.nodes))
            total += wish.weight * per_place(places(columns, wish.term.topology_key), counts)
    asked = total[rows]
    if not len(rows) or asked.min() == asked.max():
        return None
    least, most = int(asked.min()), int(asked.max())
    scores: Amounts = BEST * (asked - least) // (most - least)
    return scores
