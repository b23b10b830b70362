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
from placement.engine.domain.errors import BODY, BadRequest, RequestPlace, parameter
from placement.engine.domain.groups import CandidateQuery
from placement.http.answers import json_response
from placement.http.bodies import parameters, validated
from placement.http.context import component, service
from placement.http.gate import route
from placement.http.operations import Operation, Parameter, load
from placement.http.query_grammar import CLOSED, OF_ALL, OWN, PARAMETERS, SPLITS
from placement.http.query_strings import Parameters, read, single
from placement.http.schemas import dump
from placement.http.targets import cluster_of_body, cluster_of_query
from placement.planning import plans, schemas
from placement.planning.capacity import BY, BY_CLUSTER, Planning, Question, RequestKind
from placement.planning.limits import USUAL_MOVES, AtMost, PlanLimits
from placement.planning.service import Plans

# Questions of how many more fit, from a query string or a body.
_OWN = ("by", "cluster", "closed")
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
        raise BadRequest(
            f"must be some of {', '.join(BY)}, by commas, not {', '.join(unknown)!r}", place=parameter("by")
        )
    return Question(
        {"query": RequestKind(query=query)},
        single(parameters, "cluster"),
        by,
        closed=candidate_query.parse_closed(parameters),
        place=lambda _: BODY,
    )


def _query(parameters: Parameters) -> CandidateQuery:
    rest, splits = candidate_query.taken_out(parameters)
    if any(key == "limit" for key, _ in rest):
        raise BadRequest("makes no sense where everything is counted", place=parameter("limit"))
    return candidate_query.parse(rest, NEWEST, splits)


def of_body(body: Mapping[str, Any]) -> Question:
    """Return the question in a body that keeps to its schema. Raises BadRequest naming the place."""
    kinds = {name: kind_of(given, (BODY / "kinds").entry(name)) for name, given in body["kinds"].items()}
    by = tuple(body.get("by", (BY_CLUSTER,)))
    world = world_of(body.get("world", {}))
    return Question(kinds, body.get("cluster"), by, world, closed=bool(body.get("closed")))


def kind_of(given: Mapping[str, Any], place: RequestPlace) -> RequestKind:
    """Return the kind at a place in a body that keeps to its schema. Raises BadRequest naming the place."""
    if len(given.keys() & _KINDS) != 1:
        raise BadRequest("must have one of query, querystring, flavor and pod", place=place)
    beside = sorted(given.keys() - _KINDS)
    if beside and "flavor" not in given:
        raise BadRequest("is for flavors", place=place / beside[0])
    (part,) = given.keys() & _KINDS
    try:
        if part == "pod":
            return RequestKind(pod=manifest_of_kind("Pod", [given["pod"]]))
        if part == "querystring":
            return RequestKind(query=_query(read(given["querystring"])))
        if part == "query":
            return RequestKind(query=candidate_query.parse_query(given["query"]))
    except BadRequest as error:
        raise error.within(place / part) from None
    return RequestKind(flavor=given)


def watched(texts: Iterable[str]) -> list[Question]:
    """Return the questions of `[capacity] watch`. Raises BadRequest that names the option."""
    try:
        return [_of_setting(text) for text in texts]
    except BadRequest as error:
        raise error.within(RequestPlace("[capacity] watch")) from None


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
            raise BadRequest(f"is not JSON: {error}", place=parameter(name)) from None
        cluster = kind.pop("cluster", None)
    body = {"kinds": {name: kind}} | ({} if cluster is None else {"cluster": cluster})
    return of_body(load(schemas.CapacityBodySchema, NEWEST, body))


capacity_blueprint = Blueprint("capacity", __name__)
_PATH, _RULE = "/ext/v1/capacity", "placement:capacity:show"
_BY = Parameter(
    "by", f"Further sums beside that of all hosts, by commas: {', '.join(BY)}; cluster if not given."
)
_CLUSTER = next(each for each in OWN if each.name == "cluster")
_ASKED = tuple(each for each in PARAMETERS if each not in OF_ALL or each.name != "limit")


