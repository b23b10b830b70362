"""The order of candidates: one or several strategies over a scope. Source: scoring.md, "Ordering"."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from placement.engine.domain.errors import BODY, RequestPlace
from placement.engine.scoring.parameters import (
    DEFAULT,
    FULL,
    LARGE_SCALE,
    SMALL_SCALE,
    ScoringRefused,
    Shape,
    Weighted,
    parse_resources,
    parse_shape,
    parse_weight,
    renamed,
)
from placement.engine.scoring.rule import BEST, REQUESTED_TO_CAPACITY_RATIO, RULES, ScoringRule

# Scores of several strategies are summed; this keeps the sums far from 64 bits.
HEAVIEST_STRATEGY = 10_000

_FIELDS = {"type", "shape", "max_score", "resources", "weight", "scope"}


class Scope(StrEnum):
    """A choice of the providers that make the host of a candidate.

    TREE: its whole tree, and sharing providers of other trees that it uses. ALLOCATED: per class only the
    providers that it takes the class from, which distinguishes NUMA nodes or ports of one tree.
    """

    TREE = "tree"
    ALLOCATED = "allocated"


@dataclass(frozen=True, slots=True)
class Strategy:
    """A way to score; `weight` is its weight beside other strategies.

    `type` is the name of a rule; not every rule has a shape.
    """

    type: str
    resources: tuple[Weighted, ...] = DEFAULT
    shape: Shape | None = None
    weight: int = 1
    scope: Scope = Scope.TREE

    @property
    def max_score(self) -> int:
        """The upper end of the scale that starts at 0."""
        return self.shape.max_score if self.shape else BEST

    @property
    def rule(self) -> ScoringRule:
        """The rule that the strategy computes."""
        return RULES[self.type]

    def is_idle(self, request: Mapping[str, int]) -> bool:
        """Return whether it scores 0 because the request asks for none of its resources."""
        return self.rule.skips_idle and not any(request.get(name, 0) for name, _ in self.resources)


DEFAULT_SCORING = Strategy("LeastAllocated", (Weighted("cpu", 1), Weighted("memory", 1)))
"""The scoring of pods on hosts and NUMA nodes unless their cluster configures another."""


def parse_strategy(
    given: Any, place: RequestPlace = BODY / "strategy", scope: Scope = Scope.TREE
) -> Strategy:
    """Read the strategy of a JSON object; `scope` applies if it names none.

    Raises ScoringRefused naming the field.
    """
    if not isinstance(given, dict):
        raise ScoringRefused("strategy_invalid", place, "must be an object with a type")
    unknown = sorted(map(str, given.keys() - _FIELDS))
    if unknown:
        raise ScoringRefused("strategy_invalid", place, f"{', '.join(unknown)} is not understood")
    type_ = given.get("type")
    if not isinstance(type_, str) or type_ not in RULES:
        names = ", ".join(RULES)
        raise ScoringRefused("strategy_unknown", place / "type", f"must be one of {names}, not {type_!r}")
    rule, shape = RULES[type_], None
    resources = parse_resources(given.get("resources"), equal=not rule.has_weights, place=place / "resources")
    if rule.has_shape:
        shape = parse_shape(given.get("shape"), given.get("max_score"), place / "shape")
    else:
        for name in ("shape", "max_score"):
            if given.get(name) is not None:
                raise ScoringRefused(
                    "shape_not_allowed", place / name, f"{type_} has a scale and a shape of its own"
                )
    return Strategy(
        type=type_,
        resources=resources,
        shape=shape,
        weight=parse_weight(given.get("weight", 1), place / "weight", HEAVIEST_STRATEGY),
        scope=parse_scope(given.get("scope", scope), place / "scope"),
    )


def parse_scope(given: Any, place: RequestPlace = BODY / "scope") -> Scope:
    """Read the name of a scope. Raises ScoringRefused."""
    if not isinstance(given, str) or given not in set(Scope):
        raise ScoringRefused("scope_invalid", place, f"must be one of {', '.join(Scope)}, not {given!r}")
    return Scope(given)


# Counted even if not requested: the basic resources, as Placement, nodes and pods name them.
ALWAYS_COUNTED = frozenset(
    {"VCPU", "PCPU", "MEMORY_MB", "DISK_GB"}
    | {"CUSTOM_NODE_CPU_MILLI", "CUSTOM_NODE_MEMORY_MB"}
    | {"cpu", "memory", "ephemeral-storage", "pods"}
)


class Skipped(StrEnum):
    """A reason why a listed resource does not count on a host."""

    NO_CAPACITY = "no_capacity"
    NOT_REQUESTED = "not_requested"


def counts(name: str, request: Mapping[str, int]) -> bool:
    """Return whether a listed resource counts on hosts that have any of it."""
    return bool(request.get(name, 0)) or name in ALWAYS_COUNTED


def counted(resources: Sequence[Weighted], request: Mapping[str, int]) -> Iterator[tuple[str, int, int]]:
    """Yield (name, weight, requested amount) of the resources that count on hosts that have any."""
    for name, weight in resources:
        if counts(name, request):
            yield name, weight, request.get(name, 0)


MOST_STRATEGIES = 16


@dataclass(frozen=True, slots=True)
class Order:
    """An order by the sum of the strategies, best first; without strategies it orders nothing.

    Each strategy has a scope; the scope of the order is for preferences.
    """

    strategies: tuple[Strategy, ...]
    scope: Scope = Scope.TREE

    @property
    def plain(self) -> Order:
        """An equal order in which a single strategy has the weight 1, which changes no score."""
        alone = self.strategies[0] if len(self.strategies) == 1 else None
        return self if alone is None else replace(self, strategies=(replace(alone, weight=1),))

    @property
    def max_score(self) -> int:
        """The upper end of the scale of the sum; the scale starts at 0."""
        return best_possible(self.strategies)

    @property
    def by_tree(self) -> bool:
        """Whether the tree alone decides as long as candidates stay inside it."""
        return {self.scope, *(strategy.scope for strategy in self.strategies)} == {Scope.TREE}

    def with_names(
        self,
        name_of: Callable[[str], str],
        place: RequestPlace = BODY / "order_by",
        *,
        stored: bool = False,
        scopes: Collection[Scope] = tuple(Scope),
    ) -> Order:
        """Return the order with every resource of strategies of these scopes renamed by `name_of`.

        Raises ScoringRefused if two with different weights become one. If the order was `stored`, the weight
        of the one that already had the name counts.
        """
        strategies = []
        for at, strategy in enumerate(self.strategies):
            if strategy.scope in scopes:
                strategy_place = place if len(self.strategies) == 1 else place / at
                resources = renamed(strategy.resources, name_of, strategy_place / "resources", stored=stored)
                strategy = replace(strategy, resources=resources)
            strategies.append(strategy)
        return replace(self, strategies=tuple(strategies))


def _ramp(low: int, high: int) -> Order:
    shape = Shape(((0, low), (FULL, high)), SMALL_SCALE)
    return Order((Strategy(REQUESTED_TO_CAPACITY_RATIO.name, shape=shape),))


POD_SCORING = Order((DEFAULT_SCORING,))
"""The scoring of pods unless their cluster configures another."""
UNORDERED = "none"
WITHOUT_SHAPE = tuple(name for name, rule in RULES.items() if not rule.has_shape)
"""The strategies that their name says in full."""
NAMED: Mapping[str, Order | None] = {
    UNORDERED: None,
    "pack": _ramp(0, SMALL_SCALE),
    "spread": _ramp(SMALL_SCALE, 0),
    **{name: Order((Strategy(name),)) for name in WITHOUT_SHAPE},
}
"""The orders that have a name; None is no order."""


def parse_order(given: Any, place: RequestPlace = BODY / "order_by") -> Order:
    """Read the order of a JSON value: a strategy, a list of them, or {"strategies": [...], "scope": ...}.

    The scope given there applies to all strategies without a scope of their own. Raises ScoringRefused naming
    the field.
    """
    scope = Scope.TREE
    if isinstance(given, dict) and "strategies" not in given:
        strategy = parse_strategy(given, place)
        return Order((strategy,), strategy.scope)
    if isinstance(given, dict):
        scope = parse_scope(given.get("scope", scope), place / "scope")
        unknown = sorted(map(str, given.keys() - {"strategies", "scope"}))
        if unknown:
            raise ScoringRefused("strategy_invalid", place, f"{', '.join(unknown)} is not understood")
        given, place = given["strategies"], place / "strategies"
    if not isinstance(given, list) or not 0 < len(given) <= MOST_STRATEGIES:
        raise ScoringRefused("strategy_invalid", place, f"must list 1 to {MOST_STRATEGIES} strategies")
    strategies = (parse_strategy(entry, place / at, scope) for at, entry in enumerate(given))
    return Order(tuple(strategies), scope)


def combined(strategies: Sequence[Strategy], scores: Sequence[Any], *, alone: bool = True) -> Any:
    """Return the sum of scores, numbers or arrays, each scaled to 0..100 and multiplied by its weight.

    A single strategy that stands `alone` keeps its plain score.
    """
    if alone and len(strategies) == 1:
        return scores[0]
    return sum(
        score * (LARGE_SCALE // strategy.max_score * strategy.weight)
        for strategy, score in zip(strategies, scores, strict=True)
    )


def best_possible(strategies: Sequence[Strategy], *, alone: bool = True) -> int:
    """Return the upper end of the scale of `combined`."""
    total: int = combined(strategies, [strategy.max_score for strategy in strategies], alone=alone)
    return total
