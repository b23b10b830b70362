"""Errors as responses, all in one shape.

The place that raises chooses the words, ours or the incumbent's: by `own`, or since only one of them gets
there. The shape follows from the path (`is_own`): parts of a detail, members of an error, suggestions.
Source: placement-api.md, "Error object".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Any

import orjson
from flask import Response, request
from markupsafe import escape

from placement.common.microversions import Feature
from placement.engine.domain import errors
from placement.engine.domain.identifiers import meant
from placement.http.answers import accepted_types
from placement.http.context import current, is_own
from placement.http.suggestions import meant_by

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
# Placement ends these without blanks.
_TEMPLATED = (405, 406, 415)
_RETRY_AFTER_SECONDS = 1
_LONGEST_MESSAGE = 16_000
_LONGEST_FIELD = 1000
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
    """An error of the configuration with which the service cannot work; the message says what to change."""


class Relayed(Exception):
    """An answer of another server that the caller gets as it is."""

    def __init__(self, response: Response) -> None:
        super().__init__(response.status)
        self.response = response


def status_of(error: errors.PlacementError) -> int:
    """Return the HTTP status of a PlacementError; 503 where another server is why."""
    return next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 503)


def render(status: int, message: str, *, extra: dict[str, Any] | None = None) -> Response:
    """Return the error as a response, in the form the caller accepts: HTML, JSON or plain text."""
    return render_all(status, [errors.Finding(message)], extra=extra)


def render_error(error: errors.PlacementError, *, extra: dict[str, Any] | None = None) -> Response:
    """Return an error as a response; in our own words each finding is an error of its own."""
    findings = [replace(each, code=each.code or error.code) for each in error.shown]
    if not is_own():
        findings = [errors.Finding(str(error), code=error.code)]
    return render_all(status_of(error), findings, extra=extra)


def render_all(
    status: int, findings: Sequence[errors.Finding], *, extra: dict[str, Any] | None = None
) -> Response:
    """Return several findings as one response; in JSON each is an error."""
    title = HTTPStatus(status).phrase
    problems = [_AnsweredFinding.of(finding) for finding in findings]
    message = current().problem = "; ".join(each.message for each in problems)
    kind, _ = accepted_types(request.headers.get("Accept", ""))
    lead = _lead(status, kind)
    if kind == "text/html":
        body = (
            f"<html>\n <head>\n  <title>{status} {title}</title>\n </head>\n <body>\n"
            f"  <h1>{status} {title}</h1>\n  {escape(lead)}<br /><br />\n{escape(message)}\n </body>\n</html>"
        )
        response = Response(body, status, content_type="text/html; charset=UTF-8")
    elif kind == "text/plain":
        body = f"{status} {title}\n\n{_detail(status, lead, message)}"
        response = Response(body, status, content_type="text/plain; charset=UTF-8")
    else:
        listed = [_error(status, lead, each, extra or {}) for each in problems]
        response = Response(orjson.dumps({"errors": listed}), status, content_type="application/json")
    if status == 503:
        response.headers["Retry-After"] = str(_RETRY_AFTER_SECONDS)
    return response


def problem(status: int) -> str:
    """Return the message of the error that was rendered, else what its status means, as one sentence."""
    return current().problem or _LEAD.get(status, HTTPStatus(status).phrase)


def error_document(error: errors.PlacementError, place: errors.RequestPlace) -> dict[str, Any]:
    """Return the error of one of many things in a body, at its place, as in an error response."""
    status, (finding, *more) = status_of(error), error.within(place).findings
    if more:
        finding = errors.Finding(str(error), place)
    return _error(
        status, _LEAD[status], _AnsweredFinding.of(replace(finding, code=finding.code or error.code)), {}
    )


@dataclass(frozen=True, slots=True)
class _AnsweredFinding:
    """A finding as it is answered: the message on one line, with the names that were perhaps meant."""

    finding: errors.Finding
    message: str
    suggestion: str | None = None

    @classmethod
    def of(cls, finding: errors.Finding) -> _AnsweredFinding:
        message = _on_one_line(str(finding))
        names = meant_by(finding) if is_own() else []
        if not names:
            return cls(finding, message)
        return cls(finding, message.rstrip(".") + meant(names), names[0])


def _on_one_line(message: str) -> str:
    """Return a message that clients take whole, the last line of the detail; it may repeat what was sent."""
    message = _NEWLINES.sub(" ", message)
    return message if len(message) <= _LONGEST_MESSAGE else f"{message[:_LONGEST_MESSAGE]} ..."


def _lead(status: int, kind: str) -> str:
    """Return what the status means, in Placement's words with its odd parenthesis."""
    if status == 405:
        return f"The method {request.method} is not allowed for this resource. "
    if status == 406:
        return f"{_LEAD[status]} (content of type {kind}. "
    if status == 415:
        return f"The request media type {request.content_type} is not supported by this server. "
    # Our own server, which refuses some requests before they get here, uses these words, too.
    return _LEAD.get(status, HTTPStatus(status).phrase)


def _detail(status: int, lead: str, message: str) -> str:
    if is_own():
        return message or lead
    return f"{lead}\n\n {message}" + ("" if status in _TEMPLATED else "  ")


def _error(status: int, lead: str, problem: _AnsweredFinding, extra: dict[str, Any]) -> dict[str, Any]:
    at, code = current(), problem.finding.code or errors.UNDEFINED_CODE
    error: dict[str, Any] = {
        "status": status,
        "title": HTTPStatus(status).phrase,
        "detail": _detail(status, lead, problem.message),
        "request_id": at.request_id,
    }
    if at.is_own:
        is_known = code != errors.UNDEFINED_CODE
        error["code"] = code if is_known else f"placement.{HTTPStatus(status).name.lower()}"
        field = problem.finding.place.field
        # A pointer that is cut would lead elsewhere; keys of a body may have any length.
        error["field"] = field if 0 < len(field) <= _LONGEST_FIELD else None
        error["suggestion"] = problem.suggestion
    elif at.version is not None and at.version.offers(Feature.ERROR_CODES):
        error["code"] = code
    return {**error, **extra}
