"""Nodes that refuse pods whatever is free there, and why."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from placement.scheduling.node_info import NodeInfo
from placement.services.following.cluster_cache import ClusterCache


class ClosedNode(NamedTuple):
    """A node that refuses some pods, or all, for another reason than room; `provider` is its host's uuid."""

    cluster: str
    node: str
    provider: str
    why: str


class ClosedNodes:
    """Looks at all nodes of a cluster."""

    def __init__(self, cluster_cache: ClusterCache) -> None:
        self._cluster_cache = cluster_cache

    def of(self, cluster: str) -> list[ClosedNode]:
        """The nodes of a cluster that refuse pods, by name. Raises NotFound, Unavailable."""
        view = self._cluster_cache.view(cluster)
        nodes = sorted(view.nodes.values(), key=lambda node: node.name)
        return [
            ClosedNode(cluster, node.name, node.root_uuid, why) for node in nodes for why in _reasons(node)
        ]


def _reasons(node: NodeInfo) -> Iterator[str]:
    if node.attributes.unschedulable:
        yield "it is cordoned (spec.unschedulable)"
    for taint in node.attributes.taints:
        if taint.effect != "PreferNoSchedule":
            yield f"the taint {taint} keeps pods off that do not tolerate it"
    for pod in node.pods:
        if pod.unreadable:
            yield f"no pod is bound there while the resource-status of pod {pod.full_name} cannot be read"
