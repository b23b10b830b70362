"""/ext/v1/audit: changes and their initiators; /ext/v1/events: changes since a token."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from operator import itemgetter
from typing import Any

import orjson
from flask import Blueprint, Response, request
from marshmallow import missing

from placement.audit.service import Events, News
from placement.common.microversions import NEWEST
from placement.engine.domain import request_scope
from placement.engine.domain.audit import Action, AuditFilter, StoredRecord, TargetKind
from placement.engine.domain.errors import BadRequest, PlacementError
from placement.http.context import HttpError, admits_json, current, json_response, use_cases
from placement.http.gate import route
from placement.http.middleware import ARRIVAL
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
from placement.http.schemas import (
    OPTIONAL,
    AnswerSchema,
    Choice,
    Given,
    Integer,
    Object,
    Sequence,
    String,
    Uuid,
    dump,
    texts,
)

# Audit records as events of CADF (DMTF DSP0262), and changes. Only changes that succeeded are recorded.


_SERVICE = "service/placement"
_USER = "service/security/account/user"


def _always(value: Any) -> Callable[[Any], Any]:
    return lambda _: value


def _itself(record: StoredRecord) -> StoredRecord:
    return record


def _roles(record: StoredRecord) -> list[str] | None:
    if record.request_id is None:
        return None
    return record.roles.split(",") if record.roles else []


def _of_caller(name: str) -> Callable[[StoredRecord], Any]:
    """Return a reader of a column that is for callers only."""
    return lambda record: missing if record.request_id is None else getattr(record, name)


class HostSchema(AnswerSchema):
    """The host that a request came from."""

    address = String(nullable=True)


class InitiatorSchema(AnswerSchema):
    """The initiator of a change; the service itself has only a type and an id."""

    # Without a request it was a command on the machine of the service, or work of its own.
    typeURI = String(source=lambda record: _USER if record.request_id else _SERVICE)
    id = String(nullable=True, source=lambda record: record.user_id if record.request_id else "placement")
    project_id = String(nullable=True, metadata=OPTIONAL, source=_of_caller("project_id"))
    roles = texts(metadata=OPTIONAL, source=_roles)
    host = Object(HostSchema, metadata=OPTIONAL, source=lambda record: record if record.request_id else None)
    request_id = String(metadata=OPTIONAL)
    global_request_id = String(nullable=True, metadata=OPTIONAL, source=_of_caller("global_request_id"))


class TargetSchema(AnswerSchema):
    """The target of a change."""

    typeURI = String(source=lambda record: f"{_SERVICE}/{record.kind}")
    id = String(source="target")


class ObserverSchema(AnswerSchema):
    """The observer of a change, which is this service."""

    id = String(source=_always("target"))
    typeURI = String(source=_always(_SERVICE))
    name = String(source=_always("placement"))


class AttachmentSchema(AnswerSchema):
    """The state of a target before or after a change."""

    name = Choice(["before", "after"], source=itemgetter(0))
    typeURI = String(source=_always("application/json"))
    content = Given({}, source=lambda document: orjson.loads(document[1]))


class AuditEventSchema(AnswerSchema):
    """A record in the terms of CADF."""

    typeURI = String(source=_always("http://schemas.dmtf.org/cloud/audit/1.0/event"))
    id = String(source=lambda record: str(record.id))
    eventType = String(source=_always("activity"))
    eventTime = String(source=lambda record: f"{record.recorded_at.isoformat()}+00:00")
    action = Choice(list(Action))
    outcome = Choice(["success"], source=_always("success"))
    initiator = Object(InitiatorSchema, source=_itself)
    target = Object(TargetSchema, source=_itself)
    observer = Object(ObserverSchema, source=_itself)
    attachments = Sequence(
        Object(AttachmentSchema),
        source=lambda record: [
            (name, text)
            for name, text in (("before", record.before), ("after", record.after))
            if text is not None
        ],
    )


class AuditEventsSchema(AnswerSchema):
    """A page of changes, the newest first; `next` is the `marker` of the following page."""

    events = Sequence(Object(AuditEventSchema), source=itemgetter(0))
    next = Integer(nullable=True, source=itemgetter(1))


class ChangeSchema(AnswerSchema):
    """The last change of a provider or a consumer."""

    type = Choice(["resource_provider", "consumer"], source="kind")
    uuid = Uuid(source="id")
    action = Choice(list(Action))
    generation = Integer(metadata=OPTIONAL)


class NewsSchema(AnswerSchema):
    """The changes; `next` is the token from which to go on."""

    events = Sequence(Object(ChangeSchema), source="changes")
    next = String(source="token")


blueprint = Blueprint("audit", __name__)
_STREAM = "text/event-stream"
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
    wanted = AuditFilter(
        user_id=single(given, "user_id"),
        project_id=single(given, "project_id"),
        request_id=single(given, "request_id"),
        consumer_id=single(given, "consumer_uuid"),
        targets=() if (target := single(given, "target")) is None else (target,),
        action=_one_of(given, "action", [str(action) for action in Action]),
        kind=_one_of(given, "target_type", [str(kind) for kind in TargetKind]),
        since=_time(given, "since"),
        until=_time(given, "until"),
    )
    # The newest come first: the first page has nothing before it.
    before = page_start(given, "marker", LARGEST_LONG_ID) or None
    page = use_cases().audit.listed(wanted, before, page_size(given))
    return json_response(dump(AuditEventsSchema, page))


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
    followed, text = use_cases().events, single(given, "wait")
    number = _USUAL_WAIT_SECONDS if text is None else 0 if text == "0" else parse_positive(text)
    if number is None:
        raise BadRequest(f"wait: must be a number of seconds, not {text!r}")
    wait = min(number, _LONGEST_WAIT_SECONDS)
    # How many requests of this process may wait; a server with one thread lets none wait.
    most = _MOST_WAITING_ELSEWHERE if request.environ.get("wsgi.multithread") else 0
    if ARRIVAL in request.environ:
        most = _MOST_WAITING
    accepted = request.accept_mimetypes
    if accepted.quality(_STREAM) > accepted.quality("application/json"):
        return _stream(followed, request.headers.get("Last-Event-ID") or single(given, "since"), wait, most)
    if not admits_json():
        raise HttpError(406, f"Only application/json and {_STREAM} are provided")
    since = single(given, "since")
    news = followed.now() if since is None else followed.since(since, 0)
    if since is not None and wait and most and not news.changes:
        with followed.place(most, current().caller.user_id):
            news = followed.since(since, wait)
    return json_response(dump(NewsSchema, news))


def _stream(followed: Events, since: str | None, seconds: float, most: int) -> Response:
    with ExitStack() as stack:
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


def _pieces(followed: Events, news: News, seconds: float) -> Iterator[bytes]:
    """Yield changes for `seconds`; then the reader returns with the last id, or learns why it may not."""
    end = min(time.monotonic() + seconds, request_scope.deadline())
    yield b"retry: 1000\n\n"
    yield from _pieces_of(news)
    while (left := end - time.monotonic()) > 0 and not request_scope.caller_is_gone():
        try:
            news = followed.since(news.token, min(_SIGN_OF_LIFE_SECONDS, left))
        except PlacementError:
            return
        yield from _pieces_of(news)


def _pieces_of(news: News) -> Iterable[bytes]:
    """Yield news as Server-Sent Events; the token comes last, because only then all changes are sent."""
    for change in news.changes:
        yield b"event: change\ndata: " + orjson.dumps(dump(ChangeSchema, change)) + b"\n\n"
    # Without data the reader sees no event, but the id becomes its Last-Event-ID.
    yield f"id: {news.token}\n\n".encode()
    # Flushes what is above now, instead of together with a later event.
    yield b""


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
