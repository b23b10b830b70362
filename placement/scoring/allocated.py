"""LeastAllocated and MostAllocated: what would be free, or in use.

Source: scoring.md, "LeastAllocated and MostAllocated".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from placement.scoring.columns import (
    Field,
    LoadColumn,
    Scores,
    percent_of,
)
from placement.scoring.load import Load, Part
from placement.scoring.strategy import Strategy


def score_least(_strategy: Strategy, loads: Sequence[Load], _asked: bool) -> tuple[int, dict[str, Part]]:
    """The cut mean of what would be free, in percent."""
    return _mean(loads, lambda total, capacity: max(capacity - total, 0) * 100 // capacity)


def score_most(_strategy: Strategy, loads: Sequence[Load], _asked: bool) -> tuple[int, dict[str, Part]]:
    """The cut mean of what would be in use, in percent."""
    return _mean(loads, lambda total, capacity: min(total, capacity) * 100 // capacity)


def _mean(loads: Sequence[Load], score_of: Callable[[int, int], int]) -> tuple[int, dict[str, Part]]:
    scores = {load.name: score_of(load.total, load.capacity) for load in loads}
    parts: dict[str, Part] = {
        load.name: {"score": scores[load.name], "weight": load.weight} for load in loads
    }
    weights = sum(load.weight for load in loads)
    return sum(scores[load.name] * load.weight for load in loads) // weights if weights else 0, parts


def score_least_of_hosts(_strategy: Strategy, columns: Sequence[LoadColumn], _asked: bool) -> Scores:
    """score_least for many hosts."""
    return _means(columns, _percent_free)


def score_most_of_hosts(_strategy: Strategy, columns: Sequence[LoadColumn], _asked: bool) -> Scores:
    """score_most for many hosts."""
    return _means(columns, _percent_taken)


def least_fields(_strategy: Strategy, columns: Sequence[LoadColumn]) -> list[list[Field]]:
    """The parts of score_least for many hosts, class by class."""
    return [[Field("score", _percent_free(column))] for column in columns]


def most_fields(_strategy: Strategy, columns: Sequence[LoadColumn]) -> list[list[Field]]:
    """The parts of score_most for many hosts, class by class."""
    return [[Field("score", _percent_taken(column))] for column in columns]


def _percent_free(column: LoadColumn) -> Scores:
    return percent_of(np.maximum(column.capacity - column.total, 0), column.capacity)


def _percent_taken(column: LoadColumn) -> Scores:
    return percent_of(np.minimum(column.total, column.capacity), column.capacity)


def _means(columns: Sequence[LoadColumn], percent: Callable[[LoadColumn], Scores]) -> Scores:
    numerator = np.zeros(len(columns[0].total), np.int64)
    denominator = np.zeros_like(numerator)
    for column in columns:
        numerator += percent(column) * column.counted * column.weight
        denominator += column.counted * np.int64(column.weight)
    return numerator // np.maximum(denominator, 1)
