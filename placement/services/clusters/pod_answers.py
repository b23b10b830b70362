"""What is told about a pod: where it is, what it was given, what has to be written down."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from placement.dialects.koordinator import keys
from placement.dialects.koordinator.pod.annotations import ResourceSpec
from placement.dialects.koordinator.pod.pod_request import PodImport
from placement.dialects.koordinator.status.recorded_pod import RecordedPod
from placement.numa.cpuset import format_cpu_list
from placement.scheduling.reserve import PodAllocation


@dataclass(frozen=True, slots=True)
class PodAnswer:
    """A pod and its place; without node it occupies nothing.

    `annotations` are ready to be written to the pod. `scheduled`: it was placed here rather than reported.
    `lifts_cfs_quota`: its containers run on CPUs of their own, where a quota would only throttle them.
    `container_cpus` is the CPU list of its containers, as of now, None if it is not known;
    `is_pinned_unseen`: because kubelet pinned it and the node does not say where. `changed_at`: when its row
    was written last, empty if it is not stored; another text after every write. `waits`: not to be bound
    before others of its gang have places.
    """

    namespace: str
    name: str
    uid: str
    consumer_uuid: str
    node: str | None = None
    resource_provider: str | None = None
    qos: str = ""
    kubernetes_qos: str = ""
    phase: str = ""
    scheduled: bool = False
    cpuset: str = ""
    annotations: Mapping[str, str] = field(default_factory=dict)
    containers: tuple[str, ...] = ()
    lifts_cfs_quota: bool = False
    score: int | None = None
    warnings: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    changed_at: str = ""
    container_cpus: str | None = None
    is_pinned_unseen: bool = False
    waits: bool = False


def written_annotations(allocation: PodAllocation, spec: ResourceSpec) -> dict[str, str]:
    """The annotations that a pod shall carry; those that would say nothing are left out."""
    status, completed = allocation.annotations(spec)
    return {
        key: json.dumps(document, separators=(",", ":"))
        for key, document in ((keys.RESOURCE_STATUS, status), (keys.RESOURCE_SPEC, completed))
        if document
    }


def using(answer: PodAnswer, reservation: RecordedPod) -> PodAnswer:
    """The same about a pod that takes from a reservation, which is written to it."""
    allocated = {"name": reservation.name, "uid": reservation.uid}
    text = json.dumps(allocated, separators=(",", ":"))
    return replace(
        answer,
        annotations={**answer.annotations, keys.RESERVATION_ALLOCATED: text},
        remarks=(f"takes from reservation {reservation.name}", *answer.remarks),
    )


def scheduled_answer(
    incoming: PodImport,
    recorded: RecordedPod,
    allocation: PodAllocation,
    score: int,
    remarks: tuple[str, ...],
) -> PodAnswer:
    """What is told about a pod that was given a place; its node is left to be filled in."""
    return PodAnswer(
        namespace=recorded.namespace,
        name=recorded.name,
        uid=recorded.uid,
        consumer_uuid=recorded.consumer,
        qos=recorded.qos,
        kubernetes_qos=str(incoming.kubernetes_qos),
        scheduled=True,
        cpuset=format_cpu_list(recorded.holding.cpus),
        annotations=written_annotations(allocation, incoming.spec),
        containers=incoming.containers,
        lifts_cfs_quota=allocation.lifts_cfs_quota,
        score=score,
        warnings=incoming.warnings,
        remarks=remarks,
    )
