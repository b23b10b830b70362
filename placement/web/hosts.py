"""The page of a host, whatever tree of providers it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from flask import Blueprint, Response, request

from placement.api.context import use_cases
from placement.api.rendering.clusters import node_body
from placement.api.rendering.providers import inventory_body
from placement.api.route_guard import PAGES, route
from placement.domain.audit import AuditFilter
from placement.domain.errors import NotFound
from placement.domain.identifiers import normalize_uuid
from placement.services.host_views import HostPlace, HostView
from placement.web import units
from placement.web.changes import history_of
from placement.web.host_boxes import plain
from placement.web.host_drawing import Lacks, drawing_of
from placement.web.shown import address, require, shown, to

_HISTORY = 20


def register(blueprint: Blueprint) -> None:
    """Add the routes; who may see a host depends on whether it is a node of a cluster."""
    # Whoever may list clusters may ask; `_seen` asks for the rest.
    listing = "placement:clusters:list"
    route(blueprint, f"{PAGES}/hosts/<uuid>", "GET", listing, own_only=True)(_host)
    node = f"{PAGES}/nodes/<cluster>/<node>"
    route(blueprint, node, "GET", "placement:clusters:nodes:show")(_node)


def seen(uuid: str) -> tuple[HostPlace, HostView]:
    """The tree in which a provider is. Raises NotFound, Forbidden."""
    place = use_cases().host_views.place(normalize_uuid(uuid) or uuid)
    if place.node is not None:
        require("clusters:nodes:show", place.node[0])
    else:
        for rule in ("show", "allocations:list", "inventories:list"):
            require(f"resource_providers:{rule}")
    return place, use_cases().host_views.show(place)


def _node(cluster: str, node: str) -> Response:
    """On to the host that a node is. Raises NotFound."""
    uuid = next((uuid for name, uuid in use_cases().clusters.nodes(cluster) if name == node), None)
    if uuid is None:
        raise NotFound(f"No node {node} found in cluster {cluster}; it may have been deleted.")
    return to(address(f"/hosts/{uuid}"))


def _host(uuid: str) -> Response:
    """A host as it is built, with everybody on it."""
    place, host = seen(uuid)
    lacks = _lacks()
    drawing = drawing_of(host, lacks)
    return shown(
        "host.html",
        lambda: {**_document(host), "drawn": plain(drawing)},
        _table(host),
        host=host,
        place=place,
        drawing=drawing,
        view=host.view,
        totals=_totals(host),
        marked=request.args.get("mark", ""),
        lacks=list(_in_words(host, lacks)),
        history=_history(place, host),
    )


def _document(host: HostView) -> dict[str, Any]:
    if host.node is not None:
        return node_body(host.node)
    providers = [
        {
            "uuid": member.uuid,
            "name": member.name,
            "generation": member.generation,
            "parent_id": member.parent_id,
            "id": member.id,
            "traits": member.traits,
            "aggregates": host.aggregates.get(member.id, ()),
            "resources": {
                record.class_name: {
                    "capacity": record.inventory.capacity,
                    "used": record.used,
                    **inventory_body(record.inventory),
                }
                for record in host.records.get(member.id, {}).values()
            },
        }
        for member in host.members
    ]
    return {"name": host.root.name, "providers": providers}


def _table(host: HostView) -> Any:
    names = ("provider", "uuid", "class", "used", "capacity", "total", "reserved", "allocation_ratio")
    return names, (
        (member.name, member.uuid, record.class_name, record.used, record.inventory.capacity,
         record.inventory.total, record.inventory.reserved, record.inventory.allocation_ratio)
        for member in host.members
        for record in host.records.get(member.id, {}).values()
    )  # fmt: skip


def _totals(host: HostView) -> Mapping[str, tuple[int, int]]:
    """Used and capacity over the tree, by class."""
    found: dict[str, tuple[int, int]] = {}
    for records in host.records.values():
        for record in records.values():
            used, most = found.get(record.class_name, (0, 0))
            capacity = max(record.inventory.capacity, 0)
            found[record.class_name] = (used + record.used, most + capacity)
    return dict(sorted(found.items()))


def _lacks() -> Lacks:
    """What the address says is missing: `lacks=provider,class,words`, any number of times."""
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


def _history(place: HostPlace, host: HostView) -> list[dict[str, Any]] | None:
    targets = [host.root.uuid, *(["/".join(place.node)] if place.node else ())]
    found = [history_of(AuditFilter(target=target), _HISTORY) for target in targets]
    if found[0] is None:
        return None
    return sorted(_flat(found), key=lambda record: -int(record["id"]))[:_HISTORY]


def _flat(found: list[list[dict[str, Any]] | None]) -> Iterator[dict[str, Any]]:
    for records in found:
        yield from records or ()
