"""Schemas of bodies, which change with the microversion: their fields, and the messages about violations.

Violations are in the words of JSON Schema, in Placement's order of keywords, which clients match.
Source: placement-api.md, "Schema-violation messages".
"""

from __future__ import annotations

import copy
import re
import reprlib
from collections.abc import Callable, Iterable
from collections.abc import Mapping as MappingABC
from collections.abc import Sequence as SequenceABC
from functools import lru_cache, partial
from itertools import repeat
from operator import attrgetter
from typing import Any, NamedTuple, NoReturn, Self

from marshmallow import RAISE, Schema, fields, missing, pre_load

from placement.common.microversions import NEWEST, Feature, Microversion
from placement.common.texts import disturbing
from placement.engine.domain.errors import MOST_FINDINGS, SchemaViolation
from placement.engine.domain.identifiers import normalize_uuid

NAME = "^[A-Z0-9_]+$"
CUSTOM_NAME = "^CUSTOM_[A-Z0-9_]+$"
UUID = "^[0-9a-fA-F-]{36}$"
# Any text without NUL, which no database holds.
ANYTHING = r"^[^\x00]*$"
# What `common.texts.disturbing` finds nothing in.
_SHOWN = "^[^\\u0000-\\u001f\\u007f-\\u009f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069]*$"
LONGEST_NAME = 255
# The suffixes of request groups; empty for the group without one.
SUFFIX = "^[a-zA-Z0-9_-]{0,64}$"

MOST_KEYS = 10
MOST_ELEMENTS = 10
"""How many elements an array has at most that a message repeats."""
_LONGEST_VALUE = 1000


