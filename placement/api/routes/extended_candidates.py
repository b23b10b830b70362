"""/ext/v1/allocation_candidates: the search with orders, preferences, clusters and reasons."""

from __future__ import annotations

import orjson
from flask import Blueprint, Response, current_app

from placement.api import context, extended_query, json_query
from placement.api.bodies import validated
from placement.api.candidate_parameters import EXTENDED, WORLD
from placement.api.context import use_cases
from placement.api.described import Operation
from placement.api.queries import parameters, single
from placement.api.rendering.candidates import CandidatesRenderer
from placement.api.rendering.explanations import explanation_member
from placement.api.rendering.scores import score_members
from placement.api.responses import streamed
from placement.api.route_guard import route
from placement.api.schemas.answers.candidates import ScoredCandidates
from placement.api.schemas.candidates import CandidatesInWorld
from placement.api.targets import cluster_of_body, cluster_of_query
from placement.api.worlds import world_of, world_of_text
from placement.domain.groups import CandidateQuery
from placement.forest.texts import Pieces
from placement.services.placement.candidates import Search
from placement.services.placement.search_options import SearchOptions
from placement.services.planning.world import NOTHING_DIFFERENT, WorldRequest

blueprint = Blueprint("extended_candidates", __name__)


@route(
    blueprint,
    "/ext/v1/allocation_candidates",
    "GET",
    "placement:allocation_candidates:list",
    gives_json=True,
    target=cluster_of_query,
    described=Operation({200: ScoredCandidates}, errors=[404], query=(*EXTENDED, WORLD)),
)
def candidates() -> Response:
    """Where the request fits, best first, with scores; with explain=1 also why, with a world what if."""
    given = parameters()
    rest = [pair for pair in given if pair[0] != WORLD.name]
    return _found(*extended_query.parse(rest), world_of_text(single(given, WORLD.name)))


@route(
    blueprint,
    "/ext/v1/allocation_candidates",
    "POST",
    "placement:allocation_candidates:list",
    takes_json=True,
    gives_json=True,
    reads=True,
    target=cluster_of_body,
    described=Operation({200: ScoredCandidates}, errors=[404], body=CandidatesInWorld),
)
def candidates_by_json() -> Response:
    """The same for a query in JSON, which may be longer than any URL."""
    body = validated()
    return _found(*json_query.parse(body), world_of(body.get("world", {})))


def _found(query: CandidateQuery, options: SearchOptions, world: WorldRequest) -> Response:
    if world == NOTHING_DIFFERENT:
        renderer = current_app.extensions["placement_candidates_renderer"]
        search = use_cases().candidates.find(query, options)
    else:
        # What is kept of trees as they are is not so there.
        renderer = CandidatesRenderer()
        search = use_cases().planning.candidates(query, options, world)
    members = explanation_member(search) if options.explain else {}
    if options.remarks:
        members["remarks"] = options.remarks
    appendix = orjson.dumps(members)[1:-1]
    scores = _scores(search, options)
    return streamed(renderer.body(search, context.version(), scores=scores, appendix=appendix))


def _scores(search: Search, options: SearchOptions) -> Pieces | None:
    table = search.answer.scores()
    return None if table is None else score_members(table, options.preferences)
