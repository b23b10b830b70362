"""The guard of a handler: it checks version, media types and policy of a request, in this order."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from flask import Blueprint, current_app, request

from placement.common.microversions import HEADER, NEWEST, SERVICE, Feature
from placement.engine.domain import request_scope
from placement.engine.domain.errors import NotFound
from placement.http import context
from placement.http.answers import admits_json
from placement.http.bodies import parameters
from placement.http.errors import HttpError
from placement.http.operations import Operation, RouteGuard, describes
from placement.http.policy import Policy
from placement.http.query_strings import refuse_unknown
from placement.http.targets import Target

Handler = Callable[..., Any]
OWN_PATHS = "/ext/"
"""The start of the paths of our own routes, which have no microversions."""
_CLUSTER = "cluster"
_RULES: set[str] = set()


def guarded_by() -> frozenset[str]:
    """Return the policy rules that some route asks for."""
    return frozenset(_RULES)


def route(
    blueprint: Blueprint,
    path: str,
    method: str,
    policy: str,
    *,
    since: Feature | None = None,
    gives_json: bool = False,
    media_types_first: bool = False,
    missing_method_below: Feature | None = None,
    target: Callable[[], Target] = dict,
    own_only: bool = False,
    reads: bool = False,
    described: Operation | None = None,
) -> Callable[[Handler], Handler]:
    """Register a handler behind its guard.

    `since`: 404 below that feature. `missing_method_below`: 405 below it.
    `gives_json`: the caller must accept JSON.
    `media_types_first`: these are tested before the version.
    `target`: the parts of the request that the policy rule may look at, beside the cluster in the path.
    `own_only`: the handler shows callers that are bound to clusters nothing but these clusters.
    `reads`: the handler changes nothing, although its method could.
    `described`: what it takes and returns; the OpenAPI document leaves out a route without it. Our own routes
    refuse parameters that are not described.
    """
    _RULES.add(policy)
    takes_json = described is not None and described.takes_json
    guard = RouteGuard(since, missing_method_below, takes_json, gives_json)
    refuses_query = path.startswith(OWN_PATHS) and described is not None and not described.query

    def decorate(handler: Handler) -> Handler:
        @describes(described, guard)
        @wraps(handler)
        def guarded(**path_arguments: str) -> Any:
            context.current().reads = reads
            if media_types_first:
                _check_media_types(takes_json, gives_json)
            _check_version(since, missing_method_below)
            if not media_types_first:
                _check_media_types(takes_json, gives_json)
            asked = target()
            if _CLUSTER in path_arguments:
                asked = {**asked, _CLUSTER: path_arguments[_CLUSTER]}
            # Every request comes by, so it is looked up without a call.
            policy_rules: Policy = current_app.extensions[context.REGISTRY].objects[Policy]
            request_scope.show_only(policy_rules.authorize(policy, asked, own_only=own_only))
            if refuses_query and request.query_string:
                refuse_unknown(parameters(), ())
            return handler(**path_arguments)

        blueprint.add_url_rule(path, endpoint=f"{method} {path}", view_func=guarded, methods=[method])
        return guarded

    return decorate


def _check_version(since: Feature | None, missing_method_below: Feature | None) -> None:
    if since is not None and not context.offers(since):
        # Clients that forget the header, or the service in it, ask for the oldest version.
        sent = request.headers.get(HEADER, SERVICE)
        nameless = "" if SERVICE in sent.lower() else f"; the one that was sent does not name {SERVICE}"
        raise NotFound(
            f"{request.path} is there from microversion {since.value} on, and this request is of "
            f"{context.version()}: send {HEADER}: {SERVICE} {since.value}, or up to {NEWEST}{nameless}"
        )
    if missing_method_below is not None and not context.offers(missing_method_below):
        raise HttpError(405, "The method specified is not allowed for this resource.")


def _check_media_types(takes_json: bool, gives_json: bool) -> None:
    if takes_json:
        require_json()
    if gives_json and not admits_json():
        raise HttpError(406, "Only application/json is provided")


def require_json() -> None:
    """Raise HttpError 415 unless the body is declared as JSON."""
    if request.mimetype != "application/json":
        sent = request.content_type or None
        raise HttpError(415, f"The media type {sent} is not supported, use application/json")
