"""The whole fleet as a heat map: the page, its numbers in a compact form, and the hosts behind them.

The numbers come as one body: the length of the head in four bytes, the head as JSON padded with blanks to a
multiple of eight, then the columns that the head names, each at its offset from the end of the head. All
numbers are little-endian, so that a browser reads the columns in place.
"""

from __future__ import annotations

import datetime
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson
from flask import Blueprint, Response, request

from placement.engine.domain.audit import AuditFilter
from placement.engine.domain.errors import BadRequest, NotFound
from placement.http.context import use_cases
from placement.http.gate import PAGES, route
from placement.http.targets import cluster_of_query
from placement.providers.fleet import (
    COMMON_REQUEST,
    CapacityGroup,
    FleetFigure,
    FleetSnapshot,
    HeatMap,
    HostFigure,
)
from placement.web import units
from placement.web.capacity import common_room
from placement.web.changes import refused_now, rows_of
from placement.web.templating import address, caller_clusters, clusters, escaped, may, same_page, shown, to

_RULE = "placement:resource_providers:list"
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


def register(blueprint: Blueprint) -> None:
    """Add the routes."""
    for path, page in (
        ("/map", _map),
        ("/map/data", _data),
        ("/map/hosts", _who),
        ("/map/host/<text>", _go),
        ("/hosts", _table),
    ):
        route(blueprint, f"{PAGES}{path}", "GET", _RULE, target=cluster_of_query)(page)


def chosen(look: FleetSnapshot, cluster: str | None = None) -> dict[str, Any]:
    """Return what the query asks to see, what else there is, and the words for it. Raises BadRequest."""
    classes = look.classes()
    name = request.args.get("by") or FleetFigure.USE
    if name not in list(FleetFigure):
        raise BadRequest(f"by: {name!r} is none of {', '.join(FleetFigure)}")
    resource_class = request.args.get("class") or _usual_class(look, classes)
    figure = FleetFigure(name)
    return {
        "by": str(figure),
        "class": resource_class,
        "cluster": request.args.get("cluster") or cluster,
        "classes": classes,
        "figures": {str(each): _name(each, resource_class) for each in FleetFigure},
        "said": _name(figure, resource_class),
    }


def _asked() -> tuple[FleetSnapshot, dict[str, Any]]:
    """Return the hosts that the query asks for, and what to see of them. Raises BadRequest."""
    look = use_cases().hosts.look(request.args.get("cluster") or None)
    return look, chosen(look)


def _usual_class(look: FleetSnapshot, classes: list[str]) -> str:
    """Return the class to begin with: of the usual ones, the one that most hosts offer."""
    usual = [name for name in _USUAL_CLASSES if name in classes]
    if len(usual) < 2:
        return (usual or classes or list(_USUAL_CLASSES))[0]
    return look.most_offered(usual)


def _name(figure: FleetFigure, resource_class: str) -> str:
    return _SAID[figure].format(unit=units.plain(resource_class))


def _map() -> Response:
    """Show the fleet in one picture."""
    look, given = _asked()
    figures, count = look.ranked(FleetFigure(given["by"]), given["class"], 0, 20)
    document: dict[str, Any] = {
        "by": given["by"],
        "class": given["class"],
        "hosts": [_told(each, given) for each in figures],
    }
    names = [each.name for each in clusters()]
    return shown(
        "map.html",
        document,
        _as_table(figures),
        map=given,
        rows=_rows(document["hosts"]),
        count=count,
        clusters=names,
    )


