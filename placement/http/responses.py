"""Writing responses: what media types the caller takes, JSON bodies, caching headers, locations, links."""

from __future__ import annotations

import datetime
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from email.utils import format_datetime
from functools import lru_cache
from http import HTTPStatus
from itertools import chain
from typing import Any, TypeVar

import orjson
from flask import Response, request
from markupsafe import escape
from werkzeug.datastructures import MIMEAccept
from werkzeug.http import parse_accept_header

from placement.common.microversions import Feature
from placement.engine.domain import errors
from placement.http import context

Item = TypeVar("Item")
# Items of a list that are turned into JSON together.
_ITEMS_AT_ONCE = 1000
# Longer answers are sent while they are being made.
_BUILT_AT_ONCE_BYTES = 4 * 2**20
# Clients send few different headers, and repeat them with all requests.
_KEPT = 256


def now() -> datetime.datetime:
    """Return the present time, UTC without a zone, as the database keeps it."""
    return datetime.datetime.now(datetime.UTC).replace(tzinfo=None)


def json_response(
    body: Any, status: int = 200, *, modified: datetime.datetime | None = None, location: str | None = None
) -> Response:
    """Return a JSON response; `body` may be bytes that are JSON already. `modified` None means now."""
    content = body if isinstance(body, bytes) else orjson.dumps(body)
    response = Response(content, status, content_type="application/json")
    _add_headers(response, modified or now(), location)
    return response


def streamed(parts: Iterable[bytes]) -> Response:
    """Return a JSON response of parts that are sent as they are made, or at once if there is little of it."""
    source = iter(parts)
    first: list[bytes] = []
    size = 0
    for part in source:
        first.append(part)
        size += len(part)
        if size > _BUILT_AT_ONCE_BYTES:
            break
    else:
        return json_response(b"".join(first))
    response = Response(chain(first, source), content_type="application/json")
    _add_headers(response, now(), None)
    return response


def list_response(
    name: str,
    items: Sequence[Item],
    render: Callable[[Item], Any],
    *,
    modified: datetime.datetime | None = None,
) -> Response:
    """Return {name: [each item as rendered]} as JSON; a long list is rendered while it is sent.

    The bytes are equal in both cases. `render` is called after the request, so it must not use the request.
    """
    if len(items) <= _ITEMS_AT_ONCE:
        return json_response({name: [render(item) for item in items]}, modified=modified)
    response = Response(_pieces(name, items, render), content_type="application/json")
    _add_headers(response, modified or now(), None)
    return response


def _pieces(name: str, items: Sequence[Item], render: Callable[[Item], Any]) -> Iterator[bytes]:
    before = b"{" + orjson.dumps(name) + b":["
    for start in range(0, len(items), _ITEMS_AT_ONCE):
        piece = orjson.dumps([render(item) for item in items[start : start + _ITEMS_AT_ONCE]])
        yield before + piece[1:-1]
        before = b","
    yield b"]}"


def empty_response(
    status: int = 204, *, modified: datetime.datetime | None = None, location: str | None = None
) -> Response:
    """Return a response without a body; without `modified` it carries no caching headers."""
    response = Response(status=status)
    response.headers.pop("Content-Type", None)
    response.headers["Content-Length"] = "0"
    _add_headers(response, modified, location)
    return response


def _add_headers(response: Response, modified: datetime.datetime | None, location: str | None) -> None:
    if modified is not None and context.offers(Feature.CACHE_HEADERS):
        response.headers["Cache-Control"] = "no-cache"
        response.headers["Last-Modified"] = _http_date(modified.replace(microsecond=0))
    if location is not None:
        response.headers["Location"] = f"{request.host_url.rstrip('/')}{path(location)}"


# Most answers within a second carry one time: the present.
@lru_cache(maxsize=_KEPT)
def _http_date(moment: datetime.datetime) -> str:
    """Return a UTC time without a zone as headers have it."""
    return format_datetime(moment.replace(tzinfo=datetime.UTC), usegmt=True)


def path(tail: str) -> str:
    """Return an absolute path of this service, including the prefix it is mounted under."""
    return f"{request.script_root}{tail}"


def newest(times: Iterable[datetime.datetime | None]) -> datetime.datetime:
    """Return the latest of some times, now if there are none."""
    return max((time for time in times if time is not None), default=now())


def admits_json() -> bool:
    """Return whether the caller takes JSON."""
    return _accepted(request.headers.get("Accept", ""))[1]


@lru_cache(maxsize=_KEPT)
def _accepted(sent: str) -> tuple[str, bool]:
    """Return what an Accept header prefers of HTML, JSON and plain text, and whether it admits JSON.

    It admits anything if it is absent, `*/*`, or names no media type.
    """
    accept = parse_accept_header(sent, MIMEAccept)
    if sent.strip() == "*/*" or not any("/" in kind for kind in accept.values()):
        return "application/json", True
    html, json = accept.quality("text/html"), accept.quality("application/json")
    if html > 0 and html >= json:
        return "text/html", json > 0
    return ("application/json", True) if json > 0 else ("text/plain", False)


# One shape for every error. Source: placement-api.md, "Error object".


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
    """Return the HTTP status of a PlacementError."""
    return next(status for kind, status in _STATUS.items() if isinstance(error, kind))


def render(
    status: int, message: str, *, code: str = errors.UNDEFINED_CODE, extra: dict[str, Any] | None = None
) -> Response:
    """Return the error as a response, in the form the caller accepts: HTML, JSON or plain text."""
    return render_all(status, [(code, message)], extra=extra)


def render_all(
    status: int, problems: Sequence[tuple[str, str]], *, extra: dict[str, Any] | None = None
) -> Response:
    """Return several problems, (code, message) each, as one response; in JSON each is an error."""
    title = HTTPStatus(status).phrase
    problems = [(code, _on_one_line(message)) for code, message in problems]
    message = "; ".join(message for _, message in problems)
    kind, _ = _accepted(request.headers.get("Accept", ""))
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
        listed = [_error(status, lead, code, message, extra or {}) for code, message in problems]
        response = Response(orjson.dumps({"errors": listed}), status, content_type="application/json")
    if status == 503:
        response.headers["Retry-After"] = str(_RETRY_AFTER_SECONDS)
    return response


def error_document(error: errors.PlacementError, where: str) -> dict[str, Any]:
    """Return the error of one of many things in a body, at the place `where`, as in an error response."""
    status = status_of(error)
    return _error(status, _LEAD[status], error.code, _on_one_line(f"{where}: {error}"), {})


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
    return f"{lead}\n\n {message}" + ("" if status in _TEMPLATED else "  ")


def _error(status: int, lead: str, code: str, message: str, extra: dict[str, Any]) -> dict[str, Any]:
    at = context.current()
    error: dict[str, Any] = {
        "status": status,
        "title": HTTPStatus(status).phrase,
        "detail": _detail(status, lead, message),
        "request_id": at.request_id,
    }
    if at.version is not None and at.version.offers(Feature.ERROR_CODES):
        error["code"] = code
    return {**error, **extra}
