"""The whole fleet as a heat map: the page, its numbers in a compact form, and the hosts behind them.

The numbers come as one body: the length of the head in four bytes, the head as JSON padded with blanks to a
multiple of eight, then the columns that the head names, each at its offset from the end of the head. All
numbers are little-endian, so that a browser reads the columns in place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from flask import Response, request

from placement.common.titles import short_id
from placement.engine.domain.errors import BadRequest, NotFound, parameter
from placement.engine.domain.units import percent
from placement.http.context import service
from placement.http.targets import cluster_of_query
from placement.providers import fleet
from placement.providers.fleet import OpenState
from placement.web import answers, units
from placement.web.callers import clusters
from placement.web.templating import escaped, page

_FLEET: dict[str, Any] = {"rule": "resource_providers:list", "target": cluster_of_query}
_USUAL_CLASSES = ("PCPU", "VCPU", "MEMORY_MB")
_PAGE = 100
_CHOICES = ("cluster", "aggregate", "by", "class")
_MOST_ASKED = 200
_ID = re.compile("[0-9]{1,15}")
_ALIGNED = 8
_SAID = {
    fleet.FleetFigure.USE: "use of {unit}",
    fleet.FleetFigure.CORES: "free whole cores",
    fleet.FleetFigure.STRANDED: f"stranded cores: free, but not {fleet.COMMON_REQUEST[0]} with "
    f"{fleet.COMMON_REQUEST[1] // 1024} GiB beside them",
}


def chosen(snapshot: fleet.FleetSnapshot, cluster: str | None = None) -> dict[str, Any]:
    """Return what the query asks to see, what else there is, and the words for it. Raises BadRequest."""
    classes = snapshot.classes()
    name = request.args.get("by") or fleet.FleetFigure.USE
    if name not in list(fleet.FleetFigure):
        raise BadRequest(f"{name!r} is not one of {', '.join(fleet.FleetFigure)}", place=parameter("by"))
    resource_class = request.args.get("class")
    if resource_class not in classes and f"CUSTOM_{resource_class}" in classes:
        # As pages call it.
        resource_class = f"CUSTOM_{resource_class}"
    if not resource_class:
        # To begin with, of the usual classes the one in most use.
        usual = [each for each in _USUAL_CLASSES if each in classes]
        first = (usual or classes or _USUAL_CLASSES)[0]
        resource_class = snapshot.most_used(usual) if len(usual) > 1 else first
    figure = fleet.FleetFigure(name)
    return {
        "by": str(figure),
        "class": resource_class,
        "of": {
            "cluster": request.args.get("cluster") or cluster,
            "aggregate": request.args.get("aggregate") or None,
        },
        "classes": classes,
        "figures": {str(each): _name(each, resource_class) for each in fleet.FleetFigure},
        "label": _name(figure, resource_class),
    }


def _asked() -> tuple[fleet.FleetSnapshot, dict[str, Any]]:
    """Return the hosts that the query asks for, and what to see of them. Raises BadRequest."""
    given = answers.choices("cluster", "aggregate")
    snapshot = service(fleet.Hosts).look(given["cluster"], given["aggregate"])
    return snapshot, chosen(snapshot)


def _name(figure: fleet.FleetFigure, resource_class: str) -> str:
    return _SAID[figure].format(unit=units.plain(resource_class))


@page("/map", **_FLEET)
def _map() -> Response:
    answers.refuse_others(*_CHOICES)
    snapshot, given = _asked()
    figures, _ = snapshot.ranked(fleet.FleetFigure(given["by"]), given["class"], 0, 20)
    hosts = [_describe(each, given) for each in figures if each.whole]
    return answers.shown(
        "map.html",
        {"by": given["by"], "class": given["class"], "hosts": hosts},
        _as_table(figures),
        map=given,
        snapshot=snapshot,
        rows=_rows(hosts, fleet.FleetFigure(given["by"])),
        clusters=[each.name for each in clusters()],
    )


@page("/hosts", **_FLEET)
def _table() -> Response:
    """Show the fleet as a table, page by page, the fullest first unless the order is rising."""
    answers.refuse_others(*_CHOICES, "order", "page")
    snapshot, given = _asked()
    rising = request.args.get("order") == "rising"
    text = request.args.get("page", "1")
    if not (text.isascii() and text.isdigit() and 1 <= len(text) <= 6 and int(text)):
        raise BadRequest(f"must be a number from 1 on, not {text!r}", place=parameter("page"))
    number = int(text)
    start = (number - 1) * _PAGE
    figures, count = snapshot.ranked(
        fleet.FleetFigure(given["by"]), given["class"], start, _PAGE, rising=rising
    )
    hosts = [_describe(each, given) for each in figures]
    return answers.shown(
        "hosts.html",
        {"count": count, "hosts": hosts},
        _as_table(figures),
        map=given,
        snapshot=snapshot,
        rows=_rows(hosts, fleet.FleetFigure(given["by"])),
        clusters=[each.name for each in clusters()],
        following=answers.same_page(page=number + 1) if start + _PAGE < count else None,
        before=answers.same_page(page=number - 1) if start else None,
        page=number,
        pages=max(1, -(-count // _PAGE)),
        rising=rising,
    )


def _as_table(figures: list[fleet.HostFigure]) -> Any:
    names = ("name", "uuid", "group", "part", "whole", "percent", "group_name", "state")
    states = {True: OpenState.CLOSED, False: OpenState.OPEN}
    return names, (
        (
            *(each.name, each.uuid, each.group.name, each.part, each.whole, each.level, each.group.shown),
            states[each.is_closed],
        )
        for each in figures
    )


def _describe(figure: fleet.HostFigure, given: dict[str, Any]) -> dict[str, Any]:
    resource_class = given["class"] if given["by"] == fleet.FleetFigure.USE else "PCPU"
    words = units.share(figure.part, figure.whole, resource_class) if figure.whole else "offers none"
    return {
        "id": figure.id,
        "uuid": figure.uuid,
        "name": figure.name,
        "group": figure.group.name,
        "group_name": figure.group.shown,
        "kind": "shared storage" if figure.is_storage else "host",
        "state": OpenState.CLOSED if figure.is_closed else OpenState.OPEN,
        "part": figure.part,
        "whole": figure.whole,
        "percent": figure.level,
        "text": words if given["by"] == fleet.FleetFigure.USE else words.replace("CPU", "cores"),
        "address": answers.address(f"/hosts/{figure.uuid}"),
    }


def _rows(hosts: Sequence[Mapping[str, Any]], figure: fleet.FleetFigure) -> list[list[str]]:
    """Return hosts as rows, escaped.

    These are address, name, kind, group, its name, length and state of the bar, text, percent.
    """
    rows = []
    for each in hosts:
        level = each["percent"]
        length, text = ("", "–") if level is None else (str(min(level, 100)), f"{level} %")
        # Much use is amber or red, as on the page of a host; free cores are green.
        states = {fleet.FleetFigure.USE: units.alarm(level or 0), fleet.FleetFigure.CORES: "free"}
        closed = each["state"] if each["state"] == OpenState.CLOSED else ""
        kind = closed if each["kind"] == "host" else each["kind"]
        group = each["group"], units.shortened(short_id(each["group_name"]))
        rows.append(
            (each["address"], each["name"], kind, *group, length, states.get(figure, ""), each["text"], text)
        )
    return escaped(rows)


@page("/map/data", **_FLEET)
def _data() -> Response:
    snapshot, given = _asked()
    found = snapshot.heat_map(fleet.FleetFigure(given["by"]), given["class"])
    members = snapshot.members()
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
                    "name": short_id(group.shown),
                    "kind": group.kind,
                    "hosts": count,
                    "all": members.get(group.name, count),
                }
                for group, count in zip(found.groups, hosts.counts(), strict=True)
            ],
            "by": given["by"],
            "class": given["class"],
            "label": given["label"],
            "percent": percent(part, whole) if whole else None,
            "closed": found.closed,
        }
    )
    head += b" " * (-(len(head) + 4) % _ALIGNED)
    packed = len(head).to_bytes(4, "little") + head + b"".join(parts)
    return Response(packed, content_type="application/octet-stream")


@page("/map/hosts", **_FLEET)
def _some() -> Response:
    """Return the hosts with some storage ids, which the map knows."""
    snapshot, given = _asked()
    texts = request.args.get("ids", "").split(",")
    if len(texts) > _MOST_ASKED or not all(_ID.fullmatch(text) for text in texts):
        raise BadRequest(
            f"must be up to {_MOST_ASKED} numbers, with commas between them", place=parameter("ids")
        )
    found = snapshot.of([int(text) for text in texts], fleet.FleetFigure(given["by"]), given["class"])
    body = orjson.dumps({"hosts": [_describe(each, given) for each in found]})
    return Response(body, content_type="application/json")


@page("/map/host/<text>", **_FLEET)
def _go(text: str) -> Response:
    snapshot, given = _asked()
    ids = [int(text)] if _ID.fullmatch(text) else []
    found = snapshot.of(ids, fleet.FleetFigure(given["by"]), given["class"])
    if not found:
        raise NotFound(
            "This host is gone: it was deleted after the map was drawn. Go back and reload the map."
        )
    return answers.to(answers.address(f"/hosts/{found[0].uuid}"))
