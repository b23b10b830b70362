"""Orders as people write them into queries and options."""

from __future__ import annotations

import orjson

from placement.dialects.koordinator.settings.scoring import order_of
from placement.domain.errors import BadRequest
from placement.scoring.order import Order


def order_of_text(text: str, where: str) -> Order | None:
    """The order that a name or a JSON text stands for, None for none. Raises BadRequest naming the field."""
    text = text.strip()
    if not text.startswith(("[", "{")):
        return order_of(text, where)
    try:
        given = orjson.loads(text)
    except ValueError as error:
        raise BadRequest(f"{where}: Malformed JSON: {error}") from None
    return order_of(given, where)
