"""The OpenAPI document of the service, one for each microversion."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from http import HTTPStatus
from typing import Any

import orjson
from apispec import APISpec
from flask import Flask
from marshmallow import fields
from werkzeug.routing import Rule

from placement.common.microversions import HEADER, NEWEST, OLDEST, SERVICE, Feature, Microversion
from placement.http.fields import AnyOf
from placement.http.gate import OWN_PATHS, PAGES
from placement.http.operations import (
    JSON,
    ByMediaType,
    Content,
    Empty,
    OneOf,
    Operation,
    Parameter,
    RouteGuard,
    Shape,
    guard_of,
    operation_of,
    shape_at,
)
from placement.http.schemas import Document, ErrorSchema, VersionedSchema, in_version, json_schema, schema_for

# Shapes of bodies as schemas of an OpenAPI document, each class once.


class Schemas:
    """The schemas of one document, collected in its components as they are asked for."""

    def __init__(self, spec: APISpec, version: Microversion) -> None:
        self._spec = spec
        self._version = version
        self._known: set[str] = set()
        self._responses: set[str] = set()

    def of(self, shape: Shape, version: Microversion) -> Document:
        """Return the schema of a body that is JSON or text."""
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
        """Return the name of an answer among the components; make the answer if it is not there."""
        if name not in self._responses:
            self._responses.add(name)
            self._spec.components.response(name, made())
        return name

    def _part(self, part: Any) -> Document:
        if isinstance(part, AnyOf):
            # Messages have the items outside of the array, where generators of clients miss them.
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
        stated = type(schema).__doc__
        for name, field in schema.fields.items():
            since = field.metadata.get("since")
            if since is not None:
                described["properties"][name]["x-openstack"] = {"min-ver": str(since.value)}
        return {**described, **({"description": " ".join(stated.split())} if stated else {})}

    def _name(self, schema: VersionedSchema) -> str:
        """Return the name of the schema's class, with its version where versions in the document differ."""
        kind = type(schema)
        name = kind.__name__.strip("_").removesuffix("Schema")
        if schema.version == self._version or not _differs(kind, self._version, schema.version):
            return name
        return f"{name}_{schema.version}"


@cache
def _differs(kind: type[VersionedSchema], one: Microversion, other: Microversion = NEWEST) -> bool:
    return json_schema(schema_for(kind, one)) != json_schema(schema_for(kind, other))


# Routes as operations of an OpenAPI document: parameters, body, answers, errors.


PATH_PARAMETER = re.compile("<([^<>]+)>")
_OPERATIONS_TEXT: Document = {"type": "string"}
_UUID: Document = {"type": "string", "format": "uuid"}
# The schemas of path parameters with these names.
_PATH: dict[str, Document] = {"uuid": _UUID, "consumer": _UUID}
_WHY = {
    400: "The request cannot be understood, or names something that does not exist.",
    401: "Requests without a known token are refused.",
    403: "The caller may not do this.",
    404: "What the path or the query names does not exist.",
    406: "The caller takes no such answer, or asks for a microversion that the service does not have.",
    409: "The present state refuses the request.",
    410: "What the token stands for is not known any more: take a new one, and read everything again.",
    411: "The length of the body is missing.",
    413: "The body is too long.",
    415: "The body is of another media type.",
    429: "The caller has too many requests under way.",
    500: "The service failed; the failure is logged under the id of the request.",
    503: "The database cannot be reached, or there is too much to do. Nothing was changed; try again.",
}
# The middleware of Keystone refuses tokens in its own words.
_OF_KEYSTONE: Document = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {"code": {"const": 401}, "message": _OPERATIONS_TEXT, "title": _OPERATIONS_TEXT},
            "required": ["code", "message", "title"],
        }
    },
    "required": ["error"],
    "additionalProperties": False,
}
_OF_BODIES = (411, 413, 415)
_OF_CALLERS = (401, 403, 429)
_RETRYABLE = (429, 503)


def version_of(path: str, version: Microversion) -> Microversion:
    """Return the version that counts for a path: our own paths have none and follow the newest."""
    return NEWEST if path.startswith(OWN_PATHS) else version


