"""The page of capacity: how many more of a request fit, and what runs out first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from flask import Response

from placement.allocations.world import NOTHING_DIFFERENT, WorldRequest
from placement.common.titles import short_id
from placement.engine.domain.errors import BODY, parameter
from placement.engine.domain.units import each_once, name_of
from placement.http import query_strings
from placement.http.context import service
from placement.http.schemas import dump
from placement.planning import routes
from placement.planning.capacity import BY, BY_AGGREGATE, BY_CLUSTER, BY_HOST, Planning, Question, RequestKind
from placement.planning.counts import CapacityCount, HostCount, KindCapacity
from placement.planning.schemas import KindRoomShownSchema
from placement.pods.services.closed_nodes import ClosedNode, ClosedNodes, Closure
from placement.providers.fleet import COMMON_REQUEST
from placement.web import requests, units
from placement.web.answers import HTML, address, asked, refuse_others, wanted
from placement.web.callers import clusters, may, require
from placement.web.templating import escaped, page

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
    """Return how many more of the usual request fit, and how many of these at least on tainted nodes."""
    request = {"it": RequestKind(flavor=requests.flavor_document(_common(dedicated=dedicated)))}
    counted = service(Planning).capacity
    total = counted(Question(request, cluster, ()))["it"].total
    tainted = [node for node in closed_nodes(cluster) if node.closure == Closure.TAINTED]
    rooms = [
        counted(Question(request, name, (BY_HOST,)))["it"] for name in {node.cluster for node in tainted}
    ]
    return total, sum(_on_tainted(room, tainted) for room in rooms)


def closed_nodes(cluster: str | None) -> list[ClosedNode]:
    """Return the nodes that are not open, one for each reason; large clusters are left out."""
    seen = (each for each in clusters() if cluster in (None, each.name) and 0 < each.nodes <= MOST_NODES)
    names = [each.name for each in seen if may("clusters:nodes:show", each.name)]
    return [node for name in names for node in service(ClosedNodes).of(name)]


def _on_tainted(kind_capacity: KindCapacity, nodes: Iterable[ClosedNode]) -> int:
    """Return how many of a kind fit on the tainted ones of some nodes."""
    hosts = {node.provider for node in nodes if node.closure == Closure.TAINTED}
    return sum(host.lower for host in kind_capacity.hosts or () if host.uuid in hosts)


@page("/room")
@page("/room", "POST", reads=True)
def _room() -> Response:
    if moved := requests.as_query("/room"):
        return moved
    refuse_others(*requests.FIELDS, "without", "hosts")
    kind, given = requests.chosen_kind(), asked()
    found, mistakes = requests.answered(lambda: _counted(kind, given), given)
    room, before = (None, None) if found is None else found
    return requests.shown_answer(
        "room.html",
        room,
        mistakes,
        lambda: dump(KindRoomShownSchema, room),
        lambda: (_COLUMNS, [] if room is None else list(_rows(room))),
        room=room,
        before=None if before is None else number_of(before),
        **_beside(kind, given, room),
    )


def _beside(kind: str, given: Mapping[str, str], kind_capacity: KindCapacity | None) -> dict[str, Any]:
    """Return what the page shows beside the room itself: groups, hosts, tainted nodes, what would help."""
    cluster = given.get("cluster") or None
    is_html = wanted() == HTML
    # Nodes that are closed to pods have no room for a pod, and pods count with all that they use.
    counts_nodes = kind != "pod" and any(each.nodes and cluster in (None, each.name) for each in clusters())
    if kind_capacity is None:
        none: list[Any] = []
        return {
            **{"counts_nodes": counts_nodes, "on_tainted": 0, "mend": None},
            **{"groups": none, "hosts": none, "unlisted": 0},
        }
    hosts = _best(kind_capacity)
    needs_mend = is_html and kind == "query" and not kind_capacity.total.upper
    return {
        "counts_nodes": counts_nodes,
        "on_tainted": _on_tainted(kind_capacity, closed_nodes(cluster)) if counts_nodes and is_html else 0,
        "mend": requests.mend_of(given) if needs_mend else None,
        "groups": list(_groups(kind_capacity)),
        "hosts": hosts,
        "unlisted": len(kind_capacity.hosts or ()) - len(hosts),
    }


def _counted(kind: str, given: Mapping[str, str]) -> tuple[KindCapacity, CapacityCount | None]:
    """Return the answer for the only kind in the form, and the count with the hosts that it is to go without.

    Counting requires a policy rule of its own.
    """
    if kind == "query":
        pairs = query_strings.read(given.get("query", "").strip().lstrip("?"))
        if given.get("cluster") and all(name != "cluster" for name, _ in pairs):
            pairs.append(("cluster", given["cluster"]))
        parsed = routes.of_parameters([pair for pair in pairs if pair[0] != "by"])
        request, cluster = parsed.kinds["query"], parsed.cluster
    else:
        request = request_kind(kind, given)
        cluster = requests.cluster_of_pod(given) if kind == "pod" else given.get("cluster") or None
    without = tuple(filter(None, (name.strip() for name in given.get("without", "").split(","))))
    by = (BY_CLUSTER, BY_AGGREGATE) if given.get("hosts") == "no" else BY
    require("capacity:show", cluster)
    question = Question({"it": request}, cluster, by, WorldRequest(without), place=lambda _: BODY)
    (found,) = service(Planning).capacity(question).values()
    if not without:
        return found, None
    (before,) = service(Planning).capacity(replace(question, by=(), world=NOTHING_DIFFERENT)).values()
    return found, before.total


def request_kind(kind: str, given: Mapping[str, str]) -> RequestKind:
    """Return the request in a form. Raises BadRequest, FlavorRefused, ManifestError."""
    if kind == "flavor":
        return RequestKind(flavor=requests.flavor_document(given))
    if kind == "pod":
        return RequestKind(pod=requests.manifest_of(given))
    return routes.kind_of({"querystring": given.get("query", "").strip().lstrip("?")}, parameter("query"))


def _best(kind_capacity: KindCapacity) -> list[list[str]]:
    """Return the hosts with the most room, escaped: uuid, name, room, what runs out first.

    Hosts without room are left out.
    """
    having = (host for host in kind_capacity.hosts or () if host.upper)
    hosts = sorted(having, key=lambda host: (-host.lower, host.name or ""))[:_HOSTS_SHOWN]
    return escaped(
        (
            each.like or each.uuid,
            each.name or each.uuid,
            number_of(each),
            _called(kind_capacity, each.runs_out_first),
        )
        for each in hosts
    )


class GroupRoom(NamedTuple):
    """The room of a group of hosts in words; `stranded` is what is free and of no use to the request.

    `uuid` is that of an aggregate, else empty.
    """

    name: str
    uuid: str
    room: str
    runs_out_first: str
    taking: int
    hosts: int
    fragmentation: float
    stranded: Sequence[str]


def _groups(kind_capacity: KindCapacity) -> Iterator[GroupRoom]:
    """Yield the room of all hosts, of clusters and of aggregates."""
    rooms = [
        ("all hosts", "", kind_capacity.total),
        *((room.place, "", room) for room in kind_capacity.clusters or ()),
    ]
    for room in kind_capacity.aggregates or ():
        rooms.append((f"aggregate {room.name or short_id(room.place)}", room.place, room))
    for name, uuid, room in rooms:
        classes = sorted(room.classes.items(), key=lambda of: units.order(of[0]))
        amounts = {of: each.stranded for of, each in classes if each.stranded}
        if kind_capacity.resources is None:
            stranded = [units.amount_of(each, of) for of, each in amounts.items()]
        else:
            stranded = each_once(amounts, kind_capacity.resources)
        first = _called(kind_capacity, room.runs_out_first or "")
        yield GroupRoom(
            name, uuid, number_of(room), first, room.taking, room.hosts, room.fragmentation, stranded
        )


def _called(kind_capacity: KindCapacity, resource_class: str) -> str:
    """Return the name of a class, for pods that of the resource."""
    if not resource_class or kind_capacity.resources is None:
        return units.plain(resource_class)
    return name_of(resource_class, kind_capacity.resources[resource_class])


def number_of(room: CapacityCount | HostCount) -> str:
    """Return as text how many fit, or between which numbers that is."""
    lower, upper = units.number(room.lower), units.number(room.upper)
    return lower if lower == upper else f"{lower} to {upper}"


def _rows(kind_capacity: KindCapacity) -> Iterator[tuple[Any, ...]]:
    yield _row("all", None, None, kind_capacity.total)
    for room in kind_capacity.clusters or ():
        yield _row("cluster", room.place, None, room)
    for room in kind_capacity.aggregates or ():
        yield _row("aggregate", room.name, room.place, room)
    for host in kind_capacity.hosts or ():
        yield _row("host", host.name, host.uuid, host)


def _row(of: str, name: str | None, uuid: str | None, room: CapacityCount | HostCount) -> tuple[Any, ...]:
    share = getattr(room, "fragmentation", None)
    return of, name, uuid, room.lower, room.upper, room.runs_out_first, share
