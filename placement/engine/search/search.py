"""The search: filter providers, intersect roots, combine inside trees, stop at the limit.

Unordered candidates come breadth-first, one per tree in turn, or depth-first, tree by tree. In both cases
their order depends on the data and the query alone. Ordered candidates come as if all had been built, sorted
best first with equals in their unordered order, and only then cut to the limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from placement.engine.forest.arrays import Indices, Mask, Rows
from placement.engine.forest.forest import Forest
from placement.engine.forest.sharing import Sharing, SharingMap
from placement.engine.search.enumeration import Candidates, breadth_first, depth_first
from placement.engine.search.equivalence import EquivalenceClasses
from placement.engine.search.filters import FilledSlots, filled_slots, flags_of
from placement.engine.search.ordered_enumeration import best_first
from placement.engine.search.query import ForestQuery, Slot
from placement.engine.search.ranking import CandidateScores, ScoreCache
from placement.engine.search.split_shares import SplitShares, shares_of

# How many trees are looked at before all of them, and the factor of growth if these are not enough.
_FIRST_TREES = 256
_GROWTH = 8


@dataclass(frozen=True, slots=True)
class FoundCandidates:
    """The answer: one row per candidate, one column per slot, each the provider's row in the forest.

    A split slot has one of its providers there, and all of them in `shares`, with one entry per candidate.
    `scores` are of the candidates of an ordered query.
    """

    slots: tuple[Slot, ...]
    candidates: Candidates
    scores: CandidateScores | None = None
    shares: Sequence[SplitShares] | None = None


def _nothing(slots: tuple[Slot, ...]) -> FoundCandidates:
    return FoundCandidates(slots, np.empty((0, len(slots)), np.int32))


def search(
    forest: Forest,
    sharing_map: SharingMap,
    query: ForestQuery,
    first_trees: int = _FIRST_TREES,
    score_cache: ScoreCache | None = None,
) -> FoundCandidates:
    """Return the candidates of the query, at most `query.maximum`.

    `score_cache` keeps scores for the next search of the same forest. Raises SearchEnded.
    """
    query.budget.begin_stages()
    sharing = sharing_map.of(forest, query.sharing_trait)
    found = None
    bound_to_tree = any(group.in_tree is not None for group in query.groups)
    if query.order is None and not bound_to_tree:
        found = _search_first_trees(forest, sharing, query, first_trees)
    if found is None:
        filled = filled_slots(forest, sharing, query)
        roots = filled.viable_roots()
        query.budget.note_stage("filter")
        found = _nothing(filled.slots)
        if len(roots):
            combination, scores = _Combination(filled, roots), None
            if query.order is not None:
                sharers = sharing.mask(forest.count)
                scores = CandidateScores(forest, query.order, filled.slots, sharers, score_cache)
            candidates = combination.first() if scores is None else combination.best(scores)
            found = combination.answer(candidates, scores)
            query.budget.note_stage("combine")
    return found


def _search_first_trees(
    forest: Forest, sharing: Sharing, query: ForestQuery, first_trees: int
) -> FoundCandidates | None:
    """Return the answer if the first trees of a large forest yield all of it, else None."""
    roots = forest.roots
    size = max(first_trees, 2 * query.maximum)
    while size < len(roots):
        window = roots[:size]
        filled = _filled_among(forest, sharing, query, forest.in_trees(window))
        viable = filled.viable_roots()
        viable = viable[forest.providers.id[viable] <= forest.providers.id[window[-1]]]
        query.budget.note_stage("filter")
        if query.depth_first or len(viable) >= query.maximum:
            combination = _Combination(filled, viable)
            candidates = combination.first(one_each=True)
            query.budget.note_stage("combine")
            if len(candidates) >= query.maximum:
                return combination.answer(candidates)
        size *= _GROWTH
    return None


def _filled_among(forest: Forest, sharing: Sharing, query: ForestQuery, rows: Rows) -> FilledSlots:
    among = rows if sharing.is_empty else np.union1d(rows, sharing.providers).astype(np.intp)
    return filled_slots(forest, sharing, query, among=among)


def search_rows(
    forest: Forest, sharing_map: SharingMap, query: ForestQuery, rows: Rows, *, one_each: bool = False
) -> FoundCandidates:
    """Return the unordered candidates that use only these providers and sharing providers.

    With `one_each`, return only the first of every tree. Raises SearchEnded.
    """
    sharing = sharing_map.of(forest, query.sharing_trait)
    filled = _filled_among(forest, sharing, query, rows)
    roots = filled.viable_roots()
    roots = roots[flags_of(forest.count, forest.roots_of(rows))[roots]]
    if not len(roots):
        return _nothing(filled.slots)
    combination = _Combination(filled, roots)
    return combination.answer(combination.first(one_each=one_each))


def shuffled(found: FoundCandidates, count: int | None, seed: int) -> FoundCandidates:
    """Return a random choice of `count` candidates (None: all) in random order; the seed decides."""
    order = np.random.default_rng(seed).permutation(len(found.candidates))[:count]
    shares = None if found.shares is None else [found.shares[place] for place in order.tolist()]
    return FoundCandidates(found.slots, found.candidates[order], shares=shares)


class _Combination:
    """The candidates at the viable roots."""

    def __init__(self, filled: FilledSlots, roots: Indices) -> None:
        self._filled = filled
        self._query = filled.query
        self._roots = roots
        self._equivalence = EquivalenceClasses(filled)
        # Which rows share, None if no sharing provider is in play.
        self._sharers: Mask | None = None
        if any(len(choice.foreign) for choice in filled.choices):
            self._sharers = filled.sharing.mask(filled.forest.count)

    def answer(self, candidates: Candidates, scores: CandidateScores | None = None) -> FoundCandidates:
        """Return the candidates as the answer, with the parts of split amounts."""
        shares, slots = None, self._filled.slots
        if any(slot.rule for slot in slots):
            shares = shares_of(self._filled.forest, self._equivalence, slots, candidates)
        return FoundCandidates(slots, candidates, scores, shares)

    def first(self, *, one_each: bool = False) -> Candidates:
        """Return the first candidates; with `one_each` only the first of each tree, before any second one."""
        return self._taken(self._enumerated(self._query.maximum, one_each=one_each), self._query.maximum)

    def best(self, candidate_scores: CandidateScores) -> Candidates:
        """Return the best candidates of all."""
        maximum = self._query.maximum
        if candidate_scores.by_tree and self._sharers is None:
            self._query.budget.look()
            scores = candidate_scores.of_trees(self._roots)
            by_turn = not self._query.depth_first
            batches = best_first(self._equivalence, self._roots, scores, maximum, by_turn=by_turn)
            return self._taken(batches, maximum)
        considered = max(maximum, self._query.considered)
        everything = self._taken(self._enumerated(considered, one_each=False), considered)
        self._query.budget.look()
        order = np.argsort(-candidate_scores.of_candidates(everything), kind="stable")
        return everything[order[:maximum]]

    def _enumerated(self, maximum: int, *, one_each: bool) -> Iterator[Candidates]:
        if self._query.depth_first:
            return depth_first(self._equivalence, self._roots, maximum)
        return breadth_first(self._equivalence, self._roots, maximum, one_each=one_each)

    def _taken(self, source: Iterable[Candidates], maximum: int) -> Candidates:
        """Return the first `maximum` different candidates of the source."""
        seen: set[bytes] = set()
        width = len(self._filled.slots)
        taken = [np.empty((0, width), np.int32)]
        total = 0
        for batch in source:
            self._query.budget.look()
            batch = batch.reshape(-1, width)
            if self._sharers is not None and len(batch):
                # Candidates of sharing providers alone are found at each anchor of these.
                movable = self._sharers[batch].all(axis=1)
                kept: Mask = np.logical_not(movable)
                for at in np.flatnonzero(movable).tolist():
                    key = batch[at].tobytes()
                    kept[at] = key not in seen
                    seen.add(key)
                batch = batch[kept]
            taken.append(batch[: maximum - total])
            total += len(taken[-1])
            if total >= maximum:
                break
        return np.concatenate(taken)
