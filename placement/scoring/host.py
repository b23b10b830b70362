"""The score of one host, on plain integers: the reference that the vectorised scores must agree with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from placement.scoring.load import Part, loads_of
from placement.scoring.registry import SCORERS
from placement.scoring.strategy import Strategy


@dataclass(frozen=True, slots=True)
class HostScore:
    """A score between 0 and `max_score`, and what each listed class added to it."""

    score: int
    max_score: int
    resources: Mapping[str, Part]


def score_host(
    strategy: Strategy,
    request: Mapping[str, int],
    capacity: Mapping[str, int],
    used: Mapping[str, int],
) -> HostScore:
    """How good the host would be; amounts per class, absent means 0.

    Source: scoring.md, "Scoring and ordering of candidates".
    """
    counted, skipped = loads_of(strategy.resources, request, capacity, used)
    asked = any(request.get(name, 0) for name, _ in strategy.resources)
    score, parts = SCORERS[strategy.type].of_host(strategy, counted, asked)
    parts = {**parts, **{name: {"skipped": str(reason)} for name, reason in skipped.items()}}
    ordered = {name: parts[name] for name, _ in strategy.resources}
    return HostScore(score, strategy.max_score, ordered)
