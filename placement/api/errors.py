"""One shape for every error. Source: Placement API, error object."""

from __future__ import annotations

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

import orjson
from flask import Response, request
from markupsafe import escape
from werkzeug.datastructures import MIMEAccept

from placement.api import context
from placement.api.microversions import NEWEST, OLDEST, Feature
from placement.domain import errors

_STATUS = {
    errors.BadRequest: 400,
    errors.Forbidden: 403,
    errors.NotFound: 404,
    errors.Conflict: 409,
    errors.Unavailable: 503,
}
_LEAD = {
    400: "The server could not comply with the request since it is either malformed or otherwise incorrect.",
    401: "This server could not verify that you are authorized to access the document you requested.",
    403: "Access was denied to this resource.",
    404: "The resource could not be found.",
    406: "The resource could not be generated that was acceptable to your browser.",
    409: "There was a conflict when trying to complete your request.",
    411: "The length of the request is missing.",
    413: "The request is larger than this service takes.",
    415: "The request media type is not supported by this service.",
    429: "Too many requests are being answered; try again later.",
    500: "The service met an error it did not expect.",
    503: "The service cannot answer at the moment; try again later.",
}
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


def status_of(error: errors.PlacementError) -> int:
    """The HTTP status of an error of ours."""
    return next(status for kind, status in _STATUS.items() if isinstance(error, kind))


def unsupported_version(text: str) -> HttpError:
    """The 406 that tells clients what they may ask for."""
    return HttpError(
        406,
        f"Unacceptable version header: {text}",
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
    """Everything that is wrong, (code, message) each, as one response; JSON has one error for each."""
    title = HTTPStatus(status).phrase
    # Clients take the last line of the detail for the message, so it must not contain a line break.
    problems = [(code, _shortened(_NEWLINES.sub(" ", message))) for code, message in problems]
    message = "; ".join(message for _, message in problems)
    lead = _LEAD.get(status, "")
    if status == 405:
        lead = f"The method {request.method} is not allowed for this resource."
    kind = _accepted_kind()
    if kind == "text/html":
        body = (
            f"<html>\n <head>\n  <title>{status} {title}</title>\n </head>\n <body>\n"
            f"  <h1>{status} {title}</h1>\n  {escape(lead)}<br /><br />\n{escape(message)}\n </body>\n</html>"
        )
        return Response(body, status, content_type="text/html; charset=UTF-8")
    if kind == "text/plain":
        body = f"{status} {title}\n\n{lead}\n\n{message}"
        return Response(body, status, content_type="text/plain; charset=UTF-8")
    listed = [_error(status, lead, code, message, extra or {}) for code, message in problems]
    return Response(orjson.dumps({"errors": listed}), status, content_type="application/json")


def _shortened(message: str) -> str:
    # It may repeat what was sent.
    return message if len(message) <= _LONGEST_MESSAGE else f"{message[:_LONGEST_MESSAGE]} ..."


def _error(status: int, lead: str, code: str, message: str, extra: dict[str, Any]) -> dict[str, Any]:
    error: dict[str, Any] = {
        "status": status,
        "title": HTTPStatus(status).phrase,
        "detail": f"{lead}\n\n {message}  ",
        "request_id": context.current().request_id,
    }
    version = context.current().version
    if version is not None and version.offers(Feature.ERROR_CODES):
        error["code"] = code
    return {**error, **extra}


def _accepted_kind() -> str:
    accept = _accepted()
    if accept is None:
        return "application/json"
    html, json = accept.quality("text/html"), accept.quality("application/json")
    if html > 0 and html >= json:
        return "text/html"
    return "application/json" if json > 0 else "text/plain"


def _accepted() -> MIMEAccept | None:
    """What the caller takes, None for anything: no header, the bare wildcard, or no media type in it."""
    accept = request.accept_mimetypes
    if request.headers.get("Accept", "").strip() == "*/*" or not any("/" in kind for kind in accept.values()):
        return None
    return accept


def admits_json() -> bool:
    """Whether the caller takes JSON."""
    accept = _accepted()
    return accept is None or accept.quality("application/json") > 0
