"""Growable numpy columns, and an index from storage ids to rows, without a Python object per row."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from placement.engine.domain.identifiers import portions

Indices = NDArray[np.int32]
# Rows to read; of the index type of the machine, because numpy converts others before each use.
Rows = NDArray[np.intp]
Amounts = NDArray[np.int64]
Mask = NDArray[np.bool_]
# Only for comparing near misses; no answer depends on floating point.
Shares = NDArray[np.float64]

Ratios = NDArray[np.float32]

# Amounts beyond this are as good as infinite; clipping keeps sums of a query inside 64 bits.
HUGE = 2**60
_FIRST_ROWS = 64
_RECENT = 4096
# Up to this many are faster to look up one by one.
_FEW = 8
# So that a stream of rows is never in memory as a whole as Python objects.
ROWS_AT_ONCE = 20_000


def table_of(rows: Iterable[Sequence[int]], width: int) -> Amounts:
    """Return rows of integers as one (n, width) array."""
    parts = (np.array(some, np.int64) for some in portions(rows, ROWS_AT_ONCE))
    return np.concatenate([np.empty((0, width), np.int64), *parts])


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
        return copy.copy(self)

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


# Text of many rows at once: tables of characters, one row each, all of one width.
#
# This way a handful of array operations writes thousands of elements that differ in a few places.


Texts = NDArray[np.uint8]
# Of any size: int64, or Python integers as objects.
Numbers = NDArray[Any]
TextList = NDArray[np.object_]

_SPACE, _QUOTE = ord(" "), ord('"')
# Digits are looked up four at a time, padded on the left with zeros, or with spaces.
_DIGITS, _GROUP = 4, 10_000
_PADDED, _ALIGNED = (
    np.array([form % number for number in range(_GROUP)]).view(np.uint32) for form in (b"%04d", b"%4d")
)
# A group before other digits: blank if it is zero, all four digits if more digits precede it.
_LEADING = np.concatenate([_ALIGNED, _PADDED])
_LEADING[0] = np.frombuffer(b" " * _DIGITS, np.uint32)[0]
_LAST = np.concatenate([_ALIGNED, _PADDED])

# Powers count and shift the digits of numbers: 64 bits hold any 18 digits.
_POWERS = 10 ** np.arange(18)
_LONG_POWERS = 10 ** np.arange(64, dtype=object)


def filled(pieces: Sequence[bytes], columns: Sequence[Texts]) -> Texts:
    """Return for each row the first piece, the text of the first column, the second piece, and so on.

    There is one column fewer than pieces; columns have equal lengths and any widths.
    """
    gaps = [b" " * column.shape[1] for column in columns]
    record = b"".join(part for pair in zip(pieces, gaps, strict=False) for part in pair) + pieces[-1]
    # Repeating bytes is several times as fast as broadcasting them.
    count = len(columns[0])
    texts: Texts = np.ndarray((count, len(record)), np.uint8, bytearray(record) * count)
    place = 0
    for piece, column in zip(pieces, columns, strict=False):
        place += len(piece)
        texts[:, place : place + column.shape[1]] = column
        place += column.shape[1]
    return texts


def assembled(parts: Sequence[tuple[Rows, Texts]]) -> Texts:
    """Return texts of any widths at their places, shorter ones followed by spaces."""
    count = sum(len(places) for places, _ in parts)
    whole = np.full((count, max((texts.shape[1] for _, texts in parts), default=0)), _SPACE, np.uint8)
    for places, texts in parts:
        whole[places, : texts.shape[1]] = texts
    return whole


def numbers(column: Numbers) -> Texts:
    """Return the digits of non-negative numbers, right-aligned to the longest: JSON allows the spaces."""
    width = _width(column)
    if width <= _DIGITS:
        return _ALIGNED.take(column.astype(np.intp)).view(np.uint8).reshape(-1, _DIGITS)[:, -width:]
    return _digits(column, width)


def fractions(above: Numbers, below: Numbers) -> Texts:
    """Return fractions as JSON strings with spaces around them; the numbers are non-negative."""
    left, behind = numbers(above), _width(below)
    rows, lengths = np.arange(len(above)), _lengths(below, behind)
    # Zeros on the right shift the digits to the left.
    right = _digits(below * _powers(behind)[behind - lengths], behind, zeros=True)
    np.putmask(right, np.arange(behind) >= lengths[:, None], _SPACE)
    texts = filled([b" ", b"/", b" "], [left, right])
    width = left.shape[1]
    texts[rows, width - _lengths(above, width)] = _QUOTE
    texts[rows, width + 2 + lengths] = _QUOTE
    return texts


def _width(column: Numbers) -> int:
    """Return the count of digits of the longest number."""
    return len(str(int(column.max(initial=0))))


def _lengths(column: Numbers, width: int) -> Rows:
    """Return the count of digits of each number, which has at most `width`."""
    return np.maximum(np.searchsorted(_powers(width), column, side="right"), 1)


def _powers(width: int) -> Numbers:
    """Return powers of ten, enough to count the digits of numbers of `width` digits."""
    return _POWERS if width <= len(_POWERS) else _LONG_POWERS


def _digits(column: Numbers, width: int, *, zeros: bool = False) -> Texts:
    """Return the last `width` digits of each number; leading `zeros` are spaces unless they are wanted."""
    groups: list[NDArray[np.uint32]] = []
    table, left = _LAST, column
    for _ in range(0, width, _DIGITS):
        above = left // _GROUP
        which = (left - above * _GROUP).astype(np.intp)
        which += np.intp(_GROUP) if zeros else (above > 0) * np.intp(_GROUP)
        groups.insert(0, table.take(which))
        table, left = _LEADING, above
    return np.stack(groups, axis=1).view(np.uint8)[:, -width:]


def lines(texts: Texts) -> list[bytes]:
    """Return each row as bytes; a row must not end with a NUL."""
    return texts.view(f"S{texts.shape[1]}").ravel().tolist() if len(texts) else []


def objects(texts: Sequence[bytes]) -> TextList:
    """Return the texts as an array of objects, for `TextColumn`."""
    table = np.empty(len(texts), object)
    table[:] = texts
    return table


class TextColumn:
    """A column that gives each row a text of any width: `which` of the texts, -1 for the last one."""

    def __init__(self, texts: TextList, which: Rows) -> None:
        self.of_rows: TextList = texts[which]


Part = bytes | Texts | TextColumn


@dataclass(frozen=True, slots=True)
class Pieces:
    """A text per row in pieces: bytes that are equal in all rows, and tables."""

    parts: tuple[bytes | Texts, ...]

    def at(self, rows: Rows | slice) -> Pieces:
        """Return the texts of some of the rows."""
        return Pieces(tuple(part if isinstance(part, bytes) else part[rows] for part in self.parts))

    @property
    def whole(self) -> Texts:
        """The texts in one piece; one of the parts must be a table."""
        return table(self.parts)


def table(parts: Iterable[Part]) -> Texts:
    """Return the parts joined row by row, bytes equal in all rows; some are tables, none a TextColumn."""
    constants, columns = _apart(parts)
    tables = [column for column in columns if not isinstance(column, TextColumn)]
    assert len(tables) == len(columns)
    return filled(constants, tables)


def joined(count: int, parts: Iterable[Part]) -> bytes:
    """Return the parts of `count` rows joined, row after row; parts may have any width."""
    constants, columns = _apart(parts)
    cells = np.empty((count, len(columns) + len(constants)), object)
    for number, constant in enumerate(constants):
        cells[:, 2 * number] = constant
    for number, column in enumerate(columns):
        texts = column.of_rows if isinstance(column, TextColumn) else objects(lines(column))
        cells[:, 2 * number + 1] = texts
    return b"".join(cells.ravel().tolist())


def _apart(parts: Iterable[Part]) -> tuple[list[bytes], list[Texts | TextColumn]]:
    """Return the constants between the columns, and the columns."""
    constants = [b""]
    columns: list[Texts | TextColumn] = []
    for part in parts:
        if isinstance(part, bytes):
            constants[-1] += part
        else:
            columns.append(part)
            constants.append(b"")
    return constants, columns


# Uuids as 16 raw bytes each, and as text for many at once.


Uuids = NDArray[np.uint8]

_HEX_PAIRS = np.array([f"{value:02x}".encode() for value in range(256)], "S2").view(np.uint16)
# Two bytes at a time, in the byte order of this machine, are four characters.
_HEX = _HEX_PAIRS.take(np.arange(2**16, dtype=np.uint16).view(np.uint8)).view(np.uint32)
# Where the eight groups of four characters stand in the 36 of the dashed form.
_PLACES = (0, 4, 9, 14, 19, 24, 28, 32)
_DASHED = np.dtype({"names": [*"abcdefgh"], "formats": [np.uint32] * 8, "offsets": _PLACES, "itemsize": 36})


def from_text(uuids: Sequence[str]) -> Uuids:
    """Return the raw bytes of dashed uuids, shape (n, 16)."""
    digits = "".join(uuids).replace("-", "")
    return np.frombuffer(bytes.fromhex(digits), np.uint8).reshape(-1, 16)


def to_text(uuids: Uuids) -> list[str]:
    """Return the lower-case dashed form of each of (n, 16) uuids."""
    return [text.decode() for text in lines(dashed(uuids))]


def dashed(uuids: Uuids) -> Texts:
    """Return the dashed form of uuids as characters, shape (n, 36)."""
    groups = _HEX.take(np.ascontiguousarray(uuids).view(np.uint16))
    text = np.full((len(uuids), 36), ord("-"), np.uint8)
    fields = text.view(_DASHED)[:, 0]
    for number, name in enumerate(fields.dtype.names or ()):
        fields[name] = groups[:, number]
    return text
