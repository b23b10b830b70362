"""Uuids as 16 raw bytes each, and as text for many at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from placement.forest.texts import Texts, lines

Uuids = NDArray[np.uint8]

_HEX_PAIRS = np.array([f"{value:02x}".encode() for value in range(256)], "S2").view(np.uint16)
# Two bytes at a time, as this machine reads them, are four characters.
_HEX = _HEX_PAIRS.take(np.arange(2**16, dtype=np.uint16).view(np.uint8)).view(np.uint32)
# Where the eight groups of four characters stand in the 36 of the dashed form.
_PLACES = (0, 4, 9, 14, 19, 24, 28, 32)
_DASHED = np.dtype({"names": [*"abcdefgh"], "formats": [np.uint32] * 8, "offsets": _PLACES, "itemsize": 36})


def from_text(uuids: Sequence[str]) -> Uuids:
    """The raw bytes of dashed uuids, shape (n, 16)."""
    digits = "".join(uuids).replace("-", "")
    return np.frombuffer(bytes.fromhex(digits), np.uint8).reshape(-1, 16)


def to_text(uuids: Uuids) -> list[str]:
    """The lower-case dashed form of each of (n, 16) uuids."""
    return [text.decode() for text in lines(dashed(uuids))]


def dashed(uuids: Uuids) -> Texts:
    """The same as characters, shape (n, 36)."""
    groups = _HEX.take(np.ascontiguousarray(uuids).view(np.uint16))
    text = np.full((len(uuids), 36), ord("-"), np.uint8)
    fields = text.view(_DASHED)[:, 0]
    for number, name in enumerate(fields.dtype.names or ()):
        fields[name] = groups[:, number]
    return text
