"""The scoring strategies; the first two are the cut mean of what would be free, or in use, in percent.

Source: scoring.md, "LeastAllocated and MostAllocated".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from functools import lru_cache
from math import ceil, isqrt

import numpy as np

from placement.engine.forest.arrays import Amounts, Indices
from placement.engine.scoring.rule import (
    BEST,
    FULL,
    Leaning,
    Load,
    LoadColumn,
    ScoreFigure,
    Scores,
    ScoringRule,
    Shape,
    Span,
    cut_mean,
    percent_of,
)


def _mean_rule(
    name: str,
    leaning: Leaning,
    percent: Callable[[LoadColumn], Amounts],
    of_host: Callable[[Sequence[Load], Shape | None], int],
) -> ScoringRule:
    """Return the strategy that takes the cut weighted mean of the percentages; `of_host`: for one host."""

    def of_columns(columns: Sequence[LoadColumn], _shape: Shape | None) -> Scores:
        return cut_mean(columns, map(percent, columns))

    def bound(spans: Sequence[Span], shape: Shape | None) -> int:
        full = leaning is Leaning.FULL
        return of_host([(span.weight, *(span.highest if full else span.lowest)) for span in spans], shape)

    def figures(columns: Sequence[LoadColumn], _shape: Shape | None) -> list[list[ScoreFigure]]:
        return [[ScoreFigure("score", percent(column))] for column in columns]

    return ScoringRule(name, of_columns, of_host, bound, figures, leaning=leaning)


def _percent_free(column: LoadColumn) -> Amounts:
    return percent_of(np.maximum(column.capacity - column.total, 0), column.capacity)


def _least_allocated_of_host(loads: Sequence[Load], _shape: Shape | None) -> int:
    points = weights = 0
    for weight, total, capacity in loads:
        if total < capacity:
            points += weight * ((capacity - total) * BEST // capacity)
        weights += weight
    return points // weights if weights else 0


def _most_allocated_of_host(loads: Sequence[Load], _shape: Shape | None) -> int:
    points = weights = 0
    for weight, total, capacity in loads:
        points += weight * (total * BEST // capacity if total < capacity else BEST)
        weights += weight
    return points // weights if weights else 0


LEAST_ALLOCATED = _mean_rule("LeastAllocated", Leaning.FREE, _percent_free, _least_allocated_of_host)
MOST_ALLOCATED = _mean_rule(
    "MostAllocated", Leaning.FULL, lambda column: column.percent_taken, _most_allocated_of_host
)


# BalancedAllocation: resources used evenly. Source: scoring.md, "BalancedAllocation".
#
# The result is the largest k of 0..100 with ((100 - k) / 100)^2 >= variance of the used fractions, so no root
# is computed: binary floating point would be wrong on about one input in a thousand.


_SQUARES = BEST**2

# Products up to this can be multiplied by 50 in 64 bits.
_SAFE_PRODUCT = 2**63 // BEST


def _root(tenthousandths: int) -> int:
    """Return the smallest m with m * m >= the variance in ten-thousandths."""
    return isqrt(tenthousandths - 1) + 1 if tenthousandths > 0 else 0


# For all variances that can occur.
_ROOTS = np.array([_root(variance) for variance in range(_SQUARES + 1)], np.int64)


def _balanced_of_columns(columns: Sequence[LoadColumn], _shape: Shape | None) -> Scores:
    """Score two resources by half the distance of the fractions, which is their standard deviation."""
    if len(columns) != 2:
        return _balanced_of_many(columns)
    one, other = columns
    capacities = [one.capacity, other.capacity]
    if int(one.capacity.max(initial=0)) * int(other.capacity.max(initial=0)) > _SAFE_PRODUCT:
        capacities = [capacity.astype(object) for capacity in capacities]
    left, right = capacities
    distance = np.abs(np.minimum(one.total, left) * right - np.minimum(other.total, right) * left)
    spread = -(-(BEST // 2) * distance // (left * right))
    return BEST - np.where(one.counted & other.counted, spread, 0).astype(np.int64)


def _balanced_of_many(columns: Sequence[LoadColumn]) -> Scores:
    """Score resources in integers of any length, because products of capacities soon leave 64 bits."""
    capacities = [np.where(column.counted, column.capacity, 1).astype(object) for column in columns]
    counted = [column.counted.astype(object) for column in columns]
    common = np.prod(np.stack(capacities), axis=0)
    number = sum(counted)
    shares = [
        np.minimum(column.total.astype(object), capacity) * (common // capacity) * is_counted
        for column, capacity, is_counted in zip(columns, capacities, counted, strict=True)
    ]
    # variance = (n * sum of squares - square of the sum) / (n * common)^2
    spread = number * sum(share * share for share in shares) - sum(shares) ** 2
    scale = np.maximum(number * common, 1) ** 2
    tenthousandths = -(-_SQUARES * spread // scale)
    scores: Scores = BEST - _ROOTS[tenthousandths.astype(np.int64)]
    return scores


def _balanced_of_host(loads: Sequence[Load], _shape: Shape | None) -> int:
    number, common = len(loads), 1
    for _, _, capacity in loads:
        common *= capacity
    shares = [min(total, capacity) * (common // capacity) for _, total, capacity in loads]
    spread = number * sum(share * share for share in shares) - sum(shares) ** 2
    return BEST - _root(-(-_SQUARES * spread // (max(number, 1) * common) ** 2))


def _balanced_bound(spans: Sequence[Span], _shape: Shape | None) -> int:
    """Bound the score: even use if the spans overlap, else two of n fractions differ by the gap at least.

    The variance is then at least the one of these two about their middle: half the squared gap, divided by n.
    """
    if not spans:
        return BEST
    gap = max(_share(*span.lowest) for span in spans) - min(_share(*span.highest) for span in spans)
    return BEST if gap <= 0 else BEST - _root(ceil(_SQUARES * gap**2 / (2 * len(spans))))


def _share(total: int, capacity: int) -> Fraction:
    return Fraction(min(total, capacity), capacity)


def _balanced_figures(columns: Sequence[LoadColumn], _shape: Shape | None) -> list[list[ScoreFigure]]:
    """Return the fractions in lowest terms."""
    found = []
    for column in columns:
        part = np.minimum(column.total, column.capacity)
        divisor = np.gcd(part, column.capacity)
        found.append([ScoreFigure("fraction", part // divisor, column.capacity // divisor)])
    return found


BALANCED_ALLOCATION = ScoringRule(
    "BalancedAllocation",
    _balanced_of_columns,
    _balanced_of_host,
    _balanced_bound,
    _balanced_figures,
    has_weights=False,
    skips_idle=True,
)


# RequestedToCapacityRatio: the fuller the better, or any other shape. Source: scoring.md, "RTCR".
#
# The mean is rounded, halves upward; a resource that scores 0 is left out of it together with its weight.


def _ratio_of_columns(columns: Sequence[LoadColumn], shape: Shape | None) -> Scores:
    curve = _curve(shape)
    # A few hundred resources of the heaviest weight fit 32 bits, which are faster to divide.
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


def _ratio_of_host(loads: Sequence[Load], shape: Shape | None) -> int:
    heights = _heights(shape)
    numerator = denominator = 0
    for weight, total, capacity in loads:
        height = heights[_utilization(total, capacity)]
        if height:
            numerator += height * weight
            denominator += weight
    return _rounded(numerator, denominator)


def _ratio_bound(spans: Sequence[Span], shape: Shape | None) -> int:
    """Bound the score: each resource counts at the highest point of the curve that it may reach.

    One that may score 0 may leave the mean: it is included only while it raises the mean.
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


