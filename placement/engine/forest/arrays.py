"""Growable numpy columns, and an index from storage ids to rows, without a Python object per row."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

Indices = NDArray[np.int32]
# Rows to read; of the index type of the machine, because numpy converts others before each use.
Rows = NDArray[np.intp]
Amounts = NDArray[np.int64]
Mask = NDArray[np.bool_]
# Only for comparing near misses; no answer depends on floating point.
Floats = NDArray[np.float64]

Ratios = NDArray[np.float32]

# Amounts beyond this are as good as infinite; clipping keeps sums of a query inside 64 bits.
HUGE = 2**60
_FIRST_ROWS = 64
_RECENT = 4096
# Up to this many are faster to look up one by one.
_FEW = 8


Shared = TypeVar("Shared")


def twin_of(thing: Shared) -> Shared:
    """Return another object with the members of this one, which has no slots.

    `copy.copy` asks the protocol of pickling first, and a changed forest is some twenty objects.
    """
    twin = object.__new__(type(thing))
    vars(twin).update(vars(thing))
    return twin


class _Column(NamedTuple):
    dtype: Any
    empty: Any


def column_of(dtype: Any, empty: Any) -> Any:
    """Return the declaration of a column of `Columns`; `empty` is the value of unused rows."""
    return _Column(dtype, empty)


class Columns:
    """Parallel arrays of one length that grow together, doubling: one for each `column_of` in the class."""

    def __init__(self) -> None:
        declared = vars(type(self)).items()
        self._fields = {name: value for name, value in declared if isinstance(value, _Column)}
        self.capacity = 0
        # Whether a snapshot shares these arrays.
        self.is_shared = False
        for name, (dtype, _) in self._fields.items():
            setattr(self, name, np.empty(0, dtype))

    def ensure(self, rows: int) -> None:
        """Make room for at least `rows` rows."""
        if rows <= self.capacity:
            return
        capacity = max(_FIRST_ROWS, rows + rows // 8 if rows > 2 * self.capacity else 2 * self.capacity)
        for name, (dtype, empty) in self._fields.items():
            grown = np.full(capacity, empty, dtype)
            grown[: self.capacity] = getattr(self, name)
            setattr(self, name, grown)
        self.capacity = capacity
        self.is_shared = False

    def copy_rows(self, source: Rows | Indices, rows: Rows) -> None:
        """Copy the values of the source rows to other rows."""
        for name in self._fields:
            column = getattr(self, name)
            column[rows] = column[source]

    @property
    def bytes(self) -> int:
        """The memory of the arrays."""
        return sum(getattr(self, name).nbytes for name in self._fields)

    def frozen(self) -> Self:
        """Return the columns as they are now: they share arrays, which `own` keeps from changing."""
        self.is_shared = True
        return twin_of(self)

    def own(self) -> None:
        """Copy the arrays that snapshots share; to be called before writing."""
        if self.is_shared:
            for name in self._fields:
                setattr(self, name, getattr(self, name).copy())
            self.is_shared = False


class IdIndex:
    """An index from storage id to row: a sorted array for most ids, a small dict for recent additions."""

    def __init__(self) -> None:
        self._ids: Amounts = np.empty(0, np.int64)
        self._rows: Indices = np.empty(0, np.int32)
        self._recent: dict[int, int] = {}

    def load(self, ids: Amounts) -> None:
        """Start over: `ids[i]` is found in row i."""
        order = np.argsort(ids, kind="stable")
        self._ids = ids[order].astype(np.int64)
        self._rows = order.astype(np.int32)
        self._recent = {}

    def get(self, key: int) -> int:
        """Return the row of an id, -1 if there is none."""
        row = self._recent.get(key)
        if row is not None:
            return row
        at = int(np.searchsorted(self._ids, key))
        if at < len(self._ids) and self._ids[at] == key:
            return int(self._rows[at])
        return -1

    def rows_of(self, keys: Amounts) -> Indices:
        """Return the rows of many ids, -1 where there is none."""
        rows = np.full(len(keys), -1, np.int32)
        recent = np.array(list(self._recent.items()), np.int64).reshape(-1, 2)
        recent = recent[np.argsort(recent[:, 0])]
        for ids, of_ids in ((self._ids, self._rows), (recent[:, 0], recent[:, 1])):
            if len(ids):
                at = np.minimum(np.searchsorted(ids, keys), len(ids) - 1)
                found = ids[at] == keys
                rows[found] = of_ids[at[found]]
        return rows

    def get_all(self, keys: Sequence[int]) -> list[int]:
        """Return the rows of many ids, -1 where there is none."""
        if len(keys) <= _FEW:
            return [self.get(key) for key in keys]
        rows: list[int] = self.rows_of(np.array(keys, np.int64)).tolist()
        return rows

    def put_all(self, found: Iterable[tuple[int, int]]) -> None:
        """Remember many new ids with their rows; row -1 forgets an id."""
        self._recent.update(found)
        if len(self._recent) <= _RECENT:
            return
        recent = np.array(list(self._recent), np.int64)
        ids = np.concatenate([self._ids[~np.isin(self._ids, recent)], recent])
        kept = self._rows[~np.isin(self._ids, recent)]
        rows = np.concatenate([kept, np.array(list(self._recent.values()), np.int32)])
        order = np.argsort(ids, kind="stable")
        order = order[rows[order] >= 0]
        self._ids, self._rows, self._recent = ids[order], rows[order], {}
