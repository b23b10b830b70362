"""The order of candidates: one or several strategies over a scope. Source: scoring.md, "Ordering"."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np

from placement.engine.forest.arrays import Amounts as AmountColumn
from placement.engine.forest.arrays import Mask
from placement.engine.scoring.rule import (
    BEST,
    DEFAULT,
    FULL,
    LARGE_SCALE,
    REQUESTED_TO_CAPACITY_RATIO,
    RULES,
    SMALL_SCALE,
    LoadColumn,
    ScoreFigure,
    ScoringRefused,
    ScoringRule,
    Shape,
    Span,
    Weighted,
    parse_resources,
    parse_shape,
    parse_weight,
    renamed,
)

# Strategies as parameters: the kind of score, and its classes. Source: scoring.md, "Parameters".


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


def parse_strategy(given: Any, where: str = "strategy", scope: Scope = Scope.TREE) -> Strategy:
    """Read the strategy of a JSON object; `scope` applies if it names none.

    Raises ScoringRefused naming the field.
    """
    if not isinstance(given, dict):
        raise ScoringRefused("strategy_invalid", where, "must be an object with a type")
    unknown = sorted(map(str, given.keys() - _FIELDS))
    if unknown:
        raise ScoringRefused("strategy_invalid", where, f"{', '.join(unknown)} is not understood")
    type_ = given.get("type")
    if not isinstance(type_, str) or type_ not in RULES:
        names = ", ".join(RULES)
        raise ScoringRefused("strategy_unknown", f"{where}.type", f"must be one of {names}, not {type_!r}")
    rule, shape = RULES[type_], None
    resources = parse_resources(
        given.get("resources"), equal=not rule.has_weights, where=f"{where}.resources"
    )
    if rule.has_shape:
        shape = parse_shape(given.get("shape"), given.get("max_score"), f"{where}.shape")
    else:
        for name in ("shape", "max_score"):
            if given.get(name) is not None:
                raise ScoringRefused(
                    "shape_not_allowed", f"{where}.{name}", f"{type_} has a scale and a shape of its own"
                )
    return Strategy(
        type=type_,
        resources=resources,
        shape=shape,
        weight=parse_weight(given.get("weight", 1), f"{where}.weight", HEAVIEST_STRATEGY),
        scope=parse_scope(given.get("scope", scope), f"{where}.scope"),
    )


def parse_scope(given: Any, where: str = "scope") -> Scope:
    """Read the name of a scope. Raises ScoringRefused."""
    if not isinstance(given, str) or given not in set(Scope):
        raise ScoringRefused("scope_invalid", where, f"must be one of {', '.join(Scope)}, not {given!r}")
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
        where: str = "order_by",
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
                place = where if len(self.strategies) == 1 else f"{where}[{at}]"
                resources = renamed(strategy.resources, name_of, f"{place}.resources", stored=stored)
                strategy = replace(strategy, resources=resources)
            strategies.append(strategy)
        return replace(self, strategies=tuple(strategies))


def _ramp(low: int, high: int) -> Order:
    shape = Shape(((0, low), (FULL, high)), SMALL_SCALE)
    return Order((Strategy(REQUESTED_TO_CAPACITY_RATIO.name, shape=shape),))


POD_SCORING = Order((DEFAULT_SCORING,))
"""The scoring of pods unless their cluster configures another."""
UNORDERED = "none"
NAMED: Mapping[str, Order | None] = {
    UNORDERED: None,
    "pack": _ramp(0, SMALL_SCALE),
    "spread": _ramp(SMALL_SCALE, 0),
    **{name: Order((Strategy(name),)) for name, rule in RULES.items() if not rule.has_shape},
}
"""The orders that have a name; None is no order."""


def parse_order(given: Any, where: str = "order_by") -> Order:
    """Read the order of a JSON value: a strategy, a list of them, or {"strategies": [...], "scope": ...}.

    The scope given there applies to all strategies without a scope of their own. Raises ScoringRefused naming
    the field.
    """
    scope = Scope.TREE
    if isinstance(given, dict) and "strategies" not in given:
        strategy = parse_strategy(given, where)
        return Order((strategy,), strategy.scope)
    if isinstance(given, dict):
        scope = parse_scope(given.get("scope", scope), f"{where}.scope")
        unknown = sorted(map(str, given.keys() - {"strategies", "scope"}))
        if unknown:
            raise ScoringRefused("strategy_invalid", where, f"{', '.join(unknown)} is not understood")
        given, where = given["strategies"], f"{where}.strategies"
    if not isinstance(given, list) or not 0 < len(given) <= MOST_STRATEGIES:
        raise ScoringRefused("strategy_invalid", where, f"must list 1 to {MOST_STRATEGIES} strategies")
    strategies = (parse_strategy(entry, f"{where}[{at}]", scope) for at, entry in enumerate(given))
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


# The score of one host, without arrays, and the best score of a host with inexactly known use.
#
# Scores equal `score_hosts` host by host. Amounts are by resource name, in one unit per resource; absent
# means 0.


Amounts = Mapping[str, int]
Use = tuple[int, int]
"""(amount that would be in use, capacity) of one resource."""


def score_host(strategy: Strategy, requested: Amounts, capacity: Amounts, request: Amounts) -> int:
    """Return the score of a host with `requested` of its `capacity` in use if `request` were added.

    Source: scoring.md, "Scoring and ordering of candidates"; koordinator.md, "Score".
    """
    return scorer_for(strategy, request)(requested, capacity)


def scorer_for(strategy: Strategy, request: Amounts) -> Callable[[Amounts, Amounts], int]:
    """Return `score_host` for one request, which is read once for many hosts."""
    if strategy.is_idle(request):
        return lambda requested, capacity: 0
    listed = list(counted(strategy.resources, request))
    of_host, shape = strategy.rule.of_host, strategy.shape

    def score(requested: Amounts, capacity: Amounts) -> int:
        loads = []
        for name, weight, asked in listed:
            room = capacity.get(name, 0)
            if room > 0:
                loads.append((weight, requested.get(name, 0) + asked, room))
        return of_host(loads, shape)

    return score


def sum_scorer(order: Order, request: Amounts) -> Callable[[Amounts, Amounts], int]:
    """Return what `scorer_for` returns, for the weighted sum of all strategies of an order.

    Source: scoring.md, "Ordering", "Policies".
    """
    strategies = order.strategies
    scorers = [scorer_for(strategy, request) for strategy in strategies]
    if len(scorers) == 1:
        return scorers[0]

    def score(requested: Amounts, capacity: Amounts) -> int:
        points: int = combined(strategies, [each(requested, capacity) for each in scorers])
        return points

    return score


def best_score(strategy: Strategy, uses: Mapping[str, tuple[Use, Use]], request: Amounts) -> int:
    """Return an upper bound of the score of a host, given its lowest and highest use with the request.

    `uses` has both for each listed resource, with capacity above 0. If a counted resource is absent from it,
    nothing is known, and the bound is the best possible score.
    """
    if strategy.is_idle(request):
        return 0
    spans = []
    for name, weight, _ in counted(strategy.resources, request):
        if name not in uses:
            return strategy.max_score
        spans.append(Span(weight, *uses[name]))
    return strategy.rule.bound(spans, strategy.shape)


def favours_full(strategy: Strategy) -> bool:
    """Return whether a full host scores higher than an empty one."""
    names = [name for name, _ in strategy.resources]
    full, one = dict.fromkeys(names, BEST), dict.fromkeys(names, 1)
    return score_host(strategy, {}, full, full) > score_host(strategy, {}, full, one)


# Scores of many hosts at once.


Columns = Mapping[str, tuple[AmountColumn, AmountColumn]]
"""The amounts in use and the capacities per resource, each with one amount per host."""


def score_hosts(strategy: Strategy, columns: Columns, request: Mapping[str, int]) -> AmountColumn:
    """Return one score per host for one request; a listed resource without columns is on no host.

    Columns, one at least, have equal lengths. Source: scoring.md, "Scoring and ordering of candidates".
    """
    return _scores(strategy, _loads(strategy, columns, request), request)


def _scores(strategy: Strategy, loads: list[LoadColumn], request: Mapping[str, int]) -> AmountColumn:
    if strategy.is_idle(request):
        return np.zeros(len(loads[0].total), np.int64)
    scores: AmountColumn = strategy.rule.of_columns(loads, strategy.shape).astype(np.int64, copy=False)
    return scores


class ClassParts(NamedTuple):
    """The part of one class in the scores of hosts: its figures where `counted`, else why it is skipped.

    `weight` is None if the strategy has no weights.
    """

    name: str
    weight: int | None
    figures: list[ScoreFigure]
    counted: Mask
    has_capacity: Mask

    def skipped(self, at: int) -> Skipped:
        """Return why the class does not count on a host."""
        return Skipped.NOT_REQUESTED if self.has_capacity[at] else Skipped.NO_CAPACITY


def score_with_parts(
    strategy: Strategy, columns: Columns, request: Mapping[str, int]
) -> tuple[AmountColumn, list[ClassParts]]:
    """Return the scores of `score_hosts`, and the part of each listed class in them."""
    rule = strategy.rule
    loads = _loads(strategy, columns, request)
    parts = [
        ClassParts(name, weight if rule.has_weights else None, figures, load.counted, load.exists)
        for (name, weight), figures, load in zip(
            strategy.resources, rule.figures(loads, strategy.shape), loads, strict=True
        )
    ]
    return _scores(strategy, loads, request), parts


def _loads(strategy: Strategy, columns: Columns, request: Mapping[str, int]) -> list[LoadColumn]:
    nothing: AmountColumn = np.zeros(len(next(iter(columns.values()))[0]), np.int64)
    loads = []
    for name, weight in strategy.resources:
        used, capacity = columns.get(name, (nothing, nothing))
        total, exists = used + request.get(name, 0), capacity > 0
        counted = exists if counts(name, request) else np.zeros_like(exists)
        loads.append(LoadColumn(weight, total, np.maximum(capacity, 1), counted, exists))
    return loads
