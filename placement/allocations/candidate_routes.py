"""/allocation_candidates. Source: placement-api.md, "Allocation candidates"."""

from __future__ import annotations

import orjson
from flask import Blueprint, Response, current_app, request

from placement.allocations import candidate_query
from placement.allocations.candidate_query import world_of, world_of_text
from placement.allocations.candidate_schemas import (
    CandidatesInWorldSchema,
    CandidatesSchema,
    ListedCandidatesSchema,
    ScoredCandidatesSchema,
)
from placement.allocations.candidates import SearchOptions, SearchResult
from placement.allocations.rendering import CandidatesRenderer, explanation_member, score_members
from placement.allocations.world import NOTHING_DIFFERENT, WorldRequest
from placement.common.microversions import Feature
from placement.engine.domain.groups import CandidateQuery
from placement.engine.forest.arrays import Pieces
from placement.http import context
from placement.http.context import use_cases
from placement.http.gate import route
from placement.http.operations import ByVersion, Operation, parameters, single, validated
from placement.http.query_grammar import EXTENDED, PARAMETERS, WORLD
from placement.http.responses import streamed
from placement.http.targets import cluster_of_body, cluster_of_query

allocation_candidates_blueprint = Blueprint("allocation_candidates", __name__)


@route(
    allocation_candidates_blueprint,
    "/allocation_candidates",
    "GET",
    "placement:allocation_candidates:list",
    since=Feature.CANDIDATES,
    gives_json=True,
    described=Operation(
        {200: ByVersion({None: ListedCandidatesSchema, Feature.ALLOCATIONS_BY_PROVIDER: CandidatesSchema})},
        query=PARAMETERS,
    ),
)
def candidates() -> Response:
    """Return the candidates of a request."""
    query = candidate_query.parse_text(request.query_string, context.version())
    renderer = current_app.extensions["placement_candidates_renderer"]
    return streamed(renderer.body(use_cases().candidates.find(query), context.version()))


# /ext/v1/allocation_candidates: the search with orders, preferences, clusters and reasons.


extended_candidates_blueprint = Blueprint("extended_candidates", __name__)


@route(
    extended_candidates_blueprint,
    "/ext/v1/allocation_candidates",
    "GET",
    "placement:allocation_candidates:list",
    gives_json=True,
    target=cluster_of_query,
    described=Operation({200: ScoredCandidatesSchema}, errors=[404], query=(*EXTENDED, WORLD)),
)
def extended_candidates() -> Response:
    """Return candidates, best first, with scores; `explain=1` adds reasons, `world` asks what would be."""
    given = parameters()
    rest = [pair for pair in given if pair[0] != WORLD.name]
    return _found(*candidate_query.parse_extended(rest), world_of_text(single(given, WORLD.name)))


@route(
    extended_candidates_blueprint,
    "/ext/v1/allocation_candidates",
    "POST",
    "placement:allocation_candidates:list",
    gives_json=True,
    reads=True,
    target=cluster_of_body,
    described=Operation({200: ScoredCandidatesSchema}, errors=[404], body=CandidatesInWorldSchema),
)
def candidates_by_json() -> Response:
    """Return the candidates of a request in JSON, which may be longer than any URL."""
    body = validated()
    return _found(*candidate_query.parse_json(body), world_of(body.get("world", {})))


def _found(query: CandidateQuery, options: SearchOptions, world: WorldRequest) -> Response:
    if world == NOTHING_DIFFERENT:
        renderer = current_app.extensions["placement_candidates_renderer"]
        search = use_cases().candidates.find(query, options)
    else:
        # The shared renderer keeps summaries of real trees, which do not hold in another world.
        renderer = CandidatesRenderer()
        search = use_cases().planning.candidates(query, options, world)
    members = explanation_member(search) if options.explain else {}
    if options.remarks:
        members["remarks"] = options.remarks
    appendix = orjson.dumps(members)[1:-1]
    scores = _scores(search, options)
    return streamed(renderer.body(search, context.version(), scores=scores, appendix=appendix))


def _scores(search: SearchResult, options: SearchOptions) -> Pieces | None:
    table = search.answer.scores()
    return None if table is None else score_members(table, options.preferences)
