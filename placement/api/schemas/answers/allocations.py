"""Answers about allocations and usages."""

from placement.api.microversions import Feature
from placement.api.schemas import patterns
from placement.api.schemas.answers.base import OPTIONAL, Answer, Error, amounts, since
from placement.api.schemas.answers.providers import InventoryRecord
from placement.api.schemas.fields import (
    Boolean,
    Integer,
    Mapping,
    NullableUuid,
    Object,
    Sequence,
    String,
    Uuid,
)

_USAGE = r"^[A-Z0-9_]+$|^consumer_count$"
_TYPE = r"^[A-Z0-9_]+$|^all$|^unknown$"


class Held(Answer):
    """What a consumer holds of one provider."""

    resources = amounts()
    generation = Integer()


class ConsumerAllocations(Answer):
    """What one consumer holds; of one that holds nothing there is nothing else."""

    allocations = Mapping(patterns.UUID, Object(Held))
    project_id = String(metadata=since(Feature.ALLOCATIONS_BY_PROVIDER, **OPTIONAL))
    user_id = String(metadata=since(Feature.ALLOCATIONS_BY_PROVIDER, **OPTIONAL))
    consumer_generation = Integer(metadata=since(Feature.CONSUMER_GENERATIONS, **OPTIONAL))
    consumer_type = String(metadata=since(Feature.CONSUMER_TYPES, **OPTIONAL))


class Usages(Answer):
    """What a project uses, by resource class."""

    usages = amounts()


class UsagesByType(Answer):
    """What a project uses by consumer type, and how many consumers there are."""

    usages = Mapping(_TYPE, Mapping(_USAGE, Integer()))


class Amounts(Answer):
    """Amounts of one provider."""

    resources = amounts()


class Claimed(Answer):
    """What a consumer was given."""

    consumer_uuid = Uuid()
    consumer_generation = Integer()
    project_id = String()
    user_id = String()
    consumer_type = String(nullable=True)
    allocations = Mapping(patterns.UUID, Object(Amounts))
    mappings = Mapping(patterns.SUFFIX, Sequence(Uuid()), metadata=OPTIONAL)
    # Of a flavor only.
    dedicated_cpus = String(nullable=True, metadata=OPTIONAL)


class MemberClaimed(Answer):
    """What became of a member of a claim for many: what it was given, or what is wrong."""

    status = Integer(200, 599)
    name = String(metadata=OPTIONAL)
    consumer_uuid = Uuid()
    consumer_generation = Integer(metadata=OPTIONAL)
    project_id = String(metadata=OPTIONAL)
    user_id = String(metadata=OPTIONAL)
    consumer_type = String(nullable=True, metadata=OPTIONAL)
    allocations = Mapping(patterns.UUID, Object(Amounts), metadata=OPTIONAL)
    mappings = Mapping(patterns.SUFFIX, Sequence(Uuid()), metadata=OPTIONAL)
    dedicated_cpus = String(metadata=OPTIONAL)
    error = Object(Error, metadata=OPTIONAL)


class RuleKept(Answer):
    """What became of a rule between members: by how many consumers it is broken where they are."""

    rule = String()
    kept = Boolean()
    excess = Integer()


class ManyClaimed(Answer):
    """What became of each member of a claim for many, in their order, and of the rules between them.

    `proven`: it is certain that no more of them could have something.
    """

    members = Sequence(Object(MemberClaimed))
    proven = Boolean(metadata=OPTIONAL)
    rules = Sequence(Object(RuleKept), metadata=OPTIONAL)


class ListedAmounts(Answer):
    """What a consumer of a list holds of one provider."""

    name = String()
    cluster = String(nullable=True)
    resources = amounts()


class ListedConsumer(Answer):
    """One consumer of a list."""

    consumer_uuid = Uuid()
    consumer_generation = Integer()
    consumer_type = String()
    project_id = String()
    user_id = String()
    dedicated_cpus = String(metadata=OPTIONAL)
    allocations = Mapping(patterns.UUID, Object(ListedAmounts))


class ConsumerPage(Answer):
    """Consumers and what they hold; `next` is the `after` of the following page."""

    consumers = Sequence(Object(ListedConsumer))
    next = NullableUuid()


class ListedProvider(Answer):
    """One provider of a list, with what was asked for by `include`."""

    uuid = Uuid()
    name = String()
    generation = Integer()
    parent_provider_uuid = NullableUuid()
    root_provider_uuid = Uuid()
    cluster = String(nullable=True)
    inventories = Mapping(patterns.NAME, Object(InventoryRecord), metadata=OPTIONAL)
    usages = amounts(metadata=OPTIONAL)
    traits = Sequence(String(), metadata=OPTIONAL)
    aggregates = Sequence(Uuid(), metadata=OPTIONAL)


class ProviderPage(Answer):
    """Providers in order of creation; `next` is the `after` of the following page."""

    resource_providers = Sequence(Object(ListedProvider))
    next = Integer(nullable=True)
