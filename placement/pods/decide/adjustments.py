"""The adjustments of rankings for one pod: reservations that it may use or ignores, rules between pods."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import takewhile
from operator import itemgetter
from typing import Any

import numpy as np

from placement.engine.domain.explanation import ConditionKind, Obstacle
from placement.engine.forest.arrays import Amounts, Mask
from placement.engine.numa.allocator import NO_MATCH, PREFIX, HostReservations
from placement.engine.numa.host import Refusal, RefusalClass
from placement.engine.scoring.rule import BEST
from placement.pods.decide import reservations as decide_reservations
from placement.pods.decide.ranking import Adjustment, NodeScores, PodRanking, Ranked
from placement.pods.decide.rules import BETWEEN_PODS
from placement.pods.decide.rules.between_pods import PodAmongOthers
from placement.pods.decide.rules.placed_pods import PlacedPods
from placement.pods.decide.rules.rule import Fit, PodShape, may_pass
from placement.pods.manifests.affinity import PodRules
from placement.pods.state.model import PodSpec, RecordedReservation
from placement.pods.state.node_info import NodeInfo
from placement.pods.state.snapshot import NodeColumns

USES_RESERVATION = -1
"""The amount that a pod misses on a node where it uses a reservation: less than anywhere else."""
# No pod that leaves makes a reservation that the affinity accepts.
_NOT_ACCEPTED = Refusal(
    (f"{PREFIX}{NO_MATCH}",), RefusalClass.UNRESOLVABLE, obstacle=Obstacle(ConditionKind.RESERVATION_AFFINITY)
)
# As in the default profile of kube-scheduler, where each of the rules between pods counts twice.
_NODE_WEIGHT, _RULE_WEIGHT = 1, 2


class UsedReservations(Adjustment):
    """The reservations that a pod may use: a node where it uses one comes before all others.

    `nodes` are the names of nodes with reservations. Only such nodes are looked at here.
    Source: koordinator.md, "Reservations".
    """

    def __init__(
        self,
        looks: decide_reservations.ReservationLooks,
        pod_spec: PodSpec,
        manifest: Mapping[str, Any],
        nodes: Sequence[str],
        now: datetime.datetime,
    ) -> None:
        self._looks = looks
        self._affinity = pod_spec.reservation_affinity
        self._manifest = manifest
        self._nodes = nodes
        self._now = now
        self.is_exclusive = self._affinity is not None

    def best_first(
        self, ranked: Iterator[Ranked], columns: NodeColumns, allowed: Mask | None, ranking: PodRanking
    ) -> Iterator[Ranked]:
        """Yield the nodes where the pod uses a reservation, then the others."""
        found: list[tuple[tuple[int, int, int, int, str], Ranked]] = []
        for node, match in self._matches(columns):
            result, used, (order, fill) = match.result, match.used, match.preference
            if used is None or not (allowed is None or allowed[columns.row_of(node.name)]):
                continue
            assert isinstance(result.answer, Fit)
            opened = node.opened(frozenset({used.whole.consumer}))
            ranked_node = Ranked(
                node,
                result.missed,
                result.score,
                result.answer,
                match.reservations,
                used.whole,
                opened,
            )
            found.append(((order, result.missed, fill, -result.score, node.name), ranked_node))
        found.sort(key=itemgetter(0))
        yield from map(itemgetter(1), found)
        names = {ranked_node.node.name for _, ranked_node in found}
        yield from (each for each in ranked if each.node.name not in names)

    def refusals(self, refusals: Mapping[str, Refusal], columns: NodeColumns) -> Mapping[str, Refusal]:
        """Return the refusals without nodes where it uses a reservation; if it must, with all others."""
        found = dict(refusals)
        if self.is_exclusive:
            found = dict.fromkeys(columns.names, _NOT_ACCEPTED)
        for node, match in self._matches(columns):
            if match.used is not None:
                found.pop(node.name, None)
            elif self.is_exclusive and isinstance(match.result.answer, Refusal):
                found[node.name] = match.result.answer
        return found

    def scores(self, scores: NodeScores, columns: NodeColumns) -> NodeScores:
        """Return the scores where a pod that uses a reservation misses -1."""
        fits, missed, highest = scores.fits.copy(), scores.missed.copy(), scores.highest.copy()
        if self.is_exclusive:
            fits[:] = False
        for node, match in self._matches(columns):
            if match.used is not None:
                row = columns.row_of(node.name)
                fits[row], missed[row], highest[row] = True, USES_RESERVATION, match.result.score
        return replace(scores, fits=fits, missed=missed, highest=highest)

    def _matches(
        self, columns: NodeColumns
    ) -> Iterator[tuple[NodeInfo, decide_reservations.ReservationMatch]]:
        """Yield the nodes with reservations that the pod may use, and how it fits with these."""
        nodes = columns.by_name
        for name in self._nodes:
            node = nodes.get(name)
            usable = [] if node is None else self._usable(node)
            if node is not None and usable:
                yield node, self._looks.look(node, usable, required=self.is_exclusive)

    def _usable(self, node: NodeInfo) -> list[decide_reservations.NodeReservation]:
        return [each for each in decide_reservations.reservations_on(node) if self._may_use(each.whole)]

    def _may_use(self, reservation: RecordedReservation) -> bool:
        terms = reservation.keeps
        assert terms is not None
        if terms.is_over(self._now) or not terms.owned_by(self._manifest):
            return False
        return self._affinity is None or self._affinity.accepts(reservation.name, terms.labels)


class IgnoredReservations(Adjustment):
    """The reservations of all nodes, for a pod that takes reserved resources as if they were free."""

    def __init__(self, looks: decide_reservations.ReservationLooks) -> None:
        self._looks = looks

    def seen(self, columns: NodeColumns) -> NodeColumns:
        """Return the nodes as if nothing were reserved."""
        return self._looks.opened(columns)

    def restored(self, ranked: Iterator[Ranked], columns: NodeColumns) -> Iterator[Ranked]:
        """Yield the nodes with their reservations; reserved CPUs are given first."""
        for opened in ranked:
            node = columns.by_name[opened.node.name]
            if node is opened.node:
                yield opened
            else:
                reservations = HostReservations(
                    decide_reservations.as_seen(node, decide_reservations.reservations_on(node)), ignored=True
                )
                yield opened._replace(node=node, reservations=reservations, opened_node=opened.node)


class RulesBetweenPods(Adjustment):
    """The rules between a pod and placed pods, for a pod that has such rules or that rules of others concern.

    `whole_columns` are all nodes of the cluster: all pods there count.
    """

    def __init__(
        self, shape: PodShape, rules: PodRules, placed_pods: PlacedPods, whole_columns: NodeColumns
    ) -> None:
        self._scoring = shape.settings.host_scoring
        self._pod = PodAmongOthers(
            shape.request,
            shape.selection,
            self._scoring,
            rules=rules,
            placed_pods=placed_pods,
            whole_columns=whole_columns,
        )

    def allows(self, name: str) -> bool:
        """Return whether no rule keeps the pod off this node. Raises KeyError."""
        return bool(self._allowed[self._pod.whole_columns.row_of(name)])

    def allowed(self, columns: NodeColumns) -> Mask:
        """Return the rows of nodes that no rule refuses."""
        return self._allowed[self._pod.rows(columns)]

    def best_first(
        self, ranked: Iterator[Ranked], columns: NodeColumns, allowed: Mask | None, ranking: PodRanking
    ) -> Iterator[Ranked]:
        """Yield the nodes in the order of scores for which preferences about other pods count.

        Nodes come first where it uses a reservation, or misses least of its preferences about CPUs.
        """
        if not self._may_prefer:
            yield from ranked
            return
        scores = ranking.scores(columns)
        uses_any = (scores.missed == USES_RESERVATION).any()
        using = takewhile(lambda each: each.used_reservation is not None, ranked) if uses_any else ()
        scored = [each._replace(score=int(scores.highest[columns.row_of(each.node.name)])) for each in using]
        yield from sorted(scored, key=lambda each: (each.missed, -each.score, each.node.name))
        rows = np.flatnonzero(scores.fits & (scores.missed != USES_RESERVATION))
        # Rows are in the order of names. Most walks end early, so a node is looked at when its turn comes.
        ordered = rows[np.lexsort((-scores.highest[rows], scores.missed[rows]))].tolist()
        for row, each in zip(ordered, ranking.in_rows(columns, ordered), strict=True):
            yield each._replace(score=int(scores.highest[row]))

    def refusals(self, refusals: Mapping[str, Refusal], columns: NodeColumns) -> Mapping[str, Refusal]:
        """Return the refusals with the ones by rules, which count where nothing else refuses the pod."""
        found = dict(refusals)
        for row in np.flatnonzero(~self.allowed(columns)).tolist():
            node = columns.nodes[row]
            if node.name not in found:
                reasons = (rule.refuse(node, self._pod) for rule in BETWEEN_PODS)
                found[node.name] = next(refusal for refusal in reasons if refusal is not None)
        return found

    def scores(self, scores: NodeScores, columns: NodeColumns) -> NodeScores:
        """Return the scores for which preferences about other pods count."""
        rows = self._pod.rows(columns)
        fits, highest = scores.fits & self._allowed[rows], scores.highest.copy()
        if self._may_prefer:
            fitting = np.flatnonzero(fits)
            found = [rule.scores(self._pod, rows[fitting]) for rule in BETWEEN_PODS]
            by_rules = [each for each in found if each is not None]
            scale = self._scoring.max_score
            total: Amounts = _NODE_WEIGHT * highest[fitting]
            for each in by_rules:
                total = total + _RULE_WEIGHT * each * scale // BEST
            highest[fitting] = total // (_NODE_WEIGHT + _RULE_WEIGHT * len(by_rules))
        return replace(scores, fits=fits, highest=highest)

    @cached_property
    def _allowed(self) -> Mask:
        """Return the nodes of the whole cluster that no rule refuses."""
        return may_pass(BETWEEN_PODS, self._pod.whole_columns, self._pod)

    @cached_property
    def _may_prefer(self) -> bool:
        return any(rule.prefers(self._pod) for rule in BETWEEN_PODS)
