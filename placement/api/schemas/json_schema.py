"""Our schemas as JSON Schema, which is how clients know the sentences about violations.

The order of the keywords is the incumbent's, so that its messages and ours read the same.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from collections.abc import Sequence as SequenceABC
from functools import singledispatch
from pprint import pformat
from typing import Any

from marshmallow import Schema, fields

from placement.api.schemas.fields import (
    AnyOf,
    Boolean,
    Choice,
    Given,
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
Inner = Callable[[Any], Document]


def json_schema(field: Any, inner: Inner | None = None) -> Document:
    """The JSON Schema of a field or of a whole schema; `inner` says what stands for the parts of it."""
    return _described(field, inner or json_schema)


@singledispatch
def _described(field: Any, inner: Inner) -> Document:
    return {}


@_described.register
def _schema(schema: Schema, inner: Inner) -> Document:
    named = {field.data_key or name: field for name, field in schema.fields.items()}
    required = [name for name, field in named.items() if field.required]
    properties = {name: inner(field) for name, field in named.items()}
    described: Document = {"type": "object", "properties": properties}
    if required:
        described["required"] = required
    return {**described, "additionalProperties": False}


@_described.register
def _object(field: Object, inner: Inner) -> Document:
    return _nullable(field, inner(field.nested))


@_described.register
def _integer(field: Integer, inner: Inner) -> Document:
    return _without_none(type=_type(field), maximum=field.maximum, minimum=field.minimum)


@_described.register
def _number(field: Number, inner: Inner) -> Document:
    return _without_none(type=_type(field), maximum=field.maximum, minimum=field.minimum)


@_described.register
def _string(field: String, inner: Inner) -> Document:
    return _without_none(
        type=_type(field), pattern=field.pattern, minLength=field.least or None, maxLength=field.most
    )


@_described.register
def _uuid(field: Uuid, inner: Inner) -> Document:
    return {"type": "string", "format": "uuid"}


@_described.register
def _nullable_uuid(field: NullableUuid, inner: Inner) -> Document:
    return {"anyOf": [_uuid(field, inner), {"type": "null"}]}


@_described.register
def _sequence(field: Sequence, inner: Inner) -> Document:
    described = _without_none(type=_type(field), minItems=field.least or None, maxItems=field.most)
    described["items"] = inner(field.items)
    return {**described, "uniqueItems": True} if field.unique else described


@_described.register
def _any_of(field: AnyOf, inner: Inner) -> Document:
    item = inner(field.items)
    return {"anyOf": [item, {"type": "array"}], "minItems": field.least, "items": item}


@_described.register
def _choice(field: Choice, inner: Inner) -> Document:
    return {"type": _type(field), "enum": [*field.choices, *([None] if field.nullable else [])]}


@_described.register
def _boolean(field: Boolean, inner: Inner) -> Document:
    return {"type": _type(field)}


@_described.register
def _given(field: Given, inner: Inner) -> Document:
    return dict(field.document)


@_described.register
def _mapping(field: Mapping, inner: Inner) -> Document:
    described = _without_none(type=_type(field), minProperties=field.least or None)
    described["patternProperties"] = {field.shown_pattern: inner(field.values)}
    return {**described, "additionalProperties": False}


def _type(field: Any) -> str | list[str]:
    return [field.type_name, "null"] if field.nullable else field.type_name


def _nullable(field: Any, described: Document) -> Document:
    return {"anyOf": [described, {"type": "null"}]} if field.nullable else described


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
