"""/allocation_candidates. Source: placement-api.md, "Allocation candidates"."""

from __future__ import annotations

from typing import Any

import orjson
from flask import Blueprint, Response, current_app, request

from placement.allocations import candidate_query
from placement.allocations.applications import Claimant, ClaimApplication, ClaimedCandidate, Outcome
from placement.allocations.best_fit import ClaimResults
from placement.allocations.candidate_query import world_of, world_of_text
from placement.allocations.candidate_schemas import (
    CandidatesInWorldSchema,
    CandidatesSchema,
    ClaimantSchema,
    ClaimForFlavorSchema,
    ClaimForManySchema,
    ListedCandidatesSchema,
    NewClaimSchema,
    NewJsonClaimSchema,
    ScoredCandidatesSchema,
)
from placement.allocations.candidates import Search, SearchOptions
from placement.allocations.claim_bodies import CLAIMANT, application, many_claims
from placement.allocations.rendering import CandidatesRenderer, explanation_member, score_members
from placement.allocations.schemas import ClaimedSchema, ManyClaimedSchema
from placement.allocations.world import NOTHING_DIFFERENT, WorldRequest
from placement.engine.domain.errors import BadRequest
from placement.engine.domain.groups import CandidateQuery
from placement.engine.forest.arrays import Pieces
from placement.http import context
from placement.http.context import use_cases
from placement.http.gate import route
from placement.http.microversions import Feature
from placement.http.operations import (
    BODY_PREFIX,
    ByVersion,
    OneOf,
    Operation,
    json_body,
    parameters,
    single,
    validated,
)
from placement.http.query_grammar import EXTENDED, PARAMETERS, WORLD
from placement.http.responses import error_document, json_response, status_of, streamed
from placement.http.schemas import load
from placement.http.targets import cluster_of_body, cluster_of_claim, cluster_of_query

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
    takes_json=True,
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


def _scores(search: Search, options: SearchOptions) -> Pieces | None:
    table = search.answer.scores()
    return None if table is None else score_members(table, options.preferences)


# /ext/v1/claims: search and claim in one call.


claims_blueprint = Blueprint("claims", __name__)


@route(
    claims_blueprint,
    "/ext/v1/claims",
    "POST",
    "placement:claims:create",
    takes_json=True,
    target=cluster_of_claim,
    described=Operation(
        {200: OneOf([ClaimedSchema, ManyClaimedSchema]), 201: ClaimedSchema},
        errors=[404, 409],
        body=OneOf([NewClaimSchema, NewJsonClaimSchema, ClaimForFlavorSchema, ClaimForManySchema]),
    ),
)
def create() -> Response:
    """Let consumers hold the best candidates of a query or of a flavor; repeating it changes nothing.

    With `members` many consumers claim: each by itself, or at least `minimum` or none, and under rules
    between them. With `dry_run` nothing is written.
    """
    given = json_body()
    if isinstance(given, dict) and "members" in given:
        return _create_for_many(given)
    if isinstance(given, dict) and "flavor" in given:
        return _create_for_flavor(given)
    wanted = application(given)
    fitted = use_cases().best_fit.claim(wanted)
    return json_response(_body(fitted), 201 if fitted.fresh else 200)


def _create_for_many(given: dict[str, Any]) -> Response:
    wanted = many_claims(given)
    best_fit = use_cases().best_fit
    if wanted.world is not None:
        settled = best_fit.preview(wanted.applications, wanted.together, wanted.world)
    elif wanted.is_one_decision:
        settled = best_fit.claim_together(wanted.applications, wanted.together)
    else:
        settled = ClaimResults(best_fit.claim_each(wanted.applications))
    pairs = zip(wanted.applications, settled.outcomes, strict=True)
    body: dict[str, object] = {
        "members": [_member(place, each, outcome) for place, (each, outcome) in enumerate(pairs)]
    }
    if wanted.together.rules:
        body["proven"] = settled.proven
        body["rules"] = [
            {"rule": each.rule.text, "kept": not each.excess, "excess": each.excess} for each in settled.rules
        ]
    return json_response(body)


def _member(place: int, wanted: ClaimApplication, outcome: Outcome) -> dict[str, object]:
    named = {} if wanted.name is None else {"name": wanted.name}
    if isinstance(outcome, ClaimedCandidate):
        if wanted.dedicated_cpus is not None:
            named["dedicated_cpus"] = wanted.dedicated_cpus
        return {"status": 201 if outcome.fresh else 200, **named, **_body(outcome)}
    return {
        "status": status_of(outcome),
        **named,
        "consumer_uuid": wanted.applicant.consumer_uuid,
        "error": error_document(outcome, f"members[{place}]"),
    }


def _create_for_flavor(given: dict[str, Any]) -> Response:
    if "query" in given:
        raise BadRequest("query: a claim is for a query or for a flavor, not for both")
    claimant = {name: given[name] for name in CLAIMANT if name in given}
    document = {name: part for name, part in given.items() if name not in CLAIMANT}
    body = load(ClaimantSchema, context.version(), claimant, BODY_PREFIX)
    claim = use_cases().flavors.claim(Claimant(**body), document, candidate_query.parse_newest)
    answer = {**_body(claim.fitted), "dedicated_cpus": claim.dedicated_cpus}
    return json_response(answer, 201 if claim.fitted.fresh else 200)


def _body(fitted: ClaimedCandidate) -> dict[str, object]:
    applicant = fitted.applicant
    body: dict[str, object] = {
        "consumer_uuid": applicant.consumer_uuid,
        "consumer_generation": fitted.generation,
        "project_id": applicant.project_id,
        "user_id": applicant.user_id,
        "consumer_type": applicant.consumer_type,
        "allocations": {uuid: {"resources": amounts} for uuid, amounts in fitted.resources.items()},
    }
    if fitted.mappings is not None:
        body["mappings"] = fitted.mappings
    return body
