"""/ext/v1/claims: search and claim in one call."""

from __future__ import annotations

from flask import Blueprint, Response

from placement.api import extended_query
from placement.api.bodies import validated
from placement.api.context import use_cases
from placement.api.queries import read
from placement.api.responses import json_response
from placement.api.route_guard import route
from placement.api.schemas.allocations import NewClaim
from placement.api.targets import cluster_of_claim
from placement.domain.errors import BadRequest
from placement.services.placement.best_fit import Applicant, Fitted

blueprint = Blueprint("claims", __name__)


@route(
    blueprint, "/ext/v1/claims", "POST", "placement:claims:create", takes_json=True, target=cluster_of_claim
)
def create() -> Response:
    """Let a consumer hold the best candidate of a query; repeating it changes nothing."""
    body = validated(NewClaim)
    query, options = extended_query.parse(read(body.pop("query")))
    if options.explain or query.limit is not None:
        raise BadRequest("query: limit and explain make no sense in a claim")
    fitted = use_cases().best_fit.claim(Applicant(**body), query, options)
    return json_response(_body(fitted), 201 if fitted.fresh else 200)


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
