"""Moves: which consumers would have to go elsewhere so that requests fit, or hosts are empty."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from flask import Blueprint, Response

from placement.api.capacity_question import kind_of
from placement.api.context import use_cases
from placement.api.rendering.plans import plan_body
from placement.api.route_guard import PAGES, route
from placement.api.targets import cluster_of_query
from placement.domain.errors import BadRequest
from placement.services.planning.moves.limits import Limits
from placement.services.planning.moves.plan import Plan
from placement.services.planning.planning import Kind
from placement.services.planning.plans import DEFRAGMENT, EMPTY, FIT, FREE, Goal, PlanRequest
from placement.web.requests import (
    EXAMPLES,
    answered,
    chosen_kind,
    flavor_document,
    manifest_of,
    offered_clusters,
    parsed,
)
from placement.web.shown import asked, shown

GOALS = {
    FIT: "Let requests fit",
    EMPTY: "Empty some hosts",
    FREE: "Free any hosts",
    DEFRAGMENT: "Strand less",
}
_USUAL_MOVES, _MOST = 20, 1000
_COLUMNS = ("step", "consumer", "project", "user", "from", "to", "by", "pod", "cpuset")
# What says that the form is filled in, by the goal that asks for it.
_FILLED = ("query", "vcpus", "pod", "hosts", "free")


def register(blueprint: Blueprint) -> None:
    """Add the routes."""
    rule = "placement:plans:make"
    route(blueprint, f"{PAGES}/moves", "GET", rule, target=cluster_of_query)(_moves)
    route(blueprint, f"{PAGES}/moves", "POST", rule, target=_cluster_of_form, reads=True)(_moves)


def _cluster_of_form() -> dict[str, str]:
    """Return the cluster of a form; of several the first counts, here and for the plan."""
    return {name: value for name, value in asked().items() if name == "cluster"}


def _moves() -> Response:
    """The form, and the plan; nothing is written."""
    goal = asked().get("goal", FIT)
    if goal not in GOALS:
        raise BadRequest(f"goal: {goal!r} is none of {', '.join(GOALS)}")
    kind, given = chosen_kind(), asked()
    cluster = given.get("cluster") or None
    plan, problems = answered(lambda: _made(goal, kind, cluster, given), given, _FILLED)
    return shown(
        "moves.html",
        lambda: {"problems": problems} if plan is None else plan_body(plan, cluster),
        lambda: (_COLUMNS, [] if plan is None else list(_rows(plan))),
        400 if problems else 200,
        goal=goal,
        goals=GOALS,
        kind=kind,
        given=given,
        problems=problems,
        examples=EXAMPLES,
        clusters=offered_clusters(given, is_answered=plan is not None),
        plan=plan,
        names={} if plan is None else {host.uuid: host.name or host.uuid for host in plan.hosts},
    )


def _made(goal: str, kind: str, cluster: str | None, given: Mapping[str, str]) -> Plan:
    limits = Limits(_number(given, "moves", _USUAL_MOVES))
    return use_cases().plans.make(PlanRequest(_goal(goal, kind, given), limits, cluster), parsed)


def _goal(goal: str, kind: str, given: Mapping[str, str]) -> Goal:
    """What the form asks for. Raises BadRequest, ManifestError."""
    if goal == EMPTY:
        hosts = [name for name in (each.strip() for each in given.get("hosts", "").split(",")) if name]
        if not hosts:
            raise BadRequest("hosts: name at least one host, by its name or uuid")
        return Goal(EMPTY, hosts=hosts)
    if goal == FREE:
        return Goal(FREE, count=_number(given, "free", 1))
    return Goal(goal, _KINDS[kind](given), _number(given, "count", 1) if goal == FIT else 1)


def _query(given: Mapping[str, str]) -> Kind:
    return kind_of({"querystring": given.get("query", "").strip().lstrip("?")}, "query")


_KINDS: dict[str, Callable[[Mapping[str, str]], Kind]] = {
    "query": _query,
    "flavor": lambda given: Kind(flavor=flavor_document(given)),
    "pod": lambda given: Kind(pod=manifest_of(given)),
}


def _number(given: Mapping[str, str], name: str, usual: int) -> int:
    text = given.get(name) or str(usual)
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= _MOST):
        raise BadRequest(f"{name}: must be 1 to {_MOST}, not {text!r}")
    return int(text)


def _rows(plan: Plan) -> Iterator[tuple[Any, ...]]:
    names = {host.uuid: host.name or host.uuid for host in plan.hosts}
    for step, move in enumerate(plan.moves, 1):
        pod = None if move.pod is None else f"{move.pod.cluster}/{move.pod.namespace}/{move.pod.name}"
        hosts = (names.get(move.from_host, move.from_host), names.get(move.to_host, move.to_host))
        cpuset = None if move.pod is None else move.pod.cpuset
        yield step, move.consumer, move.project_id, move.user_id, *hosts, move.by, pod, cpuset