class OperationSpec:
    """A route in one version that can be written as an operation of the document."""

    def __init__(
        self, rule: str, method: str, operation: Operation, guard: RouteGuard | None, version: Microversion
    ) -> None:
        self.path = PATH_PARAMETER.sub(r"{\1}", rule)
        self.method = method.lower()
        self._rule = rule
        self._operation = operation
        self._guard = guard
        self._extends = rule.startswith(OWN_PATHS)
        self._version = version_of(rule, version)
        self._names = PATH_PARAMETER.findall(rule)

    def document(self, schemas: Schemas, tag: str, stated: str) -> Document:
        """Return the operation."""
        body = shape_at(self._operation.body, self._version)
        document: Document = {
            "operationId": "_".join(re.findall("[a-z0-9_]+", f"{self.method} {self._rule}")),
            "tags": [tag],
            "summary": stated,
            "parameters": [*self._path_parameters(), *self._head(), *self._query()],
            "responses": self._responses(schemas, has_body=body is not None),
            "x-openstack": self._range(),
        }
        if body is not None:
            content = {"schema": schemas.of(body, self._version)}
            if self._operation.example is not None:
                content["example"] = self._operation.example
            document["requestBody"] = {
                "required": self._operation.body_required,
                "content": dict.fromkeys(self._operation.body_types, content),
            }
        if self._guard is None:
            document["security"] = []
        return document

    def _range(self) -> dict[str, str]:
        since = OLDEST
        for feature in (self._guard.since, self._guard.missing_method_below) if self._guard else ():
            since = since if feature is None else max(since, feature.value)
        return {"min-ver": str(since), "max-ver": str(NEWEST)}

    def _path_parameters(self) -> list[Document]:
        return [
            {
                "name": name,
                "in": "path",
                "required": True,
                "schema": self._operation.path.get(name) or _PATH.get(name) or _OPERATIONS_TEXT,
            }
            for name in self._names
        ]

    def _head(self) -> list[str]:
        """Return the headers, by their names among the components."""
        return [] if self._extends else ["Microversion"]

    def _query(self) -> list[Document]:
        return [_query(each, self._version) for each in self._operation.query if each.exists(self._version)]

    def _responses(self, schemas: Schemas, *, has_body: bool) -> dict[str, Document | str]:
        found: dict[str, Document | str] = {}
        for status, given in self._operation.answers.items():
            shape = shape_at(given, self._version)
            if shape is not None:
                found[str(status)] = self._answer(status, shape, schemas)
        for status in sorted(self._statuses(has_body)):
            if str(status) not in found:
                found[str(status)] = self._failure(status, schemas)
        return found

    def _failure(self, status: int, schemas: Schemas) -> str:
        """Return the name of an error among the components, where many operations share it."""
        kind = self._operation.error if status == HTTPStatus.CONFLICT else ErrorSchema
        error = schemas.of(kind, self._version)
        name = f"{error['$ref'].rpartition('/')[2]}{status}"
        return schemas.response(name, lambda: _failure(status, error))

    def _answer(self, status: int, shape: Any, schemas: Schemas) -> Document:
        described: Document = {"description": HTTPStatus(status).phrase, "headers": _headers()}
        if status == HTTPStatus.CREATED:
            described["headers"]["Location"] = {"schema": _OPERATIONS_TEXT}
        if isinstance(shape, Empty):
            return described
        content = {}
        for each in shape.shapes if isinstance(shape, ByMediaType) else (shape,):
            media_types = each.media_types if isinstance(each, Content) else (JSON,)
            content.update({key: {"schema": schemas.of(each, self._version)} for key in media_types})
        return {**described, "content": content}

    def _statuses(self, has_body: bool) -> set[int]:
        found = {400, 500, 503, *self._operation.errors}
        if self._guard is None:
            return found | {403, 406}
        found |= {*_OF_CALLERS}
        if self._names:
            found.add(404)
        if not self._extends or self._guard.gives_json:
            found.add(406)
        return found | {*_OF_BODIES} if has_body or self._guard.takes_json else found


def _query(known: Parameter, version: Microversion) -> Document:
    schema = dict(known.schema)
    repeated = known.may_repeat(version)
    described: Document = {
        "name": known.name,
        "in": "query",
        "required": known.required,
        "schema": {"type": "array", "items": schema} if repeated else schema,
    }
    if known.said:
        described["description"] = known.said
    if known.explode or repeated:
        described |= {"style": "form", "explode": True}
    if known.since is not None:
        described["x-openstack"] = {"min-ver": str(known.since.value)}
    return described


def _headers() -> dict[str, Document]:
    return {
        "x-openstack-request-id": {"$ref": "#/components/headers/RequestId"},
        HEADER: {"$ref": "#/components/headers/Microversion"},
    }


