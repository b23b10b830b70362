"""Signing in and out: with a token, or with a password that Keystone makes a token of."""

from __future__ import annotations

from flask import Response, request
from oslo_config import cfg

from placement.http import context
from placement.http.context import Caller, component
from placement.http.credentials import PAGES
from placement.http.errors import HttpError, Relayed
from placement.http.strategies.authentication import Authentication
from placement.web import session
from placement.web.answers import address, html, to
from placement.web.passwords import PasswordRefused, Passwords
from placement.web.templating import blueprint

SIGN_IN, SIGN_OUT = f"{PAGES}/sign-in", f"{PAGES}/sign-out"
_WITH_PASSWORD = ("user", "password", "project", "user_domain", "project_domain")


@blueprint.route(SIGN_IN, methods=["GET", "POST"])
def _sign_in() -> Response:
    if not session.needs_sign_in():
        return to(address("/"))
    if request.method == "GET":
        ended = ["Your session has ended. Sign in again to go on."] if request.args.get("ended") else []
        return _form(ended)
    session.check_form()
    try:
        token = _given_token()
        # The gate has to know the token.
        request.environ["HTTP_X_AUTH_TOKEN"] = token
        context.identify(component(Authentication).strategy())
    except PasswordRefused as refused:
        return _form([str(refused)], 401)
    except Relayed:
        return _form(["The identity service does not know this token."], 401)
    except HttpError as error:
        if error.status != 401:
            raise
        return _form(["This token is not known here, or it has expired."], 401)
    # Every strategy gives a user.
    caller = context.current().caller
    session.sign_in(token, str(caller.user_id), caller.project_id)
    return to(_back() or address("/"))


@blueprint.route(SIGN_OUT, methods=["POST"])
def _sign_out() -> Response:
    session.check_form()
    user_id = session.sign_out()
    if user_id is not None:
        # The line about this request names its user.
        context.identify(Caller(user_id, None, frozenset()))
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
    configuration = component(cfg.ConfigOpts)
    return component(Passwords).token_for(configuration, request.remote_addr, **given)


def _form(messages: list[str], status: int = 200) -> Response:
    return html("sign_in.html", status, messages=messages, with_password=_uses_keystone(), back=_back() or "")


def _uses_keystone() -> bool:
    return component(Authentication).keystone is not None


def _back() -> str | None:
    """Return where to go on, if that is one of our pages."""
    found = request.values.get("back", "")
    ours = found.startswith(f"{request.script_root}{PAGES}/") and "\\" not in found and found.isprintable()
    return found if ours else None
