"""Bodies of clusters and nodes."""

from __future__ import annotations

from typing import Any

from placement.api.rendering.providers import inventory_body
from placement.services.clusters import NodeTree


def cluster_body(cluster: Any) -> dict[str, Any]:
    """One cluster."""
    return {
        "name": cluster.name,
        "uuid": cluster.uuid,
        "aggregate": cluster.aggregate_uuid,
        "nodes": cluster.nodes,
        **cluster.settings,
    }


def node_body(tree: NodeTree) -> dict[str, Any]:
    """One node with its provider tree, the capacity and use of every record, and the sums over the tree."""
    children: dict[int | None, list[Any]] = {}
    for member in tree.members:
        children.setdefault(member.parent_id, []).append(member)
    totals: dict[str, dict[str, int]] = {}
    for records in tree.records.values():
        for record in records.values():
            total = totals.setdefault(record.class_name, {"capacity": 0, "used": 0})
            total["capacity"] += record.inventory.capacity
            total["used"] += record.used
    return {
        "cluster": tree.cluster.name,
        "name": tree.node.name,
        "imported_at": f"{tree.node.imported_at.isoformat(timespec='seconds')}Z",
        "resources": dict(sorted(totals.items())),
        "tree": _provider(tree, children[None][0], children),
    }


def _provider(tree: NodeTree, member: Any, children: dict[int | None, list[Any]]) -> dict[str, Any]:
    records = tree.records.get(member.id, {})
    return {
        "uuid": member.uuid,
        "name": member.name,
        "generation": member.generation,
        "traits": member.traits,
        "resources": {
            record.class_name: {
                "capacity": record.inventory.capacity,
                "used": record.used,
                **inventory_body(record.inventory),
            }
            for record in records.values()
        },
        "children": [_provider(tree, child, children) for child in children.get(member.id, [])],
    }
