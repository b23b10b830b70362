"""Reading request bodies."""

from __future__ import annotations

from typing import Any

import orjson
from flask import current_app, request
from marshmallow import fields
from werkzeug.exceptions import HTTPException

from placement.api import context
from placement.api.described import operation_of, shape_at
from placement.api.errors import HttpError
from placement.api.schemas.base import VersionedSchema, in_version, load, load_field
from placement.domain.errors import BadRequest
from placement.services.bounds import MOST_MANIFEST_BYTES, MOST_MANIFEST_VALUES, check_json
from placement.services.documents import parse_json, parse_yaml

_YAML = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml")
_PIECE = 2**20
BODY_PREFIX = "JSON does not validate: "


def json_body() -> Any:
    """The body as JSON. Raises BadRequest, HttpError."""
    return _parsed(received())


def json_body_or(default: Any) -> Any:
    """The body as JSON, the default if it is empty. Raises BadRequest, HttpError."""
    text = received()
    return _parsed(text) if text else default


def _parsed(text: bytes) -> Any:
    check_json(text)
    try:
        return orjson.loads(text)
    except ValueError as error:
        raise BadRequest(f"Malformed JSON: {error}") from None


def manifests(times: int = 1) -> list[Any]:
    """The documents of a body in JSON or YAML, which may be so many times as large as that of one thing.

    Raises BadRequest, HttpError.
    """
    text, most = received(), times * MOST_MANIFEST_BYTES
    if len(text) > most:
        raise HttpError(413, f"Manifests may have {most} bytes, these have {len(text)}")
    if request.mimetype == "application/json":
        return parse_json(text)
    if request.mimetype in _YAML:
        return parse_yaml(text, times * MOST_MANIFEST_VALUES)
    sent = request.content_type or None
    raise HttpError(415, f"The media type {sent} is not supported, use application/json or application/yaml")


def peeked() -> Any:
    """The body as JSON, None if it is no JSON; the handler can read it again. Raises HttpError."""
    context.current().body = received()
    try:
        return json_body()
    except BadRequest:
        return None


def received() -> bytes:
    """The whole body. One that breaks off is refused, for the beginning of YAML is YAML, too.

    Raises HttpError. Source: RFC 9112, section 8.
    """
    kept = context.current().body
    if kept is not None:
        return kept
    try:
        chunked = "HTTP_TRANSFER_ENCODING" in request.environ
        text = _of_unknown_length() if chunked else request.get_data(cache=False)
    except (HTTPException, HttpError):
        raise
    except Exception as error:
        # Each server has errors of its own for bodies that are not framed as HTTP has it.
        raise HttpError(400, f"The body cannot be read: {error}") from None
    if len(text) < (request.content_length or 0):
        raise HttpError(400, f"The body breaks off after {len(text)} of {request.content_length} bytes")
    return text


def _of_unknown_length() -> bytes:
    if not request.environ.get("wsgi.input_terminated"):
        raise HttpError(411, "This server does not read bodies without Content-Length")
    most = current_app.config["MAX_CONTENT_LENGTH"]
    text = bytearray()
    # Some servers give less than was asked for before the end.
    while piece := request.environ["wsgi.input"].read(_PIECE):
        text += piece
        if len(text) > most:
            raise HttpError(413, f"Bodies may have {most} bytes")
    return bytes(text)


def validated() -> Any:
    """The body, checked against what the route says it takes in the request's version. Raises BadRequest."""
    operation = operation_of(current_app.view_functions[request.endpoint or ""])
    version = context.version()
    schema = None if operation is None else shape_at(operation.body, version)
    if isinstance(schema, fields.Field):
        return load_field(in_version(schema, version), json_body(), BODY_PREFIX)
    assert isinstance(schema, type)
    assert issubclass(schema, VersionedSchema)
    return load(schema, version, json_body(), BODY_PREFIX)
