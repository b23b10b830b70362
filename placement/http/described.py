"""Descriptions of routes, from which the OpenAPI document is made and requests are checked."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from marshmallow import fields

from placement.http.microversions import Feature, Microversion
from placement.http.schemas import Document, ErrorSchema, VersionedSchema, json_schema

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


Shape = type[VersionedSchema] | fields.Field[Any] | Document | OneOf | Content | ByMediaType | Empty | None


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
    said: str
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
    route is guarded and what it takes. `path`: schemas of path parameters that differ from the usual ones.
    `body_types`: its media types. `example`: a body that is understood. `error`: the schema of a conflict.
    """

    answers: Mapping[int, Shape | ByVersion]
    errors: Sequence[int] = ()
    query: Sequence[Parameter] = ()
    path: Mapping[str, Document] = field(default_factory=dict)
    body: Shape | ByVersion = None
    body_types: Sequence[str] = (JSON,)
    body_required: bool = True
    example: Any = None
    error: type[VersionedSchema] = ErrorSchema


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
