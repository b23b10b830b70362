"""/ext/v1/claims: search and claim in one call."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response

from placement.api import context
from placement.api.bodies import BODY_PREFIX, json_body
from placement.api.claim_bodies import CLAIMANT, application
from placement.api.context import use_cases
from placement.api.described import OneOf, Operation
from placement.api.errors import error_document, status_of
from placement.api.member_bodies import many_claims
from placement.api.responses import json_response
from placement.api.route_guard import route
from placement.api.routes.flavors import parse_flavor_query
from placement.api.schemas.answers.allocations import Claimed, ManyClaimed
from placement.api.schemas.base import load
from placement.api.schemas.candidates import (
    Claimant,
    ClaimForFlavor,
    ClaimForMany,
    NewClaim,
    NewJsonClaim,
)
from placement.api.targets import cluster_of_claim
from placement.domain.errors import BadRequest
from placement.services.placement.applications import Applicant, Application, Fitted, Outcome
from placement.services.placement.contest import Settled

blueprint = Blueprint("claims", __name__)


@route(
    blueprint,
    "/ext/v1/claims",
    "POST",
    "placement:claims:create",
    takes_json=True,
    target=cluster_of_claim,
    described=Operation(
        {200: OneOf([Claimed, ManyClaimed]), 201: Claimed},
        errors=[404, 409],
        body=OneOf([NewClaim, NewJsonClaim, ClaimForFlavor, ClaimForMany]),
    ),
)
def create() -> Response:
    """Let consumers hold the best candidates of a query or of a flavor; repeating it changes nothing.

    With `members` it is for many, in one transaction: each by itself, or at least so many or none, and under
    rules between them. With `dry_run` nothing is written.
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
    wanted = many_claims(given, parse_flavor_query)
    best_fit = use_cases().best_fit
    if wanted.world is not None:
        settled = best_fit.preview(wanted.applications, wanted.together, wanted.world)
    elif wanted.is_one_decision:
        settled = best_fit.claim_together(wanted.applications, wanted.together)
    else:
        settled = Settled(best_fit.claim_each(wanted.applications))
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


def _member(place: int, wanted: Application, outcome: Outcome) -> dict[str, object]:
    named = {} if wanted.name is None else {"name": wanted.name}
    if isinstance(outcome, Fitted):
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
    body = load(Claimant, context.version(), claimant, BODY_PREFIX)
    claim = use_cases().flavors.claim(Applicant(**body), document, parse_flavor_query)
    answer = {**_body(claim.fitted), "dedicated_cpus": claim.dedicated_cpus}
    return json_response(answer, 201 if claim.fitted.fresh else 200)


def _body(fitted: Fitted) -> dict[str, object]:
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
