"""Shapes of bodies as schemas of an OpenAPI document, each class once."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from apispec import APISpec
from marshmallow import fields

from placement.api.described import Content, Empty, OneOf, Shape
from placement.api.microversions import NEWEST, Microversion
from placement.api.schemas.base import VersionedSchema, in_version, schema_for
from placement.api.schemas.fields import AnyOf
from placement.api.schemas.json_schema import Document, json_schema


class Schemas:
    """The schemas of one document, collected in its components as they are asked for."""

    def __init__(self, spec: APISpec, version: Microversion) -> None:
        self._spec = spec
        self._version = version
        self._known: set[str] = set()
        self._responses: set[str] = set()

    def of(self, shape: Shape, version: Microversion) -> Document:
        """The schema of a body that is JSON or text."""
        if isinstance(shape, OneOf):
            return {"anyOf": [self.of(each, version) for each in shape.schemas]}
        if isinstance(shape, Content):
            return shape.schema
        if isinstance(shape, fields.Field):
            return self._part(in_version(shape, version))
        if isinstance(shape, type) and issubclass(shape, VersionedSchema):
            return self._part(schema_for(shape, version))
        assert isinstance(shape, dict)
        assert not isinstance(shape, Empty)
        return shape

    def response(self, name: str, made: Callable[[], Document]) -> str:
        """The name, under which an answer is among the components; it is made when it is not there."""
        if name not in self._responses:
            self._responses.add(name)
            self._spec.components.response(name, made())
        return name

    def _part(self, part: Any) -> Document:
        if isinstance(part, AnyOf):
            # As messages have it the items stand outside of the array, where generators of clients miss them.
            item = self._part(part.items)
            return {"anyOf": [item, {"type": "array", "items": item, "minItems": part.least}]}
        if not isinstance(part, VersionedSchema):
            return json_schema(part, self._part)
        name = self._name(part)
        if name not in self._known:
            self._known.add(name)
            self._spec.components.schema(name, self._component(part))
        return {"$ref": f"#/components/schemas/{name}"}

    def _component(self, schema: VersionedSchema) -> Document:
        described = json_schema(schema, self._part)
        said = type(schema).__doc__
        for name, field in schema.fields.items():
            since = field.metadata.get("since")
            if since is not None:
                described["properties"][name]["x-openstack"] = {"min-ver": str(since.value)}
        return {**described, **({"description": " ".join(said.split())} if said else {})}

    def _name(self, schema: VersionedSchema) -> str:
        """The name of its class; where our own routes and older ones differ, with its version."""
        kind = type(schema)
        name = kind.__name__.strip("_")
        if schema.version == self._version or not _differs(kind, self._version, schema.version):
            return name
        return f"{name}_{schema.version}"


@cache
def _differs(kind: type[VersionedSchema], one: Microversion, other: Microversion = NEWEST) -> bool:
    return json_schema(schema_for(kind, one)) != json_schema(schema_for(kind, other))
