"""The scores of trees and candidates for one query, and their parts."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from placement.engine.forest.arrays import Amounts, Indices, Mask, Rows
from placement.engine.forest.forest import Forest
from placement.engine.scoring.host_scores import ClassParts, score_hosts, score_with_parts
from placement.engine.scoring.order import Scope, Strategy, best_possible, combined
from placement.engine.scoring.parameters import LARGE_SCALE
from placement.engine.search.filters import flags_of
from placement.engine.search.host_sums import ClassSums, HostSums, anchors_of
from placement.engine.search.query import ForestOrder, Slot


class CandidateScores:
    """The order of one query, on the forest as it is."""

    def __init__(
        self,
        forest: Forest,
        order: ForestOrder,
        slots: Sequence[Slot],
        sharers: Mask,
        score_cache: ScoreCache | None = None,
    ) -> None:
        self._forest = forest
        self._sharers = sharers
        self._score_cache = score_cache or ScoreCache()
        self._strategies = order.order.strategies
        self._preferences = order.preferences
        self.by_tree = order.order.by_tree
        """Whether all candidates of a tree have one score as long as they stay inside it."""
        self._scope = order.order.scope
        self._ids = order.class_ids
        amounts: dict[int, int] = defaultdict(int)
        for slot in slots:
            for class_id, amount in slot.resources:
                amounts[class_id] += amount
        # What every candidate takes in sum.
        self._request = {name: amounts[id_] for name, id_ in order.class_ids.items() if amounts[id_]}
        names = dict.fromkeys(name for strategy in self._strategies for name, _ in strategy.resources)
        self._hosts = HostSums(forest, slots, sharers, tuple(names), order.class_ids)
        self._alone = not self._preferences
        self._met = [
            np.union1d(
                forest.traits.rows_with(preference.traits, forest.count),
                forest.aggregates.rows_with(preference.aggregates, forest.count),
            ).astype(np.int32)
            for preference in self._preferences
        ]

    def of_trees(self, roots: Indices) -> Amounts:
        """Return the score of all candidates that stay inside each tree; only if `by_tree`."""
        scores: Amounts = np.zeros(len(roots), np.int64)
        if self._strategies:
            question = (self._strategies, self._alone, (*self._request.items(),), (*self._ids.items(),))
            scores = self._score_cache.of(
                self._forest,
                question,
                roots,
                lambda changed: self._combined({Scope.TREE: self._hosts.of_trees(changed)}),
            )
        met = [
            self._with_member(members)[roots] ^ preference.absent
            for preference, members in zip(self._preferences, self._met, strict=True)
        ]
        return self._with_preferences(scores, met)

    def of_candidates(self, rows: Indices) -> Amounts:
        """Return the score of each candidate."""
        scores: Amounts = np.zeros(len(rows), np.int64)
        if self._strategies:
            scores = self._combined(self._sums(rows))
        return self._with_preferences(scores, self._met_by_candidates(rows))

    def _sums(self, rows: Indices) -> dict[Scope, ClassSums]:
        scopes = {strategy.scope for strategy in self._strategies}
        return {scope: self._hosts.of_candidates(rows, scope) for scope in scopes}

    def _combined(self, sums: Mapping[Scope, ClassSums]) -> Amounts:
        scores = [score_hosts(each, sums[each.scope], self._request) for each in self._strategies]
        total: Amounts = combined(self._strategies, scores, alone=self._alone)
        return total

    def _with_preferences(self, scores: Amounts, met: Sequence[Mask]) -> Amounts:
        for preference, is_met in zip(self._preferences, met, strict=True):
            scores = scores + is_met * np.int64(preference.weight * LARGE_SCALE)
        return scores

    def table(self, rows: Indices) -> ScoreTable:
        """Return the score of each candidate with its parts."""
        sums = self._sums(rows)
        met = self._met_by_candidates(rows)
        strategies = [
            StrategyScores(each, *score_with_parts(each, sums[each.scope], self._request))
            for each in self._strategies
        ]
        scores: Amounts = np.zeros(len(rows), np.int64)
        if strategies:
            scores = combined(self._strategies, [each.scores for each in strategies], alone=self._alone)
        best = best_possible(self._strategies, alone=self._alone)
        return ScoreTable(
            scores=self._with_preferences(scores, met),
            max_score=best + sum(preference.weight * LARGE_SCALE for preference in self._preferences),
            strategies=strategies,
            preferences=met,
        )

    def _with_member(self, members: Indices) -> Mask:
        """Return which rows are roots of trees that have one of the members."""
        return flags_of(self._forest.count, self._forest.providers.root[members])

    def _met_by_candidates(self, rows: Indices) -> list[Mask]:
        if not self._preferences:
            return []
        anchors = anchors_of(self._forest, self._sharers, rows)
        met = []
        for preference, members in zip(self._preferences, self._met, strict=True):
            meets = flags_of(self._forest.count, members)
            found = np.logical_or.reduce(meets[rows[:, self._hosts.drawing]], axis=1)
            if self._scope is Scope.TREE:
                found |= self._with_member(members)[anchors] & (anchors >= 0)
            met.append(found ^ preference.absent)
        return met


# The limit over all questions, in rows of 16 bytes; one question is kept however many rows it has.
_MOST_ROWS = 2_000_000


class _TreeScores(NamedTuple):
    """A table by root row: the score of a tree, and the stamp that the tree had then; stamps start at 1."""

    scores: Amounts
    stamps: Amounts


class ScoreCache:
    """A cache of the scores for the questions asked last."""

    def __init__(self, most_rows: int = _MOST_ROWS) -> None:
        self._most_rows = most_rows
        self._kept: dict[Hashable, _TreeScores] = {}
        self._lock = threading.Lock()

    def of(
        self, forest: Forest, question: Hashable, roots: Indices, score: Callable[[Indices], Amounts]
    ) -> Amounts:
        """Return the scores of the trees; `score` scores the trees that changed since they were scored."""
        present = forest.providers.tree_stamp[roots]
        with self._lock:
            tree_scores = self._kept.pop(question, None)
            if tree_scores is not None and len(tree_scores.scores) >= forest.count:
                self._kept[question] = tree_scores
            else:
                tree_scores = None
        if tree_scores is None:
            # Memory that was never written to costs nothing, so there may be room for more rows to come.
            tree_scores = _TreeScores(*np.zeros((2, forest.count + forest.count // 8), np.int64))
            places, scores = roots.astype(np.intp), score(roots)
            tree_scores.scores[places], tree_scores.stamps[places] = scores, present
            with self._lock:
                self._kept.pop(question, None)
                # The questions that were asked longest ago are forgotten.
                rows = len(tree_scores.scores) + sum(len(each.scores) for each in self._kept.values())
                while self._kept and rows > self._most_rows:
                    rows -= len(self._kept.pop(next(iter(self._kept))).scores)
                self._kept[question] = tree_scores
            return scores
        with self._lock:
            scores = tree_scores.scores[roots]
            stale = tree_scores.stamps[roots] != present
        if stale.any():
            changed, stamps = roots[stale], present[stale]
            scores[stale] = score(changed)
            with self._lock:
                # A search on a newer snapshot may have been faster.
                newer = stamps > tree_scores.stamps[changed]
                tree_scores.scores[changed[newer]] = scores[stale][newer]
                tree_scores.stamps[changed[newer]] = stamps[newer]
        return scores


@dataclass(frozen=True, slots=True)
class StrategyScores:
    """A strategy with its score of each candidate, and the parts of the scores."""

    strategy: Strategy
    scores: Amounts
    parts: list[ClassParts]


@dataclass(frozen=True, slots=True)
class ScoreTable:
    """The scores of some candidates between 0 and `max_score`, and their parts.

    `preferences`: per preference the candidates that meet it.
    """

    scores: Amounts
    max_score: int
    strategies: list[StrategyScores]
    preferences: list[Mask]

    def kinds(self) -> list[Rows]:
        """Return the places of the candidates, grouped by the preferences and classes that count for them."""
        masks = [*self.preferences]
        for strategy in self.strategies:
            for part in strategy.parts:
                masks += (part.counted, part.has_capacity)
        telling = [mask for mask in masks if mask.any() and not mask.all()]
        if not telling:
            return [np.arange(len(self.scores))] if len(self.scores) else []
        _, inverse = np.unique(np.stack(telling), axis=1, return_inverse=True)
        kinds = inverse.ravel()
        return [np.flatnonzero(kinds == kind) for kind in range(int(kinds.max()) + 1)]
