"""The order of candidates: one or several strategies over a scope. Source: Bin packing, ordering."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from placement.candidates.scoring.refusal import ScoringRefused
from placement.candidates.scoring.shape import LARGE_SCALE
from placement.candidates.scoring.strategy import Strategy, parse_strategy

MOST_STRATEGIES = 16


class Scope(StrEnum):
    """Which providers make the host of a candidate.

    TREE: its whole tree, and sharing providers of other trees that it draws on. ALLOCATED: per class only
    those it takes the class from, which tells NUMA nodes or ports of one tree apart.
    """

    TREE = "tree"
    ALLOCATED = "allocated"


@dataclass(frozen=True, slots=True)
class Order:
    """Best first by the sum of the strategies; no strategies mean that nothing is ordered by them."""

    strategies: tuple[Strategy, ...]
    scope: Scope = Scope.TREE


def parse_order(given: Any, where: str = "order_by") -> Order:
    """The order of a JSON value: a strategy, a list of them, or {"strategies": [...], "scope": ...}.

    A single strategy may carry the scope, too. Raises ScoringRefused naming the field.
    """
    scope = Scope.TREE
    if isinstance(given, dict):
        given = dict(given)
        scope = parse_scope(given.pop("scope", Scope.TREE), f"{where}.scope")
        if given.keys() != {"strategies"}:
            return Order((parse_strategy(given, where),), scope)
        given, where = given["strategies"], f"{where}.strategies"
    if not isinstance(given, list) or not 0 < len(given) <= MOST_STRATEGIES:
        raise ScoringRefused("strategy_invalid", where, f"must list 1 to {MOST_STRATEGIES} strategies")
    return Order(tuple(parse_strategy(entry, f"{where}[{at}]") for at, entry in enumerate(given)), scope)


def parse_scope(given: Any, where: str = "scope") -> Scope:
    """The scope of this name. Raises ScoringRefused."""
    if not isinstance(given, str) or given not in set(Scope):
        raise ScoringRefused("scope_invalid", where, f"must be one of {', '.join(Scope)}, not {given!r}")
    return Scope(given)


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
