"""Rules between pods: affinity, anti-affinity and spread, of incoming pods and of placed pods.

Source: kube-scheduler, plugin InterPodAffinity.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import numpy as np

from placement.engine.domain.explanation import Condition, ConditionKind, Obstacle
from placement.engine.forest.arrays import Amounts, Indices, Mask, Rows
from placement.engine.numa.host import Refusal, RefusalClass
from placement.engine.scoring.rule import BEST
from placement.pods.manifests.affinity import (
    Bearer,
    PodRules,
    PodSelector,
    PodTerm,
    SpreadConstraint,
    WeightedTerm,
)
from placement.pods.manifests.selection import NodeSelection
from placement.pods.node_info import NodeInfo
from placement.pods.rules.rule import IncomingPod, Rule, Stated
from placement.pods.rules.selection import guard_refusal, labelled
from placement.pods.snapshot import LabelKey, NodeColumns, NodeRows

# Which pods are placed where, counted by what others ask of them; a node that changed costs one node.
#
# Counts are made at the first request, and kept: where no pod says anything about others, there is none.


# This many selections are kept without counting anew; each keeps nodes as they were then.
_SELECTIONS_KEPT = 32
_REQUIRED_WEIGHT = 1
"""The weight of a required affinity of a placed pod for others (kube-scheduler: hardPodAffinityWeight)."""

Selectors = tuple[PodSelector, ...]
"""Pods that all of these select."""
Wishes = Mapping[WeightedTerm | PodTerm, Mapping[int, int]]
"""The number of pods that have a term, by term and row."""


class _Wishes(NamedTuple):
    """The terms of placed pods, when the nodes were these; `about`: the terms that select some pods."""

    order: object
    nodes: NodeRows
    terms: dict[WeightedTerm | PodTerm, dict[int, int]]
    about: dict[Bearer, Wishes]


class PlacedPods:
    """The pods of a cluster. Threads share it: what it returns never changes."""

    def __init__(self) -> None:
        # The pods in each row that are selected, with the nodes of that time and their order.
        self._counted: dict[tuple[Selectors, bool], tuple[object, NodeRows, Amounts]] = {}
        self._wishes: _Wishes | None = None
        self._lock = threading.Lock()

    def matching(self, columns: NodeColumns, selectors: Selectors, *, staying: bool = False) -> Amounts:
        """Return how many pods that all selectors select are on each node; `columns` are all of the cluster.

        `staying`: pods that are being deleted do not count.
        """
        asked = selectors, staying
        with self._lock:
            known = self._counted.pop(asked, None)
            if known is None or known[0] is not columns.order:
                rows, counts = list(range(len(columns.nodes))), np.zeros(len(columns.nodes), np.int64)
            else:
                rows, counts = columns.nodes.changed_since(known[1].marks), known[2]
            if rows:
                counts = counts.copy()
                selected: dict[Bearer, bool] = {}
                for row in rows:
                    node, total = columns.nodes[row], 0
                    for bearer, count in (node.staying_bearers if staying else node.bearers).items():
                        is_meant = selected.get(bearer)
                        if is_meant is None:
                            is_meant = selected[bearer] = all(each.selects(bearer) for each in selectors)
                        total += count * is_meant
                    counts[row] = total
            self._counted[asked] = (columns.order, columns.nodes, counts)
            if len(self._counted) > _SELECTIONS_KEPT:
                del self._counted[next(iter(self._counted))]
        return counts

    def wishes_about(self, columns: NodeColumns, bearer: Bearer) -> Wishes:
        """Return terms of placed pods that select such a pod: required ones against it, and scored ones.

        The latter have a weight, which is negative if the placed pod prefers to be apart. Each term is tried
        once, until the terms change.
        """
        with self._lock:
            wishes = self._wishes = self._counted_wishes(columns)
            found = wishes.about.get(bearer)
            if found is None:
                found = {
                    wish: rows
                    for wish, rows in wishes.terms.items()
                    if (wish.term if isinstance(wish, WeightedTerm) else wish).pods.selects(bearer)
                }
                wishes.about[bearer] = found
                if len(wishes.about) > _SELECTIONS_KEPT:
                    del wishes.about[next(iter(wishes.about))]
        return found

    def _counted_wishes(self, columns: NodeColumns) -> _Wishes:
        known = self._wishes
        terms: dict[WeightedTerm | PodTerm, dict[int, int]] = {}
        own: set[object] = set()
        if known is None or known.order is not columns.order:
            for row, node in enumerate(columns.nodes):
                _add(terms, own, row, node, 1)
            return _Wishes(columns.order, columns.nodes, terms, {})
        changed = [
            (row, known.nodes[row], columns.nodes[row])
            for row in columns.nodes.changed_since(known.nodes.marks)
            if known.nodes[row].with_affinity or columns.nodes[row].with_affinity
        ]
        if not changed:
            return known._replace(nodes=columns.nodes)
        terms.update(known.terms)
        for row, before, after in changed:
            _add(terms, own, row, before, -1)
            _add(terms, own, row, after, 1)
        return _Wishes(columns.order, columns.nodes, terms, {})


def _add(
    terms: dict[WeightedTerm | PodTerm, dict[int, int]], own: set[object], row: int, node: NodeInfo, each: int
) -> None:
    """Count the terms of a node; only rows of our `own` terms are written to."""
    for affinity in (pod.affinity for pod in node.with_affinity):
        wishes: tuple[WeightedTerm | PodTerm, ...] = (
            *affinity.apart,
            *(WeightedTerm(_REQUIRED_WEIGHT, term) for term in affinity.near),
            *affinity.rather_near,
            *(WeightedTerm(-weight, term) for weight, term in affinity.rather_apart),
        )
        for term in wishes:
            if term not in own:
                own.add(term)
                terms[term] = dict(terms.get(term, ()))
            rows = terms.setdefault(term, {})
            rows[row] = rows.get(row, 0) + each
            if not rows[row]:
                del rows[row]
            if not rows:
                del terms[term]


def places(columns: NodeColumns, topology_key: str) -> Indices:
    """Return the place in which each node is, by number; negative where it has none."""
    return columns.label(LabelKey(topology_key)).codes


def per_place(at: Indices, counts: Amounts) -> Amounts:
    """Return for each node the sum over all nodes that are in its place; 0 where it has none."""
    there = at >= 0
    totals = np.zeros(int(at.max(initial=-1)) + 1, np.int64)
    np.add.at(totals, at[there], counts[there])
    found = np.zeros(len(at), np.int64)
    found[there] = totals[at[there]]
    return found


def in_rows(rows: Mapping[int, int], length: int) -> Amounts:
    """Return numbers of some rows as a column."""
    column = np.zeros(length, np.int64)
    column[list(rows)] = list(rows.values())
    return column


# What both rules have in common: they refuse rows of the whole cluster, and score the rows that are left.


Refused = list[tuple[Mask, Refusal]]
"""Nodes of the whole cluster that are refused, and why, in the order in which that counts."""


@dataclass(frozen=True, eq=False, kw_only=True)
class PodAmongOthers(IncomingPod):
    """An incoming pod that has rules about other pods, or that rules of other pods concern.

    `whole` are all nodes of the cluster: all pods there count. `refused` remembers what each rule refuses.
    """

    rules: PodRules
    placed: PlacedPods
    whole: NodeColumns
    refused: dict[BetweenPods, Refused] = field(default_factory=dict)

    def rows(self, columns: NodeColumns) -> Rows:
        """Return the rows that the nodes in `columns` have among all nodes."""
        if columns.order is self.whole.order:
            return np.arange(len(columns.nodes))
        return np.array([self.whole.row_of(node.name) for node in columns.nodes], np.intp)


class BetweenPods(Rule):
    """A rule about other pods; `words` has the kinds of obstacles of which it makes stages."""

    words: ClassVar[Mapping[ConditionKind, str]]

    def concerns(self, pod: IncomingPod) -> bool:
        """Return whether other pods matter."""
        return isinstance(pod, PodAmongOthers)

    def mask(self, columns: NodeColumns, pod: IncomingPod) -> Mask:
        """Return exactly the nodes that it does not refuse."""
        assert isinstance(pod, PodAmongOthers)
        mask = np.ones(len(pod.whole.nodes), np.bool_)
        for refused, _ in self._refused(pod):
            mask &= ~refused
        return mask[pod.rows(columns)]

    def refuse(self, node: NodeInfo, pod: IncomingPod) -> Refusal | None:
        """Return the first reason for which it refuses the node. Raises KeyError."""
        assert isinstance(pod, PodAmongOthers)
        row = pod.whole.row_of(node.name)
        return next((refusal for refused, refusal in self._refused(pod) if refused[row]), None)

    def conditions(self, pod: IncomingPod, failed: Collection[Obstacle]) -> Stated:
        """Yield the stages that nodes failed; the obstacle names the term."""
        for kind, words in self.words.items():
            for obstacle in failed:
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
        columns, placed, affinity = pod.whole, pod.placed, pod.rules.affinity
        if affinity.near:
            obstacle = Obstacle(ConditionKind.POD_AFFINITY, " and ".join(map(str, affinity.near)))
            far = ~_near(columns, pod.rules, placed)
            yield far, Refusal((NOT_NEAR,), RefusalClass.UNRESOLVABLE, obstacle)
        for term in affinity.apart:
            there = per_place(places(columns, term.topology_key), placed.matching(columns, (term.pods,)))
            obstacle = Obstacle(ConditionKind.POD_ANTI_AFFINITY, str(term))
            yield there > 0, Refusal((NOT_APART,), obstacle=obstacle)
        for wish, rows in placed.wishes_about(columns, pod.rules.bearer).items():
            if isinstance(wish, PodTerm):
                having = per_place(places(columns, wish.topology_key), in_rows(rows, len(columns.nodes)))
                obstacle = Obstacle(ConditionKind.PLACED_ANTI_AFFINITY, str(wish))
                yield having > 0, Refusal((KEPT_OFF,), obstacle=obstacle)

    def prefers(self, pod: PodAmongOthers) -> bool:
        """Return whether the pod or placed pods have preferred terms."""
        affinity = pod.rules.affinity
        if affinity.rather_near or affinity.rather_apart:
            return True
        wishes = pod.placed.wishes_about(pod.whole, pod.rules.bearer)
        return any(isinstance(wish, WeightedTerm) for wish in wishes)

    def scores(self, pod: PodAmongOthers, rows: Rows) -> Amounts | None:
        """Return the scores of nodes in these rows by preferred terms, 0 to 100; None if all are equal.

        The pod's own terms count, terms of placed pods, and required affinity of placed pods a little.
        """
        columns, placed = pod.whole, pod.placed
        total = np.zeros(len(columns.nodes), np.int64)
        affinity = pod.rules.affinity
        against = (WeightedTerm(-weight, term) for weight, term in affinity.rather_apart)
        for weight, term in (*affinity.rather_near, *against):
            counts = placed.matching(columns, (term.pods,))
            total += weight * per_place(places(columns, term.topology_key), counts)
        for wish, having in placed.wishes_about(columns, pod.rules.bearer).items():
            if isinstance(wish, WeightedTerm):
                counts = in_rows(having, len(columns.nodes))
                total += wish.weight * per_place(places(columns, wish.term.topology_key), counts)
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


# How pods are spread over places that have a label in common.
#
# Source: kube-scheduler, plugin PodTopologySpread.


UNEVEN = "node(s) didn't match pod topology spread constraints"
NOT_LABELLED = f"{UNEVEN} (missing required label)"
# Every node is a place of its own by this key, and is not looked up as one.
_HOSTNAME = "kubernetes.io/hostname"


class TopologySpread(BetweenPods):
    """A rule that pods with the same labels are spread evenly over places."""

    words: ClassVar = {ConditionKind.TOPOLOGY_SPREAD: "topology spread"}

    def refusing(self, pod: PodAmongOthers) -> Iterator[tuple[Mask, Refusal]]:
        """Yield the nodes that required constraints keep a pod off, and why."""
        columns, selection, placed = pod.whole, pod.selection, pod.placed
        constraints = [each for each in pod.rules.spread if each.is_required]
        everywhere = _with_all_keys(columns, constraints)
        for each in constraints:
            obstacle = Obstacle(ConditionKind.TOPOLOGY_SPREAD, str(each))
            at = places(columns, each.topology_key)
            yield at < 0, Refusal((NOT_LABELLED,), RefusalClass.UNRESOLVABLE, obstacle)
            counting = everywhere & _counts(columns, each, selection)
            counts = placed.matching(columns, (each.pods,), staying=True)
            there = per_place(at, np.where(counting, counts, 0))
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
        columns, selection, placed = pod.whole, pod.selection, pod.placed
        constraints = [each for each in pod.rules.spread if not each.is_required]
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


def _with_all_keys(columns: NodeColumns, constraints: Sequence[SpreadConstraint]) -> Mask:
    mask = np.ones(len(columns.nodes), np.bool_)
    for each in constraints:
        mask &= places(columns, each.topology_key) >= 0
    return mask


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
