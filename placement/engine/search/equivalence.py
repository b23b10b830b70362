"""The third stage of a search: roots are sorted into equivalence classes; each class is one problem.

A tree matters by its providers that can fill some slot, and by the sharing providers anchored there. Two
roots where these have equal features pose the same `Problem`: they are of one equivalence class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from placement.engine.forest.arrays import Amounts, Indices, Mask, Rows
from placement.engine.forest.inventories import InventoryColumn
from placement.engine.search.filters import Choices, FilledSlots
from placement.engine.search.problem import Contention, Problem, Split, SplitSupply, Splitting
from placement.engine.search.query import ForestQuery, Slot, demands_of
from placement.engine.search.solver import solutions

_WORD = 62
_FEW = 8
# The steps that decoding a problem costs the budget.
_STEPS_PER_PROBLEM = 4
IndexTable = NDArray[np.int32]
HeadroomOf = Callable[[InventoryColumn, Indices], Amounts]
"""The function for what several slots may take of a class from each provider between them."""


@dataclass(frozen=True, slots=True)
class EquivalenceClass:
    """A set of roots with one problem: `providers[i]` matter at the root with the rank `ranks[i]`."""

    ranks: Indices
    providers: IndexTable
    problem: Problem


@dataclass(frozen=True, slots=True)
class _Band:
    """A set of roots where equally many providers matter; the first `own` columns are of the tree itself."""

    ranks: Indices
    providers: IndexTable
    own: int


class EquivalenceClasses:
    """A partition of any set of roots into classes that pose the same problem to one query."""

    def __init__(self, filled: FilledSlots, headroom_of: HeadroomOf = InventoryColumn.headroom) -> None:
        forest, query, slots = filled.forest, filled.query, filled.slots
        self._filled = filled
        self._forest = forest
        self._query = query
        self._slots = slots
        self._headroom_of = headroom_of
        self.budget = query.budget
        # Slots of like groups share one Choices object and so one bit of the features.
        self._distinct = list({id(choice): choice for choice in filled.choices}.values())
        numbers = {id(choice): number for number, choice in enumerate(self._distinct)}
        self._choice_of = [numbers[id(choice)] for choice in filled.choices]
        foreign = any(len(choice.foreign) for choice in self._distinct)
        self._only_roots_matter = forest.is_flat and not foreign
        self._splits = _SplitSlots(slots, query)
        whole = [number for number, slot in enumerate(slots) if not slot.rule]
        self._isolated = _bit_set(at for at in whole if query.isolate and slots[at].group.suffix)
        self._base_slots = _bit_set(at for at in whole if not slots[at].group.suffix)
        self._base_required = next((slot.group.required for slot in slots if not slot.group.suffix), ())
        subtrees = ((at for at in whole if slots[at].group.suffix in names) for names in query.same_subtree)
        self._subtrees = tuple(filter(None, map(_bit_set, subtrees)))
        self._contended = list(_contended(slots, whole, self._isolated))
        self._blocks = _blocks_of(slots, whole, self._subtrees)

    def of(self, roots: Indices) -> Iterator[EquivalenceClass]:
        """Yield the problems of the roots; the rank of a root is its place in `roots`."""
        for band in self._bands(roots):
            yield from self._classes(band)

    def are_small(self, roots: Indices) -> bool:
        """Return whether each of the roots yields a few candidates at most."""
        few = (islice(solutions(trees.problem, self.budget), _FEW + 1) for trees in self.of(roots))
        return self._only_roots_matter or all(len(list(found)) <= _FEW for found in few)

    @cached_property
    def _served(self) -> tuple[Rows, Rows, Mask]:
        """Return (root, provider, whether foreign) of all that matters; unused where only roots do."""
        union = Choices.union(self._distinct)
        roots, rows = union.served(self._forest, self._filled.sharing)
        return roots, rows, np.arange(len(rows)) >= len(union.own)

    def _bands(self, roots: Indices) -> Iterator[_Band]:
        if self._only_roots_matter:
            yield _Band(np.arange(len(roots), dtype=np.int32), roots[:, None], 1)
            return
        rank_of = np.full(self._forest.count, -1, np.int32)
        rank_of[roots] = np.arange(len(roots), dtype=np.int32)
        anchors, rows, foreign = self._served
        ranks = rank_of[anchors]
        kept = ranks >= 0
        ranks, rows, foreign = ranks[kept], rows[kept], foreign[kept]
        own_ranks, foreign_ranks = ranks[~foreign], ranks[foreign]
        # By root, then the providers of the tree itself, then by id.
        rows = rows[np.lexsort((self._forest.providers.id[rows], foreign, ranks))]
        own_sizes = np.bincount(own_ranks, minlength=len(roots))
        foreign_sizes = np.bincount(foreign_ranks, minlength=len(roots))
        starts = np.cumsum(own_sizes + foreign_sizes) - own_sizes - foreign_sizes
        sizes = own_sizes * (len(self._filled.sharing.providers) + 1) + foreign_sizes
        for size in np.flatnonzero(np.bincount(sizes)).tolist():
            ranks = np.flatnonzero(sizes == size).astype(np.int32)
            own = int(own_sizes[ranks[0]])
            width = own + int(foreign_sizes[ranks[0]])
            if width:
                yield _Band(ranks, rows[starts[ranks][:, None] + np.arange(width)], own)

    def _classes(self, band: _Band) -> Iterator[EquivalenceClass]:
        self.budget.look()
        features = self._features(band)
        table = np.concatenate(features, axis=1)
        if (table == table[0]).all():
            yield EquivalenceClass(band.ranks, band.providers, self._problem(features, 0))
            return
        keys = np.ascontiguousarray(table).view(np.dtype((np.void, table.dtype.itemsize * table.shape[1])))
        _, first, inverse = np.unique(keys.ravel(), return_index=True, return_inverse=True)
        order = np.argsort(inverse, kind="stable")
        ends = np.cumsum(np.bincount(inverse))
        for number, end in enumerate(ends.tolist()):
            self.budget.spend(_STEPS_PER_PROBLEM)
            alike = order[ends[number - 1] if number else 0 : end]
            problem = self._problem(features, int(first[number]))
            yield EquivalenceClass(band.ranks[alike], band.providers[alike], problem)

    # -- features: everything that a problem depends on, (roots, positions) int64 each ----

    def _features(self, band: _Band) -> list[Amounts]:
        providers, rows = band.providers, band.providers.ravel()
        features = []
        for numbers in _words(len(self._distinct)):
            word = np.zeros(providers.shape, np.int64)
            for bit, number in enumerate(numbers):
                own, foreign = providers[:, : band.own], providers[:, band.own :]
                word[:, : band.own] |= self._distinct[number].own_mask[own].astype(np.int64) << bit
                word[:, band.own :] |= self._distinct[number].foreign_mask[foreign].astype(np.int64) << bit
            features.append(word)
        for class_id, demand in self._contended:
            headroom = self._headroom_of(self._forest.column(class_id), rows)
            features.append(np.clip(headroom.reshape(providers.shape), 0, sum(demand)))
        for numbers in _words(len(self._base_required)):
            word = np.zeros(providers.shape, np.int64)
            for bit, number in enumerate(numbers):
                covering = self._forest.traits.satisfying(rows, (self._base_required[number],))
                word |= covering.reshape(providers.shape).astype(np.int64) << bit
            features.append(word)
        if self._subtrees or self._splits.look_below:
            features.append(self._nearest_ancestors(providers))
        if self._query.one_provider_per_tree:
            features.append(self._tree_labels(providers))
        for class_id in self._splits.classes:
            parts = self._forest.column(class_id).parts(rows)
            features.extend(column.reshape(providers.shape) for column in parts)
        return features

    def _nearest_ancestors(self, providers: IndexTable) -> Amounts:
        """Return the position of the nearest proper ancestor that also matters, -1 if none does."""
        parents = self._forest.providers.parent
        count, width = providers.shape
        offsets = np.arange(count, dtype=np.int64)[:, None] * self._forest.count
        keys = (offsets + providers).ravel()
        order = np.argsort(keys)
        ordered = keys[order]
        nearest = np.full((count, width), -1, np.int64)
        current = parents[providers]
        while True:
            searching = (current >= 0) & (nearest < 0)
            if not searching.any():
                return nearest
            wanted = np.where(searching, offsets + current, -1).ravel()
            at = np.minimum(np.searchsorted(ordered, wanted), len(ordered) - 1)
            found = (ordered[at] == wanted).reshape(count, width)
            nearest = np.where(found, (order[at] % width).reshape(count, width), nearest)
            current = np.where(searching, parents[current], -1)

    def _tree_labels(self, providers: IndexTable) -> Amounts:
        """Return per position the first position with a provider of the same root."""
        roots = self._forest.providers.root[providers]
        order = np.argsort(roots, axis=1, kind="stable")
        ordered = np.take_along_axis(roots, order, axis=1)
        begins = np.ones(roots.shape, bool)
        begins[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
        # Among equal roots a stable sort keeps the first position first.
        first = np.maximum.accumulate(np.where(begins, np.arange(roots.shape[1]), 0), axis=1)
        labels = np.empty(roots.shape, np.int64)
        np.put_along_axis(labels, order, np.take_along_axis(order, first, axis=1), axis=1)
        return labels

    def _problem(self, features: list[Amounts], at: int) -> Problem:
        """Decode the features of one representative root."""
        rows = iter([feature[at].tolist() for feature in features])
        distinct = _decode(rows, len(self._distinct))
        contentions = tuple(Contention(demand, tuple(next(rows))) for _, demand in self._contended)
        coverage = tuple(_decode(rows, len(self._base_required)))
        below = _subtrees_from(next(rows)) if self._subtrees or self._splits.look_below else ()
        exclusive: tuple[int, ...] = ()
        if self._query.one_provider_per_tree:
            # Each position excludes the other positions of the tree that it is in.
            labels = next(rows)
            trees: dict[int, int] = {}
            for position, label in enumerate(labels):
                trees[label] = trees.get(label, 0) | 1 << position
            exclusive = tuple(trees[label] & ~(1 << position) for position, label in enumerate(labels))
        options = tuple(distinct[number] for number in self._choice_of)
        splitting = self._splits.splitting(options, below, rows)
        if splitting is not None:
            options = tuple(
                _ANY if slot.rule else mask for slot, mask in zip(self._slots, options, strict=True)
            )
        return Problem(
            options=options,
            blocks=self._blocks,
            isolated=self._isolated,
            contentions=contentions,
            subtrees=self._subtrees,
            below=below,
            base_slots=self._base_slots,
            coverage=coverage,
            exclusive=exclusive,
            splitting=splitting,
        )


def _contended(
    slots: Sequence[Slot], whole: Sequence[int], isolated: int
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the classes that several slots could draw from one provider, with the demand of each slot."""
    for class_id, demand in demands_of(slots).items():
        asking = [at for at in whole if demand[at]]
        if len(asking) > 1 and _bit_set(asking) & ~isolated:
            yield class_id, demand


