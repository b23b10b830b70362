"""Schemas that change with the microversion, and the messages about their violations."""

from __future__ import annotations

import copy
import textwrap
from collections.abc import Callable
from collections.abc import Mapping as MappingABC
from collections.abc import Sequence as SequenceABC
from functools import lru_cache, partial, singledispatch
from itertools import repeat
from operator import attrgetter
from pprint import pformat
from typing import Any

from marshmallow import RAISE, Schema, ValidationError, fields, missing, pre_load

from placement.common.microversions import NEWEST, Feature, Microversion
from placement.engine.domain.errors import BadRequest, SchemaViolation
from placement.http import fields as http_fields
from placement.http.fields import (
    ELSEWHERE,
    MOST_KEYS,
    AnyOf,
    Boolean,
    Choice,
    Given,
    InContext,
    Integer,
    Mapping,
    NullableUuid,
    Number,
    Object,
    Sequence,
    String,
    Uuid,
    refuse,
    shown,
)

# Our schemas as JSON Schema: clients know messages about violations in its form.
#
# The order of the keywords is Placement's, so that its messages and ours are equal.


_WIDTH = 72
# The limits of a value that is shown: an answer does not echo the body.
_MOST_VALUES = 60
_LONGEST_TEXT = 300
_DEEPEST = 6

Document = dict[str, Any]
Path = tuple[str | int, ...]
Inner = Callable[[Any], Document]


def json_schema(field: Any, inner: Inner | None = None) -> Document:
    """Return the JSON Schema of a field or of a whole schema; `inner` returns what stands for its parts."""
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


def sentence(violation: SchemaViolation, schema: Schema | fields.Field[Any] | Document, instance: Any) -> str:
    """Return what is wrong, the rule that is broken and the value that breaks it, each with its place."""
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
    # Messages have no line breaks (see responses.render_all), but the blanks after them are part of the form.
    text = textwrap.indent(pformat(value, width=_WIDTH, sort_dicts=False), "    ")
    return f" {text}".replace("\n", " ")


class _Excerpt:
    """A cutter that keeps the beginning of a value, and as many values inside it as an answer may hold."""

    def __init__(self) -> None:
        self._left = _MOST_VALUES

    def of(self, value: Any, depth: int = _DEEPEST) -> Any:
        """Return the value, cut where it is long, deep or full."""
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


class VersionedSchema(Schema):
    """A schema of fields that exist from `since` on and up to before `until` (Feature values in metadata)."""

    class Meta:
        unknown = RAISE

    def __init__(self, version: Microversion = NEWEST, **options: Any) -> None:
        self.version = version
        super().__init__(**options)
        for name, field in list(self.fields.items()):
            since: Feature | None = field.metadata.get("since")
            until: Feature | None = field.metadata.get("until")
            if (since and not version.offers(since)) or (until and version.offers(until)):
                for registry in (self.fields, self.load_fields, self.dump_fields):
                    registry.pop(name, None)
            else:
                self.fields[name] = self.load_fields[name] = in_version(field, version)

    @pre_load
    def check_shape(self, data: Any, **_: Any) -> Any:
        """Return the object; refuse it unless it has all that is required and nothing unknown."""
        if not isinstance(data, MappingABC):
            refuse(f"{shown(data)} is not of type 'object'", "type")
        known = {field.data_key or name: field for name, field in self.fields.items()}
        for key, field in known.items():
            if field.required and key not in data:
                refuse(f"{key!r} is a required property", "required")
        strange = sorted(key for key in data if key not in known)
        if strange:
            listed = ", ".join(shown(key) for key in strange[:MOST_KEYS])
            verb = "was" if len(strange) == 1 else "were"
            refuse(
                f"Additional properties are not allowed ({listed} {verb} unexpected)", "additionalProperties"
            )
        return data


def in_version(field: fields.Field[Any], version: Microversion) -> fields.Field[Any]:
    """Return a copy of the field with the nested schemas of the version."""
    field = copy.copy(field)
    if isinstance(field, Object):
        assert isinstance(field.nested, type)
        assert issubclass(field.nested, VersionedSchema)
        field.nested = schema_for(field.nested, version)
    elif isinstance(field, Mapping):
        field.values = in_version(field.values, version)
    elif isinstance(field, Sequence):
        field.items = in_version(field.items, version)
    return field


@lru_cache(maxsize=1024)
def schema_for(schema: type[VersionedSchema], version: Microversion) -> VersionedSchema:
    """Return the schema as it is in one version."""
    return schema(version)


def load(schema: type[VersionedSchema], version: Microversion, data: Any, prefix: str) -> Any:
    """Return the validated data. Raises BadRequest with the first violation and its place."""
    chosen = schema_for(schema, version)
    try:
        return chosen.load(data)
    except ValidationError as error:
        violation = _first(chosen, error.messages)
        raise BadRequest(f"{prefix}{sentence(violation, chosen, data)}") from None


def load_field(field: fields.Field[Any], data: Any, prefix: str) -> Any:
    """Return the validated data of a body that is not an object. Raises as `load` does."""
    try:
        return field.deserialize(data)
    except ValidationError as error:
        violation = _first_of_field(field, error.messages, (), ())
        raise BadRequest(f"{prefix}{sentence(violation, field, data)}") from None


