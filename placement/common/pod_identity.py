"""The identity of pods: uids and consumer uuids, and which of two pods of one name existed first."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from placement.engine.domain.identifiers import is_dashed_uuid

ENDED_PHASES = ("Succeeded", "Failed")

_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "placement/koordinator/pod")
# The metadata of a pod that decides.
SUCCESSION = ("creationTimestamp", "resourceVersion")
_LONGEST_VERSION = 20


def derived_uid(cluster: str, namespace: str, name: str) -> str:
    """Return the uid, always equal, of a pod that came without one."""
    return str(uuid.uuid5(_NAMESPACE, f"{cluster}/name/{namespace}/{name}"))


def canonical_uid(uid: str) -> str:
    """Return the canonical spelling of a uid; in a uuid the letter case of the digits is irrelevant."""
    return uid.lower() if is_dashed_uuid(uid) else uid


def consumer_of(cluster: str, uid: str) -> str:
    """Return the consumer of a pod: its uid if that is a uuid, else one derived from cluster and uid."""
    return uid.lower() if is_dashed_uuid(uid) else str(uuid.uuid5(_NAMESPACE, f"{cluster}/uid/{uid}"))


def is_former(pod: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Return whether manifests of two pods of one name prove that `pod` was gone before `other` came.

    Their uids differ. A StatefulSet gives the name of a deleted pod to a new one, often within a second. So
    creationTimestamp, which counts seconds, is not enough: resourceVersion counts every change in Kubernetes,
    and the first version of a new pod comes after the last version of its predecessor.

    One sign that confirms the order is enough if none denies it: clocks of API servers may differ, and
    versions restart in a restored Kubernetes. A sign that one of the two pods lacks does not count.
    """
    signs: list[tuple[Any, Any]] = [(read(pod), read(other)) for read in (_created_at, _version)]
    known = [(one, another) for one, another in signs if one is not None and another is not None]
    confirms = any(one < another for one, another in known)
    return confirms and not any(one > another for one, another in known)


def _created_at(pod: Mapping[str, Any]) -> datetime.datetime | None:
    text = _mapping(pod.get("metadata")).get("creationTimestamp")
    if not isinstance(text, str):
        return None
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def _version(pod: Mapping[str, Any]) -> int | None:
    text = _mapping(pod.get("metadata")).get("resourceVersion")
    if not isinstance(text, str) or len(text) > _LONGEST_VERSION:
        return None
    return int(text) if text.isascii() and text.isdecimal() else None


_STATUSES = (("containers", "containerStatuses"), ("initContainers", "initContainerStatuses"))
_AMOUNTS = ("resources", "allocatedResources")


def resize_status(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the members of a pod's status that show a resize; none where all is as requested.

    Kubelet writes the amounts of every container. Only amounts that differ from the spec are kept, so that a
    pod without a resize is reported and stored without them.
    Source: KEP-1287, "In-place Update of Pod Resources".
    """
    spec, status = _mapping(manifest.get("spec")), _mapping(manifest.get("status"))
    if not status:
        return {}
    found: dict[str, Any] = {}
    for containers, statuses in _STATUSES:
        requests = {str(each.get("name")): _requests(each) for each in _mappings(spec.get(containers))}
        differing = [
            {name: each[name] for name in ("name", *_AMOUNTS) if name in each}
            for each in _mappings(status.get(statuses))
            if _differs(each, requests.get(str(each.get("name")), {}))
        ]
        if differing:
            found[statuses] = differing
    if _differs(status, _requests(spec)):
        found |= {name: status[name] for name in _AMOUNTS if name in status}
    infeasible = [each for each in _mappings(status.get("conditions")) if _infeasible(each)]
    if found and infeasible:
        found["conditions"] = [{"type": each["type"], "reason": each["reason"]} for each in infeasible]
    return found


def resize_is_infeasible(manifest: Mapping[str, Any]) -> bool:
    """Return whether kubelet found that the node can never meet the new requests."""
    return any(map(_infeasible, _mappings(_mapping(manifest.get("status")).get("conditions"))))


def _infeasible(condition: Mapping[str, Any]) -> bool:
    return (condition.get("type"), condition.get("reason")) == ("PodResizePending", "Infeasible")


def _differs(status: Mapping[str, Any], requests: Mapping[str, Any]) -> bool:
    in_effect = _requests(status)
    admitted = _mapping(status.get("allocatedResources"))
    return bool(in_effect) and (in_effect != requests or (bool(admitted) and admitted != requests))


def _requests(container: Mapping[str, Any]) -> Mapping[str, Any]:
    return _mapping(_mapping(container.get("resources")).get("requests"))


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _mappings(value: Any) -> Iterator[Mapping[str, Any]]:
    return (each for each in value if isinstance(each, Mapping)) if isinstance(value, list) else iter(())
