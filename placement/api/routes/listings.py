"""/ext/v1/allocations and /ext/v1/resource_providers: long lists in pages."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response

from placement.api.context import use_cases
from placement.api.queries import Parameters, page_size, page_start, parameters, refuse_unknown, single
from placement.api.rendering.listings import allocations_body, providers_body
from placement.api.responses import json_response
from placement.api.route_guard import route
from placement.api.targets import cluster_of_query
from placement.domain.allocation import UNKNOWN_CONSUMER_TYPE, AllocationFilter
from placement.domain.errors import BadRequest
from placement.domain.identifiers import normalize_uuid
from placement.services.placement.listings import Include

blueprint = Blueprint("listings", __name__)
_FILTERS = (
    "project_id",
    "user_id",
    "consumer_type",
    "consumer_uuid",
    "resource_provider",
    "cluster",
    "limit",
    "after",
)


@route(
    blueprint,
    "/ext/v1/allocations",
    "GET",
    "placement:allocations:list_all",
    gives_json=True,
    target=cluster_of_query,
)
def allocations() -> Response:
    """Allocations by consumer, its project, user and type, provider and cluster; `limit` counts consumers."""
    given = parameters()
    refuse_unknown(given, _FILTERS)
    kind = single(given, "consumer_type")
    wanted = AllocationFilter(
        project_id=single(given, "project_id"),
        user_id=single(given, "user_id"),
        consumer_type=None if kind == UNKNOWN_CONSUMER_TYPE else kind,
        untyped=kind == UNKNOWN_CONSUMER_TYPE,
        consumer_uuid=_uuid(given, "consumer_uuid"),
        provider_uuid=_uuid(given, "resource_provider"),
        cluster=single(given, "cluster"),
    )
    page = use_cases().listings.allocations(wanted, _uuid(given, "after"), page_size(given))
    return json_response(allocations_body(page))


@route(
    blueprint,
    "/ext/v1/resource_providers",
    "GET",
    "placement:resource_providers:list",
    gives_json=True,
    target=cluster_of_query,
)
def resource_providers() -> Response:
    """Providers with their inventories, usages, traits and aggregates, as far as included."""
    given = parameters()
    refuse_unknown(given, ("include", "cluster", "limit", "after"))
    include = _include(given)
    cluster, after = single(given, "cluster"), page_start(given, "after")
    page = use_cases().listings.providers(cluster, include, after, page_size(given))
    return json_response(providers_body(page, include))


def _include(given: Parameters) -> frozenset[Include]:
    names = [name.strip() for name in (single(given, "include") or "").split(",") if name.strip()]
    unknown: list[Any] = sorted(set(names) - set(Include))
    if unknown:
        raise BadRequest(f"include: {', '.join(unknown)} is none of {', '.join(Include)}")
    return frozenset(Include(name) for name in names)


def _uuid(given: Parameters, key: str) -> str | None:
    value = single(given, key)
    if value is None:
        return None
    normal = normalize_uuid(value)
    if normal is None:
        raise BadRequest(f"{key}: {value!r} is no uuid")
    return normal
