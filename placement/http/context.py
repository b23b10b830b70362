"""The request at hand: its id, version, caller and use cases, its connection, body and responses."""

from __future__ import annotations

import datetime
import re
import select
import socket
import ssl
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from email.utils import format_datetime
from functools import lru_cache
from http import HTTPStatus
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote, urlsplit

import orjson
from flask import Response, current_app, g, has_request_context, request
from markupsafe import escape
from oslo_context import context as log_context
from werkzeug.datastructures import MIMEAccept
from werkzeug.exceptions import HTTPException
from werkzeug.http import parse_accept_header

from placement.common.documents import (
    MOST_MANIFEST_BYTES,
    MOST_MANIFEST_VALUES,
    check_json,
    parse_json,
    parse_yaml,
)
from placement.common.microversions import OLDEST, Feature, Microversion
from placement.engine.domain import errors, request_scope
from placement.engine.domain.errors import BadRequest
from placement.engine.domain.identifiers import is_loopback
from placement.engine.domain.request_scope import act_as, initiator

if TYPE_CHECKING:
    from placement.use_cases import UseCases


ENVIRONMENT_KEY = "placement.request"
"""The place in the WSGI environment of the RequestContext, which the layers around the application share."""
OPEN_PATHS = "placement_open_paths"
"""The key of the extension that holds the paths that are answered without a token."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request, with lower-case role names.

    `domain_id` is set for a token of a whole domain. `clusters` is None for a token bound to no clusters.
    """

    user_id: str | None
    project_id: str | None
    roles: frozenset[str]
    system_scope: bool = False
    domain_id: str | None = None
    clusters: frozenset[str] | None = None


ANONYMOUS = Caller(None, None, frozenset())


@dataclass(slots=True)
class RequestContext:
    """The state of the current request.

    `version` is None until agreed, `body` unless it is read early. `leave` is called once the answer is sent.
    `rule` is the path of the route, if there is one, `candidates` how many were found, if they were sought.
    `is_own`: the path is one of ours, and the errors are in our words.
    `reads`: the request tries to change nothing, whatever its method, so it has no line in the audit log.
    `status` is what is logged and counted where the caller gets another one. `problem` is the message of the
    error, if there is one.
    """

    request_id: str
    version: Microversion | None = None
    caller: Caller = field(default=ANONYMOUS)
    body: bytes | None = None
    leave: Callable[[], object] | None = None
    rule: str | None = None
    candidates: int | None = None
    is_own: bool = False
    reads: bool = False
    status: int | None = None
    problem: str | None = None


def identify(caller: Caller) -> None:
    """Note the caller for the handler, and for every audit record and log line from now on."""
    g.placement.caller = caller
    roles = tuple(sorted(caller.roles))
    act_as(replace(initiator(), user_id=caller.user_id, project_id=caller.project_id, roles=roles))
    given = log_context.get_current()
    if given is not None:
        given.user_id, given.project_id = in_log(caller.user_id), in_log(caller.project_id)
        given.domain_id = in_log(caller.domain_id)
        given.roles = sorted(in_log(role) or "" for role in roles)
        given.system_scope = "all" if caller.system_scope else None


# A few callers send most of the requests.
@lru_cache(maxsize=1024)
def in_log(text: str | None) -> str | None:
    """Return a name as one word of a log line, whatever characters it has."""
    return quote(text, safe="@:+~") if text else None


def current() -> RequestContext:
    """Return the context of the current request."""
    context: RequestContext = g.placement
    return context


def version() -> Microversion:
    """Return the agreed version, the oldest before it is agreed."""
    return g.placement.version or OLDEST


def offers(feature: Feature) -> bool:
    """Return whether the request's version has the feature."""
    return (g.placement.version or OLDEST) >= feature.value


def is_own() -> bool:
    """Return whether errors are in our words: on our paths and pages, and outside of requests."""
    return not has_request_context() or current().is_own


def use_cases() -> UseCases:
    """Return the use cases that the routes of this application may call for the current caller."""
    found: UseCases = current_app.extensions["placement_use_cases"]
    return found if request_scope.visible_clusters() is None else found.of_clusters()


# The connection of a request: whether its sender is still there, and whether it is on this machine.
#
# Without authentication only callers on this machine are served. A web page of another site may send requests
# to loopback, also through a name that points there (DNS rebinding), and a proxy on this machine may forward
# requests of the whole network.


