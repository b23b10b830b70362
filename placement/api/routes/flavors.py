"""/ext/v1/flavors: nova flavors translated, and searched for."""

from __future__ import annotations

from itertools import chain

import orjson
from flask import Blueprint, Response, current_app

from placement.api import candidate_query, queries
from placement.api.bodies import json_body
from placement.api.context import use_cases
from placement.api.described import Operation
from placement.api.microversions import NEWEST
from placement.api.rendering.explanations import explanation_member
from placement.api.responses import json_response, streamed
from placement.api.route_guard import route
from placement.api.schemas.answers.candidates import FlavorCandidates, Translation
from placement.api.schemas.flavors import FlavorRequest, FlavorSearch
from placement.api.targets import cluster_of_body
from placement.dialects.nova import translation_document
from placement.domain.groups import CandidateQuery

blueprint = Blueprint("flavors", __name__)
_RULE = "placement:flavors:"


@route(
    blueprint,
    "/ext/v1/flavors/translation",
    "POST",
    f"{_RULE}translate",
    takes_json=True,
    gives_json=True,
    reads=True,
    described=Operation({200: Translation}, body=FlavorRequest),
)
def translation() -> Response:
    """What a flavor asks for, as a candidates query and as the guest's CPU layout."""
    return json_response(translation_document(use_cases().flavors.translate(json_body())))


@route(
    blueprint,
    "/ext/v1/flavors/candidates",
    "POST",
    f"{_RULE}candidates",
    takes_json=True,
    gives_json=True,
    reads=True,
    target=cluster_of_body,
    described=Operation({200: FlavorCandidates}, errors=[404], body=FlavorSearch),
)
def candidates() -> Response:
    """Where a flavor fits; with explain also why."""
    renderer = current_app.extensions["placement_candidates_renderer"]
    found = use_cases().flavors.find(json_body(), parse_flavor_query)
    document = {"translation": translation_document(found.translation), "query_used": found.query_used}
    if found.explained:
        document |= explanation_member(found.search)
    opening = orjson.dumps(document)
    return streamed(chain([opening[:-1] + b',"candidates":'], renderer.body(found.search, NEWEST), [b"}"]))


def parse_flavor_query(query_string: str) -> CandidateQuery:
    """The query that a flavor is translated to."""
    return candidate_query.parse(queries.read(query_string), NEWEST)