def _blocks_of(
    slots: Sequence[Slot], whole: Sequence[int], subtrees: Sequence[int]
) -> tuple[tuple[int, ...], ...]:
    """Return the slots in blocks; if slots of a block swap their providers, only the mappings change."""
    blocks: dict[object, list[int]] = {}
    for at in whole:
        roles = tuple(constraint >> at & 1 for constraint in subtrees)
        blocks.setdefault((slots[at].group.condition, roles) if slots[at].group.suffix else at, []).append(at)
    return tuple(map(tuple, blocks.values()))


def _bit_set(members: Iterable[int]) -> int:
    return sum(1 << member for member in members)


def _words(count: int) -> list[range]:
    """Return the numbers of properties in words, one bit each."""
    return [range(start, min(start + _WORD, count)) for start in range(0, count, _WORD)]


def _decode(words: Iterator[list[int]], count: int) -> list[int]:
    """Return bit sets of positions, one for each of `count` properties, over as many words as needed."""
    masks: list[int] = []
    for numbers in _words(count):
        word = next(words)
        for bit in range(len(numbers)):
            masks.append(_bit_set(position for position, value in enumerate(word) if value >> bit & 1))
    return masks


def _subtrees_from(nearest: list[int]) -> tuple[int, ...]:
    """Return per position the bit set of positions below it, itself included, from nearest ancestors."""
    below = [1 << position for position in range(len(nearest))]
    for position, ancestor in enumerate(nearest):
        while ancestor >= 0:
            below[ancestor] |= 1 << position
            ancestor = nearest[ancestor]
    return tuple(below)


