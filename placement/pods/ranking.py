"""Rankings of the nodes of a cluster for a pod, where reservations and placed pods count."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import takewhile
from operator import itemgetter
from typing import Any

import numpy as np

from placement.engine.forest.arrays import Amounts, Mask
from placement.engine.numa.allocator import NO_MATCH, PREFIX, HostReservations
from placement.engine.numa.host import Refusal
from placement.engine.scoring.rule import BEST
from placement.pods.cycle import Estimates, Ranked, ReservationMatch, ShapeRanking, as_seen, kept_on
from placement.pods.manifests.affinity import PodRules
from placement.pods.model import PodSpec, RecordedPod
from placement.pods.node_info import NodeInfo
from placement.pods.rules import BETWEEN_PODS
from placement.pods.rules.between_pods import PlacedPods, PodAmongOthers
from placement.pods.rules.rule import Fit, may_pass
from placement.pods.snapshot import NodeColumns

# Pods and the reservations of nodes: which one a pod would use, and where that makes it go.
#
# A node on which a pod may use a reservation comes before all others. Only such nodes are looked at here;
# everything else is left to the ranking of the shape.


USES_RESERVATION = -1
"""The amount that a pod misses on a node where it uses a reservation: less than anywhere else."""


class ReservationRanking:
    """A ranking of the nodes of a cluster for a pod that may use reservations.

    `ranking` is for its shape, `document` is its manifest, `nodes` are the names of nodes with reservations.
    Source: koordinator.md, "Reservations".
    """

    def __init__(
        self,
        ranking: ShapeRanking,
        incoming: PodSpec,
        document: Mapping[str, Any],
        nodes: Sequence[str],
        now: datetime.datetime,
    ) -> None:
        self.shape = ranking.shape
        self._ranking = ranking
        self._affinity = incoming.reservation_affinity
        self._document = document
        self._nodes = nodes
        self._now = now

    def best_first(self, columns: NodeColumns, allowed: Mask | None = None) -> Iterator[Ranked]:
        """Yield the nodes in allowed rows on which the pod fits: first where it uses a reservation."""
        found: list[tuple[tuple[int, int, int, int, str], Ranked]] = []
        for node, look in self._looks(columns):
            result, used, (order, fill) = look.result, look.kept, look.preference
            if used is None or not (allowed is None or allowed[columns.row_of(node.name)]):
                continue
            assert isinstance(result.answer, Fit)
            opened = node.opened(frozenset({used.held.consumer}))
            ranked = Ranked(
                node, result.missed, result.score, result.answer, look.reservations, used.held, opened
            )
            found.append(((order, result.missed, fill, -result.score, node.name), ranked))
        found.sort(key=itemgetter(0))
        yield from map(itemgetter(1), found)
        if self._affinity is None:
            names = {ranked.node.name for _, ranked in found}
            others = self._ranking.best_first(columns, allowed)
            yield from (ranked for ranked in others if ranked.node.name not in names)

    def refusals(self, columns: NodeColumns) -> dict[str, Refusal]:
        """Return why the pod does not fit, by name of node; nodes on which it fits are left out."""
        if self._affinity is None:
            found = {**self._ranking.refusals(columns)}
        else:
            no_match = Refusal((f"{PREFIX}{NO_MATCH}",))
            found = {node.name: no_match for node in columns.nodes}
        for node, look in self._looks(columns):
            if look.kept is not None:
                found.pop(node.name, None)
            elif self._affinity is not None and isinstance(look.result.answer, Refusal):
                found[node.name] = look.result.answer
        return found

    def ranked_on(self, node: NodeInfo) -> Ranked:
        """Return how well the pod fits on a node on which it fits without using a reservation."""
        return self._ranking.ranked_on(node)

    def standings(self, columns: NodeColumns) -> Estimates:
        """Return on which nodes the pod fits, its scores, and what it misses: -1 if it uses a reservation."""
        found = self._ranking.standings(columns)
        fits, missed, scores = found.fits.copy(), found.missed.copy(), found.highest.copy()
        if self._affinity is not None:
            fits[:] = False
        for node, look in self._looks(columns):
            if look.kept is not None:
                row = columns.row_of(node.name)
                fits[row], missed[row], scores[row] = True, USES_RESERVATION, look.result.score
        return replace(found, fits=fits, missed=missed, highest=scores)

    def _looks(self, columns: NodeColumns) -> Iterator[tuple[NodeInfo, ReservationMatch]]:
        """Yield the nodes with reservations that the pod may use, and how it fits with these."""
        nodes, required = columns.by_name, self._affinity is not None
        for name in self._nodes:
            node = nodes.get(name)
            matched = [] if node is None else [kept for kept in kept_on(node) if self._may_use(kept.held)]
            if node is not None and matched:
                yield node, self._ranking.on_reservations.look(node, matched, required=required)

    def _may_use(self, reservation: RecordedPod) -> bool:
        terms = reservation.keeps
        assert terms is not None
        if terms.is_over(self._now) or not terms.owned_by(self._document):
            return False
        return self._affinity is None or self._affinity.accepts(reservation.name, terms.labels)


class IgnoringRanking:
    """A ranking of the nodes of a cluster for a pod that takes reserved resources as if they were free."""

    def __init__(self, ranking: ShapeRanking) -> None:
        self.shape = ranking.shape
        self._ranking = ranking

    def best_first(self, columns: NodeColumns, allowed: Mask | None = None) -> Iterator[Ranked]:
        """Yield the nodes in allowed rows on which the pod fits; reserved CPUs are given first."""
        for ranked in self._ranking.best_first(self._ranking.on_reservations.opened(columns), allowed):
            yield _ignoring(columns.by_name[ranked.node.name], ranked)

    def ranked_on(self, node: NodeInfo) -> Ranked:
        """Return how well the pod fits on a node on which it fits."""
        return _ignoring(node, self._ranking.ranked_on(node.opened(node.reserving)))

    def refusals(self, columns: NodeColumns) -> Mapping[str, Refusal]:
        """Return why the pod does not fit, by name of node; nodes on which it fits are left out."""
        return self._ranking.refusals(self._ranking.on_reservations.opened(columns))

    def standings(self, columns: NodeColumns) -> Estimates:
        """Return on which nodes the pod fits, what it misses there and its scores."""
        return self._ranking.standings(self._ranking.on_reservations.opened(columns))


def _ignoring(node: NodeInfo, ranked: Ranked) -> Ranked:
    """Return the node with its reservations, after it was ranked as if nothing were reserved there."""
    if node is ranked.node:
        return ranked
    everything = HostReservations(as_seen(node, kept_on(node)), ignored=True)
    return ranked._replace(node=node, reservations=everything, opened=ranked.node)


PodRanking = ShapeRanking | ReservationRanking | IgnoringRanking


# As in the default profile of kube-scheduler, where each of these rules counts twice.
_NODE_WEIGHT, _RULE_WEIGHT = 1, 2


class RuledRanking:
    """A ranking for a pod that has rules about other pods, or that rules of other pods concern.

    `ranking` is its ranking without rules, `whole` are all nodes of the cluster: all pods there count.
    """

    def __init__(self, ranking: PodRanking, rules: PodRules, placed: PlacedPods, whole: NodeColumns) -> None:
        self._ranking = ranking
        self.shape = shape = ranking.shape
        self._pod = PodAmongOthers(
            shape.request,
            shape.selection,
            shape.settings.host_scoring,
            rules=rules,
            placed=placed,
            whole=whole,
        )

    def allows(self, name: str) -> bool:
        """Return whether no rule keeps the pod off this node. Raises KeyError."""
        return bool(self._allowed[self._pod.whole.row_of(name)])

    def best_first(self, columns: NodeColumns) -> Iterator[Ranked]:
        """Yield the nodes on which the pod fits; its preferences about other pods count for the score.

        Nodes come first where it uses a reservation, or misses least of its preferences about CPUs.
        """
        unscored = self._ranking.best_first(columns, self._allowed[self._pod.rows(columns)])
        if not self._may_prefer:
            yield from unscored
            return
        found = self.standings(columns)
        uses_any = (found.missed == USES_RESERVATION).any()
        using = takewhile(lambda each: each.used is not None, unscored) if uses_any else ()
        scored = [each._replace(score=int(found.highest[columns.row_of(each.node.name)])) for each in using]
        yield from sorted(scored, key=lambda each: (each.missed, -each.score, each.node.name))
        rows = np.flatnonzero(found.fits & (found.missed != USES_RESERVATION))
        # Rows are in the order of names. Most walks end early, so a node is looked at when its turn comes.
        for row in rows[np.lexsort((-found.highest[rows], found.missed[rows]))].tolist():
            yield self._ranking.ranked_on(columns.nodes[row])._replace(score=int(found.highest[row]))

    def refusals(self, columns: NodeColumns) -> Mapping[str, Refusal]:
        """Return why the pod does not fit, by name of node; rules count where nothing else refuses it."""
        found = dict(self._ranking.refusals(columns))
        for row in np.flatnonzero(~self._allowed[self._pod.rows(columns)]).tolist():
            node = columns.nodes[row]
            if node.name not in found:
                reasons = (rule.refuse(node, self._pod) for rule in BETWEEN_PODS)
                found[node.name] = next(refusal for refusal in reasons if refusal is not None)
        return found

    def standings(self, columns: NodeColumns) -> Estimates:
        """Return on which nodes the pod fits, what it misses there and its scores."""
        found, rows = self._ranking.standings(columns), self._pod.rows(columns)
        fits, scores = found.fits & self._allowed[rows], found.highest.copy()
        if self._may_prefer:
            fitting = np.flatnonzero(fits)
            given = [rule.scores(self._pod, rows[fitting]) for rule in BETWEEN_PODS]
            by_rules = [each for each in given if each is not None]
            scale = self.shape.settings.host_scoring.max_score
            total: Amounts = _NODE_WEIGHT * scores[fitting]
            for each in by_rules:
                total = total + _RULE_WEIGHT * each * scale // BEST
            scores[fitting] = total // (_NODE_WEIGHT + _RULE_WEIGHT * len(by_rules))
        return replace(found, fits=fits, highest=scores)

    @cached_property
    def _allowed(self) -> Mask:
        """Return the nodes of the whole cluster that no rule refuses."""
        return may_pass(BETWEEN_PODS, self._pod.whole, self._pod)

    @cached_property
    def _may_prefer(self) -> bool:
        return any(rule.prefers(self._pod) for rule in BETWEEN_PODS)


AnyRanking = PodRanking | RuledRanking


# How well each node suits a pod, as one number that can be compared with the numbers of other nodes.


def priorities(ranking: AnyRanking, columns: NodeColumns, best: int) -> dict[str, int]:
    """Return the score of each node on which the pod fits, 0 to 100, by name; rankings score up to `best`.

    Nodes on which the pod uses a reservation stay first, then nodes where it gets more of what it prefers.
    """
    standings = ranking.standings(columns)
    rows = np.flatnonzero(standings.fits)
    missed = standings.missed[rows]
    levels = missed - min(0, missed.min(initial=0))
    worst = levels.max(initial=0)
    points = (standings.highest[rows] * BEST // best + BEST * (worst - levels)) // (worst + 1)
    names = list(columns.names)
    return dict(zip(map(names.__getitem__, rows.tolist()), points.tolist(), strict=True))
