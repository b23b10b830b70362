"""Signing in and out: with a token, or with a password that Keystone makes a token of."""

from __future__ import annotations

from flask import Blueprint, Flask, Response, current_app, request

from placement.http import context
from placement.http.gate import PAGES
from placement.http.responses import HttpError, Relayed
from placement.web import session
from placement.web.session import PasswordRefused, Passwords
from placement.web.templating import address, html, to

SIGN_IN, SIGN_OUT = f"{PAGES}/sign-in", f"{PAGES}/sign-out"
_PASSWORDS = "placement_passwords"
_WITH_PASSWORD = ("user", "password", "project", "user_domain", "project_domain")


def register(application: Flask, blueprint: Blueprint) -> None:
    """Add the routes, which need no token."""
    application.extensions[_PASSWORDS] = Passwords()
    blueprint.add_url_rule(SIGN_IN, "sign_in", _sign_in, methods=["GET", "POST"])
    blueprint.add_url_rule(SIGN_OUT, "sign_out", _sign_out, methods=["POST"])


def _sign_in() -> Response:
    """Show the form, or sign in with what is in it."""
    if not session.needs_sign_in():
        return to(address("/"))
    if request.method == "GET":
        ended = "Your session has ended. Sign in again to go on." if request.args.get("ended") else None
        return _form(None if ended is None else [ended])
    session.check_form()
    try:
        token = _given_token()
        _check(token)
    except PasswordRefused as refused:
        return _form([str(refused)], 401)
    session.sign_in(token)
    return to(_back() or address("/"))


def _sign_out() -> Response:
    session.check_form()
    session.sign_out()
    return to(address("/sign-in" if session.needs_sign_in() else "/"))


def _given_token() -> str:
    """Return the token in the form, or one for its password. Raises PasswordRefused, saying why."""
    token = request.form.get("token", "").strip()
    if token:
        return token
    given = {name: request.form.get(name, "") for name in _WITH_PASSWORD}
    if not given["user"] or not _uses_keystone():
        raise PasswordRefused(
            "Give a token." if not _uses_keystone() else "Give a token, or user and password."
        )
    passwords: Passwords = current_app.extensions[_PASSWORDS]
    configuration = current_app.extensions["placement_settings"].configuration
    return passwords.token_for(configuration, request.remote_addr, **given)


def _check(token: str) -> None:
    """Check that the gate knows the token. Raises PasswordRefused."""
    request.environ["HTTP_X_AUTH_TOKEN"] = token
    try:
        context.identify(current_app.extensions["placement_authentication"]())
    except HttpError as error:
        if error.status != 401:
            raise
        raise PasswordRefused("This token is not known here, or it has expired.") from None
    except Relayed:
        raise PasswordRefused("The identity service does not know this token.") from None


def _form(messages: list[str] | None, status: int = 200) -> Response:
    return html(
        "sign_in.html", status, messages=messages or [], with_password=_uses_keystone(), back=_back() or ""
    )


def _uses_keystone() -> bool:
    return bool(current_app.extensions["placement_settings"].auth_strategy == "keystone")


def _back() -> str | None:
    """Return where to go on, if that is one of our pages."""
    found = request.values.get("back", "")
    ours = found.startswith(f"{request.script_root}{PAGES}/") and "\\" not in found and found.isprintable()
    return found if ours else None
