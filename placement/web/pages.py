"""The pages as a part of the application: their routes, their files, and what browsers may do with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from flask import Blueprint, Flask, Response, request, send_from_directory

from placement.api import queries
from placement.api.context import OPEN_PAGES
from placement.api.errors import HttpError
from placement.api.route_guard import PAGES
from placement.domain.errors import BadRequest, NotFound
from placement.numa.cpuset import format_cpu_list
from placement.services.bounds import MOST_FORM_BYTES, MOST_FORM_FIELDS
from placement.web import (
    changes,
    claims,
    consumers,
    fleet_map,
    hosts,
    moves,
    overview,
    problems,
    requests,
    room,
    search,
    session,
    shown,
    units,
)
from placement.web import sign_in as signing
from placement.web.shown import to
from placement.web.templating import add_templates

_FILES = Path(__file__).parent / "static"
_STATIC = tuple(sorted(path.name for path in _FILES.iterdir() if path.suffix in (".css", ".js", ".svg")))
_REGISTERS = (
    overview.register,
    fleet_map.register,
    hosts.register,
    requests.register,
    room.register,
    moves.register,
    claims.register,
    consumers.register,
    changes.register,
    search.register,
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
    signing.register(application, blueprint)
    blueprint.add_url_rule(PAGES, "start", lambda: to(f"{request.script_root}{PAGES}/"))
    blueprint.add_url_rule(f"{PAGES}/static/<name>", "static_file", _static)
    blueprint.add_url_rule(f"{PAGES}/<path:rest>", "no_page", _no_page, methods=["GET", "POST"])
    blueprint.before_request(_check_form)
    blueprint.after_request(_finish)
    problems.handle(blueprint)
    application.register_blueprint(blueprint)
    _add_templates(application)
    files = {f"{PAGES}/static/{name}" for name in _STATIC}
    application.extensions[OPEN_PAGES] = frozenset({PAGES, signing.SIGN_IN, signing.SIGN_OUT, *files})
    believes = application.extensions["placement_settings"].auth_strategy == "noauth2"
    wrapped: Any = session.with_tokens(application.wsgi_app, believes=believes)
    application.wsgi_app = wrapped  # type: ignore[method-assign]


def _add_templates(application: Flask) -> None:
    filters = {
        "amount": units.amount,
        "plain_class": units.plain,
        "number": units.number,
        "pretty": shown.pretty,
        "cpu_list": format_cpu_list,
        "miss_address": requests.miss_address,
    }
    functions = {
        "address": shown.address,
        "same_page": shown.same_page,
        "form_key": session.form_key,
        "share": units.share,
        "shared": units.shared,
        "pairs": units.pairs,
        "percent": units.percent,
    }
    add_templates(application, filters, functions)


def _static(name: str) -> Response:
    """A file of the pages. Raises NotFound."""
    if name not in _STATIC:
        raise NotFound(f"There is no file {name}.")
    response = send_from_directory(_FILES, name, max_age=0)
    response.headers["Cache-Control"] = "no-cache"
    return response


def _no_page(rest: str) -> Response:
    raise NotFound(f"There is no page {PAGES}/{rest}.")


def _check_form() -> None:
    # As for the API: what no database can hold is refused before anything is asked of one.
    queries.parameters()
    if request.method == "POST":
        # All that costs nothing comes before the form is parsed, for strangers send forms, too.
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