# gunicorn's name for the connected socket; other servers have none, and their callers count as staying.
_SOCKET = "gunicorn.socket"
# Headers of proxies: Via and Forwarded of RFC 9110 and 7239, and what products call the address of a client,
# such as X-Real-IP, CF-Connecting-IP, X-Azure-ClientIP, X-Envoy-External-Address.
_OF_PROXIES = re.compile(
    r"HTTP_(VIA|FORWARDED|CDN_LOOP|X_VARNISH|.*_FORWARDED_.*|X_ENVOY_.*"
    r"|(.*_)?(CLIENT|REAL|REMOTE|CONNECTING|SOCKET|USER|SOURCE|PROXYUSER|ORIGIN|EXTERNAL)_?(IP|ADDR|ADDRESS))"
)
_ADVICE = "with [api] auth_strategy noauth2 only callers on this machine are believed"


def watch_of(environ: dict[str, Any]) -> Callable[[], bool] | None:
    """Return a function that checks if the caller of this request has gone; None where that is unknown."""
    connected = environ.get(_SOCKET)
    if not isinstance(connected, socket.socket):
        return None

    def is_gone() -> bool:
        waiting = select.poll()
        if isinstance(connected, ssl.SSLSocket):
            # The waiting bytes may be the client's close_notify, which looks like a request until decrypted.
            waiting.register(connected.fileno(), select.POLLRDHUP)
            return bool(waiting.poll(0))
        try:
            waiting.register(connected.fileno(), select.POLLIN)
            # The bytes are either the next request or the end.
            return bool(waiting.poll(0)) and not connected.recv(1, socket.MSG_PEEK)
        except (OSError, ValueError):
            return True

    return is_gone


def objection(environ: Mapping[str, Any], allowed_origins: Collection[str] = ()) -> str | None:
    """Return why the sender of a WSGI request may not be on this machine, None if it certainly is.

    `allowed_origins`: sites with pages that may call, as [cors] allowed_origin names them.
    """
    if not is_loopback(environ.get("REMOTE_ADDR", "")):
        return f"The request comes from another address; {_ADVICE}."
    passed_on = sorted(key for key in environ if key.startswith("HTTP_") and _is_of_proxy(key))
    if passed_on:
        header = passed_on[0].removeprefix("HTTP_").replace("_", "-").title()
        return f"The header {header} says that a proxy passed the request on; {_ADVICE}."
    host = environ.get("HTTP_HOST")
    if host is not None and not is_loopback(_name(host)):
        return f"The header Host names another host than this machine's loopback; {_ADVICE}."
    origin = environ.get("HTTP_ORIGIN")
    # Browsers name the site of the page that sends the request; `null` is a page without a site.
    if (
        origin is not None
        and origin not in allowed_origins
        and not is_loopback(_name(origin.partition("://")[2]))
    ):
        return f"The header Origin names another site than this machine's loopback; {_ADVICE}."
    # Browsers send no Origin with a GET for an image of another site. A link that a person follows is no such
    # GET: the answer is a page of its own, which the other site cannot read.
    is_followed = environ.get("REQUEST_METHOD") == "GET" and environ.get("HTTP_SEC_FETCH_MODE") == "navigate"
    is_foreign = environ.get("HTTP_SEC_FETCH_SITE") == "cross-site" and origin not in allowed_origins
    if is_foreign and not is_followed:
        return f"The header Sec-Fetch-Site says that a page of another site asks; {_ADVICE}."
    return None


# Clients send few different headers.
@lru_cache(maxsize=1024)
def _is_of_proxy(key: str) -> bool:
    return _OF_PROXIES.fullmatch(key) is not None


# A few callers send most of the requests.
@lru_cache(maxsize=1024)
def _name(host: str) -> str:
    """Return a host without its port, from a Host header or an origin; empty if it is malformed."""
    try:
        return "" if set("@/?#") & set(host) else urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


# Reading request bodies.


_YAML = ("application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml")
_PIECE = 2**20


def json_body() -> Any:
    """Return the body as JSON. Raises BadRequest, HttpError."""
    text = received()
    check_json(text)
    try:
        return orjson.loads(text)
    except ValueError as error:
        raise BadRequest(f"Malformed JSON: {error}") from None


