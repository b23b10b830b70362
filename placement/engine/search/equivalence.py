"""The third stage of a search: roots are sorted into equivalence classes, each of which is one problem.

A tree matters by its providers that can fill some slot, and by the sharing providers anchored there. Two
roots where these have equal features pose the same `Problem`: they are of one equivalence class.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from placement.engine.forest.arrays import Amounts, Indices, Mask, Rows
from placement.engine.forest.forest import Forest
from placement.engine.forest.inventories import InventoryColumn
from placement.engine.forest.sharing import Sharing
from placement.engine.search.filters import Choices
from placement.engine.search.problem import Contention, Problem, Split, SplitSupply, Splitting
from placement.engine.search.query import ForestQuery, Slot, demands_of
from placement.engine.search.solver import solutions

# The slots of a query that are split, as features of trees and as parts of problems.


# Stands in the place of positions for slots that the solver leaves to the module `distribution`.
_ANY = 1
_NO_GROUP = -1


class SplitSlots:
    """The split slots of a query: which slots are split, from which classes, below which other slots."""

    def __init__(self, slots: Sequence[Slot], query: ForestQuery) -> None:
        self._slots = slots
        self._apart = query.isolate
        self._numbers = [number for number, slot in enumerate(slots) if slot.rule]
        self._classes = list(dict.fromkeys(slots[number].resources[0][0] for number in self._numbers))
        suffixes = list(dict.fromkeys(slot.suffix for slot in slots))
        self._groups = [suffixes.index(slot.suffix) for slot in slots]
        self._tops = {number: tuple(self._tops_of(number, query)) for number in self._numbers}
        self._demands = [
            tuple(0 if slot.rule else dict(slot.resources).get(class_id, 0) for slot in slots)
            for class_id in self._classes
        ]

    def _tops_of(self, number: int, query: ForestQuery) -> Iterator[int]:
        """Yield the unsplit slots of a split slot's group, and of each same_subtree constraint on it."""
        suffix = self._slots[number].suffix
        for names in (frozenset((suffix,)), *(names for names in query.same_subtree if suffix in names)):
            members = (at for at, slot in enumerate(self._slots) if slot.suffix in names and not slot.rule)
            mask = sum(1 << member for member in members)
            if mask:
                yield mask

    @property
    def look_below(self) -> bool:
        """Return whether it matters which provider is below which."""
        return any(self._tops.values())

    def features(self, forest: Forest, providers: Indices) -> Iterator[Amounts]:
        """Yield four tables for each split class: what the providers can give, as in `SplitSupply`."""
        for class_id in self._classes:
            for column in forest.column(class_id).parts(providers.ravel()):
                yield column.reshape(providers.shape)

    def splitting(
        self, options: Sequence[int], below: tuple[int, ...], rows: Iterator[list[int]]
    ) -> Splitting | None:
        """Return what a problem has of split slots, if any; `rows` are the features of one root in order."""
        if not self._numbers:
            return None
        supplies = tuple(
            SplitSupply(tuple(next(rows)), tuple(next(rows)), tuple(next(rows)), tuple(next(rows)), demand)
            for demand in self._demands
        )
        return Splitting(
            splits=tuple(self._split(number, options[number]) for number in self._numbers),
            supplies=supplies,
            below=below,
            group_of=tuple(
                group if self._apart and slot.suffixed else _NO_GROUP
                for group, slot in zip(self._groups, self._slots, strict=True)
            ),
        )

    def _split(self, number: int, options: int) -> Split:
        slot = self._slots[number]
        ((class_id, amount),) = slot.resources
        assert slot.rule is not None
        return Split(
            slot=number,
            group=self._groups[number],
            supply=self._classes.index(class_id),
            amount=amount,
            rule=slot.rule,
            options=options,
            tops=self._tops[number],
            apart=self._apart,
        )

    def without(self, options: tuple[int, ...]) -> tuple[int, ...]:
        """Return the positions of each slot, with a stand-in for slots that are split."""
        if not self._numbers:
            return options
        return tuple(_ANY if slot.rule else mask for slot, mask in zip(self._slots, options, strict=True))


_WORD = 62
_FEW = 8
# The steps that decoding a problem costs the budget.
_STEPS_PER_PROBLEM = 4
Table = NDArray[np.int32]
Room = Callable[[InventoryColumn, Indices], Amounts]
"""The function for what several slots may take of a class from each provider between them."""


@dataclass(frozen=True, slots=True)
class EquivalenceClass:
    """A set of roots with one problem: `providers[i]` matter at the root with the rank `ranks[i]`."""

    ranks: Indices
    providers: Table
    problem: Problem


@dataclass(frozen=True, slots=True)
class _Band:
    """A set of roots where equally many providers matter; the first `own` columns are of the tree itself."""

    ranks: Indices
    providers: Table
    own: int


