"""/ext/v1/plans: which moves would make room or leave hosts empty; nothing is written."""

from __future__ import annotations

from flask import Blueprint, Response

from placement.api import plan_request
from placement.api.bodies import validated
from placement.api.context import use_cases
from placement.api.described import Operation
from placement.api.rendering.plans import checked_body, plan_body
from placement.api.responses import json_response
from placement.api.route_guard import route
from placement.api.routes.flavors import parse_flavor_query
from placement.api.schemas.plans import MovesBody, PlanBody, PlanChecked, PlanShown
from placement.api.targets import cluster_of_body

blueprint = Blueprint("plans", __name__)
_RULE = "placement:plans:make"


@route(
    blueprint,
    "/ext/v1/plans",
    "POST",
    _RULE,
    takes_json=True,
    gives_json=True,
    reads=True,
    target=cluster_of_body,
    described=Operation({200: PlanShown}, errors=[404], body=PlanBody),
)
def make() -> Response:
    """An ordered list of moves after which requests fit, hosts are empty, or less is stranded."""
    request = plan_request.of_body(validated())
    return json_response(plan_body(use_cases().plans.make(request, parse_flavor_query), request.cluster))


@route(
    blueprint,
    "/ext/v1/plans/check",
    "POST",
    _RULE,
    takes_json=True,
    gives_json=True,
    reads=True,
    target=cluster_of_body,
    described=Operation({200: PlanChecked}, errors=[404], body=MovesBody),
)
def check() -> Response:
    """Whether the moves of a plan are still possible, each after those before it."""
    body = validated()
    moves = plan_request.moves_of(body["moves"])
    return json_response(checked_body(use_cases().plans.check(moves, body.get("cluster"))))
