"""/allocation_candidates. Source: placement-api.md, "Allocation candidates"."""

from __future__ import annotations

from flask import Blueprint, Response, current_app, request

from placement.api import candidate_query, context
from placement.api.candidate_parameters import PARAMETERS
from placement.api.context import use_cases
from placement.api.described import ByVersion, Operation
from placement.api.microversions import Feature
from placement.api.responses import streamed
from placement.api.route_guard import route
from placement.api.schemas.answers.candidates import Candidates, ListedCandidates

blueprint = Blueprint("allocation_candidates", __name__)


@route(
    blueprint,
    "/allocation_candidates",
    "GET",
    "placement:allocation_candidates:list",
    since=Feature.CANDIDATES,
    gives_json=True,
    described=Operation(
        {200: ByVersion({None: ListedCandidates, Feature.ALLOCATIONS_BY_PROVIDER: Candidates})},
        query=PARAMETERS,
    ),
)
def candidates() -> Response:
    """Where the request fits."""
    query = candidate_query.parse_text(request.query_string, context.version())
    renderer = current_app.extensions["placement_candidates_renderer"]
    return streamed(renderer.body(use_cases().candidates.find(query), context.version()))