def _table() -> Response:
    """Show the fleet as a table, page by page, the fullest first unless the order is rising."""
    look, given = _asked()
    rising = request.args.get("order") == "rising"
    text = request.args.get("page", "1")
    if not (text.isascii() and text.isdigit() and 1 <= len(text) <= 6 and int(text)):
        raise BadRequest(f"page: must be a number from 1 on, not {text!r}")
    start = (int(text) - 1) * _PAGE
    figures, count = look.ranked(FleetFigure(given["by"]), given["class"], start, _PAGE, rising=rising)
    document: dict[str, Any] = {"count": count, "hosts": [_told(each, given) for each in figures]}
    following = same_page(page=int(text) + 1) if start + _PAGE < count else None
    before = same_page(page=int(text) - 1) if start else None
    places = {"page": int(text), "pages": max(1, -(-count // _PAGE)), "rising": rising}
    return shown(
        "hosts.html",
        document,
        _as_table(figures),
        map=given,
        rows=_rows(document["hosts"]),
        following=following,
        before=before,
        **places,
    )


def _as_table(figures: list[HostFigure]) -> Any:
    names = ("name", "uuid", "group", "part", "whole", "percent")
    return names, (
        (each.name, each.uuid, each.group.name, each.part, each.whole, each.level) for each in figures
    )


def _told(each: HostFigure, given: dict[str, Any]) -> dict[str, Any]:
    resource_class = given["class"] if given["by"] == FleetFigure.USE else "PCPU"
    words = units.share(each.part, each.whole, resource_class) if each.whole else "nothing of it"
    return {
        "id": each.id,
        "uuid": each.uuid,
        "name": each.name,
        "group": each.group.name,
        "part": each.part,
        "whole": each.whole,
        "percent": each.level,
        "text": words if given["by"] == FleetFigure.USE else words.replace("CPU", "cores"),
        "address": address(f"/hosts/{each.uuid}"),
    }


def _rows(hosts: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Return hosts as rows, escaped: address, name, group, length of the bar, text, percent."""
    return escaped(
        (
            each["address"],
            each["name"],
            each["group"],
            "" if each["percent"] is None else str(min(each["percent"], 100)),
            each["text"],
            "–" if each["percent"] is None else f"{each['percent']} %",
        )
        for each in hosts
    )


def _data() -> Response:
    """Return the numbers of all hosts."""
    look, given = _asked()
    found = look.heat_map(FleetFigure(given["by"]), given["class"])
    return Response(_packed(found, given), content_type="application/octet-stream")


def _packed(found: HeatMap, given: dict[str, Any]) -> bytes:
    columns = {"ids": found.id_bytes, "groups": found.group_bytes, "levels": found.level_bytes}
    offsets, parts, end = {}, [], 0
    for name, column in columns.items():
        offsets[name] = end
        parts.append(column + b"\0" * (-len(column) % _ALIGNED))
        end += len(parts[-1])
    head = orjson.dumps(
        {
            "count": found.count,
            "id_bytes": 4 if found.narrow_ids else 8,
            "offsets": offsets,
            "groups": [{"name": group.name, "kind": group.kind} for group in found.groups],
            "by": given["by"],
            "class": given["class"],
            "said": given["said"],
            "part": found.part,
            "whole": found.whole,
        }
    )
    head += b" " * (-(len(head) + 4) % _ALIGNED)
    return len(head).to_bytes(4, "little") + head + b"".join(parts)


def _who() -> Response:
    """Return the hosts with some storage ids, which the map knows."""
    look, given = _asked()
    texts = request.args.get("ids", "").split(",")
    if len(texts) > _MOST_ASKED or not all(_ID.fullmatch(text) for text in texts):
        raise BadRequest(f"ids: must be up to {_MOST_ASKED} numbers, with commas between them")
    ids = [int(text) for text in texts]
    found = look.of(ids, FleetFigure(given["by"]), given["class"])
    body = orjson.dumps({"hosts": [_told(each, given) for each in found]})
    return Response(body, content_type="application/json")


def _go(text: str) -> Response:
    """Send the browser on to the page of the host with this storage id. Raises NotFound."""
    look, given = _asked()
    ids = [int(text)] if _ID.fullmatch(text) else []
    found = look.of(ids, FleetFigure(given["by"]), given["class"])
    if not found:
        raise NotFound(
            "This host is gone: it was deleted after the map was drawn. Go back and reload the map."
        )
    return to(address(f"/hosts/{found[0].uuid}"))


# The overview: what each cluster and aggregate has and uses, the fleet, what changed, what is refused.


_RECENT = datetime.timedelta(minutes=15)
_SHOWN = 8
# What capacity and the fleet call hosts in no cluster and no aggregate.
_NONE, _NEITHER = "none", "neither"
# These are shown first, in this order.
_FIRST = ("VCPU", "PCPU", "MEMORY_MB", "DISK_GB")


def register_overview(blueprint: Blueprint) -> None:
    """Add the route."""
    route(blueprint, f"{PAGES}/", "GET", "placement:clusters:list", own_only=True)(_overview)


def _overview() -> Response:
    """Show clusters and aggregates, with what they have and use."""
    look = use_cases().hosts.look()
    groups = _groups(look)
    document = {"groups": groups}
    rows = [
        (group["name"], group["kind"], group["hosts"], each["class"], each["total"], each["reserved"],
         each["allocation_ratio"], each["capacity"], each["used"])
        for group in groups
        for each in group["resources"]
    ]  # fmt: skip
    names = ("group", "kind", "hosts", "class", "total", "reserved", "allocation_ratio", "capacity", "used")
    only = next(iter(sorted(caller_clusters() or ())), None)
    sees_map = may("resource_providers:list", only)
    return shown(
        "overview.html",
        document,
        (names, rows),
        refused=refused_now(look),
        changes=_recent(),
        changes_known=may("audit:list"),
        map=chosen(look, only) if sees_map else None,
        room=common_room(only) if may("capacity:show", only) else None,
        common=COMMON_REQUEST,
        minutes=int(_RECENT.total_seconds() // 60),
    )


def _groups(look: FleetSnapshot) -> list[dict[str, Any]]:
    known = {cluster.name: cluster for cluster in use_cases().clusters.listed()}
    own = caller_clusters()
    found: dict[str, list[CapacityGroup]] = defaultdict(list)
    hosts = {group.name: count for group, count in look.counted()}
    for each in use_cases().capacity.groups():
        found[each.name].append(each)
    names = sorted(known) + sorted(found.keys() - known.keys() - {_NONE}) + [_NONE] * (_NONE in found)
    return [
        {
            "name": name,
            "kind": "cluster" if name in known else "none" if name == _NONE else "aggregate",
            "hosts": hosts.get(_NEITHER if name == _NONE else name, 0),
            "description": known[name].settings.get("description", "") if name in known else "",
            "resources": list(_resources(found[name])),
        }
        for name in names
        if own is None or name in own
    ]


def _resources(groups: list[CapacityGroup]) -> Iterator[dict[str, Any]]:
    def place(group: CapacityGroup) -> tuple[int, str]:
        name = group.resource_class
        return (_FIRST.index(name) if name in _FIRST else len(_FIRST), name)

    for each in sorted(groups, key=place):
        capacity = int((each.total - each.reserved) * each.allocation_ratio)
        yield {
            "class": each.resource_class,
            "total": int(each.total),
            "reserved": int(each.reserved),
            "allocation_ratio": each.allocation_ratio,
            "capacity": capacity,
            "used": int(each.used),
        }


def _recent() -> list[tuple[str, ...]]:
    if not may("audit:list"):
        return []
    since = datetime.datetime.now(datetime.UTC).replace(tzinfo=None) - _RECENT
    return rows_of(use_cases().audit.heads(AuditFilter(since=since), None, _SHOWN)[0])
