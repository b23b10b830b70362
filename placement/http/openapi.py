"""The OpenAPI documents of the service, one for each microversion, at /openapi.json, and the page /docs."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Callable, Iterator
from functools import cache, lru_cache
from http import HTTPStatus
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import orjson
from apispec import APISpec
from flask import Blueprint, Flask, Response, current_app, request, send_file
from werkzeug.routing import Rule

from placement import DISTRIBUTION
from placement.common import microversions
from placement.common.microversions import HEADER, NEWEST, OLDEST, SERVICE, Feature, Microversion
from placement.engine.domain.errors import BadRequest, NotFound
from placement.http import context
from placement.http.credentials import PAGES
from placement.http.gate import OWN_PATHS
from placement.http.operations import (
    JSON,
    ByMediaType,
    Content,
    Empty,
    OneOf,
    Operation,
    Parameter,
    Shape,
    describes,
    guard_of,
    names_of,
    operation_of,
    parameters,
    refuse_unknown,
    shape_at,
    single,
)
from placement.http.schemas import (
    AnyOf,
    Document,
    ErrorsSchema,
    HttpField,
    KeystoneErrorSchema,
    Mapping,
    VersionedSchema,
    json_schema,
    schema_for,
)

_TEXT: Document = {"type": "string"}
View = Callable[..., Any]
Example = dict[str, Any]
EXAMPLES = Path(__file__).with_name("examples.json")


@cache
def examples() -> dict[str, Example]:
    """Return an example of each operation in the newest version, by method and rule, as `GET /traits/<name>`.

    It has the members path, query, body, status and answer, each only where there is one. In their order the
    requests succeed against the example clusters.
    """
    found: dict[str, Example] = orjson.loads(EXAMPLES.read_bytes())
    return found


# Shapes of bodies as schemas of an OpenAPI document, each class once.


class Schemas:
    """The schemas of one document, collected in its components as they are asked for."""

    def __init__(self, spec: APISpec, version: Microversion) -> None:
        self._spec = spec
        self._version = version
        self._known: set[str] = set()

    def of(self, shape: Shape, version: Microversion) -> Document:
        """Return the schema of a body that is JSON or text."""
        if isinstance(shape, OneOf):
            return {"anyOf": [self.of(each, version) for each in shape.schemas]}
        if isinstance(shape, Content):
            return shape.schema
        if isinstance(shape, HttpField):
            return self._part(shape.at(version))
        if isinstance(shape, type) and issubclass(shape, VersionedSchema):
            return self._part(schema_for(shape, version))
        assert isinstance(shape, dict)
        return shape

    def failure(self, status: int, errors: Document) -> str:
        """Return the name of an error among the components, where many operations share it."""
        name = f"{errors['$ref'].rpartition('/')[2]}{status}"
        if name not in self._known:
            self._known.add(name)
            if status == HTTPStatus.UNAUTHORIZED:
                errors = {"oneOf": [errors, self.of(KeystoneErrorSchema, NEWEST)]}
            self._spec.components.response(name, _failure(status, errors))
        return name

    def _part(self, part: Any) -> Document:
        if isinstance(part, AnyOf):
            # Messages have the items outside of the array, where generators of clients miss them.
            item = self._part(part.items)
            return {"anyOf": [item, {"type": "array", "items": item, "minItems": part.least}]}
        if isinstance(part, Mapping):
            described = json_schema(part, self._part)
            # Generators of clients miss what patternProperties allows.
            ((pattern, values),) = described.pop("patternProperties").items()
            return {**described, "propertyNames": {"pattern": pattern}, "additionalProperties": values}
        if not isinstance(part, VersionedSchema):
            return json_schema(part, self._part)
        kind = type(part)
        name = kind.__name__.strip("_").removesuffix("Schema")
        # Our own paths follow the newest version, where that differs from the one of the document.
        if part.version != self._version and _differs(kind, self._version, part.version):
            name = f"{name}_{part.version}"
        if name not in self._known:
            self._known.add(name)
            described = json_schema(part, self._part)
            for member, field in part.fields.items():
                since = field.metadata.get("since")
                if since is not None:
                    described["properties"][member]["x-openstack"] = {"min-ver": str(since.value)}
            if kind.__doc__:
                described["description"] = " ".join(kind.__doc__.split())
            self._spec.components.schema(name, described)
        return {"$ref": f"#/components/schemas/{name}"}


@cache
def _differs(kind: type[VersionedSchema], one: Microversion, other: Microversion) -> bool:
    return json_schema(schema_for(kind, one)) != json_schema(schema_for(kind, other))


# Routes as operations of an OpenAPI document: parameters, body, answers, errors.


PATH_PARAMETER = re.compile("<([^<>]+)>")
# The schemas of path parameters with these names.
_UUID: Document = {"type": "string", "format": "uuid"}
_PATH = {"uuid": _UUID, "consumer": _UUID}
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
_OF_BODIES = (411, 413, 415)
_OF_CALLERS = (401, 403, 429)
_RETRYABLE = (429, 503)


def _operation(
    rule: str, method: str, view: View, version: Microversion, schemas: Schemas, tag: str
) -> Document | None:
    """Return a route as an operation of the document; None if the version does not have it."""
    operation, guard = operation_of(view), guard_of(view)
    if operation is None or (guard is not None and not guard.exists(version)):
        return None
    extends = rule.startswith(OWN_PATHS)
    # Our own paths have no microversions and follow the newest.
    version = NEWEST if extends else version
    example = examples().get(f"{method} {rule}", {}) if version == NEWEST else {}
    in_path = [
        {
            "name": name,
            "in": "path",
            "required": True,
            "schema": operation.path.get(name) or _PATH.get(name) or _TEXT,
            **_shown(example.get("path", {}), name),
        }
        for name in PATH_PARAMETER.findall(rule)
    ]
    asked = example.get("query", {})
    query = [
        {**_query(each, version), **_shown(asked, each.name)}
        for each in operation.query
        if each.exists(version)
    ]
    features = (guard.since, guard.missing_method_below) if guard else ()
    since = max((feature.value for feature in features if feature is not None), default=OLDEST)
    document: Document = {
        # The path of the root has no words.
        "operationId": "_".join(re.findall("[a-z0-9_]+", f"{method.lower()} {rule}"))
        if rule != "/"
        else "list_versions",
        "tags": [tag],
        # The first paragraph of the handler's docstring.
        "summary": (view.__doc__ or "").partition("\n\n")[0].strip(),
        # The header is among the components.
        "parameters": [*in_path, *([] if extends else ["Microversion"]), *query],
        "responses": {},
        "x-openstack": {"min-ver": str(max(since, OLDEST)), "max-ver": str(NEWEST)},
    }
    for status, given in operation.answers.items():
        shape = shape_at(given, version)
        if shape is not None:
            answered = example if status == example.get("status") else {}
            document["responses"][str(status)] = _answer(status, shape, schemas, version, answered)
    body = shape_at(operation.body, version)
    failures = {400, 500, 503, *(operation.errors or ())}
    if guard is None:
        failures |= {403, 406}
    else:
        failures |= {*_OF_CALLERS, *((404,) if in_path else ())}
        failures |= {406} if guard.gives_json or not extends else set()
        failures |= {*_OF_BODIES} if guard.takes_json or body is not None else set()
    for status in sorted(failures) if operation.errors is not None else ():
        if str(status) not in document["responses"]:
            shape = operation.conflict if status == HTTPStatus.CONFLICT else ErrorsSchema
            document["responses"][str(status)] = schemas.failure(status, schemas.of(shape, version))
    if body is not None:
        content = {"schema": schemas.of(body, version), **_shown(example, "body")}
        contents = dict.fromkeys(operation.body_types, content)
        document["requestBody"] = {"required": operation.body_required, "content": contents}
    if guard is None:
        document["security"] = []
    return document


def _shown(values: Example, name: str) -> Document:
    """Return the value of that name as an example; nothing if there is none."""
    return {"example": values[name]} if name in values else {}


def _answer(status: int, shape: Any, schemas: Schemas, version: Microversion, example: Example) -> Document:
    described: Document = {"description": HTTPStatus(status).phrase, "headers": _headers()}
    if status == HTTPStatus.CREATED:
        described["headers"]["Location"] = {"schema": _TEXT}
    if isinstance(shape, Empty):
        return described
    content = {}
    for each in shape.shapes if isinstance(shape, ByMediaType) else (shape,):
        media_types = each.media_types if isinstance(each, Content) else (JSON,)
        content.update({key: {"schema": schemas.of(each, version)} for key in media_types})
    if JSON in content:
        content[JSON] |= _shown(example, "answer")
    return {**described, "content": content}


def _query(known: Parameter, version: Microversion) -> Document:
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


def _headers() -> dict[str, Document]:
    return {
        "x-openstack-request-id": {"$ref": "#/components/headers/RequestId"},
        HEADER: {"$ref": "#/components/headers/Microversion"},
    }


def _failure(status: int, errors: Document) -> Document:
    headers = _headers()
    if status in _RETRYABLE:
        headers["Retry-After"] = {"schema": {"type": "integer"}}
    if status == HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = {"schema": _TEXT}
    text = {"schema": _TEXT}
    content = {JSON: {"schema": errors}, "text/plain": text, "text/html": text}
    return {"description": _WHY[status], "headers": headers, "content": content}


OPENAPI = "3.1.0"
# Where an application keeps its documents.
EXTENSION = "placement_openapi"
_SAID = (
    f"Resource providers, allocations and candidates as in OpenStack Placement {OLDEST} to {NEWEST}, and "
    "below /ext/v1, without microversions, what this service adds. This document is that of microversion "
    "{version}; /openapi.json?microversion=1.12 is that of another. x-openstack says in which versions "
    "an operation, a parameter or a member is there. A method that a path does not have is 405. What is no "
    "HTTP is refused before a route is looked for (400, 408, 414, 417, 431, 501, 505). Errors come "
    "as JSON, as text or as HTML, as the header Accept prefers. Below "
    "/ext/v1/clusters/{{cluster}}/extender/ all of this is answered 200, in the form of the verb."
)
_SCHEMES: dict[str, dict[str, str]] = {
    "token": {
        "type": "apiKey",
        "in": "header",
        "name": "X-Auth-Token",
        "description": "`admin` in the demonstration and with noauth2; else a token of Keystone or of the "
        "file of tokens.",
    },
    "bearer": {"type": "http", "scheme": "bearer"},
    "basic": {"type": "http", "scheme": "basic", "description": "The token is the password."},
}


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
        spec = APISpec(
            title="Placement",
            version=importlib.metadata.version(DISTRIBUTION),
            openapi_version=OPENAPI,
            info={"description": _SAID.format(version=version), "license": {"name": "Apache-2.0"}},
            security=[{name: []} for name in self._schemes],
        )
        components = spec.components
        for name, scheme in self._schemes.items():
            components.security_scheme(name, scheme)
        components.header("RequestId", {"description": "The id of the request.", "schema": _TEXT})
        components.header("Microversion", {"description": "The version that counted.", "schema": _TEXT})
        chosen_by = {
            "name": "OpenStack-API-Version",
            "in": "header",
            "required": False,
            "description": f"The microversion of the request. Without it the request is one of {OLDEST}.",
            # Clients made of the document send the default.
            "schema": {**_TEXT, "default": f"{SERVICE} {version}"},
        }
        components.parameter("Microversion", "header", chosen_by)
        schemas = Schemas(spec, version)
        for rule, method, view in routes(self._application):
            tag = rule.endpoint.partition(".")[0]
            document = _operation(rule.rule, method, view, version, schemas, tag)
            if document is not None:
                path = PATH_PARAMETER.sub(r"{\1}", rule.rule)
                spec.path(path, operations={method.lower(): document})
        return orjson.dumps(spec.to_dict())


def routes(application: Flask) -> Iterator[tuple[Rule, str, View]]:
    """Yield every rule of the API with every method and its handler, in the order of paths."""
    rules = (rule for rule in application.url_map.iter_rules() if not rule.rule.startswith(PAGES))
    for rule in sorted(rules, key=lambda rule: rule.rule):
        for method in sorted(rule.methods or ()):
            yield rule, method, application.view_functions[rule.endpoint]


def versions() -> list[Microversion]:
    """Return all microversions, the oldest first."""
    return [OLDEST, *sorted(feature.value for feature in Feature)]


# The page that shows the document: what is in it, and the files of Swagger UI that it needs.


DOCUMENT, PAGE_PATH = "/openapi.json", "/docs"
_START = "start.js"
_PACKAGE = "flask_swagger_ui"
_ASSETS = ("swagger-ui.css", "swagger-ui-bundle.js")
# The page, its files and what it asks for come from this service; nothing is sent anywhere else.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
MISSING = (
    "This page needs the package flask-swagger-ui, of the extra `docs`, which is not installed here: "
    f"pip install '.[docs]'. The document itself is at {DOCUMENT}."
)
# Addresses are relative, for the service may be mounted under a prefix.
HTML = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Placement API</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" type="image/svg+xml" href="ui/static/icon.svg">
<link rel="stylesheet" href="docs/swagger-ui.css">
<link rel="stylesheet" href="ui/static/pages.css">
<script src="ui/static/theme.js"></script>
<script src="docs/swagger-ui-bundle.js" defer></script>
<script src="docs/start.js" defer></script>
</head>
<body>
<header class="top">
  <a class="brand" href="ui/">
    <img src="ui/static/icon.svg" alt="" width="22" height="22"><span>Placement</span>
  </a>
  <span class="service note">API</span>
  <a href="ui/">Back to the pages</a>
</header>
<main id="page"><a href="openapi.json">openapi.json</a></main>
</body>
</html>
"""
_SCRIPT = """window.ui = SwaggerUIBundle({
  url: "openapi.json" + window.location.search,
  dom_id: "#page",
  deepLinking: true,
  validatorUrl: null,
});
"""
# The paths that need no token, like the version document.
PATHS = frozenset({DOCUMENT, PAGE_PATH, *(f"{PAGE_PATH}/{name}" for name in (_START, *_ASSETS))})


