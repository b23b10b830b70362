"""Audit records of pods and reservations that come, change and leave."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from placement.common.pod_identity import ENDED_PHASES
from placement.engine.domain.audit import Action, AuditRecord, TargetKind
from placement.pods.store.answers import PodAnswer
from placement.pods.store.rows import consumer_of
from placement.pods.store.statements import RESERVED, StoredPod

_POD_AUDIT_MEMBERS = ("uid", "node", "qos", "cpuset", "phase")


def arrived(cluster: str, answer: PodAnswer, stored_pod: StoredPod | None = None) -> AuditRecord:
    """Return the record of a pod that came or was reported; `stored_pod` is its row, if it had one.

    A pod that has ended stopped being a consumer; its allocations have a record of their own.
    """
    return AuditRecord(
        Action.CREATE if stored_pod is None else Action.UPDATE,
        *_named(cluster, answer.namespace, answer.name),
        before=None if stored_pod is None else _described(stored_pod),
        after={name: value for name in _POD_AUDIT_MEMBERS if (value := getattr(answer, name))},
        consumer=None if answer.phase in ENDED_PHASES else answer.consumer_uuid,
    )


def changed(cluster: str, pod: StoredPod, **after: Any) -> AuditRecord:
    """Return the record of a stored pod or reservation that changed."""
    named = _named(cluster, pod.namespace, pod.name)
    return AuditRecord(Action.UPDATE, *named, after=after, consumer=consumer_of(pod) or None)


def ended(cluster: str, stored_reservation: StoredPod, phase: str, remark: str) -> AuditRecord:
    """Return the record of a reservation that is over; its allocations have a record of their own."""
    named = _named(cluster, stored_reservation.namespace, stored_reservation.name)
    return AuditRecord(Action.UPDATE, *named, after={"phase": phase, "remark": remark})


def came_and_left(
    cluster: str, leaving_pods: Sequence[StoredPod], answers: Iterable[PodAnswer]
) -> list[AuditRecord]:
    """Return records of pods that left for good, and of pods that came, which may have been here before."""
    before, left, came = {pod.uid: pod for pod in leaving_pods}, list[AuditRecord](), list[AuditRecord]()
    for answer in answers:
        came.append(arrived(cluster, answer, before.pop(answer.uid, None)))
    for pod in before.values():
        named, consumer = _named(cluster, pod.namespace, pod.name), consumer_of(pod) or None
        left.append(AuditRecord(Action.DELETE, *named, before=_described(pod), consumer=consumer))
    return left + came


def _named(cluster: str, namespace: str, name: str) -> tuple[TargetKind, str]:
    if namespace == RESERVED:
        return TargetKind.RESERVATION, f"{cluster}/{name}"
    return TargetKind.POD, f"{cluster}/{namespace}/{name}"


def _described(pod: StoredPod) -> dict[str, str]:
    return {"uid": pod.uid} if pod.node is None else {"uid": pod.uid, "node": pod.node}
