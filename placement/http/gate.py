"""The guard of a handler: it checks version, media types and policy of a request, in this order."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from flask import Blueprint, current_app, request

from placement.engine.domain import scope
from placement.engine.domain.errors import NotFound
from placement.http import context
from placement.http.bodies import parameters, refuse_unknown
from placement.http.described import Operation, RouteGuard, describes
from placement.http.microversions import HEADER, SERVICE, Feature
from placement.http.responses import HttpError, admits_json
from placement.metrics.catalog import REQUEST_SECONDS, REQUESTS

Handler = Callable[..., Any]
Target = Callable[[], dict[str, str]]
OWN_PATHS = "/ext/"
"""The start of the paths of our own routes, which have no microversions."""
PAGES = "/ui"
"""The start of the paths of pages, which have no microversions and no place in the OpenAPI document."""
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
    takes_json: bool = False,
    gives_json: bool = False,
    media_types_first: bool = False,
    missing_method_below: Feature | None = None,
    target: Target = dict,
    own_only: bool = False,
    reads: bool = False,
    described: Operation | None = None,
) -> Callable[[Handler], Handler]:
    """Register a handler behind its guard.

    `since`: 404 below that feature. `missing_method_below`: 405 below it.
    `takes_json`: the body must be JSON. `gives_json`: the caller must accept JSON.
    `media_types_first`: these are tested before the version.
    `target`: the parts of the request that the policy rule may look at, beside the cluster in the path.
    `own_only`: the handler shows callers that are bound to clusters nothing but these clusters.
    `reads`: the handler changes nothing, although its method could.
    `described`: what it takes and returns; the OpenAPI document leaves out a route without it. Our own routes
    refuse parameters that are not described.
    """
    _RULES.add(policy)
    guard = RouteGuard(since, missing_method_below, takes_json, gives_json)
    refuses_query = path.startswith(OWN_PATHS) and described is not None and not described.query

    def decorate(handler: Handler) -> Handler:
        @describes(described, guard)
        @wraps(handler)
        def guarded(**path_arguments: str) -> Any:
            request.environ[context.READS_KEY] = reads
            if media_types_first:
                _check_media_types(takes_json, gives_json)
            if since is not None and not context.offers(since):
                raise NotFound(_not_yet(since))
            if missing_method_below is not None and not context.offers(missing_method_below):
                raise HttpError(405, "The method specified is not allowed for this resource.")
            if not media_types_first:
                _check_media_types(takes_json, gives_json)
            asked = target()
            if _CLUSTER in path_arguments:
                asked = {**asked, _CLUSTER: path_arguments[_CLUSTER]}
            scope.see(current_app.extensions["placement_policy"].authorize(policy, asked, own_only=own_only))
            if refuses_query and request.query_string:
                refuse_unknown(parameters(), ())
            return handler(**path_arguments)

        blueprint.add_url_rule(path, endpoint=f"{method} {path}", view_func=guarded, methods=[method])
        return guarded

    return decorate


def _not_yet(since: Feature) -> str:
    """Return a message that names the version to send; clients that forget it ask for the oldest one."""
    sent = context.version()
    return (
        f"{request.path} is there from microversion {since.value} on, and this request is of {sent}: "
        f"send {HEADER}: {SERVICE} {since.value}"
    )


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


# Figures of requests by the rule of their route: their number, and the time until the head of the answer.


# The key under which the application notes the rule in the WSGI environment, for the layer around it.
_RULE_KEY = "placement.rule"
_NO_RULE = "none"
_METHODS = frozenset({"GET", "PUT", "POST", "DELETE", "HEAD", "OPTIONS", "PATCH"})
_Key = tuple[str, str, str]


def note_rule() -> None:
    """Note the rule of the current request for its figures; all paths without a rule count as one."""
    if request.url_rule is not None:
        request.environ[_RULE_KEY] = request.url_rule.rule


class Observed:
    """A cache of the figures of requests: looking one up by its labels takes longer than counting."""

    def __init__(self) -> None:
        self._known: dict[_Key, tuple[Any, Any]] = {}

    def count(self, environ: dict[str, Any], status: str, arrived: float) -> None:
        """Count a request that is answered now and arrived then, in seconds of time.monotonic()."""
        method = environ["REQUEST_METHOD"]
        # Clients may send any word as a method.
        key = (environ.get(_RULE_KEY, _NO_RULE), method if method in _METHODS else "other", status)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = REQUESTS.labels(*key), REQUEST_SECONDS.labels(*key[:2])
        found[0].inc()
        found[1].observe(time.monotonic() - arrived)
