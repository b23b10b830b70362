"""The page of capacity: how many more of a request fit, and what runs out first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from flask import Response

from placement.allocations.world import NOTHING_DIFFERENT, WorldRequest
from placement.engine.domain.units import each_once, name_of
from placement.http import operations
from placement.http.context import use_cases
from placement.http.schemas import dump
from placement.planning import routes
from placement.planning.capacity import BY, BY_AGGREGATE, BY_CLUSTER, BY_HOST, Question, RequestKind
from placement.planning.room import CapacityCount, HostCount, KindRoom
from placement.planning.schemas import KindRoomShownSchema
from placement.providers.fleet import COMMON_REQUEST
from placement.web import units
from placement.web.requests import (
    answered,
    as_query,
    chosen_kind,
    cluster_of_pod,
    flavor_document,
    manifest_of,
    mend_of,
    shown_answer,
)
from placement.web.templating import HTML, address, asked, clusters, escaped, may, page, require, wanted

_HOSTS_SHOWN = 100
# Larger clusters have their nodes read for a page of their own only.
MOST_NODES = 2000
_COLUMNS = ("of", "name", "uuid", "lower", "upper", "runs_out_first", "fragmentation")


def _common(*, dedicated: bool) -> dict[str, str]:
    """Return the fields of a form for the request that stranded cores cannot serve, or for shared CPUs."""
    cores, memory = COMMON_REQUEST
    specs = "hw:cpu_policy=dedicated" if dedicated else ""
    return {"vcpus": str(cores), "ram": str(memory), "disk": "0", "specs": specs}


def common_room(cluster: str | None, *, dedicated: bool) -> str:
    """Return the address that counts, in few numbers, how many more of the usual request fit."""
    return address("/room", kind="flavor", **_common(dedicated=dedicated), cluster=cluster, hosts="no")


def room_for_common(cluster: str | None, *, dedicated: bool) -> tuple[CapacityCount, int]:
    """Return how many more of the usual request fit, and how many of these at least on closed nodes."""
    request = {"it": RequestKind(flavor=flavor_document(_common(dedicated=dedicated)))}
    counted = use_cases().planning.capacity
    total = counted(Question(request, cluster, ()))["it"].total
    closed = closed_hosts(cluster)
    rooms = [counted(Question(request, name, (BY_HOST,)))["it"] for name in closed]
    return total, sum(_on_closed(room, closed) for room in rooms)


def closed_hosts(cluster: str | None) -> dict[str, set[str]]:
    """Return the hosts (uuids) of closed nodes by cluster; large clusters are left out."""
    seen = (each for each in clusters() if cluster in (None, each.name) and 0 < each.nodes <= MOST_NODES)
    names = [each.name for each in seen if may("clusters:nodes:show", each.name)]
    found = {name: {node.provider for node in use_cases().closed_nodes.of(name)} for name in names}
    return {name: hosts for name, hosts in found.items() if hosts}


def _on_closed(room: KindRoom, closed: Mapping[str, set[str]]) -> int:
    hosts = set[str]().union(*closed.values())
    return sum(host.lower for host in room.hosts or () if host.uuid in hosts)


@page("/room")
@page("/room", "POST", reads=True)
def _room() -> Response:
    if moved := as_query("/room"):
        return moved
    kind, given = chosen_kind(), asked()
    found, mistakes = answered(lambda: _counted(kind, given), given)
    room, before = (None, None) if found is None else found
    best = [] if room is None else _best(room)
    cluster = given.get("cluster") or None
    # Nodes that are closed to pods have no room for a pod, and pods count with all that they use.
    counts_nodes = kind != "pod" and any(each.nodes and cluster in (None, each.name) for each in clusters())
    needs_mend = room is not None and not room.total.upper and kind == "query"
    on_closed = 0
    if room is not None and counts_nodes and wanted() == HTML:
        on_closed = _on_closed(room, closed_hosts(cluster))
    return shown_answer(
        "room.html",
        room,
        mistakes,
        lambda: dump(KindRoomShownSchema, room),
        lambda: (_COLUMNS, [] if room is None else list(_rows(room))),
        room=room,
        before=None if before is None else number_of(before),
        counts_nodes=counts_nodes,
        on_closed=on_closed,
        groups=[] if room is None else list(_groups(room)),
        hosts=best,
        unlisted=0 if room is None else len(room.hosts or ()) - len(best),
        mend=mend_of(given) if needs_mend and wanted() == HTML else None,
    )


def _counted(kind: str, given: Mapping[str, str]) -> tuple[KindRoom, CapacityCount | None]:
    """Return the answer for the only kind in the form, and the count with the hosts that it is to go without.

    Counting requires a policy rule of its own.
    """
    if kind == "query":
        pairs = operations.read(given.get("query", "").strip().lstrip("?"))
        if given.get("cluster") and all(name != "cluster" for name, _ in pairs):
            pairs.append(("cluster", given["cluster"]))
        parsed = routes.of_parameters([pair for pair in pairs if pair[0] != "by"])
        request, cluster = parsed.kinds["query"], parsed.cluster
    else:
        request = request_kind(kind, given)
        cluster = cluster_of_pod(given) if kind == "pod" else given.get("cluster") or None
    without = tuple(filter(None, (name.strip() for name in given.get("without", "").split(","))))
    by = (BY_CLUSTER, BY_AGGREGATE) if given.get("hosts") == "no" else BY
    require("capacity:show", cluster)
    question = Question({"it": request}, cluster, by, WorldRequest(without), place=lambda _: "")
    (found,) = use_cases().planning.capacity(question).values()
    if not without:
        return found, None
    (before,) = use_cases().planning.capacity(replace(question, by=(), world=NOTHING_DIFFERENT)).values()
    return found, before.total


def request_kind(kind: str, given: Mapping[str, str]) -> RequestKind:
    """Return the request in a form. Raises BadRequest, FlavorRefused, ManifestError."""
    if kind == "flavor":
        return RequestKind(flavor=flavor_document(given))
    if kind == "pod":
        return RequestKind(pod=manifest_of(given))
    return routes.kind_of({"querystring": given.get("query", "").strip().lstrip("?")}, "query")


def _best(found: KindRoom) -> list[list[str]]:
    """Return the hosts with the most room, escaped: uuid, name, room, what runs out first.

    Hosts without room are left out.
    """
    having = (host for host in found.hosts or () if host.upper)
    hosts = sorted(having, key=lambda host: (-host.lower, host.name or ""))[:_HOSTS_SHOWN]
    return escaped(
        (each.like or each.uuid, each.name or each.uuid, number_of(each), _called(found, each.runs_out_first))
        for each in hosts
    )


class GroupRoom(NamedTuple):
    """The room of a group of hosts in words; `stranded` is what is free and of no use to the request.

    `uuid` is that of an aggregate with a name, else empty.
    """

    name: str
    uuid: str
    room: str
    runs_out_first: str
    taking: int
    hosts: int
    fragmentation: float
    stranded: Sequence[str]


def _groups(found: KindRoom) -> Iterator[GroupRoom]:
    """Yield the room of all hosts, of clusters and of aggregates."""
    rooms = [("all hosts", "", found.total), *((room.place, "", room) for room in found.clusters or ())]
    for room in found.aggregates or ():
        rooms.append((f"aggregate {room.name or room.place}", room.place if room.name else "", room))
    for name, uuid, room in rooms:
        amounts = {of: each.stranded for of, each in room.classes.items() if each.stranded}
        if found.resources is None:
            stranded = [units.amount_of(each, of) for of, each in amounts.items()]
        else:
            stranded = each_once(amounts, found.resources)
        first = _called(found, room.runs_out_first or "")
        yield GroupRoom(
            name, uuid, number_of(room), first, room.taking, room.hosts, room.fragmentation, stranded
        )


def _called(found: KindRoom, resource_class: str) -> str:
    """Return the name of a class, for pods that of the resource."""
    if not resource_class or found.resources is None:
        return units.plain(resource_class)
    return name_of(resource_class, found.resources[resource_class])


def number_of(room: CapacityCount | HostCount) -> str:
    """Return as text how many fit, or between which numbers that is."""
    lower, upper = units.number(room.lower), units.number(room.upper)
    return lower if lower == upper else f"{lower} to {upper}"


def _rows(found: KindRoom) -> Iterator[tuple[Any, ...]]:
    yield _row("all", None, None, found.total)
    for room in found.clusters or ():
        yield _row("cluster", room.place, None, room)
    for room in found.aggregates or ():
        yield _row("aggregate", room.name, room.place, room)
    for host in found.hosts or ():
        yield _row("host", host.name, host.uuid, host)


def _row(of: str, name: str | None, uuid: str | None, room: CapacityCount | HostCount) -> tuple[Any, ...]:
    share = getattr(room, "fragmentation", None)
    return of, name, uuid, room.lower, room.upper, room.runs_out_first, share