@route(
    capacity_blueprint,
    _PATH,
    "GET",
    _RULE,
    gives_json=True,
    target=cluster_of_query,
    described=Operation(
        {200: schemas.CapacitiesSchema}, errors=[404], query=(*_ASKED, *SPLITS, _CLUSTER, CLOSED, _BY)
    ),
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
    described=Operation({200: schemas.CapacitiesSchema}, errors=[404], body=schemas.CapacityBodySchema),
)
def capacity_of_kinds() -> Response:
    """Return how many more of several kinds (queries, flavors, pods) fit, also in a world that differs."""
    return _answered(of_body(validated()))


def _answered(question: Question) -> Response:
    rooms = service(Planning).capacity(question)
    return json_response(dump(schemas.CapacitiesSchema, rooms.items()))


# Requests for plans, as read from bodies.


def plan_of_body(body: Mapping[str, Any]) -> plans.PlanRequest:
    """Return the plan request in a body that keeps to its schema. Raises BadRequest naming the place."""
    limits = body.get("limits", {})
    if len(body["goal"]) != 1:
        raise BadRequest("must have one of fit, empty, free and defragment", place=BODY / "goal")
    ((name, stated),) = body["goal"].items()
    if name == plans.EMPTY:
        goal = plans.Goal(plans.EMPTY, hosts=stated)
    elif name == plans.FREE:
        goal = plans.Goal(plans.FREE, count=stated)
    else:
        kind = {key: part for key, part in stated.items() if key not in ("count", "resource_class")}
        count = stated.get("count", 1) if name == plans.FIT else 1
        goal = plans.Goal(
            name, kind_of(kind, BODY / "goal" / name), count, resource_class=stated.get("resource_class")
        )
    for at, given in enumerate(limits.get("at_most", ())):
        if "label" in given and "=" not in given["label"]:
            raise BadRequest(
                f"must be KEY=VALUE, not {given['label']!r}", place=BODY / "limits" / "at_most" / at / "label"
            )
        if len(given) < 2:
            raise BadRequest(
                "must have project_id, consumer_type or label", place=BODY / "limits" / "at_most" / at
            )
    return plans.PlanRequest(
        goal,
        PlanLimits(
            limits.get("moves", USUAL_MOVES),
            frozenset(limits.get("never", ())),
            tuple(limits["clusters"]) if "clusters" in limits else None,
            [AtMost(**given) for given in limits.get("at_most", ())],
        ),
        body.get("cluster"),
        limits.get("seconds"),
        bool(body.get("closed")),
    )


def move_of(given: Mapping[str, Any]) -> plans.Move:
    """Return a move of a plan that was written as JSON and keeps to its schema."""

    def resources(allocations: Mapping[str, Any]) -> dict[str, dict[str, int]]:
        return {uuid.lower(): dict(each["resources"]) for uuid, each in allocations.items()}

    names = ["consumer", "project_id", "user_id", "consumer_type", "kind", "by", "from_host", "to_host"]
    return plans.Move(
        **{name: given[name] for name in names},
        generation=given["consumer_generation"],
        before=resources(given["from_allocations"]),
        after=resources(given["to_allocations"]),
        pod=plans.PodMove(**given["pod"]) if given.get("pod") is not None else None,
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
    described=Operation({200: schemas.PlanShownSchema}, errors=[404], body=schemas.PlanBodySchema),
)
def make() -> Response:
    """Return an ordered list of moves after which requests fit, hosts are empty, or less is stranded."""
    plan = service(Plans).make(plan_of_body(validated()), component(plans.PlanSettings))
    return json_response(dump(schemas.PlanShownSchema, plan))


@route(
    plans_blueprint,
    "/ext/v1/plans/check",
    "POST",
    _PLANS_RULE,
    gives_json=True,
    reads=True,
    target=cluster_of_body,
    described=Operation({200: schemas.PlanCheckedSchema}, errors=[404], body=schemas.MovesBodySchema),
)
def check() -> Response:
    """Return whether the moves of a plan are still possible, each after the moves before it."""
    body = validated()
    moves = [move_of(each) for each in body["moves"]]
    checked = service(Plans).check(moves, body.get("cluster"), closed=bool(body.get("closed")))
    return json_response(dump(schemas.PlanCheckedSchema, checked))
