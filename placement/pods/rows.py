"""Rows of pods: the form in which releases of this service leave pods for each other.

A row has, under names of its own, what is answered about the pod and what it holds. These names never change
their meaning, whatever the classes here are called: a release adds names, and leaves unknown ones alone. So
older and newer releases read each other's rows. `FORMAT` counts the forms; the first is 1.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import repeat
from typing import Any

from placement.common import pod_identity
from placement.common.gang import Membership, gang_of, stored_membership
from placement.common.manifest import Field, ManifestError, ManifestReport
from placement.common.pod_identity import ENDED_PHASES
from placement.engine.domain.audit import Action, AuditRecord, TargetKind
from placement.engine.domain.identifiers import is_dashed_uuid
from placement.engine.domain.units import LARGEST_AMOUNT
from placement.engine.numa.cpus import MAX_ID, format_cpu_list, parse_cpu_list
from placement.engine.numa.host import NOTHING, ExclusiveLevel, Holding, NumaAmounts
from placement.pods import statements
from placement.pods.gangs import Ending
from placement.pods.host import Place
from placement.pods.koordinator import annotations as keys
from placement.pods.manifests.affinity import NO_AFFINITY, pod_labels, stored_affinity
from placement.pods.model import KubeletPolicy, RecordedPod, SchedulerSettings, stored_terms
from placement.pods.node_info import CpuOwner, NodeAllocations, NodeInfo
from placement.pods.reading import PodDocument, import_running_pod
from placement.pods.statements import RESERVED, PodValues, StoredPod
from placement.storage.database import Executor
from placement.storage.records import PodRow

# The answer about a pod: where it is, what it was given, what has to be written down.


@dataclass(frozen=True, slots=True)
class PodAnswer:
    """A pod and its place; without node it occupies nothing.

    `annotations` are ready to be written to the pod. `scheduled`: it was placed here rather than reported.
    `lifts_cfs_quota`: its containers run on CPUs of their own, where a quota would only throttle them.
    `container_cpus` is the CPU list of its containers, as of now, None if it is not known;
    `is_pinned_unseen`: because kubelet pinned it and the node does not say where. `changed_at`: when its row
    was written last, empty if it is not stored; another text after every write. `waits`: not to be bound
    before others of its gang have places. `missed`: how many of its CPUs are not as it prefers, or that it
    uses a reservation (`ranking.USES_RESERVATION`); nodes where it misses less come first. `shared_with` are
    the pods that hold some of its CPUs, too, as of now.
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


def using(answer: PodAnswer, reservation: RecordedPod) -> PodAnswer:
    """Return the answer for a pod that takes from a reservation, with an annotation that names it."""
    text = json.dumps({"name": reservation.name, "uid": reservation.uid}, separators=(",", ":"))
    return replace(
        answer,
        annotations={**answer.annotations, keys.RESERVATION_ALLOCATED: text},
        remarks=(f"takes from reservation {reservation.name}", *answer.remarks),
    )


@dataclass(frozen=True, slots=True)
class PodEntry:
    """A pod that occupies nothing any more, and the answer about it."""

    document: PodDocument
    answer: PodAnswer


@dataclass(frozen=True, slots=True)
class PodPlacement(PodEntry):
    """A pod that gets a place, or is reported at one: its node before it comes, and what it holds there.

    `ends` is how the reservation ends that it takes from, if no other pod may use that.
    """

    state: NodeInfo
    recorded: RecordedPod
    ends: Ending | None = None


FORMAT = 2
_MEMBERS = frozenset({"qos", "consumer", "told", "record"})
# In a claim: the uid of the reservation that it ended. In that reservation: the answer from before.
_ENDED, _ANSWER_BEFORE = "ended", "told_before"
_UNREADABLE = "the stored row of this pod cannot be read"
# Errors of reading a row that is damaged, or written by an unknown writer.
_MALFORMED = (LookupError, TypeError, ValueError, AttributeError, OverflowError, ManifestError)


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("no list")
    return value


def _texts(value: Any) -> tuple[str, ...]:
    return tuple(map(str, _listed(value)))