def _failure(status: int, error: Document) -> Document:
    headers = _headers()
    if status in _RETRYABLE:
        headers["Retry-After"] = {"schema": {"type": "integer"}}
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = {"schema": _OPERATIONS_TEXT}
    text = {"schema": _OPERATIONS_TEXT}
    body = {
        "type": "object",
        "properties": {"errors": {"type": "array", "minItems": 1, "items": error}},
        "required": ["errors"],
        "additionalProperties": False,
    }
    known = {"oneOf": [body, _OF_KEYSTONE]} if status == HTTPStatus.UNAUTHORIZED else body
    content = {JSON: {"schema": known}, "text/plain": text, "text/html": text}
    return {"description": _WHY[status], "headers": headers, "content": content}


def microversion_parameter(version: Microversion) -> Document:
    """Return the header by which a version is chosen."""
    return {
        "name": "OpenStack-API-Version",
        "in": "header",
        "required": False,
        "description": f"The microversion of the request. Without it the request is one of {OLDEST}.",
        "schema": _OPERATIONS_TEXT,
        "example": f"{SERVICE} {version}",
    }


OPENAPI = "3.1.0"
# Where an application keeps its documents.
EXTENSION = "placement_openapi"
_DISTRIBUTION = "placement-forest"
_TEXT = {"type": "string"}
_SAID = (
    f"Resource providers, allocations and candidates as in OpenStack Placement {OLDEST} to {NEWEST}, and "
    "below /ext/v1, without microversions, what this service adds. This document is that of microversion "
    "{version}; /openapi.json?microversion=1.12 is that of another. x-openstack says in which versions "
    "an operation, a parameter or a member is there. A method that a path does not have is 405. What is no "
    "HTTP is refused before a route is looked for (400, 408, 414, 417, 431, 501, 505). Errors come "
    "as JSON, as text or as HTML, as the header Accept prefers."
)
_SCHEMES: dict[str, dict[str, str]] = {
    "token": {"type": "apiKey", "in": "header", "name": "X-Auth-Token"},
    "bearer": {"type": "http", "scheme": "bearer"},
    "basic": {"type": "http", "scheme": "basic", "description": "The token is the password."},
}
View = Callable[..., Any]


class Documents:
    """The documents of an application, each made on its first use."""

    def __init__(self, application: Flask, *, only_header: bool) -> None:
        """Take the application; `only_header`: tokens come in X-Auth-Token only."""
        self._application = application
        self._schemes = {"token": _SCHEMES["token"]} if only_header else _SCHEMES
        # There are few versions, so the cache stays small.
        self.text = lru_cache(maxsize=None)(self._text)

    def _text(self, version: Microversion) -> bytes:
        """Return the document as JSON, without the URL of the server."""
        return orjson.dumps(self._made(version))

    def _made(self, version: Microversion) -> dict[str, Any]:
        spec = APISpec(
            title="Placement",
            version=importlib.metadata.version(_DISTRIBUTION),
            openapi_version=OPENAPI,
            info={"description": _SAID.format(version=version), "license": {"name": "Apache-2.0"}},
            security=[{name: []} for name in self._schemes],
        )
        for name, scheme in self._schemes.items():
            spec.components.security_scheme(name, scheme)
        spec.components.header("RequestId", {"description": "The id of the request.", "schema": _TEXT})
        spec.components.header("Microversion", {"description": "The version that counted.", "schema": _TEXT})
        spec.components.parameter("Microversion", "header", microversion_parameter(version))
        schemas = Schemas(spec, version)
        for rule, method, view in routes(self._application):
            operation, guard = operation_of(view), guard_of(view)
            if operation is not None and (guard is None or guard.exists(version)):
                described = OperationSpec(rule.rule, method, operation, guard, version)
                tag = rule.endpoint.partition(".")[0]
                document = described.document(schemas, tag, _summary(view))
                spec.path(described.path, operations={described.method: document})
        return spec.to_dict()


def routes(application: Flask) -> Iterator[tuple[Rule, str, View]]:
    """Yield every rule of the API with every method and its handler, in the order of paths."""
    rules = (rule for rule in application.url_map.iter_rules() if not rule.rule.startswith(PAGES))
    for rule in sorted(rules, key=lambda rule: rule.rule):
        for method in sorted(rule.methods or ()):
            yield rule, method, application.view_functions[rule.endpoint]


def versions() -> list[Microversion]:
    """Return all microversions, the oldest first."""
    return [OLDEST, *sorted(feature.value for feature in Feature)]


def _summary(view: View) -> str:
    """Return the first paragraph of the handler's docstring."""
    return (view.__doc__ or "").partition("\n\n")[0].strip()
