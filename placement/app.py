"""The wiring of all packages into one application."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from flask import Flask, Response, current_app, request
from oslo_config import cfg
from werkzeug.exceptions import HTTPException, MethodNotAllowed
from werkzeug.exceptions import NotFound as RoutingNotFound

from placement.allocations import routes as allocations_routes
from placement.allocations.best_fit import NotAll
from placement.allocations.candidate_schemas import ExplanationShownSchema
from placement.allocations.candidates import SearchSettings
from placement.allocations.orders import order_of
from placement.allocations.rendering import CandidatesRenderer
from placement.audit import routes as audit_routes
from placement.common.probes import OPEN_PATHS, PATHS, answer
from placement.engine.domain.errors import BadRequest, BadValues, Forbidden, PlacementError
from placement.flavors import routes as flavors_routes
from placement.flavors.nova.flavor import FlavorRefused
from placement.http import auth, context, openapi
from placement.http.auth import NO_FILE, BadTokens, Keystone, Tokens
from placement.http.context import HttpError, Misconfigured, Relayed, objection
from placement.http.gate import Policy, guarded_by
from placement.http.middleware import Application, add_hooks, allowed_origins, bound, surrounded
from placement.http.openapi import EXTENSION, Documents
from placement.http.schemas import dump
from placement.planning import routes as planning_routes
from placement.planning.capacity import Watch
from placement.planning.routes import watched
from placement.pods import extender_routes
from placement.pods import routes as pods_routes
from placement.pods.placing import Unschedulable
from placement.pods.schemas import RefusingNodeSchema, by_name
from placement.providers import name_routes
from placement.providers import routes as providers_routes
from placement.server import routes as server_routes
from placement.server.binders import KubeconfigBinders
from placement.server.settings import open_database
from placement.storage.database import Database
from placement.use_cases import UseCases
from placement.web import pages

# The Flask application: hooks before and after every request, blueprints, error shape.


LOG = logging.getLogger(__name__)
# How many nodes an error explains one by one; the message counts the reasons of all.
_NODES_SHOWN = 100
_BLUEPRINTS = (
    server_routes.root_blueprint,
    server_routes.health_blueprint,
    server_routes.metrics_blueprint,
    server_routes.status_blueprint,
    openapi.blueprint,
    providers_routes.hosts_blueprint,
    providers_routes.resource_providers_blueprint,
    providers_routes.inventories_blueprint,
    providers_routes.memberships_blueprint,
    name_routes.blueprint,
    allocations_routes.allocations_blueprint,
    allocations_routes.allocation_candidates_blueprint,
    allocations_routes.usages_blueprint,
    allocations_routes.reshaper_blueprint,
    pods_routes.clusters_blueprint,
    pods_routes.pods_blueprint,
    pods_routes.reservations_blueprint,
    extender_routes.blueprint,
    flavors_routes.blueprint,
    planning_routes.capacity_blueprint,
    planning_routes.plans_blueprint,
    allocations_routes.extended_candidates_blueprint,
    flavors_routes.claims_blueprint,
    allocations_routes.listings_blueprint,
    audit_routes.blueprint,
)


def create_application(
    use_cases: UseCases, settings: cfg.ConfigOpts, add_pages: Callable[[Flask], None] = lambda _: None
) -> Flask:
    """Return the WSGI application around the use cases; `add_pages` adds the pages for browsers."""
    policy = Policy(settings)
    try:
        questions = watched(settings.capacity.watch)
    except BadRequest as error:
        raise Misconfigured(str(error)) from None
    application = Application("placement", static_folder=None)
    application.url_map.merge_slashes = False
    application.config["MAX_CONTENT_LENGTH"] = settings.api.max_request_body_bytes
    application.extensions["placement_use_cases"] = use_cases
    application.extensions["placement_settings"] = settings
    # Options are slow to read for every claim.
    owner = settings.placement.incomplete_consumer_project_id, settings.placement.incomplete_consumer_user_id
    application.extensions["placement_unknown_owner"] = owner
    application.extensions["placement_watch"] = Watch(use_cases.planning, questions)
    application.extensions["placement_policy"] = policy
    identified = _strategy(settings)
    application.extensions["placement_authentication"] = identified
    # Pages put sessions around the strategy, and a served application signs in at Identity.
    application.extensions["placement_identity"] = identified if isinstance(identified, Keystone) else None
    application.extensions["placement_candidates_renderer"] = CandidatesRenderer()
    for blueprint in _BLUEPRINTS:
        application.register_blueprint(blueprint)
    application.extensions[context.OPEN_PATHS] = OPEN_PATHS | openapi.PATHS
    add_pages(application)
    strategy = settings.api.auth_strategy
    application.extensions[EXTENSION] = Documents(application, only_header=strategy != "token")
    unknown = sorted(guarded_by() - policy.known)
    if unknown:
        raise LookupError(f"routes ask for policy rules that are not in http/rules.py: {', '.join(unknown)}")
    for rule in application.url_map.iter_rules():
        # HEAD and OPTIONS are methods that no path has (placement-api.md, "Routing details"), but for health.
        none = {"OPTIONS"} if rule.rule in PATHS else {"HEAD", "OPTIONS"}
        rule.methods = (rule.methods or set()) - none
    believes = strategy == "noauth2" and not settings.api.allow_remote_noauth
    objects = partial(objection, allowed_origins=allowed_origins(settings)) if believes else None
    add_hooks(application, objects, bound(settings.api.max_requests_per_caller))
    for kind, handler in _HANDLERS.items():
        application.register_error_handler(kind, extender_routes.in_its_form(handler))
    # Our own server answers these itself.
    application.extensions["placement_probes"] = partial(answer, checks=use_cases.health.checks)
    wrapped: Any = surrounded(application.wsgi_app, settings, settings.api.request_timeout)
    application.wsgi_app = wrapped  # type: ignore[method-assign]
    return application


def _strategy(settings: cfg.ConfigOpts) -> auth.Strategy:
    if settings.api.auth_strategy == "keystone":
        return Keystone(settings)
    if settings.api.auth_strategy == "token":
        if not settings.api.tokens_file:
            raise BadTokens(NO_FILE)
        return Tokens(Path(settings.api.tokens_file))
    return auth.noauth2


def _placement_error(error: PlacementError) -> Response:
    message = str(error)
    believes = current_app.extensions["placement_authentication"] is auth.noauth2
    if isinstance(error, Forbidden) and believes and not context.current().caller.roles:
        message += " With auth_strategy noauth2 the token `admin` has a role, others have none."
    return context.render(context.status_of(error), message, code=error.code)


def _not_all(refused: NotAll) -> Response:
    """Render an error for each member that got nothing; the status is common to all of them, or 409."""
    problems = [(each.code, f"members[{place}]: {each}") for place, each in refused.refused.items()]
    statuses = {context.status_of(each) for each in refused.refused.values()}
    return context.render_all(statuses.pop() if len(statuses) == 1 else 409, problems)


def _unschedulable(refused: Unschedulable) -> Response:
    nodes = [dump(RefusingNodeSchema, each) for each in by_name(refused.refusals)[:_NODES_SHOWN]]
    extra = {
        "nodes": nodes,
        "nodes_omitted": len(refused.refusals) - len(nodes),
        "explanation": dump(ExplanationShownSchema, refused.explanation),
    }
    return context.render(409, str(refused), code=refused.code, extra=extra)


def _http_error(error: HttpError) -> Response:
    response = context.render(error.status, error.message, extra=error.extra)
    response.headers.update(error.headers)
    return response


def _routing_error(error: HTTPException) -> Response:
    message, shorter = "", request.path.rstrip("/")
    if isinstance(error, MethodNotAllowed):
        message = "The method specified is not allowed for this resource."
    elif (
        isinstance(error, RoutingNotFound)
        and shorter not in ("", request.path)
        and current_app.url_map.bind("").allowed_methods(shorter)
    ):
        message = f"There is no slash at the end: ask for {shorter}"
    elif isinstance(error, RoutingNotFound) and context.is_own():
        message = f"There is no such path; {openapi.DOCUMENT} lists all."
    response = context.render(error.code or 500, message)
    if isinstance(error, MethodNotAllowed) and error.valid_methods:
        response.headers["Allow"] = ", ".join(sorted(error.valid_methods))
    return response


def _fault(error: Exception) -> Response:
    LOG.exception("unexpected failure of %s %s", request.method, request.path, exc_info=error)
    return context.render(500, "The failure was logged under this request id.")


_HANDLERS: dict[type[Exception], Callable[[Any], Response]] = {
    PlacementError: _placement_error,
    BadValues: lambda refused: context.render_all(400, [(refused.code, each) for each in refused.shown]),
    FlavorRefused: lambda refused: context.render_all(400, refused.problems),
    NotAll: _not_all,
    Unschedulable: _unschedulable,
    HttpError: _http_error,
    Relayed: lambda relayed: relayed.response,
    HTTPException: _routing_error,
    Exception: _fault,
}


def build(
    database: Database,
    settings: cfg.ConfigOpts,
    search: SearchSettings | None = None,
    binders: KubeconfigBinders | None = None,
    resource_prefixes: Sequence[str] = (),
) -> Flask:
    """Return the service on one database; its schema must be current."""
    use_cases = UseCases(database, search or SearchSettings(), binders, resource_prefixes)
    return create_application(use_cases, settings, pages.attach)


def configured(settings: cfg.ConfigOpts) -> Flask:
    """Return the service as the configuration wants it. Raises Misconfigured, PlacementError."""
    kubernetes = settings.kubernetes
    binds = kubernetes.kubeconfig or kubernetes.own_cluster
    binders = KubeconfigBinders(kubernetes.kubeconfig, kubernetes.own_cluster) if binds else None
    prefixes = settings.clusters.resource_prefixes
    maximum = settings.placement.max_allocation_candidates
    strategy = settings.placement.allocation_candidates_generation_strategy
    search = SearchSettings(
        maximum=None if maximum < 0 else maximum,
        depth_first=strategy == "depth-first",
        randomize=settings.placement.randomize_allocation_candidates,
        seconds=settings.placement.search_timeout,
        order=order_of(settings.scoring.order_by, "[scoring] order_by"),
    )
    return build(open_database(settings), settings, search, binders, prefixes)
