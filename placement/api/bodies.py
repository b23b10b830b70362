"""Reading request bodies."""

from __future__ import annotations

from typing import Any

import orjson
from flask import request
from werkzeug.exceptions import HTTPException

from placement.api import context
from placement.api.errors import HttpError
from placement.api.schemas.base import VersionedSchema, load
from placement.domain.errors import BadRequest
from placement.services.manifests import parse_json, parse_yaml

_YAML = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml")
_PREFIX = "JSON does not validate: "


def json_body() -> Any:
    """The body as JSON. Raises BadRequest."""
    try:
        return orjson.loads(_received())
    except ValueError as error:
        raise BadRequest(f"Malformed JSON: {error}") from None


def manifests() -> list[Any]:
    """The documents of a body in JSON or YAML. Raises BadRequest, HttpError."""
    text = _received()
    if request.mimetype == "application/json":
        return parse_json(text)
    if request.mimetype in _YAML:
        return parse_yaml(text)
    sent = request.content_type or None
    raise HttpError(415, f"The media type {sent} is not supported, use application/json or application/yaml")


def peeked() -> Any:
    """The body as JSON, None if it is none, kept for the handler to read. Raises HttpError."""
    context.current().body = _received()
    try:
        return json_body()
    except BadRequest:
        return None


def _received() -> bytes:
    """The whole body; what breaks off must not pass for it, as the beginning of YAML is YAML, too.

    Raises HttpError. Source: RFC 9112, section 8.
    """
    kept = context.current().body
    if kept is not None:
        return kept
    try:
        received = request.get_data(cache=False)
    except HTTPException:
        raise
    except Exception as error:
        # Each server has errors of its own for bodies that are not framed as HTTP has it.
        raise HttpError(400, f"The body cannot be read: {error}") from None
    if len(received) < (request.content_length or 0):
        raise HttpError(400, f"The body breaks off after {len(received)} of {request.content_length} bytes")
    return received


def validated(schema: type[VersionedSchema]) -> Any:
    """The body, checked against the schema in the request's version. Raises BadRequest."""
    return load(schema, context.version(), json_body(), _PREFIX)
