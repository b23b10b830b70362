"""One shape for every error. Source: placement-api.md, "Error object"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import orjson
from flask import Response, request
from markupsafe import escape

from placement.api import context
from placement.api.microversions import NEWEST, OLDEST, Feature
from placement.api.responses import accepted_kind
from placement.domain import errors

_STATUS = {
    errors.BadRequest: 400,
    errors.Forbidden: 403,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.Gone: 410,
    errors.Unavailable: 503,
}
_LEAD = {
    400: "The server could not comply with the request since it is either malformed or otherwise incorrect.",
    401: "This server could not verify that you are authorized to access the document you requested.",
    403: "Access was denied to this resource.",
    404: "The resource could not be found.",
    406: "The resource could not be generated that was acceptable to your browser",
    409: "There was a conflict when trying to complete your request.",
    410: "This resource is no longer available. No forwarding address is given.",
    411: "The length of the request is missing.",
    413: "The request is larger than this service takes.",
    500: "The server has either erred or is incapable of performing the requested operation.",
    503: "The service cannot answer at the moment; try again later.",
}
# The incumbent gives these no blanks at the end.
_TEMPLATED = (405, 406, 415)
_RETRY_AFTER_SECONDS = 1
_LONGEST_MESSAGE = 16_000
_NEWLINES = re.compile(r"\s*[\r\n]+\s*")


class HttpError(Exception):
    """An error of HTTP itself: authentication, versions, media types, methods."""

    def __init__(
        self,
        status: int,
        message: str = "",
        *,
        headers: dict[str, str] | None = None,
        extra: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.headers = headers or {}
        self.extra = extra or {}


class Misconfigured(Exception):
    """The service cannot work as it is configured; the message says what to change."""


class Relayed(Exception):
    """The answer of another server, which the caller gets as it is."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status)
        self.response = response


def status_of(error: errors.PlacementError) -> int:
    """The HTTP status of a PlacementError."""
    return next(status for kind, status in _STATUS.items() if isinstance(error, kind))


def unsupported_version(text: str) -> HttpError:
    """The 406 that tells clients which versions they may ask for."""
    return HttpError(
        406,
        f"Invalid microversion: Unacceptable version header: {text}",
        extra={"max_version": str(NEWEST), "min_version": str(OLDEST)},
    )


def render(
    status: int, message: str, *, code: str = errors.UNDEFINED_CODE, extra: dict[str, Any] | None = None
) -> Response:
    """The error as a response, in the form the caller accepts: HTML, JSON or plain text."""
    return render_all(status, [(code, message)], extra=extra)


def render_all(
    status: int, problems: Sequence[tuple[str, str]], *, extra: dict[str, Any] | None = None
) -> Response:
    """Several problems, (code, message) each, as one response; in JSON each is an error."""
    response = _rendered(status, problems, extra)
    if status == 503:
        response.headers["Retry-After"] = str(_RETRY_AFTER_SECONDS)
    return response


def error_document(error: errors.PlacementError, where: str) -> dict[str, Any]:
    """What is wrong with one of many things in a body, at the place `where`, as in an error response."""
    status = status_of(error)
    message = _shortened(_NEWLINES.sub(" ", f"{where}: {error}"))
    return _error(status, _LEAD[status], error.code, message, {})


def _rendered(status: int, problems: Sequence[tuple[str, str]], extra: dict[str, Any] | None) -> Response:
    title = HTTPStatus(status).phrase
    # Clients take the last line of the detail for the message, so it must not contain a line break.
    problems = [(code, _shortened(_NEWLINES.sub(" ", message))) for code, message in problems]
    message = "; ".join(message for _, message in problems)
    kind = accepted_kind()
    lead = _lead(status, kind)
    if kind == "text/html":
        body = (
            f"<html>\n <head>\n  <title>{status} {title}</title>\n </head>\n <body>\n"
            f"  <h1>{status} {title}</h1>\n  {escape(lead)}<br /><br />\n{escape(message)}\n </body>\n</html>"
        )
        return Response(body, status, content_type="text/html; charset=UTF-8")
    if kind == "text/plain":
        body = f"{status} {title}\n\n{_detail(status, lead, message)}"
        return Response(body, status, content_type="text/plain; charset=UTF-8")
    listed = [_error(status, lead, code, message, extra or {}) for code, message in problems]
    return Response(orjson.dumps({"errors": listed}), status, content_type="application/json")


def _lead(status: int, kind: str) -> str:
    """What the status means, in the incumbent's words with its odd parenthesis."""
    if status == 405:
        return f"The method {request.method} is not allowed for this resource. "
    if status == 406:
        return f"{_LEAD[status]} (content of type {kind}. "
    if status == 415:
        return f"The request media type {request.content_type} is not supported by this server. "
    # As our own server says it, which refuses some requests before they get here.
    return _LEAD.get(status, HTTPStatus(status).phrase)


def _detail(status: int, lead: str, message: str) -> str:
    return f"{lead}\n\n {message}" + ("" if status in _TEMPLATED else "  ")


def _shortened(message: str) -> str:
    # It may repeat what was sent.
    return message if len(message) <= _LONGEST_MESSAGE else f"{message[:_LONGEST_MESSAGE]} ..."


def _error(status: int, lead: str, code: str, message: str, extra: dict[str, Any]) -> dict[str, Any]:
    error: dict[str, Any] = {
        "status": status,
        "title": HTTPStatus(status).phrase,
        "detail": _detail(status, lead, message),
        "request_id": context.current().request_id,
    }
    version = context.current().version
    if version is not None and version.offers(Feature.ERROR_CODES):
        error["code"] = code
    return {**error, **extra}
