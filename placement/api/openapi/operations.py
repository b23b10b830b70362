"""Routes as operations of an OpenAPI document: parameters, body, answers, errors."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import Any

from placement.api.described import (
    JSON,
    ByMediaType,
    Content,
    Empty,
    Guard,
    Operation,
    Parameter,
    shape_at,
)
from placement.api.microversions import HEADER, NEWEST, OLDEST, SERVICE, Microversion
from placement.api.openapi.schemas import Schemas
from placement.api.route_guard import OWN_PATHS
from placement.api.schemas.answers.base import Error
from placement.api.schemas.json_schema import Document

PATH_PARAMETER = re.compile("<([^<>]+)>")
_TEXT: Document = {"type": "string"}
_UUID: Document = {"type": "string", "format": "uuid"}
# What stands for these names in paths.
_PATH: dict[str, Document] = {"uuid": _UUID, "consumer": _UUID}
_WHY = {
    400: "The request cannot be understood, or names something that does not exist.",
    401: "Without a token that is known, nobody is served.",
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
            "properties": {"code": {"const": 401}, "message": _TEXT, "title": _TEXT},
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
    """The version that counts for a path: what is our own has none, and is as the newest is."""
    return NEWEST if path.startswith(OWN_PATHS) else version


class Described:
    """One route in one version."""

    def __init__(
        self, rule: str, method: str, operation: Operation, guard: Guard | None, version: Microversion
    ) -> None:
        self.path = PATH_PARAMETER.sub(r"{\1}", rule)
        self.method = method.lower()
        self._rule = rule
        self._operation = operation
        self._guard = guard
        self._extends = rule.startswith(OWN_PATHS)
        self._version = version_of(rule, version)
        self._names = PATH_PARAMETER.findall(rule)

    def document(self, schemas: Schemas, tag: str, said: str) -> Document:
        """The operation."""
        body = shape_at(self._operation.body, self._version)
        document: Document = {
            "operationId": "_".join(re.findall("[a-z0-9_]+", f"{self.method} {self._rule}")),
            "tags": [tag],
            "summary": said,
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
                "schema": self._operation.path.get(name) or _PATH.get(name) or _TEXT,
            }
            for name in self._names
        ]

    def _head(self) -> list[str]:
        """Headers, by their names among the components."""
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
        """The name of an error, which many operations have, among the components."""
        kind = self._operation.error if status == HTTPStatus.CONFLICT else Error
        error = schemas.of(kind, self._version)
        name = f"{error['$ref'].rpartition('/')[2]}{status}"
        return schemas.response(name, lambda: _failure(status, error))

    def _answer(self, status: int, shape: Any, schemas: Schemas) -> Document:
        described: Document = {"description": HTTPStatus(status).phrase, "headers": _headers()}
        if status == HTTPStatus.CREATED:
            described["headers"]["Location"] = {"schema": _TEXT}
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
        headers["WWW-Authenticate"] = {"schema": _TEXT}
    text = {"schema": _TEXT}
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
    """The header by which a version is chosen."""
    return {
        "name": "OpenStack-API-Version",
        "in": "header",
        "required": False,
        "description": f"The microversion of the request. Without it the request is one of {OLDEST}.",
        "schema": _TEXT,
        "example": f"{SERVICE} {version}",
    }