# Stands in the place of positions for slots that the solver leaves to the module `distribution`.
_ANY = 1
_NO_GROUP = -1


class _SplitSlots:
    """The split slots of a query: from which `classes` they are split, and below which other slots.

    `look_below`: it matters which provider is below which.
    """

    def __init__(self, slots: Sequence[Slot], query: ForestQuery) -> None:
        self.classes = list(dict.fromkeys(slot.resources[0][0] for slot in slots if slot.rule))
        demands, nothing = demands_of(slots), (0,) * len(slots)
        self._demands = [demands.get(class_id, nothing) for class_id in self.classes]
        suffixes = list(dict.fromkeys(slot.group.suffix for slot in slots))
        self._group_of = tuple(
            suffixes.index(slot.group.suffix) if query.isolate and slot.group.suffix else _NO_GROUP
            for slot in slots
        )
        self._splits: list[Split] = []
        for number, slot in enumerate(slots):
            if slot.rule is None:
                continue
            # The unsplit slots of its group, and of each same_subtree constraint on it.
            constraints = (
                {slot.group.suffix},
                *(names for names in query.same_subtree if slot.group.suffix in names),
            )
            tops = (
                _bit_set(
                    at for at, other in enumerate(slots) if other.group.suffix in names and not other.rule
                )
                for names in constraints
            )
            ((class_id, amount),) = slot.resources
            supply = self.classes.index(class_id)
            self._splits.append(Split(number, supply, amount, slot.rule, 0, tuple(filter(None, tops))))
        self.look_below = any(split.tops for split in self._splits)

    def splitting(
        self, options: Sequence[int], below: tuple[int, ...], rows: Iterator[list[int]]
    ) -> Splitting | None:
        """Return the splitting of a problem, if any; `rows` are the features of one root in order."""
        if not self._splits:
            return None
        supplies = []
        for demand in self._demands:
            headroom, least, step, whole = (tuple(next(rows)) for _ in range(4))
            supplies.append(SplitSupply(headroom, least, step, whole, demand))
        splits = tuple(replace(split, options=options[split.slot]) for split in self._splits)
        return Splitting(splits, tuple(supplies), below, self._group_of)
