"""Bodies of allocations and of the reshaper, and the query of usages."""

from __future__ import annotations

import datetime
import re
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import Any

from marshmallow import missing

from placement.allocations.statements.lists import ListedAllocation
from placement.common.microversions import Feature
from placement.engine.domain.claims import UNKNOWN_CONSUMER_TYPE
from placement.http import schemas as fields
from placement.providers.schemas import AllInventoriesSchema, InventoryRecordSchema

_RESOURCES = fields.Mapping(fields.NAME, fields.Integer(1), least=1, required=True)
# Type names, and what stands for all types or for none.
_CONSUMER_TYPE = "^[A-Z0-9_]+$|^all|^unknown$"


class Mappings(fields.Mapping):
    """The providers that each group got; checked for form, then ignored.

    Keys without any suffix character, such as that of the base group, are taken unchecked.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__("[a-zA-Z0-9_-]{1,64}", fields.Sequence(fields.Uuid(), least=1), least=1, **options)

    def checked(self, value: Any) -> Any:
        if not value:
            fields.refuse("{} should be non-empty", "minProperties")
        step = "patternProperties", self.shown_pattern
        return {
            key: self.item(self.items, providers, key, *step)
            for key, providers in value.items()
            if re.search(self.key_pattern, key)
        }


def _label(**options: Any) -> fields.HttpField:
    return fields.String(1, 255, required=True, **options)


class _ProviderReferenceSchema(fields.VersionedSchema):
    uuid = fields.Uuid(required=True)


class _ListedAllocationSchema(fields.VersionedSchema):
    resource_provider = fields.Object(_ProviderReferenceSchema, required=True)
    resources = _RESOURCES


class AllocationsListSchema(fields.VersionedSchema):
    """PUT /allocations/{consumer} before 1.12."""

    allocations = fields.Sequence(fields.Object(_ListedAllocationSchema), least=1, required=True)
    project_id = _label(metadata={"since": Feature.CONSUMER_PROJECT})
    user_id = _label(metadata={"since": Feature.CONSUMER_PROJECT})


class _ProviderAllocationSchema(fields.VersionedSchema):
    # A GET shows it, so it may be sent back; it guards nothing.
    generation = fields.Integer()
    resources = _RESOURCES


class AllocationsSchema(fields.VersionedSchema):
    """PUT /allocations/{consumer} from 1.28 on, and each entry of POST /allocations: empty releases."""

    allocations = fields.Mapping(fields.UUID, fields.Object(_ProviderAllocationSchema), required=True)
    project_id = _label()
    user_id = _label()
    consumer_generation = fields.Integer(
        required=True, nullable=True, metadata={"since": Feature.CONSUMER_GENERATIONS}
    )
    mappings = Mappings(metadata={"since": Feature.MAPPINGS})
    consumer_type = fields.String(
        1, 255, fields.NAME, required=True, metadata={"since": Feature.CONSUMER_TYPES}
    )


class FilledAllocationsSchema(AllocationsSchema):
    """PUT /allocations/{consumer} from 1.12 to before 1.28: something must be claimed."""

    allocations = fields.Mapping(
        fields.UUID, fields.Object(_ProviderAllocationSchema), least=1, required=True
    )


class UsagesQuerySchema(fields.VersionedSchema):
    """GET /usages."""

    project_id = fields.String(1, 255, required=True)
    user_id = fields.String(1, 255)
    consumer_type = fields.String(1, 255, _CONSUMER_TYPE, metadata={"since": Feature.CONSUMER_TYPES})


class ReshapeSchema(fields.VersionedSchema):
    """POST /reshaper: whole inventories by provider, whole allocations by consumer."""

    inventories = fields.Mapping(fields.UUID, fields.Object(AllInventoriesSchema), least=1, required=True)
    allocations = fields.Mapping(fields.UUID, fields.Object(AllocationsSchema), required=True)


# Answers about allocations and usages.
_USAGE = r"^[A-Z0-9_]+$|^consumer_count$"
_TYPE = r"^[A-Z0-9_]+$|^all$|^unknown$"


class HeldSchema(fields.AnswerSchema):
    """The amounts that a consumer holds of one provider."""

    resources = fields.amounts(source=lambda rows: {row.class_name: row.amount for row in rows})
    generation = fields.Integer(source=lambda rows: rows[0].generation)


class ConsumerAllocationsSchema(fields.AnswerSchema):
    """The allocations of one consumer; if it holds nothing, the other members are missing."""

    allocations = fields.Mapping(
        fields.UUID,
        fields.Object(HeldSchema),
        source=lambda found: {uuid: list(rows) for uuid, rows in groupby(found.holdings, attrgetter("uuid"))},
    )
    project_id = fields.String(
        metadata=fields.since(Feature.ALLOCATIONS_BY_PROVIDER, **fields.OPTIONAL),
        source="consumer.project_id",
    )
    user_id = fields.String(
        metadata=fields.since(Feature.ALLOCATIONS_BY_PROVIDER, **fields.OPTIONAL), source="consumer.user_id"
    )
    consumer_generation = fields.Integer(
        metadata=fields.since(Feature.CONSUMER_GENERATIONS, **fields.OPTIONAL), source="consumer.generation"
    )
    consumer_type = fields.String(
        metadata=fields.since(Feature.CONSUMER_TYPES, **fields.OPTIONAL),
        source=lambda found: found.consumer.consumer_type or UNKNOWN_CONSUMER_TYPE,
    )


class UsagesSchema(fields.AnswerSchema):
    """The use of a project by resource class."""

    usages = fields.amounts()


class UsagesByTypeSchema(fields.AnswerSchema):
    """The use of a project by consumer type, and the number of consumers."""

    usages = fields.Mapping(_TYPE, fields.Mapping(_USAGE, fields.Integer()))


class AmountsSchema(fields.AnswerSchema):
    """Amounts of one provider."""

    resources = fields.amounts()


class ClaimedSchema(fields.AnswerSchema):
    """A consumer with what it was given."""

    consumer_uuid = fields.Uuid(source="claimant.consumer_uuid")
    consumer_generation = fields.Integer(source="generation")
    project_id = fields.String(source="claimant.project_id")
    user_id = fields.String(source="claimant.user_id")
    consumer_type = fields.String(nullable=True, source="claimant.consumer_type")
    allocations = fields.Mapping(
        fields.UUID,
        fields.Object(AmountsSchema),
        source=lambda fitted: {uuid: {"resources": held} for uuid, held in fitted.resources.items()},
    )
    mappings = fields.Mapping(fields.SUFFIX, fields.Sequence(fields.Uuid()), metadata=fields.OPTIONAL)
    # Of a flavor only, and then the context.
    dedicated_cpus = fields.String(
        nullable=True,
        metadata=fields.OPTIONAL,
        source=fields.InContext(lambda _, cpus: missing if cpus is None else cpus),
    )


class MemberClaimedSchema(fields.AnswerSchema):
    """The outcome of a member of a claim for many: what it was given, or what is wrong."""

    status = fields.Integer(200, 599)
    name = fields.String(metadata=fields.OPTIONAL)
    consumer_uuid = fields.Uuid()
    consumer_generation = fields.Integer(metadata=fields.OPTIONAL)
    project_id = fields.String(metadata=fields.OPTIONAL)
    user_id = fields.String(metadata=fields.OPTIONAL)
    consumer_type = fields.String(nullable=True, metadata=fields.OPTIONAL)
    allocations = fields.Mapping(fields.UUID, fields.Object(AmountsSchema), metadata=fields.OPTIONAL)
    mappings = fields.Mapping(fields.SUFFIX, fields.Sequence(fields.Uuid()), metadata=fields.OPTIONAL)
    dedicated_cpus = fields.String(metadata=fields.OPTIONAL)
    error = fields.Object(fields.ErrorSchema, metadata=fields.OPTIONAL)


class RuleKeptSchema(fields.AnswerSchema):
    """The state of a rule between members: by how many consumers it is broken at their places."""

    rule = fields.String(source="rule.text")
    kept = fields.Boolean(source=lambda each: not each.excess)
    excess = fields.Integer()


class ManyClaimedSchema(fields.AnswerSchema):
    """The outcomes of the members of a claim for many, in their order, and the state of the rules.

    `proven`: it is certain that no more of them could get something.
    """

    # The context are the members, and whether there are rules.

    members = fields.Sequence(
        fields.Object(MemberClaimedSchema), source=fields.InContext(lambda _, given: given[0])
    )
    proven = fields.Boolean(
        metadata=fields.OPTIONAL,
        source=fields.InContext(lambda settled, given: settled.proven if given[1] else None),
    )
    rules = fields.Sequence(
        fields.Object(RuleKeptSchema),
        metadata=fields.OPTIONAL,
        source=fields.InContext(
            lambda settled, given: (
                list(map(fields.dumper(RuleKeptSchema), settled.rules)) if given[1] else None
            )
        ),
    )


class ListedAmountsSchema(fields.AnswerSchema):
    """The amounts that a consumer of a list holds of one provider."""

    name = fields.String(source=lambda held: held[0].provider_name)
    cluster = fields.String(nullable=True, source=lambda held: held[0].cluster)
    resources = fields.amounts(source=lambda held: {row.class_name: row.amount for row in held})


def moment(time: datetime.datetime | None) -> str | None:
    """Return a time of the database as answers have it, in UTC."""
    return None if time is None else f"{time.isoformat()}Z"


def _by_provider(allocations: list[ListedAllocation]) -> dict[str, list[ListedAllocation]]:
    return {uuid: list(held) for uuid, held in groupby(allocations, attrgetter("provider_uuid"))}


class ListedConsumerSchema(fields.AnswerSchema):
    """One consumer of a list."""

    consumer_uuid = fields.Uuid(source=lambda rows: rows[0].consumer_uuid)
    consumer_generation = fields.Integer(source=lambda rows: rows[0].consumer_generation)
    consumer_type = fields.String(source=lambda rows: rows[0].consumer_type or UNKNOWN_CONSUMER_TYPE)
    project_id = fields.String(source=lambda rows: rows[0].project_id)
    user_id = fields.String(source=lambda rows: rows[0].user_id)
    dedicated_cpus = fields.String(metadata=fields.OPTIONAL, source=lambda rows: rows[0].dedicated_cpus)
    created_at = fields.String(nullable=True, source=lambda rows: moment(rows[0].created_at))
    changed_at = fields.String(nullable=True, source=lambda rows: moment(rows[0].changed_at))
    allocations = fields.Mapping(fields.UUID, fields.Object(ListedAmountsSchema), source=_by_provider)


class ConsumerPageSchema(fields.AnswerSchema):
    """Consumers and what they hold; `next` is the `after` of the following page."""

    consumers = fields.Sequence(
        fields.Object(ListedConsumerSchema),
        source=lambda page: [list(rows) for _, rows in groupby(page[0], attrgetter("consumer_uuid"))],
    )
    next = fields.NullableUuid(source=itemgetter(1))


class ListedProviderSchema(fields.AnswerSchema):
    """One provider of a list, with what was asked for by `include`."""

    uuid = fields.Uuid(source="provider.uuid")
    name = fields.String(source="provider.name")
    generation = fields.Integer(source="provider.generation")
    parent_provider_uuid = fields.NullableUuid(source="provider.parent_uuid")
    root_provider_uuid = fields.Uuid(source="provider.root_uuid")
    cluster = fields.String(nullable=True, source="provider.cluster")
    inventories = fields.Mapping(fields.NAME, fields.Object(InventoryRecordSchema), metadata=fields.OPTIONAL)
    usages = fields.amounts(metadata=fields.OPTIONAL)
    traits = fields.Sequence(fields.String(), metadata=fields.OPTIONAL)
    aggregates = fields.Sequence(fields.Uuid(), metadata=fields.OPTIONAL)


class ProviderPageSchema(fields.AnswerSchema):
    """Providers in order of creation; `next` is the `after` of the following page."""

    resource_providers = fields.Sequence(fields.Object(ListedProviderSchema), source="providers")
    next = fields.Integer(nullable=True)
