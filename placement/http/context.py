"""The context of a request: its id, its version, its caller, and the use cases it may call."""

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlsplit

from flask import current_app, g, request
from oslo_context import context as log_context

from placement.common.microversions import OLDEST, Feature, Microversion
from placement.engine.domain import request_scope
from placement.engine.domain.identifiers import is_loopback
from placement.engine.domain.request_scope import act_as, initiator

if TYPE_CHECKING:
    from placement.use_cases import UseCases


# Places in the WSGI environment that the application shares with the middleware around it: the request's id,
# the Caller, whether the request changes nothing whatever its method, and how many candidates it found.
ENVIRONMENT_KEY = "placement.request_id"
CALLER_KEY = "placement.caller"
READS_KEY = "placement.reads"
CANDIDATES_KEY = "placement.candidates"
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
    """The state of the current request; `version` is None until agreed, `body` unless it is read early."""

    request_id: str
    version: Microversion | None = None
    caller: Caller = field(default=ANONYMOUS)
    body: bytes | None = None


def identify(caller: Caller) -> None:
    """Note the caller for the handler, and for every audit record and log line from now on."""
    g.placement.caller = caller
    request.environ[CALLER_KEY] = caller
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


def note_candidates(count: int) -> None:
    """Note how many candidates the request at hand found, for its line in the log."""
    request.environ[CANDIDATES_KEY] = count


def note_that_it_reads() -> None:
    """Note that the request at hand tried to change nothing, so that it has no line in the audit log."""
    request.environ[READS_KEY] = True


def begin() -> RequestContext:
    """Start the context of a request, under the id that the surrounding middleware gave it; return it."""
    context = g.placement = RequestContext(request.environ[ENVIRONMENT_KEY])
    return context


def current() -> RequestContext:
    """Return the context of the current request."""
    context: RequestContext = g.placement
    return context


def version() -> Microversion:
    """Return the agreed version, the oldest before it is agreed."""
    return current().version or OLDEST


def offers(feature: Feature) -> bool:
    """Return whether the request's version has the feature."""
    return (current().version or OLDEST).offers(feature)


def use_cases() -> UseCases:
    """Return the use cases that the routes of this application may call for the current caller."""
    found: UseCases = current_app.extensions["placement_use_cases"]
    return found if request_scope.seen() is None else found.of_clusters()


# The connection of a request: whether its sender is still there, and whether it is on this machine.
#
# Without authentication only callers on this machine are served. A web page of another site may send requests
# to loopback, also through a name that points there (DNS rebinding), and a proxy on this machine may forward
# requests of the whole network.


# gunicorn's name for the connected socket; other servers have none, and their callers count as staying.
_SOCKET = "gunicorn.socket"
_PROXIES = (
    "HTTP_CF_CONNECTING_IP",
    "HTTP_FORWARDED",
    "HTTP_TRUE_CLIENT_IP",
    "HTTP_VIA",
    "HTTP_X_CLIENT_IP",
    "HTTP_X_ORIGINAL_FORWARDED_FOR",
    "HTTP_X_REAL_IP",
)
_PROXIES_START = "HTTP_X_FORWARDED_"
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
    passed_on = sorted(key for key in environ if key in _PROXIES or key.startswith(_PROXIES_START))
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
    return None


# A few callers send most of the requests.
@lru_cache(maxsize=1024)
def _name(host: str) -> str:
    """Return a host without its port, from a Host header or an origin; empty if it is malformed."""
    try:
        return "" if set("@/?#") & set(host) else urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""