def json_body_or(default: Any) -> Any:
    """Return the body as JSON, the default if it is empty. Raises BadRequest, HttpError."""
    text = current().body = received()
    return json_body() if text else default


def manifests(times: int = 1) -> list[Any]:
    """Return the documents of a JSON or YAML body, which may be `times` as large as that of one thing.

    Raises BadRequest, HttpError.
    """
    text, most = received(), times * MOST_MANIFEST_BYTES
    if len(text) > most:
        raise HttpError(413, f"Manifests may have {most} bytes, these have {len(text)}")
    if request.mimetype == "application/json":
        return parse_json(text)
    if request.mimetype in _YAML:
        return parse_yaml(text, times * MOST_MANIFEST_VALUES)
    sent = request.content_type or None
    raise HttpError(415, f"The media type {sent} is not supported, use application/json or application/yaml")


def peeked() -> Any:
    """Return the body as JSON, None if it is not JSON; the handler can read it again. Raises HttpError."""
    current().body = received()
    try:
        return json_body()
    except BadRequest:
        return None


def received() -> bytes:
    """Return the whole body; refuse a truncated one, because the beginning of YAML is YAML, too.

    Raises HttpError. Source: RFC 9112, section 8.
    """
    kept: bytes | None = g.placement.body
    if kept is not None:
        return kept
    environ, most = request.environ, current_app.config["MAX_CONTENT_LENGTH"]
    try:
        if "HTTP_TRANSFER_ENCODING" not in environ:
            text = request.get_data(cache=False)
        elif not environ.get("wsgi.input_terminated"):
            raise HttpError(411, "This server does not read bodies without Content-Length")
        else:
            taken = bytearray()
            # Some servers return less than was asked for before the end.
            while piece := environ["wsgi.input"].read(_PIECE):
                taken += piece
                if len(taken) > most:
                    raise HttpError(413, f"Bodies may have {most} bytes")
            text = bytes(taken)
    except (HTTPException, HttpError):
        raise
    except Exception as error:
        # Each server has errors of its own for bodies that are not framed as HTTP has it.
        raise HttpError(400, f"The body cannot be read: {error}") from None
    if len(text) < (request.content_length or 0):
        raise HttpError(400, f"The body breaks off after {len(text)} of {request.content_length} bytes")
    return text


# Writing responses: what media types the caller takes, JSON bodies, caching headers, locations, links.


Item = TypeVar("Item")
# Items of a list that are turned into JSON together.
_ITEMS_AT_ONCE = 1000
# Longer answers are sent while they are being made.
_BUILT_AT_ONCE_BYTES = 4 * 2**20
# Clients send few different headers, and repeat them with all requests.
_KEPT = 256


def json_response(
    body: Any, status: int = 200, *, modified: datetime.datetime | None = None, location: str | None = None
) -> Response:
    """Return a JSON response; `body` may be bytes that are JSON already. `modified` None means now."""
    content = body if isinstance(body, bytes) else orjson.dumps(body)
    response = Response(content, status, content_type="application/json")
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
    if modified is not None and offers(Feature.CACHE_HEADERS):
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
    """Return the HTTP status of a PlacementError; 503 where another server is why."""
    return next((status for kind, status in _STATUS.items() if isinstance(error, kind)), 503)


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
    message = current().problem = "; ".join(message for _, message in problems)
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


def problem(status: int) -> str:
    """Return the message of the error that was rendered, else what its status means, as one sentence."""
    return current().problem or _LEAD.get(status, HTTPStatus(status).phrase)


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
    if is_own():
        return message or lead
    return f"{lead}\n\n {message}" + ("" if status in _TEMPLATED else "  ")


def _error(status: int, lead: str, code: str, message: str, extra: dict[str, Any]) -> dict[str, Any]:
    at = current()
    error: dict[str, Any] = {
        "status": status,
        "title": HTTPStatus(status).phrase,
        "detail": _detail(status, lead, message),
        "request_id": at.request_id,
    }
    if at.is_own:
        is_known = code != errors.UNDEFINED_CODE
        error["code"] = code if is_known else f"placement.{HTTPStatus(status).name.lower()}"
    elif at.version is not None and at.version.offers(Feature.ERROR_CODES):
        error["code"] = code
    return {**error, **extra}
