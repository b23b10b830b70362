"""Descriptions of routes, from which the OpenAPI document is made and requests are checked."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pprint import pformat
from typing import Any, TypeVar
from urllib.parse import unquote_to_bytes

from flask import current_app, request

from placement.common.microversions import NEWEST, Feature, Microversion
from placement.engine.domain.errors import MOST_FINDINGS, BadRequest, BadValues, SchemaViolation
from placement.engine.domain.identifiers import meant, near
from placement.http import context
from placement.http.context import json_body
from placement.http.schemas import (
    LONGEST_NAME,
    Document,
    ErrorsSchema,
    HttpField,
    VersionedSchema,
    json_schema,
    refuse_strange,
    schema_for,
    shown,
)

View = TypeVar("View", bound=Callable[..., Any])
JSON = "application/json"
JSON_OR_YAML = (JSON, "application/yaml")


class Empty:
    """An answer without a body."""


EMPTY = Empty()


@dataclass(frozen=True, slots=True)
class Content:
    """A body that is not JSON, by its media types, with a JSON Schema of its text."""

    media_types: Sequence[str]
    schema: Document = field(default_factory=lambda: {"type": "string"})


@dataclass(frozen=True, slots=True)
class OneOf:
    """A choice of several schemas."""

    schemas: Sequence[type[VersionedSchema]]


@dataclass(frozen=True, slots=True)
class ByMediaType:
    """A choice by what the caller accepts: contents of other media types, and one schema of JSON."""

    shapes: Sequence[type[VersionedSchema] | Content]


Shape = type[VersionedSchema] | HttpField | Document | OneOf | Content | ByMediaType | Empty | None


class ByVersion:
    """A map of shapes by the feature that introduced them, in order; None stands for 1.0, as the first."""

    def __init__(self, shapes: Mapping[Feature | None, Shape]) -> None:
        self._shapes = shapes

    def at(self, version: Microversion) -> Shape:
        """Return the shape in that version, None if there is none."""
        found = None
        for since, shape in self._shapes.items():
            if since is None or version.offers(since):
                found = shape
        return found


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter of a query string, in words and as JSON Schema.

    `repeated`: it may come several times, from that feature on. `explode`: its schema is an object, and the
    members of that object are parameters.
    """

    name: str
    description: str
    schema: Document = field(default_factory=lambda: {"type": "string"})
    since: Feature | None = None
    until: Feature | None = None
    repeated: Feature | bool = False
    required: bool = False
    explode: bool = False

    def exists(self, version: Microversion) -> bool:
        """Return whether the version has it."""
        return (self.since is None or version.offers(self.since)) and not (
            self.until is not None and version.offers(self.until)
        )

    def may_repeat(self, version: Microversion) -> bool:
        """Return whether it may come several times in that version."""
        return version.offers(self.repeated) if isinstance(self.repeated, Feature) else self.repeated


@dataclass(frozen=True, slots=True)
class Operation:
    """A description of what a route takes and returns.

    `answers`: the shape of the body by status of success. `errors`: statuses that do not follow from how the
    route is guarded and what it takes; None: failures, too, are answered as `answers` has it.
    `path`: schemas of path parameters that differ from the usual ones. `body_types`: its media types.
    `conflict`: the schema of its 409.
    """

    answers: Mapping[int, Shape | ByVersion]
    errors: Sequence[int] | None = ()
    query: Sequence[Parameter] = ()
    path: Mapping[str, Document] = field(default_factory=dict)
    body: Shape | ByVersion = None
    body_types: Sequence[str] = (JSON,)
    body_required: bool = True
    conflict: type[VersionedSchema] = ErrorsSchema

    @property
    def takes_json(self) -> bool:
        """Return whether it needs a body of JSON in all versions."""
        needs_body = self.body_required and shape_at(self.body, NEWEST) is not None
        return needs_body and tuple(self.body_types) == (JSON,)


def shows(answer: Shape, query: Sequence[Parameter] = ()) -> dict[str, Any]:
    """Return the options of a route that shows something as JSON."""
    return {"gives_json": True, "described": Operation({200: answer}, query=query)}


@dataclass(frozen=True, slots=True)
class RouteGuard:
    """The conditions that a request must meet before the handler runs, as far as the document shows them."""

    since: Feature | None = None
    missing_method_below: Feature | None = None
    takes_json: bool = False
    gives_json: bool = False

    def exists(self, version: Microversion) -> bool:
        """Return whether the route exists in that version."""
        return all(
            feature is None or version.offers(feature) for feature in (self.since, self.missing_method_below)
        )


def describes(operation: Operation | None, guard: RouteGuard | None = None) -> Callable[[View], View]:
    """Return a decorator that notes a handler's operation and guard; guard None: it needs no token."""

    def decorate(view: View) -> View:
        view.operation, view.guard = operation, guard  # type: ignore[attr-defined]
        return view

    return decorate


def operation_of(view: Callable[..., Any]) -> Operation | None:
    """Return the operation that `describes` noted of a handler, if any."""
    return getattr(view, "operation", None)


