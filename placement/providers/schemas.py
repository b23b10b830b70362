"""Bodies of resource providers, their inventories, traits and aggregates, and of resource classes."""

from __future__ import annotations

from importlib.metadata import version
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any

from placement import DISTRIBUTION
from placement.common.microversions import Feature
from placement.engine.domain.inventories import MAX_FLOAT, MAX_INT
from placement.engine.domain.inventories import Inventory as InventoriesInventory
from placement.http import context
from placement.http import schemas as fields
from placement.http.context import path
from placement.http.schemas import (
    CONTEXT,
    AnswerSchema,
    Boolean,
    InContext,
    Integer,
    Mapping,
    NullableUuid,
    Number,
    Object,
    Sequence,
    String,
    Uuid,
    VersionedSchema,
    amounts,
    dumper,
    since,
    texts,
)

_LONGEST_NAME = 200
_NESTED = {"since": Feature.NESTED_PROVIDERS}
AGGREGATES_LIST = Sequence(Uuid(), unique=True)


class LinkSchema(AnswerSchema):
    """A link to something related."""

    rel = String()
    href = String()


class CapacityUsedSchema(AnswerSchema):
    """The capacity of a class, and the part of it in use."""

    capacity = Integer()
    used = Integer()


class HostUseSchema(AnswerSchema):
    """A host with the capacity and use of its tree; `cluster` is null for a host of no cluster."""

    uuid = Uuid()
    name = String()
    cluster = String(nullable=True)
    resources = Mapping(fields.NAME, Object(CapacityUsedSchema))


class HostsSchema(AnswerSchema):
    """Hosts in the order in which they were made; `next` is the `after` of the following page."""

    hosts = Sequence(Object(HostUseSchema), source=itemgetter(0))
    next = Integer(nullable=True, source=itemgetter(1))


class AggregateNameSchema(VersionedSchema):
    """PUT /ext/v1/aggregates/{uuid}; null takes the name away."""

    name = fields.Name(nullable=True, required=True)


class AggregateSchema(AnswerSchema):
    """An aggregate; `cluster` has its hosts in it, and gives it its name."""

    uuid = Uuid()
    name = String(nullable=True)
    cluster = String(nullable=True)


class ListedAggregateSchema(AggregateSchema):
    """An aggregate, and how many providers are in it, of the cluster that was asked for if one was."""

    providers = Integer()


class AggregatesSchema(AnswerSchema):
    """Aggregates in the order in which they were made; `next` is the `after` of the following page."""

    aggregates = Sequence(Object(ListedAggregateSchema), source=itemgetter(0))
    next = Integer(nullable=True, source=itemgetter(1))


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


_LINKS = (
    ("inventories", None),
    ("usages", None),
    ("aggregates", Feature.AGGREGATES),
    ("traits", Feature.TRAITS),
    ("allocations", Feature.ALLOCATIONS_LINK),
)


def provider_links() -> list[tuple[str, str, str]]:
    """Return the links of a provider in the request's version: rel, and what is before and after its uuid.

    They are the context of answers about providers, and outlive the request.
    """
    root = path("/resource_providers/")
    rels = [rel for rel, since in _LINKS if since is None or context.offers(since)]
    return [("self", root, ""), *((rel, root, f"/{rel}") for rel in rels)]


class ProviderSchema(AnswerSchema):
    """One resource provider."""

    uuid = Uuid()
    name = String()
    generation = Integer()
    links = Sequence(
        Object(LinkSchema),
        source=InContext(
            lambda provider, links: [
                {"rel": rel, "href": f"{before}{provider.uuid}{after}"} for rel, before, after in links
            ]
        ),
    )
    parent_provider_uuid = NullableUuid(metadata=since(Feature.NESTED_PROVIDERS), source="parent_uuid")
    root_provider_uuid = Uuid(metadata=since(Feature.NESTED_PROVIDERS), source="root_uuid")


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

    resource_provider_generation = Integer(source=CONTEXT)


class InventoriesSchema(AnswerSchema):
    """All that a provider offers."""

    resource_provider_generation = Integer(source=itemgetter(0))
    inventories = Mapping(fields.NAME, Object(InventoryRecordSchema), source=itemgetter(1))


class ProviderUsagesSchema(AnswerSchema):
    """The use of a provider by resource class."""

    resource_provider_generation = Integer(source="generation")
    usages = amounts(source=lambda offer: {record.class_name: record.used for record in offer.records})


class ProviderTraitsShownSchema(AnswerSchema):
    """The traits of a provider."""

    traits = texts(source="members")
    resource_provider_generation = Integer(source="generation")


class ProviderAggregatesShownSchema(AnswerSchema):
    """The aggregates of a provider."""

    aggregates = Sequence(Uuid(), source="members")
    resource_provider_generation = Integer(metadata=since(Feature.AGGREGATES_GENERATION), source="generation")


class ConsumerOnProviderSchema(AnswerSchema):
    """The amounts that one consumer holds of a provider."""

    resources = amounts(source=lambda rows: {row.class_name: row.amount for row in rows})
    consumer_generation = Integer(
        metadata=since(Feature.CONSUMER_GENERATIONS), source=lambda rows: rows[0].generation
    )


class ProviderAllocationsSchema(AnswerSchema):
    """The allocations on a provider, by consumer."""

    allocations = Mapping(
        fields.UUID,
        Object(ConsumerOnProviderSchema),
        source=lambda found: {uuid: list(rows) for uuid, rows in groupby(found[1], attrgetter("uuid"))},
    )
    resource_provider_generation = Integer(source=itemgetter(0))


# Answers about resource classes, traits and versions.


def _class_link(name: str, root: str) -> list[dict[str, str]]:
    return [{"rel": "self", "href": f"{root}/resource_classes/{name}"}]


class ResourceClassShownSchema(AnswerSchema):
    """One resource class."""

    name = String(pattern=fields.NAME, source=str)
    links = Sequence(Object(LinkSchema), source=InContext(_class_link))


def _names(entries: Any) -> list[str]:
    return list(map(attrgetter("name"), entries))


class ResourceClassesSchema(AnswerSchema):
    """All resource classes."""

    resource_classes = Sequence(Object(ResourceClassShownSchema), source=_names)


class TraitsSchema(AnswerSchema):
    """Names of traits."""

    traits = Sequence(String(pattern=fields.NAME), source=_names)


class CheckSchema(AnswerSchema):
    """A check of the process that answers, as /readyz has it."""

    name = String()
    ok = Boolean()
    detail = String()


def _bound_to(caller: Any) -> list[str] | None:
    return None if caller.clusters is None else sorted(caller.clusters)


def _checks(caller: Any, health: Any) -> list[dict[str, Any]]:
    shown = dumper(CheckSchema)
    # The texts count what the whole service has.
    return [shown(check) for check in health.checks(counted=caller.clusters is None)]


class StatusSchema(AnswerSchema):
    """The release that answers, its kind of database, the caller, and the checks of health.

    `clusters` is null for a caller that is bound to no clusters.
    """

    release = String(source=lambda _: version(DISTRIBUTION))
    database = String(source=InContext(lambda _, health: health.database_kind))
    user_id = String(nullable=True)
    project_id = String(nullable=True)
    roles = texts(source=lambda caller: sorted(caller.roles))
    clusters = texts(nullable=True, source=_bound_to)
    checks = Sequence(Object(CheckSchema), source=InContext(_checks))


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
