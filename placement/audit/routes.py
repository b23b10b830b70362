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

from placement.audit.events import Events, News
from placement.audit.service import AuditTrail
from placement.common.clock import utcnow
from placement.common.microversions import NEWEST
from placement.common.moments import FORMS, moment_of
from placement.engine.domain import request_scope
from placement.engine.domain.audit import Action, AuditFilter, StoredRecord, TargetKind
from placement.engine.domain.errors import BadRequest, PlacementError, parameter
from placement.http import query_strings
from placement.http import schemas as fields
from placement.http.answers import admits_json, json_response
from placement.http.bodies import parameters
from placement.http.caller_limits import ARRIVAL
from placement.http.context import current, service
from placement.http.errors import HttpError
from placement.http.gate import route
from placement.http.operations import ByMediaType, Content, Operation, Parameter, names_of

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


class HostSchema(fields.AnswerSchema):
    """The host that a request came from."""

    address = fields.String(nullable=True)


class InitiatorSchema(fields.AnswerSchema):
    """The initiator of a change; the service itself has only a type and an id."""

    # Without a request it was a command on the machine of the service, or work of its own.
    typeURI = fields.String(source=lambda record: _USER if record.request_id else _SERVICE)
    id = fields.String(
        nullable=True, source=lambda record: record.user_id if record.request_id else "placement"
    )
    project_id = fields.String(nullable=True, metadata=fields.OPTIONAL, source=_of_caller("project_id"))
    roles = fields.texts(metadata=fields.OPTIONAL, source=_roles)
    host = fields.Object(
        HostSchema, metadata=fields.OPTIONAL, source=lambda record: record if record.request_id else None
    )
    request_id = fields.String(metadata=fields.OPTIONAL)
    global_request_id = fields.String(
        nullable=True, metadata=fields.OPTIONAL, source=_of_caller("global_request_id")
    )


class TargetSchema(fields.AnswerSchema):
    """The target of a change."""

    typeURI = fields.String(source=lambda record: f"{_SERVICE}/{record.kind}")
    id = fields.String(source="target")


class ObserverSchema(fields.AnswerSchema):
    """The observer of a change, which is this service."""

    id = fields.String(source=_always("target"))
    typeURI = fields.String(source=_always(_SERVICE))
    name = fields.String(source=_always("placement"))


class AttachmentSchema(fields.AnswerSchema):
    """The state of a target before or after a change."""

    name = fields.Choice(["before", "after"], source=itemgetter(0))
    typeURI = fields.String(source=_always("application/json"))
    content = fields.Given({}, source=lambda document: orjson.loads(document[1]))


class AuditEventSchema(fields.AnswerSchema):
    """A record in the terms of CADF."""

    typeURI = fields.String(source=_always("http://schemas.dmtf.org/cloud/audit/1.0/event"))
    id = fields.String(source=lambda record: str(record.id))
    eventType = fields.String(source=_always("activity"))
    eventTime = fields.String(source=lambda record: f"{record.recorded_at.isoformat()}+00:00")
    action = fields.Choice(list(Action))
    outcome = fields.Choice(["success"], source=_always("success"))
    initiator = fields.Object(InitiatorSchema, source=_itself)
    target = fields.Object(TargetSchema, source=_itself)
    observer = fields.Object(ObserverSchema, source=_itself)
    attachments = fields.Sequence(
        fields.Object(AttachmentSchema),
        source=lambda record: [
            (name, text)
            for name, text in (("before", record.before), ("after", record.after))
            if text is not None
        ],
    )


class CalledTargetSchema(fields.AnswerSchema):
    """A thing that the `target` of the request calls."""

    type = fields.Choice(list(TargetKind), source="kind")
    id = fields.String()
    name = fields.String(nullable=True)


class AuditEventsSchema(fields.AnswerSchema):
    """A page of changes, the newest first; `next` is the `marker` of the following page.

    `targets`: what the `target` of the request calls; several things may have one name.
    """

    events = fields.Sequence(fields.Object(AuditEventSchema), source=itemgetter(0))
    next = fields.Integer(nullable=True, source=itemgetter(1))
    targets = fields.Sequence(
        fields.Object(CalledTargetSchema),
        metadata=fields.OPTIONAL,
        source=lambda page: page[2] or None,
    )


class ChangeSchema(fields.AnswerSchema):
    """The last change of a provider or a consumer."""

    type = fields.Choice(["resource_provider", "consumer"], source="kind")
    uuid = fields.Uuid(source="id")
    action = fields.Choice(list(Action))
    generation = fields.Integer(metadata=fields.OPTIONAL)


class NewsSchema(fields.AnswerSchema):
    """The changes; `next` is the token from which to go on."""

    events = fields.Sequence(fields.Object(ChangeSchema), source="changes")
    next = fields.String(source="token")


