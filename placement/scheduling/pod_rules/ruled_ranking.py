"""Pods and the nodes of a cluster, where pods that are placed count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from itertools import takewhile

import numpy as np

from placement.forest.arrays import Amounts, Mask, Rows
from placement.kubernetes.pod_affinity import WeightedTerm
from placement.kubernetes.pod_rules import PodRules
from placement.numa.refusal import Refusal
from placement.scheduling.columns.node_columns import NodeColumns
from placement.scheduling.pipeline import Estimates, PodShape, Ranked
from placement.scheduling.pod_rules.inter_pod_affinity import affinity_scores, refused_by_affinity
from placement.scheduling.pod_rules.placed_pods import PlacedPods
from placement.scheduling.pod_rules.topology_spread import refused_by_spread, spread_scores
from placement.scheduling.reservation_use import USES_RESERVATION, PodRanking
from placement.scoring.rule import BEST

# As in the default profile of kube-scheduler, where each of these rules counts twice.
_NODE_WEIGHT, _RULE_WEIGHT = 1, 2


class RuledRanking:
    """A pod with rules about other pods, or about which others have some.

    `ranking` is how it stands with nodes alone, `whole` are all nodes of the cluster: all pods there count.
    """

    def __init__(self, ranking: PodRanking, rules: PodRules, placed: PlacedPods, whole: NodeColumns) -> None:
        self._ranking = ranking
        self._rules = rules
        self._placed = placed
        self._whole = whole

    @property
    def shape(self) -> PodShape:
        """All that decides on which nodes the pod fits by itself."""
        return self._ranking.shape

    def allows(self, name: str) -> bool:
        """Whether no rule keeps the pod off this node. Raises KeyError."""
        return not self._refused[self._whole.row_of(name)]

    def best_first(self, columns: NodeColumns) -> Iterator[Ranked]:
        """The nodes on which the pod fits; what is preferred of other pods counts for the score.

        Those come first where it misses least of what it prefers of CPUs, or uses a reservation.
        """
        unscored = self._ranking.best_first(columns, ~self._refused[self._rows(columns)])
        if not self._may_prefer:
            yield from unscored
            return
        found = self.standings(columns)
        uses_any = (found.missed == USES_RESERVATION).any()
        using = takewhile(lambda each: each.used is not None, unscored) if uses_any else ()
        scored = [each._replace(score=int(found.highest[columns.row_of(each.node.name)])) for each in using]
        yield from sorted(scored, key=lambda each: (each.missed, -each.score, each.node.name))
        rows = np.flatnonzero(found.fits & (found.missed != USES_RESERVATION))
        # Rows are in the order of names. Most walks end early, so nodes are only looked at as they are told.
        for row in rows[np.lexsort((-found.highest[rows], found.missed[rows]))].tolist():
            yield self._ranking.ranked_on(columns.nodes[row])._replace(score=int(found.highest[row]))

    def refusals(self, columns: NodeColumns) -> Mapping[str, Refusal]:
        """Why the pod does not fit on nodes, by name; rules count where nothing else refuses it."""
        found = dict(self._ranking.refusals(columns))
        rows = self._rows(columns)
        for at in np.flatnonzero(self._refused[rows]).tolist():
            name = columns.nodes[at].name
            if name not in found:
                found[name] = self._reason(int(rows[at]))
        return found

    def standings(self, columns: NodeColumns) -> Estimates:
        """On which nodes the pod fits, what it misses there and its scores."""
        found, rows = self._ranking.standings(columns), self._rows(columns)
        fits, scores = found.fits & ~self._refused[rows], found.highest.copy()
        if self._may_prefer:
            fitting = np.flatnonzero(fits)
            scores[fitting] = self._with_rules(scores[fitting], rows[fitting])
        return replace(found, fits=fits, highest=scores)

    def _rows(self, columns: NodeColumns) -> Rows:
        """The rows among all nodes of those in `columns`."""
        if columns.order is self._whole.order:
            return np.arange(len(columns.nodes))
        return np.array([self._whole.row_of(node.name) for node in columns.nodes], np.intp)

    @cached_property
    def _judged(self) -> list[tuple[Mask, Refusal]]:
        selection = self._ranking.shape.selection
        return [
            *refused_by_spread(self._whole, self._rules, selection, self._placed),
            *refused_by_affinity(self._whole, self._rules, self._placed),
        ]

    @cached_property
    def _refused(self) -> Mask:
        refused = np.zeros(len(self._whole.nodes), np.bool_)
        for mask, _ in self._judged:
            refused |= mask
        return refused

    def _reason(self, row: int) -> Refusal:
        return next(refusal for mask, refusal in self._judged if mask[row])

    @cached_property
    def _may_prefer(self) -> bool:
        affinity = self._rules.affinity
        if affinity.rather_near or affinity.rather_apart:
            return True
        if not all(each.is_required for each in self._rules.spread):
            return True
        wishes = self._placed.wishes_about(self._whole, self._rules.bearer)
        return any(isinstance(wish, WeightedTerm) for wish in wishes)

    def _with_rules(self, scores: Amounts, rows: Rows) -> Amounts:
        """These scores of nodes in some rows of all, with what is preferred of other pods in them."""
        given = [
            affinity_scores(self._whole, self._rules, self._placed, rows),
            spread_scores(self._whole, self._rules, self.shape.selection, self._placed, rows),
        ]
        by_rules = [each for each in given if each is not None]
        if not by_rules:
            return scores
        scale = self.shape.settings.host_scoring.max_score
        total: Amounts = _NODE_WEIGHT * scores
        for each in by_rules:
            total = total + _RULE_WEIGHT * each * scale // BEST
        return total // (_NODE_WEIGHT + _RULE_WEIGHT * len(by_rules))


AnyRanking = PodRanking | RuledRanking
