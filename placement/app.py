"""Wires the rooms together."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from flask import Flask
from oslo_config import cfg

from placement.api.application import ApiSettings, create_application
from placement.dialects.koordinator.settings.scoring import order_of
from placement.operations.kubernetes.binders import Binders
from placement.operations.settings import open_database
from placement.services.placement.candidates import SearchSettings
from placement.services.use_cases import UseCases
from placement.storage.database import Database
from placement.web import pages


def build(
    database: Database,
    api: ApiSettings | None = None,
    search: SearchSettings | None = None,
    binders: Binders | None = None,
    resource_prefixes: Sequence[str] = (),
) -> Flask:
    """The service on one database, whose schema must be current."""
    use_cases = UseCases(database, search or SearchSettings(), binders, resource_prefixes)
    return create_application(use_cases, api or ApiSettings(), pages.attach)


def configured(settings: cfg.ConfigOpts) -> Flask:
    """The service as the configuration wants it. Raises Misconfigured, PlacementError."""
    kubernetes = settings.kubernetes
    binds = kubernetes.kubeconfig or kubernetes.own_cluster
    binders = Binders(kubernetes.kubeconfig, kubernetes.own_cluster) if binds else None
    prefixes = settings.clusters.resource_prefixes
    return build(open_database(settings), _api(settings), _search(settings), binders, prefixes)


def _api(settings: cfg.ConfigOpts) -> ApiSettings:
    tokens_file = settings.api.tokens_file
    return ApiSettings(
        incomplete_consumer_project_id=settings.placement.incomplete_consumer_project_id,
        incomplete_consumer_user_id=settings.placement.incomplete_consumer_user_id,
        auth_strategy=settings.api.auth_strategy,
        allow_remote_noauth=settings.api.allow_remote_noauth,
        tokens_file=Path(tokens_file) if tokens_file else None,
        largest_body_bytes=settings.api.max_request_body_bytes,
        request_seconds=settings.api.request_timeout,
        requests_per_caller=settings.api.max_requests_per_caller,
        metrics_per_host=settings.metrics.per_host,
        watched=tuple(settings.capacity.watch),
        configuration=settings,
    )


def _search(settings: cfg.ConfigOpts) -> SearchSettings:
    maximum = settings.placement.max_allocation_candidates
    strategy = settings.placement.allocation_candidates_generation_strategy
    return SearchSettings(
        maximum=None if maximum < 0 else maximum,
        depth_first=strategy == "depth-first",
        randomize=settings.placement.randomize_allocation_candidates,
        seconds=settings.placement.search_timeout,
        order=order_of(settings.scoring.order_by, "[scoring] order_by"),
    )
