"""Which resource classes count for a score, and how much. Source: scoring.md, "Resources and weights"."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from placement.scoring.refusal import ScoringRefused, is_integer

HEAVIEST = 100


class Weighted(NamedTuple):
    """A resource by name with its weight."""

    name: str
    weight: int


DEFAULT = (Weighted("VCPU", 1), Weighted("MEMORY_MB", 1))


def parse_resources(given: Any, *, equal: bool = False, where: str = "resources") -> tuple[Weighted, ...]:
    """The classes of a JSON list, VCPU and MEMORY_MB if it is absent or empty. Raises ScoringRefused.

    `equal`: the strategy knows no weight but 1.
    """
    if given is None or given == []:
        return DEFAULT
    if not isinstance(given, list):
        raise ScoringRefused("resource_invalid", where, "must be a list of objects with name and weight")
    found = tuple(_parse_each(given, where))
    for at, (name, weight) in enumerate(found):
        if any(other.name == name for other in found[:at]):
            raise ScoringRefused("resource_duplicate", f"{where}[{at}].name", f"{name} is listed twice")
        if equal and weight != 1:
            raise ScoringRefused(
                "weight_invalid", f"{where}[{at}].weight", "this strategy knows no weight but 1"
            )
    return found


def renamed(
    resources: Sequence[Weighted],
    name_of: Callable[[str], str],
    where: str = "resources",
    *,
    stored: bool = False,
) -> tuple[Weighted, ...]:
    """The same weights by other names; two that become one count once.

    Raises ScoringRefused if their weights differ. Of `stored` ones, which were taken when they were written,
    the one that had the name already counts, else the first.
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


def _parse_each(given: list[Any], where: str) -> Iterator[Weighted]:
    for at, entry in enumerate(given):
        place = f"{where}[{at}]"
        if not isinstance(entry, dict) or not entry.keys() <= {"name", "weight"}:
            raise ScoringRefused("resource_invalid", place, "must be an object with name and weight")
        name = entry.get("name")
        if not isinstance(name, str) or not name:
            raise ScoringRefused("resource_invalid", f"{place}.name", "must name a resource class")
        yield Weighted(name, parse_weight(entry.get("weight", 1), f"{place}.weight"))


def parse_weight(given: Any, where: str, heaviest: int = HEAVIEST) -> int:
    """A weight; 0 means 1, as Kubernetes reads it. Raises ScoringRefused."""
    if not is_integer(given) or not 0 <= given <= heaviest:
        raise ScoringRefused("weight_invalid", where, f"must be an integer from 1 to {heaviest}")
    return int(given) or 1
