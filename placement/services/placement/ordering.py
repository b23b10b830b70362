"""Orders as people write them: by name, as our JSON, or as kube-scheduler is configured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from placement.dialects.koordinator.settings.scheduler_scores import strategies_from
from placement.domain.errors import BadRequest
from placement.scoring.order import Order, parse_order
from placement.scoring.shape import FULL, SMALL_SCALE, Shape
from placement.scoring.strategy import Strategy, StrategyType

UNORDERED = "none"
# The setting of a cluster that holds its order.
SCORING = "scoring"


def _ramp(low: int, high: int) -> Order:
    shape = Shape(((0, low), (FULL, high)), SMALL_SCALE)
    return Order((Strategy(StrategyType.REQUESTED_TO_CAPACITY_RATIO, shape=shape),))


NAMED: Mapping[str, Order | None] = {
    UNORDERED: None,
    "pack": _ramp(0, SMALL_SCALE),
    "spread": _ramp(SMALL_SCALE, 0),
    **{
        str(kind): Order((Strategy(kind),))
        for kind in StrategyType
        if kind is not StrategyType.REQUESTED_TO_CAPACITY_RATIO
    },
}


def order_of_text(text: str, where: str) -> Order | None:
    """The order that a name or a JSON text stands for, None for none. Raises BadRequest naming the field."""
    text = text.strip()
    if text in NAMED or not text:
        return NAMED.get(text)
    if text[0] not in "[{":
        raise BadRequest(
            f"{where}: {text!r} is no known order; use JSON or one of {', '.join(NAMED)}",
            code="strategy_unknown",
        )
    try:
        given = orjson.loads(text)
    except ValueError as error:
        raise BadRequest(f"{where}: Malformed JSON: {error}") from None
    return order_of(given, where)


def order_of(given: Any, where: str) -> Order | None:
    """The order of a JSON value, which may be a name. Raises BadRequest naming the field."""
    if isinstance(given, str):
        return order_of_text(given, where)
    try:
        strategies = strategies_from(given)
    except BadRequest as error:
        raise BadRequest(f"{where}: {error}") from None
    return parse_order(given if strategies is None else strategies, where)
