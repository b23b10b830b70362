"""The pages as a part of the application: their routes, their files, and what browsers may do with them."""

from __future__ import annotations

import importlib.metadata
import logging
from http import HTTPStatus
from pathlib import Path
from typing import Any

from flask import Flask, Response, current_app, request, send_from_directory
from werkzeug.exceptions import HTTPException

from placement import DISTRIBUTION
from placement.common.documents import MOST_FORM_BYTES, MOST_FORM_FIELDS
from placement.engine.domain.errors import BadRequest, NotFound, PlacementError
from placement.flavors.nova.flavor import FlavorRefused
from placement.http import context, operations
from placement.http.context import OPEN_PATHS, Caller, HttpError, Relayed, use_cases
from placement.http.credentials import PAGES
from placement.http.middleware import below
from placement.web import capacity as capacity
from placement.web import changes as changes
from placement.web import consumers as consumers
from placement.web import fleet_map as fleet_map
from placement.web import hosts as hosts
from placement.web import moves as moves
from placement.web import requests as requests
from placement.web import search as search
from placement.web import session, templating, units
from placement.web.day_lines import day_line
from placement.web.session import PasswordRefused, Passwords
from placement.web.templating import CSV, JSON, add_templates, address, blueprint, html, to

# All modules that are imported here add their pages to the blueprint.

# Pages that say what went wrong and what to do about it.


LOG = logging.getLogger(__name__)
SIGN_IN, SIGN_OUT = f"{PAGES}/sign-in", f"{PAGES}/sign-out"
_PASSWORDS = "placement_passwords"
_WITH_PASSWORD = ("user", "password", "project", "user_domain", "project_domain")
_ADVICE = {
    400: "Correct what the message names, and send it again.",
    401: "Sign in again.",
    403: "Ask an administrator for a role to which the policy gives this rule, or sign in as another user.",
    404: "It may have been deleted or renamed, or the address has a mistake. Look for it by its name above.",
    405: "Open the page from the navigation.",
    409: "Something changed meanwhile. Reload the page and look again.",
    410: "Reload the page.",
    413: "Send less at once.",
    429: "Wait a second, then reload the page.",
    500: "Nothing was changed. The log has the details under this request id.",
    503: "Wait a moment, then reload the page. /readyz?verbose says what is not ready.",
}


def problem(status: int, *messages: str) -> Response:
    """Return a page about an error; where JSON or CSV was asked for, the error as the API has it."""
    given = [message for message in messages if message]
    if request.args.get("format") in (JSON, CSV):
        return context.render(status, "; ".join(given))
    return html(
        "problem.html",
        status,
        number=status,
        title=HTTPStatus(status).phrase,
        messages=given,
        advice=_ADVICE.get(status, _ADVICE[500]),
        request_id=context.current().request_id,
    )


blueprint.register_error_handler(PlacementError, lambda error: problem(context.status_of(error), str(error)))
blueprint.register_error_handler(
    FlavorRefused, lambda refused: problem(400, *(message for _, message in refused.problems))
)
blueprint.register_error_handler(HTTPException, lambda error: problem(error.code or 500, ""))


@blueprint.errorhandler(HttpError)
def _http_error(error: HttpError) -> Response:
    if error.status == 401:
        return _unknown()
    response = problem(error.status, error.message)
    response.headers.update(error.headers)
    return response


@blueprint.errorhandler(Relayed)
def _relayed(relayed: Relayed) -> Response:
    status = relayed.response.status_code
    return _unknown() if status == 401 else problem(status, "The identity service refuses the token.")


@blueprint.errorhandler(Exception)
def _fault(error: Exception) -> Response:
    LOG.exception("unexpected failure of %s %s", request.method, request.path, exc_info=error)
    return problem(500, "The failure was logged.")


def _unknown() -> Response:
    """Send an unknown caller on to the sign-in page and back; JSON, CSV and scripts get 401."""
    if request.args.get("format") in (JSON, CSV) or request.headers.get("X-Requested-With"):
        return context.render(401, "The session has ended: sign in again.")
    back = request.full_path.rstrip("?") if request.method == "GET" else None
    ended = "1" if session.is_signed_in() else None
    session.forget()
    return to(address("/sign-in", back=back, ended=ended))


