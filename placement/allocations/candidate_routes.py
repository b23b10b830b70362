"""/allocation_candidates, as OpenStack Placement has it and with our extensions.

Source: placement-api.md, "Allocation candidates".
"""

from __future__ import annotations

from functools import partial
from typing import Any

import orjson
from flask import Blueprint, Response, request

from placement.allocations import candidate_query, candidate_schemas
from placement.allocations.candidate_query import world_of, world_of_text
from placement.allocations.candidates import CandidateSearch, SearchOptions
from placement.allocations.rendering import CandidatesRenderer, score_members
from placement.allocations.world import NOTHING_DIFFERENT, ImaginedSearch, WorldRequest
from placement.common.microversions import Feature
from placement.engine.domain.groups import CandidateQuery
from placement.http import context, operations, query_strings
from placement.http.answers import streamed
from placement.http.bodies import parameters, validated
from placement.http.context import component, service
from placement.http.gate import route
from placement.http.query_grammar import EXTENDED, PARAMETERS, WORLD
from placement.http.schemas import dump
from placement.http.targets import cluster_of_body, cluster_of_query

allocation_candidates_blueprint = Blueprint("allocation_candidates", __name__)
_SEARCH = "placement:allocation_candidates:list"
_AS_PLACEMENT = SearchOptions(own_words=False)


@route(
    allocation_candidates_blueprint,
    "/allocation_candidates",
    "GET",
    _SEARCH,
    since=Feature.CANDIDATES,
    gives_json=True,
    described=operations.Operation(
        {
            200: operations.ByVersion(
                {
                    None: candidate_schemas.ListedCandidatesSchema,
                    Feature.ALLOCATIONS_BY_PROVIDER: candidate_schemas.CandidatesSchema,
                }
            )
        },
        query=PARAMETERS,
    ),
)
def candidates() -> Response:
    """Return the candidates of a request."""
    text, parse = request.query_string, candidate_query.parse_text
    is_kept = len(text) <= query_strings.LONGEST_KEPT
    query = (parse if is_kept else parse.__wrapped__)(text, context.version())
    search = service(CandidateSearch).find(query, _AS_PLACEMENT)
    context.current().candidates = len(search.answer)
    return streamed(component(CandidatesRenderer).body(search, context.version()))


# The search with orders, preferences, clusters and reasons.
extended_candidates_blueprint = Blueprint("extended_candidates", __name__)
_extended = partial(
    route, extended_candidates_blueprint, "/ext/v1/allocation_candidates", policy=_SEARCH, gives_json=True
)
_found_or_not = partial(operations.Operation, {200: candidate_schemas.ScoredCandidatesSchema}, errors=[404])


@_extended(method="GET", target=cluster_of_query, described=_found_or_not(query=(*EXTENDED, WORLD)))
def extended_candidates() -> Response:
    """Return candidates, best first, with scores; `explain=1` adds reasons, `world` asks what would be."""
    given = parameters()
    rest = [pair for pair in given if pair[0] != WORLD.name]
    asked = candidate_query.parse_extended(rest, service(CandidateSearch))
    return _found(*asked, world_of_text(query_strings.single(given, WORLD.name)))


@_extended(
    method="POST",
    reads=True,
    target=cluster_of_body,
    described=_found_or_not(body=candidate_schemas.CandidatesInWorldSchema),
)
def candidates_by_json() -> Response:
    """Return the candidates of a request in JSON, which may be longer than any URL."""
    body = validated()
    asked = candidate_query.parse_json(body, service(CandidateSearch))
    return _found(*asked, world_of(body.get("world", {})))


def _found(query: CandidateQuery, options: SearchOptions, world: WorldRequest) -> Response:
    if world == NOTHING_DIFFERENT:
        renderer = component(CandidatesRenderer)
        search = service(CandidateSearch).find(query, options)
    else:
        # The shared renderer keeps summaries of real trees, which do not hold in another world.
        renderer = CandidatesRenderer()
        search = service(ImaginedSearch).find(query, options, world)
    members: dict[str, Any] = {}
    if options.explain:
        members["explanation"] = dump(candidate_schemas.ExplanationShownSchema, search.explanation)
    if options.remarks:
        members["remarks"] = options.remarks
    appendix = orjson.dumps(members)[1:-1]
    table = search.answer.scores()
    scores = None if table is None else score_members(table, options.preferences)
    context.current().candidates = len(search.answer)
    return streamed(renderer.body(search, context.version(), scores=scores, appendix=appendix))
