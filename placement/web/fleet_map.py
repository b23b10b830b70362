"""The whole fleet as a heat map: the page, its numbers in a compact form, and who is behind one of them.

The numbers come as one body: the length of the head in four bytes, the head as JSON padded with blanks to a
multiple of eight, then the columns that the head names, each at its offset from the end of the head. All
numbers are little-endian, so that a browser looks at the columns where they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import orjson
from flask import Blueprint, Response, request

from placement.api.context import use_cases
from placement.api.route_guard import PAGES, route
from placement.api.targets import cluster_of_query
from placement.domain.errors import BadRequest, NotFound
from placement.services.fleet import COMMON_REQUEST, Figure, HeatMap, HostFigure, Look
from placement.web import units
from placement.web.permissions import clusters
from placement.web.shown import address, same_page, shown, to
from placement.web.templating import escaped

_RULE = "placement:resource_providers:list"
_USUAL_CLASSES = ("PCPU", "VCPU", "MEMORY_MB")
_PAGE = 100
_MOST_ASKED = 200
_ID = re.compile("[0-9]{1,15}")
_ALIGNED = 8
_SAID = {
    Figure.USE: "use of {unit}",
    Figure.CORES: "free whole cores",
    Figure.STRANDED: f"stranded cores: free, but not {COMMON_REQUEST[0]} with "
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


def chosen(look: Look, cluster: str | None = None) -> dict[str, Any]:
    """What the query asks to see, what else there is to see, and in which words. Raises BadRequest."""
    classes = look.classes()
    name = request.args.get("by") or Figure.USE
    if name not in list(Figure):
        raise BadRequest(f"by: {name!r} is none of {', '.join(Figure)}")
    resource_class = request.args.get("class") or _usual_class(look, classes)
    figure = Figure(name)
    return {
        "by": str(figure),
        "class": resource_class,
        "cluster": request.args.get("cluster") or cluster,
        "classes": classes,
        "figures": {str(each): _name(each, resource_class) for each in Figure},
        "said": _name(figure, resource_class),
    }


def _asked() -> tuple[Look, dict[str, Any]]:
    """The hosts that the query asks for, and what of them. Raises BadRequest."""
    look = use_cases().hosts.look(request.args.get("cluster") or None)
    return look, chosen(look)


def _usual_class(look: Look, classes: list[str]) -> str:
    """The class to begin with: of the usual ones that of the most hosts."""
    usual = [name for name in _USUAL_CLASSES if name in classes]
    if len(usual) < 2:
        return (usual or classes or list(_USUAL_CLASSES))[0]
    return look.most_offered(usual)


def _name(figure: Figure, resource_class: str) -> str:
    return _SAID[figure].format(unit=units.plain(resource_class))


def _map() -> Response:
    """The fleet in one picture."""
    look, given = _asked()
    figures, count = look.ranked(Figure(given["by"]), given["class"], 0, 20)
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
    """The same as a table, page by page, the fullest first."""
    look, given = _asked()
    rising = request.args.get("order") == "rising"
    text = request.args.get("page", "1")
    if not (text.isascii() and text.isdigit() and 1 <= len(text) <= 6 and int(text)):
        raise BadRequest(f"page: must be a number from 1 on, not {text!r}")
    start = (int(text) - 1) * _PAGE
    figures, count = look.ranked(Figure(given["by"]), given["class"], start, _PAGE, rising=rising)
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
    resource_class = given["class"] if given["by"] == Figure.USE else "PCPU"
    words = units.share(each.part, each.whole, resource_class) if each.whole else "nothing of it"
    return {
        "id": each.id,
        "uuid": each.uuid,
        "name": each.name,
        "group": each.group.name,
        "part": each.part,
        "whole": each.whole,
        "percent": each.level,
        "text": words if given["by"] == Figure.USE else words.replace("CPU", "cores"),
        "address": address(f"/hosts/{each.uuid}"),
    }


def _rows(hosts: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """Hosts as tables show them, escaped: address, name, group, length of the bar, text, percent."""
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
    """The numbers of all hosts."""
    look, given = _asked()
    found = look.heat_map(Figure(given["by"]), given["class"])
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
    """The hosts with some storage ids, which the map knows."""
    look, given = _asked()
    texts = request.args.get("ids", "").split(",")
    if len(texts) > _MOST_ASKED or not all(_ID.fullmatch(text) for text in texts):
        raise BadRequest(f"ids: must be up to {_MOST_ASKED} numbers, with commas between them")
    ids = [int(text) for text in texts]
    found = look.of(ids, Figure(given["by"]), given["class"])
    body = orjson.dumps({"hosts": [_told(each, given) for each in found]})
    return Response(body, content_type="application/json")


def _go(text: str) -> Response:
    """On to the page of the host with this storage id. Raises NotFound."""
    look, given = _asked()
    ids = [int(text)] if _ID.fullmatch(text) else []
    found = look.of(ids, Figure(given["by"]), given["class"])
    if not found:
        raise NotFound(
            "This host is gone: it was deleted after the map was drawn. Go back and reload the map."
        )
    return to(address(f"/hosts/{found[0].uuid}"))
