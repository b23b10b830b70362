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
from placement.http import schemas as fields
from placement.providers.fleet import OpenState

_LONGEST_NAME = 200
_NESTED = {"since": Feature.NESTED_PROVIDERS}
AGGREGATES_LIST = fields.Sequence(fields.Uuid(), unique=True)


class LinkSchema(fields.AnswerSchema):
    """A link to something related."""

    rel = fields.String()
    href = fields.String()


class CapacityUsedSchema(fields.AnswerSchema):
    """The capacity of a class, and the part of it in use."""

    capacity = fields.Integer()
    used = fields.Integer()


class HostUseSchema(fields.AnswerSchema):
    """A host with the capacity and use of its tree; `cluster` is null for a host of no cluster.

    A host that is `closed` is disabled by nova, or is a cordoned node: it takes no new consumers.
    """

    uuid = fields.Uuid()
    name = fields.String()
    cluster = fields.String(nullable=True)
    state = fields.Choice(list(OpenState))
    resources = fields.Mapping(fields.NAME, fields.Object(CapacityUsedSchema))


class HostsSchema(fields.AnswerSchema):
    """Hosts in the order in which they were made; `next` is the `after` of the following page."""

    hosts = fields.Sequence(fields.Object(HostUseSchema), source=itemgetter(0))
    next = fields.Integer(nullable=True, source=itemgetter(1))


class AggregateNameSchema(fields.VersionedSchema):
    """PUT /ext/v1/aggregates/{uuid}; null takes the name away."""

    name = fields.Name(nullable=True, required=True)


class AggregateSchema(fields.AnswerSchema):
    """An aggregate; `cluster` has its hosts in it, and gives it its name."""

    uuid = fields.Uuid()
    name = fields.String(nullable=True)
    cluster = fields.String(nullable=True)


class NamedAggregateSchema(AggregateSchema):
    """An aggregate with its new name, and some other aggregates that have this name, too."""

    also_named = fields.Sequence(fields.Uuid())


class ListedAggregateSchema(AggregateSchema):
    """An aggregate, and how many providers are in it, of the cluster that was asked for if one was."""

    providers = fields.Integer()


class AggregatesSchema(fields.AnswerSchema):
    """Aggregates in the order in which they were made; `next` is the `after` of the following page."""

    aggregates = fields.Sequence(fields.Object(ListedAggregateSchema), source=itemgetter(0))
    next = fields.Integer(nullable=True, source=itemgetter(1))


class NewProviderSchema(fields.VersionedSchema):
    """POST /resource_providers."""

    name = fields.String(0, _LONGEST_NAME, required=True)
    uuid = fields.Uuid()
    parent_provider_uuid = fields.NullableUuid(metadata=_NESTED)


class ChangedProviderSchema(fields.VersionedSchema):
    """PUT /resource_providers/{uuid}."""

    name = fields.String(0, _LONGEST_NAME, required=True)
    parent_provider_uuid = fields.NullableUuid(metadata=_NESTED)


class ProviderTraitsSchema(fields.VersionedSchema):
    """PUT /resource_providers/{uuid}/traits."""

    traits = fields.Sequence(fields.String(1, 255), required=True)
    resource_provider_generation = fields.Integer(required=True)


class ProviderAggregatesSchema(fields.VersionedSchema):
    """PUT /resource_providers/{uuid}/aggregates from 1.19 on; before, the bare list."""

    aggregates = fields.Sequence(fields.Uuid(), unique=True, required=True)
    resource_provider_generation = fields.Integer(required=True)


class _RecordSchema(fields.VersionedSchema):
    """The six fields of a record; omitted ones take their defaults, also on replacement."""

    total = fields.Integer(1, MAX_INT, required=True)
    reserved = fields.Integer(0, MAX_INT)
    min_unit = fields.Integer(1, MAX_INT)
    max_unit = fields.Integer(1, MAX_INT)
    step_size = fields.Integer(1, MAX_INT)
    allocation_ratio = fields.Number(0, MAX_FLOAT)


class NewInventorySchema(_RecordSchema):
    """POST .../inventories. The generation is accepted for old clients and ignored."""

    resource_class = fields.String(pattern=fields.NAME, required=True)
    resource_provider_generation = fields.Integer()


class OneInventorySchema(_RecordSchema):
    """PUT .../inventories/{class}."""

    resource_provider_generation = fields.Integer(required=True)


class _RecordInMapSchema(_RecordSchema):
    """A record among others; its own generation is ignored."""

    resource_provider_generation = fields.Integer()


class AllInventoriesSchema(fields.VersionedSchema):
    """PUT .../inventories, and each provider of POST /reshaper."""

    resource_provider_generation = fields.Integer(required=True)
    # Any key: one that is no name is answered like a class that does not exist.
    inventories = fields.Mapping(
        fields.ANYTHING, fields.Object(_RecordInMapSchema), shown_pattern=fields.NAME, required=True
    )


def inventory_from(data: dict[str, Any]) -> InventoriesInventory:
    """Return the record described by validated data."""
    given = {name: value for name, value in data.items() if name in InventoriesInventory.__dataclass_fields__}
    return InventoriesInventory(**{**given, "allocation_ratio": float(data.get("allocation_ratio", 1))})


class ResourceClassSchema(fields.VersionedSchema):
    """POST /resource_classes, and the renaming PUT before 1.7."""

    name = fields.String(0, fields.LONGEST_NAME, fields.CUSTOM_NAME, required=True)


# Answers about resource providers and what belongs to them.


