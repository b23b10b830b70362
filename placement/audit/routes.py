"""/ext/v1/audit: changes and their initiators; /ext/v1/events: changes since a token."""

from __future__ import annotations

import datetime
import time
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import Any

import orjson
from flask import Blueprint, Response, request

from placement.audit.service import AuditPage, Events
from placement.audit.service import News as ServiceNews
from placement.engine.domain import request_scope
from placement.engine.domain.audit import Action, AuditFilter, StoredRecord, TargetKind
from placement.engine.domain.audit import Change as AuditChange
from placement.engine.domain.errors import BadRequest, PlacementError
from placement.http.context import current, use_cases
from placement.http.fields import Choice, Given, Integer, Object, Sequence, String, Uuid
from placement.http.gate import route
from placement.http.microversions import NEWEST
from placement.http.operations import (
    LARGEST_LONG_ID,
    LIMIT,
    ROW_ID,
    ByMediaType,
    Content,
    Operation,
    Parameter,
    Parameters,
    names_of,
    page_size,
    page_start,
    parameters,
    parse_positive,
    refuse_unknown,
    single,
)
from placement.http.responses import HttpError, admits_json, json_response
from placement.http.schemas import OPTIONAL, AnswerSchema, texts

# Audit records as events of CADF, and changes as events of a stream.


_EVENT = "http://schemas.dmtf.org/cloud/audit/1.0/event"
_SERVICE = "service/placement"
_OBSERVER = {"id": "target", "typeURI": _SERVICE, "name": "placement"}


def audit_body(page: AuditPage) -> dict[str, Any]:
    """Return a page of records."""
    return {"events": [_event(record) for record in page.records], "next": page.next}


def _event(record: StoredRecord) -> dict[str, Any]:
    """Return a record in the terms of CADF (DMTF DSP0262); only changes that succeeded are stored."""
    documents = (("before", record.before), ("after", record.after))
    return {
        "typeURI": _EVENT,
        "id": str(record.id),
        "eventType": "activity",
        "eventTime": f"{record.recorded_at.isoformat()}+00:00",
        "action": record.action,
        "outcome": "success",
        "initiator": _initiator(record),
        "target": {"typeURI": f"{_SERVICE}/{record.kind}", "id": record.target},
        "observer": _OBSERVER,
        "attachments": [
            {"name": name, "typeURI": "application/json", "content": orjson.loads(text)}
            for name, text in documents
            if text is not None
        ],
    }


def _initiator(record: StoredRecord) -> dict[str, Any]:
    """Return the caller; without one, this service, for a command on its machine or its own work."""
    if record.request_id is None:
        return {"typeURI": _SERVICE, "id": "placement"}
    return {
        "typeURI": "service/security/account/user",
        "id": record.user_id,
        "project_id": record.project_id,
        "roles": record.roles.split(",") if record.roles else [],
        "host": {"address": record.address},
        "request_id": record.request_id,
        "global_request_id": record.global_request_id,
    }


def news_body(news: ServiceNews) -> dict[str, Any]:
    """Return the changes, and the token from which to go on."""
    return {"events": [_change(change) for change in news.changes], "next": news.token}


def _change(change: AuditChange) -> dict[str, Any]:
    told: dict[str, Any] = {"type": change.kind, "uuid": change.id, "action": change.action}
    return told if change.generation is None else {**told, "generation": change.generation}


def stream_pieces(news: ServiceNews) -> Iterable[bytes]:
    """Yield news as Server-Sent Events; the token comes last, because only then all changes are sent."""
    for change in news.changes:
        yield b"event: change\ndata: " + orjson.dumps(_change(change)) + b"\n\n"
    # Without data the reader sees no event, but the id becomes its Last-Event-ID.
    yield f"id: {news.token}\n\n".encode()
    # Flushes what is above now, instead of together with a later event.
    yield b""


# Answers about changes and their initiators.


class HostSchema(AnswerSchema):
    """The host that a request came from."""

    address = String(nullable=True)


