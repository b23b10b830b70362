"""RequestedToCapacityRatio: the fuller the better, or any other shape. Source: scoring.md, "RTCR".

The mean is rounded, halves upward, and a resource that scores 0 leaves it altogether with its weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from placement.forest.arrays import Indices
from placement.scoring.columns import Figure, LoadColumn, Scores
from placement.scoring.rule import Load, Rule, Span
from placement.scoring.shape import FULL, Shape


def _of_columns(columns: Sequence[LoadColumn], shape: Shape | None) -> Scores:
    curve = _curve(shape)
    # A few hundred resources of the heaviest weight stay far below 32 bits, which are faster to divide.
    numerator = np.zeros(len(columns[0].total), np.int32)
    denominator = np.zeros_like(numerator)
    for column in columns:
        utilization = column.percent_taken
        gain = (curve * column.weight).take(utilization)
        weight = ((curve > 0) * np.int32(column.weight)).take(utilization)
        if not column.counted.all():
            gain, weight = gain * column.counted, weight * column.counted
        numerator += gain
        denominator += weight
    rounded: Scores = (2 * numerator + denominator) // (2 * np.maximum(denominator, 1))
    return rounded


def _of_host(loads: Sequence[Load], shape: Shape | None) -> int:
    heights = _heights(shape)
    numerator = denominator = 0
    for weight, total, capacity in loads:
        height = heights[_utilization(total, capacity)]
        if height:
            numerator += height * weight
            denominator += weight
    return _rounded(numerator, denominator)


def _bound(spans: Sequence[Span], shape: Shape | None) -> int:
    """Each resource at the highest place of the curve that it may reach.

    One that may score 0 may leave the mean: it is only taken in while that lifts the mean.
    """
    heights = _heights(shape)
    numerator = denominator = 0
    optional: list[tuple[int, int]] = []
    for span in spans:
        reach = heights[_utilization(*span.lowest) : _utilization(*span.highest) + 1]
        if min(reach):
            numerator += max(reach) * span.weight
            denominator += span.weight
        else:
            optional.append((max(reach), span.weight))
    for height, weight in sorted(optional, reverse=True):
        if height * denominator >= numerator and height:
            numerator += height * weight
            denominator += weight
    return _rounded(numerator, denominator)


def _figures(columns: Sequence[LoadColumn], shape: Shape | None) -> list[list[Figure]]:
    curve = _curve(shape)
    utilizations = [column.percent_taken for column in columns]
    return [
        [Figure("utilization", utilization), Figure("score", curve.take(utilization))]
        for utilization in utilizations
    ]


def _utilization(total: int, capacity: int) -> int:
    return FULL if total > capacity else total * FULL // capacity


def _rounded(numerator: int, denominator: int) -> int:
    return (2 * numerator + denominator) // (2 * denominator) if denominator else 0


@lru_cache(maxsize=256)
def _heights(shape: Shape | None) -> tuple[int, ...]:
    """The shape as a table, for utilization is a whole number from 0 to 100."""
    assert shape is not None
    return tuple(shape.score(utilization) for utilization in range(FULL + 1))


@lru_cache(maxsize=256)
def _curve(shape: Shape | None) -> Indices:
    return np.array(_heights(shape), np.int32)


RULE = Rule("RequestedToCapacityRatio", _of_columns, _of_host, _bound, _figures, has_shape=True)