class EquivalenceClasses:
    """A partition of any set of roots into classes that pose the same problem to one query."""

    def __init__(
        self,
        forest: Forest,
        query: ForestQuery,
        slots: Sequence[Slot],
        choices: Sequence[Choices],
        sharing: Sharing,
        room: Room = InventoryColumn.headroom,
    ) -> None:
        self._forest = forest
        self._query = query
        self._room = room
        self.budget = query.budget
        self._slots = slots
        self._sharing = sharing
        # Slots of like groups share one Choices object and so one bit of the features.
        self._distinct = list({id(choice): choice for choice in choices}.values())
        numbers = {id(choice): number for number, choice in enumerate(self._distinct)}
        self._choice_of = [numbers[id(choice)] for choice in choices]
        self._own_masks = [choice.own_mask for choice in self._distinct]
        self._foreign_masks = [choice.foreign_mask for choice in self._distinct]
        serving = _any_of(self._foreign_masks)[sharing.pair_provider]
        self._foreign_rows = sharing.pair_provider[serving]
        self._foreign_roots = sharing.pair_anchor[serving]
        self._splits = SplitSlots(slots, query)
        self._isolated = _slot_mask(slots, lambda slot: query.isolate and slot.suffixed and not slot.rule)
        self._collective = _slot_mask(slots, lambda slot: not slot.suffixed)
        self._collective_sets = next((s.group.required for s in slots if not s.suffixed), ())
        constraints = (
            _slot_mask(slots, lambda slot, names=names: slot.suffix in names and not slot.rule)  # type: ignore[misc]
            for names in query.same_subtree
        )
        self._subtrees = tuple(filter(None, constraints))
        self._contended = self._contended_classes()
        self._blocks = self._interchangeable()

    def _contended_classes(self) -> list[tuple[int, tuple[int, ...]]]:
        """Return the classes that several slots could draw from one provider, with each slot's demand."""
        contended = []
        for class_id, demand in demands_of(self._slots).items():
            asking = [number for number, amount in enumerate(demand) if amount]
            kept_apart = all(self._isolated >> number & 1 for number in asking)
            if len(asking) > 1 and not kept_apart:
                contended.append((class_id, demand))
        return contended

    def _interchangeable(self) -> tuple[tuple[int, ...], ...]:
        """Return the slots in blocks: slots of a block can swap providers, and only the mappings change."""
        blocks: dict[object, list[int]] = {}
        for number, slot in enumerate(self._slots):
            if slot.rule:
                continue
            roles = tuple(constraint >> number & 1 for constraint in self._subtrees)
            key = (slot.group.condition, roles) if slot.suffixed else number
            blocks.setdefault(key, []).append(number)
        return tuple(tuple(block) for block in blocks.values())

    def of(self, roots: Indices) -> Iterator[EquivalenceClass]:
        """Yield the problems of the roots; the rank of a root is its place in `roots`."""
        for band in self._bands(roots):
            yield from self._classes(band)

    def are_small(self, roots: Indices) -> bool:
        """Return whether each of the roots yields a few candidates at most."""
        if self._forest.is_flat and not len(self._foreign_rows):
            return True
        return all(
            len(list(islice(solutions(t.problem, self.budget), _FEW + 1))) <= _FEW for t in self.of(roots)
        )

    def _bands(self, roots: Indices) -> Iterator[_Band]:
        if self._forest.is_flat and not len(self._foreign_rows):
            # Nothing but the root itself matters.
            yield _Band(np.arange(len(roots), dtype=np.int32), roots[:, None], 1)
            return
        ranks_of = np.full(self._forest.count, -1, np.int32)
        ranks_of[roots] = np.arange(len(roots), dtype=np.int32)
        rank, rows, foreign = self._entries(ranks_of)
        own_sizes = np.bincount(rank[~foreign], minlength=len(roots))
        foreign_sizes = np.bincount(rank[foreign], minlength=len(roots))
        starts = np.cumsum(own_sizes + foreign_sizes) - own_sizes - foreign_sizes
        sizes = own_sizes * (len(self._sharing.providers) + 1) + foreign_sizes
        for size in np.flatnonzero(np.bincount(sizes)).tolist():
            ranks = np.flatnonzero(sizes == size).astype(np.int32)
            own = int(own_sizes[ranks[0]])
            width = own + int(foreign_sizes[ranks[0]])
            if width:
                yield _Band(ranks, rows[starts[ranks][:, None] + np.arange(width)], own)

    @cached_property
    def _own_rows(self) -> Rows:
        """Return the providers that can fill some slot of their own tree; unused where only roots matter."""
        return np.flatnonzero(_any_of(self._own_masks))

    def _entries(self, ranks_of: Indices) -> tuple[Indices, Indices, Mask]:
        """Return (rank of root, provider, whether foreign) of all that matters: by root, own first, by id."""
        own_rows = self._own_rows
        own_ranks = ranks_of[self._forest.roots_of(own_rows)]
        foreign_ranks = ranks_of[self._foreign_roots]
        own_kept, foreign_kept = own_ranks >= 0, foreign_ranks >= 0
        rank = np.concatenate([own_ranks[own_kept], foreign_ranks[foreign_kept]])
        rows = np.concatenate([own_rows[own_kept], self._foreign_rows[foreign_kept]])
        foreign = np.zeros(len(rows), bool)
        foreign[int(own_kept.sum()) :] = True
        order = np.lexsort((self._forest.providers.id[rows], foreign, rank))
        return rank[order], rows[order], foreign[order]

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
        features = self._option_words(band)
        for class_id, demand in self._contended:
            room = self._room(self._forest.column(class_id), band.providers.ravel())
            room = room.reshape(band.providers.shape)
            features.append(np.clip(room, 0, sum(demand)))
        features.extend(self._coverage_words(band))
        if self._subtrees or self._splits.look_below:
            features.append(self._nearest_ancestors(band.providers))
        if self._query.one_provider_per_tree:
            features.append(self._tree_labels(band.providers))
        features.extend(self._splits.features(self._forest, band.providers))
        return features

    def _option_words(self, band: _Band) -> list[Amounts]:
        words = []
        for start in range(0, len(self._distinct), _WORD):
            word = np.zeros(band.providers.shape, np.int64)
            for bit, number in enumerate(range(start, min(start + _WORD, len(self._distinct)))):
                own, foreign = band.providers[:, : band.own], band.providers[:, band.own :]
                word[:, : band.own] |= self._own_masks[number][own].astype(np.int64) << bit
                word[:, band.own :] |= self._foreign_masks[number][foreign].astype(np.int64) << bit
            words.append(word)
        return words

    def _coverage_words(self, band: _Band) -> Iterator[Amounts]:
        rows = band.providers.ravel()
        for start in range(0, len(self._collective_sets), _WORD):
            word = np.zeros(len(rows), np.int64)
            for bit, any_of in enumerate(self._collective_sets[start : start + _WORD]):
                word |= self._forest.traits.satisfying(rows, (any_of,)).astype(np.int64) << bit
            yield word.reshape(band.providers.shape)

    def _nearest_ancestors(self, providers: Table) -> Amounts:
        """Return the position of the nearest proper ancestor that matters, too, -1 if there is none."""
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

    def _tree_labels(self, providers: Table) -> Amounts:
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
        options = _decode(rows, len(self._distinct))
        contentions = tuple(Contention(demand, tuple(next(rows))) for _, demand in self._contended)
        coverage = tuple(_decode(rows, len(self._collective_sets)))
        look_below = self._subtrees or self._splits.look_below
        below = _subtrees_from(next(rows)) if look_below else ()
        exclusive = _exclusions_from(next(rows)) if self._query.one_provider_per_tree else ()
        by_slot = tuple(options[number] for number in self._choice_of)
        splitting = self._splits.splitting(by_slot, below, rows)
        return Problem(
            options=self._splits.without(by_slot),
            blocks=self._blocks,
            isolated=self._isolated,
            contentions=contentions,
            subtrees=self._subtrees,
            below=below,
            collective=self._collective,
            coverage=coverage,
            exclusive=exclusive,
            splitting=splitting,
        )