def guard_of(view: Callable[..., Any]) -> RouteGuard | None:
    """Return the guard that `describes` noted of a handler, if any."""
    return getattr(view, "guard", None)


def shape_at(shape: Shape | ByVersion, version: Microversion) -> Shape:
    """Return the shape in that version."""
    return shape.at(version) if isinstance(shape, ByVersion) else shape


def described_by(schema: type[VersionedSchema]) -> tuple[Parameter, ...]:
    """Return the parameters that a schema of a query has."""
    return tuple(
        Parameter(name, "", json_schema(known), since=known.metadata.get("since"), required=known.required)
        for name, known in schema().fields.items()
    )


def names_of(known: Iterable[Parameter], version: Microversion) -> Collection[str]:
    """Return the names of the parameters that the version has."""
    return [each.name for each in known if each.exists(version)]


# What is wrong with a value: in the incumbent's words on its paths, elsewhere all findings in plain words.


BODY_PREFIX = "JSON does not validate: "
PREFIX = "Invalid query string parameters: "
# The limits of a value in the incumbent's words: an answer does not echo the body.
_MOST_VALUES = 60
_LONGEST_TEXT = 300
_DEEPEST = 6


def load(
    shape: type[VersionedSchema] | HttpField,
    version: Microversion,
    data: Any,
    prefix: str = BODY_PREFIX,
    place: str = "",
) -> Any:
    """Return the validated data. Raises BadRequest; `prefix` begins the incumbent's words, `place` ours."""
    chosen: Any = shape.at(version) if isinstance(shape, HttpField) else schema_for(shape, version)
    try:
        return chosen.loaded(data) if isinstance(shape, HttpField) else chosen.load(data)
    except SchemaViolation as violation:
        if context.is_own():
            raise BadValues(violation.findings(place)) from None
        raise BadRequest(f"{prefix}{sentence(violation, json_schema(chosen), data)}") from None


def sentence(violation: SchemaViolation, document: Document, instance: Any) -> str:
    """Return what is wrong, the rule that is broken and the value that breaks it, each with its place."""
    rule: Any = document
    for part in violation.schema_path:
        rule = rule[part]
    for part in violation.instance_path:
        instance = instance[part]
    return (
        f"{violation.reason}  "
        f"Failed validating {violation.keyword!r} in schema{_printed(violation.schema_path, rule)}  "
        f"On instance{_printed(violation.instance_path, _excerpt(instance))}"
    )


def _printed(path: Iterable[str | int], value: Any) -> str:
    # Messages have no line breaks (see context.render_all), but the blanks after them are part of the form.
    text = textwrap.indent(pformat(value, width=72, sort_dicts=False), "    ").replace("\n", " ")
    return f"{''.join(f'[{shown(part)}]' for part in path)}: {text}"


def _excerpt(value: Any) -> Any:
    """Return the value, cut where it is long, deep or has more values inside than an answer may hold."""
    left = _MOST_VALUES

    def cut(value: Any, depth: int) -> Any:
        nonlocal left
        left -= 1
        if isinstance(value, str):
            return value if len(value) <= _LONGEST_TEXT else f"{value[:_LONGEST_TEXT]}..."
        if not isinstance(value, (dict, list)):
            return value
        if depth == 0:
            return "..."
        kept: list[Any] = []
        for key in value:
            if left <= 0:
                kept.append(("...", "...") if isinstance(value, dict) else "...")
                break
            if isinstance(value, dict):
                inside = cut(value[key], depth - 1)
                kept.append((cut(key, depth), inside))
            else:
                kept.append(cut(key, depth - 1))
        return dict(kept) if isinstance(value, dict) else kept

    return cut(value, _DEEPEST)


# The body of a request by the schema of its route, and its query string.


def validated() -> Any:
    """Return the body, checked against the route's schema in the request's version. Raises BadRequest."""
    operation = operation_of(current_app.view_functions[request.endpoint or ""])
    version = context.version()
    schema = None if operation is None else shape_at(operation.body, version)
    assert isinstance(schema, (type, HttpField))
    return load(schema, version, json_body())


POLICIES = ("none", "isolate")
_LARGEST_ID = 2**31 - 1
LARGEST_LONG_ID = 2**63 - 1
_PAGE = 1000
_LARGEST_PAGE = 10_000
LONGEST_KEPT = 8192
"""The longest query string, in characters, that is cached once parsed; bodies may hold any length."""
# Parameters with a rule for their values; the others may be any text.
_SPECIAL: dict[str, Document] = {
    "uuid": {"type": "string", "format": "uuid"},
    "in_tree": {"type": "string", "format": "uuid"},
    "limit": {"type": ["integer", "string"], "pattern": "^[1-9][0-9]*$", "minimum": 1, "minLength": 1},
    "group_policy": {"type": "string", "enum": list(POLICIES)},
}
LIMIT = Parameter(
    "limit",
    f"How many entries a page has at most; {_PAGE} if it says nothing.",
    {"type": "integer", "minimum": 1, "maximum": _LARGEST_PAGE},
)
ROW_ID: Document = {"type": "integer", "minimum": 1, "maximum": _LARGEST_ID}
Parameters = list[tuple[str, str]]