def _first(
    schema: Schema, messages: Any, schema_path: Path = (), instance_path: Path = ()
) -> SchemaViolation:
    for key, inner in messages.items():
        if key == "_schema":
            return _placed(inner, schema_path, instance_path)
        field = schema.fields[key]
        name = field.data_key or key
        return _first_of_field(field, inner, (*schema_path, "properties", name), (*instance_path, name))
    raise AssertionError("a validation error without messages")


def _first_of_field(field: Any, messages: Any, schema_path: Path, instance_path: Path) -> SchemaViolation:
    if isinstance(messages, list):
        return _placed(messages, schema_path, instance_path)
    if isinstance(field, Object):
        return _first(field.nested, messages, schema_path, instance_path)
    key, inner = next(iter(messages.items()))
    if key == "_schema":
        return _placed(inner, schema_path, instance_path)
    if isinstance(field, Mapping):
        return _first_of_field(
            field.values,
            inner,
            (*schema_path, "patternProperties", field.shown_pattern),
            (*instance_path, key),
        )
    assert isinstance(field, Sequence)
    return _first_of_field(field.items, inner, (*schema_path, "items"), (*instance_path, key))


def _placed(messages: Any, schema_path: Path, instance_path: Path) -> SchemaViolation:
    found = messages[0]
    if not isinstance(found, SchemaViolation):
        return SchemaViolation(str(found), "type", schema_path, instance_path)
    return SchemaViolation(found.reason, found.keyword, schema_path, instance_path)


# Schemas of what the service sends, which dump its objects, and members that many answers have.


OPTIONAL = {"optional": True}


class AnswerSchema(VersionedSchema):
    """A schema of members that are in every answer, unless their metadata says `optional`.

    Optional members are left out where their value is None, nullable ones where it is `missing`.
    """

    def __init__(self, version: Microversion = NEWEST, **options: Any) -> None:
        super().__init__(version, **options)
        for field in self.fields.values():
            field.required = not field.metadata.get("optional", False)
        declared: dict[str, Any] = self.fields
        self._members = [
            _member(name, field) for name, field in declared.items() if field.source is not ELSEWHERE
        ]

    def body(self, source: Any, context: Any = None) -> dict[str, Any] | None:
        """Return an object as JSON values, in the order in which the members are declared.

        What is a dictionary already is returned as it is. `context` is for members with a source InContext.
        """
        if source is None or isinstance(source, dict):
            return source
        body = {}
        for key, read, in_context, dumped, absent in self._members:
            if not in_context:
                value = read(source)
            elif read is None:
                value = context
            else:
                value = read(source, context)
            if value is not absent:
                body[key] = value if dumped is None else dumped(value, context)
        return body


def _member(name: str, field: Any) -> tuple[str, Any, bool, Callable[..., Any] | None, Any]:
    """Return the key of a member, what reads and what dumps its value, and which value leaves it out.

    Nothing reads a member that is the context.
    """
    source = field.source or name
    absent = missing if field.required or field.nullable else None
    if isinstance(source, InContext):
        return field.data_key or name, source.read, True, None, absent
    read = source if callable(source) else attrgetter(source)
    return field.data_key or name, read, False, _dumper(field), absent


def _dumper(field: Any) -> Callable[[Any, Any], Any] | None:
    """Return what makes JSON values of a field's value; None if it consists of some already."""
    if isinstance(field, Object):
        return field.nested.body if isinstance(field.nested, AnswerSchema) else None
    if isinstance(field, Sequence):
        item = _dumper(field.items)
        return item and (lambda values, context: list(map(item, values, repeat(context))))
    value_of = _dumper(field.values) if isinstance(field, Mapping) else None
    return value_of and (
        lambda values, context: {key: value_of(each, context) for key, each in values.items()}
    )


def dumper(
    schema: type[AnswerSchema], version: Microversion = NEWEST, context: Any = None
) -> Callable[[Any], Any]:
    """Return what makes the JSON values that the schema describes of an object of the service."""
    chosen: Any = schema_for(schema, version)
    return partial(chosen.body, context=context)


def dump(schema: type[AnswerSchema], source: Any, version: Microversion = NEWEST, context: Any = None) -> Any:
    """Return an object of the service as the JSON values that the schema describes."""
    chosen: Any = schema_for(schema, version)
    return chosen.body(source, context)


def since(feature: Feature, **more: Any) -> dict[str, Any]:
    """Return metadata of a member that comes with a feature."""
    return {"since": feature, **more}


def texts(**options: Any) -> Sequence:
    """Return a field for a list of texts."""
    return Sequence(String(), **options)


def amounts(**options: Any) -> Mapping:
    """Return a field for amounts by resource class."""
    return Mapping(http_fields.NAME, Integer(), **options)


class LinkSchema(AnswerSchema):
    """A link to something related."""

    rel = String()
    href = String()


class ErrorSchema(AnswerSchema):
    """A description of what is wrong; a response may have several."""

    status = Integer(400, 599)
    title = String()
    detail = String()
    request_id = String()
    code = String(metadata=since(Feature.ERROR_CODES, optional=True))
    # Only in a 406 for a microversion that the service does not have.
    max_version = String(metadata=OPTIONAL)
    min_version = String(metadata=OPTIONAL)
