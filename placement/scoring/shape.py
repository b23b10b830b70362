"""Shapes: broken lines from utilization to score. Source: scoring.md, "Shape", "RTCR"."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from placement.scoring.refusal import ScoringRefused, is_integer

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
    """Points (utilization in percent, score), ascending; scores are between 0 and `max_score`."""

    points: tuple[tuple[int, int], ...]
    max_score: int

    def score(self, utilization: int) -> int:
        """The height of the line, its fraction cut toward zero; flat outside the points."""
        first, last = self.points[0], self.points[-1]
        if utilization <= first[0]:
            return first[1]
        for (left, low), (right, high) in pairwise(self.points):
            if utilization <= right:
                return low + _cut((high - low) * (utilization - left), right - left)
        return last[1]

    @property
    def enlarged(self) -> Shape:
        """The same line between 0 and 100, as Kubernetes reads points between 0 and 10."""
        factor = LARGE_SCALE // self.max_score
        return Shape(tuple((at, score * factor) for at, score in self.points), LARGE_SCALE)


def _cut(numerator: int, denominator: int) -> int:
    """The quotient cut toward zero: `//` would go the wrong way where the line falls."""
    quotient = abs(numerator) // denominator
    return quotient if numerator >= 0 else -quotient


def parse_shape(given: Any, max_score: Any = None, where: str = "shape") -> Shape:
    """The shape of a JSON list of points. Raises ScoringRefused with all reasons.

    Without `max_score` the scale is 0 to 10, or 0 to 100 as soon as a point is above 10.
    """
    if given is None or given == []:
        raise _refused(where, ["empty"])
    if not isinstance(given, list) or not all(_is_point(point) for point in given):
        raise _refused(where, ["type"])
    points = tuple((point["utilization"], point["score"]) for point in given)
    if max_score is None:
        max_score = LARGE_SCALE if any(score > SMALL_SCALE for _, score in points) else SMALL_SCALE
    elif not is_integer(max_score) or max_score not in (SMALL_SCALE, LARGE_SCALE):
        raise _refused(where, ["max_score"])
    reasons = set(_faults(points, max_score))
    if reasons:
        raise _refused(where, reasons, max_score)
    return Shape(points, max_score)


def _is_point(point: Any) -> bool:
    return (
        isinstance(point, dict)
        and point.keys() == {"utilization", "score"}
        and all(is_integer(value) for value in point.values())
    )


def _faults(points: tuple[tuple[int, int], ...], max_score: int) -> Iterable[str]:
    if any(right <= left for (left, _), (right, _) in pairwise(points)):
        yield "order"
    if any(not 0 <= utilization <= FULL for utilization, _ in points):
        yield "utilization_range"
    if any(not 0 <= score <= max_score for _, score in points):
        yield "score_range"


def _refused(where: str, reasons: Iterable[str], max_score: int = SMALL_SCALE) -> ScoringRefused:
    ordered = sorted(reasons)
    sentences = "; ".join(_SENTENCES[reason].format(max_score=max_score) for reason in ordered)
    return ScoringRefused("shape_invalid", where, sentences, ordered)
