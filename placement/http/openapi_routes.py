"""The routes of /openapi.json, a description of this service's API, and /docs, a page that shows it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import orjson
from flask import Blueprint, Response, current_app, request, send_file

from placement.common import microversions
from placement.common.microversions import NEWEST, Microversion
from placement.engine.domain.errors import BadRequest, NotFound
from placement.http import context
from placement.http.openapi import EXTENSION, Documents
from placement.http.operations import (
    Content,
    Operation,
    Parameter,
    describes,
    names_of,
    parameters,
    refuse_unknown,
    single,
)

# The page that shows the document: what is in it, and the files of Swagger UI that it needs.


DOCUMENT, PAGE_PATH = "/openapi.json", "/docs"
_START = "start.js"
_PACKAGE = "flask_swagger_ui"
_ASSETS = ("swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png")
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
<link rel="icon" type="image/png" href="docs/favicon-32x32.png">
<link rel="stylesheet" href="docs/swagger-ui.css">
<script src="docs/swagger-ui-bundle.js" defer></script>
<script src="docs/start.js" defer></script>
</head>
<body><div id="page"><a href="openapi.json">openapi.json</a></div></body>
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


def is_there() -> bool:
    """Return whether the files of Swagger UI are installed."""
    return _folder() is not None


def page_asset(name: str) -> Path | str | None:
    """Return a file that the page needs, or its text; None for other names, or if it is not installed."""
    folder = _folder()
    if name == _START:
        return _SCRIPT
    return folder / name if name in _ASSETS and folder is not None else None


def _folder() -> Path | None:
    found = find_spec(_PACKAGE)
    return Path(found.origin).parent / "dist" if found is not None and found.origin is not None else None


blueprint = Blueprint("openapi", __name__)

_MICROVERSION = Parameter("microversion", "The version of the document: `1.12`, or `latest`, the default.")
# Browsers may keep the files for so long instead of fetching them with each view of the page.
_KEPT_SECONDS = 3600
_HTML = Content(["text/html"])
_FILE = Content(["text/css", "text/javascript", "image/png"], {})


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
@describes(Operation({200: _HTML}, errors=[404]))
def docs() -> Response:
    """Return a page that shows this document; needs no token."""
    if not is_there():
        raise NotFound(MISSING)
    return _guarded(Response(HTML, content_type="text/html; charset=UTF-8"))


@blueprint.get(f"{PAGE_PATH}/<asset>")
@describes(Operation({200: _FILE}, errors=[401, 404]))
def asset(asset: str) -> Response:
    """Return a file that the page needs."""
    found = page_asset(asset)
    if found is None:
        raise NotFound("")
    if isinstance(found, Path):
        return _guarded(send_file(found, conditional=False, max_age=_KEPT_SECONDS))
    return _guarded(Response(found, content_type="text/javascript; charset=UTF-8"))


def _guarded(response: Response) -> Response:
    """Add headers by which the page asks no other server, and no other page has it in a frame."""
    response.headers["Content-Security-Policy"] = POLICY
    response.headers["Referrer-Policy"] = "no-referrer"
    return response
