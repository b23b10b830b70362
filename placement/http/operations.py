"""Descriptions of routes, from which the OpenAPI document is made and requests are checked."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pprint import pformat
from typing import Any, TypeVar

from placement.common.microversions import NEWEST, Feature, Microversion
from placement.engine.domain.errors import BODY, BadRequest, BadValues, RequestPlace, SchemaViolation
from placement.http.schemas import (
    MOST_ELEMENTS,
    Document,
    ErrorsSchema,
    HttpField,
    VersionedSchema,
    counted_elements,
    json_schema,
    schema_for,
    shown,
)

DescribedView = TypeVar("DescribedView", bound=Callable[..., Any])
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


BodyShape = type[VersionedSchema] | HttpField | Document | OneOf | Content | ByMediaType | Empty | None


class ByVersion:
    """A map of shapes by the feature that introduced them, in order; None stands for 1.0, as the first."""

    def __init__(self, shapes: Mapping[Feature | None, BodyShape]) -> None:
        self._shapes = shapes

    def at(self, version: Microversion) -> BodyShape:
        """Return the shape in that version, None if there is none."""
        found = None
        for since, shape in self._shapes.items():
            if since is None or version >= since.value:
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

    answers: Mapping[int, BodyShape | ByVersion]
    errors: Sequence[int] | None = ()
    query: Sequence[Parameter] = ()
    path: Mapping[str, Document] = field(default_factory=dict)
    body: BodyShape | ByVersion = None
    body_types: Sequence[str] = (JSON,)
    body_required: bool = True
    conflict: type[VersionedSchema] = ErrorsSchema

    @property
    def takes_json(self) -> bool:
        """Return whether it needs a body of JSON in all versions."""
        needs_body = self.body_required and shape_at(self.body, NEWEST) is not None
        return needs_body and tuple(self.body_types) == (JSON,)


def shows(shape: BodyShape, query: Sequence[Parameter] = ()) -> dict[str, Any]:
    """Return the options of a route that shows something as JSON."""
    return {"gives_json": True, "described": Operation({200: shape}, query=query)}


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


def describes(
    operation: Operation | None, guard: RouteGuard | None = None
) -> Callable[[DescribedView], DescribedView]:
    """Return a decorator that notes a handler's operation and guard; guard None: it needs no token."""

    def decorate(view: DescribedView) -> DescribedView:
        view.operation, view.guard = operation, guard  # type: ignore[attr-defined]
        return view

    return decorate


def operation_of(view: Callable[..., Any]) -> Operation | None:
    """Return the operation that `describes` noted of a handler, if any."""
    return getattr(view, "operation", None)


def guard_of(view: Callable[..., Any]) -> RouteGuard | None:
    """Return the guard that `describes` noted of a handler, if any."""
    return getattr(view, "guard", None)


def shape_at(shape: BodyShape | ByVersion, version: Microversion) -> BodyShape:
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
    place: RequestPlace = BODY,
    *,
    own: bool = True,
) -> Any:
    """Return the validated data.

    Raises BadRequest in `own` words, where `place` comes first, or in the incumbent's, which begin with
    `prefix`.
    """
    chosen: Any = shape.at(version, own) if isinstance(shape, HttpField) else schema_for(shape, version, own)
    try:
        return chosen.loaded(data) if isinstance(shape, HttpField) else chosen.load(data)
    except SchemaViolation as violation:
        if own:
            raise BadValues(violation.all_findings(place)) from None
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
    # Messages have no line breaks (see render_all), but the blanks after them are part of the form.
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
        if isinstance(value, list) and len(value) > MOST_ELEMENTS:
            return counted_elements(value)
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