class _Shortened(reprlib.Repr):
    """Values as Python literals, short enough for a message: of a long array only its length."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 4
        self.maxdict = MOST_KEYS
        self.maxstring = self.maxlong = self.maxother = 300

    def repr_list(self, x: list[Any], level: int) -> str:
        """Return the array, or how many elements it has."""
        return counted_elements(x) if len(x) > MOST_ELEMENTS else super().repr_list(x, level)


_shortened = _Shortened()

Document = dict[str, Any]
Inner = Callable[[Any], Document]


def shown(value: Any) -> str:
    """Return the value as a Python literal, cut where it is long or deep: messages do not echo bodies."""
    text = _shortened.repr(value)
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}..."


def counted_elements(array: list[Any]) -> str:
    """Return what stands in messages for an array with more elements than they repeat."""
    return f"an array of {len(array)} elements"


def refuse(reason: str, keyword: str) -> NoReturn:
    """Report a violation at the place being validated."""
    raise SchemaViolation(reason, keyword)


# Fields. Each checks a value, describes itself as JSON Schema, and makes JSON values of what is sent.


class InContext(NamedTuple):
    """A source that makes JSON values of an object and the context of its answer, such as a cluster."""

    read: Callable[[Any, Any], Any]


CONTEXT = InContext(lambda _, context: context)
"""The source of a member that is the context itself."""
ELSEWHERE = InContext(lambda *_: missing)
"""The source of a member that the schema describes and only other schemas, made from it, send."""


Source = Callable[[Any], Any] | InContext | str


def unless_empty(path: str) -> Callable[[Any], Any]:
    """Return a source that is an attribute, None where that is empty; the path may have dots."""
    read = attrgetter(path)
    return lambda source: read(source) or None


class HttpField(fields.Field[Any]):
    """A base of fields that takes null as a value like any other, judged by the field's own type.

    `source`: what an answer has there: a function of the object that is sent, or of it and the context, or
    the name of an attribute, which may be a path with dots. Without it that is the field's own name.
    """

    type_name = "object"
    # Whether errors are in our words, which tell all that is wrong, and not in the incumbent's; see `at`.
    own = True
    # The classes of its values in Python; a bool is no number.
    classes: tuple[type, ...] = (object,)

    def __init__(self, *, nullable: bool = False, source: Source = "", **options: Any) -> None:
        super().__init__(allow_none=True, **options)
        self.nullable = nullable
        self.source = source

    def deserialize(self, value: Any, attr: str | None = None, data: Any = None, **_: Any) -> Any:
        """Return the value, checked; the schema that has the field names it. Raises SchemaViolation."""
        name = attr or ""
        return missing if value is missing else self.item(self, value, name, "properties", name)

    def loaded(self, value: Any) -> Any:
        """Return the value, checked; None only where the field is nullable. Raises SchemaViolation."""
        if value is None and self.nullable:
            return None
        is_flag = isinstance(value, bool) and int in self.classes
        if value is None or is_flag or not isinstance(value, self.classes):
            self.wrong_type(value)
        return self.checked(value)

    def item(self, field: HttpField, value: Any, key: str | int, *step: str) -> Any:
        """Return a value inside of this one, checked; `step` leads to its schema. Raises SchemaViolation."""
        try:
            return field.loaded(value)
        except SchemaViolation as violation:
            violation.below(step, key)
            raise

    def all_items(self, field: HttpField, values: Iterable[tuple[Any, Any]], *step: str) -> list[Any]:
        """Return values inside of this one, by key, checked. Raises SchemaViolation for all of them."""
        checked, first = [], None
        for key, value in values:
            try:
                checked.append(self.item(field, value, key, *step))
            except SchemaViolation as violation:
                first = joined(first, violation)
                # The incumbent's words are about the first one only.
                if not self.own or len(first.others) >= MOST_FINDINGS:
                    break
        if first is not None:
            raise first
        return checked

    def wrong_type(self, value: Any) -> NoReturn:
        """Report that the value is of another type."""
        null = ", 'null'" if self.nullable else ""
        refuse(f"{shown(value)} is not of type '{self.type_name}'{null}", "type")

    def checked(self, value: Any) -> Any:
        """Return a value of the right class if it holds to the rules of the field. Raises SchemaViolation."""
        return value

    def document(self, inner: Inner) -> Document:
        """Return the field as JSON Schema; `inner` returns what stands for its parts."""
        return {}

    def keywords(self, **keywords: Any) -> Document:
        """Return the type and the keywords that are not None."""
        kind = [self.type_name, "null"] if self.nullable else self.type_name
        return {"type": kind, **{name: value for name, value in keywords.items() if value is not None}}

    def or_null(self, described: Document) -> Document:
        """Return the schema, or the choice of it and null if the field is nullable."""
        return {"anyOf": [described, {"type": "null"}]} if self.nullable else described

    def at(self, version: Microversion, own: bool = True) -> Self:
        """Return a copy of the field with the nested schemas of the version, and errors in `own` words."""
        copied = copy.copy(self)
        copied.own = own
        return copied

    def dumper(self) -> Callable[[Any, Any], Any] | None:
        """Return what makes JSON values of the field's value and the context; None if it consists of some."""
        return None


