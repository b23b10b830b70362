"""Responses: JSON bodies, caching headers, locations, and what media types the caller takes."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Sequence
from email.utils import format_datetime
from functools import lru_cache
from itertools import chain
from typing import Any, TypeVar
from wsgiref.types import WSGIEnvironment

import orjson
from flask import Response, request
from werkzeug.datastructures import Headers, MIMEAccept
from werkzeug.http import parse_accept_header

from placement.common.microversions import Feature
from placement.http.context import version

Item = TypeVar("Item")
# Items of a list that are turned into JSON together.
_ITEMS_AT_ONCE = 1000
# Longer answers are sent while they are being made.
_BUILT_AT_ONCE_BYTES = 4 * 2**20
# Clients send few different headers, and repeat them with all requests.
_KEPT = 256


class _WholeResponse(Response):
    """A response with a body in one piece, and its length among the headers."""

    def get_wsgi_headers(self, environ: WSGIEnvironment) -> Headers:
        """Return the headers themselves; werkzeug copies them to add a length, and to complete locations."""
        return super().get_wsgi_headers(environ) if "Location" in self.headers else self.headers


def json_response(
    body: Any, status: int = 200, *, modified: datetime.datetime | None = None, location: str | None = None
) -> Response:
    """Return a JSON response; `body` may be bytes that are JSON already. `modified` None means now."""
    content = body if isinstance(body, bytes) else orjson.dumps(body)
    response = _WholeResponse(content, status, content_type="application/json")
    _add_headers(response, modified or datetime.datetime.now(datetime.UTC), location)
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
    _add_headers(response, datetime.datetime.now(datetime.UTC), None)
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
    _add_headers(response, modified or datetime.datetime.now(datetime.UTC), None)
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
    if modified is not None and version() >= Feature.CACHE_HEADERS.value:
        response.headers["Cache-Control"] = "no-cache"
        response.headers["Last-Modified"] = _http_date(modified.replace(microsecond=0))
    if location is not None:
        response.headers["Location"] = f"{request.host_url.rstrip('/')}{path(location)}"


# Most answers within a second carry one time: the present.
@lru_cache(maxsize=_KEPT)
def _http_date(moment: datetime.datetime) -> str:
    """Return a time as headers have it; without a zone it is in UTC."""
    return format_datetime(moment.replace(tzinfo=datetime.UTC), usegmt=True)


def path(tail: str) -> str:
    """Return an absolute path of this service, including the prefix it is mounted under."""
    return f"{request.script_root}{tail}"


def newest(times: Iterable[datetime.datetime | None]) -> datetime.datetime | None:
    """Return the latest of some times, None if there are none."""
    return max((time for time in times if time is not None), default=None)


def admits_json() -> bool:
    """Return whether the caller takes JSON."""
    return accepted_types(request.headers.get("Accept", ""))[1]


@lru_cache(maxsize=_KEPT)
def accepted_types(sent: str) -> tuple[str, bool]:
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
