"""/allocation_candidates. Source: placement-api.md, "Allocation candidates"."""

from __future__ import annotations

from flask import Blueprint, Response, current_app, request

from placement.api import candidate_query, context
from placement.api.context import use_cases
from placement.api.microversions import Feature
from placement.api.responses import streamed
from placement.api.route_guard import route

blueprint = Blueprint("allocation_candidates", __name__)


@route(
    blueprint,
    "/allocation_candidates",
    "GET",
    "placement:allocation_candidates:list",
    since=Feature.CANDIDATES,
    gives_json=True,
)
def candidates() -> Response:
    """Where the request fits."""
    query = candidate_query.parse_text(request.query_string, context.version())
    renderer = current_app.extensions["placement_candidates_renderer"]
    return streamed(renderer.body(use_cases().candidates.find(query), context.version()))
