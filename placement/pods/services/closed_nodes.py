"""Nodes that refuse pods whatever is free there, and why."""

from __future__ import annotations

from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

from placement.allocations.kubernetes_resources import host_class
from placement.allocations.orders import PODS
from placement.common.manifest import shown
from placement.pods.state.host import HOST, Place
from placement.pods.state.node_info import NodeInfo
from placement.pods.store.cache import ClusterCache


class Closure(StrEnum):
    """A reason why a node takes no pods, or only some."""

    CLOSED = "closed"
    CORDONED = "cordoned"
    TAINTED = "tainted"
    UNREADABLE = "unreadable"


class ClosedNode(NamedTuple):
    """A node that refuses some pods, or all, for another reason than room; `provider` is its host's uuid."""

    cluster: str
    node: str
    provider: str
    closure: Closure
    why: str


class NodeState(NamedTuple):
    """The state of a node: how many pods count on it, why it is closed to pods, if it is, and its uid."""

    pods: int
    closed: list[Closure]
    uid: str | None


class ClosedNodes:
    """The closed nodes of clusters."""

    for_bound_callers = True

    def __init__(self, cluster_cache: ClusterCache) -> None:
        self._cluster_cache = cluster_cache

    def of(self, cluster: str) -> list[ClosedNode]:
        """Return the nodes of a cluster that refuse pods, by name, one for each reason.

        Raises NotFound, Unavailable.
        """
        nodes = sorted(self._cluster_cache.snapshot(cluster).nodes.values(), key=lambda node: node.name)
        return [
            ClosedNode(cluster, node.name, node.root_uuid, closure, why)
            for node in nodes
            for closure, why in closures(node)
        ]

    def states(self, cluster: str) -> dict[str, NodeState]:
        """Return the states of the nodes of a cluster by name. Raises NotFound, Unavailable."""
        nodes = self._cluster_cache.snapshot(cluster).nodes.values()
        return {
            node.name: NodeState(
                _pods_on(node), list(dict.fromkeys(by for by, _ in closures(node))), node.identity.uid
            )
            for node in nodes
        }


def _pods_on(node: NodeInfo) -> int:
    """Return how many of the pods that the node may have are taken; if it has no limit, its pods."""
    name = host_class(PODS).name
    limit = node.offers.capacities.get(Place(HOST, name))
    return len(node.pods) if limit is None else limit - node.unused.get(name, limit)


def closures(node: NodeInfo) -> Iterator[tuple[Closure, str]]:
    """Yield the reasons for which a node takes no pods, or only some."""
    if node.attributes.closed is not None:
        yield Closure.CLOSED, f"it takes no new pod: {shown(node.attributes.closed)}"
    if node.attributes.unschedulable:
        yield Closure.CORDONED, "it is cordoned (spec.unschedulable)"
    for taint in node.attributes.taints:
        if taint.effect != "PreferNoSchedule":
            yield Closure.TAINTED, f"the taint {taint} keeps off pods that do not tolerate it"
    for finding in node.template.node_import.unreadable:
        yield (
            Closure.UNREADABLE,
            f"no pod is bound there, as its reservation of CPUs cannot be read: {finding}",
        )
    for pod in node.pods:
        if pod.unreadable:
            why = f"no pod is bound there while the resource-status of pod {pod.full_name} cannot be read"
            yield Closure.UNREADABLE, why
