"""The whole fleet as a heat map: the page, its numbers in a compact form, and the hosts behind them.

The numbers come as one body: the length of the head in four bytes, the head as JSON padded with blanks to a
multiple of eight, then the columns that the head names, each at its offset from the end of the head. All
numbers are little-endian, so that a browser reads the columns in place.
"""

from __future__ import annotations

import datetime
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from flask import Response, request

from placement.common.host_use import ALL_CPUS, ALL_MEMORY, NODE_CPU, NODE_MEMORY, Use, cpus, memory
from placement.engine.domain.audit import AuditFilter
from placement.engine.domain.errors import BadRequest, NotFound
from placement.http.context import use_cases
from placement.http.gate import cluster_of_query
from placement.providers.fleet import (
    COMMON_REQUEST,
    CapacityGroup,
    FleetFigure,
    FleetSnapshot,
    HostFigure,
)
from placement.web import units
from placement.web.capacity import MOST_NODES, closed_hosts, common_room, room_for_common
from placement.web.changes import refused_now
from placement.web.records import ChangeRow, rows_of
from placement.web.templating import (
    address,
    caller_clusters,
    choices,
    clusters,
    escaped,
    may,
    page,
    same_page,
    shown,
    to,
)

_FLEET: dict[str, Any] = {"rule": "resource_providers:list", "target": cluster_of_query}
_USUAL_CLASSES = ("PCPU", "VCPU", "MEMORY_MB")
_PAGE = 100
_MOST_ASKED = 200
_ID = re.compile("[0-9]{1,15}")
_ALIGNED = 8
_SAID = {
    FleetFigure.USE: "use of {unit}",
    FleetFigure.CORES: "free whole cores",
    FleetFigure.STRANDED: f"stranded cores: free, but not {COMMON_REQUEST[0]} with "
    f"{COMMON_REQUEST[1] // 1024} GiB beside them",
}


def chosen(look: FleetSnapshot, cluster: str | None = None) -> dict[str, Any]:
    """Return what the query asks to see, what else there is, and the words for it. Raises BadRequest."""
    classes = look.classes()
    name = request.args.get("by") or FleetFigure.USE
    if name not in list(FleetFigure):
        raise BadRequest(f"by: {name!r} is none of {', '.join(FleetFigure)}")
    resource_class = request.args.get("class")
    if resource_class not in classes and f"CUSTOM_{resource_class}" in classes:
        # As pages call it.
        resource_class = f"CUSTOM_{resource_class}"
    if not resource_class:
        # To begin with, of the usual classes the one in most use.
        usual = [each for each in _USUAL_CLASSES if each in classes]
        first = (usual or classes or _USUAL_CLASSES)[0]
        resource_class = look.most_used(usual) if len(usual) > 1 else first
    figure = FleetFigure(name)
    return {
        "by": str(figure),
        "class": resource_class,
        "of": {
            "cluster": request.args.get("cluster") or cluster,
            "aggregate": request.args.get("aggregate") or None,
        },
        "classes": classes,
        "figures": {str(each): _name(each, resource_class) for each in FleetFigure},
        "label": _name(figure, resource_class),
    }


def _asked() -> tuple[FleetSnapshot, dict[str, Any]]:
    """Return the hosts that the query asks for, and what to see of them. Raises BadRequest."""
    given = choices("cluster", "aggregate")
    look = use_cases().hosts.look(given["cluster"], given["aggregate"])
    return look, chosen(look)


def _name(figure: FleetFigure, resource_class: str) -> str:
    return _SAID[figure].format(unit=units.plain(resource_class))


@page("/map", **_FLEET)
def _map() -> Response:
    look, given = _asked()
    figures, _ = look.ranked(FleetFigure(given["by"]), given["class"], 0, 20)
    hosts = [_describe(each, given) for each in figures if each.whole]
    return shown(
        "map.html",
        {"by": given["by"], "class": given["class"], "hosts": hosts},
        _as_table(figures),
        map=given,
        look=look,
        rows=_rows(hosts, FleetFigure(given["by"])),
        clusters=[each.name for each in clusters()],
    )


