"""The pages of capacity and of moves: how many more of a request fit, and which moves make room."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from flask import Blueprint, Response

from placement.allocations.world import WorldRequest
from placement.engine.domain.errors import BadRequest
from placement.http import operations
from placement.http.context import use_cases
from placement.http.gate import PAGES, route
from placement.http.schemas import dump
from placement.http.targets import cluster_of_query
from placement.planning import routes
from placement.planning.capacity import BY, BY_AGGREGATE, BY_CLUSTER, Question, RequestKind
from placement.planning.making_room import PlanLimits
from placement.planning.plans import DEFRAGMENT, EMPTY, FIT, FREE, Goal, Plan, PlanRequest
from placement.planning.room import CapacityCount, HostRoom, KindRoom
from placement.planning.routes import kind_of
from placement.planning.schemas import KindRoomShownSchema, PlanShownSchema
from placement.providers.fleet import COMMON_REQUEST
from placement.web import units
from placement.web.requests import (
    EXAMPLES,
    answered,
    chosen_kind,
    cluster_of_pod,
    flavor_document,
    manifest_of,
    offered_clusters,
)
from placement.web.templating import address, asked, escaped, require, shown

_HOSTS_SHOWN = 100
_COLUMNS = ("of", "name", "uuid", "lower", "upper", "runs_out_first", "fragmentation")


def common_room(cluster: str | None) -> str:
    """Return the address that counts, in few numbers, the request that stranded cores cannot serve."""
    cores, memory = COMMON_REQUEST
    specs = "hw:cpu_policy=dedicated"
    return address(
        "/room", kind="flavor", vcpus=cores, ram=memory, disk=0, specs=specs, cluster=cluster, hosts="no"
    )


def register(blueprint: Blueprint) -> None:
    """Add the routes; counting requires a policy rule of its own."""
    listing = "placement:clusters:list"
    route(blueprint, f"{PAGES}/room", "GET", listing, own_only=True)(_room)
    route(blueprint, f"{PAGES}/room", "POST", listing, own_only=True, reads=True)(_room)


def _room() -> Response:
    """Show the form, and how many more fit."""
    kind, given = chosen_kind(), asked()
    found, problems = answered(lambda: _counted(_ASKED[kind](given)), given)
    return shown(
        "room.html",
        lambda: {"problems": problems} if found is None else dump(KindRoomShownSchema, found),
        lambda: (_COLUMNS, [] if found is None else list(_rows(found))),
        400 if problems else 200,
        kind=kind,
        given=given,
        problems=problems,
        examples=EXAMPLES,
        clusters=offered_clusters(given, is_answered=found is not None),
        room=found,
        groups=_groups(found),
        hosts=_best(found),
    )


def _counted(question: Question) -> KindRoom:
    """Return the answer for the only kind of the question."""
    require("capacity:show", question.cluster)
    (found,) = use_cases().planning.capacity(question).values()
    return found


def _query(given: Mapping[str, str]) -> Question:
    pairs = operations.read(given.get("query", "").strip().lstrip("?"))
    if given.get("cluster") and all(name != "cluster" for name, _ in pairs):
        pairs.append(("cluster", given["cluster"]))
    asked = routes.of_parameters([pair for pair in pairs if pair[0] != "by"])
    return _asked(asked.kinds["query"], asked.cluster, given)


def _flavor(given: Mapping[str, str]) -> Question:
    return _asked(RequestKind(flavor=flavor_document(given)), given.get("cluster") or None, given)


def _pod(given: Mapping[str, str]) -> Question:
    return _asked(RequestKind(pod=manifest_of(given)), cluster_of_pod(given), given)


def _asked(kind: RequestKind, cluster: str | None, given: Mapping[str, str]) -> Question:
    without = tuple(filter(None, (name.strip() for name in given.get("without", "").split(","))))
    by = (BY_CLUSTER, BY_AGGREGATE) if given.get("hosts") == "no" else BY
    return Question({"it": kind}, cluster, by, WorldRequest(without), place=lambda _: "")


_ASKED: dict[str, Callable[[Mapping[str, str]], Question]] = {
    "query": _query,
    "flavor": _flavor,
    "pod": _pod,
}


def _best(found: KindRoom | None) -> list[list[str]]:
    """Return the hosts with most room, escaped: uuid, name, room, what runs out first."""
    hosts = sorted((found and found.hosts) or (), key=lambda host: (-host.lower, host.name or ""))
    return escaped(
        (
            each.like or each.uuid,
            each.name or each.uuid,
            number_of(each),
            units.plain(each.runs_out_first),
        )
        for each in hosts[:_HOSTS_SHOWN]
    )


def _groups(found: KindRoom | None) -> list[list[str]]:
    """Return all, clusters, aggregates as HTML: name, room, what runs out, hosts, fragmentation, stranded."""
    if found is None:
        return []
    rooms = [("all", found.total), *((room.place, room) for room in found.clusters or ())]
    rooms += [(f"aggregate {room.place}", room) for room in found.aggregates or ()]
    return escaped(
        (
            name,
            number_of(room),
            units.plain(room.runs_out_first) if room.runs_out_first else "–",
            f"{units.number(room.taking)} of {units.number(room.hosts)}",
            f"{units.percent(room.fragmentation, 1)} %",
            "\n".join(
                f"{units.amount(each.stranded, of)} {units.plain(of)}"
                for of, each in room.classes.items()
                if each.stranded
            )
            or "–",
        )
        for name, room in rooms
    )


def number_of(room: CapacityCount | HostRoom) -> str:
    """Return as text how many fit, or between which numbers that is."""
    lower, upper = units.number(room.lower), units.number(room.upper)
    return lower if lower == upper else f"{lower} to {upper}"


def _rows(found: KindRoom) -> Iterator[tuple[Any, ...]]:
    yield _row("all", None, None, found.total)
    for room in found.clusters or ():
        yield _row("cluster", room.place, None, room)
    for room in found.aggregates or ():
        yield _row("aggregate", None, room.place, room)
    for host in found.hosts or ():
        yield _row("host", host.name, host.uuid, host)


def _row(of: str, name: str | None, uuid: str | None, room: CapacityCount | HostRoom) -> tuple[Any, ...]:
    share = room.fragmentation if isinstance(room, CapacityCount) else None
    return of, name, uuid, room.lower, room.upper, room.runs_out_first, share


# Moves: which consumers would have to go elsewhere so that requests fit, or hosts are empty.


GOALS = {
    FIT: "Let requests fit",
    EMPTY: "Empty some hosts",
    FREE: "Free any hosts",
    DEFRAGMENT: "Strand less",
}
_USUAL_MOVES, _MOST = 20, 1000
_MOVES_COLUMNS = ("step", "consumer", "project", "user", "from", "to", "by", "pod", "cpuset")
# The fields that show that the form is filled in; each goal reads some of them.
_FILLED = ("query", "vcpus", "pod", "hosts", "free")


def register_moves(blueprint: Blueprint) -> None:
    """Add the routes."""
    rule = "placement:plans:make"
    route(blueprint, f"{PAGES}/moves", "GET", rule, target=cluster_of_query)(_moves)
    route(blueprint, f"{PAGES}/moves", "POST", rule, target=_cluster_of_form, reads=True)(_moves)


def _cluster_of_form() -> dict[str, str]:
    """Return the cluster of a form; of several the first counts, here and for the plan."""
    return {name: value for name, value in asked().items() if name == "cluster"}


def _moves() -> Response:
    """Show the form and the plan; nothing is written."""
    goal = asked().get("goal", FIT)
    if goal not in GOALS:
        raise BadRequest(f"goal: {goal!r} is none of {', '.join(GOALS)}")
    kind, given = chosen_kind(), asked()
    cluster = given.get("cluster") or None
    plan, problems = answered(lambda: _made(goal, kind, cluster, given), given, _FILLED)
    return shown(
        "moves.html",
        lambda: {"problems": problems} if plan is None else dump(PlanShownSchema, plan),
        lambda: (_MOVES_COLUMNS, [] if plan is None else list(_moves_rows(plan))),
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
    limits = PlanLimits(_number(given, "moves", _USUAL_MOVES))
    return use_cases().plans.make(PlanRequest(_goal(goal, kind, given), limits, cluster))


def _goal(goal: str, kind: str, given: Mapping[str, str]) -> Goal:
    """Return the goal in the form. Raises BadRequest, ManifestError."""
    if goal == EMPTY:
        hosts = [name for name in (each.strip() for each in given.get("hosts", "").split(",")) if name]
        if not hosts:
            raise BadRequest("hosts: name at least one host, by its name or uuid")
        return Goal(EMPTY, hosts=hosts)
    if goal == FREE:
        return Goal(FREE, count=_number(given, "free", 1))
    return Goal(goal, _KINDS[kind](given), _number(given, "count", 1) if goal == FIT else 1)


def _moves_query(given: Mapping[str, str]) -> RequestKind:
    return kind_of({"querystring": given.get("query", "").strip().lstrip("?")}, "query")


_KINDS: dict[str, Callable[[Mapping[str, str]], RequestKind]] = {
    "query": _moves_query,
    "flavor": lambda given: RequestKind(flavor=flavor_document(given)),
    "pod": lambda given: RequestKind(pod=manifest_of(given)),
}


def _number(given: Mapping[str, str], name: str, usual: int) -> int:
    text = given.get(name) or str(usual)
    if not (text.isascii() and text.isdigit() and len(text) <= 4 and 1 <= int(text) <= _MOST):
        raise BadRequest(f"{name}: must be 1 to {_MOST}, not {text!r}")
    return int(text)


def _moves_rows(plan: Plan) -> Iterator[tuple[Any, ...]]:
    names = {host.uuid: host.name or host.uuid for host in plan.hosts}
    for step, move in enumerate(plan.moves, 1):
        pod = None if move.pod is None else f"{move.pod.cluster}/{move.pod.namespace}/{move.pod.name}"
        hosts = (names.get(move.from_host, move.from_host), names.get(move.to_host, move.to_host))
        cpuset = None if move.pod is None else move.pod.cpuset
        yield step, move.consumer, move.project_id, move.user_id, *hosts, move.by, pod, cpuset
