"""The sessions of pages: a cookie that leads to the caller's own token, and the key of its forms.

    cookie -> session in the database -> X-Auth-Token -> the gate of the API, as for every other caller

Any process answers any request. A session ends with its token, after twelve hours, or when its caller signs
out. A form carries a key that is made of the cookie: a caller without the cookie cannot make it (CSRF).
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from collections.abc import Callable, Iterable
from typing import Any

from flask import Response, g, request

from placement.http import credentials
from placement.http.caller_limits import SIGNED_IN_AS
from placement.http.context import Caller, component
from placement.http.errors import HttpError
from placement.http.strategies.authentication import Authentication, AuthStrategy
from placement.sessions import Sessions

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
WsgiCall = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def believing(application: WsgiCall) -> WsgiCall:
    """Return the application for callers that are believed, without sign-in."""

    def call(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        environ.setdefault(_TOKEN, _BELIEVED)
        return application(environ, start_response)

    return call


def with_sessions(strategy: AuthStrategy) -> AuthStrategy:
    """Return the strategy, which finds the token of a session where callers of the API send theirs."""

    def identified() -> Caller:
        cookie = credentials.sent_session(request.environ)
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
    return component(Sessions)


def _cookie() -> str:
    """Return the cookie of the caller, empty without one.

    Over an encrypted connection only the cookie counts that no other host could set.
    """
    name, value = credentials.session_cookie(request.environ)
    return value if name == credentials.SECURE_SESSION_COOKIE or not request.is_secure else ""


def _session() -> str | None:
    """Return what the cookie holds of a session; None where it cannot be one.

    So no database is asked about what was made up.
    """
    cookie = _cookie()
    given = cookie.removeprefix(credentials.SIGNED_IN)
    return given if given != cookie and len(given) <= _LONGEST and _FORM.fullmatch(given) else None


def needs_sign_in() -> bool:
    """Return whether pages need a sign-in at all."""
    return not component(Authentication).believes


def is_signed_in() -> bool:
    """Return whether the request has the cookie of a session, be it good or not."""
    return _cookie().startswith(credentials.SIGNED_IN)


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
    g.placement_cookie = credentials.SIGNED_IN + _sessions().begin(token, user_id)
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
            credentials.SECURE_SESSION_COOKIE if request.is_secure else credentials.SESSION_COOKIE,
            cookie,
            max_age=_sessions().seconds,
            # Browsers take the name for encrypted connections with this path only.
            path="/" if request.is_secure else f"{request.script_root}{credentials.PAGES}/",
            secure=request.is_secure,
            httponly=True,
            samesite="Strict",
        )
    return response
