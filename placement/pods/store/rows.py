"""Rows of pods: the form that all releases of this service read and write.

A row has the answer about the pod and its holding, under names of its own. These names never change
their meaning, whatever the classes here are called: a release adds names, and leaves unknown ones alone. So
older and newer releases read each other's rows. `FORMAT` counts the forms; the first is 1.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from functools import lru_cache
from operator import methodcaller, not_
from typing import Any, NamedTuple

from placement.common import pod_identity
from placement.common.gang import Membership, gang_of, stored_membership
from placement.common.manifest import Field, ManifestError, ManifestReport
from placement.engine.domain.identifiers import is_dashed_uuid
from placement.engine.domain.units import LARGEST_AMOUNT
from placement.engine.numa.cpus import MAX_ID, format_cpu_list, parse_cpu_list
from placement.engine.numa.host import NOTHING, ExclusiveLevel, Holding, NumaAmounts
from placement.pods.decide.reading import PodDocument, import_running_pod
from placement.pods.manifests.affinity import NO_AFFINITY, Bearer, PodAffinity, pod_labels, stored_affinity
from placement.pods.manifests.ports import read_host_ports, stored_ports
from placement.pods.manifests.undecided import Undecided
from placement.pods.state.model import KubeletPolicy, RecordedPod, SchedulerSettings, stored_terms
from placement.pods.store import statements
from placement.pods.store.answers import PodAnswer, PodPlacement
from placement.pods.store.statements import RESERVED, PodValues, StoredPod
from placement.storage.database import Executor
from placement.storage.node_parts import PodRow

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


def _written(value: tuple[Any, ...]) -> list[Any]:
    return [_written(part) if isinstance(part, tuple) else part for part in value]


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
    "undecided": ((), lambda given: tuple(Undecided(*map(str, each)) for each in _listed(given))),
}


def pod_values(placement: PodPlacement, stored_pod: StoredPod | None = None) -> PodValues:
    """Return the values of the row of a pod on a node; `stored_pod` is its row until now, if it stays."""
    document, ending = placement.document, placement.ending
    former_status = None if stored_pod is None else stored_pod.status
    ended_uid = "" if ending is None else ending.reservation.uid
    status = status_of(placement.answer, placement.recorded, former_status, ended_uid)
    return PodValues(
        document.namespace,
        document.name,
        document.uid,
        document.manifest,
        status,
        FORMAT,
        placement.node.id,
    )


def ended_pod_values(
    document: PodDocument, answer: PodAnswer, stored_pod: StoredPod | None = None
) -> PodValues:
    """Return the values of the row of a pod that has ended and occupies nothing, as `pod_values` does."""
    status = status_of(answer, None, None if stored_pod is None else stored_pod.status)
    return PodValues(document.namespace, document.name, document.uid, document.manifest, status, FORMAT, None)


def status_of(
    answer: PodAnswer,
    recorded: RecordedPod | None,
    former_status: Mapping[str, Any] | None = None,
    ended_uid: str = "",
) -> dict[str, Any]:
    """Return the status of a pod's row; `recorded` is the pod on its node, None if it is on no node.

    `ended_uid` is the uid of the reservation that is over because the pod came. Names in the former status
    of the pod that this release does not know are kept.
    """
    document = dict(former_status or {})
    stored_answer = dict(_stored_answer(former_status) if former_status else {})
    for name, (blank, _) in _ANSWER_MEMBERS.items():
        stored_answer.pop(name, None)
        value = getattr(answer, name)
        if value != blank:
            stored_answer[name] = _written(value) if isinstance(value, tuple) else value
    for name in _MEMBERS:
        document.pop(name, None)
    document |= {"qos": answer.qos, "consumer": answer.consumer_uuid, "told": stored_answer}
    if ended_uid:
        document[_ENDED] = ended_uid
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

    A pod that was reported on its node since is a claim no longer: it runs, so it has used the reservation.
    """
    ended = pod.status.get(_ENDED) if is_claim(pod) else None
    return ended if isinstance(ended, str) else ""


def was_ended_by(stored_reservation: StoredPod, remark: str) -> bool:
    """Return whether a reservation is over for the reason that the remark gives, and can be brought back."""
    is_off = stored_reservation.root_id is None and isinstance(
        stored_reservation.status.get(_ANSWER_BEFORE), Mapping
    )
    return is_off and _stored_answer(stored_reservation.status).get("remarks") == [remark]


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
    """Return the consumer of a stored pod; empty if its row names none and its uid cannot be one."""
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


