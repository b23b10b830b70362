"""The answer about a pod, and its place: its node, its CPUs, the annotations to write to it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from placement.pods.decide.reading import PodDocument
from placement.pods.decide.reservation_ends import Ending
from placement.pods.koordinator import annotations as keys
from placement.pods.manifests.undecided import Undecided
from placement.pods.state.model import RecordedPod, RecordedReservation
from placement.pods.state.node_info import NodeInfo


@dataclass(frozen=True, slots=True)
class PodAnswer:
    """A pod and its place; without node it occupies nothing.

    `annotations` are ready to be written to the pod. `scheduled`: it was placed here rather than reported.
    `lifts_cfs_quota`: its containers run on CPUs of their own, where a quota would only throttle them.
    `container_cpus` is the CPU list of its containers, as of now, None if it is not known;
    `is_pinned_unseen`: because kubelet pinned it and the node does not say where. `changed_at`: when its row
    was written last, empty if it is not stored; another text after every write. `waits`: not to be bound
    before others of its gang have places. `missed`: how many of its CPUs are not as it prefers, or that it
    uses a reservation (`adjustments.USES_RESERVATION`); nodes where it misses less come first.
    `shared_with` are the pods that hold some of the same CPUs as of now. `undecided`: what the pod asks for
    beside what was decided.
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
    missed: int = 0
    shared_with: tuple[str, ...] = ()
    undecided: tuple[Undecided, ...] = ()


def using(answer: PodAnswer, reservation: RecordedReservation) -> PodAnswer:
    """Return the answer for a pod that takes from a reservation, with an annotation that names it."""
    text = json.dumps({"name": reservation.name, "uid": reservation.uid}, separators=(",", ":"))
    return replace(
        answer,
        annotations={**answer.annotations, keys.RESERVATION_ALLOCATED: text},
        remarks=(f"takes from reservation {reservation.name}", *answer.remarks),
    )


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """The place that a pod gets, or is reported at: its node before it comes, and the pod as recorded there.

    `ending`: the reservation that it uses ends, as no other pod may use that.
    """

    document: PodDocument
    answer: PodAnswer
    node: NodeInfo
    recorded: RecordedPod
    ending: Ending | None = None
