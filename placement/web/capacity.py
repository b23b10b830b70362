"""The pages of capacity and of moves: how many more of a request fit, and which moves make room."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flask import Response

from placement.allocations.world import WorldRequest
from placement.engine.domain.errors import BadRequest
from placement.http import operations
from placement.http.context import use_cases
from placement.http.gate import cluster_of_query
from placement.http.schemas import dump
from placement.planning import routes
from placement.planning.capacity import BY, BY_AGGREGATE, BY_CLUSTER, Question, RequestKind
from placement.planning.making_room import PlanLimits
from placement.planning.plans import DEFRAGMENT, EMPTY, FIT, FREE, Goal, Plan, PlanRequest
from placement.planning.room import CapacityCount, HostCount, KindRoom
from placement.planning.schemas import KindRoomShownSchema, PlanShownSchema
from placement.providers.fleet import COMMON_REQUEST
from placement.web import units
from placement.web.requests import (
    answered,
    chosen_kind,
    cluster_of_pod,
    flavor_document,
    manifest_of,
    shown_answer,
)
from placement.web.templating import address, asked, escaped, page, require, whole

_HOSTS_SHOWN = 100
_COLUMNS = ("of", "name", "uuid", "lower", "upper", "runs_out_first", "fragmentation")


def common_room(cluster: str | None) -> str:
    """Return the address that counts, in few numbers, the request that stranded cores cannot serve."""
    cores, memory = COMMON_REQUEST
    specs = "hw:cpu_policy=dedicated"
    return address(
        "/room", kind="flavor", vcpus=cores, ram=memory, disk=0, specs=specs, cluster=cluster, hosts="no"
    )


@page("/room")
@page("/room", "POST", reads=True)
def _room() -> Response:
    kind, given = chosen_kind(), asked()
    found, problems = answered(lambda: _counted(kind, given), given)
    return shown_answer(
        "room.html",
        found,
        problems,
        lambda: {"problems": problems} if found is None else dump(KindRoomShownSchema, found),
        lambda: (_COLUMNS, [] if found is None else list(_rows(found))),
        room=found,
        groups=[] if found is None else _groups(found),
        hosts=[] if found is None else _best(found),
    )


def _counted(kind: str, given: Mapping[str, str]) -> KindRoom:
    """Return the answer for the only kind in the form; counting requires a policy rule of its own."""
    if kind == "query":
        pairs = operations.read(given.get("query", "").strip().lstrip("?"))
        if given.get("cluster") and all(name != "cluster" for name, _ in pairs):
            pairs.append(("cluster", given["cluster"]))
        parsed = routes.of_parameters([pair for pair in pairs if pair[0] != "by"])
        wanted, cluster = parsed.kinds["query"], parsed.cluster
    else:
        wanted = _request_kind(kind, given)
        cluster = cluster_of_pod(given) if kind == "pod" else given.get("cluster") or None
    without = tuple(filter(None, (name.strip() for name in given.get("without", "").split(","))))
    by = (BY_CLUSTER, BY_AGGREGATE) if given.get("hosts") == "no" else BY
    require("capacity:show", cluster)
    question = Question({"it": wanted}, cluster, by, WorldRequest(without), place=lambda _: "")
    (found,) = use_cases().planning.capacity(question).values()
    return found


def _request_kind(kind: str, given: Mapping[str, str]) -> RequestKind:
    if kind == "flavor":
        return RequestKind(flavor=flavor_document(given))
    if kind == "pod":
        return RequestKind(pod=manifest_of(given))
    return routes.kind_of({"querystring": given.get("query", "").strip().lstrip("?")}, "query")


def _best(found: KindRoom) -> list[list[str]]:
    """Return the hosts with most room, escaped: uuid, name, room, what runs out first."""
    hosts = sorted(found.hosts or (), key=lambda host: (-host.lower, host.name or ""))[:_HOSTS_SHOWN]
    return escaped(
        (each.like or each.uuid, each.name or each.uuid, number_of(each), units.plain(each.runs_out_first))
        for each in hosts
    )


def _groups(found: KindRoom) -> list[list[str]]:
    """Return all, clusters, aggregates as HTML: name, room, what runs out, hosts, fragmentation, stranded."""
    rooms = [("all", found.total), *((room.place, room) for room in found.clusters or ())]
    rooms += [(f"aggregate {room.place}", room) for room in found.aggregates or ()]
    rows = []
    for name, room in rooms:
        first = units.plain(room.runs_out_first) if room.runs_out_first else "–"
        taking = f"{units.number(room.taking)} of {units.number(room.hosts)}"
        fragmentation = f"{units.percent(room.fragmentation, 1)} %"
        stranded = [
            f"{units.amount(each.stranded, of)} {units.plain(of)}"
            for of, each in room.classes.items()
            if each.stranded
        ]
        rows.append((name, number_of(room), first, taking, fragmentation, "\n".join(stranded) or "–"))
    return escaped(rows)


def number_of(room: CapacityCount | HostCount) -> str:
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


def _row(of: str, name: str | None, uuid: str | None, room: CapacityCount | HostCount) -> tuple[Any, ...]:
    share = getattr(room, "fragmentation", None)
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


def _cluster_of_form() -> dict[str, str]:
    """Return the cluster of a form; of several the first counts, here and for the plan."""
    return {name: value for name, value in asked().items() if name == "cluster"}


@page("/moves", rule="plans:make", target=cluster_of_query)
@page("/moves", "POST", "plans:make", target=_cluster_of_form, reads=True)
def _moves() -> Response:
    given = asked()
    goal = given.get("goal", FIT)
    if goal not in GOALS:
        raise BadRequest(f"goal: {goal!r} is none of {', '.join(GOALS)}")
    kind = chosen_kind()
    plan, problems = answered(lambda: _planned(goal, kind, given), given, _FILLED)
    names = {} if plan is None else {host.uuid: host.name or host.uuid for host in plan.hosts}
    return shown_answer(
        "moves.html",
        plan,
        problems,
        lambda: {"problems": problems} if plan is None else dump(PlanShownSchema, plan),
        lambda: (_MOVES_COLUMNS, [] if plan is None else list(_moves_rows(plan, names))),
        goal=goal,
        goals=GOALS,
        plan=plan,
        names=names,
    )


def _planned(goal: str, kind: str, given: Mapping[str, str]) -> Plan:
    limits = PlanLimits(_number(given, "moves", _USUAL_MOVES))
    if goal == EMPTY:
        hosts = list(filter(None, (name.strip() for name in given.get("hosts", "").split(","))))
        if not hosts:
            raise BadRequest("hosts: name at least one host, by its name or uuid")
        wanted = Goal(EMPTY, hosts=hosts)
    elif goal == FREE:
        wanted = Goal(FREE, count=_number(given, "free", 1))
    else:
        wanted = Goal(goal, _request_kind(kind, given), _number(given, "count", 1) if goal == FIT else 1)
    request = PlanRequest(wanted, limits, given.get("cluster") or None)
    return use_cases().plans.make(request)


def _number(given: Mapping[str, str], name: str, usual: int) -> int:
    return whole(name, given.get(name) or str(usual), _MOST)


def _moves_rows(plan: Plan, names: Mapping[str, str]) -> Iterator[tuple[Any, ...]]:
    for step, move in enumerate(plan.moves, 1):
        pod = None if move.pod is None else f"{move.pod.cluster}/{move.pod.namespace}/{move.pod.name}"
        hosts = (names.get(move.from_host, move.from_host), names.get(move.to_host, move.to_host))
        cpuset = None if move.pod is None else move.pod.cpuset
        yield step, move.consumer, move.project_id, move.user_id, *hosts, move.by, pod, cpuset
