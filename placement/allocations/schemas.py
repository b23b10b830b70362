"""Bodies of allocations and of the reshaper, and the query of usages."""

from __future__ import annotations

import re
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any

from marshmallow import missing

from placement.allocations.statements.lists import ListedAllocation
from placement.common.microversions import Feature
from placement.engine.domain.inventories import UNKNOWN_CONSUMER_TYPE
from placement.http import schemas as fields
from placement.http.schemas import (
    OPTIONAL,
    AnswerSchema,
    Boolean,
    ErrorSchema,
    HttpField,
    InContext,
    Integer,
    Mapping,
    NullableUuid,
    Object,
    Sequence,
    String,
    Uuid,
    VersionedSchema,
    amounts,
    dumper,
    refuse,
    since,
)
from placement.providers.schemas import AllInventoriesSchema, InventoryRecordSchema

_RESOURCES = Mapping(fields.NAME, Integer(1), least=1, required=True)
# Type names, and what stands for all types or for none.
_CONSUMER_TYPE = "^[A-Z0-9_]+$|^all|^unknown$"


class Mappings(Mapping):
    """The providers that each group got; checked for form, then ignored.

    Keys without any suffix character, such as that of the unsuffixed group, are taken unchecked.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__("[a-zA-Z0-9_-]{1,64}", Sequence(Uuid(), least=1), least=1, **options)

    def checked(self, value: Any) -> Any:
        if not value:
            refuse("{} should be non-empty", "minProperties")
        step = "patternProperties", self.shown_pattern
        return {
            key: self.item(self.items, providers, key, *step)
            for key, providers in value.items()
            if re.search(self.key_pattern, key)
        }


def _label(**options: Any) -> HttpField:
    return String(1, 255, required=True, **options)


class _ProviderReferenceSchema(VersionedSchema):
    uuid = Uuid(required=True)


class _ListedAllocationSchema(VersionedSchema):
    resource_provider = Object(_ProviderReferenceSchema, required=True)
    resources = _RESOURCES


class AllocationsListSchema(VersionedSchema):
    """PUT /allocations/{consumer} before 1.12."""

    allocations = Sequence(Object(_ListedAllocationSchema), least=1, required=True)
    project_id = _label(metadata={"since": Feature.CONSUMER_PROJECT})
    user_id = _label(metadata={"since": Feature.CONSUMER_PROJECT})


class _ProviderAllocationSchema(VersionedSchema):
    # A GET shows it, so it may be sent back; it guards nothing.
    generation = Integer()
    resources = _RESOURCES


class AllocationsSchema(VersionedSchema):
    """PUT /allocations/{consumer} from 1.28 on, and each entry of POST /allocations: empty releases."""

    allocations = Mapping(fields.UUID, Object(_ProviderAllocationSchema), required=True)
    project_id = _label()
    user_id = _label()
    consumer_generation = Integer(
        required=True, nullable=True, metadata={"since": Feature.CONSUMER_GENERATIONS}
    )
    mappings = Mappings(metadata={"since": Feature.MAPPINGS})
    consumer_type = String(1, 255, fields.NAME, required=True, metadata={"since": Feature.CONSUMER_TYPES})


class FilledAllocationsSchema(AllocationsSchema):
    """PUT /allocations/{consumer} from 1.12 to before 1.28: something must be claimed."""

    allocations = Mapping(fields.UUID, Object(_ProviderAllocationSchema), least=1, required=True)


class UsagesQuerySchema(VersionedSchema):
    """GET /usages."""

    project_id = String(1, 255, required=True)
    user_id = String(1, 255)
    consumer_type = String(1, 255, _CONSUMER_TYPE, metadata={"since": Feature.CONSUMER_TYPES})


class ReshapeSchema(VersionedSchema):
    """POST /reshaper: whole inventories by provider, whole allocations by consumer."""

    inventories = Mapping(fields.UUID, Object(AllInventoriesSchema), least=1, required=True)
    allocations = Mapping(fields.UUID, Object(AllocationsSchema), required=True)


# Answers about allocations and usages.
_USAGE = r"^[A-Z0-9_]+$|^consumer_count$"
_TYPE = r"^[A-Z0-9_]+$|^all$|^unknown$"


class HeldSchema(AnswerSchema):
    """The amounts that a consumer holds of one provider."""

    resources = amounts(source=lambda rows: {row.class_name: row.amount for row in rows})
    generation = Integer(source=lambda rows: rows[0].generation)


class ConsumerAllocationsSchema(AnswerSchema):
    """The allocations of one consumer; if it holds nothing, the other members are missing."""

    allocations = Mapping(
        fields.UUID,
        Object(HeldSchema),
        source=lambda found: {uuid: list(rows) for uuid, rows in groupby(found.held, attrgetter("uuid"))},
    )
    project_id = String(
        metadata=since(Feature.ALLOCATIONS_BY_PROVIDER, **OPTIONAL), source="consumer.project_id"
    )
    user_id = String(metadata=since(Feature.ALLOCATIONS_BY_PROVIDER, **OPTIONAL), source="consumer.user_id")
    consumer_generation = Integer(
        metadata=since(Feature.CONSUMER_GENERATIONS, **OPTIONAL), source="consumer.generation"
    )
    consumer_type = String(
        metadata=since(Feature.CONSUMER_TYPES, **OPTIONAL),
        source=lambda found: found.consumer.consumer_type or UNKNOWN_CONSUMER_TYPE,
    )


class UsagesSchema(AnswerSchema):
    """The use of a project by resource class."""

    usages = amounts()


class UsagesByTypeSchema(AnswerSchema):
    """The use of a project by consumer type, and the number of consumers."""

    usages = Mapping(_TYPE, Mapping(_USAGE, Integer()))


class AmountsSchema(AnswerSchema):
    """Amounts of one provider."""

    resources = amounts()


class ClaimedSchema(AnswerSchema):
    """A consumer with what it was given."""

    consumer_uuid = Uuid(source="applicant.consumer_uuid")
    consumer_generation = Integer(source="generation")
    project_id = String(source="applicant.project_id")
    user_id = String(source="applicant.user_id")
    consumer_type = String(nullable=True, source="applicant.consumer_type")
    allocations = Mapping(
        fields.UUID,
        Object(AmountsSchema),
        source=lambda fitted: {uuid: {"resources": held} for uuid, held in fitted.resources.items()},
    )
    mappings = Mapping(fields.SUFFIX, Sequence(Uuid()), metadata=OPTIONAL)
    # Of a flavor only, and then the context.
    dedicated_cpus = String(
        nullable=True, metadata=OPTIONAL, source=InContext(lambda _, cpus: missing if cpus is None else cpus)
    )


class MemberClaimedSchema(AnswerSchema):
    """The outcome of a member of a claim for many: what it was given, or what is wrong."""

    status = Integer(200, 599)
    name = String(metadata=OPTIONAL)
    consumer_uuid = Uuid()
    consumer_generation = Integer(metadata=OPTIONAL)
    project_id = String(metadata=OPTIONAL)
    user_id = String(metadata=OPTIONAL)
    consumer_type = String(nullable=True, metadata=OPTIONAL)
    allocations = Mapping(fields.UUID, Object(AmountsSchema), metadata=OPTIONAL)
    mappings = Mapping(fields.SUFFIX, Sequence(Uuid()), metadata=OPTIONAL)
    dedicated_cpus = String(metadata=OPTIONAL)
    error = Object(ErrorSchema, metadata=OPTIONAL)


class RuleKeptSchema(AnswerSchema):
    """The state of a rule between members: by how many consumers it is broken at their places."""

    rule = String(source="rule.text")
    kept = Boolean(source=lambda each: not each.excess)
    excess = Integer()


class ManyClaimedSchema(AnswerSchema):
    """The outcomes of the members of a claim for many, in their order, and the state of the rules.

    `proven`: it is certain that no more of them could get something.
    """

    # The context are the members, and whether there are rules.

    members = Sequence(Object(MemberClaimedSchema), source=InContext(lambda _, given: given[0]))
    proven = Boolean(
        metadata=OPTIONAL, source=InContext(lambda settled, given: settled.proven if given[1] else None)
    )
    rules = Sequence(
        Object(RuleKeptSchema),
        metadata=OPTIONAL,
        source=InContext(
            lambda settled, given: list(map(dumper(RuleKeptSchema), settled.rules)) if given[1] else None
        ),
    )


class ListedAmountsSchema(AnswerSchema):
    """The amounts that a consumer of a list holds of one provider."""

    name = String(source=lambda held: held[0].provider_name)
    cluster = String(nullable=True, source=lambda held: held[0].cluster)
    resources = amounts(source=lambda held: {row.class_name: row.amount for row in held})


def _by_provider(rows: list[ListedAllocation]) -> dict[str, list[ListedAllocation]]:
    return {uuid: list(held) for uuid, held in groupby(rows, attrgetter("provider_uuid"))}


class ListedConsumerSchema(AnswerSchema):
    """One consumer of a list."""

    consumer_uuid = Uuid(source=lambda rows: rows[0].consumer_uuid)
    consumer_generation = Integer(source=lambda rows: rows[0].consumer_generation)
    consumer_type = String(source=lambda rows: rows[0].consumer_type or UNKNOWN_CONSUMER_TYPE)
    project_id = String(source=lambda rows: rows[0].project_id)
    user_id = String(source=lambda rows: rows[0].user_id)
    dedicated_cpus = String(metadata=OPTIONAL, source=lambda rows: rows[0].dedicated_cpus)
    allocations = Mapping(fields.UUID, Object(ListedAmountsSchema), source=_by_provider)


class ConsumerPageSchema(AnswerSchema):
    """Consumers and what they hold; `next` is the `after` of the following page."""

    consumers = Sequence(
        Object(ListedConsumerSchema),
        source=lambda page: [list(rows) for _, rows in groupby(page[0], attrgetter("consumer_uuid"))],
    )
    next = NullableUuid(source=itemgetter(1))


class ListedProviderSchema(AnswerSchema):
    """One provider of a list, with what was asked for by `include`."""

    uuid = Uuid(source="provider.uuid")
    name = String(source="provider.name")
    generation = Integer(source="provider.generation")
    parent_provider_uuid = NullableUuid(source="provider.parent_uuid")
    root_provider_uuid = Uuid(source="provider.root_uuid")
    cluster = String(nullable=True, source="provider.cluster")
    inventories = Mapping(fields.NAME, Object(InventoryRecordSchema), metadata=OPTIONAL)
    usages = amounts(metadata=OPTIONAL)
    traits = Sequence(String(), metadata=OPTIONAL)
    aggregates = Sequence(Uuid(), metadata=OPTIONAL)


class ProviderPageSchema(AnswerSchema):
    """Providers in order of creation; `next` is the `after` of the following page."""

    resource_providers = Sequence(Object(ListedProviderSchema), source="providers")
    next = Integer(nullable=True)
