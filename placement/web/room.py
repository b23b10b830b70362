"""How much fits: how many more of a query, a flavor or a pod there is room for, and what runs out first."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from flask import Blueprint, Response

from placement.api import capacity_question, queries
from placement.api.context import use_cases
from placement.api.rendering.capacity import capacity_body
from placement.api.route_guard import PAGES, route
from placement.services.fleet import COMMON_REQUEST
from placement.services.planning.answer import HostRoom, KindRoom, Room
from placement.services.planning.planning import BY, BY_AGGREGATE, BY_CLUSTER, Kind, Question
from placement.services.planning.world import WorldRequest
from placement.web import units
from placement.web.permissions import require
from placement.web.requests import (
    EXAMPLES,
    answered,
    chosen_kind,
    cluster_of_pod,
    flavor_document,
    manifest_of,
    offered_clusters,
    parsed,
)
from placement.web.shown import address, asked, shown
from placement.web.templating import escaped

_HOSTS_SHOWN = 100
_COLUMNS = ("of", "name", "uuid", "lower", "upper", "runs_out_first", "fragmentation")


def common_room(cluster: str | None) -> str:
    """The page that counts the request which stranded cores are no use for, in few numbers."""
    cores, memory = COMMON_REQUEST
    specs = "hw:cpu_policy=dedicated"
    return address(
        "/room", kind="flavor", vcpus=cores, ram=memory, disk=0, specs=specs, cluster=cluster, hosts="no"
    )


def register(blueprint: Blueprint) -> None:
    """Add the routes; counting asks for a rule of its own."""
    listing = "placement:clusters:list"
    route(blueprint, f"{PAGES}/room", "GET", listing, own_only=True)(_room)
    route(blueprint, f"{PAGES}/room", "POST", listing, own_only=True, reads=True)(_room)


def _room() -> Response:
    """The form, and how many more there is room for."""
    kind, given = chosen_kind(), asked()
    found, problems = answered(lambda: _counted(_ASKED[kind](given)), given)
    return shown(
        "room.html",
        lambda: {"problems": problems} if found is None else capacity_body({kind: found})["kinds"][kind],
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
    """The answer for the only kind of the question."""
    require("capacity:show", question.cluster)
    (found,) = use_cases().planning.capacity(question, parsed).values()
    return found


def _query(given: Mapping[str, str]) -> Question:
    pairs = queries.read(given.get("query", "").strip().lstrip("?"))
    if given.get("cluster") and all(name != "cluster" for name, _ in pairs):
        pairs.append(("cluster", given["cluster"]))
    asked = capacity_question.of_parameters([pair for pair in pairs if pair[0] != "by"])
    return _asked(asked.kinds["query"], asked.cluster, given)


def _flavor(given: Mapping[str, str]) -> Question:
    return _asked(Kind(flavor=flavor_document(given)), given.get("cluster") or None, given)


def _pod(given: Mapping[str, str]) -> Question:
    return _asked(Kind(pod=manifest_of(given)), cluster_of_pod(given), given)


def _asked(kind: Kind, cluster: str | None, given: Mapping[str, str]) -> Question:
    without = tuple(filter(None, (name.strip() for name in given.get("without", "").split(","))))
    by = (BY_CLUSTER, BY_AGGREGATE) if given.get("hosts") == "no" else BY
    return Question({"it": kind}, cluster, by, WorldRequest(without), place=lambda _: "")


_ASKED: dict[str, Callable[[Mapping[str, str]], Question]] = {
    "query": _query,
    "flavor": _flavor,
    "pod": _pod,
}


def _best(found: KindRoom | None) -> list[list[str]]:
    """The hosts with most room, escaped: uuid, name, room, what runs out first."""
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
    """All, clusters, aggregates, escaped: name, room, what runs out, hosts, fragmentation, stranded."""
    if found is None:
        return []
    rooms = [("all", found.total), *(found.clusters or {}).items()]
    rooms += [(f"aggregate {uuid}", room) for uuid, room in (found.aggregates or {}).items()]
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


def number_of(room: Room | HostRoom) -> str:
    """How many there is room for, or between which numbers that is."""
    lower, upper = units.number(room.lower), units.number(room.upper)
    return lower if lower == upper else f"{lower} to {upper}"


def _rows(found: KindRoom) -> Iterator[tuple[Any, ...]]:
    yield _row("all", None, None, found.total)
    for name, room in (found.clusters or {}).items():
        yield _row("cluster", name, None, room)
    for uuid, room in (found.aggregates or {}).items():
        yield _row("aggregate", None, uuid, room)
    for host in found.hosts or ():
        yield _row("host", host.name, host.uuid, host)


def _row(of: str, name: str | None, uuid: str | None, room: Room | HostRoom) -> tuple[Any, ...]:
    share = room.fragmentation if isinstance(room, Room) else None
    return of, name, uuid, room.lower, room.upper, room.runs_out_first, share
