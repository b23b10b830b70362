"""The nodes of a cluster as pods would find them after a change: copies of NodeInfo, nothing is written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from uuid import uuid4

import orjson

from placement.allocations.world import NOTHING_DIFFERENT, WorldRequest, ended
from placement.engine.domain.errors import BadRequest
from placement.engine.domain.identifiers import normalize_uuid
from placement.engine.numa.host import HostTotals
from placement.engine.search.budget import Budget, SearchEnded
from placement.pods.cache import ClusterSnapshot
from placement.pods.host import HOST
from placement.pods.koordinator import policies
from placement.pods.koordinator.tree import HostIdentity
from placement.pods.node_info import NodeInfo, NodeTemplate
from placement.pods.node_loading import NodeLoader
from placement.pods.rules.between_pods import PlacedPods
from placement.pods.statements import nodes as node_rows
from placement.storage.database import Database

_MOST_NODES = 10_000
_HOSTNAME = "kubernetes.io/hostname"


@dataclass(frozen=True, slots=True)
class ImaginedCluster:
    """A cluster as it would be; `like[name]` is the uuid of the host that a new node is like."""

    view: ClusterSnapshot
    like: Mapping[str, str]


def imagined_cluster(
    database: Database, loader: NodeLoader, view: ClusterSnapshot, request: WorldRequest, budget: Budget
) -> ImaginedCluster:
    """Return the view after a change: with new nodes, which are empty, and without nodes that go.

    Nodes are named by node name, or by host name or uuid. Raises BadRequest naming the member,
    SearchTimeout, RequestTimeout.
    """
    if request == NOTHING_DIFFERENT:
        return ImaginedCluster(view, {})
    if request.inventories:
        raise BadRequest("world.inventories: is not for pods; what nodes offer them follows from manifests")
    try:
        return _imagined(database, loader, view, request, budget)
    except SearchEnded as error:
        raise ended(error) from error


def _imagined(
    database: Database, loader: NodeLoader, view: ClusterSnapshot, request: WorldRequest, budget: Budget
) -> ImaginedCluster:
    called = _called(view)
    new: list[NodeInfo] = []
    like: dict[str, str] = {}
    for at, each in enumerate(request.more):
        if len(new) + each.count > _MOST_NODES:
            raise BadRequest(f"world.more[{at}].count: at most {_MOST_NODES} nodes are imagined")
        node = _found(called, each.like)
        template = None if node is None else _without_pods(database, loader, node)
        if node is None or template is None:
            raise BadRequest(
                f"world.more[{at}].like: there is no node {each.like!r} in cluster {view.facts.name}"
            )
        copies = []
        for number in range(1, each.count + 1):
            budget.spend()
            copies.append(_empty(node, template, len(new) + number))
        like |= {copy.name: node.root_uuid for copy in copies}
        new += copies
    gone = {node.name for node in (_found(called, name) for name in request.without) if node is not None}
    # The counts for placing pods are of the cluster as it is, so they are left out.
    changed = replace(view, columns=view.columns.updated(new, gone), placed=PlacedPods())
    return ImaginedCluster(changed, like)


def _called(view: ClusterSnapshot) -> dict[str, NodeInfo]:
    """Return the nodes by each of their names: node name, host name, host uuid."""
    nodes = view.columns.nodes
    by_uuid = {node.root_uuid: node for node in nodes}
    return by_uuid | {node.provider_name: node for node in nodes} | {node.name: node for node in nodes}


def _found(called: Mapping[str, NodeInfo], name: str) -> NodeInfo | None:
    return called.get(name) or called.get(normalize_uuid(name) or "")


def _without_pods(database: Database, loader: NodeLoader, node: NodeInfo) -> NodeTemplate | None:
    """Return the template of a node as if it reported no pods, or None if it is gone meanwhile.

    CPUs of reported pods are taken off what a node offers, so its manifests are read anew without them.
    """
    imported = node.template.imported
    if not (imported.kubelet_pods or imported.reported_pods):
        return node.template
    with database.read() as connection:
        found = node_rows.manifests(connection, [node.id]).get(node.id)
    if found is None:
        return None
    manifest, topology = found
    report = None if topology is None else orjson.loads(topology)
    return loader.template(node.settings.profile, manifest, report and _without_reported_pods(report))


def _without_reported_pods(report: Mapping[str, Any]) -> dict[str, Any]:
    metadata = report["metadata"]
    annotations = {**(metadata.get("annotations") or {})}
    annotations.pop(policies.POD_CPU_ALLOCS, None)
    return {**report, "metadata": {**metadata, "annotations": annotations}}


def _empty(node: NodeInfo, template: NodeTemplate, number: int) -> NodeInfo:
    """Return an empty node like one, made from the template; each has a number of its own."""
    # No real node is called so, for names of nodes are DNS names, and ids of rows are positive.
    name, id_ = f"{node.name}~{number}", -number
    labels = node.attributes.labels
    if _HOSTNAME in labels:
        labels = {**labels, _HOSTNAME: name}
    identity = HostIdentity(node.identity.cluster, name, str(uuid4()))
    offered = template.offers.inventories.items()
    return replace(
        node,
        id=id_,
        name=name,
        root_id=id_,
        root_uuid=identity.uuid(),
        identity=identity,
        attributes=replace(node.attributes, name=name, labels=labels),
        template=template,
        pods=(),
        reservations=(),
        others={},
        unused={place.resource_class: each.capacity for place, each in offered if place.path == HOST},
        totals=HostTotals(node.totals.allocatable, {}),
        counted=None,
    )
