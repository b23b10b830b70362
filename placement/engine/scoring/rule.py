"""The parts of a scoring strategy: functions for columns of hosts, for one host, and for upper bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from placement.engine.domain.errors import BadRequest
from placement.engine.forest.arrays import Amounts, Mask

# One resource of many hosts, as columns of integers.


# int64, or Python integers (dtype object) where products could leave 64 bits.
Scores = NDArray[Any]
_SAFE = 2**62 // 100


@dataclass(frozen=True)
class LoadColumn:
    """A resource that a strategy lists; where it is not `counted` the amounts are meaningless.

    `capacity` is at least 1 everywhere, so that dividing by it is safe.
    """

    weight: int
    total: Scores
    capacity: Scores
    counted: Mask

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
    if part.dtype != object and len(whole) and int(whole.max()) > _SAFE:
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
