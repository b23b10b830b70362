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
from placement.engine.scoring.order import (
    ClassParts,
    Scope,
    Strategy,
    best_possible,
    combined,
    score_hosts,
    score_with_parts,
)
from placement.engine.scoring.rule import LARGE_SCALE
from placement.engine.search.hosts import ClassSums, HostSums
from placement.engine.search.query import ForestOrder, Preference, Slot

# Scores of whole trees, kept until something in the tree changes.
#
# The same few requests come again and again while most trees stand still, and scoring ten thousand trees
# costs more than all the rest of an ordered search.


# The limit over all questions, in rows of 16 bytes; one question is kept however many rows it has.
_MOST_ROWS = 2_000_000


class _Scores(NamedTuple):
    """A table by root row: the score of a tree, and the stamp that the tree had then; stamps begin at 1."""

    scores: Amounts
    stamps: Amounts


class ScoreCache:
    """A cache of the scores for the questions asked last."""

    def __init__(self, most_rows: int = _MOST_ROWS) -> None:
        self._most_rows = most_rows
        self._kept: dict[Hashable, _Scores] = {}
        self._lock = threading.Lock()

    def of(
        self, forest: Forest, question: Hashable, roots: Indices, score: Callable[[Indices], Amounts]
    ) -> Amounts:
        """Return the scores of the trees; `score` scores the trees that changed since they were scored."""
        present = forest.providers.tree_stamp[roots]
        with self._lock:
            known = self._scores_of(question, forest.count)
        if known is None:
            scores = score(roots)
            self._keep(question, forest.count, roots, scores, present)
            return scores
        with self._lock:
            scores = known.scores[roots]
            stale = known.stamps[roots] != present
        if stale.any():
            changed, stamps = roots[stale], present[stale]
            scores[stale] = score(changed)
            with self._lock:
                # A search on a newer snapshot may have been faster.
                newer = stamps > known.stamps[changed]
                known.scores[changed[newer]] = scores[stale][newer]
                known.stamps[changed[newer]] = stamps[newer]
        return scores

    def _scores_of(self, question: Hashable, rows: int) -> _Scores | None:
        """Return what is kept for the question, None if it has to be scored from the beginning."""
        known = self._kept.pop(question, None)
        if known is None or len(known.scores) < rows:
            return None
        self._kept[question] = known
        return known

    def _keep(self, question: Hashable, rows: int, roots: Indices, scores: Amounts, stamps: Amounts) -> None:
        # Memory that was never written to costs nothing, so there may be room for more rows to come.
        known = _Scores(*(np.zeros(rows + rows // 8, np.int64) for _ in range(2)))
        places = roots.astype(np.intp)
        known.scores[places], known.stamps[places] = scores, stamps
        with self._lock:
            self._kept.pop(question, None)
            self._make_room(len(known.scores))
            self._kept[question] = known

    def _make_room(self, rows: int) -> None:
        """Forget the questions that were asked longest ago."""
        while self._kept and rows + sum(len(each.scores) for each in self._kept.values()) > self._most_rows:
            del self._kept[next(iter(self._kept))]


@dataclass(frozen=True, slots=True)
class StrategyScores:
    """A strategy with its score of each candidate, and the parts of the scores."""

    strategy: Strategy
    scores: Amounts
    parts: list[ClassParts]


@dataclass(frozen=True, slots=True)
class ScoreTable:
    """The scores of some candidates between 0 and `max_score`, and what they are made of.

    `preferences`: per preference which candidates meet it.
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
        self._score_cache = score_cache or ScoreCache()
        self._strategies = order.order.strategies
        self._preferences = order.preferences
        self._by_tree = order.order.by_tree
        self._scope = order.order.scope
        listed = (name for strategy in self._strategies for name, _ in strategy.resources)
        self._names = tuple(dict.fromkeys(listed))
        self._ids = order.class_ids
        self._request = _request_of(slots, order.class_ids)
        self._hosts = HostSums(forest, slots, sharers, self._names, order.class_ids)
        self._alone = not self._preferences
        self._met = [_providers_meeting(forest, preference) for preference in self._preferences]

    @property
    def by_tree(self) -> bool:
        """Return whether all candidates of a tree have one score as long as they stay inside it."""
        return self._by_tree

    def of_trees(self, roots: Indices) -> Amounts:
        """Return the score of all candidates that stay inside each tree; only if `by_tree`."""
        scores: Amounts = np.zeros(len(roots), np.int64)
        if self._strategies:
            question = (self._strategies, self._alone, (*self._request.items(),), (*self._ids.items(),))
            scores = self._score_cache.of(self._forest, question, roots, self._of_hosts_at)
        return self._with_preferences(scores, self._met_in_trees(roots))

    def _of_hosts_at(self, roots: Indices) -> Amounts:
        return self._combined({Scope.TREE: self._hosts.of_trees(roots)})

    def of_candidates(self, rows: Indices) -> Amounts:
        """Return the score of each candidate."""
        met = self._met_by_candidates(rows)
        scores: Amounts = np.zeros(len(rows), np.int64)
        if self._strategies:
            scores = self._combined(self._sums(rows))
        return self._with_preferences(scores, met)

    def _sums(self, rows: Indices) -> dict[Scope, ClassSums]:
        scopes = {strategy.scope for strategy in self._strategies}
        return {scope: self._hosts.of_candidates(rows, scope) for scope in scopes}

    def _combined(self, sums: Mapping[Scope, ClassSums]) -> Amounts:
        scores = [score_hosts(each, sums[each.scope].columns, self._request) for each in self._strategies]
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
        parts = [score_with_parts(each, sums[each.scope].columns, self._request) for each in self._strategies]
        strategies = [
            StrategyScores(each, *found) for each, found in zip(self._strategies, parts, strict=True)
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

    # -- preferences --------------------------------------------------------------------------------

    def _met_in_trees(self, roots: Indices) -> list[Mask]:
        met = []
        for preference, members in zip(self._preferences, self._met, strict=True):
            trees = np.zeros(self._forest.count, bool)
            trees[self._forest.providers.root[members]] = True
            met.append(trees[roots] ^ preference.absent)
        return met

    def _met_by_candidates(self, rows: Indices) -> list[Mask]:
        if not self._preferences:
            return []
        anchors = self._hosts.anchors(rows)
        met = []
        for preference, members in zip(self._preferences, self._met, strict=True):
            meets = np.zeros(self._forest.count, bool)
            meets[members] = True
            found = np.zeros(len(rows), bool)
            for providers in self._hosts.drawn(rows):
                found |= meets[providers]
            if self._scope is Scope.TREE:
                trees = np.zeros(self._forest.count, bool)
                trees[self._forest.providers.root[members]] = True
                found |= trees[anchors] & (anchors >= 0)
            met.append(found ^ preference.absent)
        return met


def _request_of(slots: Sequence[Slot], class_ids: Mapping[str, int]) -> dict[str, int]:
    """Return the amounts that every candidate of the query takes in sum, by class name."""
    amounts: dict[int, int] = defaultdict(int)
    for slot in slots:
        for class_id, amount in slot.resources:
            amounts[class_id] += amount
    return {name: amounts[class_id] for name, class_id in class_ids.items() if amounts[class_id]}


def _providers_meeting(forest: Forest, preference: Preference) -> Indices:
    return np.union1d(
        forest.traits.rows_with(preference.traits, forest.count),
        forest.aggregates.rows_with(preference.aggregates, forest.count),
    ).astype(np.int32)