# By name in rows, and in PodAnswer: the value that is left out, and the reader of others.
_ANSWER_MEMBERS: dict[str, tuple[Any, Callable[[Any], Any]]] = {
    "kubernetes_qos": ("", str),
    "phase": ("", str),
    "scheduled": (False, bool),
    "cpuset": ("", str),
    "annotations": ({}, lambda given: {str(key): str(text) for key, text in given.items()}),
    "containers": ((), _texts),
    "lifts_cfs_quota": (False, bool),
    "score": (None, int),
    "warnings": ((), _texts),
    "remarks": ((), _texts),
    "unreadable": ((), _texts),
}


def pod_values(report: PodEntry, before: StoredPod | None = None) -> PodValues:
    """Return the values of a pod's row; `before` is the row it replaces, of the same pod."""
    document, placement = report.document, report if isinstance(report, PodPlacement) else None
    ends = None if placement is None else placement.ends
    return PodValues(
        namespace=document.namespace,
        name=document.name,
        uid=document.uid,
        manifest=document.manifest,
        status=status_of(
            report.answer,
            None if placement is None else placement.recorded,
            None if before is None else before.status,
            "" if ends is None else ends.reservation.uid,
        ),
        format=FORMAT,
        node_id=None if placement is None else placement.state.id,
    )


def status_of(
    answer: PodAnswer,
    recorded: RecordedPod | None,
    before: Mapping[str, Any] | None = None,
    ended: str = "",
) -> dict[str, Any]:
    """Return what is stored of a pod beside names and place; `recorded` is what it holds, if on a node.

    `ended` is the uid of the reservation that is over because the pod came. `before` is what was stored of
    that pod: names in it that this release does not know are kept.
    """
    document, stored_answer = dict(before or {}), dict(_stored_answer(before) if before else {})
    for name, (blank, _) in _ANSWER_MEMBERS.items():
        stored_answer.pop(name, None)
        value = getattr(answer, name)
        if value != blank:
            stored_answer[name] = list(value) if isinstance(value, tuple) else value
    for name in _MEMBERS:
        document.pop(name, None)
    document |= {"qos": answer.qos, "consumer": answer.consumer_uuid, "told": stored_answer}
    if ended:
        document[_ENDED] = ended
    if recorded is not None:
        document["record"] = written_pod(recorded)
    return document


def ended_status(status: Mapping[str, Any], phase: str, remark: str) -> dict[str, Any]:
    """Return the status of a reservation that is over: with the reason, and the answer from before."""
    before = _stored_answer(status)
    return {**status, "told": {**before, "phase": phase, "remarks": [remark]}, _ANSWER_BEFORE: before}