def parameters() -> Parameters:
    """Return all parameters of the request in order. Raises BadRequest for NUL, or for what is no UTF-8."""
    return read(request.query_string.decode("latin-1"))


def read(query_string: str) -> Parameters:
    """Return all parameters of a form-encoded query string in order. Raises as `parameters` does."""
    kept = len(query_string) <= LONGEST_KEPT
    return list(_read_once(query_string) if kept else _read(query_string))


def _read(query_string: str) -> tuple[tuple[str, str], ...]:
    pairs = (piece.partition("=") for piece in query_string.split("&") if piece)
    return tuple((_decode(key), _decode(value)) for key, _, value in pairs)


# Policy rules, the route and the next request of a client read equal query strings.
_read_once = lru_cache(maxsize=256)(_read)


def _decode(text: str) -> str:
    try:
        decoded = unquote_to_bytes(text.replace("+", " ")).decode()
    except UnicodeDecodeError:
        raise BadRequest(f"{PREFIX}the query string is not UTF-8.") from None
    if "\0" in decoded:
        # No database can hold such a text; a query for it would only fail.
        raise BadRequest(f"{PREFIX}the query string contains a NUL character.")
    return decoded


def refuse_unknown(found: Parameters, known: Collection[str]) -> None:
    """Raise BadRequest naming parameters that are not understood."""
    strange = sorted({key for key, _ in found if key not in known})
    if strange and context.is_own():
        raise unknown(strange, known)
    try:
        refuse_strange(strange)
    except SchemaViolation as violation:
        raise violated(violation, schema_of(known), found) from None


def unknown(names: Sequence[str], known: Collection[str]) -> BadValues:
    """Return the error for parameters that are not understood, with the known ones."""
    there_are = f"; there are {', '.join(sorted(known))}" if known else "; there are none"

    def fault(name: str) -> str:
        is_name = name.isidentifier() and len(name) <= LONGEST_NAME
        like = near(name, known) if is_name and len(names) <= MOST_FINDINGS else ()
        hint = meant(like) or there_are
        return f"{name if is_name else shown(name)}: is no parameter of this request{hint}"

    return BadValues(list(map(fault, names)))


def schema_of(known: Iterable[str], required: Sequence[str] = ()) -> Document:
    """Return the JSON Schema of a query string with these parameters."""
    properties = {key: _SPECIAL.get(key, {"type": "string"}) for key in known}
    needed = {"required": list(required)} if required else {}
    return {"type": "object", "properties": properties, **needed, "additionalProperties": False}


def violated(violation: SchemaViolation, schema: Document, found: Parameters) -> BadRequest:
    """Return the error for a query string that breaks its schema; the last of several values is shown."""
    if context.is_own():
        return BadValues(violation.findings())
    return BadRequest(f"{PREFIX}{sentence(violation, schema, dict(found))}")


def refuse_value(found: Parameters, key: str, value: str, reason: str, keyword: str) -> BadRequest:
    """Return the error for a parameter with a value that breaks the rule `keyword` of its schema."""
    place = ("properties", key)
    return violated(SchemaViolation(reason, keyword, place, (key,)), schema_of([key]), [*found, (key, value)])


def last(found: Parameters, key: str) -> str | None:
    """Return the last value of a parameter, None if it is not given."""
    values = every(found, key)
    return values[-1] if values else None


def single(found: Parameters, key: str) -> str | None:
    """Return the value of a parameter that may come only once. Raises BadRequest naming it."""
    values = every(found, key)
    if len(values) > 1:
        raise BadRequest(f"{key}: may be given only once", code="placement.query.duplicate_key")
    return values[0] if values else None


def parse_positive(value: str) -> int | None:
    """Return a positive decimal number, or None if the text is not one; leading zeros are refused."""
    if not re.fullmatch("[1-9][0-9]*", value):
        return None
    return int(value) if len(value) <= 18 else 10**18


def page_size(found: Parameters) -> int:
    """Return how many entries a page of a list may have, by `limit`. Raises BadRequest."""
    return _number(found, "limit", _PAGE, _LARGEST_PAGE, f"1 to {_LARGEST_PAGE}")


def page_start(found: Parameters, key: str, largest: int = _LARGEST_ID) -> int:
    """Return the id after which a page of a list begins, by the parameter `key`. Raises BadRequest."""
    return _number(found, key, 0, largest, "the `next` of an earlier page")


def _number(found: Parameters, key: str, default: int, largest: int, meant: str) -> int:
    value = single(found, key)
    number = default if value is None else parse_positive(value)
    if number is None or number > largest:
        raise BadRequest(f"{key}: must be {meant}, not {value!r}")
    return number


def every(found: Parameters, key: str) -> list[str]:
    """Return all values of a parameter."""
    return [value for name, value in found if name == key]
