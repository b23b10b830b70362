"""Rows of pods: the form in which releases of this service leave pods for each other.

A row says under names of its own what is told about the pod and what it holds. These names never change
their meaning, whatever the classes here are called: a release adds names, and leaves alone those it does not
know. So older and newer releases read each other's rows. `FORMAT` counts the forms; the first is 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from placement.dialects.koordinator.pod.gang import Membership, gang_of
from placement.dialects.koordinator.status.recorded_pod import RecordedPod, recorded_pod
from placement.domain.identifiers import is_dashed_uuid
from placement.kubernetes.manifest import Field, Report
from placement.kubernetes.pod_affinity import pod_labels, stored_affinity
from placement.numa.ledger import Holding
from placement.services.clusters.pod_answers import PodAnswer
from placement.storage.changes.node_parts import PodRow
from placement.storage.statements.pods import StoredPod

FORMAT = 2
_MEMBERS = frozenset({"qos", "consumer", "told", "record"})
# Of a claim: the uid of the reservation that it ended. Of that reservation: what was told of it before.
_ENDED, _TOLD_BEFORE = "ended", "told_before"
_UNREADABLE = "the stored row of this pod cannot be read"
# What a row may hold where it is damaged, or written by who knows whom.
_MALFORMED = (LookupError, TypeError, ValueError, AttributeError)


class _Told(NamedTuple):
    """A name in rows, the value that is left out, and what its value has to be."""

    name: str
    blank: Any
    read: Callable[[Any], Any]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else str(value)


def _texts(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise ValueError("no list")
    return tuple(_text(member) for member in value)


def _annotations(value: Any) -> dict[str, str]:
    return {_text(key): _text(text) for key, text in value.items()}


# By attribute of PodAnswer.
_TOLD = {
    "kubernetes_qos": _Told("kubernetes_qos", "", _text),
    "phase": _Told("phase", "", _text),
    "scheduled": _Told("scheduled", False, bool),
    "cpuset": _Told("cpuset", "", _text),
    "annotations": _Told("annotations", {}, _annotations),
    "containers": _Told("containers", (), _texts),
    "lifts_cfs_quota": _Told("lifts_cfs_quota", False, bool),
    "score": _Told("score", None, int),
    "warnings": _Told("warnings", (), _texts),
    "remarks": _Told("remarks", (), _texts),
    "unreadable": _Told("unreadable", (), _texts),
}
_TOLD_NAMES = frozenset(told.name for told in _TOLD.values())


def status_of(
    answer: PodAnswer,
    recorded: RecordedPod | None,
    before: Mapping[str, Any] | None = None,
    ended: str = "",
) -> dict[str, Any]:
    """What is stored of a pod beside names and place; `recorded` is what it holds, if it is on a node.

    `ended` is the uid of the reservation that is over because the pod came. Of `before`, what was stored of
    the same pod, names are kept that this release does not know.
    """
    told = {entry.name: getattr(answer, attribute) for attribute, entry in _TOLD.items()}
    blanks = {entry.name: entry.blank for entry in _TOLD.values()}
    said = {name: _plain(value) for name, value in told.items() if value != blanks[name]}
    unknown_told = _unknown(_told(before), _TOLD_NAMES)
    document = {
        **_unknown(before or {}, _MEMBERS),
        "qos": answer.qos,
        "consumer": answer.consumer_uuid,
        "told": {**unknown_told, **said},
        **({_ENDED: ended} if ended else {}),
    }
    return document if recorded is None else {**document, "record": recorded.document()}


def ended_status(status: Mapping[str, Any], phase: str, remark: str) -> dict[str, Any]:
    """What is stored of a reservation that is over: that it is, and why, and what was told of it before."""
    told = _told(status)
    return {**status, "told": {**told, "phase": phase, "remarks": [remark]}, _TOLD_BEFORE: told}


def resumed_status(status: Mapping[str, Any]) -> dict[str, Any]:
    """What is stored of a reservation that is there again after it was over."""
    rest = {name: value for name, value in status.items() if name != _TOLD_BEFORE}
    return {**rest, "told": status[_TOLD_BEFORE]}


def reservation_ended_by(pod: StoredPod) -> str:
    """The uid of the reservation that is over because a claim came, empty without one.

    A pod that was reported on its node since is no claim any more: it runs, so it has used the reservation.
    """
    ended = pod.status.get(_ENDED) if is_claim(pod) else None
    return ended if isinstance(ended, str) else ""


def was_ended_by(reservation: StoredPod, remark: str) -> bool:
    """Whether a reservation is over for the reason that the remark gives, and can be brought back."""
    is_off = reservation.root_id is None and isinstance(reservation.status.get(_TOLD_BEFORE), Mapping)
    return is_off and _told(reservation.status).get("remarks") == [remark]


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _unknown(document: Mapping[str, Any], known: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in known}


def _told(document: Any) -> Mapping[str, Any]:
    member = document.get("told") if isinstance(document, Mapping) else None
    return member if isinstance(member, Mapping) else {}


def answer_of(pod: StoredPod) -> PodAnswer:
    """What is told about a stored pod; what of its row cannot be read is said in `unreadable`."""
    told: dict[str, Any] = {}
    unreadable = []
    for attribute, entry in _TOLD.items():
        stored = _told(pod.status).get(entry.name)
        if stored is None:
            continue
        try:
            told[attribute] = entry.read(stored)
        except _MALFORMED:
            unreadable.append(f"{_UNREADABLE}: told.{entry.name}")
    if not isinstance(pod.status, Mapping) or not isinstance(pod.status.get("told"), Mapping):
        unreadable.append(_UNREADABLE)
    told["unreadable"] = (*told.get("unreadable", ()), *unreadable)
    is_waiting = waits(pod)
    if is_waiting:
        membership = _membership(pod.status)
        remark = f"waits for others of gang {membership.get('gang')} until {membership['waits_until']}"
        told["remarks"] = (*told.get("remarks", ()), remark)
    return PodAnswer(
        namespace=pod.namespace,
        name=pod.name,
        uid=pod.uid,
        consumer_uuid=consumer_of(pod),
        node=pod.node,
        resource_provider=pod.root_uuid,
        qos=qos_of(pod.status),
        changed_at=pod.changed_at.isoformat(),
        waits=is_waiting,
        **told,
    )


def consumer_of(pod: StoredPod | PodRow) -> str:
    """The consumer that a stored pod is; empty if its row does not say so and its uid is none."""
    stored = pod.status.get("consumer") if isinstance(pod.status, Mapping) else None
    if isinstance(stored, str):
        return stored
    return pod.uid if is_dashed_uuid(pod.uid) else ""


def qos_of(status: Any) -> str:
    """The class that the label of a stored pod names."""
    stored = status.get("qos") if isinstance(status, Mapping) else None
    return stored if isinstance(stored, str) else ""


def is_claim(pod: StoredPod) -> bool:
    """Whether the pod was placed here and nobody has reported it on its node since."""
    return pod.node_id is not None and bool(_told(pod.status).get("scheduled"))


def waits(pod: StoredPod) -> bool:
    """Whether the pod has a place and waits for others of its gang."""
    return pod.node_id is not None and bool(_membership(pod.status).get("waits_until"))


def without_wait(status: Mapping[str, Any]) -> dict[str, Any]:
    """What is stored of a pod that waits no longer."""
    membership = {key: value for key, value in _membership(status).items() if key != "waits_until"}
    return {**status, "record": {**status["record"], "membership": membership}}


def _membership(status: Any) -> Mapping[str, Any]:
    record = status.get("record") if isinstance(status, Mapping) else None
    found = record.get("membership") if isinstance(record, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def record_of(pod: PodRow) -> RecordedPod | None:
    """What a pod on a node holds there; None if its row cannot be read."""
    try:
        return recorded_pod(pod.namespace, pod.name, pod.uid, pod.status["record"])
    except _MALFORMED:
        return None


def lacks_labels(pod: PodRow) -> bool:
    """Whether the row of a pod does not say its labels: a release wrote it that asked for none."""
    record = pod.status.get("record") if isinstance(pod.status, Mapping) else None
    return not (isinstance(record, Mapping) and "labels" in record)


def labelled(pod: RecordedPod, labels: Any, affinity: Any, annotations: Any) -> RecordedPod:
    """A pod with the labels, the affinity and the gang of its manifest, whatever these are."""
    if pod.keeps is not None:
        return pod
    found = pod_labels(Field("metadata", {"labels": labels}, Report(), soft=True))
    gang = gang_of({"metadata": {"labels": labels, "annotations": annotations}}, pod.namespace)
    return replace(
        pod,
        labels=found,
        affinity=stored_affinity(affinity, (pod.namespace, found)),
        membership=None if gang is None else Membership(gang.name, gang.least),
    )


def rescued(pod: PodRow, requests: Mapping[str, int], cpus: frozenset[int]) -> RecordedPod:
    """A pod whose row cannot be read, but what it requests and which CPUs it owns is known from elsewhere."""
    return RecordedPod(
        pod.namespace,
        pod.name,
        pod.uid,
        consumer_of(pod),
        qos_of(pod.status),
        requests,
        Holding(cpus=cpus),
        unreadable=(_UNREADABLE,),
    )
