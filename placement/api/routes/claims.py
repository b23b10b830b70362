"""/ext/v1/claims: search and claim in one call."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response

from placement.api import context, extended_query, json_query
from placement.api.bodies import BODY_PREFIX, json_body
from placement.api.context import use_cases
from placement.api.described import OneOf, Operation
from placement.api.queries import read
from placement.api.responses import json_response
from placement.api.route_guard import route
from placement.api.routes.flavors import parse_flavor_query
from placement.api.schemas.answers.allocations import Claimed
from placement.api.schemas.base import load
from placement.api.schemas.candidates import Claimant, ClaimForFlavor, NewClaim, NewJsonClaim
from placement.api.targets import cluster_of_claim
from placement.domain.errors import BadRequest
from placement.domain.groups import CandidateQuery
from placement.services.placement.best_fit import Applicant, Fitted
from placement.services.placement.search_options import SearchOptions

blueprint = Blueprint("claims", __name__)
_CLAIMANT = ("consumer_uuid", "project_id", "user_id", "consumer_type")


@route(
    blueprint,
    "/ext/v1/claims",
    "POST",
    "placement:claims:create",
    takes_json=True,
    target=cluster_of_claim,
    described=Operation(
        {200: Claimed, 201: Claimed}, errors=[404, 409], body=OneOf([NewClaim, NewJsonClaim, ClaimForFlavor])
    ),
)
def create() -> Response:
    """Let a consumer hold the best candidate of a query or of a flavor; repeating it changes nothing."""
    given = json_body()
    if isinstance(given, dict) and "flavor" in given:
        return _create_for_flavor(given)
    body, query, options = _wanted(given)
    if options.explain or query.limit is not None:
        raise BadRequest("query: limit and explain make no sense in a claim")
    fitted = use_cases().best_fit.claim(Applicant(**body), query, options)
    return json_response(_body(fitted), 201 if fitted.fresh else 200)


def _wanted(given: object) -> tuple[dict[str, str], CandidateQuery, SearchOptions]:
    """Who claims, and what."""
    is_json = isinstance(given, dict) and isinstance(given.get("query"), dict)
    body = load(NewJsonClaim if is_json else NewClaim, context.version(), given, BODY_PREFIX)
    query = body.pop("query")
    return body, *(json_query.parse(query) if is_json else extended_query.parse(read(query)))


def _create_for_flavor(given: dict[str, Any]) -> Response:
    if "query" in given:
        raise BadRequest("query: a claim is for a query or for a flavor, not for both")
    claimant = {name: given[name] for name in _CLAIMANT if name in given}
    document = {name: part for name, part in given.items() if name not in _CLAIMANT}
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
