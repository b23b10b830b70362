"""/ext/v1/clusters: Kubernetes clusters and their nodes."""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Response

from placement.api import context
from placement.api.bodies import json_body_or, manifests
from placement.api.context import use_cases
from placement.api.described import EMPTY, JSON_OR_YAML, Operation
from placement.api.errors import error_document, status_of
from placement.api.rendering.clusters import cluster_body, node_body
from placement.api.responses import empty_response, json_response, list_response
from placement.api.route_guard import route
from placement.api.schemas.answers.clusters import (
    Clusters,
    ClusterShown,
    Node,
    NodeImported,
    Nodes,
    NodesImported,
)
from placement.api.schemas.clusters import ClusterSettings
from placement.api.schemas.manifests import NODE_AND_TOPOLOGY
from placement.domain.errors import BadRequest, PlacementError
from placement.services.bounds import MOST_MANIFESTS
from placement.services.clusters.node_importing import ImportedNode
from placement.services.clusters.node_imports import Described
from placement.services.manifests import node_manifests, nodes_manifests

blueprint = Blueprint("clusters", __name__)
_ALL = "/ext/v1/clusters"
_ONE = "/ext/v1/clusters/<cluster>"
_NODES = "/ext/v1/clusters/<cluster>/nodes"
_NODE = "/ext/v1/clusters/<cluster>/nodes/<node>"
_RULE = "placement:clusters:"


@route(
    blueprint,
    _ALL,
    "GET",
    f"{_RULE}list",
    gives_json=True,
    own_only=True,
    described=Operation({200: Clusters}),
)
def listed() -> Response:
    """All clusters that the caller may see."""
    own = context.current().caller.clusters
    shown = [cluster for cluster in use_cases().clusters.listed() if own is None or cluster.name in own]
    return json_response({"clusters": [cluster_body(cluster) for cluster in shown]})


@route(blueprint, _ONE, "GET", f"{_RULE}show", gives_json=True, described=Operation({200: ClusterShown}))
def show(cluster: str) -> Response:
    """One cluster."""
    return json_response(cluster_body(use_cases().clusters.get(cluster)))


@route(
    blueprint,
    _ONE,
    "PUT",
    f"{_RULE}update",
    described=Operation(
        {200: ClusterShown, 201: ClusterShown},
        errors=[409],
        body=ClusterSettings,
        body_required=False,
    ),
)
def put(cluster: str) -> Response:
    """Create a cluster or change its settings; the body may be empty."""
    settings: Any = json_body_or({})
    if not isinstance(settings, dict):
        raise BadRequest("the body must be an object with the cluster's settings")
    created, stored = use_cases().clusters.put(cluster, settings)
    return json_response(cluster_body(stored), 201 if created else 200)


@route(blueprint, _ONE, "DELETE", f"{_RULE}delete", described=Operation({204: EMPTY}, errors=[409]))
def delete(cluster: str) -> Response:
    """Delete a cluster without nodes."""
    use_cases().clusters.delete(cluster)
    return empty_response()


@route(blueprint, _NODES, "GET", f"{_RULE}nodes:list", gives_json=True, described=Operation({200: Nodes}))
def nodes(cluster: str) -> Response:
    """The nodes of a cluster."""
    found = use_cases().clusters.nodes(cluster)
    return list_response("nodes", found, lambda node: {"name": node[0], "resource_provider": node[1]})


@route(blueprint, _NODE, "GET", f"{_RULE}nodes:show", gives_json=True, described=Operation({200: Node}))
def show_node(cluster: str, node: str) -> Response:
    """One node with its tree, capacity and use."""
    return json_response(node_body(use_cases().clusters.node(cluster, node)))


@route(
    blueprint,
    _NODE,
    "PUT",
    f"{_RULE}nodes:update",
    described=Operation(
        {200: NodeImported, 201: NodeImported},
        errors=[409],
        body=NODE_AND_TOPOLOGY,
        body_types=JSON_OR_YAML,
    ),
)
def put_node(cluster: str, node: str) -> Response:
    """Import a Node and its NodeResourceTopology, as JSON or YAML."""
    described = node_manifests(manifests())
    imported = use_cases().nodes.put(cluster, node, described.node, described.topology)
    body = {"cluster": cluster, "name": node, **_changes(imported)}
    return json_response(body, 201 if imported.created else 200)


@route(
    blueprint,
    _NODES,
    "POST",
    f"{_RULE}nodes:update",
    described=Operation({200: NodesImported}, errors=[409], body=NODE_AND_TOPOLOGY, body_types=JSON_OR_YAML),
)
def post_nodes(cluster: str) -> Response:
    """Import many Nodes with their NodeResourceTopologies, as a List or several documents.

    All are written in one transaction, but what is refused of one node keeps no other from being imported.
    Nodes whose manifests are those imported last are not looked at again.
    """
    described = [
        Described(name, each.node, each.topology)
        for name, each in nodes_manifests(manifests(MOST_MANIFESTS)).items()
    ]
    outcomes = use_cases().nodes.put_all(cluster, described)
    shown = [_outcome(each.name, outcome) for each, outcome in zip(described, outcomes, strict=True)]
    return json_response({"cluster": cluster, "nodes": shown})


def _outcome(name: str, outcome: ImportedNode | PlacementError) -> dict[str, Any]:
    if isinstance(outcome, PlacementError):
        return {"name": name, "status": status_of(outcome), "error": error_document(outcome, f"node {name}")}
    return {"name": name, "status": 201 if outcome.created else 200, **_changes(outcome)}


def _changes(imported: ImportedNode) -> dict[str, Any]:
    return {
        "created": imported.change.created,
        "changed": imported.change.changed,
        "deleted": imported.change.deleted,
        "warnings": imported.warnings,
    }


@route(blueprint, _NODE, "DELETE", f"{_RULE}nodes:delete", described=Operation({204: EMPTY}, errors=[409]))
def delete_node(cluster: str, node: str) -> Response:
    """Delete a node that nobody uses."""
    use_cases().nodes.delete(cluster, node)
    return empty_response()