@page("/hosts", **_FLEET)
def _table() -> Response:
    """Show the fleet as a table, page by page, the fullest first unless the order is rising."""
    look, given = _asked()
    rising = request.args.get("order") == "rising"
    text = request.args.get("page", "1")
    if not (text.isascii() and text.isdigit() and 1 <= len(text) <= 6 and int(text)):
        raise BadRequest(f"page: must be a number from 1 on, not {text!r}")
    number = int(text)
    start = (number - 1) * _PAGE
    figures, count = look.ranked(FleetFigure(given["by"]), given["class"], start, _PAGE, rising=rising)
    hosts = [_describe(each, given) for each in figures]
    return shown(
        "hosts.html",
        {"count": count, "hosts": hosts},
        _as_table(figures),
        map=given,
        look=look,
        rows=_rows(hosts, FleetFigure(given["by"])),
        clusters=[each.name for each in clusters()],
        following=same_page(page=number + 1) if start + _PAGE < count else None,
        before=same_page(page=number - 1) if start else None,
        page=number,
        pages=max(1, -(-count // _PAGE)),
        rising=rising,
    )


def _as_table(figures: list[HostFigure]) -> Any:
    names = ("name", "uuid", "group", "part", "whole", "percent", "group_name")
    return names, (
        (each.name, each.uuid, each.group.name, each.part, each.whole, each.level, each.group.shown)
        for each in figures
    )


def _describe(each: HostFigure, given: dict[str, Any]) -> dict[str, Any]:
    resource_class = given["class"] if given["by"] == FleetFigure.USE else "PCPU"
    words = units.share(each.part, each.whole, resource_class) if each.whole else "none of it"
    return {
        "id": each.id,
        "uuid": each.uuid,
        "name": each.name,
        "group": each.group.name,
        "group_name": each.group.shown,
        "kind": "shared storage" if each.is_storage else "host",
        "part": each.part,
        "whole": each.whole,
        "percent": each.level,
        "text": words if given["by"] == FleetFigure.USE else words.replace("CPU", "cores"),
        "address": address(f"/hosts/{each.uuid}"),
    }


def _rows(hosts: Sequence[Mapping[str, Any]], by: FleetFigure) -> list[list[str]]:
    """Return hosts as rows, escaped.

    These are address, name, kind, group, its name, length and state of the bar, text, percent.
    """
    rows = []
    for each in hosts:
        percent = each["percent"]
        length, text = ("", "–") if percent is None else (str(min(percent, 100)), f"{percent} %")
        # Much use is amber or red, as on the page of a host; free cores are green.
        states = {FleetFigure.USE: units.alarm(percent or 0), FleetFigure.CORES: "free"}
        kind = "" if each["kind"] == "host" else each["kind"]
        group = each["group"], units.shortened(each["group_name"])
        rows.append(
            (each["address"], each["name"], kind, *group, length, states.get(by, ""), each["text"], text)
        )
    return escaped(rows)


@page("/map/data", **_FLEET)
def _data() -> Response:
    look, given = _asked()
    found = look.heat_map(FleetFigure(given["by"]), given["class"])
    members = look.members()
    hosts, (part, whole) = found.hosts, found.shares.totals()
    columns = {"ids": hosts.id_bytes, "groups": hosts.group_bytes, "levels": found.shares.level_bytes}
    offsets, parts, end = {}, [], 0
    for name, column in columns.items():
        offsets[name] = end
        parts.append(column + b"\0" * (-len(column) % _ALIGNED))
        end += len(parts[-1])
    head = orjson.dumps(
        {
            "count": len(hosts.roots),
            "id_bytes": 4 if hosts.is_narrow else 8,
            "offsets": offsets,
            "groups": [
                {
                    "name": group.shown,
                    "kind": group.kind,
                    "hosts": count,
                    "all": members.get(group.name, count),
                }
                for group, count in zip(found.groups, hosts.counts(), strict=True)
            ],
            "by": given["by"],
            "class": given["class"],
            "label": given["label"],
            "part": part,
            "whole": whole,
        }
    )
    head += b" " * (-(len(head) + 4) % _ALIGNED)
    packed = len(head).to_bytes(4, "little") + head + b"".join(parts)
    return Response(packed, content_type="application/octet-stream")


@page("/map/hosts", **_FLEET)
def _some() -> Response:
    """Return the hosts with some storage ids, which the map knows."""
    look, given = _asked()
    texts = request.args.get("ids", "").split(",")
    if len(texts) > _MOST_ASKED or not all(_ID.fullmatch(text) for text in texts):
        raise BadRequest(f"ids: must be up to {_MOST_ASKED} numbers, with commas between them")
    found = look.of([int(text) for text in texts], FleetFigure(given["by"]), given["class"])
    body = orjson.dumps({"hosts": [_describe(each, given) for each in found]})
    return Response(body, content_type="application/json")


@page("/map/host/<text>", **_FLEET)
def _go(text: str) -> Response:
    look, given = _asked()
    ids = [int(text)] if _ID.fullmatch(text) else []
    found = look.of(ids, FleetFigure(given["by"]), given["class"])
    if not found:
        raise NotFound(
            "This host is gone: it was deleted after the map was drawn. Go back and reload the map."
        )
    return to(address(f"/hosts/{found[0].uuid}"))


# The overview: the fleet in few figures, its map, what each cluster and aggregate uses, what changed.


_RECENT = datetime.timedelta(minutes=15)
_SHOWN = 8
# What capacity and the fleet call hosts in no cluster and no aggregate.
_NONE, _NEITHER = "none", "neither"
_DEDICATED = "PCPU"
_OFTEN = {"PCPU", "VCPU", "MEMORY_MB", NODE_CPU, NODE_MEMORY}


@page("/")
def _overview() -> Response:
    look = use_cases().hosts.look()
    groups = _groups(look)
    rows = [
        (group["name"], group["kind"], group["hosts"], *each.values())
        for group in groups
        for each in group["resources"]
    ]
    names = ("group", "kind", "hosts", "class", "total", "reserved", "allocation_ratio", "capacity", "used")
    only = next(iter(sorted(caller_clusters() or ())), None)
    sees_map, sees_changes = may("resource_providers:list", only), may("audit:list")
    dedicated = _DEDICATED in look.classes()
    recent: list[ChangeRow] = []
    if sees_changes:
        since = datetime.datetime.now(datetime.UTC).replace(tzinfo=None) - _RECENT
        recent = rows_of(use_cases().audit.described(AuditFilter(since=since), None, _SHOWN)[0])
    return shown(
        "overview.html",
        {"figures": _figures(look), "groups": groups},
        (names, rows),
        changes=recent,
        changes_known=sees_changes,
        days=use_cases().use_history.of_groups(),
        map=chosen(look, only) if sees_map else None,
        room=common_room(only, dedicated=dedicated) if may("capacity:show", only) else None,
        common=_words_for_common(dedicated=dedicated),
        minutes=int(_RECENT.total_seconds() // 60),
    )


def _figures(look: FleetSnapshot) -> dict[str, Any]:
    """Return the figures of the whole fleet that cost no query of their own."""
    refused = refused_now(look)
    return {
        "hosts": look.hosts,
        "storage": look.storage,
        "use": _use(look),
        "overfull": refused["overfull_count"],
        # They are counted for all clusters together.
        "refused": sum(each["count"] for each in refused["refused"]) if caller_clusters() is None else None,
        "failing": [each.name for each in use_cases().health.checks() if not each.ok],
    }


def _use(look: FleetSnapshot) -> dict[str, dict[str, Any]]:
    """Return the use of all hosts, by name: of memory, of the kinds of CPUs, of all CPUs that pods request.

    With each comes the class that shows it on the map, and the one that has its unit.
    """
    sums: dict[str, list[Use]] = defaultdict(list)
    for group in look.by_group(_OFTEN).values():
        resources = {name: each._asdict() for name, each in group.resources.items()}
        for name in _OFTEN & resources.keys():
            sums[name].append(Use(resources[name]["capacity"], resources[name]["used"]))
        if NODE_CPU in resources:
            sums[ALL_CPUS].append(cpus(resources))
        sums[ALL_MEMORY].append(memory(resources))
    shown = {name: (name, name) for name in ("PCPU", "VCPU")}
    shown[ALL_MEMORY] = (NODE_MEMORY if NODE_MEMORY in sums else "MEMORY_MB", "MEMORY_MB")
    if NODE_CPU in sums:
        shown = {ALL_CPUS: (NODE_CPU, "PCPU"), **shown}
    found = {}
    for name, (on_map, unit) in shown.items():
        capacity, used = (sum(amounts) for amounts in zip(*sums[name], strict=True)) if sums[name] else (0, 0)
        if capacity:
            found[name] = {"capacity": capacity, "used": used, "class": on_map, "unit": unit}
    return found


@page("/figures")
def _counted() -> Response:
    """Show the figures that need a search, or the nodes of clusters; the overview asks for them later."""
    only = next(iter(sorted(caller_clusters() or ())), None)
    dedicated = _DEDICATED in use_cases().hosts.look(only).classes()
    sees_room = may("capacity:show", only)
    seen = [each for each in clusters() if each.nodes and may("clusters:nodes:show", each.name)]
    small = [each.name for each in seen if each.nodes <= MOST_NODES]
    room, on_closed = room_for_common(only, dedicated=dedicated) if sees_room else (None, 0)
    document = {
        "room": None if room is None else room.lower,
        "room_at_most": None if room is None else room.upper,
        "room_on_closed_nodes": on_closed,
        "closed_nodes": sum(map(len, closed_hosts(only).values())),
        "nodes": sum(each.nodes for each in seen if each.name in small),
        "large_clusters": len(seen) - len(small),
    }
    table = (tuple(document), [tuple(document.values())])
    return shown(
        "figures.html",
        document,
        table,
        cluster=only,
        room=common_room(only, dedicated=dedicated),
        common=_words_for_common(dedicated=dedicated),
    )


def _words_for_common(*, dedicated: bool) -> str:
    cores, mebibytes = COMMON_REQUEST
    kind = "dedicated CPUs" if dedicated else "vCPU"
    return f"{cores} {kind}, {units.amount(mebibytes, 'MEMORY_MB')}"


def _groups(look: FleetSnapshot) -> list[dict[str, Any]]:
    known = {cluster.name: cluster for cluster in use_cases().clusters.listed()}
    own = caller_clusters()
    found: dict[str, list[CapacityGroup]] = defaultdict(list)
    counted, members, called = look.counted(), look.members(), look.called()
    for each in use_cases().capacity.groups(overlapping=True):
        found[each.name].append(each)
    aggregates = sorted(
        found.keys() - known.keys() - {_NONE}, key=lambda name: (called.get(name, name), name)
    )
    names = sorted(known) + aggregates + [_NONE] * (_NONE in found)
    return [
        {
            "name": name,
            "shown": called.get(name, name),
            "kind": "cluster" if name in known else "none" if name == _NONE else "aggregate",
            "hosts": members.get(_NEITHER if name == _NONE else name, 0),
            # On the map a host is in one group.
            "elsewhere": 0 if name == _NONE else members.get(name, 0) - counted.get(name, 0),
            "description": known[name].settings.get("description", "") if name in known else "",
            "resources": _resources(found[name]),
        }
        for name in names
        if own is None or name in own
    ]


def _resources(groups: list[CapacityGroup]) -> list[dict[str, Any]]:
    return [
        {
            "class": each.resource_class,
            "total": int(each.total),
            "reserved": int(each.reserved),
            "allocation_ratio": each.allocation_ratio,
            "capacity": int((each.total - each.reserved) * each.allocation_ratio),
            "used": int(each.used),
        }
        for each in sorted(groups, key=lambda group: units.order(group.resource_class))
    ]
