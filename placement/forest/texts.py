"""Text of many rows at once: tables of characters, one row each, all of one width.

Writing thousands of elements that differ in a few places is a handful of array operations this way.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from placement.forest.arrays import Rows

Texts = NDArray[np.uint8]
# Of any width: int64, or Python's own integers as objects.
Numbers = NDArray[Any]
TextList = NDArray[np.object_]

_SPACE, _QUOTE = ord(" "), ord('"')
# Digits are looked up, four at a time: one after the other, with zeros before them, or with spaces instead.
_DIGITS, _GROUP = 4, 10_000
_PADDED, _ALIGNED = (
    np.array([form % number for number in range(_GROUP)]).view(np.uint32) for form in (b"%04d", b"%4d")
)
# What stands before other digits: nothing where there is none, all four where there are more before them.
_LEADING = np.concatenate([_ALIGNED, _PADDED])
_LEADING[0] = np.frombuffer(b" " * _DIGITS, np.uint32)[0]
_LAST = np.concatenate([_ALIGNED, _PADDED])

# By these the digits of a number are counted and moved: 64 bits hold 18 of them in any place.
_POWERS = 10 ** np.arange(18)
_LONG_POWERS = 10 ** np.arange(64, dtype=object)


def filled(pieces: Sequence[bytes], columns: Sequence[Texts]) -> Texts:
    """For each row the first piece, the text of the first column, the second piece, and so on.

    `columns` are one fewer than the pieces, of one length and of any widths.
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
    """Texts of any widths at their places, with spaces behind the shorter ones."""
    count = sum(len(places) for places, _ in parts)
    whole = np.full((count, max((texts.shape[1] for _, texts in parts), default=0)), _SPACE, np.uint8)
    for places, texts in parts:
        whole[places, : texts.shape[1]] = texts
    return whole


def numbers(column: Numbers) -> Texts:
    """The decimal digits of numbers not below 0, right-aligned to the longest: JSON allows the spaces."""
    width = _width(column)
    if width <= _DIGITS:
        return _ALIGNED.take(column.astype(np.intp)).view(np.uint8).reshape(-1, _DIGITS)[:, -width:]
    groups: list[NDArray[np.uint32]] = []
    table, left = _LAST, column
    for _ in range(0, width, _DIGITS):
        above = left // _GROUP
        which = (left - above * _GROUP).astype(np.intp)
        which += (above > 0) * np.intp(_GROUP)
        groups.insert(0, table.take(which))
        table, left = _LEADING, above
    return _characters(groups, width)


def fractions(above: Numbers, below: Numbers) -> Texts:
    """Fractions as JSON strings, with spaces before and behind; numbers as above."""
    left, behind = numbers(above), _width(below)
    rows, lengths = np.arange(len(above)), _lengths(below, behind)
    # Zeros on the right move the digits to the left.
    right = _digits(below * _powers(behind)[behind - lengths], behind)
    np.putmask(right, np.arange(behind) >= lengths[:, None], _SPACE)
    texts = filled([b" ", b"/", b" "], [left, right])
    width = left.shape[1]
    texts[rows, width - _lengths(above, width)] = _QUOTE
    texts[rows, width + 2 + lengths] = _QUOTE
    return texts


def _width(column: Numbers) -> int:
    """The digits of the longest number."""
    return len(str(int(column.max(initial=0))))


def _lengths(column: Numbers, width: int) -> Rows:
    """The digits of each number, which has no more than so many."""
    return np.maximum(np.searchsorted(_powers(width), column, side="right"), 1)


def _powers(width: int) -> Numbers:
    """The first powers of ten, so that numbers of so many digits are below one of them."""
    return _POWERS if width <= len(_POWERS) else _LONG_POWERS


def _digits(column: Numbers, width: int) -> Texts:
    """The last `width` digits of each number, zeros included."""
    groups: list[NDArray[np.uint32]] = []
    left = column
    for _ in range(0, width, _DIGITS):
        above = left // _GROUP
        groups.insert(0, _PADDED.take((left - above * _GROUP).astype(np.intp)))
        left = above
    return _characters(groups, width)


def _characters(groups: Sequence[NDArray[np.uint32]], width: int) -> Texts:
    """The last `width` characters of groups of four."""
    texts = groups[0][:, None] if len(groups) == 1 else np.stack(groups, axis=1)
    return texts.view(np.uint8)[:, -width:]


def lines(texts: Texts) -> list[bytes]:
    """Each row by itself; a row must not end with a NUL."""
    return texts.view(f"S{texts.shape[1]}").ravel().tolist()


def objects(texts: Sequence[bytes]) -> TextList:
    """The texts in the form that columns look them up in."""
    table = np.empty(len(texts), object)
    table[:] = texts
    return table


class TextColumn:
    """A text of any width for each of some rows: `which` of the texts each has, -1 for the last one."""

    def __init__(self, texts: TextList, which: Rows) -> None:
        self.of_rows: TextList = texts[which]


Part = bytes | Texts | TextColumn


@dataclass(frozen=True, slots=True)
class Pieces:
    """A text for each of some rows in pieces: bytes that are the same in all rows, and tables."""

    parts: tuple[bytes | Texts, ...]

    def at(self, rows: Rows | slice) -> Pieces:
        """The texts of some of the rows."""
        return Pieces(tuple(part if isinstance(part, bytes) else part[rows] for part in self.parts))

    @property
    def whole(self) -> Texts:
        """The texts in one piece; one of the parts must be a table."""
        return table(self.parts)


def table(parts: Iterable[Part]) -> Texts:
    """For each row all the parts, of which bytes are the same in all rows; some are tables, no TextColumn."""
    constants, columns = _apart(parts)
    tables = [column for column in columns if not isinstance(column, TextColumn)]
    assert len(tables) == len(columns)
    return filled(constants, tables)


def joined(count: int, parts: Iterable[Part]) -> bytes:
    """The same for so many rows and for parts of any width, row behind row."""
    constants, columns = _apart(parts)
    cells = np.empty((count, len(columns) + len(constants)), object)
    for number, constant in enumerate(constants):
        cells[:, 2 * number] = constant
    for number, column in enumerate(columns):
        texts = column.of_rows if isinstance(column, TextColumn) else objects(lines(column))
        cells[:, 2 * number + 1] = texts
    return b"".join(cells.ravel().tolist())


def _apart(parts: Iterable[Part]) -> tuple[list[bytes], list[Texts | TextColumn]]:
    """What stands between the columns, and these."""
    constants = [b""]
    columns: list[Texts | TextColumn] = []
    for part in parts:
        if isinstance(part, bytes):
            constants[-1] += part
        else:
            columns.append(part)
            constants.append(b"")
    return constants, columns
