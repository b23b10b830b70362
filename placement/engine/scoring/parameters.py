"""The parameters of scores: shapes, resource classes and their weights."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

from placement.engine.domain.errors import BODY, BadRequest, RequestPlace


class ScoringRefused(BadRequest):
    """The error of parameters that cannot be used.

    `code` is stable: shape_invalid, weight_invalid, resource_duplicate, resource_invalid, strategy_unknown,
    strategy_invalid, shape_not_allowed, scope_invalid. `reasons`, sorted, details shape_invalid:
    empty, type, max_score, order, utilization_range, score_range.
    """

    def __init__(self, code: str, place: RequestPlace, message: str, reasons: Iterable[str] = ()) -> None:
        super().__init__(message, code, place=place)
        self.reasons = sorted(reasons)


def is_integer(value: object) -> bool:
    """Return whether a JSON value is an integer; `true` is not one."""
    return isinstance(value, int) and not isinstance(value, bool)


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
    """A shape: ascending points (utilization in percent, score), with scores between 0 and `max_score`.

    Source: scoring.md, "Shape".
    """

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


def parse_shape(given: Any, max_score: Any = None, place: RequestPlace = BODY / "shape") -> Shape:
    """Read the shape of a JSON list of points. Raises ScoringRefused with all reasons.

    Without `max_score` the scale is 0 to 10, or 0 to 100 as soon as a point is above 10.
    """
    points = _parse_points(given, place)
    max_score = _parse_max_score(max_score, points, place)
    broken = {
        "order": any(right <= left for (left, _), (right, _) in pairwise(points)),
        "score_range": any(not 0 <= score <= max_score for _, score in points),
        "utilization_range": any(not 0 <= utilization <= FULL for utilization, _ in points),
    }
    if any(broken.values()):
        raise _refused(place, [reason for reason, is_broken in broken.items() if is_broken], max_score)
    return Shape(points, max_score)


def _parse_points(given: Any, place: RequestPlace) -> tuple[tuple[int, int], ...]:
    if given is None or given == []:
        raise _refused(place, ["empty"])
    if not isinstance(given, list) or not all(
        isinstance(point, dict)
        and point.keys() == {"utilization", "score"}
        and all(map(is_integer, point.values()))
        for point in given
    ):
        raise _refused(place, ["type"])
    return tuple((point["utilization"], point["score"]) for point in given)


def _parse_max_score(given: Any, points: Sequence[tuple[int, int]], place: RequestPlace) -> int:
    if given is None:
        return LARGE_SCALE if any(score > SMALL_SCALE for _, score in points) else SMALL_SCALE
    if not is_integer(given) or given not in (SMALL_SCALE, LARGE_SCALE):
        raise _refused(place, ["max_score"])
    scale: int = given
    return scale


def _refused(place: RequestPlace, reasons: Sequence[str], max_score: int = SMALL_SCALE) -> ScoringRefused:
    sentences = "; ".join(_SENTENCES[reason].format(max_score=max_score) for reason in reasons)
    return ScoringRefused("shape_invalid", place, sentences, reasons)


HEAVIEST = 100


class Weighted(NamedTuple):
    """A resource by name with its weight."""

    name: str
    weight: int


DEFAULT = (Weighted("VCPU", 1), Weighted("MEMORY_MB", 1))


def parse_resources(
    given: Any, *, equal: bool = False, place: RequestPlace = BODY / "resources"
) -> tuple[Weighted, ...]:
    """Read the classes of a JSON list, VCPU and MEMORY_MB if it is absent or empty. Raises ScoringRefused.

    `equal`: the strategy allows no weight but 1. Source: scoring.md, "Resources and weights".
    """
    if given is None or given == []:
        return DEFAULT
    if not isinstance(given, list):
        raise ScoringRefused("resource_invalid", place, "must be a list of objects with name and weight")
    found = [_parse_resource(entry, place / at) for at, entry in enumerate(given)]
    for at, (name, weight) in enumerate(found):
        if any(other.name == name for other in found[:at]):
            raise ScoringRefused("resource_duplicate", place / at / "name", f"{name} is listed twice")
        if equal and weight != 1:
            raise ScoringRefused(
                "weight_invalid", place / at / "weight", "this strategy knows no weight but 1"
            )
    return tuple(found)


def _parse_resource(entry: Any, place: RequestPlace) -> Weighted:
    if not isinstance(entry, dict) or not entry.keys() <= {"name", "weight"}:
        raise ScoringRefused("resource_invalid", place, "must be an object with name and weight")
    name = entry.get("name")
    if not isinstance(name, str) or not name:
        raise ScoringRefused("resource_invalid", place / "name", "must name a resource class")
    return Weighted(name, parse_weight(entry.get("weight", 1), place / "weight"))


def renamed(
    resources: Sequence[Weighted],
    name_of: Callable[[str], str],
    place: RequestPlace = BODY / "resources",
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
                "resource_duplicate", place / at / "name", f"{name} is listed twice, with two weights"
            )
    return tuple(Weighted(name, weight) for name, weight in found.items())


def parse_weight(given: Any, place: RequestPlace, heaviest: int = HEAVIEST) -> int:
    """Read a weight; 0 means 1, as in Kubernetes. Raises ScoringRefused."""
    if not is_integer(given) or not 0 <= given <= heaviest:
        raise ScoringRefused("weight_invalid", place, f"must be an integer from 1 to {heaviest}")
    return int(given) or 1
