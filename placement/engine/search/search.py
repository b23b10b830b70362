"""The search: filter providers, intersect roots, combine inside trees, stop at the limit.

Unordered candidates come breadth-first, one per tree in turn, or depth-first, tree by tree. In both cases
their order depends on the data and the query alone. Ordered candidates come as if all had been built, sorted
best first with equals in their unordered order, and only then cut to the limit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from placement.engine.forest.arrays import Amounts, Indices, Mask, Rows
from placement.engine.forest.forest import Forest
from placement.engine.forest.sharing import Sharing, SharingMap
from placement.engine.search.distribution import distribute
from placement.engine.search.equivalence import EquivalenceClass, EquivalenceClasses
from placement.engine.search.filters import FilledSlots, filled_slots, flags_of
from placement.engine.search.problem import Solution
from placement.engine.search.query import ForestQuery, Slot, Trace
from placement.engine.search.ranking import CandidateScores, ScoreCache
from placement.engine.search.solver import solutions

# The last stage of a search: candidates tree by tree, lazily, so that nothing is built beyond the limit.


SMALLEST_CHUNK = 512
Candidates = NDArray[np.int32]


_Pending = tuple[int, EquivalenceClass, Iterator[Solution]]
"""The rank of the first root of a chunk, like trees of the chunk, and their solutions still to come."""


def breadth_first(
    equivalence: EquivalenceClasses, roots: Indices, maximum: int, *, one_each: bool = False
) -> Iterator[Candidates]:
    """Yield one candidate per root in turn, or `one_each` only; roots beyond the limit are not looked at."""
    pending: list[_Pending] = []
    chunk = max(SMALLEST_CHUNK, min(maximum, len(roots)))
    for start in range(0, len(roots), chunk):
        batch, left = _round(
            [
                (start, trees, solutions(trees.problem, equivalence.budget))
                for trees in equivalence.of(roots[start : start + chunk])
            ],
            1,
        )
        yield batch
        pending += left
    rounds = 1
    while pending and not one_each:
        batch, pending = _round(pending, rounds)
        yield batch
        alive = sum(len(trees.ranks) for _, trees, _ in pending)
        rounds = max(1, min(2 * rounds, maximum // max(1, alive)))


def _round(pending: Sequence[_Pending], rounds: int) -> tuple[Candidates, list[_Pending]]:
    """Return the next `rounds` candidates of every root, and what may have more.

    All first candidates come by root, then all second ones.
    """
    taken = [(start, trees, list(islice(source, rounds))) for start, trees, source in pending]
    left = [each for each, (*_, found) in zip(pending, taken, strict=True) if len(found) == rounds]
    taken = [each for each in taken if each[2]]
    if not taken:
        return np.empty(0, np.int32), left
    tables = [
        trees.providers[:, np.array(found, np.intp)].reshape(-1, len(found[0])) for _, trees, found in taken
    ]
    if len(tables) == 1 and rounds == 1:
        return tables[0], left
    keys = []
    for start, trees, found in taken:
        turn = np.tile(np.arange(len(found), dtype=np.int64), len(trees.ranks))
        rank = np.repeat(trees.ranks.astype(np.int64) + start, len(found))
        keys.append(turn << 40 | rank)
    return np.concatenate(tables)[np.argsort(np.concatenate(keys))], left


def depth_first(equivalence: EquivalenceClasses, roots: Indices, maximum: int) -> Iterator[Candidates]:
    """Yield all candidates of one root before the next."""
    for start in range(0, len(roots), SMALLEST_CHUNK):
        chunk = roots[start : start + SMALLEST_CHUNK]
        places = [
            (rank, at, trees)
            for trees in equivalence.of(chunk)
            for at, rank in enumerate(trees.ranks.tolist())
        ]
        for _, at, trees in sorted(places, key=itemgetter(0)):
            found = list(islice(solutions(trees.problem, equivalence.budget), maximum))
            if found:
                yield trees.providers[at][np.array(found, np.intp)]


# Candidates best first, tree by tree, where all candidates of a tree have one score.
#
# The candidates are the ones of the unordered enumeration, and so is their order among equal scores. Trees
# are taken in descending order of their scores. So the first candidates out are the ones that sorting all of
# them would put first.


_PROBED = 4
_FIRST_BATCH, _ENUMERATION_GROWTH = 4, 8
# Numpy sorts small integers in linear time, one pass per byte; a score of one strategy is one byte.
_SMALL = (np.int8, np.int16)


def best_first(
    equivalence: EquivalenceClasses, roots: Indices, scores: Amounts, maximum: int, *, by_turn: bool
) -> Iterator[Candidates]:
    """Yield batches of candidates, best first; the caller stops reading when it has enough.

    `by_turn` tells that trees of one score yield one candidate in turn, not tree by tree.
    """
    most = int(scores.max(initial=0))
    small = next((kind for kind in _SMALL if most <= np.iinfo(kind).max), np.int64)
    order = np.argsort((-scores).astype(small), kind="stable")
    roots, scores = roots[order], scores[order]
    if len(roots) > maximum and equivalence.are_small(roots[:_PROBED]):
        # As many trees may be enough. They may cut a score in two, but what that leaves of the score is never
        # ahead of what is taken: of the last score only the first candidate of each tree counts, in order.
        head = _merged(equivalence, roots[:maximum], scores[:maximum], maximum, by_turn, cut=True)
        if len(head) >= maximum:
            yield head
            return
    # Few trees first, as some yield thousands each, and more if these yield little. A batch splits no score;
    # a score with many trees is a batch of its own.
    enumeration = breadth_first if by_turn else depth_first
    ends = np.append(np.flatnonzero(scores[1:] != scores[:-1]) + 1, len(scores))
    start, size, found = 0, _FIRST_BATCH, 0
    while start < len(scores) and found < maximum:
        at = int(np.searchsorted(ends, min(start + size, len(scores))))
        end, previous = int(ends[at]), int(ends[at - 1]) if at else 0
        if end - start > 2 * size and previous > start:
            end = previous
        wanted = maximum - found
        if scores[start] == scores[end - 1]:
            batches = enumeration(equivalence, roots[start:end], wanted)
        else:
            batches = iter([_merged(equivalence, roots[start:end], scores[start:end], wanted, by_turn)])
        for batch in batches:
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
    # The fewest turns in which these trees yield what is left.
    turns = range(int(counts[last].max(initial=0)))
    enough = bisect_left(turns, left, key=lambda turn: int(np.minimum(counts[last], turn).sum()))
    wanted[last] = np.minimum(wanted[last], enough)
    return wanted


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
    split = [number for number, slot in enumerate(slots) if slot.rule]
    roots, tree_of = np.unique(forest.providers.root[candidates[:, split[0]]], return_inverse=True)
    places: list[list[int]] = [[] for _ in roots]
    for place, tree in enumerate(tree_of.ravel().tolist()):
        places[tree].append(place)
    for trees in equivalence.of(roots.astype(np.int32)):
        splitting = trees.problem.splitting
        assert splitting is not None
        known: dict[Solution, list[dict[int, int]] | None] = {}
        for rank, rows in zip(trees.ranks.tolist(), trees.providers.tolist(), strict=True):
            for place in places[rank]:
                candidate = enumerate(candidates[place].tolist())
                solution = tuple(0 if slot in split else rows.index(row) for slot, row in candidate)
                if solution not in known:
                    known[solution] = distribute(splitting, solution, equivalence.budget)
                parts = known[solution]
                assert parts is not None
                found[place] = {
                    slot: {rows[position]: amount for position, amount in each.items()}
                    for slot, each in zip(split, parts, strict=True)
                }
    return found


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


def _nothing(slots: tuple[Slot, ...]) -> FoundCandidates:
    return FoundCandidates(slots, np.empty((0, len(slots)), np.int32))


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
    sharing = sharing_map.of(forest, query.sharing_trait)
    explained = trace is not None and trace.one_by_one
    found = None
    bound_to_tree = any(group.in_tree is not None for group in query.groups)
    if query.order is None and not explained and not bound_to_tree:
        found = _search_first_trees(forest, sharing, query, first_trees)
    if found is None:
        filled = filled_slots(forest, sharing, query, trace)
        roots = filled.viable_roots(trace)
        query.budget.note_stage("filter")
        found = _nothing(filled.slots)
        if len(roots):
            combination, ranking = _Combination(filled, roots), None
            if query.order is not None:
                sharers = sharing.mask(forest.count)
                ranking = CandidateScores(forest, query.order, filled.slots, sharers, score_cache)
            candidates = combination.first() if ranking is None else combination.best(ranking)
            found = combination.answer(candidates, ranking)
            query.budget.note_stage("combine")
    if trace is not None:
        trace.candidates = found.candidates
        trace.complete = len(found.candidates) < query.maximum
    return found


def trace_of_nothing(forest: Forest, sharing_map: SharingMap, query: ForestQuery) -> Trace:
    """Return the notes of a search that found no candidates: taking them costs as much as the search.

    Raises SearchEnded.
    """
    trace = Trace()
    filled = filled_slots(forest, sharing_map.of(forest, query.sharing_trait), query, trace)
    filled.viable_roots(trace)
    trace.candidates = _nothing(filled.slots).candidates
    return trace


def _search_first_trees(
    forest: Forest, sharing: Sharing, query: ForestQuery, first_trees: int
) -> FoundCandidates | None:
    """Return the answer, if the first trees of a large forest yield all of it: no other tree matters then."""
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
    """Return the unordered candidates that use nothing but these providers and sharing providers.

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

    def answer(self, candidates: Candidates, ranking: CandidateScores | None = None) -> FoundCandidates:
        """Return the candidates as the answer, with the parts of what they split."""
        shares, slots = None, self._filled.slots
        if any(slot.rule for slot in slots):
            shares = shares_of(self._filled.forest, self._equivalence, slots, candidates)
        return FoundCandidates(slots, candidates, ranking, shares)

    def first(self, *, one_each: bool = False) -> Candidates:
        """Return the first candidates; `one_each`: as far as no tree after these could come in between."""
        return self._taken(self._enumerated(self._query.maximum, one_each=one_each), self._query.maximum)

    def best(self, ranking: CandidateScores) -> Candidates:
        """Return the best candidates of all."""
        maximum = self._query.maximum
        if ranking.by_tree and self._sharers is None:
            self._query.budget.look()
            scores = ranking.of_trees(self._roots)
            by_turn = not self._query.depth_first
            batches = best_first(self._equivalence, self._roots, scores, maximum, by_turn=by_turn)
            return self._taken(batches, maximum)
        considered = max(maximum, self._query.considered)
        everything = self._taken(self._enumerated(considered, one_each=False), considered)
        self._query.budget.look()
        order = np.argsort(-ranking.of_candidates(everything), kind="stable")
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
                # What only sharing providers serve is found at each of their anchors.
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
