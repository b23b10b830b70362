"""/ext/v1/audit: who changed what; /ext/v1/events: what changed since."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from flask import Blueprint, Response, request

from placement.api.context import current, use_cases
from placement.api.described import ByMediaType, Content, Operation, Parameter, names_of
from placement.api.errors import HttpError
from placement.api.microversions import NEWEST
from placement.api.queries import (
    LARGEST_LONG_ID,
    LIMIT,
    ROW_ID,
    Parameters,
    page_size,
    page_start,
    parameters,
    refuse_unknown,
    single,
)
from placement.api.rendering.audit import audit_body, news_body, stream_pieces
from placement.api.responses import admits_json, json_response
from placement.api.route_guard import route
from placement.api.schemas.answers import audit as schemas
from placement.api.schemas.answers.audit import AuditEvents
from placement.domain import deadline
from placement.domain.audit import Action, AuditFilter, Kind
from placement.domain.errors import BadRequest, PlacementError
from placement.domain.grammar import parse_positive
from placement.services.auditing.events import Events, News

blueprint = Blueprint("audit", __name__)
_STREAM = "text/event-stream"
_FILTERS = {
    "user_id": "user_id",
    "project_id": "project_id",
    "request_id": "request_id",
    "consumer_uuid": "consumer_id",
}
_QUERY = (
    Parameter("user_id", "Changes by this user."),
    Parameter("project_id", "Changes by users in this project."),
    Parameter("request_id", "Changes of this request, by either of its ids."),
    Parameter("target", "Changes of the provider, consumer, node, pod or other thing of this name."),
    Parameter("consumer_uuid", "Changes of what this consumer holds."),
    Parameter("action", "Changes of this kind.", {"type": "string", "enum": list(Action)}),
    Parameter("target_type", "Changes of such things.", {"type": "string", "enum": list(Kind)}),
    Parameter("since", "Changes from this time of ISO 8601 on, UTC unless it says otherwise."),
    Parameter("until", "Changes before this time."),
    LIMIT,
    Parameter("marker", "The `next` of the page before.", {**ROW_ID, "maximum": LARGEST_LONG_ID}),
)
_USUAL_WAIT_SECONDS = 20
# Shorter than requests, proxies and a worker that stops wait.
_LONGEST_WAIT_SECONDS = 25
_SIGN_OF_LIFE_SECONDS = 10
_FOLLOWED = (
    Parameter(
        "since",
        "The token of the answer before; without one there are no events, but a token. "
        "Of a stream the header `Last-Event-ID` comes first.",
    ),
    Parameter(
        "wait",
        f"How many seconds to wait for changes; {_USUAL_WAIT_SECONDS} if it says nothing, "
        f"{_LONGEST_WAIT_SECONDS} at most.",
        {"type": "integer", "minimum": 0},
    ),
)
# Our own server has threads for them (operations.http.limits); of others we only know that they have some.
_MOST_WAITING, _MOST_WAITING_ELSEWHERE = 8, 2


@route(
    blueprint,
    "/ext/v1/audit",
    "GET",
    "placement:audit:list",
    gives_json=True,
    described=Operation({200: AuditEvents}, query=_QUERY),
)
def audit() -> Response:
    """Changes that were made, the newest first."""
    given = parameters()
    refuse_unknown(given, names_of(_QUERY, NEWEST))
    texts: dict[str, Any] = {name: single(given, key) for key, name in _FILTERS.items()}
    target = single(given, "target")
    wanted = AuditFilter(
        **texts,
        targets=() if target is None else (target,),
        action=_one_of(given, "action", [str(action) for action in Action]),
        kind=_one_of(given, "target_type", [str(kind) for kind in Kind]),
        since=_time(given, "since"),
        until=_time(given, "until"),
    )
    # The newest come first: the first page has nothing before it.
    before = page_start(given, "marker", LARGEST_LONG_ID) or None
    return json_response(audit_body(use_cases().audit.listed(wanted, before, page_size(given))))


@route(
    blueprint,
    "/ext/v1/events",
    "GET",
    "placement:events:list",
    described=Operation(
        {200: ByMediaType([schemas.News, Content([_STREAM])])}, errors=[404, 406, 410], query=_FOLLOWED
    ),
)
def events() -> Response:
    """Providers and consumers that changed since a token, as JSON or as Server-Sent Events."""
    given = parameters()
    refuse_unknown(given, names_of(_FOLLOWED, NEWEST))
    followed = use_cases().events
    wait = _wait(given)
    if _wants_stream():
        return _stream(followed, request.headers.get("Last-Event-ID") or single(given, "since"), wait)
    if not admits_json():
        raise HttpError(406, f"Only application/json and {_STREAM} are provided")
    since = single(given, "since")
    if since is None:
        return json_response(news_body(followed.now()))
    with ExitStack() as place:
        news = followed.since(since, 0)
        if wait and not news.changes and _most_waiting():
            place.enter_context(followed.place(_most_waiting(), current().caller.user_id))
            news = followed.since(since, wait)
    return json_response(news_body(news))


def _stream(followed: Events, since: str | None, seconds: float) -> Response:
    with ExitStack() as stack:
        most = _most_waiting()
        if most:
            stack.enter_context(followed.place(most, current().caller.user_id))
        news = followed.now() if since is None else followed.since(since, 0)
        place = stack.pop_all()
    response = Response(_pieces(followed, news, seconds if most else 0), content_type=_STREAM)
    response.headers["Cache-Control"] = "no-cache"
    # nginx would collect what is sent.
    response.headers["X-Accel-Buffering"] = "no"
    response.call_on_close(place.close)
    return response


def _pieces(followed: Events, news: News, seconds: float) -> Iterator[bytes]:
    """What changes for so long; then the reader comes back with the last id, or learns why it may not."""
    end = min(time.monotonic() + seconds, deadline.at())
    yield b"retry: 1000\n\n"
    yield from stream_pieces(news)
    while (left := end - time.monotonic()) > 0 and not deadline.caller_is_gone():
        try:
            news = followed.since(news.token, min(_SIGN_OF_LIFE_SECONDS, left))
        except PlacementError:
            return
        yield from stream_pieces(news)


def _most_waiting() -> int:
    """How many requests of this process may wait; a server with one thread would do nothing else."""
    if deadline.KEY in request.environ:
        return _MOST_WAITING
    return _MOST_WAITING_ELSEWHERE if request.environ.get("wsgi.multithread") else 0


def _wants_stream() -> bool:
    accepted = request.accept_mimetypes
    return accepted.quality(_STREAM) > accepted.quality("application/json")


def _wait(given: Parameters) -> float:
    value = single(given, "wait")
    if value is None:
        return _USUAL_WAIT_SECONDS
    number = 0 if value == "0" else parse_positive(value)
    if number is None:
        raise BadRequest(f"wait: must be a number of seconds, not {value!r}")
    return min(number, _LONGEST_WAIT_SECONDS)


def _one_of(given: Parameters, key: str, known: list[str]) -> str | None:
    value = single(given, key)
    if value is not None and value not in known:
        raise BadRequest(f"{key}: {value!r} is none of {', '.join(known)}")
    return value


def _time(given: Parameters, key: str) -> datetime.datetime | None:
    value = single(given, key)
    if value is None:
        return None
    try:
        found = datetime.datetime.fromisoformat(value)
        return found.astimezone(datetime.UTC).replace(tzinfo=None) if found.tzinfo else found
    except (ValueError, OverflowError):
        raise BadRequest(
            f"{key}: {value!r} is no time of ISO 8601, such as 2026-01-31T12:00:00Z; a + is sent as %2B"
        ) from None