_FILES = Path(__file__).parent / "static"
_STATIC = tuple(sorted(path.name for path in _FILES.iterdir() if path.suffix in (".css", ".js", ".svg")))
# Everything comes from here, and nothing goes elsewhere.
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


def attach(application: Flask) -> None:
    """Add the pages to the application."""
    application.extensions[_PASSWORDS] = Passwords()
    application.register_blueprint(blueprint)
    filters = {
        "amount": units.amount,
        "amount_of": units.amount_of,
        "plain_class": units.plain,
        "requested": units.requested,
        "named": templating.named,
        "in_units": units.in_units,
        "number": units.number,
        "pretty": templating.pretty,
    }
    functions = {
        "address": templating.address,
        "same_page": templating.same_page,
        "form_key": session.form_key,
        "has_hosts": lambda: bool(use_cases().hosts.names().classes),
        "called": units.called,
        "counted": units.counted,
        "share": units.share,
        "shared": units.shared,
        "pairs": units.pairs,
        "summary": units.summary,
        "percent": units.percent,
        "day_line": day_line,
        "version": importlib.metadata.version(DISTRIBUTION),
    }
    add_templates(application, filters, functions)
    files = {f"{PAGES}/static/{name}" for name in _STATIC}
    application.extensions[OPEN_PATHS] |= frozenset({PAGES, SIGN_IN, SIGN_OUT, *files})
    if application.extensions["placement_settings"].api.auth_strategy == "noauth2":
        bare = application.wsgi_app
        wrapped: Any = below(f"{PAGES}/", session.believing(bare), bare)
        application.wsgi_app = wrapped  # type: ignore[method-assign]
    else:
        strategy = application.extensions["placement_authentication"]
        application.extensions["placement_authentication"] = session.with_sessions(strategy)


@blueprint.route(PAGES)
def _start() -> Response:
    return to(f"{request.script_root}{PAGES}/")


@blueprint.route(f"{PAGES}/static/<name>")
def _static(name: str) -> Response:
    if name not in _STATIC:
        raise NotFound(f"There is no file {name}.")
    response = send_from_directory(_FILES, name, max_age=0)
    response.headers["Cache-Control"] = "no-cache"
    return response


@blueprint.route(f"{PAGES}/<path:rest>", methods=["GET", "POST"])
def _no_page(rest: str) -> Response:
    raise NotFound(f"There is no page {PAGES}/{rest}.")


@blueprint.before_request
def _check_form() -> None:
    # As in the API, text that no database can hold is refused before a database is asked.
    operations.parameters()
    if request.method == "POST":
        # Cheap checks come before the form is parsed, as unknown callers send forms, too.
        request.max_content_length = MOST_FORM_BYTES
        if request.mimetype != "application/x-www-form-urlencoded":
            raise HttpError(415, "Pages take forms only.")
        session.check_cookie()
        if request.get_data().count(b"&") >= MOST_FORM_FIELDS:
            raise BadRequest(f"the form has more than {MOST_FORM_FIELDS} fields")
        if any("\0" in value for value in request.form.values()):
            raise BadRequest("the form contains a NUL character")
        session.check_form()


@blueprint.after_request
def _finish(response: Response) -> Response:
    response.headers.extend(_HEADERS)
    if "Cache-Control" not in response.headers:
        response.headers["Cache-Control"] = "no-store"
    return session.keep_cookie(response)


# Signing in and out: with a token, or with a password that Keystone makes a token of.


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
        context.identify(current_app.extensions["placement_authentication"]())
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
    passwords: Passwords = current_app.extensions[_PASSWORDS]
    configuration = current_app.extensions["placement_settings"]
    return passwords.token_for(configuration, request.remote_addr, **given)


def _form(messages: list[str], status: int = 200) -> Response:
    return html("sign_in.html", status, messages=messages, with_password=_uses_keystone(), back=_back() or "")


def _uses_keystone() -> bool:
    return bool(current_app.extensions["placement_settings"].api.auth_strategy == "keystone")


def _back() -> str | None:
    """Return where to go on, if that is one of our pages."""
    found = request.values.get("back", "")
    ours = found.startswith(f"{request.script_root}{PAGES}/") and "\\" not in found and found.isprintable()
    return found if ours else None
