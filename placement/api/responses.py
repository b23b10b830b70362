"""Writing responses: what media types the caller takes, JSON bodies, caching headers, locations, links."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterable, Iterator, Sequence
from email.utils import format_datetime
from functools import lru_cache
from itertools import chain
from typing import Any, TypeVar

import orjson
from flask import Response, request
from werkzeug.datastructures import MIMEAccept
from werkzeug.http import parse_accept_header

from placement.api import context
from placement.api.microversions import Feature

Item = TypeVar("Item")
# Items of a list that are turned into JSON together.
_ITEMS_AT_ONCE = 1000
# Longer answers are sent while they are being made.
_BUILT_AT_ONCE_BYTES = 4 * 2**20
# Clients send the same few headers with all of their requests.
_KEPT = 256


def now() -> datetime.datetime:
    """The present time, UTC without a zone, as the database keeps it."""
    return datetime.datetime.now(datetime.UTC).replace(tzinfo=None)


def json_response(
    body: Any, status: int = 200, *, modified: datetime.datetime | None = None, location: str | None = None
) -> Response:
    """A JSON response; `body` may be bytes that are JSON already. `modified` None means now."""
    content = body if isinstance(body, bytes) else orjson.dumps(body)
    response = Response(content, status, content_type="application/json")
    _add_headers(response, modified or now(), location)
    return response


def streamed(parts: Iterable[bytes]) -> Response:
    """A JSON response of parts that are sent as they are made, or in one if there is little of it."""
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
    """{name: [each item as rendered]}; a long list is rendered while it is sent, the bytes are the same.

    `render` is called after the request, so it must not use the request.
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
    """A response without a body; without `modified` it carries no caching headers."""
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


# Most answers of a second say the same: what they tell is of now.
@lru_cache(maxsize=_KEPT)
def _http_date(moment: datetime.datetime) -> str:
    """A UTC time without a zone as headers have it."""
    return format_datetime(moment.replace(tzinfo=datetime.UTC), usegmt=True)


def path(tail: str) -> str:
    """An absolute path of this service, including the prefix it is mounted under."""
    return f"{request.script_root}{tail}"


def newest(times: Iterable[datetime.datetime | None]) -> datetime.datetime:
    """The latest of some times, now if there are none."""
    return max((time for time in times if time is not None), default=now())


def accepted_kind() -> str:
    """The kind of answer that the caller prefers: HTML, JSON or plain text."""
    accept = _accepted(_accept())
    if accept is None:
        return "application/json"
    html, json = accept.quality("text/html"), accept.quality("application/json")
    if html > 0 and html >= json:
        return "text/html"
    return "application/json" if json > 0 else "text/plain"


def _accept() -> str:
    return request.headers.get("Accept", "")


@lru_cache(maxsize=_KEPT)
def _accepted(sent: str) -> MIMEAccept | None:
    """An Accept header, None if it admits anything: no header, the bare wildcard, or no media type in it."""
    accept = parse_accept_header(sent, MIMEAccept)
    return accept if sent.strip() != "*/*" and any("/" in kind for kind in accept.values()) else None


def admits_json() -> bool:
    """Whether the caller takes JSON."""
    return _admits_json(_accept())


@lru_cache(maxsize=_KEPT)
def _admits_json(sent: str) -> bool:
    accept = _accepted(sent)
    return accept is None or accept.quality("application/json") > 0
