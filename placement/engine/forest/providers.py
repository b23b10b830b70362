"""The providers of the forest as columns, and the trees that they form."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias
from uuid import uuid4

import numpy as np

from placement.engine.forest.arrays import Amounts, Columns, IdIndex, Indices, Rows, column_of
from placement.engine.forest.texts import Uuids, from_text

MILLION = 1_000_000
LARGEST_RATIO = 1e9
"""The largest ratio that is reported; capacities are computed from the full ratio."""
NumberColumn: TypeAlias = "array[int] | array[float]"
"""An array of 64-bit integers or floats."""


class InventoryRow(NamedTuple):
    """One inventory; `capacity` and `used` in units of the class.

    Searches do not read what the capacity is made of (`total`, `reserved`, ratio in millionths); it is for
    operators.
    """

    class_id: int
    capacity: int
    min_unit: int
    max_unit: int
    step_size: int
    used: int
    total: int = 0
    reserved: int = 0
    ratio_millionths: int = MILLION


class ProviderRow(NamedTuple):
    """One provider without inventories and memberships; `parent_id` is None for a root."""

    id: int
    uuid: str
    generation: int
    parent_id: int | None
    root_id: int
    revision: int
    content: int = 0
    """Two states with equal content, in one history of writes, differ in usage at most; 0: not known."""


@dataclass(frozen=True, slots=True)
class ProviderRecord:
    """One provider with everything that a search reads; it replaces the former state in the forest."""

    row: ProviderRow
    inventories: tuple[InventoryRow, ...]
    trait_ids: frozenset[int]
    aggregate_ids: frozenset[int]


class ProviderStates(NamedTuple):
    """Many providers, as they were at one moment, as columns.

    `providers` are id, generation, parent_id (0 for a root), root_id, revision and content; `uuids` are the
    uuids of unknown providers, by id. Providers that are not `altered` changed only in usage: `usage` is
    provider id, class_id and used. For `altered` ones, `inventories` are provider id, class_id, total,
    reserved, min_unit, max_unit, step_size, used and allocation ratio, each class of a provider once. Their
    memberships are sets of trait or aggregate ids, each with the providers that carry it; a set may come more
    than once, a provider may not.
    """

    providers: Sequence[NumberColumn]
    uuids: Mapping[int, str]
    usage: Sequence[NumberColumn]
    altered: Sequence[int]
    inventories: Sequence[NumberColumn]
    traits: Sequence[tuple[frozenset[int], NumberColumn]]
    aggregates: Sequence[tuple[frozenset[int], NumberColumn]]

    @property
    def class_ids(self) -> frozenset[int]:
        """The classes of the inventories."""
        return frozenset(map(int, self.inventories[1]))


class Snapshot(NamedTuple):
    """All providers of one moment, as columns in no particular order.

    `providers` and `inventories` have the columns of `ProviderStates`, the memberships are provider id and
    trait or aggregate id, and `uuids` are ids with their dashed uuids, one after the other. All but the
    first stream, some providers at a time, each provider once.
    """

    providers: Sequence[NumberColumn]
    uuids: Iterable[tuple[NumberColumn, str]]
    inventories: Iterable[Sequence[NumberColumn]]
    traits: Iterable[Sequence[NumberColumn]]
    aggregates: Iterable[Sequence[NumberColumn]]


NONE = -1
"""Stands for no id and for no row."""


class ProviderColumns(Columns):
    """Columns with a row per provider; the rows of a tree form a doubly linked list from its root on."""

    id: Amounts = column_of(np.int64, NONE)
    uuid: Uuids = column_of(np.dtype((np.uint8, 16)), 0)
    generation: Indices = column_of(np.int32, 0)
    revision: Amounts = column_of(np.int64, 0)
    # See ProviderRow.
    content: Amounts = column_of(np.int64, 0)
    parent: Indices = column_of(np.int32, NONE)
    root: Indices = column_of(np.int32, NONE)
    next: Indices = column_of(np.int32, NONE)
    previous: Indices = column_of(np.int32, NONE)
    tree_size: Indices = column_of(np.int32, 0)
    # Raised at the root whenever anything in its tree changes; caches compare it.
    tree_stamp: Amounts = column_of(np.int64, 0)

    def __init__(self, stamp: int = 0) -> None:
        super().__init__()
        # Row NONE is masked out, but must exist, because it is read.
        self.ensure(1)
        self.stamp = stamp

    def load(
        self,
        providers: Sequence[NumberColumn],
        uuids: Iterable[tuple[NumberColumn, str]],
        index: IdIndex,
    ) -> int:
        """Take over all providers, in the order of their ids, into empty columns and an empty index.

        Return how many there are. The arguments are parts of a `Snapshot`.
        """
        count = len(providers[0])
        self.ensure(count)
        if not count:
            return 0
        order = np.argsort(np.asarray(providers[0]))
        ids, generations, parents, roots, revisions, contents = (
            np.asarray(column)[order] for column in providers
        )
        self.id[:count], self.generation[:count] = ids, generations
        self.revision[:count], self.content[:count] = revisions, contents
        index.load(ids)
        self.parent[:count], self.root[:count] = index.rows_of(parents), index.rows_of(roots)
        for some, texts in uuids:
            self.uuid[index.rows_of(np.asarray(some))] = from_text((texts,))
        self.tree_stamp[:count] = self.stamp
        self.link(np.arange(count), self.root[:count])
        return count

    def repeat(self, source: Rows, rows: Rows, size: int) -> None:
        """Fill new rows like the sources, with new ids; the `size` rows of each tree are adjacent."""
        self.ensure(int(rows[-1]) + 1)
        self.copy_rows(source, rows)
        for numbers in (self.parent, self.root, self.next, self.previous):
            # The rows of a tree keep their order, so references keep their distance.
            found = np.searchsorted(source[:size], numbers[rows])
            moved = rows[0] + found + size * (np.arange(len(rows)) // size)
            numbers[rows] = np.where(numbers[rows] >= 0, moved, NONE)
        self.id[rows] = int(self.id[: rows[0]].max(initial=0)) + 1 + np.arange(len(rows))
        self.uuid[rows] = np.frombuffer(b"".join(uuid4().bytes for _ in rows), np.uint8).reshape(-1, 16)

    def touch(self, roots: int | Indices) -> None:
        """Note that something changed in the tree of a root, or of each of many."""
        self.stamp += 1
        self.tree_stamp[roots] = self.stamp

    def touched_since(self, roots: Collection[int], stamp: int) -> list[int]:
        """Return the roots of trees that changed after this stamp."""
        rows = np.fromiter(roots, np.intp, len(roots))
        touched: list[int] = rows[self.tree_stamp[rows] > stamp].tolist()
        return touched

    def link(self, rows: Rows, roots: Indices | Rows) -> None:
        """Put providers that are in no tree into the trees of these roots; new roots are among the rows."""
        self.root[rows] = roots
        np.add.at(self.tree_size, roots, 1)
        below = rows != roots
        rows, roots = rows[below], roots[below]
        if not len(rows):
            return
        order = np.lexsort((rows, roots))
        rows, roots = rows[order], roots[order]
        begins = np.r_[True, roots[1:] != roots[:-1]]
        # New rows follow the root one by one; the last one precedes the row that followed the root so far.
        first, last, begun = rows[begins], rows[np.r_[begins[1:], True]], roots[begins]
        after = self.next[begun]
        followed = after != NONE
        inner = ~begins[1:]
        self.next[rows[:-1][inner]], self.previous[rows[1:][inner]] = rows[1:][inner], rows[:-1][inner]
        self.next[begun], self.previous[first] = first, begun
        self.next[last], self.previous[after[followed]] = after, last[followed]

    def unlink(self, row: int) -> None:
        """Take a provider out of its tree, if it is in one."""
        root = int(self.root[row])
        if root < 0:
            return
        before, after = self.previous[row], self.next[row]
        if before >= 0:
            self.next[before] = after
        if after >= 0:
            self.previous[after] = before
        self.previous[row] = self.next[row] = NONE
        self.tree_size[root] -= 1
        self.touch(root)
