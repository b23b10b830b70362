"""/ext/v1/flavors: nova flavors translated and searched for; /ext/v1/claims: queries and flavors claimed."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import Any

import orjson
from flask import Blueprint, Response

from placement.allocations.applications import Claimant
from placement.allocations.best_fit import BestFit, ClaimResults
from placement.allocations.candidate_schemas import (
    ClaimantSchema,
    ClaimForManySchema,
    ExplanationShownSchema,
    FlavorCandidatesSchema,
    NewClaimSchema,
    NewJsonClaimSchema,
    TranslationSchema,
)
from placement.allocations.candidates import CandidateSearch
from placement.allocations.rendering import CandidatesRenderer
from placement.allocations.schemas import ClaimedSchema, ManyClaimedSchema
from placement.common.microversions import NEWEST
from placement.engine.domain.errors import BODY, BadRequest, PlacementError
from placement.flavors.claim_bodies import CLAIMANT, application, many_claims
from placement.flavors.nova.translation import translate_document, translation_document
from placement.flavors.schemas import ClaimForFlavorSchema, FlavorRequestSchema, FlavorSearchSchema
from placement.flavors.service import Flavors
from placement.http import context
from placement.http.answers import json_response, streamed
from placement.http.bodies import json_body
from placement.http.context import component, service
from placement.http.errors import error_document, status_of
from placement.http.gate import route
from placement.http.operations import OneOf, Operation, load
from placement.http.schemas import dump
from placement.http.targets import cluster_of_body, cluster_of_claim

blueprint = Blueprint("flavors", __name__)
_question = partial(route, blueprint, method="POST", gives_json=True, reads=True)


@_question(
    "/ext/v1/flavors/translation",
    policy="placement:flavors:translate",
    described=Operation({200: TranslationSchema}, body=FlavorRequestSchema),
)
def translation() -> Response:
    """Return what a flavor asks for, as a candidates query and as the guest's CPU layout."""
    return json_response(translation_document(translate_document(json_body())))


@_question(
    "/ext/v1/flavors/candidates",
    policy="placement:flavors:candidates",
    target=cluster_of_body,
    described=Operation({200: FlavorCandidatesSchema}, errors=[404], body=FlavorSearchSchema),
)
def candidates() -> Response:
    """Return where a flavor fits; with explain also why."""
    renderer = component(CandidatesRenderer)
    found = service(Flavors).find(json_body())
    document = {"translation": translation_document(found.translation), "query_used": found.query_used}
    if found.explained:
        document["explanation"] = dump(ExplanationShownSchema, found.search.explanation)
    opening = orjson.dumps(document)
    context.current().candidates = len(found.search.answer)
    return streamed(chain([opening[:-1] + b',"candidates":'], renderer.body(found.search, NEWEST), [b"}"]))


# /ext/v1/claims: search and claim in one call.


claims_blueprint = Blueprint("claims", __name__)


@route(
    claims_blueprint,
    "/ext/v1/claims",
    "POST",
    "placement:claims:create",
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
    wanted = application(given, service(CandidateSearch))
    try:
        fitted = service(BestFit).claim(wanted)
    except BadRequest as error:
        # Names in the query are looked up by the search.
        raise error.within(BODY / "query") from None
    return json_response(dump(ClaimedSchema, fitted), 201 if fitted.fresh else 200)


def _create_for_many(given: dict[str, Any]) -> Response:
    wanted = many_claims(given, service(CandidateSearch), service(Flavors))
    best_fit = service(BestFit)
    if wanted.world is not None:
        results = best_fit.preview(wanted.applications, wanted.together, wanted.world)
    elif wanted.is_one_decision:
        results = best_fit.claim_together(wanted.applications, wanted.together)
    else:
        results = ClaimResults(best_fit.claim_each(wanted.applications))
    members = []
    for place, (each, outcome) in enumerate(zip(wanted.applications, results.outcomes, strict=True)):
        named: dict[str, object] = {} if each.name is None else {"name": each.name}
        if isinstance(outcome, PlacementError):
            named["consumer_uuid"] = each.claimant.consumer_uuid
            at = BODY / "members" / place
            is_of_query = isinstance(outcome, BadRequest) and each.dedicated_cpus is None
            named["error"] = error_document(outcome, at / "query" if is_of_query else at)
            members.append({"status": status_of(outcome), **named})
        else:
            if each.dedicated_cpus is not None:
                named["dedicated_cpus"] = each.dedicated_cpus
            status = 201 if outcome.fresh else 200
            members.append({"status": status, **named, **dump(ClaimedSchema, outcome)})
    return json_response(dump(ManyClaimedSchema, results, context=(members, bool(wanted.together.rules))))


def _create_for_flavor(given: dict[str, Any]) -> Response:
    if "query" in given:
        raise BadRequest("a claim is for a query or for a flavor, not for both", place=BODY / "query")
    claimant = {name: given[name] for name in CLAIMANT if name in given}
    document = {name: part for name, part in given.items() if name not in CLAIMANT}
    body = load(ClaimantSchema, context.version(), claimant)
    fitted, cpus = service(Flavors).claim(Claimant(**body), document)
    return json_response(dump(ClaimedSchema, fitted, context=cpus), 201 if fitted.fresh else 200)