blueprint = Blueprint("audit", __name__)
_STREAM = "text/event-stream"
_QUERY = (
    Parameter("user_id", "Changes by this user."),
    Parameter("project_id", "Changes by users in this project."),
    Parameter("request_id", "Changes of this request, by either of its ids."),
    Parameter("target", "Changes of what has this name or UUID: hosts, aggregates, consumers, pods and all."),
    Parameter("consumer_uuid", "Changes of the allocations of this consumer."),
    Parameter("action", "Changes of this kind.", {"type": "string", "enum": list(Action)}),
    Parameter("target_type", "Changes of such things.", {"type": "string", "enum": list(TargetKind)}),
    Parameter("since", f"Changes since this time: {FORMS}; UTC if it has no zone."),
    Parameter("until", "Changes before this time."),
    query_strings.LIMIT,
    Parameter(
        "marker",
        "The `next` of the previous page.",
        {**query_strings.ROW_ID, "maximum": query_strings.LARGEST_LONG_ID},
    ),
)
_USUAL_WAIT_SECONDS = 20
# Less than the timeouts of requests, of proxies and of a worker that stops.
_LONGEST_WAIT_SECONDS = 25
_SIGN_OF_LIFE_SECONDS = 10
_FOLLOWED = (
    Parameter(
        "since",
        "The token of the previous answer; without it the answer has a token and no events. "
        "In a stream the header `Last-Event-ID` takes precedence.",
    ),
    Parameter(
        "wait",
        f"How many seconds to wait for changes; {_USUAL_WAIT_SECONDS} by default, "
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
    query_strings.refuse_unknown(given, names_of(_QUERY, NEWEST))
    called = query_strings.single(given, "target")
    targets = [] if called is None else service(AuditTrail).targets(called)
    filter_ = AuditFilter(
        user_id=query_strings.single(given, "user_id"),
        project_id=query_strings.single(given, "project_id"),
        request_id=query_strings.single(given, "request_id"),
        consumer_id=query_strings.single(given, "consumer_uuid"),
        targets=tuple(dict.fromkeys(each.id for each in targets)),
        action=_one_of(given, "action", [str(action) for action in Action]),
        kind=_one_of(given, "target_type", [str(kind) for kind in TargetKind]),
        since=moment(given, "since"),
        until=moment(given, "until"),
    )
    # The newest come first: the first page has nothing before it.
    before = query_strings.page_start(given, "marker", query_strings.LARGEST_LONG_ID) or None
    page = service(AuditTrail).listed(filter_, before, query_strings.page_size(given))
    return json_response(fields.dump(AuditEventsSchema, (*page, targets)))


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
    query_strings.refuse_unknown(given, names_of(_FOLLOWED, NEWEST))
    followed, text = service(Events), query_strings.single(given, "wait")
    number = _USUAL_WAIT_SECONDS if text is None else 0 if text == "0" else query_strings.parse_positive(text)
    if number is None:
        raise BadRequest(f"must be a number of seconds, not {text!r}", place=parameter("wait"))
    wait = min(number, _LONGEST_WAIT_SECONDS)
    # How many requests of this process may wait; a server with one thread lets none wait.
    most = _MOST_WAITING_ELSEWHERE if request.environ.get("wsgi.multithread") else 0
    if ARRIVAL in request.environ:
        most = _MOST_WAITING
    accepted = request.accept_mimetypes
    if accepted.quality(_STREAM) > accepted.quality("application/json"):
        return _stream(
            followed, request.headers.get("Last-Event-ID") or query_strings.single(given, "since"), wait, most
        )
    if not admits_json():
        raise HttpError(406, f"Only application/json and {_STREAM} are provided")
    since = query_strings.single(given, "since")
    news = followed.now() if since is None else followed.since(since, 0)
    if since is not None and wait and most and not news.changes:
        with followed.place(most, current().caller.user_id):
            news = followed.since(since, wait)
    return json_response(fields.dump(NewsSchema, news))


def _stream(events: Events, since: str | None, seconds: float, most: int) -> Response:
    with ExitStack() as stack:
        if most:
            stack.enter_context(events.place(most, current().caller.user_id))
        news = events.now() if since is None else events.since(since, 0)
        place = stack.pop_all()
    response = Response(_pieces(events, news, seconds if most else 0), content_type=_STREAM)
    response.headers["Cache-Control"] = "no-cache"
    # Otherwise nginx would buffer the stream.
    response.headers["X-Accel-Buffering"] = "no"
    response.call_on_close(place.close)
    return response


def _pieces(events: Events, news: News, seconds: float) -> Iterator[bytes]:
    """Yield changes for `seconds`; then the reader returns with the last id, or learns why it may not."""
    end = min(time.monotonic() + seconds, request_scope.deadline())
    yield b"retry: 1000\n\n"
    yield from _pieces_of(news)
    while (left := end - time.monotonic()) > 0 and not request_scope.caller_is_gone():
        try:
            news = events.since(news.token, min(_SIGN_OF_LIFE_SECONDS, left))
        except PlacementError:
            return
        yield from _pieces_of(news)


def _pieces_of(news: News) -> Iterable[bytes]:
    """Yield news as Server-Sent Events; the token comes last, because only then all changes are sent."""
    for change in news.changes:
        yield b"event: change\ndata: " + orjson.dumps(fields.dump(ChangeSchema, change)) + b"\n\n"
    # Without data the reader sees no event, but the id becomes its Last-Event-ID.
    yield f"id: {news.token}\n\n".encode()
    # Flushes what is above now, instead of together with a later event.
    yield b""


def _one_of(given: query_strings.Parameters, key: str, known: list[str]) -> str | None:
    value = query_strings.single(given, key)
    if value is not None and value not in known:
        raise BadRequest(f"{value!r} is not one of {', '.join(known)}", place=parameter(key))
    return value


def moment(given: query_strings.Parameters, key: str) -> datetime.datetime | None:
    """Return the moment that a parameter names, None without it. Raises BadRequest naming it."""
    value = query_strings.single(given, key)
    if value is None:
        return None
    try:
        return moment_of(value, utcnow())
    except ValueError:
        raise BadRequest(f"{value!r} is not a time such as {FORMS}", place=parameter(key)) from None
