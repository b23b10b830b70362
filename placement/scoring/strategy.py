"""Strategies as parameters: which kind of score, over which classes. Source: scoring.md, "Parameters"."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from placement.scoring.refusal import ScoringRefused
from placement.scoring.registry import RULES
from placement.scoring.rule import BEST, Rule
from placement.scoring.shape import Shape, parse_shape
from placement.scoring.weights import DEFAULT, Weighted, parse_resources, parse_weight

# Scores of several strategies are summed; this keeps the sums far from 64 bits.
HEAVIEST_STRATEGY = 10_000

_FIELDS = {"type", "shape", "max_score", "resources", "weight", "scope"}


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

    `type` is the name of a rule; not every rule has a shape.
    """

    type: str
    resources: tuple[Weighted, ...] = DEFAULT
    shape: Shape | None = None
    weight: int = 1
    scope: Scope = Scope.TREE

    @property
    def max_score(self) -> int:
        """The upper end of the scale, whose lower end is 0."""
        return self.shape.max_score if self.shape else BEST

    @property
    def rule(self) -> Rule:
        """What the strategy computes."""
        return RULES[self.type]


DEFAULT_SCORING = Strategy("LeastAllocated", (Weighted("cpu", 1), Weighted("memory", 1)))
"""How pods are scored on hosts and NUMA nodes unless their cluster says otherwise."""


def parse_strategy(given: Any, where: str = "strategy", scope: Scope = Scope.TREE) -> Strategy:
    """The strategy of a JSON object, of this `scope` if it names none.

    Raises ScoringRefused naming the field.
    """
    if not isinstance(given, dict):
        raise ScoringRefused("strategy_invalid", where, "must be an object with a type")
    unknown = sorted(map(str, given.keys() - _FIELDS))
    if unknown:
        raise ScoringRefused("strategy_invalid", where, f"{', '.join(unknown)} is not understood")
    rule = _parse_type(given.get("type"), f"{where}.type")
    return Strategy(
        type=rule.name,
        resources=parse_resources(
            given.get("resources"), equal=not rule.has_weights, where=f"{where}.resources"
        ),
        shape=_parse_own_shape(rule, given, where),
        weight=parse_weight(given.get("weight", 1), f"{where}.weight", HEAVIEST_STRATEGY),
        scope=parse_scope(given.get("scope", scope), f"{where}.scope"),
    )


def parse_scope(given: Any, where: str = "scope") -> Scope:
    """The scope of this name. Raises ScoringRefused."""
    if not isinstance(given, str) or given not in set(Scope):
        raise ScoringRefused("scope_invalid", where, f"must be one of {', '.join(Scope)}, not {given!r}")
    return Scope(given)


def _parse_type(given: Any, where: str) -> Rule:
    if not isinstance(given, str) or given not in RULES:
        raise ScoringRefused("strategy_unknown", where, f"must be one of {', '.join(RULES)}, not {given!r}")
    return RULES[given]


def _parse_own_shape(rule: Rule, given: dict[str, Any], where: str) -> Shape | None:
    if rule.has_shape:
        return parse_shape(given.get("shape"), given.get("max_score"), f"{where}.shape")
    for name in ("shape", "max_score"):
        if given.get(name) is not None:
            raise ScoringRefused(
                "shape_not_allowed", f"{where}.{name}", f"{rule.name} has a scale and a shape of its own"
            )
    return None


# Counted even where the request asks for none: the same things as Placement, nodes and pods name them.
ALWAYS_COUNTED = frozenset(
    {"VCPU", "PCPU", "MEMORY_MB", "DISK_GB"}
    | {"CUSTOM_NODE_CPU_MILLI", "CUSTOM_NODE_MEMORY_MB"}
    | {"cpu", "memory", "ephemeral-storage", "pods"}
)


class Skipped(StrEnum):
    """Why a listed resource does not count on a host."""

    NO_CAPACITY = "no_capacity"
    NOT_REQUESTED = "not_requested"


def counts(name: str, request: Mapping[str, int]) -> bool:
    """Whether a listed resource counts on hosts that have any of it."""
    return bool(request.get(name, 0)) or name in ALWAYS_COUNTED


def counted(resources: Sequence[Weighted], request: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
    """(name, weight, what the request asks for) of the resources that count on hosts that have any."""
    for name, weight in resources:
        if counts(name, request):
            yield name, weight, request.get(name, 0)


def is_idle(resources: Sequence[Weighted], request: Mapping[str, int]) -> bool:
    """Whether the request asks for none of the listed resources."""
    return not any(request.get(name, 0) for name, _ in resources)