blueprint = Blueprint("openapi", __name__)
_MICROVERSION = Parameter("microversion", "The version of the document: `1.12`, or `latest`, the default.")
# Browsers may keep the files for so long instead of fetching them with each view of the page.
_KEPT_SECONDS = 3600
_HTML = Content(["text/html"])
_FILE = Content(["text/css", "text/javascript"], {})


@blueprint.get(DOCUMENT)
@describes(Operation({200: {"type": "object"}}, query=[_MICROVERSION]))
def document() -> Response:
    """Return this document; needs no token."""
    documents: Documents = current_app.extensions[EXTENSION]
    text = documents.text(_wanted())
    servers = orjson.dumps([{"url": request.script_root or "/"}])
    return Response(b'{"servers":' + servers + b"," + text[1:], content_type="application/json")


def _wanted() -> Microversion:
    """Return the version in the query, else the header's, else the newest."""
    given = parameters()
    refuse_unknown(given, names_of([_MICROVERSION], NEWEST))
    text = single(given, _MICROVERSION.name)
    if text is None:
        return context.version() if microversions.HEADER in request.headers else NEWEST
    try:
        if "," in text or not text.strip():
            raise microversions.InvalidVersion(text)
        return microversions.negotiate(f"{microversions.SERVICE} {text}")
    except (microversions.InvalidVersion, microversions.UnsupportedVersion):
        raise BadRequest(
            f"microversion: must be {microversions.OLDEST} to {NEWEST}, or latest, not {text!r}"
        ) from None


