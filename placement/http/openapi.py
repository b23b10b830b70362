"""The OpenAPI documents of the service, one for each microversion, at /openapi.json, and the page /docs."""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterator
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import orjson
from apispec import APISpec
from flask import Blueprint, Flask, Response, request, send_file
from werkzeug.routing import Rule

from placement import DISTRIBUTION
from placement.common import microversions
from placement.common.microversions import NEWEST, OLDEST, SERVICE, Feature, Microversion
from placement.engine.domain.errors import BadRequest, NotFound, parameter
from placement.http import context
from placement.http.bodies import parameters
from placement.http.context import component
from placement.http.credentials import PAGES
from placement.http.openapi_operations import PATH_PARAMETER, ViewFunction, operation_document
from placement.http.openapi_shapes import TEXT, Schemas
from placement.http.operations import Content, Operation, Parameter, describes, names_of
from placement.http.query_strings import refuse_unknown, single

OPENAPI = "3.1.0"
_SAID = (
    f"Resource providers, allocations and candidates as in OpenStack Placement {OLDEST} to {NEWEST}, and "
    "below /ext/v1, without microversions, the routes of this service alone. This document is for "
    "microversion {version}; /openapi.json?microversion=1.12 is for another. x-openstack lists the versions "
    "that have an operation, a parameter or a member. A method that a path does not have is 405. Requests "
    "that are not HTTP get 400, 408, 414, 417, 431, 501 or 505. Errors come "
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
        components.header("RequestId", {"description": "The id of the request.", "schema": TEXT})
        components.header("Microversion", {"description": "The version of the answer.", "schema": TEXT})
        chosen_by = {
            "name": "OpenStack-API-Version",
            "in": "header",
            "required": False,
            "description": f"The microversion of the request. Without it the request is one of {OLDEST}.",
            # Clients made of the document send the default.
            "schema": {**TEXT, "default": f"{SERVICE} {version}"},
        }
        components.parameter("Microversion", "header", chosen_by)
        schemas = Schemas(spec, version)
        for rule, method, view in routes(self._application):
            tag = rule.endpoint.partition(".")[0]
            document = operation_document(rule.rule, method, view, version, schemas, tag)
            if document is not None:
                path = PATH_PARAMETER.sub(r"{\1}", rule.rule)
                spec.path(path, operations={method.lower(): document})
        return orjson.dumps(spec.to_dict())


def routes(application: Flask) -> Iterator[tuple[Rule, str, ViewFunction]]:
    """Yield every rule of the API with every method and its handler, in the order of paths."""
    rules = (rule for rule in application.url_map.iter_rules() if not rule.rule.startswith(PAGES))
    for rule in sorted(rules, key=lambda rule: rule.rule):
        for method in sorted(rule.methods or ()):
            yield rule, method, application.view_functions[rule.endpoint]


def versions() -> list[Microversion]:
    """Return all microversions, the oldest first."""
    return [OLDEST, *sorted(feature.value for feature in Feature)]


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
    documents = component(Documents)
    text = documents.text(_wanted())
    servers = orjson.dumps([{"url": request.script_root or "/"}])
    return Response(b'{"servers":' + servers + b"," + text[1:], content_type="application/json")


def _wanted() -> Microversion:
    """Return the version in the query, else the header's, else the newest."""
    given = parameters()
    refuse_unknown(given, names_of([_MICROVERSION], NEWEST), own=False)
    text = single(given, _MICROVERSION.name)
    if text is None:
        return context.version() if microversions.HEADER in request.headers else NEWEST
    try:
        if "," in text or not text.strip():
            raise microversions.InvalidVersion(text)
        return microversions.negotiate(f"{microversions.SERVICE} {text}")
    except (microversions.InvalidVersion, microversions.UnsupportedVersion):
        raise BadRequest(
            f"must be {microversions.OLDEST} to {NEWEST}, or latest, not {text!r}",
            place=parameter("microversion"),
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
