"""The page of moves: which consumers would go elsewhere so that requests fit, or hosts are empty."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from flask import Response

from placement.allocations.holdings import Holdings
from placement.common.titles import GUESSED_MOVES, consumer_title
from placement.engine.domain.errors import BadRequest, parameter
from placement.http.context import component, service
from placement.http.schemas import dump
from placement.http.targets import cluster_of_query
from placement.planning.consumers import GUESSED
from placement.planning.goal_results import TIME_UP
from placement.planning.limits import USUAL_MOVES, PlanLimits
from placement.planning.plans import (
    DEFRAGMENT,
    EMPTY,
    EVICTION,
    FIT,
    FREE,
    REWRITING,
    Goal,
    Move,
    Plan,
    PlanRequest,
    PlanSettings,
)
from placement.planning.schemas import PlanShownSchema
from placement.planning.service import Plans
from placement.pods.services.finder import Finder
from placement.pods.services.views import HostViews
from placement.web import requests, units
from placement.web.answers import asked, refuse_others, whole
from placement.web.callers import may
from placement.web.capacity import number_of, request_kind
from placement.web.mending import query_text
from placement.web.templating import page

GOALS = {
    FIT: "Make requests fit",
    EMPTY: "Empty given hosts",
    FREE: "Free any hosts",
    DEFRAGMENT: "Strand less",
}
HOW = {
    REWRITING: "rewrite: the record of the consumer changes. Placement moves no machine: migrate it first.",
    EVICTION: "evict: Kubernetes ends the pod, and its controller starts it again on the new node.",
}
_DONE = {FIT: ("make room for", "request"), EMPTY: ("empty", "host"), FREE: ("free", "host")}
_MOST = 1000
_LEFT_SHOWN = 50
_COLUMNS = ("step", "consumer", "project", "user", "from", "to", "by", "pod", "cpuset", "kind")
# The fields that show that the form is filled in; each goal reads some of them.
_FILLED = ("query", "vcpus", "pod", "hosts", "free")


def _cluster_of_form() -> dict[str, str]:
    """Return the cluster of a form; of several the first counts, here and for the plan."""
    return {name: value for name, value in asked().items() if name == "cluster"}


@page("/moves", rule="plans:make", target=cluster_of_query)
@page("/moves", "POST", "plans:make", target=_cluster_of_form, reads=True)
def _moves() -> Response:
    if moved := requests.as_query("/moves"):
        return moved
    refuse_others(*requests.FIELDS, "goal", "count", "hosts", "free", "moves")
    given = asked()
    goal = given.get("goal", FIT)
    if goal not in GOALS:
        raise BadRequest(f"{goal!r} is not one of {', '.join(GOALS)}", place=parameter("goal"))
    kind = requests.chosen_kind()
    plan, mistakes = requests.answered(lambda: _planned(goal, kind, given), given, _FILLED)
    names = {} if plan is None else {host.uuid: host.name or host.uuid for host in plan.hosts}
    return requests.shown_answer(
        "moves.html",
        plan,
        mistakes,
        lambda: dump(PlanShownSchema, plan),
        lambda: (_COLUMNS, [] if plan is None else list(_rows(plan, names))),
        goal=goal,
        goals=GOALS,
        plan=plan,
        names=names,
        heading="" if plan is None else _heading(plan),
        number_of=number_of,
        usual_moves=USUAL_MOVES,
        command="" if plan is None else _command(goal, kind, given),
        **_moves_of(plan),
    )


def _moves_of(plan: Plan | None) -> dict[str, Any]:
    """Return the moves of a plan, how each kind of them is made, and the consumers that stay."""
    if plan is None:
        return {"moves": [], "left": [], "how": {}, "guessed": None}
    return {
        "guessed": GUESSED_MOVES if any(move.kind == GUESSED for move in plan.moves) else None,
        "moves": [PlannedMove(move, units.summed(move.after.values())) for move in plan.moves],
        "left": list(_left(plan)),
        "how": {by: HOW[by] for by in HOW if any(move.by == by for move in plan.moves)},
    }


class PlannedMove(NamedTuple):
    """A move, and the sums by class of what its consumer holds afterwards."""

    move: Move
    amounts: Mapping[str, int]


class StayingConsumer(NamedTuple):
    """A consumer that stays, by name, with its host, and why."""

    uuid: str
    name: str
    host: str
    host_name: str
    why: str


def _left(plan: Plan) -> Iterator[StayingConsumer]:
    """Yield the first consumers that stay."""
    shown = plan.left[:_LEFT_SHOWN]
    uuids = {each.consumer for each in shown}
    pods = service(Finder).names_of_pods(uuids)
    holders = service(Holdings).of_consumers(uuids) if may("allocations:list") else {}
    places = service(HostViews).places({each.host for each in shown})
    for each in shown:
        holder = holders.get(each.consumer)
        owner = consumer_title(None if holder is None else holder.consumer.consumer_type, each.consumer)
        host = places[each.host].name if each.host in places else each.host
        yield StayingConsumer(each.consumer, pods.get(each.consumer, owner), each.host, host, each.why)


def _heading(plan: Plan) -> str:
    """Return in few words what a plan achieves."""
    moves = units.counted(len(plan.moves), "move")
    if plan.achieved >= plan.wanted:
        are = "is" if len(plan.moves) == 1 else "are"
        return f"{moves} {are} enough" if plan.moves else "No move is needed"
    if not plan.moves:
        return "Not decided in time" if plan.why == TIME_UP else "No moves help"
    if plan.goal == DEFRAGMENT:
        return f"{moves} would help"
    do, things = _DONE[plan.goal]
    of = f"{units.number(plan.achieved)} of {units.counted(plan.wanted, things)}"
    return f"{moves} would {do} {of}"


def _planned(goal: str, kind: str, given: Mapping[str, str]) -> Plan:
    limits = PlanLimits(_number(given, "moves", USUAL_MOVES))
    request = PlanRequest(_goal(goal, kind, given), limits, given.get("cluster") or None)
    return service(Plans).make(request, component(PlanSettings))


def _goal(goal: str, kind: str, given: Mapping[str, str]) -> Goal:
    """Return the goal in a form. Raises BadRequest naming a field."""
    if goal == EMPTY:
        hosts = _hosts(given)
        if not hosts:
            raise BadRequest("name at least one host, by its name or uuid", place=parameter("hosts"))
        return Goal(EMPTY, hosts=hosts)
    if goal == FREE:
        return Goal(FREE, count=_number(given, "free", 1))
    return Goal(goal, request_kind(kind, given), _number(given, "count", 1) if goal == FIT else 1)


def _hosts(given: Mapping[str, str]) -> list[str]:
    return list(filter(None, (name.strip() for name in given.get("hosts", "").split(","))))


def _number(given: Mapping[str, str], name: str, usual: int) -> int:
    return whole(name, given.get(name) or str(usual), _MOST)


def _command(goal: str, kind: str, given: Mapping[str, str]) -> str:
    """Return the command that makes the same plan and writes it to a file."""
    words = ["placement", "plan", "make", goal]
    if goal == EMPTY:
        words += _hosts(given)
    elif goal == FREE:
        words.append(str(_number(given, "free", 1)))
    else:
        words += _kind_words(kind, given)
    if goal == FIT:
        words += ["--count", str(_number(given, "count", 1))]
    if given.get("cluster"):
        words += ["--cluster", given["cluster"]]
    if kind == "flavor":
        words += (f"--aggregate={name}" for name in requests.aggregates_in(given))
    return shlex.join([*words, "--moves", str(_number(given, "moves", USUAL_MOVES)), "--save", "plan.json"])


def _kind_words(kind: str, given: Mapping[str, str]) -> Iterator[str]:
    """Yield the arguments that describe a query, or a flavor; a pod is read from a file."""
    if kind == "query":
        yield f"query:{query_text(requests.typed_query(given))}"
    elif kind == "pod":
        yield "pod.yaml"
    else:
        for name, option in (("vcpus", "--vcpus"), ("ram", "--ram"), ("disk", "--disk")):
            yield from (option, given.get(name, "").strip() or "0")
        for name, option in (("specs", "--property"), ("image", "--image-property")):
            for line in given.get(name, "").split("\n"):
                yield from (option, line.strip()) if line.strip() else ()


def _rows(plan: Plan, names: Mapping[str, str]) -> Iterator[Sequence[Any]]:
    for step, move in enumerate(plan.moves, 1):
        pod = None if move.pod is None else f"{move.pod.cluster}/{move.pod.namespace}/{move.pod.name}"
        hosts = (names.get(move.from_host, move.from_host), names.get(move.to_host, move.to_host))
        cpuset = None if move.pod is None else move.pod.cpuset
        yield step, move.consumer, move.project_id, move.user_id, *hosts, move.by, pod, cpuset, move.kind