def _ratio_figures(columns: Sequence[LoadColumn], shape: Shape | None) -> list[list[ScoreFigure]]:
    curve = _curve(shape)
    utilizations = [column.percent_taken for column in columns]
    return [
        [ScoreFigure("utilization", utilization), ScoreFigure("score", curve.take(utilization))]
        for utilization in utilizations
    ]


def _utilization(total: int, capacity: int) -> int:
    return FULL if total > capacity else total * FULL // capacity


def _rounded(numerator: int, denominator: int) -> int:
    return (2 * numerator + denominator) // (2 * denominator) if denominator else 0


@lru_cache(maxsize=256)
def _heights(shape: Shape | None) -> tuple[int, ...]:
    """Return the shape as a table, because utilization is a whole number from 0 to 100."""
    assert shape is not None
    return tuple(shape.score(utilization) for utilization in range(FULL + 1))


@lru_cache(maxsize=256)
def _curve(shape: Shape | None) -> Indices:
    return np.array(_heights(shape), np.int32)


REQUESTED_TO_CAPACITY_RATIO = ScoringRule(
    "RequestedToCapacityRatio",
    _ratio_of_columns,
    _ratio_of_host,
    _ratio_bound,
    _ratio_figures,
    has_shape=True,
)


# The strategies by name; each has a rule above and an entry here.


RULES: Mapping[str, ScoringRule] = {
    rule.name: rule
    for rule in (REQUESTED_TO_CAPACITY_RATIO, LEAST_ALLOCATED, MOST_ALLOCATED, BALANCED_ALLOCATION)
}
