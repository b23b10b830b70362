"""The search: filter providers, intersect roots, combine inside trees, stop at the limit.

Unordered candidates come breadth-first, one per tree in turn, or depth-first, tree by tree. In both cases
their order depends on the data and the query alone. Ordered candidates come as if all had been built, sorted
best first with equals in their unordered order, and only then cut to the limit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

import numpy as np

from placement.engine.forest.arrays import Indices, Mask, Rows
from placement.engine.forest.forest import Forest
from placement.engine.forest.sharing import Sharing, SharingMap
from placement.engine.search.distribution import distribute
from placement.engine.search.enumeration import (
    Candidates,
    best_first,
    breadth_first,
    depth_first,
    one_of_each,
)
from placement.engine.search.equivalence import EquivalenceClass, EquivalenceClasses
from placement.engine.search.filters import Choices, choices_of, viable_roots
from placement.engine.search.problem import Solution
from placement.engine.search.query import ForestQuery, Slot, Trace, slots_of
from placement.engine.search.ranking import CandidateScores, ScoreCache

# Which providers give the parts of what is split: worked out again for the candidates of an answer.


Shares = dict[int, dict[int, int]]
"""Slot -> row of a provider -> amount it gives, providers by id."""


def shares_of(
    forest: Forest, equivalence: EquivalenceClasses, slots: Sequence[Slot], candidates: Indices
) -> list[Shares]:
    """Return the shares of each candidate. Raises SearchEnded."""
    if not len(candidates):
        return []
    found: list[Shares] = [{} for _ in range(len(candidates))]
    split = next(number for number, slot in enumerate(slots) if slot.rule)
    roots, tree_of = np.unique(forest.providers.root[candidates[:, split]], return_inverse=True)
    places: list[list[int]] = [[] for _ in roots]
    for place, tree in enumerate(tree_of.ravel().tolist()):
        places[tree].append(place)
    for trees in equivalence.of(roots.astype(np.int32)):
        class_shares = _ClassShares(trees, equivalence)
        for at, rank in enumerate(trees.ranks.tolist()):
            rows = trees.providers[at].tolist()
            for place in places[rank]:
                found[place] = class_shares.of(rows, candidates[place].tolist())
    return found


class _ClassShares:
    """The shares of candidates at trees that pose one problem, worked out once per solution."""

    def __init__(self, trees: EquivalenceClass, equivalence: EquivalenceClasses) -> None:
        assert trees.problem.splitting is not None
        self._splitting = trees.problem.splitting
        self._budget = equivalence.budget
        self._known: dict[Solution, list[dict[int, int]]] = {}
        self._split = {split.slot for split in self._splitting.splits}

    def of(self, rows: list[int], candidate: list[int]) -> Shares:
        """Return the shares of a candidate; `rows` are the providers of its tree that matter."""
        solution = tuple(self._positions(rows, candidate))
        if solution not in self._known:
            found = distribute(self._splitting, solution, self._budget)
            assert found is not None
            self._known[solution] = found
        return {
            split.slot: {rows[position]: amount for position, amount in parts.items()}
            for split, parts in zip(self._splitting.splits, self._known[solution], strict=True)
        }

    def _positions(self, rows: list[int], candidate: list[int]) -> Iterator[int]:
        for slot, row in enumerate(candidate):
            yield 0 if slot in self._split else rows.index(row)


# How many trees are looked at before all of them, and the factor of growth if these are not enough.
_FIRST_TREES = 256
_GROWTH = 8


@dataclass(frozen=True, slots=True)
class FoundCandidates:
    """The answer: one row per candidate, one column per slot, each the provider's row in the forest.

    A slot that is split has one of its providers there, and all of them in `shares`, which has one entry per
    candidate. `ranking` scores the candidates of an ordered query.
    """

    slots: tuple[Slot, ...]
    candidates: Candidates
    ranking: CandidateScores | None = None
    shares: Sequence[Shares] | None = None


def search(
    forest: Forest,
    sharing_map: SharingMap,
    query: ForestQuery,
    trace: Trace | None = None,
    first_trees: int = _FIRST_TREES,
    score_cache: ScoreCache | None = None,
) -> FoundCandidates:
    """Return the candidates of the query, at most `query.maximum`.

    `score_cache` keeps scores for the next search of the same forest.

    A `trace` is filled with what passed each stage, for explaining the search. It stays empty where a look at
    the `first_trees` (or a few more) was enough. Raises SearchEnded.
    """
    query.budget.begin_stages()
    slots = slots_of(query)
    sharing = sharing_map.of(forest, query.sharing_trait)
    explained = trace is not None and trace.one_by_one
    found = None
    bound_to_tree = any(group.in_tree is not None for group in query.groups)
    if query.order is None and not explained and not bound_to_tree:
        found = _search_first_trees(forest, sharing, query, slots, first_trees)
    if found is None:
        found = _search_all_trees(forest, sharing, query, slots, trace, score_cache)
    if trace is not None:
        trace.candidates = found.candidates
        trace.complete = len(found.candidates) < query.maximum
    return found


def trace_of_nothing(forest: Forest, sharing_map: SharingMap, query: ForestQuery) -> Trace:
    """Return the notes of a search that found no candidates: taking them costs as much as the search.

    Raises SearchEnded.
    """
    trace, slots, sharing = Trace(), slots_of(query), sharing_map.of(forest, query.sharing_trait)
    viable_roots(forest, query, slots, slot_choices(forest, query, slots, sharing, trace), sharing, trace)
    trace.candidates, trace.complete = np.empty((0, len(slots)), np.int32), True
    return trace


def _search_first_trees(
    forest: Forest, sharing: Sharing, query: ForestQuery, slots: tuple[Slot, ...], first_trees: int
) -> FoundCandidates | None:
    """Return the answer, if the first trees of a large forest yield all of it: no other tree matters then."""
    roots = forest.roots
    size = max(first_trees, 2 * query.maximum)
    while size < len(roots):
        window = roots[:size]
        among = forest.in_trees(window)
        if not sharing.is_empty:
            among = np.union1d(among, sharing.providers).astype(np.intp)
        choices = slot_choices(forest, query, slots, sharing, None, among)
        viable = viable_roots(forest, query, slots, choices, sharing)
        viable = viable[forest.providers.id[viable] <= forest.providers.id[window[-1]]]
        query.budget.note_stage("filter")
        if query.depth_first or len(viable) >= query.maximum:
            combination = _combination(forest, sharing, query, slots, choices, viable)
            candidates = combination.surely_first()
            query.budget.note_stage("combine")
            if len(candidates) >= query.maximum:
                return combination.found(candidates)
        size *= _GROWTH
    return None


def _search_all_trees(
    forest: Forest,
    sharing: Sharing,
    query: ForestQuery,
    slots: tuple[Slot, ...],
    trace: Trace | None,
    score_cache: ScoreCache | None,
) -> FoundCandidates:
    choices = slot_choices(forest, query, slots, sharing, trace)
    roots = viable_roots(forest, query, slots, choices, sharing, trace)
    query.budget.note_stage("filter")
    if not len(roots):
        return FoundCandidates(slots, np.empty((0, len(slots)), np.int32))
    combination = _combination(forest, sharing, query, slots, choices, roots)
    if query.order is None:
        found = combination.found(combination.first())
    else:
        ranking = CandidateScores(forest, query.order, slots, sharing.mask(forest.count), score_cache)
        found = combination.found(combination.best(ranking), ranking)
    query.budget.note_stage("combine")
    return found


def _combination(
    forest: Forest,
    sharing: Sharing,
    query: ForestQuery,
    slots: tuple[Slot, ...],
    choices: list[Choices],
    roots: Indices,
) -> _Combination:
    equivalence = EquivalenceClasses(forest, query, slots, choices, sharing)
    sharers = sharing.mask(forest.count) if any(len(c.foreign) for c in choices) else None
    return _Combination(forest, equivalence, roots, sharers, query, slots)


def search_rows(
    forest: Forest, sharing_map: SharingMap, query: ForestQuery, rows: Rows, *, one_each: bool = False
) -> FoundCandidates:
    """Return the unordered candidates that use nothing but these providers and sharing providers.

    With `one_each`, return only the first of every tree. Raises SearchEnded.
    """
    slots = slots_of(query)
    sharing = sharing_map.of(forest, query.sharing_trait)
    among = rows if sharing.is_empty else np.union1d(rows, sharing.providers).astype(np.intp)
    choices = slot_choices(forest, query, slots, sharing, None, among)
    own = np.zeros(forest.count, bool)
    own[forest.roots_of(rows)] = True
    roots = viable_roots(forest, query, slots, choices, sharing)
    roots = roots[own[roots]]
    if not len(roots):
        return FoundCandidates(slots, np.empty((0, len(slots)), np.int32))
    combination = _combination(forest, sharing, query, slots, choices, roots)
    return combination.found(combination.surely_first() if one_each else combination.first())


def shuffled(found: FoundCandidates, count: int | None, seed: int) -> FoundCandidates:
    """Return a random choice of `count` candidates (None: all) in random order; the seed decides."""
    order = np.random.default_rng(seed).permutation(len(found.candidates))[:count]
    shares = None if found.shares is None else [found.shares[place] for place in order.tolist()]
    return FoundCandidates(found.slots, found.candidates[order], shares=shares)


def slot_choices(
    forest: Forest,
    query: ForestQuery,
    slots: Sequence[Slot],
    sharing: Sharing,
    trace: Trace | None,
    among: Rows | None = None,
) -> list[Choices]:
    """Return the choices of each slot; like slots share one object."""
    plain = all(slot.rule is None for slot in slots)
    if trace is None and forest.is_flat and sharing.is_empty and plain:
        slots = _whole(slots)
    known: dict[object, Choices] = {}
    choices = []
    for slot in slots:
        key = slot.condition
        if key not in known:
            query.budget.look()
            known[key] = choices_of(forest, slot, sharing, trace, among)
        choices.append(known[key])
    return choices


def _whole(slots: Sequence[Slot]) -> list[Slot]:
    """Return each slot with the resources of its whole group, which one provider serves in a flat forest."""
    groups: dict[str, list[Slot]] = {}
    for slot in slots:
        groups.setdefault(slot.suffix, []).append(slot)
    whole = {
        suffix: replace(members[0], resources=tuple(chain(*(member.resources for member in members))))
        for suffix, members in groups.items()
    }
    return [whole[slot.suffix] for slot in slots]


@dataclass(slots=True)
class _Combination:
    """The candidates at the viable roots; `sharers` is None if no sharing provider is in play."""

    forest: Forest
    equivalence: EquivalenceClasses
    roots: Indices
    sharers: Mask | None
    query: ForestQuery
    slots: tuple[Slot, ...]

    def found(self, candidates: Candidates, ranking: CandidateScores | None = None) -> FoundCandidates:
        """Return the candidates as the answer, with the parts of what they split."""
        shares = None
        if any(slot.rule for slot in self.slots):
            shares = shares_of(self.forest, self.equivalence, self.slots, candidates)
        return FoundCandidates(self.slots, candidates, ranking, shares)

    def first(self) -> Candidates:
        """Return the first candidates found."""
        enumeration = depth_first if self.query.depth_first else breadth_first
        return self._taken(enumeration(self.equivalence, self.roots, self.query.maximum), self.query.maximum)

    def surely_first(self) -> Candidates:
        """Return the first candidates, as far as no tree after these roots could come in between."""
        enumeration = depth_first if self.query.depth_first else one_of_each
        return self._taken(enumeration(self.equivalence, self.roots, self.query.maximum), self.query.maximum)

    def best(self, ranking: CandidateScores) -> Candidates:
        """Return the best candidates of all."""
        enumeration = depth_first if self.query.depth_first else breadth_first
        maximum = self.query.maximum
        if ranking.by_tree and self.sharers is None:
            self.query.budget.look()
            scores = ranking.of_trees(self.roots)
            by_turn = not self.query.depth_first
            batches = best_first(self.equivalence, self.roots, scores, maximum, enumeration, by_turn=by_turn)
            return self._taken(batches, maximum)
        considered = max(maximum, self.query.considered)
        everything = self._taken(enumeration(self.equivalence, self.roots, considered), considered)
        self.query.budget.look()
        order = np.argsort(-ranking.of_candidates(everything), kind="stable")
        return everything[order[:maximum]]

    def _taken(self, source: Iterable[Candidates], maximum: int) -> Candidates:
        """Return the first `maximum` different candidates of the source."""
        unique = _Unique(self.sharers)
        width = len(self.slots)
        taken = [np.empty((0, width), np.int32)]
        total = 0
        for batch in source:
            self.query.budget.look()
            fresh = unique.keep(batch.reshape(-1, width))
            taken.append(fresh[: maximum - total])
            total += len(taken[-1])
            if total >= maximum:
                break
        return np.concatenate(taken)


@dataclass(slots=True)
class _Unique:
    """A filter that drops candidates found at another anchor before: only sharing providers cause these."""

    sharers: Mask | None
    _seen: set[bytes] = field(default_factory=set)

    def keep(self, batch: Candidates) -> Candidates:
        """Return the candidates not seen before, in their order."""
        if self.sharers is None or not len(batch):
            return batch
        movable = self.sharers[batch].all(axis=1)
        kept: Mask = np.logical_not(movable)
        for at in np.flatnonzero(movable).tolist():
            key = batch[at].tobytes()
            if key not in self._seen:
                self._seen.add(key)
                kept[at] = True
        return batch[kept]
