"""MostAllocated: the cut mean of what would be in use, in percent.

Source: scoring.md, "LeastAllocated and MostAllocated".
"""

from __future__ import annotations

from collections.abc import Sequence

from placement.scoring.columns import Figure, LoadColumn, Scores, cut_mean
from placement.scoring.rule import BEST, Leaning, Load, Rule, Span
from placement.scoring.shape import Shape


def _of_columns(columns: Sequence[LoadColumn], _shape: Shape | None) -> Scores:
    return cut_mean(columns, (column.percent_taken for column in columns))


def _of_host(loads: Sequence[Load], _shape: Shape | None) -> int:
    points = weights = 0
    for weight, total, capacity in loads:
        points += weight * (total * BEST // capacity if total < capacity else BEST)
        weights += weight
    return points // weights if weights else 0


def _bound(spans: Sequence[Span], shape: Shape | None) -> int:
    return _of_host([(span.weight, *span.highest) for span in spans], shape)


def _figures(columns: Sequence[LoadColumn], _shape: Shape | None) -> list[list[Figure]]:
    return [[Figure("score", column.percent_taken)] for column in columns]


RULE = Rule("MostAllocated", _of_columns, _of_host, _bound, _figures, leaning=Leaning.FULL)
