"""/ext/v1/flavors: nova flavors translated, and searched for."""

from __future__ import annotations

from itertools import chain

import orjson
from flask import Blueprint, Response, current_app

from placement.allocations.candidate_query import parse_newest
from placement.allocations.candidate_schemas import FlavorCandidatesSchema, TranslationSchema
from placement.allocations.rendering import explanation_member
from placement.flavors.nova import translation_document
from placement.flavors.schemas import FlavorRequestSchema, FlavorSearchSchema
from placement.http.context import use_cases
from placement.http.gate import route
from placement.http.microversions import NEWEST
from placement.http.operations import Operation, json_body
from placement.http.responses import json_response, streamed
from placement.http.targets import cluster_of_body

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
    described=Operation({200: TranslationSchema}, body=FlavorRequestSchema),
)
def translation() -> Response:
    """Return what a flavor asks for, as a candidates query and as the guest's CPU layout."""
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
    described=Operation({200: FlavorCandidatesSchema}, errors=[404], body=FlavorSearchSchema),
)
def candidates() -> Response:
    """Return where a flavor fits; with explain also why."""
    renderer = current_app.extensions["placement_candidates_renderer"]
    found = use_cases().flavors.find(json_body(), parse_newest)
    document = {"translation": translation_document(found.translation), "query_used": found.query_used}
    if found.explained:
        document |= explanation_member(found.search)
    opening = orjson.dumps(document)
    return streamed(chain([opening[:-1] + b',"candidates":'], renderer.body(found.search, NEWEST), [b"}"]))
