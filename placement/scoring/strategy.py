"""Strategies as parameters: which kind of score, over which classes. Source: scoring.md, "Parameters"."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from placement.scoring.refusal import ScoringRefused
from placement.scoring.shape import LARGE_SCALE, Shape, parse_shape
from placement.scoring.weights import (
    DEFAULT,
    Weighted,
    parse_resources,
    parse_weight,
)

# Scores of several strategies are summed; this keeps the sums far from 64 bits.
HEAVIEST_STRATEGY = 10_000

_FIELDS = {"type", "shape", "max_score", "resources", "weight", "scope"}


class StrategyType(StrEnum):
    """The kinds of scores."""

    REQUESTED_TO_CAPACITY_RATIO = "RequestedToCapacityRatio"
    LEAST_ALLOCATED = "LeastAllocated"
    MOST_ALLOCATED = "MostAllocated"
    BALANCED_ALLOCATION = "BalancedAllocation"


class Scope(StrEnum):
    """Which providers make the host of a candidate.

    TREE: its whole tree, and sharing providers of other trees that it draws on. ALLOCATED: per class only
    those it takes the class from, which tells NUMA nodes or ports of one tree apart.
    """

    TREE = "tree"
    ALLOCATED = "allocated"


@dataclass(frozen=True, slots=True)
class Strategy:
    """One way to score; `weight` is its weight beside other strategies.

    Only RequestedToCapacityRatio has a shape.
    """

    type: StrategyType
    resources: tuple[Weighted, ...] = DEFAULT
    shape: Shape | None = None
    weight: int = 1
    scope: Scope = Scope.TREE

    @property
    def max_score(self) -> int:
        """The upper end of the scale, whose lower end is 0."""
        return self.shape.max_score if self.shape else LARGE_SCALE


def parse_strategy(given: Any, where: str = "strategy", scope: Scope = Scope.TREE) -> Strategy:
    """The strategy of a JSON object, of this `scope` if it names none.

    Raises ScoringRefused naming the field.
    """
    if not isinstance(given, dict):
        raise ScoringRefused("strategy_invalid", where, "must be an object with a type")
    unknown = sorted(map(str, given.keys() - _FIELDS))
    if unknown:
        raise ScoringRefused("strategy_invalid", where, f"{', '.join(unknown)} is not understood")
    kind = _parse_type(given.get("type"), f"{where}.type")
    return Strategy(
        type=kind,
        resources=parse_resources(
            given.get("resources"),
            equal=kind is StrategyType.BALANCED_ALLOCATION,
            where=f"{where}.resources",
        ),
        shape=_parse_own_shape(kind, given, where),
        weight=parse_weight(given.get("weight", 1), f"{where}.weight", HEAVIEST_STRATEGY),
        scope=parse_scope(given.get("scope", scope), f"{where}.scope"),
    )


def parse_scope(given: Any, where: str = "scope") -> Scope:
    """The scope of this name. Raises ScoringRefused."""
    if not isinstance(given, str) or given not in set(Scope):
        raise ScoringRefused("scope_invalid", where, f"must be one of {', '.join(Scope)}, not {given!r}")
    return Scope(given)


def _parse_type(given: Any, where: str) -> StrategyType:
    if not isinstance(given, str) or given not in set(StrategyType):
        raise ScoringRefused(
            "strategy_unknown", where, f"must be one of {', '.join(StrategyType)}, not {given!r}"
        )
    return StrategyType(given)


def _parse_own_shape(kind: StrategyType, given: dict[str, Any], where: str) -> Shape | None:
    if kind is StrategyType.REQUESTED_TO_CAPACITY_RATIO:
        return parse_shape(given.get("shape"), given.get("max_score"), f"{where}.shape")
    for name in ("shape", "max_score"):
        if given.get(name) is not None:
            raise ScoringRefused(
                "shape_not_allowed", f"{where}.{name}", f"{kind} has a scale and a shape of its own"
            )
    return None
