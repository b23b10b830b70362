"""Rules between pods: affinity, anti-affinity and spread, of incoming pods and of placed pods.

Source: kube-scheduler, plugin InterPodAffinity.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from placement.engine.domain.explanation import Condition, ConditionKind, Obstacle
from placement.engine.forest.arrays import Amounts, Indices, Mask, Rows
from placement.engine.numa.host import Refusal, RefusalClass
from placement.engine.scoring.rule import BEST
from placement.pods.decide.rules.placed_pods import PlacedPods, in_same_place, per_place, places
from placement.pods.decide.rules.rule import IncomingPod, Rule, Stated
from placement.pods.decide.rules.selection import guard_refusal, labelled
from placement.pods.manifests.affinity import (
    PodRules,
    PodTerm,
    SpreadConstraint,
    WeightedTerm,
)
from placement.pods.manifests.selection import NodeSelection
from placement.pods.state.node_info import NodeInfo
from placement.pods.state.snapshot import NodeColumns

Refused = list[tuple[Mask, Refusal]]
"""Refused nodes of the whole cluster, and why, in the order that counts."""


@dataclass(frozen=True, eq=False, kw_only=True)
class PodAmongOthers(IncomingPod):
    """An incoming pod that has rules about other pods, or that rules of other pods concern.

    `whole_columns` are all nodes of the cluster: all pods there count. `refused` remembers the refusals of
    each rule.
    """

    rules: PodRules
    placed_pods: PlacedPods
    whole_columns: NodeColumns
    refused: dict[BetweenPods, Refused] = field(default_factory=dict)

    @cached_property
    def all_rows(self) -> Rows:
        """Return the rows of all nodes."""
        return np.arange(len(self.whole_columns.nodes))

    def rows(self, columns: NodeColumns) -> Rows:
        """Return the rows that the nodes in `columns` have among all nodes."""
        if columns.order is self.whole_columns.order:
            return self.all_rows
        return np.array([self.whole_columns.row_of(node.name) for node in columns.nodes], np.intp)


class BetweenPods(Rule):
    """A rule about other pods; `words` has the kinds of obstacles that become stages."""

    words: ClassVar[Mapping[ConditionKind, str]]

    def concerns(self, pod: IncomingPod) -> bool:
        """Return whether other pods matter."""
        return isinstance(pod, PodAmongOthers)

    def mask(self, columns: NodeColumns, pod: IncomingPod) -> Mask:
        """Return exactly the nodes that it does not refuse."""
        assert isinstance(pod, PodAmongOthers)
        mask = np.ones(len(pod.all_rows), np.bool_)
        for refused, _ in self._refused(pod):
            mask &= ~refused
        return mask[pod.rows(columns)]

    def refuse(self, node: NodeInfo, pod: IncomingPod) -> Refusal | None:
        """Return the first reason for which it refuses the node. Raises KeyError."""
        assert isinstance(pod, PodAmongOthers)
        row = pod.whole_columns.row_of(node.name)
        return next((refusal for refused, refusal in self._refused(pod) if refused[row]), None)

    def conditions(self, pod: IncomingPod, obstacles: Collection[Obstacle]) -> Stated:
        """Yield the stages that nodes failed; the obstacle names the term."""
        for kind, words in self.words.items():
            for obstacle in obstacles:
                if obstacle.kind is kind:
                    yield obstacle, Condition(kind, f"{words}: {obstacle.of}")

    @abstractmethod
    def refusing(self, pod: PodAmongOthers) -> Iterator[tuple[Mask, Refusal]]:
        """Yield the nodes of the whole cluster that it refuses, and why, in the order that counts."""

    @abstractmethod
    def prefers(self, pod: PodAmongOthers) -> bool:
        """Return whether it may score nodes differently."""

    @abstractmethod
    def scores(self, pod: PodAmongOthers, rows: Rows) -> Amounts | None:
        """Return the scores of nodes in these rows, 0 to 100; None if it prefers none."""

    def _refused(self, pod: PodAmongOthers) -> Refused:
        if self not in pod.refused:
            pod.refused[self] = list(self.refusing(pod))
        return pod.refused[self]


NOT_NEAR = "node(s) didn't match pod affinity rules"
NOT_APART = "node(s) didn't match pod anti-affinity rules"
KEPT_OFF = "node(s) didn't satisfy existing pods anti-affinity rules"


class Affinity(BetweenPods):
    """A rule of required and preferred terms, of the pod itself and of placed pods about it."""

    words: ClassVar = {
        ConditionKind.POD_AFFINITY: "pod affinity",
        ConditionKind.POD_ANTI_AFFINITY: "pod anti-affinity",
        ConditionKind.PLACED_ANTI_AFFINITY: "anti-affinity of placed pods",
    }

    def refusing(self, pod: PodAmongOthers) -> Iterator[tuple[Mask, Refusal]]:
        """Yield the nodes that required terms keep the pod off, and why."""
        columns, placed, affinity = pod.whole_columns, pod.placed_pods, pod.rules.affinity
        if affinity.near_terms:
            obstacle = Obstacle(ConditionKind.POD_AFFINITY, " and ".join(map(str, affinity.near_terms)))
            far = ~_near(columns, pod.rules, placed)
            yield far, Refusal((NOT_NEAR,), RefusalClass.UNRESOLVABLE, obstacle=obstacle)
        for term in affinity.apart_terms:
            there = in_same_place(columns, term.topology_key, placed.matching(columns, (term.pods,)))
            obstacle = Obstacle(ConditionKind.POD_ANTI_AFFINITY, str(term))
            yield there > 0, Refusal((NOT_APART,), obstacle=obstacle)
        for wish, rows in placed.wishes_about(columns, pod.rules.bearer).items():
            if isinstance(wish, PodTerm):
                having = in_same_place(columns, wish.topology_key, rows)
                obstacle = Obstacle(ConditionKind.PLACED_ANTI_AFFINITY, str(wish))
                yield having > 0, Refusal((KEPT_OFF,), obstacle=obstacle)

    def prefers(self, pod: PodAmongOthers) -> bool:
        """Return whether the pod or placed pods have preferred terms."""
        affinity = pod.rules.affinity
        if affinity.preferred_near_terms or affinity.preferred_apart_terms:
            return True
        wishes = pod.placed_pods.wishes_about(pod.whole_columns, pod.rules.bearer)
        return any(isinstance(wish, WeightedTerm) for wish in wishes)

    def scores(self, pod: PodAmongOthers, rows: Rows) -> Amounts | None:
        """Return the scores of nodes in these rows by preferred terms, 0 to 100; None if all are equal.

        The pod's own terms count, terms of placed pods, and required affinity of placed pods a little.
        """
        columns, placed = pod.whole_columns, pod.placed_pods
        total = np.zeros(len(columns.nodes), np.int64)
        affinity = pod.rules.affinity
        against = (WeightedTerm(-weight, term) for weight, term in affinity.preferred_apart_terms)
        for weight, term in (*affinity.preferred_near_terms, *against):
            counts = placed.matching(columns, (term.pods,))
            total += weight * in_same_place(columns, term.topology_key, counts)
        for wish, having in placed.wishes_about(columns, pod.rules.bearer).items():
            if isinstance(wish, WeightedTerm):
                total += wish.weight * in_same_place(columns, wish.term.topology_key, having)
        asked = total[rows]
        if not len(rows) or asked.min() == asked.max():
            return None
        least, most = int(asked.min()), int(asked.max())
        scores: Amounts = BEST * (asked - least) // (most - least)
        return scores


def keep_off(columns: NodeColumns, rules: PodRules, placed: PlacedPods) -> bool:
    """Return whether placed pods keep this one off some nodes by required anti-affinity."""
    return any(isinstance(wish, PodTerm) for wish in placed.wishes_about(columns, rules.bearer))


def _near(columns: NodeColumns, rules: PodRules, placed: PlacedPods) -> Mask:
    """Return the nodes near pods that all required terms select.

    Where there are none yet, a pod that its own terms select is the first of them, and may go anywhere.
    """
    terms = rules.affinity.near_terms
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


UNEVEN = "node(s) didn't match pod topology spread constraints"
NOT_LABELLED = f"{UNEVEN} (missing required label)"
# Every node is a place of its own by this key, and is not looked up as one.
_HOSTNAME = "kubernetes.io/hostname"


class TopologySpread(BetweenPods):
    """A rule that pods with the same labels are spread evenly over places.

    Source: kube-scheduler, plugin PodTopologySpread.
    """

    words: ClassVar = {ConditionKind.TOPOLOGY_SPREAD: "topology spread"}

    def refusing(self, pod: PodAmongOthers) -> Iterator[tuple[Mask, Refusal]]:
        """Yield the nodes that required constraints keep a pod off, and why."""
        columns, selection, placed = pod.whole_columns, pod.selection, pod.placed_pods
        constraints = [each for each in pod.rules.spread if each.is_required]
        places_of, everywhere = _places(columns, constraints)
        for each, at in zip(constraints, places_of, strict=True):
            obstacle = Obstacle(ConditionKind.TOPOLOGY_SPREAD, str(each))
            yield at < 0, Refusal((NOT_LABELLED,), RefusalClass.UNRESOLVABLE, obstacle=obstacle)
            counting = everywhere & _counts(columns, each, selection)
            counts = placed.matching(columns, (each.pods,), staying=True)
            there = per_place(at, np.where(counting & each.counts_placed, counts, 0))
            least = int(there[counting].min(initial=np.iinfo(np.int64).max))
            if len(np.unique(at[counting])) < each.min_domains:
                least = 0
            with_pod = there + each.pods.selects(pod.rules.bearer)
            yield with_pod - least > each.max_skew, Refusal((UNEVEN,), obstacle=obstacle)

    def prefers(self, pod: PodAmongOthers) -> bool:
        """Return whether any constraint is only preferred."""
        return not all(each.is_required for each in pod.rules.spread)

    def scores(self, pod: PodAmongOthers, rows: Rows) -> Amounts | None:
        """Return the scores of nodes for a pod that is to be spread, 0 to 100; None if it is not.

        Nodes without all the labels have 0. The more places there are, the more a pod in one of them counts.
        """
        columns, selection, placed = pod.whole_columns, pod.selection, pod.placed_pods
        constraints = [each for each in pod.rules.spread if not each.is_required]
        if not constraints or not len(rows):
            return None
        places_of, everywhere = _places(columns, constraints)
        is_known = everywhere[rows]
        uneven = np.zeros(len(rows))
        for each, at in zip(constraints, places_of, strict=True):
            counts = placed.matching(columns, (each.pods,), staying=True) * each.counts_placed
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


def _places(columns: NodeColumns, constraints: Sequence[SpreadConstraint]) -> tuple[list[Indices], Mask]:
    """Return the place of each node by the key of each constraint, and the nodes that have all keys."""
    found = [places(columns, each.topology_key) for each in constraints]
    return found, np.logical_and.reduce([at >= 0 for at in found])


def _counts(columns: NodeColumns, constraint: SpreadConstraint, selection: NodeSelection) -> Mask:
    """Return the nodes that count for a constraint of a pod with this selection."""
    mask = np.ones(len(columns.nodes), np.bool_)
    if constraint.honors_affinity:
        mask &= labelled(columns, selection)
    if constraint.honors_taints:
        mask &= columns.table.where_guard(
            lambda guard: guard_refusal(guard._replace(unschedulable=False), selection) is None
        )
    return mask
