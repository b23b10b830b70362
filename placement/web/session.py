"""The sessions of pages: a cookie that leads to the caller's own token, and the key of its forms.

    cookie -> session in the database -> X-Auth-Token -> the gate of the API, as for every other caller

Any process answers any request. A session ends with its token, after twelve hours, or when its caller signs
out. A form carries a key that is made of the cookie: a caller without the cookie cannot make it (CSRF).
"""

from __future__ import annotations

import hashlib
import hmac
import math
import re
import secrets
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from flask import Response, current_app, g, request
from keystoneauth1 import exceptions
from keystoneauth1.identity import v3
from keystoneauth1.session import Session

from placement.engine.domain.request_scope import Full, WaitingRoom
from placement.http.auth import Strategy
from placement.http.context import Caller, HttpError, Misconfigured
from placement.http.credentials import (
    PAGES,
    SECURE_SESSION_COOKIE,
    SESSION_COOKIE,
    SIGNED_IN,
    sent_session,
    session_cookie,
)
from placement.http.keystone import ANSWER_SECONDS, GROUP
from placement.http.middleware import SIGNED_IN_AS

if TYPE_CHECKING:
    from placement.storage.sessions import Sessions

KEY_FIELD = "form_key"
_TOKEN = "HTTP_X_AUTH_TOKEN"
# How a cookie begins that is there for the sake of forms.
_ANONYMOUS = "a."
_LONGEST = 3800
# Base64 as sessions are made.
_FORM = re.compile(r"(?:[A-Za-z0-9_-]{4})*(?:[A-Za-z0-9_-]{2}==|[A-Za-z0-9_-]{3}=)?")
_FOREIGN = "This form is not of this session, so nothing was done. Go back, reload the page, try again."
# Where callers are believed (noauth2), pages call as the administrator.
_BELIEVED = "admin"
Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def believing(application: Wsgi) -> Wsgi:
    """Return the application for callers that are believed, without sign-in."""

    def call(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        environ.setdefault(_TOKEN, _BELIEVED)
        return application(environ, start_response)

    return call


def with_sessions(strategy: Strategy) -> Strategy:
    """Return the strategy, which finds the token of a session where callers of the API send theirs."""

    def identified() -> Caller:
        cookie = sent_session(request.environ)
        if cookie is not None:
            given = _session()
            token = _sessions().token_of(given) if given else None
            if token is None:
                raise HttpError(401, "The session has ended.")
            request.environ[_TOKEN] = token
        return strategy()

    return identified


def _sessions() -> Sessions:
    # They are of the caller, whatever clusters it may see.
    sessions: Sessions = current_app.extensions["placement_use_cases"].sessions
    return sessions


def _cookie() -> str:
    """Return the cookie of the caller, empty without one.

    Over an encrypted connection only the cookie counts that no other host could set.
    """
    name, value = session_cookie(request.environ)
    return value if name == SECURE_SESSION_COOKIE or not request.is_secure else ""


def _session() -> str | None:
    """Return what the cookie holds of a session; None where it cannot be one.

    So no database is asked about what was made up.
    """
    cookie = _cookie()
    given = cookie.removeprefix(SIGNED_IN)
    return given if given != cookie and len(given) <= _LONGEST and _FORM.fullmatch(given) else None


def needs_sign_in() -> bool:
    """Return whether pages need a sign-in at all."""
    return bool(current_app.extensions["placement_settings"].api.auth_strategy != "noauth2")


def is_signed_in() -> bool:
    """Return whether the request has the cookie of a session, be it good or not."""
    return _cookie().startswith(SIGNED_IN)


def form_key() -> str:
    """Return the key that forms of this caller carry."""
    cookie = _cookie() or g.get("placement_cookie")
    if not cookie:
        # A caller without a cookie gets one with this answer.
        cookie = g.placement_cookie = _ANONYMOUS + secrets.token_urlsafe(24)
    return _key(str(cookie))


def check_cookie() -> str:
    """Return the cookie of the caller, without looking at the form. Raises HttpError 403 without one."""
    known = _cookie()
    if not known:
        raise HttpError(403, _FOREIGN)
    return known


def check_form() -> None:
    """Check that the form came from a page of this caller. Raises HttpError 403."""
    given = request.form.get(KEY_FIELD, "")
    if not hmac.compare_digest(_key(check_cookie()).encode(), given.encode("utf-8", "replace")):
        raise HttpError(403, _FOREIGN)


def _key(cookie: str) -> str:
    return hmac.new(cookie.encode(), b"placement form", hashlib.sha256).hexdigest()


def sign_in(token: str, user_id: str, project_id: str | None) -> None:
    """Begin a session of the token with this answer.

    Raises HttpError 400 for a token that no cookie can hold, Unavailable.
    """
    # The half in the cookie is as long as the token, and four characters for three bytes.
    if len(token.encode("utf-8", "surrogateescape")) * 4 > _LONGEST * 3:
        raise HttpError(400, "The token is too long for a cookie; use one of fewer characters.")
    g.placement_cookie = SIGNED_IN + _sessions().begin(token, user_id)
    signed_in_as = request.environ.get(SIGNED_IN_AS)
    if signed_in_as is not None:
        signed_in_as(g.placement_cookie, user_id, project_id)


def sign_out() -> str | None:
    """End the session of the request for every copy of its cookie, and return the id of its user, if any.

    Raises Unavailable.
    """
    given = _session()
    user_id = _sessions().end(given) if given else None
    forget()
    return user_id


def forget() -> None:
    """Let the answer take the cookie of the session away."""
    g.placement_cookie = _ANONYMOUS + secrets.token_urlsafe(24)


def keep_cookie(response: Response) -> Response:
    """Return the response with the cookie that was chosen meanwhile, if any."""
    cookie = g.pop("placement_cookie", None)
    if cookie is not None:
        response.set_cookie(
            SECURE_SESSION_COOKIE if request.is_secure else SESSION_COOKIE,
            cookie,
            max_age=_sessions().seconds,
            # Browsers take the name for encrypted connections with this path only.
            path="/" if request.is_secure else f"{request.script_root}{PAGES}/",
            secure=request.is_secure,
            httponly=True,
            samesite="Strict",
        )
    return response


# A token of Keystone for a user's password.


_DOMAIN = "Default"
# Fewer than a lane has threads for signing in: threads not held by a slow Keystone refuse others at once.
_ASKING_AT_ONCE = 2
_MOST_GUESSES, _GUESSES_SECONDS = 20, 60
_MOST_ADDRESSES = 10_000


class PasswordRefused(Exception):
    """A refused sign-in; the message says why."""


class Passwords:
    """A gateway that takes passwords to Keystone: few at a time, and few wrong ones from an address.

    A guess is a wrong password of the last minute.
    """

    def __init__(self) -> None:
        self._room = WaitingRoom(_ASKING_AT_ONCE)
        self._turn = threading.Lock()
        self._guesses: OrderedDict[str | None, deque[float]] = OrderedDict()

    def token_for(self, configuration: Any, address: str | None, **given: str) -> str:
        """Return a token for the password that came from this address, as `token_for` below.

        Raises PasswordRefused, HttpError 429 after too many wrong passwords, HttpError 503 if too many
        sign-ins wait for Keystone or it does not answer, Misconfigured.
        """
        # It counts as a guess from the start, or guesses at the same time would be free.
        self._begin(address)
        was_wrong = False
        try:
            with self._room.entered():
                return token_for(configuration, **given)
        except PasswordRefused:
            was_wrong = True
            raise
        except Full:
            message = "Too many sign-ins wait for the identity service; sign in again in a moment."
            raise HttpError(503, message, headers={"Retry-After": "1"}) from None
        finally:
            if not was_wrong:
                with self._turn:
                    times = self._guesses.get(address)
                    if times:
                        times.pop()

    def _begin(self, address: str | None) -> None:
        now = time.monotonic()
        with self._turn:
            times = self._guesses.setdefault(address, deque())
            self._guesses.move_to_end(address)
            while len(self._guesses) > _MOST_ADDRESSES:
                self._guesses.popitem(last=False)
            while times and times[0] <= now - _GUESSES_SECONDS:
                times.popleft()
            if len(times) >= _MOST_GUESSES:
                seconds = math.ceil(times[0] + _GUESSES_SECONDS - now)
                message = "Too many wrong passwords came from this address; sign in again in a minute."
                raise HttpError(429, message, headers={"Retry-After": str(seconds)})
            times.append(now)


def token_for(
    configuration: Any, *, user: str, password: str, project: str, user_domain: str, project_domain: str
) -> str:
    """Return a token for the user in the project. Domains are names, `Default` if empty.

    Keystone is at `www_authenticate_uri`, else at `auth_url`. Raises PasswordRefused, HttpError 503 if it
    does not answer, Misconfigured.
    """
    options = configuration[GROUP]
    found = options.www_authenticate_uri or getattr(options, "auth_url", None)
    if not found:
        raise Misconfigured(f"[{GROUP}] www_authenticate_uri is not set.")
    plugin = v3.Password(
        auth_url=str(found).rstrip("/").removesuffix("/v3") + "/v3",
        username=user,
        password=password,
        user_domain_name=user_domain or _DOMAIN,
        project_name=project or None,
        project_domain_name=(project_domain or _DOMAIN) if project else None,
    )
    verify = False if options.insecure else options.cafile or True
    session = Session(verify=verify, timeout=ANSWER_SECONDS)
    try:
        token = plugin.get_access(session).auth_token
    except exceptions.Unauthorized:
        raise PasswordRefused(
            "Keystone does not know this user with this password in this project."
        ) from None
    except exceptions.ClientException as error:
        raise HttpError(503, f"Keystone cannot be asked: {type(error).__name__}") from None
    return str(token)