@blueprint.get(PAGE_PATH)
@describes(Operation({200: _HTML}, errors=[404], query=[_MICROVERSION]))
def docs() -> Response:
    """Return a page that shows this document; needs no token."""
    # Raises BadRequest for a version that there is not.
    _wanted()
    if _assets() is None:
        raise NotFound(MISSING)
    return _guarded(Response(HTML, content_type="text/html; charset=UTF-8"))


@blueprint.get(f"{PAGE_PATH}/<asset>")
@describes(Operation({200: _FILE}, errors=[401, 404]))
def asset(asset: str) -> Response:
    """Return a file that the page needs."""
    folder = _assets()
    if asset == _START:
        return _guarded(Response(_SCRIPT, content_type="text/javascript; charset=UTF-8"))
    if asset not in _ASSETS or folder is None:
        raise NotFound("")
    return _guarded(send_file(folder / asset, conditional=False, max_age=_KEPT_SECONDS))


def _assets() -> Path | None:
    """Return the folder with the files of Swagger UI; None if it is not installed."""
    found = find_spec(_PACKAGE)
    return Path(found.origin).parent / "dist" if found is not None and found.origin is not None else None


def _guarded(response: Response) -> Response:
    """Add headers by which the page asks no other server, and no other page has it in a frame."""
    response.headers["Content-Security-Policy"] = POLICY
    response.headers["Referrer-Policy"] = "no-referrer"
    return response