def resumed_status(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return the status of a reservation that is there again after it was over."""
    rest = {name: value for name, value in status.items() if name != _ANSWER_BEFORE}
    return {**rest, "told": status[_ANSWER_BEFORE]}


def reservation_ended_by(pod: StoredPod) -> str:
    """Return the uid of the reservation that is over because a claim came, empty without one.

    A pod that was reported on its node since is no claim any more: it runs, so it has used the reservation.
    """
    ended = pod.status.get(_ENDED) if is_claim(pod) else None
    return ended if isinstance(ended, str) else ""


def was_ended_by(reservation: StoredPod, remark: str) -> bool:
    """Return whether a reservation is over for the reason that the remark gives, and can be brought back."""
    is_off = reservation.root_id is None and isinstance(reservation.status.get(_ANSWER_BEFORE), Mapping)
    return is_off and _stored_answer(reservation.status).get("remarks") == [remark]


def _stored_answer(document: Any) -> Mapping[str, Any]:
    member = document.get("told") if isinstance(document, Mapping) else None
    return member if isinstance(member, Mapping) else {}


def answer_of(pod: StoredPod) -> PodAnswer:
    """Return the answer about a stored pod; parts of its row that cannot be read are in `unreadable`."""
    stored = _stored_answer(pod.status)
    stored_answer: dict[str, Any] = {}
    unreadable = []
    for name, (_, read) in _ANSWER_MEMBERS.items():
        if stored.get(name) is None:
            continue
        try:
            stored_answer[name] = read(stored[name])
        except _MALFORMED:
            unreadable.append(f"{_UNREADABLE}: told.{name}")
    if not isinstance(pod.status, Mapping) or not isinstance(pod.status.get("told"), Mapping):
        unreadable.append(_UNREADABLE)
    stored_answer["unreadable"] = (*stored_answer.get("unreadable", ()), *unreadable)
    is_waiting = waits(pod)
    if is_waiting:
        membership = _membership(pod.status)
        remark = f"waits for others of gang {membership.get('gang')} until {membership['waits_until']}"
        stored_answer["remarks"] = (*stored_answer.get("remarks", ()), remark)
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
        **stored_answer,
    )


def consumer_of(pod: StoredPod | PodRow) -> str:
    """Return the consumer of a stored pod; empty if its row names none and its uid is no UUID."""
    stored = pod.status.get("consumer") if isinstance(pod.status, Mapping) else None
    if isinstance(stored, str):
        return stored
    return pod.uid if is_dashed_uuid(pod.uid) else ""


def qos_of(status: Any) -> str:
    """Return the class that the label of a stored pod names."""
    stored = status.get("qos") if isinstance(status, Mapping) else None
    return stored if isinstance(stored, str) else ""


def is_claim(pod: StoredPod) -> bool:
    """Return whether the pod was placed here and was not reported on its node since."""
    return pod.node_id is not None and bool(_stored_answer(pod.status).get("scheduled"))


def waits(pod: StoredPod) -> bool:
    """Return whether the pod has a place and waits for others of its gang."""
    return pod.node_id is not None and bool(_membership(pod.status).get("waits_until"))


def without_wait(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return the status of a pod that waits no longer."""
    membership = {key: value for key, value in _membership(status).items() if key != "waits_until"}
    return {**status, "record": {**status["record"], "membership": membership}}


def _membership(status: Any) -> Mapping[str, Any]:
    record = status.get("record") if isinstance(status, Mapping) else None
    found = record.get("membership") if isinstance(record, Mapping) else None
    return found if isinstance(found, Mapping) else {}


# What a pod holds of its node, as it is stored.


def written_pod(pod: RecordedPod) -> dict[str, Any]:
    """Return a pod as JSON to be stored, without names and uid."""
    holding = pod.holding
    members: dict[str, Any] = {
        "consumer": pod.consumer,
        "qos": pod.qos,
        "requests": dict(pod.requests),
        "cpus": format_cpu_list(holding.cpus),
        "level": "" if holding.level is ExclusiveLevel.NONE else str(holding.level),
        # JSON has the ids of NUMA nodes as texts.
        "amounts": holding.amounts,
        "loose": pod.loose,
        "secluded": not holding.shares_with_best_effort,
        "unreadable": list(pod.unreadable),
        "group": holding.group,
        "treated_as": pod.treated_as,
        "pools": list(pod.pools),
        "reservation": pod.reservation,
        "keeps": None if pod.keeps is None else pod.keeps.document(),
        "affinity": None if pod.affinity is NO_AFFINITY else pod.affinity.document(),
        "membership": None if pod.membership is None else pod.membership.document(),
        "leaving": pod.is_leaving,
    }
    # Rows without labels were written by releases that stored none.
    return {key: member for key, member in members.items() if member} | {"labels": dict(pod.labels)}


# All rows of a node are read again when it changes, and pods on like nodes have equal lists.
_stored_cpus = lru_cache(maxsize=1024)(parse_cpu_list)


_RECORD_TEXTS = ("consumer", "cpus", "group", "qos", "treated_as", "reservation")
_TEXT = {str}


def recorded_pod(namespace: str, name: str, uid: str, document: Mapping[str, Any]) -> RecordedPod:
    """Return the pod that a stored document describes; amounts beyond 64 bits count as 2^63-1.

    Raises one of `_MALFORMED` for a document that cannot be read, so that no odd value gets further.
    """
    texts = dict(zip(_RECORD_TEXTS, map(document.get, _RECORD_TEXTS, repeat("")), strict=True))
    labels = document.get("labels", {})
    if not {*map(type, texts.values()), *map(type, labels.values())} <= _TEXT:
        raise ValueError("a value is no text")
    if not texts["consumer"]:
        raise ValueError("consumer is empty")
    holding = Holding(
        cpus=_stored_cpus(texts["cpus"]),
        level=ExclusiveLevel(document.get("level", ExclusiveLevel.NONE)),
        amounts=_read(document.get("amounts")),
        shares_with_best_effort=not document.get("secluded", False),
        group=texts["group"],
    )
    keeps, affinity, membership = map(document.get, ("keeps", "affinity", "membership"))
    if namespace == RESERVED and keeps is None:
        raise ValueError("a reservation without terms")
    if not isinstance(affinity, Mapping | None):
        raise ValueError("affinity is no object")
    labels = tuple(sorted(labels.items()))
    return RecordedPod(
        namespace=namespace,
        name=name,
        uid=uid,
        consumer=texts["consumer"],
        qos=texts["qos"],
        requests=_amounts(document.get("requests", {})),
        holding=holding,
        loose=_read(document.get("loose")),
        unreadable=_texts(document["unreadable"]) if "unreadable" in document else (),
        treated_as=texts["treated_as"],
        pools=tuple(map(_numa_id, _listed(document["pools"]))) if "pools" in document else (),
        reservation=texts["reservation"],
        keeps=None if keeps is None else stored_terms(keeps),
        labels=labels,
        affinity=stored_affinity(affinity, (namespace, labels)) if affinity else NO_AFFINITY,
        membership=None if membership is None else stored_membership(membership),
        is_leaving=bool(document.get("leaving", False)),
    )


def _amounts(document: Mapping[str, Any]) -> dict[str, int]:
    """Return amounts by resource; former releases wrote what JSON readers take for floats, such as 1e320."""
    return {resource: min(LARGEST_AMOUNT, max(0, int(amount))) for resource, amount in document.items()}


def _read(document: Mapping[str, Mapping[str, int]] | None) -> NumaAmounts:
    if document is None:
        return NOTHING
    return NumaAmounts({_numa_id(numa): _amounts(row) for numa, row in document.items()})


def _numa_id(stored: Any) -> int:
    """Return the id of a NUMA node: a bit of masks, so neither negative nor beyond what nodes may have."""
    numa = int(stored)
    if not 0 <= numa <= MAX_ID:
        raise ValueError(f"{stored} is no NUMA node")
    return numa


def record_of(pod: PodRow, *, with_labels: bool = False) -> RecordedPod | None:
    """Return what a pod on a node holds there; None if its row cannot be read.

    `with_labels`: None also if the row lacks its labels, which older releases did not need.
    """
    try:
        document = pod.status["record"]
        if with_labels and "labels" not in document:
            return None
        return recorded_pod(pod.namespace, pod.name, pod.uid, document)
    except _MALFORMED:
        return None


def is_unreadable(pod: StoredPod) -> bool:
    """Return whether something of a stored pod cannot be read: its manifest, its answer, or what it holds."""
    # A pod that is on no node has no record; a reservation that is over keeps its own.
    has_record = pod.node_id is not None or pod.namespace == RESERVED
    holds_unknown = has_record and record_of(_row_of(pod)) is None
    answer = any(each.startswith(_UNREADABLE) for each in answer_of(pod).unreadable)
    return holds_unknown or answer or not (isinstance(pod.manifest, Mapping) and pod.manifest)


def _row_of(pod: StoredPod) -> PodRow:
    return PodRow(pod.root_id or 0, pod.id, pod.namespace, pod.name, pod.uid, pod.status)


def held_by(reservation: StoredPod) -> RecordedPod:
    """Return what a reservation has, or had; nothing, and without terms, if its row cannot be read."""
    read = record_of(_row_of(reservation))
    if read is not None:
        return read
    return RecordedPod(
        reservation.namespace,
        reservation.name,
        reservation.uid,
        consumer_of(reservation),
        qos_of(reservation.status),
        {},
        unreadable=(_UNREADABLE,),
    )


def lacks_labels(pod: PodRow) -> bool:
    """Return whether the row of a pod lacks its labels: a release wrote it that needed none."""
    record = pod.status.get("record") if isinstance(pod.status, Mapping) else None
    return not (isinstance(record, Mapping) and "labels" in record)


def labelled(pod: RecordedPod, labels: Any, affinity: Any, annotations: Any) -> RecordedPod:
    """Return a pod with the labels, the affinity and the gang of its manifest, whatever these are."""
    if pod.keeps is not None:
        return pod
    found = pod_labels(Field("metadata", {"labels": labels}, ManifestReport(), soft=True))
    gang = gang_of({"metadata": {"labels": labels, "annotations": annotations}}, pod.namespace)
    return replace(
        pod,
        labels=found,
        affinity=stored_affinity(affinity, (pod.namespace, found)),
        membership=None if gang is None else Membership(gang.name, gang.least),
    )


def rescued(
    connection: Executor, cluster_id: int, cluster: str, settings: SchedulerSettings, pod: PodRow
) -> RecordedPod:
    """Return a substitute for a pod with an unreadable row: its manifest's requests, and its stored CPUs.

    Where these are not known either, its node takes no pods with CPUs of their own, as it is `unreadable`.
    """
    consumer = consumer_of(pod) or pod_identity.consumer_of(cluster, pod.uid)
    cpus = statements.cpus_of(connection, consumer)
    try:
        (manifest,) = statements.pod_manifests(connection, cluster_id, [pod.uid])
        requests = import_running_pod(manifest, settings, KubeletPolicy()).requests
    except _MALFORMED:
        requests = {}
    return RecordedPod(
        pod.namespace,
        pod.name,
        pod.uid,
        consumer,
        qos_of(pod.status),
        requests,
        Holding(cpus=cpus),
        unreadable=(_UNREADABLE,),
    )


# What is stored of the accounts of nodes.


def stored_accounts(connection: Executor, states: Collection[NodeInfo]) -> dict[int, NodeAllocations]:
    """Return the stored allocations and CPU owners of some nodes of one cluster, by their host providers."""
    if not states:
        return {}
    by_root = {state.root_id: state for state in states}
    cluster_id = next(iter(states)).cluster_id
    shares: dict[int, dict[str, dict[Place, int]]] = {root_id: {} for root_id in by_root}
    for use in statements.own_uses(connection, cluster_id, by_root.keys()):
        path = by_root[use.root_id].identity.path(use.provider_name)
        held = shares[use.root_id].setdefault(use.consumer_uuid, {})
        held[Place(path, use.class_name)] = use.amount
    owners: dict[int, Mapping[int, CpuOwner]] = {}
    stored = statements.owners(connection, [state.id for state in states])
    for root_id, state in by_root.items():
        owners[root_id] = {cpu: CpuOwner(*owner) for cpu, owner in stored.get(state.id, {}).items()}
        for owner in owners[root_id].values():
            shares[root_id].setdefault(owner.consumer, {})
    return {root_id: NodeAllocations(shares[root_id], owners[root_id]) for root_id in by_root}


# What audit records say of pods and reservations.


_POD_AUDIT_MEMBERS = ("uid", "node", "qos", "cpuset", "phase")


def arrived(cluster: str, answer: PodAnswer, before: StoredPod | None = None) -> AuditRecord:
    """Return the record of a pod that came or was reported; `before` is its row, if it had one.

    A pod that has ended is no consumer any more; what it held has a record of its own.
    """
    return AuditRecord(
        Action.CREATE if before is None else Action.UPDATE,
        *_named(cluster, answer.namespace, answer.name),
        before=None if before is None else _described(before),
        after={name: value for name in _POD_AUDIT_MEMBERS if (value := getattr(answer, name))},
        consumer=None if answer.phase in ENDED_PHASES else answer.consumer_uuid,
    )


def changed(cluster: str, pod: StoredPod, **after: Any) -> AuditRecord:
    """Return the record of a stored pod or reservation in which something changed."""
    named = _named(cluster, pod.namespace, pod.name)
    return AuditRecord(Action.UPDATE, *named, after=after, consumer=consumer_of(pod) or None)


def ended(cluster: str, reservation: StoredPod, phase: str, remark: str) -> AuditRecord:
    """Return the record of a reservation that is over, and no consumer; what it held has its own record."""
    named = _named(cluster, reservation.namespace, reservation.name)
    return AuditRecord(Action.UPDATE, *named, after={"phase": phase, "remark": remark})


def came_and_left(
    cluster: str, leaving: Sequence[StoredPod], answers: Iterable[PodAnswer]
) -> list[AuditRecord]:
    """Return records of pods that left for good, and of pods that came, which may have been here before."""
    before, left, came = {pod.uid: pod for pod in leaving}, list[AuditRecord](), list[AuditRecord]()
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
