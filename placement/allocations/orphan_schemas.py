"""The body of the list of what may be left over."""

from __future__ import annotations

from placement.allocations.orphans import OrphanKind
from placement.allocations.schemas import moment
from placement.engine.domain.claims import UNKNOWN_CONSUMER_TYPE
from placement.http import schemas as fields


class NamedThingSchema(fields.AnswerSchema):
    """A host or another provider."""

    uuid = fields.Uuid()
    name = fields.String()


class OrphanConsumerSchema(fields.AnswerSchema):
    """A consumer that may be left over; times and age are null where they are not known."""

    consumer_generation = fields.Integer(source="held.generation")
    consumer_type = fields.String(source=lambda aged: aged.held.consumer_type or UNKNOWN_CONSUMER_TYPE)
    project_id = fields.String(source="held.project_id")
    user_id = fields.String(source="held.user_id")
    is_pod = fields.Boolean(source="held.is_pod")
    created_at = fields.String(nullable=True, source=lambda aged: moment(aged.held.created_at))
    changed_at = fields.String(nullable=True, source=lambda aged: moment(aged.held.changed_at))
    age_seconds = fields.Integer(
        nullable=True,
        source=lambda aged: None if aged.age is None else max(0, int(aged.age.total_seconds())),
    )


class OrphanSchema(fields.AnswerSchema):
    """Something that may be left over: a consumer, a provider, or several providers with names alike.

    `hosts` has at most two of `host_count`: of the consumer, or the one that the provider is a part of.
    `alike` are the providers with names that MySQL calls one. Only young migrations are not suspicious.
    """

    kind = fields.Choice(list(OrphanKind))
    suspicious = fields.Boolean(source="is_suspicious")
    uuid = fields.NullableUuid()
    name = fields.String(nullable=True)
    consumer = fields.Object(OrphanConsumerSchema, nullable=True)
    hosts = fields.Sequence(fields.Object(NamedThingSchema))
    host_count = fields.Integer()
    alike = fields.Sequence(fields.Object(NamedThingSchema), source="named")


class OrphanPageSchema(fields.AnswerSchema):
    """What may be left over; `next` is the `after` of the following page, which may be empty."""

    orphans = fields.Sequence(fields.Object(OrphanSchema))
    next = fields.String(
        nullable=True, source=lambda page: None if page.next_cursor is None else str(page.next_cursor)
    )
