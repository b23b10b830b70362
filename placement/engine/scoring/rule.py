"""The scoring strategies, and their parts: functions for columns of hosts, for one host, for upper bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from fractions import Fraction
from functools import cached_property, lru_cache
from math import ceil, isqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placement.engine.forest.arrays import Amounts, Indices, Mask
from placement.engine.scoring.parameters import FULL, Shape


class ScoringRule(NamedTuple):
    """A strategy by its name in Kubernetes. All functions get the shape, None if the strategy has none.

    `of_columns` computes the scores; `of_host` computes the score of one host, without arrays. `bound`
    returns a score that no use inside the spans exceeds. `figures` are the numbers behind the scores, by
    resource. `has_weights`: resources may differ in weight. `skips_idle`: a request that asks for none of the
    listed resources scores 0. `leaning` is None if the score is no mean.
    """

    name: str
    of_columns: Callable[[Sequence[LoadColumn], Shape | None], ScoreColumn]
    of_host: Callable[[Sequence[Load], Shape | None], int]
    bound: Callable[[Sequence[Span], Shape | None], int]
    figures: Callable[[Sequence[LoadColumn], Shape | None], list[list[ScoreFigure]]]
    has_weights: bool = True
    has_shape: bool = False
    skips_idle: bool = False
    leaning: Leaning | None = None


# int64, or Python integers (dtype object) where products could leave 64 bits.
ScoreColumn = NDArray[Any]
SAFE = 2**62 // 100
"""Amounts and sums up to this can be multiplied by 100 in 64 bits."""


@dataclass(frozen=True)
class LoadColumn:
    """A resource that a strategy lists; where it is not `counted` the amounts are meaningless.

    `capacity` is at least 1 everywhere, so that dividing by it is safe; `exists` tells where it really is.
    """

    weight: int
    total: ScoreColumn
    capacity: ScoreColumn
    counted: Mask
    exists: Mask

    @cached_property
    def percent_taken(self) -> Amounts:
        """The percentage that would be in use, cut; 100 if more than the capacity would be in use."""
        return percent_of(np.minimum(self.total, self.capacity), self.capacity)


class ScoreFigure(NamedTuple):
    """A number that explains what a resource adds to a score, per host; with `below` it is a fraction."""

    name: str
    amounts: ScoreColumn
    below: ScoreColumn | None = None


def percent_of(part: ScoreColumn, whole: ScoreColumn) -> Amounts:
    """Return part * 100 // whole for 0 <= part <= whole, exact at any size."""
    if part.dtype != object and len(whole) and int(whole.max()) > SAFE:
        part, whole = part.astype(object), whole.astype(object)
    percent: Amounts = (part * 100 // whole).astype(np.int64, copy=False)
    return percent


def cut_mean(columns: Sequence[LoadColumn], percents: Iterable[Amounts]) -> ScoreColumn:
    """Return the cut weighted mean of the percentages of the resources that count; 0 without any."""
    numerator = np.zeros(len(columns[0].total), np.int64)
    denominator = np.zeros_like(numerator)
    for column, percent in zip(columns, percents, strict=True):
        if column.counted.all():
            numerator += percent * column.weight
            denominator += column.weight
        else:
            numerator += percent * column.counted * column.weight
            denominator += column.counted * np.int64(column.weight)
    scores: ScoreColumn = numerator // np.maximum(denominator, 1)
    return scores


BEST = 100
"""The best score of strategies without a shape, and of all scores of pods."""

Load = tuple[int, int, int]
"""(weight, total, capacity) of a counted resource: `total` would be in use of `capacity`, which is above 0.

A plain tuple, because tight loops score the NUMA nodes of a host.
"""


class Span(NamedTuple):
    """The range of use of a counted resource: (total, capacity) at the least and at the most."""

    weight: int
    lowest: tuple[int, int]
    highest: tuple[int, int]


class Leaning(Enum):
    """The base of the mean that a strategy scores by: the use or the free amounts."""

    FULL = auto()
    FREE = auto()


def _mean_rule(name: str, leaning: Leaning) -> ScoringRule:
    """Return the strategy that takes the cut weighted mean of the percentages.

    Source: scoring.md, "LeastAllocated and MostAllocated".
    """
    full = leaning is Leaning.FULL

    def percent(column: LoadColumn) -> Amounts:
        if full:
            return column.percent_taken
        return percent_of(np.maximum(column.capacity - column.total, 0), column.capacity)

    def of_columns(columns: Sequence[LoadColumn], _shape: Shape | None) -> ScoreColumn:
        return cut_mean(columns, map(percent, columns))

    def of_host(loads: Sequence[Load], _shape: Shape | None) -> int:
        points = weights = 0
        for weight, total, capacity in loads:
            taken = total if total < capacity else capacity
            points += weight * ((taken if full else capacity - taken) * BEST // capacity)
            weights += weight
        return points // weights if weights else 0

    def bound(spans: Sequence[Span], shape: Shape | None) -> int:
        return of_host([(span.weight, *(span.highest if full else span.lowest)) for span in spans], shape)

    def figures(columns: Sequence[LoadColumn], _shape: Shape | None) -> list[list[ScoreFigure]]:
        return [[ScoreFigure("score", percent(column))] for column in columns]

    return ScoringRule(name, of_columns, of_host, bound, figures, leaning=leaning)


LEAST_ALLOCATED = _mean_rule("LeastAllocated", Leaning.FREE)
MOST_ALLOCATED = _mean_rule("MostAllocated", Leaning.FULL)


_SQUARES = BEST**2

# Products up to this can be multiplied by 50 in 64 bits.
_SAFE_PRODUCT = 2**63 // BEST


def _root(tenthousandths: int) -> int:
    """Return the smallest m with m * m >= the variance in ten-thousandths.

    The score is the largest k of 0..100 with ((100 - k) / 100)^2 >= variance of the used fractions. A root in
    binary floating point would be wrong on about one input in a thousand.
    Source: scoring.md, "BalancedAllocation".
    """
    return isqrt(tenthousandths - 1) + 1 if tenthousandths > 0 else 0


# For all variances that can occur.
_ROOTS = np.array([_root(variance) for variance in range(_SQUARES + 1)], np.int64)


def _balanced_of_columns(columns: Sequence[LoadColumn], _shape: Shape | None) -> ScoreColumn:
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


def _balanced_of_many(columns: Sequence[LoadColumn]) -> ScoreColumn:
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
    scores: ScoreColumn = BEST - _ROOTS[tenthousandths.astype(np.int64)]
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


def _ratio_of_columns(columns: Sequence[LoadColumn], shape: Shape | None) -> ScoreColumn:
    """Score by the shape: the mean rounds halves upward, and leaves out resources that score 0.

    Source: scoring.md, "RTCR".
    """
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
    rounded: ScoreColumn = (2 * numerator + denominator) // (2 * np.maximum(denominator, 1))
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


RULES: Mapping[str, ScoringRule] = {
    rule.name: rule
    for rule in (REQUESTED_TO_CAPACITY_RATIO, LEAST_ALLOCATED, MOST_ALLOCATED, BALANCED_ALLOCATION)
}
