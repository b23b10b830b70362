"""RequestedToCapacityRatio: the fuller the better, or any other shape. Source: scoring.md, "RTCR"."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from placement.forest.arrays import Amounts, Indices
from placement.scoring.columns import (
    Field,
    LoadColumn,
    Scores,
    percent_of,
)
from placement.scoring.load import Load, Part
from placement.scoring.shape import FULL, Shape
from placement.scoring.strategy import Strategy


def score_host(strategy: Strategy, loads: Sequence[Load], _asked: bool) -> tuple[int, dict[str, Part]]:
    """The rounded mean of the scores of the classes; a class that scores 0 leaves the mean altogether."""
    assert strategy.shape is not None
    parts: dict[str, Part] = {}
    numerator = denominator = 0
    for name, weight, total, capacity in loads:
        utilization = FULL if total > capacity else total * FULL // capacity
        score = strategy.shape.score(utilization)
        parts[name] = {"utilization": utilization, "score": score, "weight": weight}
        if score:
            numerator += score * weight
            denominator += weight
    return (2 * numerator + denominator) // (2 * denominator) if denominator else 0, parts


def score_hosts(strategy: Strategy, columns: Sequence[LoadColumn], _asked: bool) -> Scores:
    """The same for many hosts."""
    assert strategy.shape is not None
    curve = _curve(strategy.shape)
    # A few hundred classes of the heaviest weight stay far below 32 bits, which are faster to divide.
    numerator = np.zeros(len(columns[0].total), np.int32)
    denominator = np.zeros_like(numerator)
    for column in columns:
        utilization = _utilization(column)
        gain = (curve * column.weight).take(utilization)
        weight = ((curve > 0) * np.int32(column.weight)).take(utilization)
        if not column.counted.all():
            gain, weight = gain * column.counted, weight * column.counted
        numerator += gain
        denominator += weight
    rounded: Scores = (2 * numerator + denominator) // (2 * np.maximum(denominator, 1))
    return rounded


def fields_of(strategy: Strategy, columns: Sequence[LoadColumn]) -> list[list[Field]]:
    """The parts of many hosts, class by class."""
    assert strategy.shape is not None
    curve = _curve(strategy.shape)
    utilizations = [_utilization(column) for column in columns]
    return [
        [Field("utilization", utilization), Field("score", curve.take(utilization))]
        for utilization in utilizations
    ]


def _utilization(column: LoadColumn) -> Amounts:
    return percent_of(np.minimum(column.total, column.capacity), column.capacity)


@lru_cache(maxsize=256)
def _curve(shape: Shape) -> Indices:
    """The shape as a table, for utilization is a whole number from 0 to 100."""
    return np.array([shape.score(utilization) for utilization in range(FULL + 1)], np.int32)