def bound_status(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return the status of a pod that is bound: it is no claim any more, and it waits for no gang."""
    stored_answer = {name: value for name, value in _stored_answer(status).items() if name != "scheduled"}
    membership = _membership(status)
    rest = without_wait(status) if membership.get("waits_until") else status
    return {**rest, "told": stored_answer}


def without_wait(status: Mapping[str, Any]) -> dict[str, Any]:
    """Return the status of a pod that waits no longer."""
    membership = {key: value for key, value in _membership(status).items() if key != "waits_until"}
    return {**status, "record": {**status["record"], "membership": membership}}


def _membership(status: Any) -> Mapping[str, Any]:
    record = status.get("record") if isinstance(status, Mapping) else None
    found = record.get("membership") if isinstance(record, Mapping) else None
    return found if isinstance(found, Mapping) else {}


# All rows of a node are read again when it changes. Pods on like nodes have equal lists, and pods of one
# controller have equal terms and labels.
_stored_cpus = lru_cache(maxsize=1024)(parse_cpu_list)


@lru_cache(maxsize=1024)
def _affinity_in(terms: str, bearer: Bearer) -> PodAffinity:
    """Return the affinity in JSON of a pod with this namespace and these labels."""
    return stored_affinity(json.loads(terms), bearer)


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError(f"{value!r} is not text")
    return value


def _amounts(document: Mapping[str, Any]) -> dict[str, int]:
    """Return amounts by resource; JSON readers take some of former releases for floats, such as 1e320."""
    return {resource: min(LARGEST_AMOUNT, max(0, int(amount))) for resource, amount in document.items()}


def _numa_amounts(document: Mapping[str, Mapping[str, int]] | None) -> NumaAmounts:
    if document is None:
        return NOTHING
    return NumaAmounts({_numa_id(numa): _amounts(row) for numa, row in document.items()})


def _numa_document(by_numa: NumaAmounts) -> dict[str, Mapping[str, int]]:
    """Return amounts as rows have them: JSON has the ids of NUMA nodes as texts."""
    return {str(numa): row for numa, row in by_numa.items()}


def _numa_id(stored: Any) -> int:
    """Return the id of a NUMA node: a bit of masks, so neither negative nor beyond what nodes may have."""
    numa = int(stored)
    if not 0 <= numa <= MAX_ID:
        raise ValueError(f"{stored} is no NUMA node")
    return numa


def _numa_ids(value: Any) -> tuple[int, ...]:
    return tuple(map(_numa_id, _listed(value)))


def _labels(document: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    for value in document.values():
        _text(value)
    return tuple(sorted(document.items()))


def _terms(document: Any) -> Mapping[str, Any] | PodAffinity:
    if not isinstance(document, Mapping | None):
        raise ValueError("affinity is not an object")
    return document or NO_AFFINITY


class _Member(NamedTuple):
    """A member of a stored record: its attribute of RecordedPod, or of Holding, and its form in JSON.

    It is left out where the attribute is `blank`, and where the written value is empty.
    """

    attribute: str
    write: Callable[[Any], Any]
    read: Callable[[Any], Any]
    is_of_holding: bool = False
    blank: object = None


_document = methodcaller("document")
# The codec of records, by the names in rows: both directions, in the order in which members are written.
_RECORD: dict[str, _Member] = {
    "consumer": _Member("consumer", str, _text),
    "qos": _Member("qos", str, _text),
    "requests": _Member("requests", dict, _amounts),
    "cpus": _Member("cpus", format_cpu_list, lambda stored: _stored_cpus(_text(stored)), is_of_holding=True),
    "level": _Member("level", str, ExclusiveLevel, is_of_holding=True, blank=ExclusiveLevel.NONE),
    "amounts": _Member("amounts", _numa_document, _numa_amounts, is_of_holding=True),
    "loose": _Member("loose_amounts", _numa_document, _numa_amounts),
    "secluded": _Member("shares_with_best_effort", not_, not_, is_of_holding=True),
    "unreadable": _Member("unreadable", list, _texts),
    "group": _Member("group", str, _text, is_of_holding=True),
    "treated_as": _Member("treated_as", str, _text),
    "pools": _Member("pools", list, _numa_ids),
    "reservation": _Member("reservation", str, _text),
    "keeps": _Member("keeps", _document, lambda stored: None if stored is None else stored_terms(stored)),
    # The terms are read when the labels are known.
    "affinity": _Member("affinity", _document, _terms, blank=NO_AFFINITY),
    "membership": _Member(
        "membership", _document, lambda stored: None if stored is None else stored_membership(stored)
    ),
    "leaving": _Member("is_leaving", bool, bool),
    "labels": _Member("labels", dict, _labels),
    "ports": _Member("host_ports", lambda ports: list(map(list, ports)), stored_ports, blank=()),
}
# Rows without these were written by releases that stored none: the manifest has them.
_LATE = frozenset({"labels", "ports"})


def written_pod(pod: RecordedPod) -> dict[str, Any]:
    """Return a pod as JSON to be stored, without names and uid."""
    document: dict[str, Any] = {"ports": []}
    for name, member in _RECORD.items():
        value = getattr(pod.holding if member.is_of_holding else pod, member.attribute)
        # `_LATE` are there even if they are empty.
        if value is not member.blank and ((written := member.write(value)) or name == "labels"):
            document[name] = written
    return document


def recorded_pod(namespace: str, name: str, uid: str, document: Mapping[str, Any]) -> RecordedPod:
    """Return the pod that a stored document describes; amounts beyond 64 bits count as 2^63-1.

    Raises one of `_MALFORMED` for a document that cannot be read, so that no odd value gets further.
    """
    holding: dict[str, Any] = {}
    attributes: dict[str, Any] = {"consumer": "", "qos": "", "requests": {}}
    for key, value in document.items():
        member = _RECORD.get(key)
        # Later releases may add members. Most pods have no ports.
        if member is not None and not (key == "ports" and value == []):
            (holding if member.is_of_holding else attributes)[member.attribute] = member.read(value)
    if not attributes["consumer"]:
        raise ValueError("consumer is empty")
    if namespace == RESERVED and attributes.get("keeps") is None:
        raise ValueError("a reservation without terms")
    affinity = attributes.get("affinity", NO_AFFINITY)
    if affinity is not NO_AFFINITY:
        bearer = namespace, attributes.get("labels", ())
        attributes["affinity"] = _affinity_in(json.dumps(affinity), bearer)
    return RecordedPod(namespace, name, uid, holding=Holding(**holding), **attributes)


def record_of(pod: PodRow, *, as_a_whole: bool = False) -> RecordedPod | None:
    """Return the pod as recorded on its node; None if its row cannot be read.

    `as_a_whole`: None also if the row lacks its labels or ports, which older releases did not need.
    """
    try:
        document = pod.status["record"]
        if as_a_whole and not document.keys() >= _LATE:
            return None
        return recorded_pod(pod.namespace, pod.name, pod.uid, document)
    except _MALFORMED:
        return None


def is_unreadable(pod: StoredPod) -> bool:
    """Return whether something of a stored pod cannot be read: its manifest, its answer, or its record."""
    # A pod that is on no node has no record; a reservation that is over keeps its own.
    has_record = pod.node_id is not None or pod.namespace == RESERVED
    holds_unknown = has_record and record_of(_row_of(pod)) is None
    answer = any(each.startswith(_UNREADABLE) for each in answer_of(pod).unreadable)
    return holds_unknown or answer or not (isinstance(pod.manifest, Mapping) and pod.manifest)


def _row_of(pod: StoredPod) -> PodRow:
    return PodRow(pod.root_id or 0, pod.id, pod.namespace, pod.name, pod.uid, pod.status)


def held_by(stored_reservation: StoredPod) -> RecordedPod:
    """Return a reservation as recorded; without amounts and terms if its row cannot be read."""
    read = record_of(_row_of(stored_reservation))
    if read is not None:
        return read
    return RecordedPod(
        stored_reservation.namespace,
        stored_reservation.name,
        stored_reservation.uid,
        consumer_of(stored_reservation),
        qos_of(stored_reservation.status),
        {},
        unreadable=(_UNREADABLE,),
    )


def lacking(pod: PodRow) -> AbstractSet[str]:
    """Return which of `labels` and `ports` the row of a pod lacks: a release wrote it that needed none."""
    record = pod.status.get("record") if isinstance(pod.status, Mapping) else None
    return _LATE - record.keys() if isinstance(record, Mapping) else _LATE


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


def with_ports(pod: RecordedPod, spec: Any) -> RecordedPod:
    """Return a pod with the host ports that the spec in its manifest has, whatever it is."""
    ports = read_host_ports(Field("spec", spec, ManifestReport(), soft=True))
    return replace(pod, host_ports=ports)


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
        running = import_running_pod(manifest, settings, KubeletPolicy())
        requests, ports = running.requests, running.host_ports
    except _MALFORMED:
        requests, ports = {}, ()
    return RecordedPod(
        pod.namespace,
        pod.name,
        pod.uid,
        consumer,
        qos_of(pod.status),
        requests,
        Holding(cpus=cpus),
        unreadable=(_UNREADABLE,),
        host_ports=ports,
    )
