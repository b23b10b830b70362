"""One class of many hosts, as columns of integers."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placement.forest.arrays import Amounts, Mask

# int64, or Python integers (dtype object) where products could leave 64 bits.
Scores = NDArray[Any]
_SAFE = 2**62 // 100


class LoadColumn(NamedTuple):
    """A class that some strategy lists; where it is not `counted` the amounts mean nothing.

    `capacity` is at least 1 everywhere, so that dividing by it is safe.
    """

    weight: int
    total: Scores
    capacity: Scores
    counted: Mask


class Field(NamedTuple):
    """One figure of what a class adds to a score, per host; a fraction if there is something `below`."""

    name: str
    amounts: Scores
    below: Scores | None = None


def percent_of(part: Scores, whole: Scores) -> Amounts:
    """part * 100 // whole for 0 <= part <= whole, exact whatever the size."""
    if part.dtype != object and len(whole) and int(whole.max()) > _SAFE:
        part, whole = part.astype(object), whole.astype(object)
    percent: Amounts = (part * 100 // whole).astype(np.int64, copy=False)
    return percent
