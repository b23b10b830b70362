"""The scoring strategies, and their parts: functions for columns of hosts, for one host, for upper bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from fractions import Fraction
from functools import cached_property, lru_cache
from itertools import pairwise
from math import ceil, isqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placement.engine.domain.errors import BadRequest
from placement.engine.forest.arrays import Amounts, Indices, Mask

# One resource of many hosts, as columns of integers.


# int64, or Python integers (dtype object) where products could leave 64 bits.
Scores = NDArray[Any]
SAFE = 2**62 // 100
"""Amounts and sums up to this can be multiplied by 100 in 64 bits."""


@dataclass(frozen=True)
class LoadColumn:
    """A resource that a strategy lists; where it is not `counted` the amounts are meaningless.

    `capacity` is at least 1 everywhere, so that dividing by it is safe; `exists` tells where it really is.
    """

    weight: int
    total: Scores
    capacity: Scores
    counted: Mask
    exists: Mask

    @cached_property
    def percent_taken(self) -> Amounts:
        """The percentage that would be in use, cut; 100 if more than the capacity would be in use."""
        return percent_of(np.minimum(self.total, self.capacity), self.capacity)


class ScoreFigure(NamedTuple):
    """A number that explains what a resource adds to a score, per host; with `below` it is a fraction."""

    name: str
    amounts: Scores
    below: Scores | None = None


def percent_of(part: Scores, whole: Scores) -> Amounts:
    """Return part * 100 // whole for 0 <= part <= whole, exact at any size."""
    if part.dtype != object and len(whole) and int(whole.max()) > SAFE:
        part, whole = part.astype(object), whole.astype(object)
    percent: Amounts = (part * 100 // whole).astype(np.int64, copy=False)
    return percent


def cut_mean(columns: Sequence[LoadColumn], percents: Iterable[Amounts]) -> Scores:
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
    scores: Scores = numerator // np.maximum(denominator, 1)
    return scores


# Errors in the parameters of a score.


class ScoringRefused(BadRequest):
    """The error of parameters that cannot be used.

    `code` is stable: shape_invalid, weight_invalid, resource_duplicate, resource_invalid, strategy_unknown,
    strategy_invalid, shape_not_allowed, scope_invalid. `reasons`, sorted, details shape_invalid:
    empty, type, max_score, order, utilization_range, score_range.
    """

    def __init__(self, code: str, where: str, message: str, reasons: Iterable[str] = ()) -> None:
        super().__init__(f"{where}: {message}", code)
        self.reasons = sorted(reasons)


def is_integer(value: object) -> bool:
    """Return whether a JSON value is an integer; `true` is not one."""
    return isinstance(value, int) and not isinstance(value, bool)


# Shapes: broken lines from utilization to score. Source: scoring.md, "Shape", "RTCR".


FULL = 100
SMALL_SCALE, LARGE_SCALE = 10, 100

_SENTENCES = {
    "empty": "needs at least one point",
    "type": "every point must be an object with the integers utilization and score, and nothing else",
    "max_score": f"max_score must be {SMALL_SCALE} or {LARGE_SCALE}",
    "order": "utilization must rise strictly from point to point",
    "utilization_range": f"utilization must be between 0 and {FULL}",
    "score_range": "score must be between 0 and {max_score}",
}


@dataclass(frozen=True, slots=True)
class Shape:
    """A shape: ascending points (utilization in percent, score), with scores between 0 and `max_score`."""

    points: tuple[tuple[int, int], ...]
    max_score: int

    def score(self, utilization: int) -> int:
        """Return the height of the line, its fraction cut toward zero; flat outside the points."""
        first, last = self.points[0], self.points[-1]
        if utilization <= first[0]:
            return first[1]
        for (left, low), (right, high) in pairwise(self.points):
            if utilization <= right:
                rise = (high - low) * (utilization - left)
                # `//` would round the wrong way where the line falls.
                cut = abs(rise) // (right - left)
                return low + (cut if rise >= 0 else -cut)
        return last[1]

    @property
    def enlarged(self) -> Shape:
        """This shape enlarged to 0 to 100, as Kubernetes reads points between 0 and 10."""
        factor = LARGE_SCALE // self.max_score
        return Shape(tuple((at, score * factor) for at, score in self.points), LARGE_SCALE)


def parse_shape(given: Any, max_score: Any = None, where: str = "shape") -> Shape:
    """Read the shape of a JSON list of points. Raises ScoringRefused with all reasons.

    Without `max_score` the scale is 0 to 10, or 0 to 100 as soon as a point is above 10.
    """
    if given is None or given == []:
        raise _refused(where, ["empty"])
    if not isinstance(given, list) or not all(
        isinstance(point, dict)
        and point.keys() == {"utilization", "score"}
        and all(map(is_integer, point.values()))
        for point in given
    ):
        raise _refused(where, ["type"])
    points = tuple((point["utilization"], point["score"]) for point in given)
    if max_score is None:
        max_score = LARGE_SCALE if any(score > SMALL_SCALE for _, score in points) else SMALL_SCALE
    elif not is_integer(max_score) or max_score not in (SMALL_SCALE, LARGE_SCALE):
        raise _refused(where, ["max_score"])
    broken = {
        "order": any(right <= left for (left, _), (right, _) in pairwise(points)),
        "score_range": any(not 0 <= score <= max_score for _, score in points),
        "utilization_range": any(not 0 <= utilization <= FULL for utilization, _ in points),
    }
    if any(broken.values()):
        raise _refused(where, [reason for reason, is_broken in broken.items() if is_broken], max_score)
    return Shape(points, max_score)


def _refused(where: str, reasons: Sequence[str], max_score: int = SMALL_SCALE) -> ScoringRefused:
    sentences = "; ".join(_SENTENCES[reason].format(max_score=max_score) for reason in reasons)
    return ScoringRefused("shape_invalid", where, sentences, reasons)


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
    """The base of the mean that a strategy scores by: what is in use, or what is free."""

    FULL = auto()
    FREE = auto()


class ScoringRule(NamedTuple):
    """A strategy by its name in Kubernetes. All functions get the shape, None if the strategy has none.

    `of_columns` computes the scores; `of_host` computes the score of one host, without arrays. `bound`
    returns a score that no use inside the spans exceeds. `figures` are the numbers behind the scores, by
    resource. `has_weights`: resources may differ in weight. `skips_idle`: a request that asks for none of the
    listed resources scores 0. `leaning` is None if the score is no mean.
    """

    name: str
    of_columns: Callable[[Sequence[LoadColumn], Shape | None], Scores]
    of_host: Callable[[Sequence[Load], Shape | None], int]
    bound: Callable[[Sequence[Span], Shape | None], int]
    figures: Callable[[Sequence[LoadColumn], Shape | None], list[list[ScoreFigure]]]
    has_weights: bool = True
    has_shape: bool = False
    skips_idle: bool = False
    leaning: Leaning | None = None


# The resource classes that count for a score, and their weights. Source: scoring.md, "Resources and weights".


HEAVIEST = 100


class Weighted(NamedTuple):
    """A resource by name with its weight."""

    name: str
    weight: int


DEFAULT = (Weighted("VCPU", 1), Weighted("MEMORY_MB", 1))


def parse_resources(given: Any, *, equal: bool = False, where: str = "resources") -> tuple[Weighted, ...]:
    """Read the classes of a JSON list, VCPU and MEMORY_MB if it is absent or empty. Raises ScoringRefused.

    `equal`: the strategy allows no weight but 1.
    """
    if given is None or given == []:
        return DEFAULT
    if not isinstance(given, list):
        raise ScoringRefused("resource_invalid", where, "must be a list of objects with name and weight")
    found = [_parse_resource(entry, f"{where}[{at}]") for at, entry in enumerate(given)]
    for at, (name, weight) in enumerate(found):
        if any(other.name == name for other in found[:at]):
            raise ScoringRefused("resource_duplicate", f"{where}[{at}].name", f"{name} is listed twice")
        if equal and weight != 1:
            raise ScoringRefused(
                "weight_invalid", f"{where}[{at}].weight", "this strategy knows no weight but 1"
            )
    return tuple(found)


def _parse_resource(entry: Any, place: str) -> Weighted:
    if not isinstance(entry, dict) or not entry.keys() <= {"name", "weight"}:
        raise ScoringRefused("resource_invalid", place, "must be an object with name and weight")
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise ScoringRefused("resource_invalid", f"{place}.name", "must name a resource class")
    return Weighted(name, parse_weight(entry.get("weight", 1), f"{place}.weight"))


def renamed(
    resources: Sequence[Weighted],
    name_of: Callable[[str], str],
    where: str = "resources",
    *,
    stored: bool = False,
) -> tuple[Weighted, ...]:
    """Return the weights by other names; two that become one count once.

    Raises ScoringRefused if their weights differ, except for `stored` ones, which were accepted when written:
    of these the one that already had the name counts, else the first.
    """
    own = {name: weight for name, weight in resources if name_of(name) == name}
    found: dict[str, int] = {}
    for at, (given, weight) in enumerate(resources):
        name = name_of(given)
        if stored:
            found.setdefault(name, own.get(name, weight))
        elif found.setdefault(name, weight) != weight:
            raise ScoringRefused(
                "resource_duplicate", f"{where}[{at}].name", f"{name} is listed twice, with two weights"
            )
    return tuple(Weighted(name, weight) for name, weight in found.items())


def parse_weight(given: Any, where: str, heaviest: int = HEAVIEST) -> int:
    """Read a weight; 0 means 1, as in Kubernetes. Raises ScoringRefused."""
    if not is_integer(given) or not 0 <= given <= heaviest:
        raise ScoringRefused("weight_invalid", where, f"must be an integer from 1 to {heaviest}")
    return int(given) or 1


# The strategies; the first two are the cut mean of what would be free, or in use, in percent.
#
# Source: scoring.md, "LeastAllocated and MostAllocated".


def _mean_rule(name: str, leaning: Leaning) -> ScoringRule:
    """Return the strategy that takes the cut weighted mean of the percentages."""
    full = leaning is Leaning.FULL

    def percent(column: LoadColumn) -> Amounts:
        if full:
            return column.percent_taken
        return percent_of(np.maximum(column.capacity - column.total, 0), column.capacity)

    def of_columns(columns: Sequence[LoadColumn], _shape: Shape | None) -> Scores:
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
