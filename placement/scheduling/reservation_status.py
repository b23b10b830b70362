"""The status of a Reservation in Kubernetes, from what the service answers about it and from its owners.

It is the status that koord-scheduler writes: phase, node, amounts, owners, and the conditions Scheduled and
Ready. The CPUs and NUMA amounts that the reservation holds are an annotation, as a pod has it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import orjson

from placement.client.client import ServiceError
from placement.common.manifest import ManifestReport, QuantityError, parse_quantity
from placement.common.pod_identity import ENDED_PHASES, canonical_uid
from placement.pods.manifests.pod import occupied_amounts, quantities, read_pod, request_amounts

RESOURCE_STATUS = "scheduling.koordinator.sh/resource-status"
EXPIRED_CODE = "reservation_expired"
"""The code of the service for a reservation that expired before it had a place."""
_PENDING, _AVAILABLE, _SUCCEEDED, _FAILED = "Pending", "Available", "Succeeded", "Failed"
_SCHEDULED, _READY = "Scheduled", "Ready"
_UNSCHEDULABLE, _EXPIRED = "Unschedulable", "Expired"
_LONGEST_MESSAGE = 1000
_OF_OWNER = ("namespace", "name", "uid")
_OF_CONDITION = ("type", "status", "reason", "message")


class ReservationUser(NamedTuple):
    """A pod on a node that uses a reservation, with its requests in milli-CPUs and base units."""

    namespace: str
    name: str
    uid: str
    node: str
    requests: Mapping[str, int]

    @classmethod
    def of(cls, pod: Mapping[str, Any], node: str) -> ReservationUser:
        """Return the owner that a pod of Kubernetes is; requests that cannot be read count as nothing."""
        metadata = pod["metadata"]
        manifest = {"apiVersion": "v1", "kind": "Pod", **pod}
        requests = request_amounts(occupied_amounts(read_pod(manifest, ManifestReport())))
        return cls(metadata.get("namespace") or "", metadata["name"], metadata["uid"], node, requests)


class StatusChanges(NamedTuple):
    """Merge patches (RFC 7396) of the annotations and of the status of a Reservation, empty for none."""

    annotations: dict[str, str | None]
    status: dict[str, Any]

    def __bool__(self) -> bool:
        return bool(self.annotations or self.status)


_NOTHING = StatusChanges({}, {})


def changes(
    manifest: Mapping[str, Any],
    answer: Mapping[str, Any] | None,
    error: ServiceError | None,
    owners: Sequence[ReservationUser],
    now: datetime,
) -> StatusChanges:
    """Return what is to be changed in a Reservation of Kubernetes, nothing where it says all already.

    `answer` is the reservation as the service has it, None if it has none; `error` is why it took none.
    `owners` are the current owners that Kubernetes has on a node. A Reservation that is over stays as it is.
    One that the service has used up is over once its owner is on the node: until then the binding may fail,
    and the reservation comes back. Its members may have any type.
    """
    present = _mapping(manifest.get("status"))
    if present.get("phase") in ENDED_PHASES:
        return _NOTHING
    metadata = _mapping(manifest.get("metadata"))
    if answer is not None and answer["uid"] != canonical_uid(str(metadata.get("uid") or "")):
        # It was a former one of the name.
        answer = None
    wanted = _unplaced(error) if answer is None else _placed(answer, present, owners)
    if wanted is None:
        return _NOTHING
    annotation = None if answer is None else _cpus(answer["held"])
    annotations = _mapping(metadata.get("annotations"))
    if answer is not None and answer["phase"] != _AVAILABLE:
        # What it held last stays readable.
        annotation = annotations.get(RESOURCE_STATUS)
    changed = {RESOURCE_STATUS: annotation} if annotation != annotations.get(RESOURCE_STATUS) else {}
    return StatusChanges(changed, _patch(present, wanted, now))


def waits_for_owner(answer: Mapping[str, Any] | None, owners: Sequence[ReservationUser]) -> bool:
    """Return whether the service has used a reservation up for a pod that is on no node yet."""
    if answer is None or answer["phase"] != _SUCCEEDED:
        return False
    there = {canonical_uid(owner.uid) for owner in owners}
    return any(each["uid"] not in there for each in answer["current_owners"])


class _Status(NamedTuple):
    """A status to be written: `conditions` has status, reason and message by type; None takes one away."""

    phase: str
    node: str | None
    conditions: Mapping[str, tuple[str, str, str] | None]
    allocatable: Mapping[str, str] | None
    owners: Sequence[ReservationUser] = ()


def _unplaced(error: ServiceError | None) -> _Status | None:
    """Return the status of a reservation without a place, None if the service was not asked for one yet."""
    if error is None:
        return None
    conditions = {_SCHEDULED: ("False", _UNSCHEDULABLE, str(error)[:_LONGEST_MESSAGE]), _READY: None}
    if error.code == EXPIRED_CODE:
        return _Status(_FAILED, None, {**conditions, _READY: ("False", _EXPIRED, "")}, {})
    return _Status(_PENDING, None, conditions, {})


def _placed(
    answer: Mapping[str, Any], present: Mapping[str, Any], owners: Sequence[ReservationUser]
) -> _Status | None:
    """Return the status of a reservation that has, or had, a place; None where the answer is not enough."""
    phase, node = answer["phase"], answer["node"]
    ready = {
        _AVAILABLE: ("True", _AVAILABLE, ""),
        _SUCCEEDED: ("False", _SUCCEEDED, ""),
        _FAILED: ("False", _EXPIRED, ""),
    }.get(phase)
    if ready is None or waits_for_owner(answer, owners) or (phase == _AVAILABLE and not node):
        return None
    if node is None:
        # The service has it on no node any more.
        node = present.get("nodeName") or next((owner.node for owner in owners), None)
    conditions = {_SCHEDULED: ("True", _SCHEDULED, ""), _READY: ready}
    return _Status(phase, node, conditions, answer["held"]["resources"], owners)


def _cpus(held: Mapping[str, Any]) -> str | None:
    """Return the annotation for CPUs and NUMA amounts, None for a reservation that holds none."""
    given = {name: held[name] for name in ("cpuset", "numaNodeResources") if held[name]}
    return orjson.dumps(given).decode() if given else None


def _patch(present: Mapping[str, Any], wanted_status: _Status, now: datetime) -> dict[str, Any]:
    """Return the members in which the present status differs from the wanted one."""
    patch: dict[str, Any] = {}
    for name, text in (("phase", wanted_status.phase), ("nodeName", wanted_status.node)):
        if (present.get(name) or None) != text:
            patch[name] = text
    allocatable = wanted_status.allocatable or {}
    for name, amounts in (
        ("allocatable", allocatable),
        ("allocated", _allocated(wanted_status.owners, allocatable)),
    ):
        changed = _changed_amounts(present.get(name), amounts)
        if changed:
            patch[name] = changed
    owners = sorted((owner[:3] for owner in wanted_status.owners), key=lambda owner: owner[2])
    if _owners(present.get("currentOwners")) != owners:
        patch["currentOwners"] = [dict(zip(_OF_OWNER, owner, strict=True)) for owner in owners]
    conditions = _conditions(present.get("conditions"), wanted_status.conditions, now)
    if conditions is not None:
        patch["conditions"] = conditions
    return patch


def _allocated(owners: Iterable[ReservationUser], allocatable: Iterable[str]) -> dict[str, str]:
    """Return what all owners request of the resources that the reservation holds."""
    total: Counter[str] = Counter()
    for owner in owners:
        total.update(owner.requests)
    return quantities({name: total[name] for name in allocatable if total[name]})


def _changed_amounts(present: Any, wanted: Mapping[str, str]) -> dict[str, str | None]:
    """Return the amounts that differ; equal ones may be written in different units."""
    known = _mapping(present)
    changed: dict[str, str | None] = dict.fromkeys(known.keys() - wanted.keys())
    for name, text in wanted.items():
        try:
            is_same = name in known and parse_quantity(known[name]) == parse_quantity(text)
        except QuantityError:
            is_same = False
        if not is_same:
            changed[name] = text
    return changed


def _owners(present: Any) -> list[tuple[Any, ...]]:
    """Return namespace, name and uid of the owners that a status names."""
    listed = present if isinstance(present, list) else []
    found = [tuple(_mapping(each).get(name) for name in _OF_OWNER) for each in listed]
    return sorted(found, key=lambda owner: str(owner[2]))


def _conditions(
    present: Any, wanted: Mapping[str, tuple[str, str, str] | None], now: datetime
) -> list[Any] | None:
    """Return all conditions if any differs, else None; the ones of other types stay."""
    listed = [each for each in present if isinstance(each, Mapping)] if isinstance(present, list) else []
    known = {kind: next((each for each in listed if each.get("type") == kind), None) for kind in wanted}
    written = {
        kind: None if given is None else _condition(known[kind], (kind, *given), now)
        for kind, given in wanted.items()
    }
    if written == known:
        return None
    others = [each for each in listed if each.get("type") not in wanted]
    return [*others, *filter(None, written.values())]


def _condition(
    known: Mapping[str, Any] | None, stated: tuple[str, str, str, str], now: datetime
) -> Mapping[str, Any]:
    """Return a condition with these type, status, reason and message: the known one if it says the same."""
    before = known or {}
    if tuple(before.get(name) or "" for name in _OF_CONDITION) == stated:
        return before
    at = now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    since = before.get("lastTransitionTime") if before.get("status") == stated[1] else None
    members = {name: text for name, text in zip(_OF_CONDITION, stated, strict=True) if text}
    return {**members, "lastProbeTime": at, "lastTransitionTime": since or at}


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
