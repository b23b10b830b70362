"""The scores of trees and candidates for one query, and their parts."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
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
from placement.engine.scoring.rule import LARGE_SCALE, SAFE
from placement.engine.search.filters import flags_of
from placement.engine.search.query import ForestOrder, Slot

# Hosts as scoring sees them: capacity and use summed over the providers that make up a host.
#
# A host is the provider tree of a candidate, with the sharing providers of other trees that it draws on. In
# the scope `allocated` it is, per class, only the providers that the candidate takes that class from.
# Source: scoring.md, "A host in Placement terms".


NO_TREE = -1


ClassSums = dict[str, tuple[Amounts, Amounts]]
"""Per class name what is in use and the capacity, one amount per host, in units of the class."""


class HostSums:
    """A calculator that sums the listed classes for any trees or candidates of one query.

    `ids` has the listed classes that exist; `sharers` flags the sharing providers.
    """

    def __init__(
        self,
        forest: Forest,
        slots: Sequence[Slot],
        sharers: Mask,
        names: Sequence[str],
        ids: Mapping[str, int],
    ) -> None:
        self._forest = forest
        self._slots = slots
        self._sharers = sharers
        self._columns = {name: forest.inventories.get(ids.get(name, -1)) for name in names}
        self._ids = ids
        self.drawing = [number for number, slot in enumerate(slots) if slot.resources]
        """The slots that draw on their providers."""

    def of_trees(self, roots: Indices | Rows) -> ClassSums:
        """Return the sums of whole trees."""
        sums: ClassSums = {}
        # Converted once, for numpy would do it for each column.
        roots = roots.astype(np.intp)
        sizes = self._forest.providers.tree_size
        flat = self._forest.is_flat or int(sizes[roots].max(initial=0)) <= 1
        for name, column in self._columns.items():
            if column is None:
                used = capacity = np.zeros(len(roots), np.int64)
            elif flat:
                at = column.entries_of(roots)
                used, capacity = column.entries.used.take(at), column.entries.capacity_of.take(at)
                absent = at < 0
                if absent.any():
                    capacity[absent] = used[absent] = 0
            else:
                occupied = column.occupied()
                tree = self._forest.providers.root[column.entries.provider[occupied]]
                used = self._summed(column.entries.used[occupied], tree)[roots]
                capacity = self._summed(column.entries.capacity_of[occupied], tree)[roots]
            sums[name] = used, capacity
        return sums

    def _summed(self, amounts: Amounts, rows: Indices) -> Amounts:
        """Return the sums by row of the forest."""
        amounts = _wide_enough(amounts)
        totals = np.zeros(self._forest.count, amounts.dtype)
        np.add.at(totals, rows, amounts)
        return totals

    def of_candidates(self, rows: Indices, scope: Scope) -> ClassSums:
        """Return the sums of the host of each candidate; one row per candidate, one column per slot."""
        if scope is Scope.ALLOCATED:
            asked = [{class_id for class_id, _ in slot.resources} for slot in self._slots]
            sums: ClassSums = {}
            for name in self._columns:
                asking = [number for number in self.drawing if self._ids.get(name) in asked[number]]
                sums[name] = self._drawn(name, list(first_uses(rows, asking)), len(rows))
            return sums
        anchors = anchors_of(self._forest, self._sharers, rows)
        if not self._sharers.any():
            return self.of_trees(anchors)
        # What candidates draw on beyond their tree counts, too.
        outside = [
            (providers, counts & (self._forest.providers.root[providers] != anchors))
            for providers, counts in first_uses(rows, self.drawing)
        ]
        homeless = anchors == NO_TREE
        sums = self.of_trees(np.where(homeless, 0, anchors))
        for name, (used, capacity) in sums.items():
            used_outside, capacity_outside = self._drawn(name, outside, len(rows))
            used, capacity = np.where(homeless, 0, used), np.where(homeless, 0, capacity)
            sums[name] = used + used_outside, capacity + capacity_outside
        return sums

    def _drawn(self, name: str, uses: Sequence[tuple[Indices, Mask]], count: int) -> tuple[Amounts, Amounts]:
        """Return what the used providers of each candidate use and have of a class."""
        column = self._columns[name]
        used: Amounts = np.zeros(count, np.int64)
        capacity: Amounts = np.zeros(count, np.int64)
        if column is None:
            return used, capacity
        for providers, counts in uses:
            at = column.entries_of(providers)
            counted = counts & (at >= 0)
            used = used + _wide_enough(np.where(counted, column.entries.used[at], 0))
            capacity = capacity + _wide_enough(np.where(counted, column.entries.capacity_of[at], 0))
        return used, capacity


def anchors_of(forest: Forest, sharers: Mask, rows: Indices) -> Indices:
    """Return the root of each candidate's tree: the root of its providers that do not share.

    If all of them share, it is the root of their common tree; NO_TREE if they are of several.
    """
    if not sharers.any():
        return forest.providers.root[rows[:, 0]]
    roots = forest.providers.root[rows]
    own: Indices = np.where(sharers[rows], NO_TREE, roots).max(axis=1, initial=NO_TREE)
    together = (roots == roots[:, :1]).all(axis=1)
    return np.where(own == NO_TREE, np.where(together, roots[:, 0], NO_TREE), own).astype(np.int32)


def first_uses(rows: Indices, columns: Sequence[int]) -> Iterator[tuple[Indices, Mask]]:
    """Yield some columns of the candidates, each with where its provider has not occurred before."""
    for at, number in enumerate(columns):
        providers = rows[:, number]
        first = np.ones(len(rows), bool)
        for earlier in columns[:at]:
            first &= rows[:, earlier] != providers
        yield providers, first


def _wide_enough(amounts: Amounts) -> Amounts:
    """Return the amounts, as integers of any length if a hundred times their sum could exceed 64 bits."""
    if len(amounts) and int(np.abs(amounts).max()) > SAFE // len(amounts):
        return amounts.astype(object)
    return amounts


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
            known = self._kept.pop(question, None)
            if known is not None and len(known.scores) >= forest.count:
                self._kept[question] = known
            else:
                known = None
        if known is None:
            # Memory that was never written to costs nothing, so there may be room for more rows to come.
            known = _Scores(*np.zeros((2, forest.count + forest.count // 8), np.int64))
            places, scores = roots.astype(np.intp), score(roots)
            known.scores[places], known.stamps[places] = scores, present
            with self._lock:
                self._kept.pop(question, None)
                # The questions that were asked longest ago are forgotten.
                rows = len(known.scores) + sum(len(each.scores) for each in self._kept.values())
                while self._kept and rows > self._most_rows:
                    rows -= len(self._kept.pop(next(iter(self._kept))).scores)
                self._kept[question] = known
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
