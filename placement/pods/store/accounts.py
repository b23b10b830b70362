"""The accounts of nodes as they are stored: allocations and the owners of logical CPUs."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from placement.pods.state.host import Place
from placement.pods.state.node_info import CpuOwner, NodeAllocations, NodeInfo
from placement.pods.store import statements
from placement.storage.database import Executor


def stored_accounts(connection: Executor, nodes: Collection[NodeInfo]) -> dict[int, NodeAllocations]:
    """Return the stored allocations and CPU owners of nodes of one cluster, by their host providers."""
    if not nodes:
        return {}
    by_root = {node.root_id: node for node in nodes}
    cluster_id = next(iter(nodes)).cluster_id
    shares: dict[int, dict[str, dict[Place, int]]] = {root_id: {} for root_id in by_root}
    for use in statements.own_uses(connection, cluster_id, by_root.keys()):
        path = by_root[use.root_id].identity.path(use.provider_name)
        held = shares[use.root_id].setdefault(use.consumer_uuid, {})
        held[Place(path, use.class_name)] = use.amount
    owners: dict[int, Mapping[int, CpuOwner]] = {}
    stored = statements.owners(connection, [node.id for node in nodes])
    for root_id, node in by_root.items():
        owners[root_id] = {cpu: CpuOwner(*owner) for cpu, owner in stored.get(node.id, {}).items()}
        for owner in owners[root_id].values():
            shares[root_id].setdefault(owner.consumer, {})
    return {root_id: NodeAllocations(shares[root_id], owners[root_id]) for root_id in by_root}
