"""What is to be different in a question what would be, from a parameter or a part of a body."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from placement.api.microversions import NEWEST
from placement.api.schemas.base import load
from placement.api.schemas.worlds import WorldBody
from placement.domain.errors import BadRequest
from placement.services.planning.world import More, Reoffered, WorldRequest


def world_of_text(text: str | None) -> WorldRequest:
    """What is to be different, by a parameter. Raises BadRequest."""
    try:
        given = {} if text is None else orjson.loads(text)
    except ValueError as error:
        raise BadRequest(f"world: is no JSON: {error}") from None
    return world_of(load(WorldBody, NEWEST, given, "world: "))


def world_of(given: Mapping[str, Any]) -> WorldRequest:
    """What is to be different, by a part of a body that keeps to its schema."""
    inventories = tuple(
        Reoffered(
            each["resource_class"],
            each.get("allocation_ratio"),
            each.get("reserved"),
            tuple(each["hosts"]) if "hosts" in each else None,
        )
        for each in given.get("inventories", ())
    )
    more = tuple(More(each["like"], each["count"]) for each in given.get("more", ()))
    return WorldRequest(tuple(given.get("without", ())), inventories, more)
