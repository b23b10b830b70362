"""Shapes of bodies as schemas of an OpenAPI document, each class once, and its errors.

apispec has a plugin for schemas of marshmallow, which knows a schema by its class. But a document may have a
class in two versions: its own, and the newest one, which our own paths follow.
"""

from __future__ import annotations

from functools import cache
from http import HTTPStatus
from typing import Any

from apispec import APISpec

from placement.common.microversions import HEADER, NEWEST, Microversion
from placement.http import schemas as fields
from placement.http.operations import JSON, BodyShape, Content, OneOf

TEXT: fields.Document = {"type": "string"}
_WHY = {
    400: "The request cannot be understood, or names something that does not exist.",
    401: "Requests without a known token are refused.",
    403: "The caller may not do this.",
    404: "The path or the query names something that does not exist.",
    406: "The caller accepts no media type of the answer, or asks for an unknown microversion.",
    409: "The present state refuses the request.",
    410: "The token is too old: take a new one, and read everything again.",
    411: "The length of the body is missing.",
    413: "The body is too long.",
    415: "The body is of another media type.",
    429: "The caller has too many requests under way.",
    500: "The service failed; the failure is logged under the id of the request.",
    503: "The database cannot be reached, or there is too much to do. Nothing was changed; try again.",
}
_RETRYABLE = (429, 503)


class Schemas:
    """The schemas of one document, collected in its components as they are asked for."""

    def __init__(self, spec: APISpec, version: Microversion) -> None:
        self._spec = spec
        self._version = version
        self._known: set[str] = set()

    def of(self, shape: BodyShape, version: Microversion) -> fields.Document:
        """Return the schema of a body that is JSON or text."""
        if isinstance(shape, OneOf):
            return {"anyOf": [self.of(each, version) for each in shape.schemas]}
        if isinstance(shape, Content):
            return shape.schema
        if isinstance(shape, fields.HttpField):
            return self._part(shape.at(version))
        if isinstance(shape, type) and issubclass(shape, fields.VersionedSchema):
            return self._part(fields.schema_for(shape, version))
        assert isinstance(shape, dict)
        return shape

    def failure(self, status: int, errors: fields.Document) -> str:
        """Return the name of an error among the components, where many operations share it."""
        name = f"{errors['$ref'].rpartition('/')[2]}{status}"
        if name not in self._known:
            self._known.add(name)
            if status == HTTPStatus.UNAUTHORIZED:
                errors = {"oneOf": [errors, self.of(fields.KeystoneErrorSchema, NEWEST)]}
            self._spec.components.response(name, _failure(status, errors))
        return name

    def _part(self, part: Any) -> fields.Document:
        if isinstance(part, fields.AnyOf):
            # Messages have the items outside of the array, where generators of clients miss them.
            item = self._part(part.items)
            return {"anyOf": [item, {"type": "array", "items": item, "minItems": part.least}]}
        if isinstance(part, fields.Mapping):
            described = fields.json_schema(part, self._part)
            # Generators of clients miss what patternProperties allows.
            ((pattern, values),) = described.pop("patternProperties").items()
            return {**described, "propertyNames": {"pattern": pattern}, "additionalProperties": values}
        if not isinstance(part, fields.VersionedSchema):
            return fields.json_schema(part, self._part)
        kind = type(part)
        name = kind.__name__.strip("_").removesuffix("Schema")
        # Our own paths follow the newest version, where that differs from the one of the document.
        if part.version != self._version and _differs(kind, self._version, part.version):
            name = f"{name}_{part.version}"
        if name not in self._known:
            self._known.add(name)
            described = fields.json_schema(part, self._part)
            for member, field in part.fields.items():
                since = field.metadata.get("since")
                if since is not None:
                    described["properties"][member]["x-openstack"] = {"min-ver": str(since.value)}
            if kind.__doc__:
                described["description"] = " ".join(kind.__doc__.split())
            self._spec.components.schema(name, described)
        return {"$ref": f"#/components/schemas/{name}"}


@cache
def _differs(kind: type[fields.VersionedSchema], one: Microversion, other: Microversion) -> bool:
    return fields.json_schema(fields.schema_for(kind, one)) != fields.json_schema(
        fields.schema_for(kind, other)
    )


def _failure(status: int, errors: fields.Document) -> fields.Document:
    sent = headers()
    if status in _RETRYABLE:
        sent["Retry-After"] = {"schema": {"type": "integer"}}
    if status == HTTPStatus.UNAUTHORIZED:
        sent["WWW-Authenticate"] = {"schema": TEXT}
    text = {"schema": TEXT}
    content = {JSON: {"schema": errors}, "text/plain": text, "text/html": text}
    return {"description": _WHY[status], "headers": sent, "content": content}


def headers() -> dict[str, fields.Document]:
    """Return the headers that every answer has."""
    return {
        "x-openstack-request-id": {"$ref": "#/components/headers/RequestId"},
        HEADER: {"$ref": "#/components/headers/Microversion"},
    }
