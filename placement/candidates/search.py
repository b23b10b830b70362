"""The search: filter providers, intersect roots, combine inside trees, stop at the limit.

Candidates come breadth-first, one per tree in turn, or depth-first, tree by tree; in both cases in an
order that depends on the data and the query alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from placement.candidates.arenas import Arenas, LikeTrees
from placement.candidates.arrays import Indices, Mask
from placement.candidates.filters import Choices, choices_of
from placement.candidates.forest import Forest
from placement.candidates.query import ForestQuery, Slot, slots_of
from placement.candidates.sharing import Sharing, SharingMap
from placement.candidates.solver import Solution, solutions

_SMALLEST_CHUNK = 512
Candidates = NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Found:
    """The answer: one row per candidate, one column per slot, each the provider's row in the forest."""

    slots: tuple[Slot, ...]
    candidates: Candidates


def search(forest: Forest, sharing_map: SharingMap, query: ForestQuery) -> Found:
    """All candidates of the query, at most `query.maximum`."""
    slots = slots_of(query)
    sharing = sharing_map.of(forest, query.sharing_trait)
    choices = _choices(forest, slots, sharing)
    roots = _viable_roots(forest, query, slots, choices, sharing)
    if not len(roots):
        return Found(slots, np.empty((0, len(slots)), np.int32))
    arenas = Arenas(forest, query, slots, choices, sharing)
    walk = _depth_first if query.depth_first else _breadth_first
    unique = _Unique(sharing.mask(forest.count) if any(len(c.foreign) for c in choices) else None)
    blocks = []
    total = 0
    for block in walk(arenas, roots, query.maximum):
        fresh = unique.keep(block.reshape(-1, len(slots)))
        blocks.append(fresh[: query.maximum - total])
        total += len(blocks[-1])
        if total >= query.maximum:
            break
    empty = np.empty((0, len(slots)), np.int32)
    return Found(slots, np.concatenate([empty, *blocks]))


def shuffled(found: Found, count: int | None, seed: int) -> Found:
    """A random choice of `count` candidates (None: all of them) in random order; the seed decides."""
    order = np.random.default_rng(seed).permutation(len(found.candidates))
    return Found(found.slots, found.candidates[order[:count]])


def _choices(forest: Forest, slots: Sequence[Slot], sharing: Sharing) -> list[Choices]:
    """The choices of each slot; like slots share one object."""
    known: dict[object, Choices] = {}
    choices = []
    for slot in slots:
        key = (slot.suffixed, slot.resources, slot.group.condition)
        if key not in known:
            known[key] = choices_of(forest, slot, sharing)
        choices.append(known[key])
    return choices


def _viable_roots(
    forest: Forest, query: ForestQuery, slots: Sequence[Slot], choices: Sequence[Choices], sharing: Sharing
) -> Indices:
    """The roots at which every slot has somebody, in order of their ids."""
    viable: Mask | None = None
    for choice in {id(choice): choice for choice in choices}.values():
        reached = _anchors(forest, choice, sharing)
        viable = reached if viable is None else viable & reached
    if viable is None:
        return np.empty(0, np.int32)
    for any_of in _collective_sets(slots):
        viable = viable & _anchors_covering(forest, slots, choices, sharing, any_of)
    roots = np.flatnonzero(viable).astype(np.int32)
    if query.root_required or query.root_forbidden:
        roots = roots[forest.traits.satisfying(roots, query.root_required, query.root_forbidden)]
    if query.root_member_of:
        roots = roots[forest.aggregates.satisfying(roots, query.root_member_of)]
    for forbidden in _forbidden_at_root(slots):
        roots = roots[forest.aggregates.satisfying(roots, (), forbidden)]
    ids = forest.providers.id[roots]
    return roots if (ids[1:] > ids[:-1]).all() else roots[np.argsort(ids)]


def _anchors(forest: Forest, choice: Choices, sharing: Sharing) -> Mask:
    """The roots at which somebody of the choices can serve."""
    if forest.is_flat:
        reached = choice.own_mask
    else:
        reached = np.zeros(forest.count, bool)
        reached[forest.roots_of(choice.own)] = True
    if len(choice.foreign):
        serving = choice.foreign_mask[sharing.pair_provider]
        reached = reached.copy()
        reached[sharing.pair_anchor[serving]] = True
    return reached


def _collective_sets(slots: Sequence[Slot]) -> tuple[frozenset[int], ...]:
    return next((slot.group.required for slot in slots if not slot.suffixed), ())


