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
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

from flask import Response, request
from keystoneauth1.exceptions import ClientException
from oslo_config import cfg

from placement.engine.domain.waiting_room import Full, WaitingRoom
from placement.http.context import Caller, roles_in
from placement.http.credentials import SharedMemory
from placement.http.errors import HttpError, Relayed
from placement.http.strategies.token_middleware import GROUP, NotSignedIn, TokenMiddleware
from placement.metrics.catalog import IDENTITY

# Operators know its lines by this name.
LOG = logging.getLogger("placement.http.auth")
_ASKING_AT_ONCE = 4
# Each failed request would have a line, and all say the same.
_WARN_AGAIN_SECONDS = 30.0
_LATER = {"Retry-After": "1"}
_UNREACHABLE = "The identity service cannot be asked."
_MOST_REMEMBERED = 10_000
_KEYSTONE_TOKEN, _SERVICE_TOKEN = "X-Auth-Token", "X-Service-Token"
# The key under which the application behind the middleware leaves the caller, and how long it is known.
_FOUND = "placement.found"


class Keystone:
    """The strategy `keystone`, which returns the caller that the request's token stands for."""

    def __init__(self, configuration: cfg.ConfigOpts) -> None:
        """Set up the middleware. Raises Misconfigured with what to install or to configure."""
        self.middleware = TokenMiddleware(_note, configuration)
        self._seconds = float(configuration[GROUP].token_cache_time)
        self._warned_at = -_WARN_AGAIN_SECONDS
        self._remembered: SharedMemory[tuple[float, Caller]] = SharedMemory(_MOST_REMEMBERED)
        self._room = WaitingRoom(_ASKING_AT_ONCE)

    def __call__(self) -> Caller:
        """Return the caller of this request.

        Raises Relayed with what the middleware answers, HttpError 503 if too many wait, 401 without a user,
        403 for a token without any scope.
        """
        caller = self._identified()
        if not (caller.project_id or caller.domain_id or caller.system_scope):
            # No role that it may have was given for anything.
            raise HttpError(403, "This token has no scope: ask the identity service for one of a project.")
        return caller

    def _identified(self) -> Caller:
        # A key for the request's tokens that does not reveal them.
        tokens = (request.headers.get(name, "").encode() for name in (_KEYSTONE_TOKEN, _SERVICE_TOKEN))
        digest = b"".join(hashlib.sha256(token).digest() for token in tokens)
        key = digest if request.headers.get(_KEYSTONE_TOKEN) else None
        caller = self._recall(key)
        if caller is not None:
            return caller
        try:
            with self._room.entered():
                # Another thread may have validated this very token while this one waited.
                return self._recall(key) or self._ask(key)
        except Full:
            IDENTITY.labels("busy").inc()
            message = "Too many requests wait for the identity service to validate their tokens."
            raise HttpError(503, message, headers=_LATER) from None

    def _recall(self, key: bytes | None) -> Caller | None:
        if key is None:
            return None
        until, caller = self._remembered.get(key) or (0.0, None)
        return caller if time.monotonic() < until else None

    def _ask(self, key: bytes | None) -> Caller:
        environ = {**request.environ, "wsgi.input": io.BytesIO(), "CONTENT_LENGTH": "0"}
        # The middleware would read it as X-Auth-Token, by which callers are remembered.
        environ.pop("HTTP_X_STORAGE_TOKEN", None)
        answered: list[Any] = []

        def start(status: str, headers: list[tuple[str, str]], *_: Any) -> None:
            answered[:] = status, headers

        try:
            body = b"".join(self.middleware(environ, start))
        except ClientException as error:
            # The middleware answers 503 itself, unless its own login fails.
            raise self._unreachable(str(error)) from None
        found = environ.get(_FOUND)
        if found is None:
            status, headers = answered
            if status.startswith("503"):
                # The middleware's own page is HTML, whatever the caller accepts.
                raise self._unreachable("the line of keystonemiddleware before this one has the reason")
            if key is not None:
                IDENTITY.labels("refused").inc()
            raise Relayed(Response(body, status, headers))
        IDENTITY.labels("valid").inc()
        caller: Caller = found[0]
        if not caller.user_id:
            raise HttpError(401, "The request you have made requires authentication.")
        seconds = min(found[1], self._seconds)
        if key is not None and seconds > 0:
            self._remembered.keep(key, caller.user_id, (time.monotonic() + seconds, caller))
        return caller

    def sign_in_beside(self) -> None:
        """Sign in from a thread of its own, so that an Identity that is away is known before any request.

        The process starts and is ready either way: it answers callers that it knows, and probes.
        """

        def sign_in() -> None:
            try:
                self.middleware.sign_in()
            except NotSignedIn as error:
                self._unreachable(str(error))

        threading.Thread(target=sign_in, name="identity", daemon=True).start()

    def _unreachable(self, reason: str) -> HttpError:
        """Count that Identity could not be asked, warn of it, and return the answer to the caller."""
        IDENTITY.labels("unreachable").inc()
        now = time.monotonic()
        if now - self._warned_at >= _WARN_AGAIN_SECONDS:
            self._warned_at = now
            LOG.warning(
                "identity unreachable: OpenStack Identity at %s cannot be asked, so tokens that "
                "this process does not remember are answered 503: %s",
                self.middleware.address,
                reason,
            )
        return HttpError(503, _UNREACHABLE, headers=_LATER)


def _note(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
    """Note the caller, as the application behind the middleware: only valid tokens get here."""
    caller = Caller(
        environ.get("HTTP_X_USER_ID"),
        environ.get("HTTP_X_PROJECT_ID"),
        roles_in(environ.get("HTTP_X_ROLES", "")),
        environ.get("HTTP_OPENSTACK_SYSTEM_SCOPE") == "all",
        environ.get("HTTP_X_DOMAIN_ID"),
    )
    # How many seconds the token alone identifies the caller; 0 if the request matters, too.
    token = (environ.get("keystone.token_info") or {}).get("token") or {}
    credential = token.get("application_credential") or {}
    seconds = 0.0
    if not token.get("bind") and credential.get("access_rules") is None:
        with suppress(KeyError, TypeError, ValueError):
            expires = datetime.datetime.fromisoformat(token["expires_at"])
            seconds = (expires - datetime.datetime.now(datetime.UTC)).total_seconds()
    environ[_FOUND] = caller, seconds
    start_response("204 No Content", [])
    return []
