"""Answers about resource providers and what belongs to them."""

from placement.api.microversions import Feature
from placement.api.schemas import patterns
from placement.api.schemas.answers.base import Answer, Link, amounts, since, texts
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


class Provider(Answer):
    """One resource provider."""

    uuid = Uuid()
    name = String()
    generation = Integer()
    links = Sequence(Object(Link))
    parent_provider_uuid = NullableUuid(metadata=since(Feature.NESTED_PROVIDERS))
    root_provider_uuid = Uuid(metadata=since(Feature.NESTED_PROVIDERS))


class Providers(Answer):
    """Resource providers."""

    resource_providers = Sequence(Object(Provider))


class InventoryRecord(Answer):
    """What a provider offers of one class."""

    total = Integer()
    reserved = Integer()
    min_unit = Integer()
    max_unit = Integer()
    step_size = Integer()
    allocation_ratio = Number()


class Inventory(InventoryRecord):
    """The same with the generation of the provider."""

    resource_provider_generation = Integer()


class Inventories(Answer):
    """All that a provider offers."""

    resource_provider_generation = Integer()
    inventories = Mapping(patterns.NAME, Object(InventoryRecord))


class ProviderUsages(Answer):
    """What is used of a provider."""

    resource_provider_generation = Integer()
    usages = amounts()


class ProviderTraitsShown(Answer):
    """The traits of a provider."""

    traits = texts()
    resource_provider_generation = Integer()


class ProviderAggregatesShown(Answer):
    """The aggregates of a provider."""

    aggregates = Sequence(Uuid())
    resource_provider_generation = Integer(metadata=since(Feature.AGGREGATES_GENERATION))


class ConsumerOnProvider(Answer):
    """What one consumer holds of a provider."""

    resources = amounts()
    consumer_generation = Integer(metadata=since(Feature.CONSUMER_GENERATIONS))


class ProviderAllocations(Answer):
    """What consumers hold of a provider."""

    allocations = Mapping(patterns.UUID, Object(ConsumerOnProvider))
    resource_provider_generation = Integer()