class InitiatorSchema(AnswerSchema):
    """The initiator of a change; the service itself has only a type and an id."""

    typeURI = String()
    id = String(nullable=True)
    project_id = String(nullable=True, metadata=OPTIONAL)
    roles = texts(metadata=OPTIONAL)
    host = Object(HostSchema, metadata=OPTIONAL)
    request_id = String(metadata=OPTIONAL)
    global_request_id = String(nullable=True, metadata=OPTIONAL)


class TargetSchema(AnswerSchema):
    """The target of a change."""

    typeURI = String()
    id = String()


class ObserverSchema(TargetSchema):
    """The observer of a change, which is this service."""

    name = String()


class AttachmentSchema(AnswerSchema):
    """The state of a target before or after a change."""

    name = Choice(["before", "after"])
    typeURI = String()
    content = Given({})


class AuditEventSchema(AnswerSchema):
    """A record in the terms of CADF."""

    typeURI = String()
    id = String()
    eventType = String()
    eventTime = String()
    action = Choice(list(Action))
    outcome = Choice(["success"])
    initiator = Object(InitiatorSchema)
    target = Object(TargetSchema)
    observer = Object(ObserverSchema)
    attachments = Sequence(Object(AttachmentSchema))


class AuditEventsSchema(AnswerSchema):
    """A page of changes, the newest first; `next` is the `marker` of the following page."""

    events = Sequence(Object(AuditEventSchema))
    next = Integer(nullable=True)


class ChangeSchema(AnswerSchema):
    """The last change of a provider or a consumer."""

    type = Choice(["resource_provider", "consumer"])
    uuid = Uuid()
    action = Choice(list(Action))
    generation = Integer(metadata=OPTIONAL)


class NewsSchema(AnswerSchema):
    """The changes; `next` is the token from which to go on."""

    events = Sequence(Object(ChangeSchema))
    next = String()


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
    Parameter("target_type", "Changes of such things.", {"type": "string", "enum": list(TargetKind)}),
    Parameter("since", "Changes from this time of ISO 8601 on, UTC unless it says otherwise."),
    Parameter("until", "Changes before this time."),
    LIMIT,
    Parameter("marker", "The `next` of the page before.", {**ROW_ID, "maximum": LARGEST_LONG_ID}),
)
_USUAL_WAIT_SECONDS = 20
# Less than the timeouts of requests, of proxies and of a worker that stops.
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
# Our own server has threads for these (http.worker.lanes); other servers have an unknown number.
_MOST_WAITING, _MOST_WAITING_ELSEWHERE = 8, 2


@route(
    blueprint,
    "/ext/v1/audit",
    "GET",
    "placement:audit:list",
    gives_json=True,
    described=Operation({200: AuditEventsSchema}, query=_QUERY),
)
def audit() -> Response:
    """List changes, the newest first."""
    given = parameters()
    refuse_unknown(given, names_of(_QUERY, NEWEST))
    texts: dict[str, Any] = {name: single(given, key) for key, name in _FILTERS.items()}
    target = single(given, "target")
    wanted = AuditFilter(
        **texts,
        targets=() if target is None else (target,),
        action=_one_of(given, "action", [str(action) for action in Action]),
        kind=_one_of(given, "target_type", [str(kind) for kind in TargetKind]),
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
        {200: ByMediaType([NewsSchema, Content([_STREAM])])}, errors=[404, 406, 410], query=_FOLLOWED
    ),
)
def events() -> Response:
    """List providers and consumers that changed since a token, as JSON or as Server-Sent Events."""
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
    # Otherwise nginx would buffer the stream.
    response.headers["X-Accel-Buffering"] = "no"
    response.call_on_close(place.close)
    return response


def _pieces(followed: Events, news: ServiceNews, seconds: float) -> Iterator[bytes]:
    """Yield changes for `seconds`; then the reader returns with the last id, or learns why it may not."""
    end = min(time.monotonic() + seconds, request_scope.at())
    yield b"retry: 1000\n\n"
    yield from stream_pieces(news)
    while (left := end - time.monotonic()) > 0 and not request_scope.caller_is_gone():
        try:
            news = followed.since(news.token, min(_SIGN_OF_LIFE_SECONDS, left))
        except PlacementError:
            return
        yield from stream_pieces(news)


def _most_waiting() -> int:
    """Return how many requests of this process may wait; a server with one thread lets none wait."""
    if request_scope.KEY in request.environ:
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
