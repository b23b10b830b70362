"""LeastAllocated: the cut mean of what would be free, in percent.

Source: scoring.md, "LeastAllocated and MostAllocated".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from placement.forest.arrays import Amounts
from placement.scoring.columns import Figure, LoadColumn, Scores, cut_mean, percent_of
from placement.scoring.rule import BEST, Leaning, Load, Rule, Span
from placement.scoring.shape import Shape


def _percent_free(column: LoadColumn) -> Amounts:
    return percent_of(np.maximum(column.capacity - column.total, 0), column.capacity)


def _of_columns(columns: Sequence[LoadColumn], _shape: Shape | None) -> Scores:
    return cut_mean(columns, map(_percent_free, columns))


def _of_host(loads: Sequence[Load], _shape: Shape | None) -> int:
    points = weights = 0
    for weight, total, capacity in loads:
        if total < capacity:
            points += weight * ((capacity - total) * BEST // capacity)
        weights += weight
    return points // weights if weights else 0


def _bound(spans: Sequence[Span], shape: Shape | None) -> int:
    return _of_host([(span.weight, *span.lowest) for span in spans], shape)


def _figures(columns: Sequence[LoadColumn], _shape: Shape | None) -> list[list[Figure]]:
    return [[Figure("score", _percent_free(column))] for column in columns]


RULE = Rule("LeastAllocated", _of_columns, _of_host, _bound, _figures, leaning=Leaning.FREE)
