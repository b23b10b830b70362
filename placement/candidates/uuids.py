"""Uuids as 16 raw bytes each, and as text for many at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Uuids = NDArray[np.uint8]
Texts = NDArray[np.uint8]

_HEX_PAIRS = np.array([f"{value:02x}".encode() for value in range(256)], "S2").view(np.uint16)
# Where runs of the 32 digits begin and end, and where they begin in the 36 characters of the dashed form.
_RUNS = ((0, 8, 0), (8, 12, 9), (12, 16, 14), (16, 20, 19), (20, 32, 24))


def from_text(uuids: Sequence[str]) -> Uuids:
    """The raw bytes of dashed uuids, shape (n, 16)."""
    digits = "".join(uuids).replace("-", "")
    return np.frombuffer(bytes.fromhex(digits), np.uint8).reshape(-1, 16)


def to_text(uuids: Uuids) -> list[bytes]:
    """The lower-case dashed ASCII of each of (n, 16) uuids."""
    return dashed(uuids).view("S36").ravel().tolist()


def dashed(uuids: Uuids) -> Texts:
    """The same as characters, shape (n, 36)."""
    digits = _HEX_PAIRS.take(uuids).view(np.uint8)
    text = np.full((len(uuids), 36), ord("-"), np.uint8)
    for begin, end, place in _RUNS:
        text[:, place : place + end - begin] = digits[:, begin:end]
    return text


def filled(pieces: Sequence[bytes], columns: Sequence[Texts]) -> memoryview:
    """For each row the first piece, the uuid of the first column, the second piece, and so on, all in one.

    The bytes are not copied once more, for there may be megabytes.

    `columns` are characters, shape (n, 36) each, and one fewer than the pieces.
    """
    record = np.frombuffer((b"-" * 36).join(pieces), np.uint8)
    records = np.tile(record, (len(columns[0]), 1))
    place = 0
    for piece, column in zip(pieces, columns, strict=False):
        place += len(piece)
        records[:, place : place + 36] = column
        place += 36
    return records.ravel().data
