"""The wiring of all packages into one application."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from flask import Flask, Response, current_app, request
from oslo_config import cfg
from werkzeug.exceptions import HTTPException, MethodNotAllowed
from werkzeug.exceptions import NotFound as RoutingNotFound

from placement.allocations import candidate_routes, orphan_routes
from placement.allocations import routes as allocations_routes
from placement.allocations.best_fit import NotAll
from placement.allocations.candidate_schemas import ExplanationShownSchema
from placement.allocations.candidates import SearchSettings
from placement.allocations.orders import order_of
from placement.allocations.rendering import CandidatesRenderer
from placement.audit import routes as audit_routes
from placement.common.probes import OPEN_PATHS, PATHS, answer
from placement.engine.domain import errors
from placement.engine.domain.claims import UnknownOwner
from placement.flavors import routes as flavors_routes
from placement.health import Health
from placement.http import context, openapi
from placement.http import errors as http_errors
from placement.http.context import component
from placement.http.gate import guarded_by
from placement.http.local_callers import objection
from placement.http.middleware import Application, add_hooks, allowed_origins, bound, surrounded
from placement.http.openapi import Documents
from placement.http.policy import Policy
from placement.http.registry import Registry, install
from placement.http.schemas import dump
from placement.http.strategies.authentication import Authentication
from placement.http.strategies.keystone import Keystone
from placement.http.strategies.noauth2 import noauth2
from placement.http.strategies.tokens import NO_FILE, BadTokens, Tokens
from placement.http.suggestions import StoredNames
from placement.planning import routes as planning_routes
from placement.planning.capacity import Planning
from placement.planning.capacity_watch import Watch
from placement.planning.plans import PlanSettings
from placement.planning.routes import watched
from placement.pods import extender_routes
from placement.pods import routes as pods_routes
from placement.pods.schemas import RefusingNodeSchema, by_name
from placement.pods.services.place_choice import Unschedulable
from placement.pods.services.stored_names import NamesInDatabase
from placement.providers import name_routes
from placement.providers import routes as providers_routes
from placement.server import routes as server_routes
from placement.server.binders import KubeconfigBinders
from placement.server.settings import open_database
from placement.storage.database import Database
from placement.web import pages
from placement.wiring import use_cases_on

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
    candidate_routes.allocation_candidates_blueprint,
    allocations_routes.usages_blueprint,
    allocations_routes.reshaper_blueprint,
    pods_routes.clusters_blueprint,
    pods_routes.pods_blueprint,
    pods_routes.reservations_blueprint,
    extender_routes.blueprint,
    flavors_routes.blueprint,
    planning_routes.capacity_blueprint,
    planning_routes.plans_blueprint,
    candidate_routes.extended_candidates_blueprint,
    flavors_routes.claims_blueprint,
    allocations_routes.listings_blueprint,
    orphan_routes.blueprint,
    audit_routes.blueprint,
)


def create_application(
    base_registry: Registry, settings: cfg.ConfigOpts, add_pages: Callable[[Flask], None] = lambda _: None
) -> Flask:
    """Return the WSGI application around the use cases; `add_pages` adds the pages for browsers."""
    policy = Policy(settings)
    try:
        questions = watched(settings.capacity.watch)
    except errors.BadRequest as error:
        raise http_errors.Misconfigured(str(error)) from None
    application = Application("placement", static_folder=None)
    application.url_map.merge_slashes = False
    application.config["MAX_CONTENT_LENGTH"] = settings.api.max_request_body_bytes
    registry = base_registry.copy()
    install(registry, application)
    registry.put(cfg.ConfigOpts, settings)
    # Options are slow to read for every claim.
    owner = UnknownOwner(
        settings.placement.incomplete_consumer_project_id, settings.placement.incomplete_consumer_user_id
    )
    authentication = _authentication(settings)
    registry.add(StoredNames(NamesInDatabase(registry[Database], policy.passes).like))
    registry.add(owner, policy, authentication, Watch(registry[Planning], questions), CandidatesRenderer())
    registry.add(PlanSettings(settings.planning.purpose, questions))
    for blueprint in _BLUEPRINTS:
        application.register_blueprint(blueprint)
    add_pages(application)
    registry.add(Documents(application, only_header=settings.api.auth_strategy != "token"))
    unknown = sorted(guarded_by() - policy.known)
    if unknown:
        raise LookupError(f"routes ask for policy rules that are not in http/rules.py: {', '.join(unknown)}")
    for rule in application.url_map.iter_rules():
        # HEAD and OPTIONS are methods that no path has (placement-api.md, "Routing details"), but for health.
        none = {"OPTIONS"} if rule.rule in PATHS else {"HEAD", "OPTIONS"}
        rule.methods = (rule.methods or set()) - none
    believes = authentication.believes and not settings.api.allow_remote_noauth
    objects = partial(objection, allowed_origins=allowed_origins(settings)) if believes else None
    add_hooks(application, authentication, objects, bound(settings.api.max_requests_per_caller))
    for kind, handler in _HANDLERS.items():
        application.register_error_handler(kind, extender_routes.in_its_form(handler))
    # Our own server answers these itself.
    application.extensions["placement_probes"] = partial(answer, checks=registry[Health].checks)
    wrapped: Any = surrounded(application.wsgi_app, settings, settings.api.request_timeout)
    application.wsgi_app = wrapped  # type: ignore[method-assign]
    return application


def _authentication(settings: cfg.ConfigOpts) -> Authentication:
    open_paths = OPEN_PATHS | openapi.PATHS
    if settings.api.auth_strategy == "keystone":
        keystone = Keystone(settings)
        return Authentication(keystone, open_paths, keystone)
    if settings.api.auth_strategy == "token":
        if not settings.api.tokens_file:
            raise BadTokens(NO_FILE)
        return Authentication(Tokens(Path(settings.api.tokens_file)), open_paths)
    return Authentication(noauth2, open_paths, believes=True)


_ONLY_ADMIN = "With auth_strategy noauth2 the token `admin` has a role, others have none."


def _placement_error(error: errors.PlacementError) -> Response:
    believes = component(Authentication).believes
    if isinstance(error, errors.Forbidden) and believes and not context.current().caller.roles:
        error = errors.Forbidden(f"{error} {_ONLY_ADMIN}", error.code)
    return http_errors.render_error(error)


def _not_all(not_all: NotAll) -> Response:
    """Render an error for each member that got nothing; the status is common to all of them, or 409."""
    findings = [
        replace(finding, code=finding.code or each.code)
        for number, each in not_all.refused.items()
        for finding in each.within(errors.BODY / "members" / number).findings
    ]
    statuses = {http_errors.status_of(each) for each in not_all.refused.values()}
    return http_errors.render_all(statuses.pop() if len(statuses) == 1 else 409, findings)


def _unschedulable(unschedulable: Unschedulable) -> Response:
    nodes = [dump(RefusingNodeSchema, each) for each in by_name(unschedulable.refusals)[:_NODES_SHOWN]]
    extra = {
        "nodes": nodes,
        "nodes_omitted": len(unschedulable.refusals) - len(nodes),
        "explanation": dump(ExplanationShownSchema, unschedulable.explanation),
    }
    return http_errors.render_error(unschedulable, extra=extra)


def _http_error(error: http_errors.HttpError) -> Response:
    response = http_errors.render(error.status, error.message, extra=error.extra)
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
        message = f"Leave out the slash at the end: ask for {shorter}"
    elif isinstance(error, RoutingNotFound) and context.is_own():
        message = f"There is no such path; {openapi.DOCUMENT} lists all."
    response = http_errors.render(error.code or 500, message)
    if isinstance(error, MethodNotAllowed) and error.valid_methods:
        response.headers["Allow"] = ", ".join(sorted(error.valid_methods))
    return response


def _fault(error: Exception) -> Response:
    LOG.exception("unexpected failure of %s %s", request.method, request.path, exc_info=error)
    return http_errors.render(500, "The failure was logged under this request id.")


_HANDLERS: dict[type[Exception], Callable[[Any], Response]] = {
    errors.PlacementError: _placement_error,
    NotAll: _not_all,
    Unschedulable: _unschedulable,
    http_errors.HttpError: _http_error,
    http_errors.Relayed: lambda relayed: relayed.response,
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
    use_cases = use_cases_on(database, search or SearchSettings(), binders, resource_prefixes)
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
        order=order_of(settings.scoring.order_by, errors.RequestPlace("[scoring] order_by")),
    )
    return build(open_database(settings), settings, search, binders, prefixes)
