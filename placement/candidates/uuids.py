"""Uuids as 16 raw bytes each, and as text for many at once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Uuids = NDArray[np.uint8]

_HEX_PAIRS = np.array([f"{value:02x}".encode() for value in range(256)], "S2").view(np.uint8).reshape(256, 2)
# Where the 32 digits go in the 36 characters of the dashed form.
_DIGIT_PLACES = np.array([place for place in range(36) if place not in (8, 13, 18, 23)])


def from_text(uuids: Sequence[str]) -> Uuids:
    """The raw bytes of dashed uuids, shape (n, 16)."""
    digits = "".join(uuids).replace("-", "")
    return np.frombuffer(bytes.fromhex(digits), np.uint8).reshape(-1, 16)


def to_text(uuids: Uuids) -> list[bytes]:
    """The lower-case dashed ASCII of each of (n, 16) uuids."""
    count = len(uuids)
    text = np.full((count, 36), ord("-"), np.uint8)
    text[:, _DIGIT_PLACES] = _HEX_PAIRS[uuids].reshape(count, 32)
    return text.view("S36").ravel().tolist()
