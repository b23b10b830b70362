"""The pages of a host, whatever tree of providers it is, and of search."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import orjson
from flask import Blueprint, Response, request

from placement.engine.domain.errors import NotFound
from placement.engine.domain.identifiers import normalize_uuid
from placement.http.context import use_cases
from placement.http.gate import PAGES, route
from placement.http.schemas import dump
from placement.pods.schemas import CapacityRecordSchema, NodeSchema
from placement.pods.views import HostView
from placement.web import units
from placement.web.host_drawing import Lacks, drawing_of, plain
from placement.web.templating import (
    HTML,
    address,
    caller_clusters,
    clusters,
    html,
    may,
    require,
    shown,
    to,
    wanted,
)


def register(blueprint: Blueprint) -> None:
    """Add the routes; the rule to see a host depends on whether it is a node of a cluster."""
    # A caller that may list clusters may ask; `seen` requires the rest.
    listing = "placement:clusters:list"
    host = f"{PAGES}/hosts/<uuid>"
    route(blueprint, host, "GET", listing, own_only=True)(_host)
    route(blueprint, f"{host}/providers", "GET", listing, own_only=True)(_providers)
    route(blueprint, f"{host}/drawing", "GET", listing, own_only=True)(_drawing)
    node = f"{PAGES}/nodes/<cluster>/<node>"
    route(blueprint, node, "GET", "placement:clusters:nodes:show")(_node)


def seen(uuid: str) -> HostView:
    """Return the tree that a provider is in. Raises NotFound, Forbidden."""
    return use_cases().host_views.show(normalize_uuid(uuid) or uuid, _check)


def _check(cluster: str | None) -> None:
    if cluster is not None:
        require("clusters:nodes:show", cluster)
    else:
        for rule in ("show", "allocations:list", "inventories:list"):
            require(f"resource_providers:{rule}")


def _node(cluster: str, node: str) -> Response:
    """Send the browser on to the host that a node is. Raises NotFound."""
    uuid = next((uuid for name, uuid in use_cases().clusters.nodes(cluster) if name == node), None)
    if uuid is None:
        raise NotFound(f"No node {node} found in cluster {cluster}; it may have been deleted.")
    return to(address(f"/hosts/{uuid}"))


def _host(uuid: str) -> Response:
    """Show a host as it is built, with all consumers on it."""
    host = seen(uuid)
    lacks = _lacks()
    drawing = drawing_of(host, lacks)
    asked_for = host.asked_for if host.asked_for != host.root.uuid else request.args.get("mark", "")
    return shown(
        "host.html",
        lambda: {**_document(host), "drawn": plain(drawing)},
        lambda: _table(host),
        host=host,
        drawing=drawing,
        view=host.view,
        totals=_totals(host),
        marked=asked_for,
        lacks=list(_in_words(host, lacks)),
        history=_history(host),
        sees_consumers=may("allocations:list"),
    )


def _drawing(uuid: str) -> Response:
    """Show the drawing of a host alone, with what it lacks marked."""
    host = seen(uuid)
    return html("drawing.html", host=host, drawing=drawing_of(host, _lacks()))


def _providers(uuid: str) -> Response:
    """Show the providers of a host as they are stored."""
    host = seen(uuid)
    aggregates = use_cases().host_views.aggregates([member.id for member in host.members])
    document = {"name": host.root.name, "providers": list(_stored(host, aggregates))}
    return shown("providers.html", document, lambda: _table(host), host=host, aggregates=aggregates)


def _document(host: HostView) -> Any:
    if host.node is not None:
        return dump(NodeSchema, use_cases().clusters.node(host.node.cluster, host.node.name))
    aggregates = use_cases().host_views.aggregates([member.id for member in host.members])
    return {"name": host.root.name, "providers": list(_stored(host, aggregates))}


def _stored(host: HostView, aggregates: Mapping[int, Sequence[str]]) -> Iterator[dict[str, Any]]:
    for member in host.members:
        yield {
            "uuid": member.uuid,
            "name": member.name,
            "generation": member.generation,
            "parent_id": member.parent_id,
            "id": member.id,
            "traits": member.traits,
            "aggregates": aggregates.get(member.id, ()),
            "resources": {
                record.class_name: dump(CapacityRecordSchema, record)
                for record in host.records.get(member.id, {}).values()
            },
        }


def _table(host: HostView) -> Any:
    names = ("provider", "uuid", "class", "used", "capacity", "total", "reserved", "allocation_ratio")
    return names, (
        (member.name, member.uuid, record.class_name, record.used, record.inventory.capacity,
         record.inventory.total, record.inventory.reserved, record.inventory.allocation_ratio)
        for member in host.members
        for record in host.records.get(member.id, {}).values()
    )  # fmt: skip


def _totals(host: HostView) -> Mapping[str, tuple[int, int]]:
    """Return used and capacity over the tree, by class."""
    found: dict[str, tuple[int, int]] = {}
    for records in host.records.values():
        for record in records.values():
            used, most = found.get(record.class_name, (0, 0))
            capacity = max(record.inventory.capacity, 0)
            found[record.class_name] = (used + record.used, most + capacity)
    return dict(sorted(found.items()))


def _lacks() -> Lacks:
    """Return what the address names as missing: `lacks=provider,class,words`, any number of times."""
    found: dict[str, dict[str, str]] = {}
    for text in request.args.getlist("lacks"):
        uuid, _, rest = text.partition(",")
        name, _, words = rest.partition(",")
        found.setdefault(uuid, {})[name] = words
    return found


def _in_words(host: HostView, lacks: Lacks) -> Iterator[str]:
    names = {member.uuid: member.name for member in host.members}
    for uuid, missing in lacks.items():
        for resource_class, words in missing.items():
            yield " ".join(filter(None, (f"{names.get(uuid, uuid)}:", units.plain(resource_class), words)))


def _history(host: HostView) -> str | None:
    """Return the address of the changes of a host, or None if the caller may not see any."""
    if not may("audit:list"):
        return None
    targets = [host.root.uuid, *([f"{host.node.cluster}/{host.node.name}"] if host.node else ())]
    return f"{address('/changes')}?{urlencode([('target', target) for target in targets])}"


# Search: hosts, providers, consumers, projects and pods by what people remember of them.


_MOST = 50
_LONGEST = 200


def register_search(blueprint: Blueprint) -> None:
    """Add the routes; each kind of result requires its own policy rule."""
    listing = "placement:clusters:list"
    route(blueprint, f"{PAGES}/search", "GET", listing, own_only=True)(_search)
    route(blueprint, f"{PAGES}/names/clusters", "GET", listing, own_only=True)(_clusters)


def _search() -> Response:
    """Show what is like the text; a single hit is shown at once."""
    text = request.args.get("q", "").strip()[:_LONGEST]
    found = _found(text) if text else []
    if len(found) == 1 and found[0]["address"] and wanted() == HTML:
        return to(found[0]["address"])
    columns = ("kind", "name", "uuid", "beside")
    rows = ([each[name] for name in columns] for each in found)
    return shown("search.html", {"q": text, "found": found}, (columns, rows), text=text, most=_MOST)


def _clusters() -> Response:
    """Return the names of the clusters that the caller may see, to choose one of them."""
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
