"""Callers with tokens of OpenStack Identity, which its middleware validates and this service remembers.

    token -> remembered? -> waiting room -> middleware asks Keystone -> remembered until it expires

A Keystone that hangs must not take all threads with it: callers with a remembered token never wait, and of
the others only as many wait as the waiting room lets in.
"""

from __future__ import annotations

import datetime
import hashlib
import io
import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from flask import Response, request
from oslo_config import cfg

from placement.engine.domain.deadline import Full, WaitingRoom
from placement.http.context import Caller
from placement.http.responses import HttpError, Misconfigured, Relayed

LOG = logging.getLogger(__name__)
_GROUP = "keystone_authtoken"
_ANSWER_SECONDS = 5
_RETRIES = 1
_ASKING_AT_ONCE = 4
_LATER = {"Retry-After": "1"}
_UNREACHABLE = "The identity service cannot be asked."
_MOST_REMEMBERED = 10_000
_TOKEN, _SERVICE_TOKEN = "X-Auth-Token", "X-Service-Token"
# The key under which the application behind the middleware leaves the caller, and how long it is known.
_FOUND = "placement.found"


class Keystone:
    """The strategy `keystone`, which returns the caller that the request's token stands for."""

    def __init__(self, configuration: cfg.ConfigOpts) -> None:
        """Set up the middleware. Raises Misconfigured with what to install or to configure."""
        self._validate = _usable_middleware(configuration)
        self._failures = _failures()
        self._seconds = float(configuration[_GROUP].token_cache_time)
        self._remembered: OrderedDict[bytes, tuple[float, Caller]] = OrderedDict()
        self._turn = threading.Lock()
        self._room = WaitingRoom(_ASKING_AT_ONCE)

    def __call__(self) -> Caller:
        """Return the caller of this request.

        Raises Relayed with what the middleware answers, HttpError 503 if too many wait, 401 without a user.
        """
        key = _key()
        caller = self._recall(key)
        if caller is not None:
            return caller
        try:
            with self._room.entered():
                # Another thread may have validated this very token while this one waited.
                return self._recall(key) or self._ask(key)
        except Full:
            message = "Too many requests wait for the identity service to validate their tokens."
            raise HttpError(503, message, headers=_LATER) from None

    def _ask(self, key: bytes | None) -> Caller:
        environ = {**request.environ, "wsgi.input": io.BytesIO(), "CONTENT_LENGTH": "0"}
        # The middleware would read it as X-Auth-Token, by which callers are remembered.
        environ.pop("HTTP_X_STORAGE_TOKEN", None)
        answered: list[Any] = []

        def start(status: str, headers: list[tuple[str, str]], *_: Any) -> None:
            answered[:] = status, headers

        try:
            body = b"".join(self._validate(environ, start))
        except self._failures as error:
            # The middleware answers 503 itself, unless its own login fails.
            LOG.warning("the identity service cannot be asked: %s", error)
            raise HttpError(503, _UNREACHABLE, headers=_LATER) from None
        found = environ.get(_FOUND)
        if found is None:
            status, headers = answered
            if status.startswith("503"):
                # The middleware's own page is HTML, whatever the caller accepts.
                raise HttpError(503, _UNREACHABLE, headers=_LATER)
            raise Relayed(Response(body, status, headers))
        caller: Caller = found[0]
        if not caller.user_id:
            raise HttpError(401, "The request you have made requires authentication.")
        self._remember(key, caller, min(found[1], self._seconds))
        return caller

    def _recall(self, key: bytes | None) -> Caller | None:
        if key is None:
            return None
        with self._turn:
            until, caller = self._remembered.get(key, (0.0, None))
            return caller if time.monotonic() < until else None

    def _remember(self, key: bytes | None, caller: Caller, seconds: float) -> None:
        if key is None or seconds <= 0:
            return
        with self._turn:
            self._remembered.pop(key, None)
            self._remembered[key] = time.monotonic() + seconds, caller
            while len(self._remembered) > _MOST_REMEMBERED:
                self._remembered.popitem(last=False)


def _key() -> bytes | None:
    """Return a key for the request's tokens that does not reveal them; None without a token."""
    if not request.headers.get(_TOKEN):
        return None
    sent = (request.headers.get(name, "").encode() for name in (_TOKEN, _SERVICE_TOKEN))
    return b"".join(hashlib.sha256(token).digest() for token in sent)


def _failures() -> tuple[type[Exception], ...]:
    from keystoneauth1.exceptions import ClientException

    return (ClientException,)


def _usable_middleware(configuration: cfg.ConfigOpts) -> Callable[..., Iterable[bytes]]:
    """Return the middleware. Raises Misconfigured if it cannot be used."""
    try:
        return _middleware(configuration)
    except Misconfigured:
        raise
    except Exception as error:
        if not isinstance(error, (*_failures(), cfg.Error, ValueError, OSError)):
            raise
        # Only the plugin knows its options; it reports missing ones when it is created.
        reason = " ".join(str(error).split())
        raise Misconfigured(f"[{_GROUP}] cannot be used: {reason}") from None


def _middleware(configuration: cfg.ConfigOpts) -> Callable[..., Iterable[bytes]]:
    """Return the middleware. Raises Misconfigured if it is not installed or lacks options."""
    try:
        from keystonemiddleware.auth_token import AuthProtocol
        from keystonemiddleware.opts import list_auth_token_opts
    except ImportError:
        raise Misconfigured(
            "auth_strategy keystone needs keystonemiddleware: install this package with its extra "
            "`keystone`, or choose another [api] auth_strategy."
        ) from None
    for group, options in list_auth_token_opts():
        configuration.register_opts(options, group=group)
    # Without these the middleware would wait for an answer forever.
    configuration.set_default("http_connect_timeout", _ANSWER_SECONDS, group=_GROUP)
    configuration.set_default("http_request_max_retries", _RETRIES, group=_GROUP)
    settings: dict[str, Any] = {"oslo_config_config": configuration}
    if not configuration[_GROUP].memcached_servers:
        # A cache of its own would only prolong the time for which we remember callers.
        settings["token_cache_time"] = "-1"
    guarded: Callable[..., Iterable[bytes]] = AuthProtocol(_note, settings)
    if not (configuration[_GROUP].auth_type or configuration[_GROUP].auth_section):
        raise Misconfigured(
            "auth_strategy keystone needs [keystone_authtoken] auth_type, and what goes with it, to ask "
            "Keystone about tokens; or choose another [api] auth_strategy."
        )
    return guarded


def _note(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Note the caller, as the application behind the middleware: only valid tokens get here."""
    roles = environ.get("HTTP_X_ROLES", "").split(",")
    caller = Caller(
        environ.get("HTTP_X_USER_ID"),
        environ.get("HTTP_X_PROJECT_ID"),
        frozenset(role.strip().lower() for role in roles if role.strip()),
        environ.get("HTTP_OPENSTACK_SYSTEM_SCOPE") == "all",
        environ.get("HTTP_X_DOMAIN_ID"),
    )
    environ[_FOUND] = caller, _seconds_left(environ.get("keystone.token_info") or {})
    start_response("204 No Content", [])
    return []


def _seconds_left(info: Mapping[str, Any]) -> float:
    """Return how many seconds the token alone identifies the caller; 0 if the request matters, too."""
    token = info.get("token") or {}
    credential = token.get("application_credential") or {}
    if token.get("bind") or credential.get("access_rules") is not None:
        return 0
    try:
        expires = datetime.datetime.fromisoformat(token["expires_at"])
    except (KeyError, TypeError, ValueError):
        return 0
    return (expires - datetime.datetime.now(datetime.UTC)).total_seconds()
