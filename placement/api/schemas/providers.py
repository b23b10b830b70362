"""Bodies of resource providers, their inventories, traits and aggregates, and of resource classes."""

from __future__ import annotations

from typing import Any

from placement.api.microversions import Feature
from placement.api.schemas import patterns
from placement.api.schemas.base import VersionedSchema
from placement.api.schemas.fields import (
    Integer,
    Mapping,
    NullableUuid,
    Number,
    Object,
    Sequence,
    String,
    Uuid,
)
from placement.domain.inventory import MAX_FLOAT, MAX_INT, Inventory

_LONGEST_NAME = 200
_NESTED = {"since": Feature.NESTED_PROVIDERS}
AGGREGATES_LIST = Sequence(Uuid(), unique=True)


class NewProvider(VersionedSchema):
    """POST /resource_providers."""

    name = String(0, _LONGEST_NAME, required=True)
    uuid = Uuid()
    parent_provider_uuid = NullableUuid(metadata=_NESTED)


class ChangedProvider(VersionedSchema):
    """PUT /resource_providers/{uuid}."""

    name = String(0, _LONGEST_NAME, required=True)
    parent_provider_uuid = NullableUuid(metadata=_NESTED)


class ProviderTraits(VersionedSchema):
    """PUT /resource_providers/{uuid}/traits."""

    traits = Sequence(String(1, 255), required=True)
    resource_provider_generation = Integer(required=True)


class ProviderAggregates(VersionedSchema):
    """PUT /resource_providers/{uuid}/aggregates from 1.19 on; before, the bare list."""

    aggregates = Sequence(Uuid(), unique=True, required=True)
    resource_provider_generation = Integer(required=True)


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


class ResourceClass(VersionedSchema):
    """POST /resource_classes, and the renaming PUT before 1.7."""

    name = String(0, patterns.LONGEST_NAME, patterns.CUSTOM_NAME, required=True)
