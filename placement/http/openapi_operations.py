"""Routes as operations of an OpenAPI document: parameters, body, answers, errors and an example."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable
from functools import cache
from http import HTTPStatus
from pathlib import Path
from typing import Any

import orjson

from placement.common.microversions import NEWEST, OLDEST, Microversion
from placement.http import operations
from placement.http.gate import OWN_PATHS
from placement.http.openapi_shapes import TEXT, Schemas, headers
from placement.http.schemas import (
    Document,
    ErrorsSchema,
)

ViewFunction = Callable[..., Any]
OperationExample = dict[str, Any]
EXAMPLES = Path(__file__).with_name("examples.json")
PATH_PARAMETER = re.compile("<([^<>]+)>")
# The schemas of path parameters with these names.
_UUID: Document = {"type": "string", "format": "uuid"}
_PATH = {"uuid": _UUID, "consumer": _UUID}
_OF_BODIES = (411, 413, 415)
_OF_CALLERS = (401, 403, 429)


def operation_document(
    rule: str, method: str, view: ViewFunction, version: Microversion, schemas: Schemas, tag: str
) -> Document | None:
    """Return a route as an operation of the document; None if the version does not have it."""
    operation, guard = operations.operation_of(view), operations.guard_of(view)
    if operation is None or (guard is not None and not guard.exists(version)):
        return None
    extends = rule.startswith(OWN_PATHS)
    # Our own paths have no microversions and follow the newest.
    version = NEWEST if extends else version
    example = examples().get(f"{method} {rule}", {}) if version == NEWEST else {}
    in_path = _in_path(rule, operation, example)
    body = operations.shape_at(operation.body, version)
    answers = _answers(operation, version, schemas, example)
    failures = _failures(operation, guard, extends=extends, has_path=bool(in_path), has_body=body is not None)
    document: Document = {
        # The path of the root has no words.
        "operationId": "_".join(re.findall("[a-z0-9_]+", f"{method.lower()} {rule}"))
        if rule != "/"
        else "list_versions",
        "tags": [tag],
        # The first paragraph of the handler's docstring.
        "summary": (view.__doc__ or "").partition("\n\n")[0].strip(),
        # The header is among the components.
        "parameters": [
            *in_path,
            *([] if extends else ["Microversion"]),
            *_in_query(operation, version, example),
        ],
        "responses": {**answers, **_refusals(operation, failures, answers, version, schemas)},
        "x-openstack": {"min-ver": str(_since(guard)), "max-ver": str(NEWEST)},
    }
    if body is not None:
        content = {"schema": schemas.of(body, version), **_shown(example, "body")}
        contents = dict.fromkeys(operation.body_types, content)
        document["requestBody"] = {"required": operation.body_required, "content": contents}
    if guard is None:
        document["security"] = []
    return document


def _in_path(rule: str, operation: operations.Operation, example: OperationExample) -> list[Document]:
    return [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": operation.path.get(name) or _PATH.get(name) or TEXT,
            **_shown(example.get("path", {}), name),
        }
        for name in PATH_PARAMETER.findall(rule)
    ]


def _in_query(
    operation: operations.Operation, version: Microversion, example: OperationExample
) -> list[Document]:
    asked = example.get("query", {})
    return [
        {**_query(each, version), **_shown(asked, each.name)}
        for each in operation.query
        if each.exists(version)
    ]


def _since(guard: operations.RouteGuard | None) -> Microversion:
    """Return the first version that has the route."""
    features = (guard.since, guard.missing_method_below) if guard else ()
    return max((feature.value for feature in features if feature is not None), default=OLDEST)


def _answers(
    operation: operations.Operation, version: Microversion, schemas: Schemas, example: OperationExample
) -> dict[str, Document]:
    """Return what a success sends, by status."""
    found = {}
    for status, given in operation.answers.items():
        shape = operations.shape_at(given, version)
        if shape is not None:
            answered = example if status == example.get("status") else {}
            found[str(status)] = _answer(status, shape, schemas, version, answered)
    return found


def _failures(
    operation: operations.Operation,
    guard: operations.RouteGuard | None,
    *,
    extends: bool,
    has_path: bool,
    has_body: bool,
) -> set[int]:
    """Return the statuses of errors: the stated ones, and what follows from guard, path and body."""
    if operation.errors is None:
        return set()
    found = {400, 500, 503, *operation.errors}
    if guard is None:
        return found | {403, 406}
    found |= {*_OF_CALLERS}
    if has_path:
        found.add(404)
    if guard.gives_json or not extends:
        found.add(406)
    if guard.takes_json or has_body:
        found |= {*_OF_BODIES}
    return found


def _refusals(
    operation: operations.Operation,
    failures: Iterable[int],
    answers: Collection[str],
    version: Microversion,
    schemas: Schemas,
) -> dict[str, str]:
    """Return the names of the errors among the components, by status, beside what a success sends."""
    found = {}
    for status in sorted(failures):
        if str(status) not in answers:
            shape = operation.conflict if status == HTTPStatus.CONFLICT else ErrorsSchema
            found[str(status)] = schemas.failure(status, schemas.of(shape, version))
    return found


def _shown(example: OperationExample, name: str) -> Document:
    """Return the value of that name as an example; nothing if there is none."""
    return {"example": example[name]} if name in example else {}


def _answer(
    status: int, shape: Any, schemas: Schemas, version: Microversion, example: OperationExample
) -> Document:
    described: Document = {"description": HTTPStatus(status).phrase, "headers": headers()}
    if status == HTTPStatus.CREATED:
        described["headers"]["Location"] = {"schema": TEXT}
    if isinstance(shape, operations.Empty):
        return described
    content = {}
    for each in shape.shapes if isinstance(shape, operations.ByMediaType) else (shape,):
        media_types = each.media_types if isinstance(each, operations.Content) else (operations.JSON,)
        content.update({key: {"schema": schemas.of(each, version)} for key in media_types})
    if operations.JSON in content:
        content[operations.JSON] |= _shown(example, "answer")
    return {**described, "content": content}


def _query(known: operations.Parameter, version: Microversion) -> Document:
    schema = dict(known.schema)
    repeated = known.may_repeat(version)
    described: Document = {
        "name": known.name,
        "in": "query",
        "required": known.required,
        "schema": {"type": "array", "items": schema} if repeated else schema,
    }
    if known.description:
        described["description"] = known.description
    if known.explode or repeated:
        described |= {"style": "form", "explode": True}
    if known.since is not None:
        described["x-openstack"] = {"min-ver": str(known.since.value)}
    return described


@cache
def examples() -> dict[str, OperationExample]:
    """Return an example of each operation in the newest version, by method and rule, as `GET /traits/<name>`.

    It has the members path, query, body, status and answer, each only where there is one. In their order the
    requests succeed against the example clusters.
    """
    found: dict[str, OperationExample] = orjson.loads(EXAMPLES.read_bytes())
    return found
