"""What audit records say of pods and reservations."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from placement.domain.audit import Action, Kind, Record
from placement.kubernetes.pod_identity import ENDED_PHASES
from placement.services.clusters.pod_answers import PodAnswer
from placement.services.clusters.pod_rows import consumer_of
from placement.storage.statements.pods import RESERVED, StoredPod

_TOLD = ("uid", "node", "qos", "cpuset", "phase")


def arrived(cluster: str, answer: PodAnswer, before: StoredPod | None = None) -> Record:
    """A pod that came or was reported; `before` is its row, if it had one.

    One that is over is no consumer any more; what it held has a record of its own.
    """
    told = {name: getattr(answer, name) for name in _TOLD}
    return Record(
        Action.CREATE if before is None else Action.UPDATE,
        *_named(cluster, answer.namespace, answer.name),
        before=None if before is None else _described(before),
        after={name: value for name, value in told.items() if value},
        consumer=None if answer.phase in ENDED_PHASES else answer.consumer_uuid,
    )


def changed(cluster: str, pod: StoredPod, **after: Any) -> Record:
    """A pod or reservation that is stored and goes on, of which something was changed."""
    named = _named(cluster, pod.namespace, pod.name)
    return Record(Action.UPDATE, *named, after=after, consumer=consumer_of(pod) or None)


def ended(cluster: str, reservation: StoredPod, phase: str, remark: str) -> Record:
    """A reservation that is over and no consumer any more; what it held has a record of its own."""
    named = _named(cluster, reservation.namespace, reservation.name)
    return Record(Action.UPDATE, *named, after={"phase": phase, "remark": remark})


def came_and_left(cluster: str, leaving: Sequence[StoredPod], answer: PodAnswer | None) -> Iterator[Record]:
    """Pods that left for good, and the one that came, which may have been here before."""
    before = None
    for pod in leaving:
        if answer is not None and pod.uid == answer.uid:
            before = pod
        else:
            named = _named(cluster, pod.namespace, pod.name)
            yield Record(Action.DELETE, *named, before=_described(pod), consumer=consumer_of(pod) or None)
    if answer is not None:
        yield arrived(cluster, answer, before)


def _named(cluster: str, namespace: str, name: str) -> tuple[Kind, str]:
    if namespace == RESERVED:
        return Kind.RESERVATION, f"{cluster}/{name}"
    return Kind.POD, f"{cluster}/{namespace}/{name}"


def _described(pod: StoredPod) -> dict[str, str]:
    return {"uid": pod.uid} if pod.node is None else {"uid": pod.uid, "node": pod.node}
