"""The forest: every provider tree of the database as columns of this process.

It is fed with records from the database, including the ones that this process wrote itself.
Searches look at a snapshot of it, which does not change when the forest does.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from placement.engine.forest import providers as forest_providers
from placement.engine.forest.arrays import Amounts, IdIndex, Mask, Rows, twin_of
from placement.engine.forest.inventories import Draw, InventoryColumn, OfferedColumns, by_class
from placement.engine.forest.memberships import Memberships
from placement.engine.forest.providers import NumberColumn
from placement.engine.forest.texts import from_text


class Forest:
    """A collection of all providers; a row is a small integer that a provider keeps as long as it exists."""

    def __init__(self) -> None:
        self._clear(forest_providers.ProviderColumns(), 0)

    def _clear(self, providers: forest_providers.ProviderColumns, shape_version: int) -> None:
        self.providers = providers
        self.count = 0
        self.traits = Memberships()
        self.aggregates = Memberships()
        self.inventories: dict[int, InventoryColumn] = {}
        # Raised when trees, aggregates or traits change, not when only usage does.
        self.shape_version = shape_version
        self._index = IdIndex()
        self._vacant: list[int] = []
        # A result and the version of its shape are one object, because searches run in parallel.
        self._known_shape: tuple[int, bool, Rows] = (-1, True, np.empty(0, np.intp))
        # Kept until something changes, together with what searches computed on it.
        self._latest_forest: Forest | None = None
        self._snapshots: weakref.WeakSet[Forest] = weakref.WeakSet()

    def __len__(self) -> int:
        return self.count - len(self._vacant)

    # -- feeding ------------------------------------------------------------------------------------

    def load(self, snapshot: forest_providers.Snapshot) -> None:
        """Forget everything and take over a whole snapshot."""
        # Both numbers only ever grow, so that caches of the old forest notice.
        self._clear(forest_providers.ProviderColumns(self.providers.stamp + 1), self.shape_version + 1)
        self.count = self.providers.load(snapshot.providers, snapshot.uuids, self._index)
        parts: defaultdict[int, list[tuple[Rows, OfferedColumns]]] = defaultdict(list)
        for inventories in snapshot.inventories:
            for class_id, provider, offered in by_class(self._of_known(inventories)):
                parts[class_id].append((self.rows_of(provider), offered))
        for class_id in sorted(parts):
            # Of a class all at once: columns that grow double each time, and half of them would stay empty.
            rows, offers = zip(*parts.pop(class_id), strict=True)
            columns = OfferedColumns(*map(np.concatenate, zip(*offers, strict=True)))
            self.column(class_id).put_all(np.concatenate(rows), columns)
        for members, pairs in ((self.traits, snapshot.traits), (self.aggregates, snapshot.aggregates)):
            members.ensure(self.count)
            for carriers, ids in map(self._of_known, pairs):
                members.load(self.rows_of(np.asarray(carriers)), np.asarray(ids, np.int32))

    def _of_known(self, columns: Sequence[NumberColumn]) -> Sequence[Any]:
        """Return columns, ids of providers first, without the rows of providers that do not exist.

        A database that was written to without foreign keys may have such rows.
        """
        is_known = self.rows_of(np.asarray(columns[0])) >= 0
        return columns if is_known.all() else [column[is_known] for column in map(np.asarray, columns)]

    def column(self, class_id: int) -> InventoryColumn:
        """Return the inventories of one class; create them empty at the first call."""
        column = self.inventories.get(class_id)
        if column is None:
            column = InventoryColumn()
            column.reach(self.count)
            column = self.inventories.setdefault(class_id, column)
        return column

    # -- snapshots ----------------------------------------------------------------------------------

    def snapshot(self) -> Forest:
        """Return the forest as it is now, for any number of readers at once, whatever is applied later.

        It shares the arrays: a write while a snapshot is in use copies the array first, once. Must not be
        called while another thread feeds the forest.
        """
        latest = self._latest_forest
        if latest is None:
            latest = twin_of(self)
            latest.providers = self.providers.frozen()
            latest.traits, latest.aggregates = self.traits.frozen(), self.aggregates.frozen()
            latest.inventories = {
                class_id: column.frozen(self.count) for class_id, column in self.inventories.items()
            }
            self._latest_forest = latest
            self._snapshots.add(latest)
        return latest

    def begin_writing(self) -> None:
        """Prepare for feeding: from now on the forest differs from the snapshots that were handed out."""
        if self._latest_forest is not None:
            latest, self._latest_forest = self._latest_forest, None
            self._known_shape = latest._known_shape
            del latest
        if not len(self._snapshots):
            self.providers.is_shared = False
            self.traits.unshare()
            self.aggregates.unshare()
            for column in self.inventories.values():
                column.unshare()
        self.providers.own()

    def outdated(self, states: Sequence[tuple[int, int]]) -> list[int]:
        """Return the ids of the states, (id, revision), that are not applied yet; not for snapshots."""
        rows = np.array(self._index.get_all([id_ for id_, _ in states]), np.intp)
        known = zip(states, rows.tolist(), self.providers.revision[rows].tolist(), strict=True)
        return [id_ for (id_, wanted), row, present in known if row < 0 or present != wanted]

    def rows_of(self, ids: Amounts) -> Rows:
        """Return the rows of many providers, NONE for unknown ids; not for snapshots."""
        return self._index.rows_of(ids).astype(np.intp)

    def knows(self, provider_id: int) -> bool:
        """Return whether the provider is in the forest as it is fed; not for snapshots."""
        return self._index.get(provider_id) >= 0

    def apply(self, records: Iterable[forest_providers.ProviderRecord]) -> None:
        """Insert or replace providers; parents and roots must be known or among the records."""
        batch = list(records)
        if not batch:
            return
        self.begin_writing()
        ids = [record.row.id for record in batch]
        rows = self._index.get_all(ids)
        if min(rows) < 0:
            known = zip(batch, rows, strict=True)
            self.insert({record.row.id: record.row.uuid for record, row in known if row < 0})
            rows = self._index.get_all(ids)
        self.place(
            np.array(rows, np.intp),
            np.array(
                self._index.get_all([record.row.parent_id or forest_providers.NONE for record in batch]),
                np.intp,
            ),
            np.array(self._index.get_all([record.row.root_id for record in batch]), np.intp),
        )
        providers = self.providers
        for record, row in zip(batch, rows, strict=True):
            given = record.row
            providers.generation[row] = given.generation
            providers.revision[row], providers.content[row] = given.revision, given.content
            offered = {inventory.class_id for inventory in record.inventories}
            for class_id, column in self.inventories.items():
                if class_id not in offered:
                    column.drop(row)
            for inventory in record.inventories:
                self.column(inventory.class_id).put(row, inventory)
            for members, wanted in ((self.traits, record.trait_ids), (self.aggregates, record.aggregate_ids)):
                if members.of(row) != wanted:
                    members.assign(row, wanted)
                    self.shape_version += 1
            providers.touch(int(providers.root[row]))

    def insert(self, uuids: Mapping[int, str]) -> None:
        """Give rows to new providers, uuids by id; they stand in no tree yet and offer nothing."""
        if not uuids:
            return
        reused = [self._vacant.pop() for _ in range(min(len(self._vacant), len(uuids)))]
        added = len(uuids) - len(reused)
        rows = [*reused, *range(self.count, self.count + added)]
        self.count += added
        for columns in (self.providers, self.traits, self.aggregates):
            columns.ensure(self.count)
        providers = self.providers
        providers.id[rows] = list(uuids)
        providers.uuid[rows] = from_text(list(uuids.values()))
        providers.root[rows] = providers.parent[rows] = forest_providers.NONE
        self._index.put_all(zip(uuids, rows, strict=True))

    def place(self, rows: Rows, parents: Rows, roots: Rows) -> None:
        """Let providers stand below these parents, NONE for a root, in the trees of these roots."""
        providers = self.providers
        moved = np.flatnonzero((providers.root[rows] != roots) | (providers.parent[rows] != parents))
        if not len(moved):
            return
        rows, parents, roots = rows[moved], parents[moved], roots[moved]
        # All leave their trees first, then enter the new ones.
        for row in rows[providers.root[rows] != forest_providers.NONE].tolist():
            providers.unlink(row)
        providers.parent[rows] = parents
        providers.link(rows, roots)
        self.shape_version += 1

    def remove(self, provider_id: int) -> None:
        """Forget a provider; unknown ids are fine."""
        row = self._index.get(provider_id)
        if row < 0:
            return
        self.begin_writing()
        self.providers.unlink(row)
        for column in self.inventories.values():
            column.drop(row)
        self.traits.assign(row, frozenset())
        self.aggregates.assign(row, frozenset())
        providers = self.providers
        providers.id[row] = providers.root[row] = providers.parent[row] = forest_providers.NONE
        self._index.put_all([(provider_id, forest_providers.NONE)])
        self._vacant.append(row)
        self.shape_version += 1

    # -- looking ------------------------------------------------------------------------------------

    def row_of_uuid(self, uuid: str) -> int:
        """Return the row of a provider, -1 if unknown."""
        wanted = from_text((uuid,)).view(np.uint64)[0]
        halves = self.providers.uuid[: self.count].view(np.uint64)
        found = np.flatnonzero((halves[:, 0] == wanted[0]) & (halves[:, 1] == wanted[1]))
        for row in found.tolist():
            if self.providers.id[row] >= 0:
                return row
        return forest_providers.NONE

    def has_room(self, draws: Iterable[Draw]) -> bool:
        """Return whether each draw, alone, fits."""
        return all(self.free(draw.row, draw.class_id) >= draw.amount for draw in draws)

    def free(self, row: int, class_id: int) -> int:
        """Return how much is left of an inventory, below zero if too much is held; 0 where there is none."""
        column = self.column(class_id)
        entry = column.entry_of(row)
        return 0 if entry < 0 else int(column.entries.free[entry])

    @property
    def is_flat(self) -> bool:
        """Whether no provider has a parent."""
        return self._shape()[1]

    def roots_of(self, rows: Rows) -> Rows:
        """Return the root of each provider."""
        return rows if self.is_flat else self.providers.root.take(rows).astype(np.intp)

    @property
    def roots(self) -> Rows:
        """All roots, in order of their ids."""
        return self._shape()[2]

    def _shape(self) -> tuple[int, bool, Rows]:
        """Return the version of the shape, whether no provider has a parent, and all roots."""
        if self._known_shape[0] != self.shape_version:
            providers, numbers = self.providers, np.arange(self.count, dtype=np.int32)
            roots = np.flatnonzero(providers.root[: self.count] == numbers)
            ids = providers.id[roots]
            if not (ids[1:] > ids[:-1]).all():
                roots = roots[np.argsort(ids)]
            is_flat = not (providers.parent[: self.count] >= 0).any()
            self._known_shape = (self.shape_version, is_flat, roots)
        return self._known_shape

    def in_trees(self, roots: Rows) -> Rows:
        """Return all providers of the trees, the roots first."""
        if self.is_flat:
            return roots
        found = [roots]
        while len(found[-1]):
            following = self.providers.next.take(found[-1])
            found.append(following[following >= 0].astype(np.intp))
        return np.concatenate(found)

    @property
    def bytes(self) -> int:
        """The memory of all columns, which other processes do not share."""
        held = [self.providers.bytes, self.traits.bytes, self.aggregates.bytes]
        return sum(held) + sum(column.bytes for column in list(self.inventories.values()))

    def alive(self) -> Mask:
        """Return which rows hold a provider."""
        return self.providers.id[: self.count] >= 0
