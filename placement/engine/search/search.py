"""The search: filter providers, intersect roots, combine inside trees, stop at the limit.

Unordered candidates come breadth-first, one per tree in turn, or depth-first, tree by tree. In both cases
their order depends on the data and the query alone. Ordered candidates come as if all had been built, sorted
best first with equals in their unordered order, and only then cut to the limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice

import numpy as np
from numpy.typing import NDArray

from placement.engine.forest.arrays import Amounts, Indices, Mask, Rows
from placement.engine.forest.forest import Forest
from placement.engine.forest.sharing import Sharing, SharingMap
from placement.engine.search.budget import Budget
from placement.engine.search.distribution import distribute
from placement.engine.search.equivalence import EquivalenceClass, EquivalenceClasses
from placement.engine.search.filters import Choices, choices_of, viable_roots
from placement.engine.search.problem import Solution
from placement.engine.search.query import ForestQuery, Slot, Trace, slots_of
from placement.engine.search.ranking import CandidateScores, ScoreCache
from placement.engine.search.solver import solutions

# The last stage of a search: candidates tree by tree, lazily, so that nothing is built beyond the limit.


SMALLEST_CHUNK = 512
Candidates = NDArray[np.int32]


class _Lazy:
    """A lazy list of the solutions of one problem, worked out as far as requested."""

    def __init__(self, trees: EquivalenceClass, budget: Budget) -> None:
        self.trees = trees
        self._source = solutions(trees.problem, budget)
        self.exhausted = False

    def next(self, count: int) -> list[Solution]:
        """Return the next solutions, at most `count`."""
        found = list(islice(self._source, count))
        self.exhausted = len(found) < count
        return found


def breadth_first(equivalence: EquivalenceClasses, roots: Indices, maximum: int) -> Iterator[Candidates]:
    """Yield one candidate per root in turn. Roots beyond what the limit needs are not even looked at."""
    pending: list[tuple[int, _Lazy]] = []
    for batch, fresh in _first_round(equivalence, roots, maximum):
        yield batch
        pending.extend(fresh)
    rounds = 1
    while pending := [(start, lazy) for start, lazy in pending if not lazy.exhausted]:
        yield _round(pending, rounds)
        alive = sum(len(lazy.trees.ranks) for _, lazy in pending)
        rounds = max(1, min(2 * rounds, maximum // max(1, alive)))


def one_of_each(equivalence: EquivalenceClasses, roots: Indices, maximum: int) -> Iterator[Candidates]:
    """Yield the first candidate of every root, as `breadth_first` begins."""
    for batch, _ in _first_round(equivalence, roots, maximum):
        yield batch


def _first_round(
    equivalence: EquivalenceClasses, roots: Indices, maximum: int
) -> Iterator[tuple[Candidates, list[tuple[int, _Lazy]]]]:
    chunk = max(SMALLEST_CHUNK, min(maximum, len(roots)))
    for start in range(0, len(roots), chunk):
        fresh = [
            (start, _Lazy(trees, equivalence.budget))
            for trees in equivalence.of(roots[start : start + chunk])
        ]
        yield _round(fresh, 1), fresh


def _round(lazies: list[tuple[int, _Lazy]], rounds: int) -> Candidates:
    """Return the next `rounds` candidates of every root: all first ones by root, then all second ones."""
    taken = [(start, lazy.trees, found) for start, lazy in lazies if (found := lazy.next(rounds))]
    if not taken:
        return np.empty(0, np.int32)
    tables = [
        trees.providers[:, np.array(found, np.intp)].reshape(-1, len(found[0])) for _, trees, found in taken
    ]
    if len(tables) == 1 and rounds == 1:
        return tables[0]
    keys = []
    for start, trees, found in taken:
        turn = np.tile(np.arange(len(found), dtype=np.int64), len(trees.ranks))
        rank = np.repeat(trees.ranks.astype(np.int64) + start, len(found))
        keys.append(turn << 40 | rank)
    return np.concatenate(tables)[np.argsort(np.concatenate(keys))]


def depth_first(equivalence: EquivalenceClasses, roots: Indices, maximum: int) -> Iterator[Candidates]:
    """Yield all candidates of one root before the next."""
    for start in range(0, len(roots), SMALLEST_CHUNK):
        chunk = roots[start : start + SMALLEST_CHUNK]
        place: dict[int, tuple[EquivalenceClass, int]] = {}
        for trees in equivalence.of(chunk):
            for at, rank in enumerate(trees.ranks.tolist()):
                place[rank] = (trees, at)
        for rank in sorted(place):
            trees, at = place[rank]
            found = list(islice(solutions(trees.problem, equivalence.budget), maximum))
            if found:
                yield trees.providers[at][np.array(found, np.intp)]


# Candidates best first, tree by tree, where all candidates of a tree have one score.
#
# The candidates are the ones of the unordered enumeration, and so is their order among equal scores. Trees
# are taken in descending order of their scores. So the first candidates out are the ones that sorting all of
# them would put first.


Enumeration = Callable[[EquivalenceClasses, Indices, int], Iterator[Candidates]]
_PROBED = 4
_FIRST_BATCH, _ENUMERATION_GROWTH = 4, 8
# Numpy sorts small integers in linear time, one pass per byte; a score of one strategy is one byte.
_SMALL = (np.int8, np.int16)


def best_first(
    equivalence: EquivalenceClasses,
    roots: Indices,
    scores: Amounts,
    maximum: int,
    enumeration: Enumeration,
    *,
    by_turn: bool,
) -> Iterator[Candidates]:
    """Yield batches of candidates, best first; the caller stops reading when it has enough.

    `enumeration` yields the candidates of trees of one score in their order. `by_turn` tells that it yields
    one candidate per tree in turn, not tree by tree.
    """
    most = int(scores.max(initial=0))
    small = next((kind for kind in _SMALL if most <= np.iinfo(kind).max), np.int64)
    order = np.argsort((-scores).astype(small), kind="stable")
    roots, scores = roots[order], scores[order]
    if len(roots) > maximum and equivalence.are_small(roots[:_PROBED]):
        head = _head(equivalence, roots, scores, maximum, by_turn)
        if head is not None:
            yield head
            return
    yield from _batches(equivalence, roots, scores, maximum, enumeration, by_turn)


def _head(
    equivalence: EquivalenceClasses, roots: Indices, scores: Amounts, maximum: int, by_turn: bool
) -> Candidates | None:
    """Return the first `maximum` candidates from as many trees, None if these do not yield enough.

    This may cut a score in two, but what it leaves of that score is never ahead of what it takes. Of the last
    score only the first candidate of each tree counts, and the trees are in order.
    """
    found = _merged(equivalence, roots[:maximum], scores[:maximum], maximum, by_turn, cut=True)
    return found if len(found) >= maximum else None


def _batches(
    equivalence: EquivalenceClasses,
    roots: Indices,
    scores: Amounts,
    maximum: int,
    enumeration: Enumeration,
    by_turn: bool,
) -> Iterator[Candidates]:
    """Yield batches of few trees first, as some yield thousands each, and of more if these yield little.

    A batch splits no score; a score with many trees is a batch of its own.
    """
    ends = np.append(np.flatnonzero(scores[1:] != scores[:-1]) + 1, len(scores))
    start, size, found = 0, _FIRST_BATCH, 0
    while start < len(scores) and found < maximum:
        at = int(np.searchsorted(ends, min(start + size, len(scores))))
        end, previous = int(ends[at]), int(ends[at - 1]) if at else 0
        if end - start > 2 * size and previous > start:
            end = previous
        if scores[start] == scores[end - 1]:
            for batch in enumeration(equivalence, roots[start:end], maximum - found):
                found += len(batch)
                yield batch
        else:
            batch = _merged(equivalence, roots[start:end], scores[start:end], maximum - found, by_turn)
            found += len(batch)
            yield batch
        start = end
        size = min(_ENUMERATION_GROWTH * size, max(_FIRST_BATCH, start * (maximum - found) // max(1, found)))


def _merged(
    equivalence: EquivalenceClasses,
    roots: Indices,
    scores: Amounts,
    maximum: int,
    by_turn: bool,
    *,
    cut: bool = False,
) -> Candidates:
    """Return the first `maximum` candidates (or a few more) of trees of different scores.

    `cut`: trees of the last score are missing, so only what surely precedes their candidates is taken.
    """
    found: list[tuple[EquivalenceClass, list[Solution]]] = []
    counts = np.zeros(len(roots), np.int64)
    for trees in equivalence.of(roots):
        solved = list(islice(solutions(trees.problem, equivalence.budget), maximum))
        counts[trees.ranks] = len(solved)
        found.append((trees, solved))
    if counts.max(initial=0) <= 1:
        return _one_each(found, len(roots))
    # Tree by tree is as if every tree had a score of its own.
    levels = np.cumsum(np.append(0, scores[1:] != scores[:-1])) if by_turn else np.arange(len(roots))
    if cut and by_turn:
        last = levels == levels[-1]
        counts[last] = np.minimum(counts[last], 1)
    wanted = _wanted(counts, levels, maximum)
    turns = int(wanted.max(initial=0))
    tables: list[Candidates] = []
    keys: list[Amounts] = []
    for trees, solved in found:
        # One number for all trees, cut afterwards: a few candidates too many cost less than picking.
        number = int(wanted[trees.ranks].max())
        if number:
            positions = np.array(solved[:number], np.intp)
            ranks = np.repeat(trees.ranks.astype(np.int64), number)
            turn = np.tile(np.arange(number), len(trees.ranks))
            kept = turn < wanted[ranks]
            table = trees.providers[:, positions].reshape(-1, positions.shape[1])
            tables.append(table if kept.all() else table[kept])
            keys.append(((levels[ranks] * turns + turn) * len(roots) + ranks)[kept])
    if not tables:
        return np.empty(0, np.int32)
    ordered: Candidates = np.concatenate(tables)[np.argsort(np.concatenate(keys))]
    return ordered


def _one_each(found: Sequence[tuple[EquivalenceClass, list[Solution]]], count: int) -> Candidates:
    """Return the only candidate of each tree that has one, in order of the trees."""
    firsts = [(trees, np.array(solved[0], np.intp)) for trees, solved in found if solved]
    if not firsts:
        return np.empty(0, np.int32)
    if len(firsts) == 1:
        # Like trees come in order of their ranks.
        trees, positions = firsts[0]
        return trees.providers[:, positions]
    table = np.full((count, len(firsts[0][1])), -1, np.int32)
    for trees, positions in firsts:
        table[trees.ranks] = trees.providers[:, positions]
    return table[table[:, 0] >= 0]


def _wanted(counts: Amounts, levels: Amounts, maximum: int) -> Amounts:
    """Return how many candidates of each tree can be among the first `maximum`."""
    before = np.cumsum(counts) - counts
    wanted = counts.copy()
    # Trees before a level come before all trees of the level.
    first_of_level = np.searchsorted(levels, levels)
    wanted[before[first_of_level] >= maximum] = 0
    last = levels == levels[wanted > 0].max(initial=0)
    left = maximum - int(before[first_of_level[last]].min(initial=0))
    wanted[last] = np.minimum(wanted[last], _turns(counts[last], left))
    return wanted


def _turns(counts: Amounts, left: int) -> int:
    """Return the fewest turns in which trees with so many candidates yield `left` of them."""
    low, high = 0, int(counts.max(initial=0))
    while low < high:
        middle = (low + high) // 2
        if int(np.minimum(counts, middle).sum()) >= left:
            high = middle
        else:
            low = middle + 1
    return low


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