def _any_of(masks: Sequence[Mask]) -> Mask:
    return reduce(np.logical_or, masks)


def _slot_mask(slots: Sequence[Slot], condition: Callable[[Slot], bool]) -> int:
    return sum(1 << number for number, slot in enumerate(slots) if condition(slot))


def _decode(words: Iterator[list[int]], count: int) -> list[int]:
    """Return bit sets of positions, one for each of `count` properties, over as many words as needed."""
    masks: list[int] = []
    for start in range(0, count, _WORD):
        word = next(words)
        for bit in range(min(_WORD, count - start)):
            masks.append(sum(1 << position for position, value in enumerate(word) if value >> bit & 1))
    return masks


def _subtrees_from(nearest: list[int]) -> tuple[int, ...]:
    """Return per position the bit set of positions below it, itself included, from nearest ancestors."""
    below = [1 << position for position in range(len(nearest))]
    for position, ancestor in enumerate(nearest):
        while ancestor >= 0:
            below[ancestor] |= 1 << position
            ancestor = nearest[ancestor]
    return tuple(below)


def _exclusions_from(labels: list[int]) -> tuple[int, ...]:
    """Return per position the other positions of the same tree."""
    return tuple(
        sum(1 << other for other, theirs in enumerate(labels) if theirs == label and other != position)
        for position, label in enumerate(labels)
    )
