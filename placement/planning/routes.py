"""/ext/v1/capacity and /ext/v1/plans: how many more fit, and which moves make room."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import orjson
from flask import Blueprint, Response

from placement.allocations import candidate_query
from placement.allocations.candidate_query import world_of
from placement.common.documents import manifest_of_kind
from placement.common.microversions import NEWEST
from placement.engine.domain.errors import BadRequest
from placement.engine.domain.groups import CandidateQuery
from placement.http.context import json_response, use_cases
from placement.http.gate import cluster_of_body, cluster_of_query, route
from placement.http.operations import (
    Operation,
    Parameter,
    Parameters,
    load,
    parameters,
    read,
    single,
    validated,
)
from placement.http.query_grammar import OF_ALL, OWN, PARAMETERS, SPLITS
from placement.http.schemas import dump
from placement.planning.capacity import BY, BY_CLUSTER, Question, RequestKind
from placement.planning.making_room import AtMost, PlanLimits
from placement.planning.plans import EMPTY, FIT, FREE, Goal, Move, PlanRequest, PodMove
from placement.planning.schemas import (
    CapacitiesSchema,
    CapacityBodySchema,
    MovesBodySchema,
    PlanBodySchema,
    PlanCheckedSchema,
    PlanShownSchema,
)

# Questions of how many more fit, from a query string or a body.
_OWN = ("by", "cluster")
_KINDS = {"query", "querystring", "flavor", "pod"}


def of_parameters(parameters: Parameters) -> Question:
    """Return a question of one query, called so, everywhere or in a cluster.

    Raises BadRequest naming the parameter.
    """
    query = _query([pair for pair in parameters if pair[0] not in _OWN])
    given = single(parameters, "by")
    by = [BY_CLUSTER] if given is None else given.split(",")
    unknown = sorted(set(by) - set(BY))
    if unknown:
        raise BadRequest(f"by: must be some of {', '.join(BY)}, by commas, not {', '.join(unknown)!r}")
    return Question(
        {"query": RequestKind(query=query)}, single(parameters, "cluster"), by, place=lambda _: ""
    )


def _query(parameters: Parameters) -> CandidateQuery:
    rest, splits = candidate_query.taken_out(parameters)
    if any(key == "limit" for key, _ in rest):
        raise BadRequest("limit: makes no sense where everything is counted")
    return candidate_query.parse(rest, NEWEST, splits)


def of_body(body: Mapping[str, Any]) -> Question:
    """Return the question in a body that keeps to its schema. Raises BadRequest naming the place."""
    kinds = {name: kind_of(given, f"kinds[{name!r}]") for name, given in body["kinds"].items()}
    by = tuple(body.get("by", (BY_CLUSTER,)))
    return Question(kinds, body.get("cluster"), by, world_of(body.get("world", {})))


def kind_of(given: Mapping[str, Any], place: str) -> RequestKind:
    """Return the kind at a place in a body that keeps to its schema. Raises BadRequest naming the place."""
    if len(given.keys() & _KINDS) != 1:
        raise BadRequest(f"{place}: must have one of query, querystring, flavor and pod")
    beside = sorted(given.keys() - _KINDS)
    if beside and "flavor" not in given:
        raise BadRequest(f"{place}.{beside[0]}: is for flavors")
    part, found = "", RequestKind(flavor=given)
    try:
        if "pod" in given:
            part = "pod: "
            found = RequestKind(pod=manifest_of_kind("Pod", [given["pod"]]))
        elif "querystring" in given:
            part = "querystring: "
            found = RequestKind(query=_query(read(given["querystring"])))
        elif "query" in given:
            part = "query."
            found = RequestKind(query=candidate_query.parse_query(given["query"]))
    except BadRequest as error:
        raise BadRequest(f"{place}.{part}{error}") from None
    return found


def watched(texts: Iterable[str]) -> list[Question]:
    """Return the questions of `[capacity] watch`. Raises BadRequest that names the option."""
    try:
        return [_of_setting(text) for text in texts]
    except BadRequest as error:
        raise BadRequest(f"[capacity] watch: {error}") from None


def _of_setting(text: str) -> Question:
    """Return the question in a line: NAME QUERY, or NAME and a kind as JSON, which may have a `cluster`.

    Raises BadRequest.
    """
    name, _, rest = text.strip().partition(" ")
    kind: Any = {"querystring": rest.strip()}
    cluster = None
    if rest.lstrip().startswith("{"):
        try:
            kind = orjson.loads(rest)
        except ValueError as error:
            raise BadRequest(f"{name}: is no JSON: {error}") from None
        cluster = kind.pop("cluster", None)
    body = {"kinds": {name: kind}} | ({} if cluster is None else {"cluster": cluster})
    return of_body(load(CapacityBodySchema, NEWEST, body))


capacity_blueprint = Blueprint("capacity", __name__)
_PATH, _RULE = "/ext/v1/capacity", "placement:capacity:show"
_BY = Parameter("by", f"What to sum by beside all hosts, by commas: {', '.join(BY)}; cluster if not given.")
_CLUSTER = next(each for each in OWN if each.name == "cluster")
_ASKED = tuple(each for each in PARAMETERS if each not in OF_ALL or each.name != "limit")


@route(
    capacity_blueprint,
    _PATH,
    "GET",
    _RULE,
    gives_json=True,
    target=cluster_of_query,
    described=Operation({200: CapacitiesSchema}, errors=[404], query=(*_ASKED, *SPLITS, _CLUSTER, _BY)),
)
def capacity() -> Response:
    """Return how many more of a query could be placed one after another, and what runs out first."""
    return _answered(of_parameters(parameters()))


@route(
    capacity_blueprint,
    _PATH,
    "POST",
    _RULE,
    gives_json=True,
    reads=True,
    target=cluster_of_body,
    described=Operation({200: CapacitiesSchema}, errors=[404], body=CapacityBodySchema),
)
def capacity_of_kinds() -> Response:
    """Return how many more of several kinds (queries, flavors, pods) fit, also in a world that differs."""
    return _answered(of_body(validated()))


def _answered(question: Question) -> Response:
    rooms = use_cases().planning.capacity(question)
    return json_response(dump(CapacitiesSchema, rooms.items()))


# Requests for plans, as read from bodies.
_MOVES = 100


def plan_of_body(body: Mapping[str, Any]) -> PlanRequest:
    """Return the plan request in a body that keeps to its schema. Raises BadRequest naming the place."""
    limits = body.get("limits", {})
    if len(body["goal"]) != 1:
        raise BadRequest("goal: must have one of fit, empty, free and defragment")
    ((name, stated),) = body["goal"].items()
    if name == EMPTY:
        goal = Goal(EMPTY, hosts=stated)
    elif name == FREE:
        goal = Goal(FREE, count=stated)
    else:
        kind = {key: part for key, part in stated.items() if key not in ("count", "resource_class")}
        count = stated.get("count", 1) if name == FIT else 1
        goal = Goal(name, kind_of(kind, f"goal.{name}"), count, resource_class=stated.get("resource_class"))
    for at, given in enumerate(limits.get("at_most", ())):
        if "label" in given and "=" not in given["label"]:
            raise BadRequest(f"limits.at_most[{at}].label: must be KEY=VALUE, not {given['label']!r}")
        if len(given) < 2:
            raise BadRequest(f"limits.at_most[{at}]: must have project_id, consumer_type or label")
    return PlanRequest(
        goal,
        PlanLimits(
            limits.get("moves", _MOVES),
            frozenset(limits.get("never", ())),
            tuple(limits["clusters"]) if "clusters" in limits else None,
            [AtMost(**given) for given in limits.get("at_most", ())],
        ),
        body.get("cluster"),
        limits.get("seconds"),
    )


def move_of(given: Mapping[str, Any]) -> Move:
    """Return a move of a plan that was written as JSON and keeps to its schema."""

    def resources(allocations: Mapping[str, Any]) -> dict[str, dict[str, int]]:
        return {uuid.lower(): dict(each["resources"]) for uuid, each in allocations.items()}

    names = ["consumer", "project_id", "user_id", "consumer_type", "kind", "by", "from_host", "to_host"]
    return Move(
        **{name: given[name] for name in names},
        generation=given["consumer_generation"],
        before=resources(given["from_allocations"]),
        after=resources(given["to_allocations"]),
        pod=PodMove(**given["pod"]) if given.get("pod") is not None else None,
    )


# /ext/v1/plans: which moves would make room or leave hosts empty; nothing is written.
plans_blueprint = Blueprint("plans", __name__)
_PLANS_RULE = "placement:plans:make"


@route(
    plans_blueprint,
    "/ext/v1/plans",
    "POST",
    _PLANS_RULE,
    gives_json=True,
    reads=True,
    target=cluster_of_body,
    described=Operation({200: PlanShownSchema}, errors=[404], body=PlanBodySchema),
)
def make() -> Response:
    """Return an ordered list of moves after which requests fit, hosts are empty, or less is stranded."""
    plan = use_cases().plans.make(plan_of_body(validated()))
    return json_response(dump(PlanShownSchema, plan))


@route(
    plans_blueprint,
    "/ext/v1/plans/check",
    "POST",
    _PLANS_RULE,
    gives_json=True,
    reads=True,
    target=cluster_of_body,
    described=Operation({200: PlanCheckedSchema}, errors=[404], body=MovesBodySchema),
)
def check() -> Response:
    """Return whether the moves of a plan are still possible, each after the moves before it."""
    body = validated()
    moves = [move_of(each) for each in body["moves"]]
    return json_response(dump(PlanCheckedSchema, use_cases().plans.check(moves, body.get("cluster"))))