class ProviderSchema(fields.AnswerSchema):
    """One resource provider."""

    uuid = fields.Uuid()
    name = fields.String()
    generation = fields.Integer()
    links = fields.Sequence(
        fields.Object(LinkSchema),
        source=fields.InContext(
            lambda provider, links: [
                {"rel": rel, "href": f"{before}{provider.uuid}{after}"} for rel, before, after in links
            ]
        ),
    )
    parent_provider_uuid = fields.NullableUuid(
        metadata=fields.since(Feature.NESTED_PROVIDERS), source="parent_uuid"
    )
    root_provider_uuid = fields.Uuid(metadata=fields.since(Feature.NESTED_PROVIDERS), source="root_uuid")


class ProvidersSchema(fields.AnswerSchema):
    """Resource providers."""

    resource_providers = fields.Sequence(fields.Object(ProviderSchema))


class InventoryRecordSchema(fields.AnswerSchema):
    """An inventory record: what a provider offers of one class."""

    total = fields.Integer()
    reserved = fields.Integer()
    min_unit = fields.Integer()
    max_unit = fields.Integer()
    step_size = fields.Integer()
    allocation_ratio = fields.Number()


class InventorySchema(InventoryRecordSchema):
    """An inventory record with the generation of the provider."""

    resource_provider_generation = fields.Integer(source=fields.CONTEXT)


class InventoriesSchema(fields.AnswerSchema):
    """All that a provider offers."""

    resource_provider_generation = fields.Integer(source=itemgetter(0))
    inventories = fields.Mapping(fields.NAME, fields.Object(InventoryRecordSchema), source=itemgetter(1))


class ProviderUsagesSchema(fields.AnswerSchema):
    """The use of a provider by resource class."""

    resource_provider_generation = fields.Integer(source="generation")
    usages = fields.amounts(source=lambda offer: {record.class_name: record.used for record in offer.records})


class ProviderTraitsShownSchema(fields.AnswerSchema):
    """The traits of a provider."""

    traits = fields.texts(source="members")
    resource_provider_generation = fields.Integer(source="generation")


class ProviderAggregatesShownSchema(fields.AnswerSchema):
    """The aggregates of a provider."""

    aggregates = fields.Sequence(fields.Uuid(), source="members")
    resource_provider_generation = fields.Integer(
        metadata=fields.since(Feature.AGGREGATES_GENERATION), source="generation"
    )


class ConsumerOnProviderSchema(fields.AnswerSchema):
    """The amounts that one consumer holds of a provider."""

    resources = fields.amounts(source=lambda rows: {row.class_name: row.amount for row in rows})
    consumer_generation = fields.Integer(
        metadata=fields.since(Feature.CONSUMER_GENERATIONS), source=lambda rows: rows[0].generation
    )


class ProviderAllocationsSchema(fields.AnswerSchema):
    """The allocations on a provider, by consumer."""

    allocations = fields.Mapping(
        fields.UUID,
        fields.Object(ConsumerOnProviderSchema),
        source=lambda found: {uuid: list(rows) for uuid, rows in groupby(found[1], attrgetter("uuid"))},
    )
    resource_provider_generation = fields.Integer(source=itemgetter(0))


# Answers about resource classes, traits and versions.


class ResourceClassShownSchema(fields.AnswerSchema):
    """One resource class."""

    name = fields.String(pattern=fields.NAME, source=str)
    links = fields.Sequence(
        fields.Object(LinkSchema),
        source=fields.InContext(
            lambda name, root: [{"rel": "self", "href": f"{root}/resource_classes/{name}"}]
        ),
    )


def _names(entries: Any) -> list[str]:
    return list(map(attrgetter("name"), entries))


class ResourceClassesSchema(fields.AnswerSchema):
    """All resource classes."""

    resource_classes = fields.Sequence(fields.Object(ResourceClassShownSchema), source=_names)


class TraitsSchema(fields.AnswerSchema):
    """Names of traits."""

    traits = fields.Sequence(fields.String(pattern=fields.NAME), source=_names)


class CheckSchema(fields.AnswerSchema):
    """A check of the process that answers, as /readyz has it."""

    name = fields.String()
    ok = fields.Boolean()
    detail = fields.String()


def _checks(caller: Any, health: Any) -> list[dict[str, Any]]:
    shown = fields.dumper(CheckSchema)
    # The texts count what the whole service has.
    return [shown(check) for check in health.checks(counted=caller.clusters is None)]


class StatusSchema(fields.AnswerSchema):
    """The release that answers, its kind of database, the caller, and the checks of health.

    `clusters` is null for a caller that is bound to no clusters.
    """

    release = fields.String(source=lambda _: version(DISTRIBUTION))
    database = fields.String(source=fields.InContext(lambda _, health: health.database_kind))
    user_id = fields.String(nullable=True)
    project_id = fields.String(nullable=True)
    roles = fields.texts(source=lambda caller: sorted(caller.roles))
    clusters = fields.texts(
        nullable=True, source=lambda caller: None if caller.clusters is None else sorted(caller.clusters)
    )
    checks = fields.Sequence(fields.Object(CheckSchema), source=fields.InContext(_checks))


class VersionSchema(fields.AnswerSchema):
    """The microversions that the service speaks."""

    id = fields.String()
    max_version = fields.String()
    min_version = fields.String()
    status = fields.String()
    links = fields.Sequence(fields.Object(LinkSchema))


class VersionsSchema(fields.AnswerSchema):
    """The version document."""

    versions = fields.Sequence(fields.Object(VersionSchema))
