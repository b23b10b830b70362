"""Who looks at pages: a cookie that carries the caller's own token, and the key of its forms.

    cookie -> X-Auth-Token -> the gate of the API, as for every other caller

The service keeps no sessions, so any process answers any request, and a session ends with its token. A form
carries a key that is made of the cookie: who does not have the cookie cannot make it (CSRF).
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Callable, Iterable
from typing import Any

from flask import Response, current_app, g, request
from werkzeug.http import parse_cookie

from placement.api.errors import HttpError
from placement.api.route_guard import PAGES

COOKIE = "placement_session"
KEY_FIELD = "form_key"
_TOKEN = "HTTP_X_AUTH_TOKEN"
# What a cookie begins with that carries a token; others are there for the sake of forms.
_SIGNED_IN = "t."
_ANONYMOUS = "a."
_LONGEST = 3800
_FOREIGN = "This form is not of this session, so nothing was done. Go back, reload the page, try again."
# Whoever calls is believed there, so pages call as the administrator.
_BELIEVED = "admin"
Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


def with_tokens(application: Wsgi, *, believes: bool) -> Wsgi:
    """The application, which finds the token of a cookie where callers of the API send theirs.

    `believes`: nobody signs in here.
    """
    below = f"{PAGES}/"

    def call(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        if environ["PATH_INFO"].startswith(below) and _TOKEN not in environ:
            token = _BELIEVED if believes else _token(parse_cookie(environ).get(COOKIE, ""))
            if token:
                environ[_TOKEN] = token
        return application(environ, start_response)

    return call


def _token(cookie: str) -> str | None:
    """The token in a cookie, None if there is none."""
    if not cookie.startswith(_SIGNED_IN):
        return None
    try:
        return base64.urlsafe_b64decode(cookie.removeprefix(_SIGNED_IN)).decode("latin-1")
    except (binascii.Error, ValueError):
        return None


def needs_sign_in() -> bool:
    """Whether people sign in here at all."""
    return bool(current_app.extensions["placement_settings"].auth_strategy != "noauth2")


def is_signed_in() -> bool:
    """Whether the request carries a token in its cookie, be it good or not."""
    return request.cookies.get(COOKIE, "").startswith(_SIGNED_IN)


def form_key() -> str:
    """The key that forms of this caller carry."""
    return _key(_cookie())


def check_cookie() -> str:
    """Return the cookie of the caller, without looking at the form. Raises HttpError 403 without one."""
    known = request.cookies.get(COOKIE)
    if not known:
        raise HttpError(403, _FOREIGN)
    return known


def check_form() -> None:
    """Raises HttpError 403 unless the form came from a page of this caller."""
    given = request.form.get(KEY_FIELD, "")
    if not hmac.compare_digest(_key(check_cookie()).encode(), given.encode("utf-8", "replace")):
        raise HttpError(403, _FOREIGN)


def _key(cookie: str) -> str:
    return hmac.new(cookie.encode(), b"placement form", hashlib.sha256).hexdigest()


def _cookie() -> str:
    """The cookie of the caller, who gets one with this answer if there is none."""
    found = request.cookies.get(COOKIE) or g.get("placement_cookie")
    if not found:
        found = g.placement_cookie = _ANONYMOUS + secrets.token_urlsafe(24)
    return str(found)


def sign_in(token: str) -> None:
    """Let the answer carry the token. Raises HttpError 400 for one that no cookie can hold."""
    cookie = _SIGNED_IN + base64.urlsafe_b64encode(token.encode("utf-8", "surrogateescape")).decode()
    if len(cookie) > _LONGEST:
        raise HttpError(400, "The token is too long for a cookie; use one of fewer characters.")
    g.placement_cookie = cookie


def sign_out() -> None:
    """Let the answer take the token away."""
    g.placement_cookie = _ANONYMOUS + secrets.token_urlsafe(24)


def keep_cookie(response: Response) -> Response:
    """The response with the cookie that was chosen meanwhile, if any."""
    cookie = g.pop("placement_cookie", None)
    if cookie is not None:
        response.set_cookie(
            COOKIE,
            cookie,
            path=f"{request.script_root}{PAGES}/",
            secure=request.is_secure,
            httponly=True,
            samesite="Strict",
        )
    return response
