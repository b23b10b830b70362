"""What is told about a pod: where it is, what it was given, what has to be written down."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from placement.dialects.koordinator import keys
from placement.dialects.koordinator.allocating import PodAllocation
from placement.dialects.koordinator.pod_import import PodImport
from placement.dialects.koordinator.recorded_pod import RecordedPod
from placement.dialects.koordinator.resource_spec import ResourceSpec
from placement.storage.pods import StoredPod
from placement.topology.cpuset import format_cpu_list


@dataclass(frozen=True, slots=True)
class PodAnswer:
    """A pod and its place; without node it occupies nothing.

    `annotations` are ready to be written to the pod. `scheduled`: it was placed here rather than reported.
    `lifts_cfs_quota`: its containers run on CPUs of their own, where a quota would only throttle them.
    `changed_at`: when its row was written last, empty if it is not stored; another text after every write.
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

    def status(self, recorded: RecordedPod | None) -> dict[str, Any]:
        """What is stored beside names and place; `recorded` is what the pod holds, if it is on a node."""
        document: dict[str, Any] = {
            "qos": self.qos,
            "consumer": self.consumer_uuid,
            "told": {key: list(value) if isinstance(value, tuple) else value for key, value in self._told()},
        }
        return document if recorded is None else {**document, "record": recorded.document()}

    def _told(self) -> list[tuple[str, Any]]:
        return [(key, getattr(self, key)) for key in _TOLD if getattr(self, key) != getattr(_BLANK, key)]


_TOLD = (
    "kubernetes_qos",
    "phase",
    "scheduled",
    "cpuset",
    "annotations",
    "containers",
    "lifts_cfs_quota",
    "score",
    "warnings",
    "remarks",
    "unreadable",
)


_BLANK = PodAnswer("", "", "", "")


def answer_of(pod: StoredPod) -> PodAnswer:
    """What is told about a stored pod."""
    told: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in pod.status["told"].items()
    }
    return PodAnswer(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        consumer_uuid=pod.status["consumer"],
        node=pod.node,
        resource_provider=pod.root_uuid,
        qos=pod.status["qos"],
        changed_at=pod.changed_at.isoformat(),
        **told,
    )


def is_claim(pod: StoredPod) -> bool:
    """Whether the pod was placed here and nobody has reported it on its node since."""
    return pod.node_id is not None and bool(pod.status["told"].get("scheduled"))


def written_annotations(allocation: PodAllocation, spec: ResourceSpec) -> dict[str, str]:
    """The annotations that a pod shall carry; those that would say nothing are left out."""
    status, completed = allocation.annotations(spec)
    return {
        key: json.dumps(document, separators=(",", ":"))
        for key, document in ((keys.RESOURCE_STATUS, status), (keys.RESOURCE_SPEC, completed))
        if document
    }


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
