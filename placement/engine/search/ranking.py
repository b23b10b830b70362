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
from placement.engine.forest.inventories import InventoryColumn
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
from placement.engine.search.query import ForestOrder, Preference, Slot

# Hosts as scoring sees them: capacity and use summed over the providers that make up a host.
#
# A host is the provider tree of a candidate, with the sharing providers of other trees that it draws on. In
# the scope `allocated` it is, per class, only the providers that the candidate takes that class from.
# Source: scoring.md, "A host in Placement terms".


NO_TREE = -1
# Sums below this can be multiplied by 100 in 64 bits.
_SAFE = 2**62 // 100


class ClassSums(NamedTuple):
    """A table that has per class name one amount per host, in units of the class."""

    capacity: dict[str, Amounts]
    used: dict[str, Amounts]

    @property
    def columns(self) -> dict[str, tuple[Amounts, Amounts]]:
        """Return per class name what is in use and the capacity, as scores are computed from them."""
        return {name: (used, self.capacity[name]) for name, used in self.used.items()}


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
        self._shares = bool(sharers.any())
        self._names = names
        self._columns = {name: forest.inventories.get(ids.get(name, -1)) for name in names}
        self._ids = ids
        self._drawing = [number for number, slot in enumerate(slots) if slot.resources]

    def of_trees(self, roots: Indices | Rows) -> ClassSums:
        """Return the sums of whole trees."""
        sums = ClassSums({}, {})
        # Converted once, for numpy would do it for each column.
        roots = roots.astype(np.intp)
        sizes = self._forest.providers.tree_size
        flat = self._forest.is_flat or int(sizes[roots].max(initial=0)) <= 1
        for name in self._names:
            column = self._columns[name]
            if column is None:
                capacity = used = np.zeros(len(roots), np.int64)
            elif flat:
                capacity, used = _of_providers(column, roots)
            else:
                capacity, used = self._of_members(column, roots)
            sums.capacity[name], sums.used[name] = capacity, used
        return sums

    def _of_members(self, column: InventoryColumn, roots: Rows) -> tuple[Amounts, Amounts]:
        occupied = column.occupied()
        tree = self._forest.providers.root[column.entries.provider[occupied]]
        sums = []
        for amounts in (column.entries.capacity_of, column.entries.used):
            taken = _wide_enough(amounts[occupied])
            totals = np.zeros(self._forest.count, taken.dtype)
            np.add.at(totals, tree, taken)
            sums.append(totals[roots])
        return sums[0], sums[1]

    def of_candidates(self, rows: Indices, scope: Scope) -> ClassSums:
        """Return the sums of the host of each candidate; one row per candidate, one column per slot."""
        if scope is Scope.ALLOCATED:
            return self._of_allocated(rows)
        anchors = self.anchors(rows)
        if not self._shares:
            return self.of_trees(anchors)
        homeless = anchors == NO_TREE
        whole = self.of_trees(np.where(homeless, 0, anchors))
        outside = list(self.outside(rows, anchors))
        for sums, kind in ((whole.capacity, "capacity_of"), (whole.used, "used")):
            for name in self._names:
                own = np.where(homeless, 0, sums[name])
                sums[name] = own + self._drawn(name, kind, outside, len(rows)) if outside else own
        return whole

    def _of_allocated(self, rows: Indices) -> ClassSums:
        sums = ClassSums({}, {})
        for name in self._names:
            class_id = self._ids.get(name)
            asking = [n for n in self._drawing if any(id_ == class_id for id_, _ in self._slots[n].resources)]
            taken = list(_first_uses(rows, asking))
            sums.capacity[name] = self._drawn(name, "capacity_of", taken, len(rows))
            sums.used[name] = self._drawn(name, "used", taken, len(rows))
        return sums

    def _drawn(self, name: str, kind: str, uses: Sequence[tuple[Indices, Mask]], count: int) -> Amounts:
        """Return the sum of what the used providers have of a class, per candidate."""
        column = self._columns[name]
        total: Amounts = np.zeros(count, np.int64)
        if column is None:
            return total
        for providers, counts in uses:
            at = column.entries_of(providers)
            amounts = np.where(counts & (at >= 0), getattr(column.entries, kind)[at], 0)
            total = total + _wide_enough(amounts)
        return total

    def anchors(self, rows: Indices) -> Indices:
        """Return the root of each candidate's tree, NO_TREE where there is none."""
        return anchors_of(self._forest, self._sharers, rows)

    def outside(self, rows: Indices, anchors: Indices) -> Iterator[tuple[Indices, Mask]]:
        """Yield the providers that candidates draw on beyond their tree, and where each is counted."""
        if not self._shares:
            return
        for providers, counts in _first_uses(rows, self._drawing):
            yield providers, counts & (self._forest.providers.root[providers] != anchors)

    def drawn(self, rows: Indices) -> Iterator[Indices]:
        """Yield the providers that candidates draw on, slot by slot."""
        for number in self._drawing:
            yield rows[:, number]


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


def _first_uses(rows: Indices, columns: Sequence[int]) -> Iterator[tuple[Indices, Mask]]:
    """Yield some columns of the candidates, each with where its provider has not occurred before."""
    for at, number in enumerate(columns):
        providers = rows[:, number]
        first = np.ones(len(rows), bool)
        for earlier in columns[:at]:
            first &= rows[:, earlier] != providers
        yield providers, first


def _of_providers(column: InventoryColumn, providers: Rows) -> tuple[Amounts, Amounts]:
    """Return capacity and use of each provider alone, 0 where it has no inventory of the class."""
    at = column.entries_of(providers)
    capacity, used = column.entries.capacity_of.take(at), column.entries.used.take(at)
    absent = at < 0
    if absent.any():
        capacity[absent] = used[absent] = 0
    return capacity, used


def _wide_enough(amounts: Amounts) -> Amounts:
    """Return the amounts, as integers of any length if a hundred times their sum could exceed 64 bits."""
    if len(amounts) and int(np.abs(amounts).max()) > _SAFE // len(amounts):
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
