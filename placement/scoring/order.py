"""The order of candidates: one or several strategies over a scope. Source: scoring.md, "Ordering"."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from placement.scoring import requested_to_capacity_ratio as ratio
from placement.scoring.refusal import ScoringRefused
from placement.scoring.registry import RULES
from placement.scoring.shape import FULL, LARGE_SCALE, SMALL_SCALE, Shape
from placement.scoring.strategy import DEFAULT_SCORING, Scope, Strategy, parse_scope, parse_strategy
from placement.scoring.weights import renamed

MOST_STRATEGIES = 16


@dataclass(frozen=True, slots=True)
class Order:
    """Best first by the sum of the strategies; no strategies mean that nothing is ordered by them.

    Each strategy has a scope; that of the order is for preferences.
    """

    strategies: tuple[Strategy, ...]
    scope: Scope = Scope.TREE

    @property
    def plain(self) -> Order:
        """Return an equal order in which a single strategy has the weight 1, which changes no score."""
        alone = self.strategies[0] if len(self.strategies) == 1 else None
        return self if alone is None else replace(self, strategies=(replace(alone, weight=1),))

    @property
    def max_score(self) -> int:
        """Return the upper end of the scale of the sum, whose lower end is 0."""
        return best_possible(self.strategies)

    @property
    def by_tree(self) -> bool:
        """Whether nothing but the tree decides as long as candidates stay inside it."""
        return {self.scope, *(strategy.scope for strategy in self.strategies)} == {Scope.TREE}

    def with_names(
        self, name_of: Callable[[str], str], where: str = "order_by", *, stored: bool = False
    ) -> Order:
        """The same order with every resource called what `name_of` makes of its name.

        Raises ScoringRefused where two with different weights become one, unless the order was `stored`.
        """
        single = len(self.strategies) == 1
        places = (where if single else f"{where}[{at}]" for at in range(len(self.strategies)))
        strategies = (
            replace(
                strategy, resources=renamed(strategy.resources, name_of, f"{place}.resources", stored=stored)
            )
            for strategy, place in zip(self.strategies, places, strict=True)
        )
        return replace(self, strategies=tuple(strategies))

    def for_trees(self, name_of: Callable[[str], str]) -> Order:
        """Return the order whose strategies of scope `tree` call resources what `name_of` makes of them.

        Where two become one, the weight of the one that had the name already counts.
        """
        strategies = (
            replace(each, resources=renamed(each.resources, name_of, stored=True))
            if each.scope is Scope.TREE
            else each
            for each in self.strategies
        )
        return replace(self, strategies=tuple(strategies))


def _ramp(low: int, high: int) -> Order:
    shape = Shape(((0, low), (FULL, high)), SMALL_SCALE)
    return Order((Strategy(ratio.RULE.name, shape=shape),))


POD_SCORING = Order((DEFAULT_SCORING,))
"""How pods are scored unless their cluster says otherwise."""
UNORDERED = "none"
NAMED: Mapping[str, Order | None] = {
    UNORDERED: None,
    "pack": _ramp(0, SMALL_SCALE),
    "spread": _ramp(SMALL_SCALE, 0),
    **{name: Order((Strategy(name),)) for name, rule in RULES.items() if not rule.has_shape},
}
"""The orders that have a name; None is no order."""


def parse_order(given: Any, where: str = "order_by") -> Order:
    """The order of a JSON value: a strategy, a list of them, or {"strategies": [...], "scope": ...}.

    The scope given there is that of all strategies that have none of their own. Raises ScoringRefused naming
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
    """The sum of scores, numbers or arrays: each brought to 0..100 and multiplied by its weight.

    A single strategy that stands `alone` keeps its plain score.
    """
    if alone and len(strategies) == 1:
        return scores[0]
    return sum(
        score * (LARGE_SCALE // strategy.max_score * strategy.weight)
        for strategy, score in zip(strategies, scores, strict=True)
    )


def best_possible(strategies: Sequence[Strategy], *, alone: bool = True) -> int:
    """The upper end of the scale of `combined`."""
    total: int = combined(strategies, [strategy.max_score for strategy in strategies], alone=alone)
    return total
