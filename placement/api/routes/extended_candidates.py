"""/ext/v1/allocation_candidates: the search with orders, preferences, clusters and reasons."""

from __future__ import annotations

import orjson
from flask import Blueprint, Response, current_app

from placement.api import context, extended_query
from placement.api.context import use_cases
from placement.api.queries import parameters
from placement.api.rendering.explanations import explanation_member
from placement.api.rendering.scores import score_remarks
from placement.api.responses import streamed
from placement.api.route_guard import route
from placement.api.targets import cluster_of_query
from placement.forest.texts import Texts
from placement.services.placement.candidates import Search
from placement.services.placement.search_options import SearchOptions

blueprint = Blueprint("extended_candidates", __name__)


@route(
    blueprint,
    "/ext/v1/allocation_candidates",
    "GET",
    "placement:allocation_candidates:list",
    gives_json=True,
    target=cluster_of_query,
)
def candidates() -> Response:
    """Where the request fits, best first, with scores; with explain=1 also why."""
    query, options = extended_query.parse(parameters())
    renderer = current_app.extensions["placement_candidates_renderer"]
    search = use_cases().candidates.find(query, options)
    appendix = b""
    if options.explain:
        appendix = orjson.dumps(explanation_member(search))[1:-1]
    remarks = _remarks(search, options)
    return streamed(renderer.body(search, context.version(), remarks=remarks, appendix=appendix))


def _remarks(search: Search, options: SearchOptions) -> Texts | None:
    table = search.answer.scores()
    return None if table is None else score_remarks(table, options.preferences)
