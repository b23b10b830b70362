"""/ext/v1/capacity: how many more there is room for, as everything is or as it would be."""

from __future__ import annotations

from flask import Blueprint, Response

from placement.api import capacity_question
from placement.api.bodies import validated
from placement.api.candidate_parameters import OF_ALL, OWN, PARAMETERS, SPLITS
from placement.api.context import use_cases
from placement.api.described import Operation, Parameter
from placement.api.queries import parameters
from placement.api.rendering.capacity import capacity_body
from placement.api.responses import json_response
from placement.api.route_guard import route
from placement.api.routes.flavors import parse_flavor_query
from placement.api.schemas.answers.capacity import Capacities
from placement.api.schemas.capacity import CapacityBody
from placement.api.targets import cluster_of_body, cluster_of_query
from placement.services.planning.planning import BY, Question

blueprint = Blueprint("capacity", __name__)
_PATH, _RULE = "/ext/v1/capacity", "placement:capacity:show"
_BY = Parameter("by", f"What to sum by beside all hosts, by commas: {', '.join(BY)}; cluster if not given.")
_CLUSTER = next(each for each in OWN if each.name == "cluster")
_ASKED = tuple(each for each in PARAMETERS if each not in OF_ALL or each.name != "limit")


@route(
    blueprint,
    _PATH,
    "GET",
    _RULE,
    gives_json=True,
    target=cluster_of_query,
    described=Operation({200: Capacities}, errors=[404], query=(*_ASKED, *SPLITS, _CLUSTER, _BY)),
)
def capacity() -> Response:
    """How many more of a query could be placed one after another, and what runs out first."""
    return _answered(capacity_question.of_parameters(parameters()))


@route(
    blueprint,
    _PATH,
    "POST",
    _RULE,
    takes_json=True,
    gives_json=True,
    reads=True,
    target=cluster_of_body,
    described=Operation({200: Capacities}, errors=[404], body=CapacityBody),
)
def capacity_of_kinds() -> Response:
    """The same of several kinds - queries, flavors, pods - and in a world that differs."""
    return _answered(capacity_question.of_body(validated()))


def _answered(question: Question) -> Response:
    return json_response(capacity_body(use_cases().planning.capacity(question, parse_flavor_query)))
