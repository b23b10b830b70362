"""The page of a host, whatever tree of providers it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from flask import Blueprint, Response, request

from placement.api.context import use_cases
from placement.api.rendering.clusters import node_body
from placement.api.rendering.providers import inventory_body
from placement.api.route_guard import PAGES, route
from placement.domain.errors import NotFound
from placement.domain.identifiers import normalize_uuid
from placement.services.host_views import HostView
from placement.web import units
from placement.web.host_boxes import plain
from placement.web.host_drawing import Lacks, drawing_of
from placement.web.permissions import may, require
from placement.web.shown import address, html, shown, to


def register(blueprint: Blueprint) -> None:
    """Add the routes; who may see a host depends on whether it is a node of a cluster."""
    # Whoever may list clusters may ask; `seen` asks for the rest.
    listing = "placement:clusters:list"
    host = f"{PAGES}/hosts/<uuid>"
    route(blueprint, host, "GET", listing, own_only=True)(_host)
    route(blueprint, f"{host}/providers", "GET", listing, own_only=True)(_providers)
    route(blueprint, f"{host}/drawing", "GET", listing, own_only=True)(_drawing)
    node = f"{PAGES}/nodes/<cluster>/<node>"
    route(blueprint, node, "GET", "placement:clusters:nodes:show")(_node)


def seen(uuid: str) -> HostView:
    """The tree in which a provider is. Raises NotFound, Forbidden."""
    return use_cases().host_views.show(normalize_uuid(uuid) or uuid, _check)


def _check(cluster: str | None) -> None:
    if cluster is not None:
        require("clusters:nodes:show", cluster)
    else:
        for rule in ("show", "allocations:list", "inventories:list"):
            require(f"resource_providers:{rule}")


def _node(cluster: str, node: str) -> Response:
    """On to the host that a node is. Raises NotFound."""
    uuid = next((uuid for name, uuid in use_cases().clusters.nodes(cluster) if name == node), None)
    if uuid is None:
        raise NotFound(f"No node {node} found in cluster {cluster}; it may have been deleted.")
    return to(address(f"/hosts/{uuid}"))


def _host(uuid: str) -> Response:
    """A host as it is built, with everybody on it."""
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
    """The drawing of a host alone, with what it lacks marked."""
    host = seen(uuid)
    return html("drawing.html", host=host, drawing=drawing_of(host, _lacks()))


def _providers(uuid: str) -> Response:
    """The providers of a host as they are stored."""
    host = seen(uuid)
    aggregates = use_cases().host_views.aggregates([member.id for member in host.members])
    document = {"name": host.root.name, "providers": list(_stored(host, aggregates))}
    return shown("providers.html", document, lambda: _table(host), host=host, aggregates=aggregates)


def _document(host: HostView) -> dict[str, Any]:
    if host.node is not None:
        return node_body(use_cases().clusters.node(host.node.cluster, host.node.name))
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
                record.class_name: {
                    "capacity": record.inventory.capacity,
                    "used": record.used,
                    **inventory_body(record.inventory),
                }
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


def _history(host: HostView) -> str | None:
    """Where the changes of a host are listed, None for who may not see any."""
    if not may("audit:list"):
        return None
    targets = [host.root.uuid, *([f"{host.node.cluster}/{host.node.name}"] if host.node else ())]
    return f"{address('/changes')}?{urlencode([('target', target) for target in targets])}"
