"""Uuids as 16 raw bytes each, and as text for many at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from placement.forest.texts import Texts, lines

Uuids = NDArray[np.uint8]

_HEX_PAIRS = np.array([f"{value:02x}".encode() for value in range(256)], "S2").view(np.uint16)
# Where runs of the 32 digits begin and end, and where they begin in the 36 characters of the dashed form.
_RUNS = ((0, 8, 0), (8, 12, 9), (12, 16, 14), (16, 20, 19), (20, 32, 24))


def from_text(uuids: Sequence[str]) -> Uuids:
    """The raw bytes of dashed uuids, shape (n, 16)."""
    digits = "".join(uuids).replace("-", "")
    return np.frombuffer(bytes.fromhex(digits), np.uint8).reshape(-1, 16)


def to_text(uuids: Uuids) -> list[str]:
    """The lower-case dashed form of each of (n, 16) uuids."""
    return [text.decode() for text in lines(dashed(uuids))]


def dashed(uuids: Uuids) -> Texts:
    """The same as characters, shape (n, 36)."""
    digits = _HEX_PAIRS.take(uuids).view(np.uint8)
    text = np.full((len(uuids), 36), ord("-"), np.uint8)
    for begin, end, place in _RUNS:
        text[:, place : place + end - begin] = digits[:, begin:end]
    return text
