"""Texts of many rows at once, uuids among them: tables of characters, one row each, all of one width.

A handful of array operations writes thousands of elements that differ in a few places.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placement.engine.forest.arrays import Rows

TextTable = NDArray[np.uint8]


# Of any size: int64, or Python integers as objects.
IntegerColumn = NDArray[Any]


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


def filled(pieces: Sequence[bytes], columns: Sequence[TextTable]) -> TextTable:
    """Return for each row the first piece, the text of the first column, the second piece, and so on.

    There is one column fewer than pieces; columns have equal lengths and any widths.
    """
    gaps = [b" " * column.shape[1] for column in columns]
    record = b"".join(part for pair in zip(pieces, gaps, strict=False) for part in pair) + pieces[-1]
    # Repeating bytes is several times as fast as broadcasting them.
    count = len(columns[0])
    texts: TextTable = np.ndarray((count, len(record)), np.uint8, bytearray(record) * count)
    place = 0
    for piece, column in zip(pieces, columns, strict=False):
        place += len(piece)
        texts[:, place : place + column.shape[1]] = column
        place += column.shape[1]
    return texts


def assembled(parts: Sequence[tuple[Rows, TextTable]]) -> TextTable:
    """Return texts of any widths at their places, shorter ones followed by spaces."""
    count = sum(len(places) for places, _ in parts)
    whole = np.full((count, max((texts.shape[1] for _, texts in parts), default=0)), _SPACE, np.uint8)
    for places, texts in parts:
        whole[places, : texts.shape[1]] = texts
    return whole


def numbers(column: IntegerColumn) -> TextTable:
    """Return the digits of non-negative numbers, right-aligned to the longest: JSON allows the spaces."""
    width = _width(column)
    if width <= _DIGITS:
        return _ALIGNED.take(column.astype(np.intp)).view(np.uint8).reshape(-1, _DIGITS)[:, -width:]
    return _digits(column, width)


def fractions(above: IntegerColumn, below: IntegerColumn) -> TextTable:
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


def _width(column: IntegerColumn) -> int:
    """Return the count of digits of the longest number."""
    return len(str(int(column.max(initial=0))))


def _lengths(column: IntegerColumn, width: int) -> Rows:
    """Return the count of digits of each number, which has at most `width`."""
    return np.maximum(np.searchsorted(_powers(width), column, side="right"), 1)


def _powers(width: int) -> IntegerColumn:
    """Return powers of ten, enough to count the digits of numbers of `width` digits."""
    return _POWERS if width <= len(_POWERS) else _LONG_POWERS


def _digits(column: IntegerColumn, width: int, *, zeros: bool = False) -> TextTable:
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


def lines(texts: TextTable) -> list[bytes]:
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


Part = bytes | TextTable | TextColumn


@dataclass(frozen=True, slots=True)
class Pieces:
    """A text per row in pieces: bytes that are equal in all rows, and tables."""

    parts: tuple[bytes | TextTable, ...]

    def at(self, rows: Rows | slice) -> Pieces:
        """Return the texts of some of the rows."""
        return Pieces(tuple(part if isinstance(part, bytes) else part[rows] for part in self.parts))

    @property
    def whole(self) -> TextTable:
        """The texts in one piece; one of the parts must be a table."""
        return table(self.parts)


def table(parts: Iterable[Part]) -> TextTable:
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


def _apart(parts: Iterable[Part]) -> tuple[list[bytes], list[TextTable | TextColumn]]:
    """Return the constants between the columns, and the columns."""
    constants = [b""]
    columns: list[TextTable | TextColumn] = []
    for part in parts:
        if isinstance(part, bytes):
            constants[-1] += part
        else:
            columns.append(part)
            constants.append(b"")
    return constants, columns


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


def dashed(uuids: Uuids) -> TextTable:
    """Return the dashed form of uuids as characters, shape (n, 36)."""
    groups = _HEX.take(np.ascontiguousarray(uuids).view(np.uint16))
    text = np.full((len(uuids), 36), ord("-"), np.uint8)
    fields = text.view(_DASHED)[:, 0]
    for number, name in enumerate(fields.dtype.names or ()):
        fields[name] = groups[:, number]
    return text
