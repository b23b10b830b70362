"""The bodies and answers of /ext/v1/names."""

from __future__ import annotations

from operator import itemgetter

from placement.engine.domain.given_names import GivenNameKind
from placement.http import schemas as fields
from placement.names.service import MOST_AT_ONCE


class NameToWriteSchema(fields.VersionedSchema):
    """A thing and its new name; null takes the name away."""

    kind = fields.Choice(list(GivenNameKind), required=True)
    uuid = fields.Name(required=True)
    name = fields.Name(nullable=True, required=True)


class NewNamesSchema(fields.VersionedSchema):
    """PUT /ext/v1/names."""

    names = fields.Sequence(fields.Object(NameToWriteSchema), most=MOST_AT_ONCE, required=True)


class WrittenNamesSchema(fields.AnswerSchema):
    """How many names of a call were written, deleted, and left as they were."""

    written = fields.Integer()
    deleted = fields.Integer()
    unchanged = fields.Integer()


class GivenNameSchema(fields.AnswerSchema):
    """A name, the user that wrote it, and when."""

    kind = fields.Choice(list(GivenNameKind))
    uuid = fields.String()
    name = fields.String()
    written_by = fields.String(nullable=True)
    written_at = fields.String(source=lambda name: f"{name.written_at.isoformat()}Z")


class GivenNamesSchema(fields.AnswerSchema):
    """Names in the order in which they were first written; `next` is the `after` of the following page."""

    names = fields.Sequence(fields.Object(GivenNameSchema), source=itemgetter(0))
    next = fields.Integer(nullable=True, source=itemgetter(1))
