"""What surrounds each request: WSGI layers (proxy headers, id and log line, CORS) and hooks of Flask."""

from __future__ import annotations

import logging
import math
import re
import select
import socket
import ssl
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from functools import cache, partial
from http import HTTPStatus
from typing import Any
from urllib.parse import quote
from wsgiref.types import WSGIApplication

from flask import Flask, Response, request
from oslo_config import cfg
from oslo_context.context import RequestContext as LogContext
from oslo_middleware import cors, http_proxy_to_wsgi

from placement.common import microversions
from placement.common.probes import PATHS
from placement.engine.domain import request_scope
from placement.engine.domain.errors import NotFound
from placement.engine.domain.request_scope import Initiator, act_as
from placement.http import caller_limits, context
from placement.http.context import ENVIRONMENT_KEY
from placement.http.credentials import PAGES
from placement.http.errors import HttpError
from placement.http.gate import OWN_PATHS
from placement.http.strategies.authentication import Authentication
from placement.metrics.catalog import REQUEST_SECONDS, REQUESTS

_STATUSES = {status.value: f"{status.value} {status.phrase}" for status in HTTPStatus}
_FILES = f"{PAGES}/static/"
# X-Requested-With of what pages.js asks for without a click.
_BY_PAGE = "placement"
# The form of an id that a caller gives a request across services.
_GLOBAL_ID = re.compile(r"req-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
LOG = logging.getLogger("placement.requests")
_READING = ("GET", "HEAD", "OPTIONS")
_METHODS = ["GET", "PUT", "POST", "DELETE", "PATCH"]
# All paths without a rule count as one in the figures of requests.
_NO_RULE = "none"
_COUNTED_METHODS = frozenset({"GET", "PUT", "POST", "DELETE", "HEAD", "OPTIONS", "PATCH"})
_ALLOWED = [
    "X-Auth-Token",
    "X-Openstack-Request-Id",
    "X-Identity-Status",
    "X-Roles",
    "X-Service-Catalog",
    "X-User-Id",
    "X-Tenant-Id",
    "OpenStack-API-Version",
]
_EXPOSED = [
    "X-Auth-Token",
    "X-Openstack-Request-Id",
    "X-Subject-Token",
    "X-Service-Token",
    "OpenStack-API-Version",
]


def surrounded(
    application: WSGIApplication, configuration: cfg.ConfigOpts, request_seconds: float
) -> WSGIApplication:
    """Return the application in the layers that the configuration asks for."""
    cors.set_defaults(allow_methods=_METHODS, allow_headers=_ALLOWED, expose_headers=_EXPOSED)
    if allowed_origins(configuration):
        application = cors.CORS(application, configuration)
    request_log = RequestLog(application, request_seconds)
    configuration.register_opts(http_proxy_to_wsgi.OPTS, group="oslo_middleware")
    if not configuration.oslo_middleware.enable_proxy_headers_parsing:
        return request_log
    return http_proxy_to_wsgi.HTTPProxyToWSGI(request_log, configuration)


def allowed_origins(configuration: cfg.ConfigOpts) -> list[str]:
    """Return the sites with pages that may call the service, as [cors] allowed_origin has them."""
    configuration.register_opts(cors.OPTS, group="cors")
    return configuration.cors.allowed_origin or []


def below(path: str, inner: WSGIApplication, outer: WSGIApplication) -> WSGIApplication:
    """Return an application that passes requests for paths below `path` to `inner`, others to `outer`."""

    def call(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        chosen = inner if environ["PATH_INFO"].startswith(path) else outer
        return chosen(environ, start_response)

    return call


class RequestLog:
    """A layer that gives every request an id and a deadline, and logs it, also if it is refused."""

    def __init__(self, application: WSGIApplication, request_seconds: float) -> None:
        self._application = application
        self._work_seconds = caller_limits.deadline_of(0.0, request_seconds)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        request_id = f"req-{uuid.uuid4()}"
        at = environ[ENVIRONMENT_KEY] = context.RequestContext(request_id)
        # Our own server says when the request arrived; with others it begins here.
        arrival = environ.get(caller_limits.ARRIVAL) or time.monotonic()
        request_scope.set_deadline(arrival + self._work_seconds)
        # Mounted under a prefix the version document has an empty path, which the router would redirect.
        environ["PATH_INFO"] = environ.get("PATH_INFO") or "/"
        # Quoted, so that a caller cannot write lines of its own into the log.
        path, query = environ.get("SCRIPT_NAME", "") + environ["PATH_INFO"], environ.get("QUERY_STRING", "")
        uri = quote(path, encoding="latin-1", errors="replace")
        uri += f"?{quote(query, safe=caller_limits.AS_SENT, encoding='latin-1')}" if query else ""
        sent_id = environ.get("HTTP_X_OPENSTACK_REQUEST_ID", "")
        caller_id = sent_id if _GLOBAL_ID.fullmatch(sent_id) else None
        # Every log line carries it from here on; authentication adds the caller.
        LogContext(request_id=request_id, global_request_id=caller_id)
        act_as(Initiator(None, None, (), request_id, caller_id, environ.get("REMOTE_ADDR")))
        LOG.debug('Starting request: "%s %s"', environ["REQUEST_METHOD"], uri)

        def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            code = int(status.partition(" ")[0])
            # As HTTP writes it, `404 Not Found`: clients show it, and Flask uses capitals.
            status = _STATUSES.get(code, status)
            # What happened counts, where the protocol of a path asks for another status.
            counted = str(at.status or code)
            method = environ["REQUEST_METHOD"]
            # Clients may send any word as a method.
            known = method if method in _COUNTED_METHODS else "other"
            number, seconds = _figures(at.rule or _NO_RULE, known, counted)
            number.inc()
            seconds.observe(time.monotonic() - arrival)
            found = {name.lower(): value for name, value in headers}
            if REQUEST_ID not in found:
                headers = [*headers, (REQUEST_ID, request_id)]
            _log(environ, uri, counted, found, time.monotonic() - arrival)
            return start_response(status, headers, *rest)

        return self._application(environ, start)


# Looking a figure up by its labels takes longer than counting.
@cache
def _figures(rule: str, method: str, status: str) -> tuple[Any, Any]:
    return REQUESTS.labels(rule, method, status), REQUEST_SECONDS.labels(rule, method)


def _log(environ: dict[str, Any], uri: str, status: str, headers: dict[str, str], seconds: float) -> None:
    """Log a request, as text and, for formatters of JSON, in fields; `seconds` until its answer.

    What pages ask for by themselves is logged at level debug. A request that tried to change something has a
    line of its own, with its caller.
    """
    method, address = environ["REQUEST_METHOD"], environ.get("REMOTE_ADDR")
    shown: dict[str, Any] = {
        "status": status,
        "len": headers.get("content-length", "-"),
        "microversion": headers.get("openstack-api-version", "-").rpartition(" ")[2],
        "duration": f"{seconds:.3f}",
    }
    at: context.RequestContext = environ[ENVIRONMENT_KEY]
    if at.candidates is not None:
        shown["candidates"] = at.candidates
    rest = " ".join([f"{name}: {value}" for name, value in shown.items()])
    asked = {"address": "-" if address is None else address, "method": method, "uri": uri}
    path, by_page = environ["PATH_INFO"], environ.get("HTTP_X_REQUESTED_WITH") == _BY_PAGE
    is_of_a_page = path.startswith(_FILES) or (by_page and path.startswith(f"{PAGES}/"))
    is_quiet = is_of_a_page and method in _READING and status < "400"
    level = logging.DEBUG if is_quiet else logging.INFO
    LOG.log(level, '%s "%s %s" %s', *asked.values(), rest, extra={"extra": {**asked, **shown}})
    if not (method in _READING or at.reads):
        caller_limits.note_attempt(at.caller.user_id, at.caller.project_id, address, method, uri, status)


# gunicorn's name for the connected socket; other servers have none, and their callers count as staying.
_SOCKET = "gunicorn.socket"


_VERSION = f"HTTP_{microversions.HEADER.upper().replace('-', '_')}"
_NO_VERSIONS = (OWN_PATHS, f"{PAGES}/")
REQUEST_ID = "x-openstack-request-id"


class Application(Flask):
    """A Flask that takes all views and hooks for plain functions, and checks none again in each request."""

    def ensure_sync(self, func: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function as it is."""
        return func


def add_hooks(
    application: Flask,
    authentication: Authentication,
    objection: Callable[[Mapping[str, Any]], str | None] | None,
    enter: Callable[[], None],
) -> None:
    """Add what happens before and after each request; `objection` returns why a caller is refused, if it is.

    There are few hooks, for each of them costs every request. `enter` counts the request of its caller.
    """
    application.before_request(partial(_begin, authentication, objection, enter))
    application.after_request(_finish)
    application.teardown_request(_end)


def _begin(
    authentication: Authentication,
    objection: Callable[[Mapping[str, Any]], str | None] | None,
    enter: Callable[[], None],
) -> None:
    """Start the context of a request, identify its caller, count it, and check what its head says.

    Raises HttpError, NotFound.
    """
    sent, path = request.environ, request.path
    at: context.RequestContext = sent[ENVIRONMENT_KEY]
    at.is_own = path.startswith(_NO_VERSIONS)
    at.begun = context.begin(at)
    # Until the gate of a route decides.
    request_scope.show_only(request_scope.NOTHING)
    request_scope.watch_caller(watch_of(sent))
    reason = objection(sent) if objection is not None and path not in PATHS else None
    if reason is not None:
        raise HttpError(403, reason)
    # On all other paths the caller has a user id.
    if path not in authentication.open_paths:
        context.identify(authentication.strategy())
    enter()
    # Our own paths have no microversions; their errors are as in the newest one.
    at.version = microversions.NEWEST if at.is_own else _agreed_version(sent.get(_VERSION))
    length = sent.get("CONTENT_LENGTH", "").strip()
    if length and not (length.isascii() and length.isdecimal()):
        raise HttpError(400, "content-length header must be an integer")
    if length.strip("0") and not sent.get("CONTENT_TYPE"):
        raise HttpError(400, "content-type header required when content-length > 0")
    # The router takes several leading slashes for one, and no database holds names with a NUL.
    if sent.get("PATH_INFO", "").startswith("//") or "\0" in sent.get("PATH_INFO", ""):
        raise NotFound("")


def _agreed_version(sent: str | None) -> microversions.Microversion:
    try:
        return microversions.negotiate(sent)
    except microversions.InvalidVersion as error:
        raise HttpError(400, f"Invalid microversion: invalid version string: {error}") from None
    except microversions.UnsupportedVersion as error:
        raise HttpError(
            406,
            f"Invalid microversion: Unacceptable version header: {error}",
            extra={"max_version": str(microversions.NEWEST), "min_version": str(microversions.OLDEST)},
        ) from None


def _finish(response: Response) -> Response:
    at, rule = context.current(), request.url_rule
    at.rule = rule.rule if rule is not None else None
    response.headers[REQUEST_ID] = at.request_id
    # No browser shall take JSON, or a text that repeats what was sent, for a page or a script.
    response.headers.add("X-Content-Type-Options", "nosniff")
    if at.version is not None:
        major, minor = at.version
        response.headers[microversions.HEADER] = f"{microversions.SERVICE} {major}.{minor}"
        response.headers.add("Vary", microversions.HEADER)
    if at.leave is not None:
        response.call_on_close(at.leave)
    return response


def _end(_error: BaseException | None) -> None:
    """Take from the thread what held for the request only."""
    request_scope.set_deadline(math.inf)
    request_scope.show_only(request_scope.EVERYTHING)
    at = context.current(None)
    # A thread of another server must not act for the caller of its last request.
    if at is not None and at.begun is not None:
        context.end(at.begun)


_LATER = {"Retry-After": "1"}


def bound(most: int) -> Callable[[], None]:
    """Return a function that counts a request for its user, and raises HttpError 429 beyond `most` at a time.

    `most` 0 means any number. Our own server counts by itself; it only receives the user of the request here.
    Routes that need no token are not limited (common.probes.OPEN_PATHS, http.openapi.PATHS).
    """
    callers = caller_limits.Callers(most)

    def enter() -> None:
        at = context.current()
        user = at.caller.user_id
        if user is None:
            return
        known_as = request.environ.get(caller_limits.KNOWN_AS)
        if known_as is not None:
            if not known_as(user, at.caller.project_id):
                raise HttpError(429, caller_limits.TOO_MANY, headers=_LATER)
            return
        if not callers.enter(user):
            raise HttpError(429, caller_limits.TOO_MANY, headers=_LATER)

        at.leave = partial(callers.leave, user)

    return enter


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
