"""One resource of many hosts, as columns of integers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placement.forest.arrays import Amounts, Mask

# int64, or Python integers (dtype object) where products could leave 64 bits.
Scores = NDArray[Any]
_SAFE = 2**62 // 100


@dataclass(frozen=True)
class LoadColumn:
    """A resource that some strategy lists; where it is not `counted` the amounts mean nothing.

    `capacity` is at least 1 everywhere, so that dividing by it is safe.
    """

    weight: int
    total: Scores
    capacity: Scores
    counted: Mask

    @cached_property
    def percent_taken(self) -> Amounts:
        """The percentage that would be in use, cut, 100 where more would be in use than there is."""
        return percent_of(np.minimum(self.total, self.capacity), self.capacity)


class Figure(NamedTuple):
    """A number of what a resource adds to a score, per host; a fraction if there is something `below`."""

    name: str
    amounts: Scores
    below: Scores | None = None


def percent_of(part: Scores, whole: Scores) -> Amounts:
    """part * 100 // whole for 0 <= part <= whole, exact whatever the size."""
    if part.dtype != object and len(whole) and int(whole.max()) > _SAFE:
        part, whole = part.astype(object), whole.astype(object)
    percent: Amounts = (part * 100 // whole).astype(np.int64, copy=False)
    return percent


def cut_mean(columns: Sequence[LoadColumn], percents: Iterable[Amounts]) -> Scores:
    """The weighted mean of one percentage per resource over those that count, cut; 0 where none does."""
    numerator = np.zeros(len(columns[0].total), np.int64)
    denominator = np.zeros_like(numerator)
    for column, percent in zip(columns, percents, strict=True):
        if column.counted.all():
            numerator += percent * column.weight
            denominator += column.weight
        else:
            numerator += percent * column.counted * column.weight
            denominator += column.counted * np.int64(column.weight)
    scores: Scores = numerator // np.maximum(denominator, 1)
    return scores
