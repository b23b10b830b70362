"""The pages as a part of the application: their routes, their files, and what browsers may do with them."""

from __future__ import annotations

import importlib.metadata
import logging
from http import HTTPStatus
from pathlib import Path
from typing import Any

from flask import Flask, Response, request, send_from_directory
from werkzeug.exceptions import HTTPException

from placement import DISTRIBUTION
from placement.common.documents import MOST_FORM_BYTES, MOST_FORM_FIELDS
from placement.common.titles import consumer_title, short_id
from placement.engine.domain.errors import BadRequest, NotFound, PlacementError
from placement.engine.domain.units import percent
from placement.flavors.nova.problems import FlavorRefused
from placement.http import bodies, context
from placement.http.context import service
from placement.http.credentials import PAGES
from placement.http.errors import HttpError, Relayed, render, status_of
from placement.http.middleware import below
from placement.http.registry import registry_of
from placement.http.strategies.authentication import Authentication
from placement.providers.fleet import Hosts

# All modules that are imported so add their pages to the blueprint.
from placement.web import answers, session, templating, units
from placement.web import capacity as capacity
from placement.web import changes as changes
from placement.web import claims as claims
from placement.web import consumers as consumers
from placement.web import fleet_map as fleet_map
from placement.web import hosts as hosts
from placement.web import moves as moves
from placement.web import orphans as orphans
from placement.web import overview as overview
from placement.web import requests as requests
from placement.web import search as search
from placement.web.day_lines import day_line
from placement.web.passwords import Passwords
from placement.web.signing_in import SIGN_IN, SIGN_OUT
from placement.web.templating import add_templates, blueprint

LOG = logging.getLogger(__name__)
_ADVICE = {
    400: "Correct the field that the message names, and send it again.",
    401: "Sign in again.",
    403: "Ask an administrator for a role to which the policy gives this rule, or sign in as another user.",
    404: "It may have been deleted or renamed, or the address has a mistake. Look for it by its name above.",
    405: "Open the page from the navigation.",
    409: "Something changed meanwhile. Reload the page and look again.",
    410: "Reload the page.",
    413: "Send less at once.",
    429: "Wait a second, then reload the page.",
    500: "Nothing was changed. The log has the details under this request id.",
    503: "Wait a moment, then reload the page. /readyz?verbose lists the checks that fail.",
}


def problem(status: int, *messages: str) -> Response:
    """Return a page about an error; where JSON or CSV was asked for, the error as the API has it."""
    given = [message for message in messages if message]
    if request.args.get("format") in (answers.JSON, answers.CSV):
        return render(status, "; ".join(given))
    return answers.html(
        "problem.html",
        status,
        number=status,
        title=HTTPStatus(status).phrase,
        messages=given,
        advice=_ADVICE.get(status, _ADVICE[500]),
        request_id=context.current().request_id,
    )


blueprint.register_error_handler(PlacementError, lambda error: problem(status_of(error), str(error)))
blueprint.register_error_handler(FlavorRefused, lambda refused: problem(400, *map(str, refused.findings)))
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
    if request.args.get("format") in (answers.JSON, answers.CSV) or request.headers.get("X-Requested-With"):
        return render(401, "The session has ended: sign in again.")
    back = request.full_path.rstrip("?") if request.method == "GET" else None
    ended = "1" if session.is_signed_in() else None
    session.forget()
    return answers.to(answers.address("/sign-in", back=back, ended=ended))


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
    registry = registry_of(application)
    registry.add(Passwords())
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
        "address": answers.address,
        "same_page": answers.same_page,
        "form_key": session.form_key,
        "short": templating.short,
        "title_of": consumer_title,
        "has_hosts": lambda: bool(service(Hosts).names().classes),
        "called": units.called,
        "counted": units.counted,
        "share": units.share,
        "shared": units.shared,
        "pairs": units.pairs,
        "summary": units.summary,
        "percent": percent,
        "short_id": short_id,
        "day_line": day_line,
        "version": importlib.metadata.version(DISTRIBUTION),
    }
    add_templates(application, filters, functions)
    files = {f"{PAGES}/static/{name}" for name in _STATIC}
    authentication = registry[Authentication]
    authentication.open_paths |= {PAGES, SIGN_IN, SIGN_OUT, *files}
    if authentication.believes:
        bare = application.wsgi_app
        wrapped: Any = below(f"{PAGES}/", session.believing(bare), bare)
        application.wsgi_app = wrapped  # type: ignore[method-assign]
    else:
        authentication.strategy = session.with_sessions(authentication.strategy)


@blueprint.route(PAGES)
def _start() -> Response:
    return answers.to(f"{request.script_root}{PAGES}/")


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
    bodies.parameters()
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
