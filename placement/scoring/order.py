"""The order of candidates: one or several strategies over a scope. Source: scoring.md, "Ordering"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from placement.scoring.refusal import ScoringRefused
from placement.scoring.shape import LARGE_SCALE
from placement.scoring.strategy import (
    Scope,
    Strategy,
    parse_scope,
    parse_strategy,
)

MOST_STRATEGIES = 16


@dataclass(frozen=True, slots=True)
class Order:
    """Best first by the sum of the strategies; no strategies mean that nothing is ordered by them.

    Each strategy has a scope; that of the order is for preferences.
    """

    strategies: tuple[Strategy, ...]
    scope: Scope = Scope.TREE

    @property
    def by_tree(self) -> bool:
        """Whether nothing but the tree decides as long as candidates stay inside it."""
        return {self.scope, *(strategy.scope for strategy in self.strategies)} == {Scope.TREE}


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
