"""Bodies of clusters and nodes."""

from __future__ import annotations

from typing import Any

from placement.api.rendering.providers import inventory_body
from placement.api.rendering.reservations import holding_body
from placement.dialects.koordinator.node.host_cpus import KubeletPod
from placement.dialects.koordinator.settings.scoring import scoring_remarks
from placement.numa.cpuset import format_cpu_list
from placement.numa.pools import SharedPool
from placement.scheduling.reservation_looks import Kept
from placement.services.clusters.clusters import NodeTree
from placement.services.clusters.node_views import CpuView, NodeView


def cluster_body(cluster: Any) -> dict[str, Any]:
    """One cluster; with `remarks` if its settings of scores contain something without effect."""
    remarks = scoring_remarks(cluster.settings)
    return {
        "name": cluster.name,
        "uuid": cluster.uuid,
        "aggregate": cluster.aggregate_uuid,
        "nodes": cluster.nodes,
        **cluster.settings,
        **({"remarks": remarks} if remarks else {}),
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
        **_view_body(tree.view),
    }


def _view_body(view: NodeView) -> dict[str, Any]:
    takeover = {"state": str(view.takeover), "warning": view.takeover_warning}
    return {
        "cpus": [_cpu_body(cpu) for cpu in view.cpus],
        "ls_pools": [_pool_body(pool) for pool in view.ls_pools],
        "be_pools": [_pool_body(pool) for pool in view.be_pools],
        "reported_ls_pools": [_pool_body(pool) for pool in view.reported_ls_pools],
        "reported_be_pools": [_pool_body(pool) for pool in view.reported_be_pools],
        "kubelet_pods": [_reported_body(*entry) for entry in view.kubelet_pods],
        "reported_pods": [_reported_body(*entry) for entry in view.reported_pods],
        "remarks": view.remarks,
        "takeover": takeover,
        "pods": [
            {
                "namespace": pod.namespace,
                "name": pod.name,
                "uid": pod.uid,
                "consumer_uuid": pod.consumer,
                "qos_class": pod.qos or None,
                "cpuset": format_cpu_list(listed),
                "container_cpus": None if cpus is None else format_cpu_list(cpus),
            }
            for pod, listed, cpus in view.pods
        ],
        "quarantine": [{"pod": pod.full_name, "unreadable": pod.unreadable} for pod in view.quarantined_by],
        **({"reservations": [_kept_body(kept) for kept in view.reservations]} if view.reservations else {}),
    }


def _kept_body(kept: Kept) -> dict[str, Any]:
    return {
        "name": kept.held.name,
        "uid": kept.held.uid,
        "consumer_uuid": kept.held.consumer,
        "held": holding_body(kept.held),
        "left": holding_body(kept.left),
    }


def _reported_body(consumer: str, pod: KubeletPod) -> dict[str, Any]:
    return {
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
        "consumer_uuid": consumer,
        "cpuset": format_cpu_list(pod.cpus),
    }


def _cpu_body(view: CpuView) -> dict[str, Any]:
    cpu = view.cpu
    body: dict[str, Any] = {
        "cpu": cpu.cpu,
        "core": cpu.core,
        "numa": cpu.numa,
        "socket": cpu.socket,
        "owner": view.owner,
    }
    if view.pods:
        owner, *others = view.pods
        body |= {
            "pod": owner.full_name,
            "qos_class": owner.qos or None,
            "exclusive": str(owner.holding.level),
        }
        body |= {"shared_with": [pod.full_name for pod in others]} if others else {}
    if view.kubelet_pod is not None:
        body["pod"] = f"{view.kubelet_pod.namespace}/{view.kubelet_pod.name}"
    if view.reservation is not None:
        body["reservation"] = view.reservation
    if view.consumer is not None:
        body["consumer_uuid"] = view.consumer
    return body


def _pool_body(pool: SharedPool) -> dict[str, Any]:
    return {"socket": pool.socket, "node": pool.numa, "cpuset": format_cpu_list(pool.cpus)}


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
