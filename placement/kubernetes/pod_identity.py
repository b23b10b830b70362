"""The uids and consumer uuids of pods."""

from __future__ import annotations

import uuid

from placement.domain.identifiers import is_dashed_uuid

_NAMESPACE = uuid.uuid5(uuid.NAMESPACE_URL, "placement/koordinator/pod")


def derived_uid(cluster: str, namespace: str, name: str) -> str:
    """The uid of a pod that came without one, the same each time."""
    return str(uuid.uuid5(_NAMESPACE, f"{cluster}/name/{namespace}/{name}"))


def canonical_uid(uid: str) -> str:
    """The one spelling of a uid: if it is a uuid, the letter case of its digits means nothing."""
    return uid.lower() if is_dashed_uuid(uid) else uid


def consumer_of(cluster: str, uid: str) -> str:
    """The consumer that a pod is: its uid if that is a uuid, else one derived from cluster and uid."""
    return canonical_uid(uid) if is_dashed_uuid(uid) else str(uuid.uuid5(_NAMESPACE, f"{cluster}/uid/{uid}"))
