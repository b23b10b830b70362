"""Which pod is which: uids and consumer uuids, and which of two pods of one name was there first."""

from __future__ import annotations

import datetime
import uuid
from collections.abc import Mapping
from typing import Any

from placement.domain.identifiers import is_dashed_uuid

ENDED_PHASES = ("Succeeded", "Failed")

_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "placement/koordinator/pod")
# What of the metadata of a pod decides.
SUCCESSION = ("creationTimestamp", "resourceVersion")
_LONGEST_VERSION = 20


def derived_uid(cluster: str, namespace: str, name: str) -> str:
    """The uid of a pod that came without one, the same each time."""
    return str(uuid.uuid5(_NAMESPACE, f"{cluster}/name/{namespace}/{name}"))


def canonical_uid(uid: str) -> str:
    """The one spelling of a uid: if it is a uuid, the letter case of its digits means nothing."""
    return uid.lower() if is_dashed_uuid(uid) else uid


def consumer_of(cluster: str, uid: str) -> str:
    """The consumer that a pod is: its uid if that is a uuid, else one derived from cluster and uid."""
    return canonical_uid(uid) if is_dashed_uuid(uid) else str(uuid.uuid5(_NAMESPACE, f"{cluster}/uid/{uid}"))


def is_former(pod: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether manifests of two pods of one name but different uids prove that `pod` went before `other` came.

    A StatefulSet gives the name of a pod that is gone to a new one, often within the same second. So it takes
    more than creationTimestamp, which counts seconds: resourceVersion counts every change in Kubernetes, and
    the first of a new pod comes after the last of the one before.

    They do if one sign says so and none denies it: clocks of API servers may differ, and versions begin anew
    in a Kubernetes that was restored. Signs that one of the two lacks say nothing.
    """
    signs = (
        _order(_created_at(pod), _created_at(other)),
        _order(_version(pod), _version(other)),
    )
    return -1 in signs and 1 not in signs


def _order(first: Any, second: Any) -> int:
    """-1, 0 or 1; 0 also if one is unknown."""
    if first is None or second is None:
        return 0
    return int(first > second) - int(first < second)


def _created_at(pod: Mapping[str, Any]) -> datetime.datetime | None:
    text = _metadata(pod).get("creationTimestamp")
    if not isinstance(text, str):
        return None
    try:
        found = datetime.datetime.fromisoformat(text)
    except ValueError:
        return None
    return found if found.tzinfo is not None else None


def _version(pod: Mapping[str, Any]) -> int | None:
    text = _metadata(pod).get("resourceVersion")
    if not isinstance(text, str) or len(text) > _LONGEST_VERSION:
        return None
    return int(text) if text.isascii() and text.isdecimal() else None


def _metadata(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    found = pod.get("metadata")
    return found if isinstance(found, Mapping) else {}
