"""Bodies of clusters and nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from placement.allocations.orders import scoring_remarks
from placement.allocations.rendering import explanation_body
from placement.engine.numa.cpus import SharedPool
from placement.engine.numa.cpuset import format_cpu_list
from placement.engine.numa.demand import Refusal
from placement.pods.clusters import NodeTree
from placement.pods.cycle import Kept
from placement.pods.koordinator.annotations import quantities, status_document
from placement.pods.model import AllocatePolicy, KubeletPod, RecordedPod, ResourceStatus
from placement.pods.placing import PodPage, Preview
from placement.pods.reservations import ReservationAnswer, ReservationPage
from placement.pods.rows import PodAnswer
from placement.pods.views import CpuView, NodeView
from placement.providers.schemas import inventory_body

# Bodies about reservations.


def reservation_body(cluster: str, reservation: ReservationAnswer) -> dict[str, Any]:
    """Return the body of a reservation: its place, what it was given, what is left, and current owners."""
    pod, terms = reservation.pod, reservation.held.keeps
    assert terms is not None
    return {
        "cluster": cluster,
        "name": pod.name,
        "uid": pod.uid,
        "consumer_uuid": pod.consumer_uuid,
        "node": pod.node,
        "resource_provider": pod.resource_provider,
        "phase": reservation.phase,
        "allocate_once": terms.allocate_once,
        "allocate_policy": str(terms.policy) or AllocatePolicy.DEFAULT.name.title(),
        "expires_at": None if terms.expires_at is None else f"{terms.expires_at.isoformat()}Z",
        "owners": [owner.document() for owner in terms.owners],
        "held": holding_body(reservation.held),
        "left": None if reservation.left is None else holding_body(reservation.left),
        "current_owners": [
            {"namespace": owner.namespace, "name": owner.name, "uid": owner.uid}
            for owner in reservation.owners
        ],
        "score": pod.score,
        "warnings": pod.warnings,
        "remarks": pod.remarks,
        "unreadable": pod.unreadable,
    }


def reservations_body(cluster: str, page: ReservationPage) -> dict[str, Any]:
    """Return reservations in the order of their creation; `next` is the marker of the following page."""
    return {
        "reservations": [reservation_body(cluster, each) for each in page.reservations],
        "next": page.next,
    }


def holding_body(pod: RecordedPod) -> dict[str, Any]:
    """Return what it holds: CPUs, amounts on NUMA nodes as in a resource-status, and amounts of the host."""
    amounts = status_document(ResourceStatus(amounts=pod.holding.amounts)).get("numaNodeResources", [])
    return {
        "cpuset": format_cpu_list(pod.holding.cpus),
        "numaNodeResources": amounts,
        "resources": quantities(pod.requests),
    }


def cluster_body(cluster: Any) -> dict[str, Any]:
    """Return the body of a cluster; with `remarks` if its settings of scores have parts without effect."""
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
    """Return the body of a node: its provider tree, capacity and use of every record, sums over the tree."""
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


# Bodies about pods.


_PINNED_UNSEEN = "kubelet pins the pod to CPUs that no pod-cpu-allocs entry names: its CPUs are not known"


def pod_body(cluster: str, pod: PodAnswer) -> dict[str, Any]:
    """Return the body of a pod; the annotations are ready to be written to it."""
    return {
        "cluster": cluster,
        "namespace": pod.namespace,
        "name": pod.name,
        "uid": pod.uid,
        "consumer_uuid": pod.consumer_uuid,
        "node": pod.node,
        "resource_provider": pod.resource_provider,
        "phase": pod.phase,
        "qos_class": pod.qos or None,
        "kubernetes_qos_class": pod.kubernetes_qos,
        "scheduled": pod.scheduled,
        "cpuset": pod.cpuset,
        "annotations": pod.annotations,
        "containers": [_container_body(pod, name) for name in pod.containers],
        "score": pod.score,
        "warnings": pod.warnings,
        "remarks": (*pod.remarks, _PINNED_UNSEEN) if pod.is_pinned_unseen else pod.remarks,
        "unreadable": pod.unreadable,
    }


def _container_body(pod: PodAnswer, name: str) -> dict[str, Any]:
    body: dict[str, Any] = {"name": name, "lift_cfs_quota": pod.lifts_cfs_quota}
    return body if pod.node is None else {**body, "cpuset": pod.container_cpus}


def page_body(cluster: str, page: PodPage) -> dict[str, Any]:
    """Return pods in the order in which they were recorded; `next` is the marker of the following page."""
    return {"pods": [pod_body(cluster, pod) for pod in page.pods], "next": page.next}


def claims_body(cluster: str, page: PodPage) -> dict[str, Any]:
    """Return pods with `changed_at`, by which a claim can be released unless it was claimed again since."""
    pods = [{**pod_body(cluster, pod), "changed_at": pod.changed_at} for pod in page.pods]
    return {"pods": pods, "next": page.next}


def preview_body(cluster: str, preview: Preview) -> dict[str, Any]:
    """Return where a pod would go, best first, and why it is refused elsewhere."""
    return {
        "cluster": cluster,
        "message": preview.message,
        "nodes": [
            {
                "name": place.answer.node,
                "resource_provider": place.answer.resource_provider,
                "score": place.answer.score,
                "cpuset": place.answer.cpuset,
                "annotations": place.answer.annotations,
                "remarks": place.answer.remarks,
            }
            for place in preview.places
        ],
        "fitting": preview.fitting,
        "rejected": refusals_body(preview.refusals),
        "explanation": explanation_body(preview.explanation),
        "warnings": preview.warnings,
    }


def refusals_body(refusals: Mapping[str, Refusal], most: int | None = None) -> list[dict[str, Any]]:
    """Return why nodes refuse a pod, sorted by name and at most `most`: equal requests have equal answers."""
    return [
        {"node": name, "reasons": refusal.reasons, "status": str(refusal.status)}
        for name, refusal in sorted(refusals.items(), key=lambda item: item[0])[:most]
    ]
