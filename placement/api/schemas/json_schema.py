"""Our schemas as JSON Schema, which is how clients know the sentences about violations.

The order of the keywords is the incumbent's, so that its messages and ours read the same.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence as SequenceABC
from functools import singledispatch
from pprint import pformat
from typing import Any

from marshmallow import Schema, fields

from placement.api.schemas.fields import (
    AnyOf,
    Boolean,
    Choice,
    Integer,
    Mapping,
    NullableUuid,
    Number,
    Object,
    Sequence,
    String,
    Uuid,
    shown,
)
from placement.domain.errors import Violation

_WIDTH = 72
# How much of a value is shown: an answer is not an echo of the body.
_MOST_VALUES = 60
_LONGEST_TEXT = 300
_DEEPEST = 6

Document = dict[str, Any]
Path = tuple[str | int, ...]


@singledispatch
def json_schema(field: Any) -> Document:
    """The JSON Schema of a field or of a whole schema."""
    return {}


@json_schema.register
def _schema(schema: Schema) -> Document:
    named = {field.data_key or name: field for name, field in schema.fields.items()}
    required = [name for name, field in named.items() if field.required]
    properties = {name: json_schema(field) for name, field in named.items()}
    described: Document = {"type": "object", "properties": properties}
    if required:
        described["required"] = required
    return {**described, "additionalProperties": False}


@json_schema.register
def _object(field: Object) -> Document:
    return json_schema(field.nested)


@json_schema.register
def _integer(field: Integer) -> Document:
    kind = ["integer", "null"] if field.nullable else "integer"
    return _without_none(type=kind, maximum=field.maximum, minimum=field.minimum)


@json_schema.register
def _number(field: Number) -> Document:
    return _without_none(type="number", maximum=field.maximum, minimum=field.minimum)


@json_schema.register
def _string(field: String) -> Document:
    return _without_none(
        type="string", pattern=field.pattern, minLength=field.least or None, maxLength=field.most
    )


@json_schema.register
def _uuid(field: Uuid) -> Document:
    return {"type": "string", "format": "uuid"}


@json_schema.register
def _nullable_uuid(field: NullableUuid) -> Document:
    return {"anyOf": [_uuid(field), {"type": "null"}]}


@json_schema.register
def _sequence(field: Sequence) -> Document:
    described = _without_none(type="array", minItems=field.least or None)
    described["items"] = json_schema(field.items)
    return {**described, "uniqueItems": True} if field.unique else described


@json_schema.register
def _any_of(field: AnyOf) -> Document:
    item = json_schema(field.items)
    return {"anyOf": [item, {"type": "array"}], "minItems": field.least, "items": item}


@json_schema.register
def _choice(field: Choice) -> Document:
    return {"type": "string", "enum": field.choices}


@json_schema.register
def _boolean(field: Boolean) -> Document:
    return {"type": "boolean"}


@json_schema.register
def _mapping(field: Mapping) -> Document:
    described = _without_none(type="object", minProperties=field.least or None)
    described["patternProperties"] = {field.shown_pattern: json_schema(field.values)}
    return {**described, "additionalProperties": False}


def _without_none(**keywords: Any) -> Document:
    return {name: value for name, value in keywords.items() if value is not None}


def sentence(violation: Violation, schema: Schema | fields.Field[Any] | Document, instance: Any) -> str:
    """What is wrong, then the rule that is broken and the value that breaks it, each with its place."""
    document = schema if isinstance(schema, dict) else json_schema(schema)
    return (
        f"{violation.reason}  "
        f"Failed validating {violation.keyword!r} in schema{_place(violation.schema_path)}:"
        f"{_printed(_at(document, violation.schema_path))}  "
        f"On instance{_place(violation.instance_path)}:"
        f"{_printed(_Excerpt().of(_at(instance, violation.instance_path)))}"
    )


def _place(path: Path) -> str:
    return "".join(f"[{shown(part)}]" for part in path)


def _at(document: Any, path: SequenceABC[str | int]) -> Any:
    for part in path:
        document = document[part]
    return document


def _printed(value: Any) -> str:
    # Messages have no line breaks (see errors.render_all), but the blanks after them are part of the form.
    text = textwrap.indent(pformat(value, width=_WIDTH, sort_dicts=False), "    ")
    return f" {text}".replace("\n", " ")


class _Excerpt:
    """The beginning of a value, for as many values inside it as an answer may hold."""

    def __init__(self) -> None:
        self._left = _MOST_VALUES

    def of(self, value: Any, depth: int = _DEEPEST) -> Any:
        """The value, cut where it is long, deep or full."""
        self._left -= 1
        if isinstance(value, str):
            return value if len(value) <= _LONGEST_TEXT else f"{value[:_LONGEST_TEXT]}..."
        if not isinstance(value, (dict, list)):
            return value
        if depth == 0:
            return "..."
        if isinstance(value, list):
            return self._list(value, depth - 1)
        return self._dict(value, depth - 1)

    def _list(self, value: list[Any], depth: int) -> list[Any]:
        found: list[Any] = []
        for item in value:
            if self._left <= 0:
                return [*found, "..."]
            found.append(self.of(item, depth))
        return found

    def _dict(self, value: dict[str, Any], depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, item in value.items():
            if self._left <= 0:
                return {**found, "...": "..."}
            found[self.of(key)] = self.of(item, depth)
        return found
