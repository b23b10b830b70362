"""Bodies of resource providers, their inventories, traits and aggregates, and of resource classes."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any, Protocol

from placement.common.microversions import Feature
from placement.engine.domain.inventories import MAX_FLOAT, MAX_INT
from placement.engine.domain.inventories import Inventory as InventoriesInventory
from placement.http import context, fields
from placement.http.fields import Integer, Mapping, NullableUuid, Number, Object, Sequence, String, Uuid
from placement.http.responses import path
from placement.http.schemas import AnswerSchema, LinkSchema, VersionedSchema, amounts, since, texts

_LONGEST_NAME = 200
_NESTED = {"since": Feature.NESTED_PROVIDERS}
AGGREGATES_LIST = Sequence(Uuid(), unique=True)


class NewProviderSchema(VersionedSchema):
    """POST /resource_providers."""

    name = String(0, _LONGEST_NAME, required=True)
    uuid = Uuid()
    parent_provider_uuid = NullableUuid(metadata=_NESTED)


class ChangedProviderSchema(VersionedSchema):
    """PUT /resource_providers/{uuid}."""

    name = String(0, _LONGEST_NAME, required=True)
    parent_provider_uuid = NullableUuid(metadata=_NESTED)


class ProviderTraitsSchema(VersionedSchema):
    """PUT /resource_providers/{uuid}/traits."""

    traits = Sequence(String(1, 255), required=True)
    resource_provider_generation = Integer(required=True)


class ProviderAggregatesSchema(VersionedSchema):
    """PUT /resource_providers/{uuid}/aggregates from 1.19 on; before, the bare list."""

    aggregates = Sequence(Uuid(), unique=True, required=True)
    resource_provider_generation = Integer(required=True)


class _RecordSchema(VersionedSchema):
    """The six fields of a record; omitted ones take their defaults, also on replacement."""

    total = Integer(1, MAX_INT, required=True)
    reserved = Integer(0, MAX_INT)
    min_unit = Integer(1, MAX_INT)
    max_unit = Integer(1, MAX_INT)
    step_size = Integer(1, MAX_INT)
    allocation_ratio = Number(0, MAX_FLOAT)


class NewInventorySchema(_RecordSchema):
    """POST .../inventories. The generation is accepted for old clients and ignored."""

    resource_class = String(pattern=fields.NAME, required=True)
    resource_provider_generation = Integer()


class OneInventorySchema(_RecordSchema):
    """PUT .../inventories/{class}."""

    resource_provider_generation = Integer(required=True)


class _RecordInMapSchema(_RecordSchema):
    """A record among others; its own generation is ignored."""

    resource_provider_generation = Integer()


class AllInventoriesSchema(VersionedSchema):
    """PUT .../inventories, and each provider of POST /reshaper."""

    resource_provider_generation = Integer(required=True)
    # Any key: one that is no name is answered like a class that does not exist.
    inventories = Mapping(
        fields.ANYTHING, Object(_RecordInMapSchema), shown_pattern=fields.NAME, required=True
    )


def inventory_from(data: dict[str, Any]) -> InventoriesInventory:
    """Return the record described by validated data."""
    given = {name: value for name, value in data.items() if name in InventoriesInventory.__dataclass_fields__}
    return InventoriesInventory(**{**given, "allocation_ratio": float(data.get("allocation_ratio", 1))})


class ResourceClassSchema(VersionedSchema):
    """POST /resource_classes, and the renaming PUT before 1.7."""

    name = String(0, fields.LONGEST_NAME, fields.CUSTOM_NAME, required=True)


# Answers about resource providers and what belongs to them.


class ProviderSchema(AnswerSchema):
    """One resource provider."""

    uuid = Uuid()
    name = String()
    generation = Integer()
    links = Sequence(Object(LinkSchema))
    parent_provider_uuid = NullableUuid(metadata=since(Feature.NESTED_PROVIDERS))
    root_provider_uuid = Uuid(metadata=since(Feature.NESTED_PROVIDERS))


class ProvidersSchema(AnswerSchema):
    """Resource providers."""

    resource_providers = Sequence(Object(ProviderSchema))


class InventoryRecordSchema(AnswerSchema):
    """An inventory record: what a provider offers of one class."""

    total = Integer()
    reserved = Integer()
    min_unit = Integer()
    max_unit = Integer()
    step_size = Integer()
    allocation_ratio = Number()


class InventorySchema(InventoryRecordSchema):
    """An inventory record with the generation of the provider."""

    resource_provider_generation = Integer()


class InventoriesSchema(AnswerSchema):
    """All that a provider offers."""

    resource_provider_generation = Integer()
    inventories = Mapping(fields.NAME, Object(InventoryRecordSchema))


class ProviderUsagesSchema(AnswerSchema):
    """The use of a provider by resource class."""

    resource_provider_generation = Integer()
    usages = amounts()


class ProviderTraitsShownSchema(AnswerSchema):
    """The traits of a provider."""

    traits = texts()
    resource_provider_generation = Integer()


class ProviderAggregatesShownSchema(AnswerSchema):
    """The aggregates of a provider."""

    aggregates = Sequence(Uuid())
    resource_provider_generation = Integer(metadata=since(Feature.AGGREGATES_GENERATION))


class ConsumerOnProviderSchema(AnswerSchema):
    """The amounts that one consumer holds of a provider."""

    resources = amounts()
    consumer_generation = Integer(metadata=since(Feature.CONSUMER_GENERATIONS))


class ProviderAllocationsSchema(AnswerSchema):
    """The allocations on a provider, by consumer."""

    allocations = Mapping(fields.UUID, Object(ConsumerOnProviderSchema))
    resource_provider_generation = Integer()


# Answers about resource classes, traits and versions.


class ResourceClassShownSchema(AnswerSchema):
    """One resource class."""

    name = String(pattern=fields.NAME)
    links = Sequence(Object(LinkSchema))


class ResourceClassesSchema(AnswerSchema):
    """All resource classes."""

    resource_classes = Sequence(Object(ResourceClassShownSchema))


class TraitsSchema(AnswerSchema):
    """Names of traits."""

    traits = Sequence(String(pattern=fields.NAME))


class VersionSchema(AnswerSchema):
    """The microversions that the service speaks."""

    id = String()
    max_version = String()
    min_version = String()
    status = String()
    links = Sequence(Object(LinkSchema))


class VersionsSchema(AnswerSchema):
    """The version document."""

    versions = Sequence(Object(VersionSchema))


# Bodies of resource providers and what belongs to them.


_LINKS = (
    ("inventories", None),
    ("usages", None),
    ("aggregates", Feature.AGGREGATES),
    ("traits", Feature.TRAITS),
    ("allocations", Feature.ALLOCATIONS_LINK),
)


class ProviderFields(Protocol):
    """A provider as rendering reads it."""

    @property
    def uuid(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def generation(self) -> int: ...
    @property
    def parent_uuid(self) -> str | None: ...
    @property
    def root_uuid(self) -> str: ...
    @property
    def changed_at(self) -> datetime.datetime: ...


def provider_body(provider: ProviderFields) -> dict[str, Any]:
    """Return one provider, with the links of the request's version."""
    return provider_renderer()(provider)


def provider_renderer() -> Callable[[ProviderFields], dict[str, Any]]:
    """Return a renderer with the links of the request's version, which outlives the request."""
    root = path("/resource_providers")
    rels = [rel for rel, since in _LINKS if since is None or context.offers(since)]
    nested = context.offers(Feature.NESTED_PROVIDERS)

    def render(provider: ProviderFields) -> dict[str, Any]:
        own = f"{root}/{provider.uuid}"
        body: dict[str, Any] = {
            "uuid": provider.uuid,
            "name": provider.name,
            "generation": provider.generation,
            "links": [
                {"rel": "self", "href": own},
                *({"rel": rel, "href": f"{own}/{rel}"} for rel in rels),
            ],
        }
        if nested:
            body["parent_provider_uuid"] = provider.parent_uuid
            body["root_provider_uuid"] = provider.root_uuid
        return body

    return render


def inventory_body(inventory: InventoriesInventory) -> dict[str, Any]:
    """Return the six fields of one record."""
    return {
        "total": inventory.total,
        "reserved": inventory.reserved,
        "min_unit": inventory.min_unit,
        "max_unit": inventory.max_unit,
        "step_size": inventory.step_size,
        "allocation_ratio": inventory.allocation_ratio,
    }
