"""What a request sends: its body, JSON or manifests in YAML, which is read once, and its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from flask import current_app, request

from placement.common import documents as common_documents
from placement.engine.domain.errors import BadRequest
from placement.http.context import current, version
from placement.http.errors import HttpError
from placement.http.operations import load, operation_of, shape_at
from placement.http.query_strings import Parameters, read
from placement.http.schemas import HttpField

_YAML = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml")
_PIECE = 2**20


def json_body() -> Any:
    """Return the body as JSON. Raises BadRequest, HttpError."""
    text = received()
    common_documents.check_json(text)
    try:
        return orjson.loads(text)
    except ValueError as error:
        raise BadRequest(f"Malformed JSON: {error}") from None


def json_body_or(default: Any) -> Any:
    """Return the body as JSON, the default if it is empty. Raises BadRequest, HttpError."""
    text = current().body = received()
    return json_body() if text else default


def manifests(times: int = 1) -> list[Any]:
    """Return the documents of a JSON or YAML body, which may be `times` as large as that of one thing.

    Raises BadRequest, HttpError.
    """
    text, most = received(), times * common_documents.MOST_MANIFEST_BYTES
    if len(text) > most:
        raise HttpError(413, f"Manifests may have {most} bytes, these have {len(text)}")
    if request.mimetype == "application/json":
        return common_documents.parse_json(text)
    if request.mimetype in _YAML:
        return common_documents.parse_yaml(text, times * common_documents.MOST_MANIFEST_VALUES)
    sent = request.content_type or None
    raise HttpError(415, f"The media type {sent} is not supported, use application/json or application/yaml")


def peeked() -> Any:
    """Return the body as JSON, None if it is not JSON; the handler can read it again. Raises HttpError."""
    current().body = received()
    try:
        return json_body()
    except BadRequest:
        return None


def received() -> bytes:
    """Return the whole body; refuse a truncated one, because the beginning of YAML is YAML, too.

    Raises HttpError. Source: RFC 9112, section 8.
    """
    kept = current().body
    if kept is not None:
        return kept
    environ, most = request.environ, current_app.config["MAX_CONTENT_LENGTH"]
    try:
        is_chunked, ends = "HTTP_TRANSFER_ENCODING" in environ, environ.get("wsgi.input_terminated")
        if is_chunked and not ends:
            raise HttpError(411, "This server does not read bodies without Content-Length")
        # Bodies of HTTP/2 may have neither header.
        if not is_chunked and (environ.get("CONTENT_LENGTH") or not ends):
            text = _of_length(environ, most)
        else:
            taken = bytearray()
            # Some servers return less than was asked for before the end.
            while piece := environ["wsgi.input"].read(_PIECE):
                taken += piece
                if len(taken) > most:
                    raise HttpError(413, f"Bodies may have {most} bytes")
            text = bytes(taken)
    except HttpError:
        raise
    except Exception as error:
        # Each server has errors of its own for bodies that are not framed as HTTP has it.
        raise HttpError(400, f"The body cannot be read: {error}") from None
    return text


def _of_length(environ: Mapping[str, Any], most: int) -> bytes:
    """Return a body of the length that its head names. Raises HttpError."""
    length = int(environ.get("CONTENT_LENGTH") or 0)
    if length > most:
        raise HttpError(413, f"Bodies may have {most} bytes")
    pieces: list[bytes] = []
    left = length
    while left:
        piece = environ["wsgi.input"].read(left)
        if not piece:
            raise HttpError(400, f"The body breaks off after {length - left} of {length} bytes")
        pieces.append(piece)
        left -= len(piece)
    return b"".join(pieces)


def validated() -> Any:
    """Return the body, checked against the route's schema in the request's version. Raises BadRequest."""
    operation = operation_of(current_app.view_functions[request.endpoint or ""])
    schema = None if operation is None else shape_at(operation.body, version())
    assert isinstance(schema, (type, HttpField))
    return load(schema, version(), json_body(), own=current().is_own)


def parameters() -> Parameters:
    """Return all parameters of the request in order. Raises BadRequest for NUL, or for what is no UTF-8."""
    return read(request.query_string.decode("latin-1"))