def _forbidden_at_root(slots: Sequence[Slot]) -> Iterator[frozenset[int]]:
    """The unsuffixed group forbids aggregates to the anchor, too."""
    for slot in slots:
        if not slot.suffixed and slot.group.forbidden_aggregates:
            yield slot.group.forbidden_aggregates
            return


def _anchors_covering(
    forest: Forest,
    slots: Sequence[Slot],
    choices: Sequence[Choices],
    sharing: Sharing,
    any_of: frozenset[int],
) -> Mask:
    """The roots at which somebody of the unsuffixed group meets a trait condition."""
    covered = np.zeros(forest.count, bool)
    for slot, choice in zip(slots, choices, strict=True):
        if not slot.suffixed:
            able = Choices(
                forest.count,
                choice.own[forest.traits.satisfying(choice.own, (any_of,))],
                choice.foreign[forest.traits.satisfying(choice.foreign, (any_of,))],
            )
            covered |= _anchors(forest, able, sharing)
    return covered


@dataclass(slots=True)
class _Unique:
    """Drops candidates that were found at another anchor already: only sharing providers can do that."""

    sharers: Mask | None
    _seen: set[bytes] = field(default_factory=set)

    def keep(self, block: Candidates) -> Candidates:
        """The candidates not seen before, in their order."""
        if self.sharers is None or not len(block):
            return block
        movable = self.sharers[block].all(axis=1)
        kept: Mask = np.logical_not(movable)
        for at in np.flatnonzero(movable).tolist():
            key = block[at].tobytes()
            if key not in self._seen:
                self._seen.add(key)
                kept[at] = True
        return block[kept]


class _Lazy:
    """The solutions of one problem, worked out as far as somebody asked."""

    def __init__(self, trees: LikeTrees) -> None:
        self.trees = trees
        self._source = solutions(trees.problem)
        self.exhausted = False

    def next(self, count: int) -> list[Solution]:
        """The next solutions, at most `count`."""
        found = list(islice(self._source, count))
        self.exhausted = len(found) < count
        return found


def _breadth_first(arenas: Arenas, roots: Indices, maximum: int) -> Iterator[Candidates]:
    """One candidate per root in turn. Roots beyond what the limit needs are not even looked at."""
    chunk = max(_SMALLEST_CHUNK, min(maximum, len(roots)))
    pending: list[tuple[int, _Lazy]] = []
    for start in range(0, len(roots), chunk):
        fresh = [(start, _Lazy(trees)) for trees in arenas.of(roots[start : start + chunk])]
        yield _round(fresh, 1)
        pending.extend(fresh)
    rounds = 1
    while pending := [(start, lazy) for start, lazy in pending if not lazy.exhausted]:
        yield _round(pending, rounds)
        alive = sum(len(lazy.trees.ranks) for _, lazy in pending)
        rounds = max(1, min(2 * rounds, maximum // max(1, alive)))


def _round(lazies: list[tuple[int, _Lazy]], rounds: int) -> Candidates:
    """The next `rounds` candidates of every root: all first ones by root, then all second ones."""
    tables, keys = [], []
    for start, lazy in lazies:
        found = lazy.next(rounds)
        if not found:
            continue
        positions = np.array(found, np.intp)
        trees = lazy.trees
        tables.append(trees.arenas[:, positions].reshape(-1, positions.shape[1]))
        turn = np.tile(np.arange(len(found), dtype=np.int64), len(trees.ranks))
        rank = np.repeat(trees.ranks.astype(np.int64) + start, len(found))
        keys.append(turn << 40 | rank)
    if not tables:
        return np.empty(0, np.int32)
    if len(tables) == 1 and rounds == 1:
        return tables[0]
    return np.concatenate(tables)[np.argsort(np.concatenate(keys))]


def _depth_first(arenas: Arenas, roots: Indices, maximum: int) -> Iterator[Candidates]:
    """All candidates of one root before the next."""
    for start in range(0, len(roots), _SMALLEST_CHUNK):
        chunk = roots[start : start + _SMALLEST_CHUNK]
        place: dict[int, tuple[LikeTrees, int]] = {}
        for trees in arenas.of(chunk):
            for at, rank in enumerate(trees.ranks.tolist()):
                place[rank] = (trees, at)
        for rank in sorted(place):
            trees, at = place[rank]
            found = list(islice(solutions(trees.problem), maximum))
            if found:
                yield trees.arenas[at][np.array(found, np.intp)]
