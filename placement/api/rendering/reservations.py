"""Bodies about reservations."""

from __future__ import annotations

from typing import Any

from placement.dialects.koordinator.pod.annotations import (
    ResourceStatus,
    quantities,
    status_document,
)
from placement.dialects.koordinator.reservation.terms import AllocatePolicy
from placement.dialects.koordinator.status.recorded_pod import RecordedPod
from placement.numa.cpuset import format_cpu_list
from placement.services.clusters.reservations import ReservationAnswer, ReservationPage


def reservation_body(cluster: str, reservation: ReservationAnswer) -> dict[str, Any]:
    """One reservation: where it is, what it was given, what of that is left, and who uses it."""
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
    """Reservations in the order in which they were made; `next` is the marker of the following page."""
    return {
        "reservations": [reservation_body(cluster, each) for each in page.reservations],
        "next": page.next,
    }


def holding_body(pod: RecordedPod) -> dict[str, Any]:
    """What it holds: CPUs, amounts on NUMA nodes as in a resource-status, and of the host as a whole."""
    amounts = status_document(ResourceStatus(amounts=pod.holding.amounts)).get("numaNodeResources", [])
    return {
        "cpuset": format_cpu_list(pod.holding.cpus),
        "numaNodeResources": amounts,
        "resources": quantities(pod.requests),
    }
