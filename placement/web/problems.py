"""Pages that say what went wrong and what to do about it."""

from __future__ import annotations

import logging
from http import HTTPStatus

from flask import Blueprint, Response, request
from werkzeug.exceptions import HTTPException

from placement.api import context, errors
from placement.api.errors import HttpError, Relayed
from placement.dialects.nova import FlavorRefused
from placement.domain.errors import PlacementError
from placement.web import session
from placement.web.shown import CSV, JSON, address, html, to

LOG = logging.getLogger(__name__)
_ADVICE = {
    400: "Correct what the message names, and send it again.",
    401: "Sign in again.",
    403: "Ask an administrator for a role that may, or sign in as somebody else.",
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
    """Let errors of the pages be pages."""
    blueprint.register_error_handler(PlacementError, _refused)
    blueprint.register_error_handler(FlavorRefused, _flavor_refused)
    blueprint.register_error_handler(HttpError, _http_error)
    blueprint.register_error_handler(Relayed, _relayed)
    blueprint.register_error_handler(HTTPException, lambda error: problem(error.code or 500, ""))
    blueprint.register_error_handler(Exception, _fault)


def problem(status: int, *messages: str) -> Response:
    """A page about an error; where JSON or CSV was asked for, the error as the API has it."""
    said = [message for message in messages if message]
    if request.args.get("format") in (JSON, CSV):
        return errors.render(status, "; ".join(said))
    return html(
        "problem.html",
        status,
        number=status,
        title=HTTPStatus(status).phrase,
        messages=said,
        advice=_ADVICE.get(status, _ADVICE[500]),
        request_id=context.current().request_id,
    )


def _refused(error: PlacementError) -> Response:
    return problem(errors.status_of(error), str(error))


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
    """The way to the sign-in page and back, for who is not known (any more)."""
    if request.args.get("format") in (JSON, CSV) or request.headers.get("X-Requested-With"):
        return errors.render(401, "The session has ended: sign in again.")
    back = request.full_path.rstrip("?") if request.method == "GET" else None
    ended = "1" if session.is_signed_in() else None
    session.sign_out()
    return to(address("/sign-in", back=back, ended=ended))


def _fault(error: Exception) -> Response:
    LOG.exception("unexpected failure of %s %s", request.method, request.path, exc_info=error)
    return problem(500, "The failure was logged.")
