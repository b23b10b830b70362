"""Search: hosts, providers, consumers, projects and pods by what people remember of them."""

from __future__ import annotations

from typing import Any

import orjson
from flask import Blueprint, Response, request

from placement.api.context import use_cases
from placement.api.route_guard import PAGES, route
from placement.web.permissions import caller_clusters, clusters, may
from placement.web.shown import HTML, address, shown, to, wanted

_MOST = 50
_LONGEST = 200


def register(blueprint: Blueprint) -> None:
    """Add the route; who may see what is asked kind by kind."""
    listing = "placement:clusters:list"
    route(blueprint, f"{PAGES}/search", "GET", listing, own_only=True)(_search)
    route(blueprint, f"{PAGES}/names/clusters", "GET", listing, own_only=True)(_clusters)


def _search() -> Response:
    """What is like the text; a single hit is shown at once."""
    text = request.args.get("q", "").strip()[:_LONGEST]
    found = _found(text) if text else []
    if len(found) == 1 and found[0]["address"] and wanted() == HTML:
        return to(found[0]["address"])
    columns = ("kind", "name", "uuid", "beside")
    rows = ([each[name] for name in columns] for each in found)
    return shown("search.html", {"q": text, "found": found}, (columns, rows), text=text, most=_MOST)


def _clusters() -> Response:
    """The names of the clusters that the caller may see, for those who choose one of them."""
    body = orjson.dumps({"names": [each.name for each in clusters()]})
    return Response(body, content_type="application/json")


def _found(text: str) -> list[dict[str, Any]]:
    own = caller_clusters()
    where = [None] if own is None else sorted(own)
    return [each for cluster in where for each in _found_in(text, cluster)]


def _found_in(text: str, cluster: str | None) -> list[dict[str, Any]]:
    finder, found = use_cases().finder, []
    if may("resource_providers:list", cluster):
        found += [
            {
                "kind": "host" if each.is_root else "provider",
                "name": each.name,
                "uuid": each.uuid,
                "beside": each.cluster or "",
                "address": address(f"/hosts/{each.uuid}"),
            }
            for each in finder.providers(text, cluster, _MOST)
        ]
    if may("clusters:pods:list", cluster):
        found += [
            {
                "kind": "pod",
                "name": f"{each.namespace}/{each.name}",
                "uuid": "",
                "beside": f"{each.cluster}, {each.node or 'no node'}",
                "address": address(f"/pods/{each.cluster}/{each.namespace}/{each.name}"),
            }
            for each in finder.pods(text, cluster, _MOST)
        ]
    if may("allocations:list_all", cluster):
        found += [
            {
                "kind": "consumer",
                "name": each.uuid,
                "uuid": each.uuid,
                "beside": f"project {each.project_id}, user {each.user_id}",
                "address": address(f"/consumers/{each.uuid}") if may("allocations:list") else "",
            }
            for each in finder.consumers(text, cluster, _MOST)
        ]
    return found
