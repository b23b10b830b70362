"""The pages as a part of the application: their routes, their files, and what browsers may do with them."""

from __future__ import annotations

import logging
from http import HTTPStatus
from pathlib import Path
from typing import Any

from flask import Blueprint, Flask, Response, request, send_from_directory
from werkzeug.exceptions import HTTPException

from placement.common.documents import MOST_FORM_BYTES, MOST_FORM_FIELDS
from placement.engine.domain.errors import BadRequest, NotFound, PlacementError
from placement.engine.numa.cpuset import format_cpu_list
from placement.flavors.nova import FlavorRefused
from placement.http import context, operations, responses
from placement.http.context import OPEN_PATHS
from placement.http.gate import PAGES
from placement.http.middleware import below
from placement.http.responses import HttpError, Relayed
from placement.web import (
    capacity,
    changes,
    claims,
    consumers,
    fleet_map,
    hosts,
    requests,
    session,
    sign_in,
    templating,
    units,
)
from placement.web.templating import CSV, JSON, add_templates, address, html, to

# Pages that say what went wrong and what to do about it.


LOG = logging.getLogger(__name__)
_ADVICE = {
    400: "Correct what the message names, and send it again.",
    401: "Sign in again.",
    403: "Ask an administrator for a role that may, or sign in as another user.",
    404: "It may have been deleted or renamed, or the address has a mistake. Look for it by its name above.",
    405: "Open the page from the navigation.",
    409: "Something changed meanwhile. Reload the page and look again.",
    410: "Reload the page.",
    413: "Send less at once.",
    429: "Wait a second, then reload the page.",
    500: "Nothing was changed. The log has the details under this request id.",
    503: "Wait a moment, then reload the page. /readyz?verbose says what is not ready.",
}


def handle(blueprint: Blueprint) -> None:
    """Show errors of the pages as pages."""
    blueprint.register_error_handler(PlacementError, _refused)
    blueprint.register_error_handler(FlavorRefused, _flavor_refused)
    blueprint.register_error_handler(HttpError, _http_error)
    blueprint.register_error_handler(Relayed, _relayed)
    blueprint.register_error_handler(HTTPException, lambda error: problem(error.code or 500, ""))
    blueprint.register_error_handler(Exception, _fault)


def problem(status: int, *messages: str) -> Response:
    """Return a page about an error; where JSON or CSV was asked for, the error as the API has it."""
    given = [message for message in messages if message]
    if request.args.get("format") in (JSON, CSV):
        return responses.render(status, "; ".join(given))
    return html(
        "problem.html",
        status,
        number=status,
        title=HTTPStatus(status).phrase,
        messages=given,
        advice=_ADVICE.get(status, _ADVICE[500]),
        request_id=context.current().request_id,
    )


def _refused(error: PlacementError) -> Response:
    return problem(responses.status_of(error), str(error))


def _flavor_refused(refused: FlavorRefused) -> Response:
    return problem(400, *(message for _, message in refused.problems))


def _http_error(error: HttpError) -> Response:
    if error.status == 401:
        return _unknown()
    response = problem(error.status, error.message)
    response.headers.update(error.headers)
    return response


def _relayed(relayed: Relayed) -> Response:
    status = relayed.response.status_code
    return _unknown() if status == 401 else problem(status, "The identity service refuses the token.")


def _unknown() -> Response:
    """Send an unknown caller on to the sign-in page and back; JSON, CSV and scripts get 401."""
    if request.args.get("format") in (JSON, CSV) or request.headers.get("X-Requested-With"):
        return responses.render(401, "The session has ended: sign in again.")
    back = request.full_path.rstrip("?") if request.method == "GET" else None
    ended = "1" if session.is_signed_in() else None
    session.sign_out()
    return to(address("/sign-in", back=back, ended=ended))


def _fault(error: Exception) -> Response:
    LOG.exception("unexpected failure of %s %s", request.method, request.path, exc_info=error)
    return problem(500, "The failure was logged.")


_FILES = Path(__file__).parent / "static"
_STATIC = tuple(sorted(path.name for path in _FILES.iterdir() if path.suffix in (".css", ".js", ".svg")))
_REGISTERS = (
    fleet_map.register_overview,
    fleet_map.register,
    hosts.register,
    requests.register,
    capacity.register,
    capacity.register_moves,
    claims.register,
    consumers.register,
    changes.register,
    hosts.register_search,
)
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
    blueprint = Blueprint("web", __name__)
    for register in _REGISTERS:
        register(blueprint)
    sign_in.register(application, blueprint)
    blueprint.add_url_rule(PAGES, "start", lambda: to(f"{request.script_root}{PAGES}/"))
    blueprint.add_url_rule(f"{PAGES}/static/<name>", "static_file", _static)
    blueprint.add_url_rule(f"{PAGES}/<path:rest>", "no_page", _no_page, methods=["GET", "POST"])
    blueprint.before_request(_check_form)
    blueprint.after_request(_finish)
    handle(blueprint)
    application.register_blueprint(blueprint)
    _add_templates(application)
    files = {f"{PAGES}/static/{name}" for name in _STATIC}
    application.extensions[OPEN_PATHS] |= frozenset({PAGES, sign_in.SIGN_IN, sign_in.SIGN_OUT, *files})
    believes = application.extensions["placement_settings"].auth_strategy == "noauth2"
    bare = application.wsgi_app
    wrapped: Any = below(f"{PAGES}/", session.with_tokens(bare, believes=believes), bare)
    application.wsgi_app = wrapped  # type: ignore[method-assign]


def _add_templates(application: Flask) -> None:
    filters = {
        "amount": units.amount,
        "plain_class": units.plain,
        "number": units.number,
        "pretty": templating.pretty,
        "cpu_list": format_cpu_list,
        "miss_address": requests.miss_address,
    }
    functions = {
        "address": templating.address,
        "same_page": templating.same_page,
        "form_key": session.form_key,
        "share": units.share,
        "shared": units.shared,
        "pairs": units.pairs,
        "percent": units.percent,
    }
    add_templates(application, filters, functions)


def _static(name: str) -> Response:
    """Return a file of the pages. Raises NotFound."""
    if name not in _STATIC:
        raise NotFound(f"There is no file {name}.")
    response = send_from_directory(_FILES, name, max_age=0)
    response.headers["Cache-Control"] = "no-cache"
    return response


def _no_page(rest: str) -> Response:
    raise NotFound(f"There is no page {PAGES}/{rest}.")


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


def _finish(response: Response) -> Response:
    response.headers.extend(_HEADERS)
    if "Cache-Control" not in response.headers:
        response.headers["Cache-Control"] = "no-store"
    return session.keep_cookie(response)
