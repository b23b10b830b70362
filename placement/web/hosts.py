"""The pages of a host, whatever tree of providers it is."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import orjson
from flask import Response, request

from placement.engine.domain.errors import NotFound
from placement.engine.domain.identifiers import normalize_uuid
from placement.engine.numa.cpus import format_cpu_list
from placement.http.context import service
from placement.http.schemas import dump
from placement.pods.schemas import CapacityRecordSchema, NodeSchema
from placement.pods.services.clusters import Clusters
from placement.pods.services.node_view import NodeView
from placement.pods.services.views import HostView, HostViews
from placement.providers.statements.clusters import Aggregate
from placement.providers.use_history import UseHistory
from placement.web import units
from placement.web.answers import address, html, shown, to
from placement.web.callers import clusters, may, require
from placement.web.claimed_host import after_claim
from placement.web.claims import claim_of
from placement.web.host_boxes import plain
from placement.web.host_drawing import Lacks, drawing_of
from placement.web.templating import page


def seen(uuid: str) -> HostView:
    """Return the tree that a provider is in. Raises NotFound, Forbidden.

    A caller that may list clusters may ask for a host. The rest is required here, as it depends on whether
    the host is a node of a cluster.
    """
    return service(HostViews).show(normalize_uuid(uuid) or uuid, _check)


def _check(cluster: str | None) -> None:
    if cluster is not None:
        require("clusters:nodes:show", cluster)
    else:
        for rule in ("show", "allocations:list", "inventories:list"):
            require(f"resource_providers:{rule}")


@page("/nodes/<cluster>/<node>", rule="clusters:nodes:show")
def _node(cluster: str, node: str) -> Response:
    uuid = next((each.root_uuid for each in service(Clusters).nodes(cluster) if each.name == node), None)
    if uuid is None:
        raise NotFound(f"No node {node} found in cluster {cluster}; it may have been deleted.")
    return to(address(f"/hosts/{uuid}"))


@page("/hosts/<uuid>")
def _host(uuid: str) -> Response:
    host = seen(uuid)
    lacks = _lacks()
    drawing = drawing_of(host, lacks)
    asked_for = host.asked_for if host.asked_for != host.root.uuid else request.args.get("mark", "")
    totals: dict[str, tuple[int, int]] = {}
    for record in (record for records in host.records.values() for record in records.values()):
        used, capacity = totals.get(record.class_name, (0, 0))
        totals[record.class_name] = (used + record.used, capacity + max(record.inventory.capacity, 0))
    names = {member.uuid: member.name for member in host.members}
    sentences = [
        " ".join(filter(None, (f"{names.get(uuid, uuid)}:", units.plain(resource_class), words)))
        for uuid, missing in lacks.items()
        for resource_class, words in missing.items()
    ]
    return shown(
        "host.html",
        lambda: {**_document(host), "drawn": plain(drawing)},
        lambda: _table(host),
        host=host,
        drawing=drawing,
        view=host.view,
        totals=dict(sorted(totals.items(), key=lambda each: units.order(each[0]))),
        overfull=[] if host.view is not None else list(_overfull(host)),
        pools=[] if host.view is None else _pools(host.view),
        marked=asked_for,
        lacks=sentences,
        days=service(UseHistory).of_host(host.root.id),
        history=_history(host),
        sees_consumers=may("allocations:list"),
    )


def _overfull(host: HostView) -> Iterator[str]:
    """Yield a sentence for each inventory with more in use than there is; nodes have remarks that say so."""
    for member in host.members:
        for record in host.records.get(member.id, {}).values():
            capacity, name = max(record.inventory.capacity, 0), record.class_name
            if record.used > capacity:
                used = units.share(record.used, capacity, name)
                yield f"{units.plain(name)} of {member.name} is overfull: {used} in use."


def _pools(view: NodeView) -> list[tuple[str, int, int, str, str]]:
    """Return shared pools as rows: class, socket, NUMA node, CPUs as computed and as reported."""
    found: dict[tuple[str, int, int], list[str]] = {}
    for name, *sources in (
        ("LS", view.ls_pools, view.reported_ls_pools),
        ("BE", view.be_pools, view.reported_be_pools),
    ):
        for column, pools in enumerate(sources):
            for pool in pools:
                row = found.setdefault((name, pool.socket, pool.numa), ["", ""])
                row[column] = format_cpu_list(pool.cpus)
    return [(*place, computed, reported) for place, (computed, reported) in found.items()]


@page("/hosts/<uuid>/drawing")
def _drawing(uuid: str) -> Response:
    """Draw a host, with what it lacks marked, or as it would be after a claim."""
    host = seen(uuid)
    if "claim" in request.args:
        host = after_claim(host, claim_of(request.args["claim"]))
    return html("drawing.html", host=host, drawing=drawing_of(host, _lacks()))


@page("/hosts/<uuid>/providers")
def _providers(uuid: str) -> Response:
    host = seen(uuid)
    aggregates = service(HostViews).aggregates([member.id for member in host.members])
    document = _stored(host, aggregates)
    return shown("providers.html", document, lambda: _table(host), host=host, aggregates=aggregates)


def _document(host: HostView) -> Any:
    if host.node is not None:
        return dump(NodeSchema, service(Clusters).node(host.node.cluster, host.node.name))
    return _stored(host, service(HostViews).aggregates([member.id for member in host.members]))


def _stored(host: HostView, aggregates: Mapping[int, Sequence[Aggregate]]) -> dict[str, Any]:
    providers = [
        {
            "uuid": member.uuid,
            "name": member.name,
            "generation": member.generation,
            "parent_id": member.parent_id,
            "id": member.id,
            "traits": member.traits,
            "aggregates": [each.uuid for each in aggregates.get(member.id, ())],
            "resources": {
                record.class_name: dump(CapacityRecordSchema, record)
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


def _lacks() -> Lacks:
    """Return what the address names as missing: `lacks=provider,class,words`, any number of times."""
    found: dict[str, dict[str, str]] = {}
    for text in request.args.getlist("lacks"):
        uuid, _, rest = text.partition(",")
        name, _, words = rest.partition(",")
        found.setdefault(uuid, {})[name] = words
    return found


def _history(host: HostView) -> str | None:
    """Return the address of the changes of a host, or None if the caller may not see any."""
    if not may("audit:list"):
        return None
    targets = [host.root.uuid, *([f"{host.node.cluster}/{host.node.name}"] if host.node else ())]
    return f"{address('/changes')}?{urlencode([('target', target) for target in targets])}"


@page("/names/clusters")
def _clusters() -> Response:
    body = orjson.dumps({"names": [each.name for each in clusters()]})
    return Response(body, content_type="application/json")
