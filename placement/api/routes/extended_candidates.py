"""/ext/v1/allocation_candidates: the search with orders, preferences, clusters and reasons."""

from __future__ import annotations

import orjson
from flask import Blueprint, Response, current_app

from placement.api import context, extended_query, json_query
from placement.api.bodies import validated
from placement.api.context import use_cases
from placement.api.queries import parameters
from placement.api.rendering.explanations import explanation_member
from placement.api.rendering.scores import score_members
from placement.api.responses import streamed
from placement.api.route_guard import route
from placement.api.schemas.candidates import CandidatesBody
from placement.api.targets import cluster_of_body, cluster_of_query
from placement.domain.groups import CandidateQuery
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
    takes_query=True,
    target=cluster_of_query,
)
def candidates() -> Response:
    """Where the request fits, best first, with scores; with explain=1 also why."""
    return _found(*extended_query.parse(parameters()))


@route(
    blueprint,
    "/ext/v1/allocation_candidates",
    "POST",
    "placement:allocation_candidates:list",
    takes_json=True,
    gives_json=True,
    reads=True,
    target=cluster_of_body,
)
def candidates_by_json() -> Response:
    """The same for a query in JSON, which may be longer than any URL."""
    return _found(*json_query.parse(validated(CandidatesBody)))


def _found(query: CandidateQuery, options: SearchOptions) -> Response:
    renderer = current_app.extensions["placement_candidates_renderer"]
    search = use_cases().candidates.find(query, options)
    appendix = b""
    if options.explain:
        appendix = orjson.dumps(explanation_member(search))[1:-1]
    scores = _scores(search, options)
    return streamed(renderer.body(search, context.version(), scores=scores, appendix=appendix))


def _scores(search: Search, options: SearchOptions) -> Texts | None:
    table = search.answer.scores()
    return None if table is None else score_members(table, options.preferences)
