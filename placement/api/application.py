"""The Flask application: hooks before and after every request, blueprints, error shape."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from flask import Flask, Response, request
from werkzeug.exceptions import HTTPException, MethodNotAllowed

from placement.api import auth, context, errors, microversions
from placement.api.errors import HttpError
from placement.api.policy import Policy
from placement.api.rendering.candidates import CandidatesRenderer
from placement.api.routes import (
    allocation_candidates,
    allocations,
    clusters,
    inventories,
    memberships,
    names,
    resource_providers,
    root,
    usages,
)
from placement.domain.errors import PlacementError
from placement.services.use_cases import UseCases

LOG = logging.getLogger("placement.requests")
_NOBODY = "00000000-0000-0000-0000-000000000000"
_EXTENSIONS = "/ext/"
_LARGEST_BODY = 32 * 2**20
_BLUEPRINTS = (
    root.blueprint,
    resource_providers.blueprint,
    inventories.blueprint,
    memberships.blueprint,
    names.blueprint,
    allocations.blueprint,
    allocation_candidates.blueprint,
    usages.blueprint,
    clusters.blueprint,
)


@dataclass(frozen=True, slots=True)
class ApiSettings:
    """What of the configuration concerns HTTP."""

    incomplete_consumer_project_id: str = _NOBODY
    incomplete_consumer_user_id: str = _NOBODY


def create_application(use_cases: UseCases, settings: ApiSettings) -> Flask:
    """The WSGI application around the use cases."""
    application = Flask("placement", static_folder=None)
    application.url_map.merge_slashes = False
    application.config["MAX_CONTENT_LENGTH"] = _LARGEST_BODY
    application.extensions["placement_use_cases"] = use_cases
    application.extensions["placement_settings"] = settings
    application.extensions["placement_policy"] = Policy()
    application.extensions["placement_candidates_renderer"] = CandidatesRenderer()
    for blueprint in _BLUEPRINTS:
        application.register_blueprint(blueprint)
    for rule in application.url_map.iter_rules():
        # HEAD and OPTIONS are methods that no path has (Placement API, routing details).
        rule.methods = (rule.methods or set()) - {"HEAD", "OPTIONS"}
    application.before_request(context.begin)
    application.before_request(_authenticate)
    application.before_request(_agree_on_version)
    application.before_request(_check_body_headers)
    application.after_request(_finish)
    application.register_error_handler(PlacementError, _placement_error)
    application.register_error_handler(HttpError, _http_error)
    application.register_error_handler(HTTPException, _routing_error)
    application.register_error_handler(Exception, _fault)
    return application


def _authenticate() -> None:
    if request.path not in ("/", ""):
        context.current().caller = auth.noauth2()


def _agree_on_version() -> None:
    if request.path.startswith(_EXTENSIONS):
        # What is our own has no microversions; its errors are those of the newest one.
        context.current().version = microversions.NEWEST
        return
    try:
        context.current().version = microversions.negotiate(request.headers.get(microversions.HEADER))
    except microversions.InvalidVersion as error:
        raise HttpError(400, f"invalid version string: {error}") from None
    except microversions.UnsupportedVersion as error:
        raise errors.unsupported_version(str(error)) from None


def _check_body_headers() -> None:
    length = request.headers.get("Content-Length", "")
    if length and not length.strip().isdecimal():
        raise HttpError(400, "content-length header must be an integer")
    if length and int(length) > 0 and not request.headers.get("Content-Type"):
        raise HttpError(400, "content-type header required")


def _finish(response: Response) -> Response:
    at = context.current()
    response.headers["x-openstack-request-id"] = at.request_id
    if at.version is not None:
        response.headers[microversions.HEADER] = f"{microversions.SERVICE} {at.version}"
        response.headers.add("Vary", microversions.HEADER)
    LOG.info(
        '%s "%s %s" status: %d len: %s microversion: %s%s',
        request.remote_addr,
        request.method,
        request.full_path.rstrip("?"),
        response.status_code,
        response.headers.get("Content-Length", "-"),
        at.version or "-",
        f" global: {at.global_id}" if at.global_id else "",
    )
    return response


def _placement_error(error: PlacementError) -> Response:
    return errors.render(errors.status_of(error), str(error), code=error.code)


def _http_error(error: HttpError) -> Response:
    response = errors.render(error.status, error.message, extra=error.extra)
    response.headers.update(error.headers)
    return response


def _routing_error(error: HTTPException) -> Response:
    message = ""
    if isinstance(error, MethodNotAllowed):
        message = "The method specified is not allowed for this resource."
    response = errors.render(error.code or 500, message)
    if isinstance(error, MethodNotAllowed) and error.valid_methods:
        response.headers["Allow"] = ", ".join(sorted(error.valid_methods))
    return response


def _fault(error: Exception) -> Response:
    LOG.exception("unexpected failure of %s %s", request.method, request.path, exc_info=error)
    return errors.render(500, "The failure was logged under this request id.")
