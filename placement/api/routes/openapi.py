"""/openapi.json, what this service understands and answers, and /docs, a page that shows it."""

from __future__ import annotations

from pathlib import Path

import orjson
from flask import Blueprint, Response, current_app, request, send_file

from placement.api import context, microversions
from placement.api.described import Content, Operation, Parameter, describes, names_of
from placement.api.microversions import NEWEST, Microversion
from placement.api.openapi import page
from placement.api.openapi.document import EXTENSION, Documents
from placement.api.queries import parameters, refuse_unknown, single
from placement.domain.errors import BadRequest, NotFound

blueprint = Blueprint("openapi", __name__)

_MICROVERSION = Parameter("microversion", "Whose document: `1.12`, or `latest`, which is meant without it.")
# By browsers, which may come for them again with each look at the page.
_KEPT_SECONDS = 3600
_HTML = Content(["text/html"])
_FILE = Content(["text/css", "text/javascript", "image/png"], {})


@blueprint.get(page.DOCUMENT)
@describes(Operation({200: {"type": "object"}}, query=[_MICROVERSION]))
def document() -> Response:
    """This document; needs no token."""
    documents: Documents = current_app.extensions[EXTENSION]
    text = documents.text(_wanted())
    servers = orjson.dumps([{"url": request.script_root or "/"}])
    return Response(b'{"servers":' + servers + b"," + text[1:], content_type="application/json")


def _wanted() -> Microversion:
    """The version in the query, else that of the header, else the newest."""
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


@blueprint.get(page.PAGE_PATH)
@describes(Operation({200: _HTML}, errors=[404]))
def docs() -> Response:
    """A page that shows this document; needs no token."""
    if not page.is_there():
        raise NotFound(page.MISSING)
    return _guarded(Response(page.HTML, content_type="text/html; charset=UTF-8"))


@blueprint.get(f"{page.PAGE_PATH}/<asset>")
@describes(Operation({200: _FILE}, errors=[401, 404]))
def asset(asset: str) -> Response:
    """A file that the page needs."""
    found = page.asset(asset)
    if found is None:
        raise NotFound("")
    if isinstance(found, Path):
        return _guarded(send_file(found, conditional=False, max_age=_KEPT_SECONDS))
    return _guarded(Response(found, content_type="text/javascript; charset=UTF-8"))


def _guarded(response: Response) -> Response:
    """Nothing on the page asks another server, and no other page has it in a frame."""
    response.headers["Content-Security-Policy"] = page.POLICY
    response.headers["Referrer-Policy"] = "no-referrer"
    return response
