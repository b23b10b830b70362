"""Bodies of inventories."""

from typing import Any

from placement.api.schemas import patterns
from placement.api.schemas.base import VersionedSchema
from placement.api.schemas.fields import (
    Integer,
    Mapping,
    Number,
    Object,
    String,
)
from placement.domain.inventory import MAX_FLOAT, MAX_INT, Inventory


class _Record(VersionedSchema):
    """The six fields of a record; omitted ones take their defaults, also on replacement."""

    total = Integer(1, MAX_INT, required=True)
    reserved = Integer(0, MAX_INT)
    min_unit = Integer(1, MAX_INT)
    max_unit = Integer(1, MAX_INT)
    step_size = Integer(1, MAX_INT)
    allocation_ratio = Number(0, MAX_FLOAT)


class NewInventory(_Record):
    """POST .../inventories. The generation is accepted for old clients and ignored."""

    resource_class = String(pattern=patterns.NAME, required=True)
    resource_provider_generation = Integer()


class OneInventory(_Record):
    """PUT .../inventories/{class}."""

    resource_provider_generation = Integer(required=True)


class _RecordInMap(_Record):
    """A record among others; its own generation is ignored."""

    resource_provider_generation = Integer()


class AllInventories(VersionedSchema):
    """PUT .../inventories, and each provider of POST /reshaper."""

    resource_provider_generation = Integer(required=True)
    # Any key: one that is no name is answered like a class that does not exist.
    inventories = Mapping(patterns.ANYTHING, Object(_RecordInMap), shown_pattern=patterns.NAME, required=True)


def inventory_from(data: dict[str, Any]) -> Inventory:
    """The record described by validated data."""
    given = {name: value for name, value in data.items() if name in Inventory.__dataclass_fields__}
    return Inventory(**{**given, "allocation_ratio": float(data.get("allocation_ratio", 1))})