class Number(HttpField):
    """A JSON number, with or without a fraction."""

    type_name = "number"
    classes = (int, float)

    def __init__(self, minimum: float | None = None, maximum: float | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.minimum = minimum
        self.maximum = maximum

    def checked(self, value: Any) -> Any:
        if self.minimum is not None and value < self.minimum:
            refuse(f"{shown(value)} is less than the minimum of {self.minimum}", "minimum")
        if self.maximum is not None and value > self.maximum:
            refuse(f"{shown(value)} is greater than the maximum of {self.maximum}", "maximum")
        return value

    def document(self, inner: Inner) -> Document:
        return self.keywords(maximum=self.maximum, minimum=self.minimum)


class Integer(Number):
    """A JSON number without a fraction."""

    type_name = "integer"

    def checked(self, value: Any) -> Any:
        if isinstance(value, float) and not value.is_integer():
            self.wrong_type(value)
        return int(super().checked(value))


class String(HttpField):
    """A text of bounded length (in characters) that matches a pattern as a whole."""

    type_name = "string"
    classes = (str,)

    def __init__(
        self, least: int = 0, most: int | None = None, pattern: str | None = None, **options: Any
    ) -> None:
        super().__init__(**options)
        self.least = least
        self.most = most
        self.pattern = pattern

    def checked(self, value: Any) -> Any:
        # `$` alone would let a line break at the end pass.
        if self.pattern is not None and (value.endswith("\n") or not re.search(self.pattern, value)):
            refuse(f"{shown(value)} does not match {self.pattern!r}", "pattern")
        if len(value) < self.least:
            refuse(f"{shown(value)} should be non-empty", "minLength")
        if self.most is not None and len(value) > self.most:
            refuse(f"{shown(value)} is too long", "maxLength")
        if "\0" in value:
            # No database holds such a text.
            refuse(f"{shown(value)} does not match '^[^\\x00]*$'", "pattern")
        return value

    def document(self, inner: Inner) -> Document:
        return self.keywords(pattern=self.pattern, minLength=self.least or None, maxLength=self.most)


class Name(String):
    """A name on our own routes: a text that people may be shown, in any language.

    It has no controls, no separators of lines and no marks of direction (`common.texts.disturbing`). Names on
    routes of the incumbent may have all that they may have there.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(1, LONGEST_NAME, _SHOWN, **options)

    def checked(self, value: Any) -> Any:
        if found := disturbing(value):
            refuse(f"{shown(value)} has {found}, which no name may have", "pattern")
        return super().checked(value)


class Uuid(HttpField):
    """A text that can be normalized to a uuid; the value is its lower-case dashed form.

    Where null is one, too, these are two schemas to choose from, as JSON Schema has it.
    """

    type_name = "string"
    classes = (str,)

    def checked(self, value: Any) -> Any:
        normal = normalize_uuid(value)
        if normal is None:
            refuse(f"{shown(value)} is not a 'uuid'", "format")
        return normal

    def wrong_type(self, value: Any) -> NoReturn:
        if self.nullable:
            refuse(f"{shown(value)} is not valid under any of the given schemas", "anyOf")
        super().wrong_type(value)

    def document(self, inner: Inner) -> Document:
        return self.or_null({"type": "string", "format": "uuid"})


class UuidOrName(String):
    """The uuid of a thing, normalized, or its name."""

    def __init__(self, **options: Any) -> None:
        super().__init__(1, LONGEST_NAME, **options)

    def checked(self, value: Any) -> Any:
        return normalize_uuid(value) or super().checked(value)


NullableUuid = partial(Uuid, nullable=True)


class Choice(HttpField):
    """A field for one of several texts."""

    type_name = "string"
    classes = (str,)

    def __init__(self, choices: Iterable[str], **options: Any) -> None:
        super().__init__(**options)
        self.choices = [str(choice) for choice in choices]

    def checked(self, value: Any) -> Any:
        if value not in self.choices:
            refuse(f"{shown(value)} is not one of {self.choices}", "enum")
        return value

    def document(self, inner: Inner) -> Document:
        return self.keywords(enum=[*self.choices, *([None] if self.nullable else [])])


class Boolean(HttpField):
    """A JSON true or false."""

    type_name = "boolean"
    classes = (bool,)

    def document(self, inner: Inner) -> Document:
        return self.keywords()


class Anything(HttpField):
    """A JSON value other than null; the handler checks what it means."""


class Given(HttpField):
    """A field with a JSON Schema that is written out, and may name components of OpenAPI documents."""

    def __init__(self, document: MappingABC[str, Any], **options: Any) -> None:
        super().__init__(**options)
        self._document = document

    def document(self, inner: Inner) -> Document:
        return dict(self._document)


class _Container(HttpField):
    """A field for at least `least` items of one kind."""

    def __init__(self, items: HttpField, least: int = 0, **options: Any) -> None:
        super().__init__(**options)
        self.items = items
        self.least = least

    def at(self, version: Microversion, own: bool = True) -> Self:
        copied = super().at(version, own)
        copied.items = self.items.at(version, own)
        return copied


class Sequence(_Container):
    """A JSON array of one kind of items."""

    type_name = "array"
    classes = (list,)

    def __init__(
        self, items: HttpField, *, most: int | None = None, unique: bool = False, **options: Any
    ) -> None:
        super().__init__(items, **options)
        self.most = most
        self.unique = unique

    def checked(self, value: Any) -> Any:
        if len(value) < self.least:
            refuse("[] should be non-empty", "minItems")
        if self.most is not None and len(value) > self.most:
            refuse(f"must have at most {self.most} elements, not {len(value)}", "maxItems")
        result = self.all_items(self.items, enumerate(value), "items")
        if self.unique and len({str(item) for item in result}) < len(result):
            refuse(f"{shown(value)} has non-unique elements", "uniqueItems")
        return result

    def document(self, inner: Inner) -> Document:
        described = self.keywords(minItems=self.least or None, maxItems=self.most)
        described["items"] = inner(self.items)
        return {**described, "uniqueItems": True} if self.unique else described

    def dumper(self) -> Callable[[Any, Any], Any] | None:
        item = self.items.dumper()
        return item and (lambda values, context: list(map(item, values, repeat(context))))


class AnyOf(Sequence):
    """A field for one item, or a JSON array of some; the value is a list in both cases."""

    def __init__(self, items: HttpField) -> None:
        super().__init__(items, least=1)

    def loaded(self, value: Any) -> Any:
        is_one = value is not None and not isinstance(value, list)
        return [self.items.loaded(value)] if is_one else super().loaded(value)

    def document(self, inner: Inner) -> Document:
        item = inner(self.items)
        return {"anyOf": [item, {"type": "array"}], "minItems": self.least, "items": item}


class Mapping(_Container):
    """A JSON object with keys that follow a pattern and values of one kind.

    Messages show another pattern if one is given.
    """

    classes = (MappingABC,)

    def __init__(
        self, key_pattern: str, values: HttpField, *, shown_pattern: str | None = None, **options: Any
    ) -> None:
        super().__init__(values, **options)
        self.key_pattern = key_pattern
        self.shown_pattern = shown_pattern or key_pattern

    def checked(self, value: Any) -> Any:
        if len(value) < self.least:
            refuse("{} should be non-empty", "minProperties")
        pattern = re.compile(self.key_pattern.strip("^$"))
        strange = [key for key in value if not pattern.fullmatch(key)]
        if strange:
            listed = ", ".join(shown(key) for key in sorted(strange)[:MOST_KEYS])
            verb = "does" if len(strange) == 1 else "do"
            refuse(
                f"{listed} {verb} not match any of the regexes: {self.shown_pattern!r}",
                "additionalProperties",
            )
        checked = self.all_items(self.items, value.items(), "patternProperties", self.shown_pattern)
        return dict(zip(value, checked, strict=True))

    def document(self, inner: Inner) -> Document:
        described = self.keywords(minProperties=self.least or None)
        described["patternProperties"] = {self.shown_pattern: inner(self.items)}
        return {**described, "additionalProperties": False}

    def dumper(self) -> Callable[[Any, Any], Any] | None:
        dumped = self.items.dumper()
        return dumped and (
            lambda values, context: {key: dumped(each, context) for key, each in values.items()}
        )


class Object(HttpField):
    """A JSON object with a schema of its own.

    `nested` is the schema's class, and its instance once the microversion is known (`at`).
    This is not marshmallow's Nested, which sets up the schema's fields again and so undoes the microversion.
    """

    classes = (MappingABC,)

    def __init__(self, nested: Any, **options: Any) -> None:
        super().__init__(**options)
        self.nested = nested

    def checked(self, value: Any) -> Any:
        return self.nested.load(value)

    def document(self, inner: Inner) -> Document:
        return self.or_null(inner(self.nested))

    def at(self, version: Microversion, own: bool = True) -> Self:
        copied = super().at(version, own)
        copied.nested = schema_for(self.nested, version, own)
        return copied

    def dumper(self) -> Callable[[Any, Any], Any] | None:
        return self.nested.body if isinstance(self.nested, AnswerSchema) else None


# Schemas, and what is wrong with a body.


class VersionedSchema(Schema):
    """A schema of fields that exist from `since` on and up to before `until` (Feature values in metadata).

    `own`: errors are in our words, and tell all that is wrong with an object.
    """

    class Meta:
        unknown = RAISE

    def __init__(self, version: Microversion = NEWEST, own: bool = True, **options: Any) -> None:
        self.version = version
        self.own = own
        super().__init__(**options)
        for name, field in list(self.fields.items()):
            since: Feature | None = field.metadata.get("since")
            until: Feature | None = field.metadata.get("until")
            if (since and not version.offers(since)) or (until and version.offers(until)):
                for registry in (self.fields, self.load_fields, self.dump_fields):
                    registry.pop(name, None)
            else:
                assert isinstance(field, HttpField)
                self.fields[name] = self.load_fields[name] = field.at(version, own)

    def load(self, data: Any, **options: Any) -> Any:
        """Return the object, checked. Raises SchemaViolation."""
        try:
            return super().load(data, **options)
        except SchemaViolation as first:
            if self.own and isinstance(data, MappingABC):
                self._join_rest(first, data)
            raise

    def _join_rest(self, first: SchemaViolation, data: MappingABC[str, Any]) -> None:
        """Add the violations by members behind the first one; by all if the object's own shape is wrong."""
        names = list(self.fields)
        at = first.instance_path
        for name in names[names.index(str(at[0])) + 1 :] if at else names:
            field = self.fields[name]
            assert isinstance(field, HttpField)
            try:
                field.deserialize(data.get(name, missing), name)
            except SchemaViolation as violation:
                first.join(violation)
                if len(first.others) >= MOST_FINDINGS:
                    break

    @pre_load
    def check_shape(self, data: Any, **_: Any) -> Any:
        """Return the object; refuse it unless it has all that is required and nothing unknown."""
        if not isinstance(data, MappingABC):
            refuse(f"{shown(data)} is not of type 'object'", "type")
        first, own = None, self.own
        for name, field in self.fields.items():
            if field.required and name not in data:
                reason = "is missing" if own else f"{name!r} is a required property"
                violation = SchemaViolation(reason, "required", member=name)
                first = joined(first, violation)
        strange = sorted(key for key in data if key not in self.fields)
        try:
            refuse_strange(() if own else strange)
        except SchemaViolation as violation:
            first = joined(first, violation)
        for key in strange[:MOST_FINDINGS] if own else ():
            first = joined(first, self._no_member(key, data))
        if first is not None:
            raise first
        return data

    def _no_member(self, key: str, data: MappingABC[str, Any]) -> SchemaViolation:
        """Return the violation by a member that the schema does not know, with the one that was meant."""
        is_name = key.isidentifier() and len(key) <= LONGEST_NAME
        known = (lambda: self.fields.keys() - data.keys()) if is_name else None
        member = key if is_name else shown(key)
        return SchemaViolation("there is no such member", "additionalProperties", member=member, known=known)

    def document(self, inner: Inner) -> Document:
        """Return the schema as JSON Schema; `inner` returns what stands for its parts."""
        properties = {name: inner(field) for name, field in self.fields.items()}
        required = [name for name, field in self.fields.items() if field.required]
        given = {"required": required} if required else {}
        return {"type": "object", "properties": properties, **given, "additionalProperties": False}


def joined(first: SchemaViolation | None, violation: SchemaViolation) -> SchemaViolation:
    """Return the first violation of several, with the next one added."""
    if first is None:
        return violation
    first.join(violation)
    return first


def refuse_strange(names: SequenceABC[str]) -> None:
    """Raise SchemaViolation if there are names that a schema does not know."""
    if names:
        listed = ", ".join(shown(name) for name in names[:MOST_KEYS])
        verb = "was" if len(names) == 1 else "were"
        refuse(f"Additional properties are not allowed ({listed} {verb} unexpected)", "additionalProperties")


def json_schema(part: Any, inner: Inner | None = None) -> Document:
    """Return the JSON Schema of a field or of a whole schema; `inner` returns what stands for its parts."""
    described: Document = part.document(inner or json_schema)
    return described


@lru_cache(maxsize=1024)
def schema_for(schema: type[VersionedSchema], version: Microversion, own: bool = True) -> VersionedSchema:
    """Return the schema as it is in one version; its errors are in our words, or in the incumbent's."""
    return schema(version, own)


# Schemas of what the service sends, which dump its objects, and members that many answers have.


OPTIONAL = {"optional": True}


class AnswerSchema(VersionedSchema):
    """A schema of members that are in every answer, unless their metadata says `optional`.

    Optional members are left out where their value is None, nullable ones where it is `missing`.
    """

    def __init__(self, version: Microversion = NEWEST, own: bool = True, **options: Any) -> None:
        super().__init__(version, own, **options)
        # Of each member its name, what reads it and whether of the context, too, what dumps its value, and
        # which value leaves it out.
        self._members: list[tuple[str, Any, bool, Callable[..., Any] | None, Any]] = []
        for name, field in self.fields.items():
            assert isinstance(field, HttpField)
            field.required = not field.metadata.get("optional", False)
            source = field.source or name
            absent = missing if field.required or field.nullable else None
            in_context = isinstance(source, InContext)
            read: Any = source.read if isinstance(source, InContext) else source
            read = attrgetter(read) if isinstance(read, str) else read
            if source is not ELSEWHERE:
                dumped = None if in_context else field.dumper()
                self._members.append((name, read, in_context, dumped, absent))

    def body(self, source: Any, context: Any = None) -> dict[str, Any] | None:
        """Return an object as JSON values, in the order in which the members are declared.

        What is a dictionary already is returned as it is. `context` is for members with a source InContext.
        """
        if source is None or isinstance(source, dict):
            return source
        body = {}
        for key, read, in_context, dumped, absent in self._members:
            value = read(source, context) if in_context else read(source)
            if value is not absent:
                body[key] = value if dumped is None else dumped(value, context)
        return body


def dumper(
    schema: type[AnswerSchema], version: Microversion = NEWEST, context: Any = None
) -> Callable[[Any], Any]:
    """Return what makes the JSON values that the schema describes of an object of the service."""
    chosen: Any = schema_for(schema, version)
    return partial(chosen.body, context=context)


def each_of(schema: type[AnswerSchema], path: str) -> InContext:
    """Return a source of the parts under a path, each dumped with the whole as its context."""
    read = attrgetter(path)
    return InContext(lambda whole, _: list(map(dumper(schema, context=whole), read(whole))))


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
    return Mapping(NAME, Integer(), **options)


class ErrorSchema(AnswerSchema):
    """A description of what is wrong; a response may have several."""

    status = Integer(400, 599)
    title = String()
    detail = String()
    request_id = String()
    code = String(metadata=since(Feature.ERROR_CODES, optional=True))
    # Only on our own paths: where in the request it is, and what an unknown name was probably meant to be.
    field = String(nullable=True, metadata=OPTIONAL)
    suggestion = String(nullable=True, metadata=OPTIONAL)
    # Only in a 406 for a microversion that the service does not have.
    max_version = String(metadata=OPTIONAL)
    min_version = String(metadata=OPTIONAL)


class ErrorsSchema(AnswerSchema):
    """The body of every refusal."""

    errors = Sequence(Object(ErrorSchema), least=1)


class KeystoneErrorSchema(AnswerSchema):
    """A refusal of a token by the middleware of Keystone, in its own words."""

    error = Given(
        {
            "type": "object",
            "properties": {
                "code": {"const": 401},
                "message": {"type": "string"},
                "title": {"type": "string"},
            },
            "required": ["code", "message", "title"],
        }
    )
