"""Clusters as pods would find them after a change: with nodes that are imagined, or without some."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from uuid import uuid4

import orjson

from placement.allocations.world import NOTHING_DIFFERENT, WorldRequest, not_imagined
from placement.engine.domain.errors import BODY, BadRequest, NameKind, NamesOf
from placement.engine.domain.identifiers import normalize_uuid
from placement.engine.numa.host import HostTotals
from placement.engine.search.budget import Budget, SearchEnded
from placement.pods.decide.rules.placed_pods import PlacedPods
from placement.pods.koordinator import annotations as keys
from placement.pods.manifests.selection import CORDONED
from placement.pods.state.host import HOST
from placement.pods.state.model import HostIdentity
from placement.pods.state.node_info import NodeInfo, NodeTemplate
from placement.pods.store import statements
from placement.pods.store.cache import ClusterSnapshot
from placement.pods.store.loader import NodeLoader
from placement.pods.store.topologies import canonical_report
from placement.storage.database import Database

_MOST_NODES = 10_000
_HOSTNAME = "kubernetes.io/hostname"


ImaginedCluster = tuple[ClusterSnapshot, Mapping[str, str]]
"""A cluster as it would be, and the uuid of the host that each new node is like, by its name."""


def with_all_open(snapshot: ClusterSnapshot) -> ClusterSnapshot:
    """Return the snapshot as if no node were cordoned or closed; other taints stay."""
    opened = []
    for node in snapshot.columns.nodes:
        attributes = node.attributes
        if attributes.unschedulable or attributes.closed is not None:
            taints = tuple(taint for taint in attributes.taints if taint.key != CORDONED.key)
            attributes = replace(attributes, unschedulable=False, closed=None, taints=taints)
            opened.append(replace(node, attributes=attributes))
    return replace(snapshot, columns=snapshot.columns.updated(opened)) if opened else snapshot


def imagined_cluster(
    database: Database, loader: NodeLoader, snapshot: ClusterSnapshot, request: WorldRequest, budget: Budget
) -> ImaginedCluster:
    """Return the snapshot after a change: with new nodes, which are empty, and without nodes that go.

    Nodes are named by node name, or by host name or uuid. Raises BadRequest naming the member,
    SearchTimeout, RequestTimeout.
    """
    if request == NOTHING_DIFFERENT:
        return snapshot, {}
    if request.inventories:
        raise BadRequest(
            "is not for pods; the amounts of nodes follow from their manifests",
            place=BODY / "world" / "inventories",
        )
    nodes = snapshot.columns.nodes
    called = {node.root_uuid: node for node in nodes}
    called |= {node.provider_name: node for node in nodes} | {node.name: node for node in nodes}

    def known(name: str) -> NodeInfo | None:
        return called.get(name) or called.get(normalize_uuid(name) or "")

    new_nodes: list[NodeInfo] = []
    like: dict[str, str] = {}
    for at, each in enumerate(request.more):
        if len(new_nodes) + each.count > _MOST_NODES:
            raise BadRequest(
                f"at most {_MOST_NODES} nodes are allowed", place=BODY / "world" / "more" / at / "count"
            )
        node = known(each.like)
        template = None if node is None else _without_pods(database, loader, node)
        if node is None or template is None:
            raise BadRequest(
                f"there is no node {each.like!r} in cluster {snapshot.facts.name}",
                place=BODY / "world" / "more" / at / "like",
                value=each.like,
                known=NamesOf(NameKind.NODE, snapshot.facts.name),
            )
        for copy in _copies(node, template, each.count, len(new_nodes) + 1, budget):
            like[copy.name] = node.root_uuid
            new_nodes.append(copy)
    gone = {node.name for node in map(known, request.without) if node is not None}
    # The counts for placing pods are of the cluster as it is, so they are left out.
    changed = replace(snapshot, columns=snapshot.columns.updated(new_nodes, gone), placed=PlacedPods())
    return changed, like


def _copies(
    node: NodeInfo, template: NodeTemplate, count: int, first: int, budget: Budget
) -> Iterator[NodeInfo]:
    """Yield empty nodes like one, with numbers from `first`. Raises SearchTimeout, RequestTimeout."""
    for number in range(first, first + count):
        try:
            budget.spend()
        except SearchEnded as error:
            raise not_imagined(error) from error
        yield _empty(node, template, number)


def _without_pods(database: Database, loader: NodeLoader, node: NodeInfo) -> NodeTemplate | None:
    """Return the template of a node as if it reported no pods, or None if it is gone meanwhile.

    CPUs of reported pods are subtracted from the offer of a node, so its manifests are read without them.
    """
    imported = node.template.node_import
    if not (imported.kubelet_pods or imported.reported_pods):
        return node.template
    with database.read() as connection:
        found = statements.node_manifests(connection, [node.id]).get(node.id)
    if found is None:
        return None
    manifest, topology = found
    report = None if topology is None else orjson.loads(topology)
    if report:
        (report["metadata"].get("annotations") or {}).pop(keys.POD_CPU_ALLOCS, None)
    return loader.template(node.settings.profile, manifest, canonical_report(report))


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
        beside={},
        unused={place.resource_class: each.capacity for place, each in offered if place.path == HOST},
        totals=HostTotals(node.totals.allocatable, {}),
        counted=None,
    )
