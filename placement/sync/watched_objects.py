"""The objects of Kubernetes as the watches report them, without their volatile parts."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import orjson

from placement.common.manifest import PINNED
from placement.common.pod_groups import NamedPodGroup, named_pod_group
from placement.common.pod_identity import ENDED_PHASES, canonical_uid, resize_status

# What changes all the time and decides nothing: heartbeats, bookkeeping, what containers are up to.
_VOLATILE_METADATA = frozenset({"resourceVersion", "managedFields", "generation"})
_VOLATILE_STATUS = frozenset(
    {
        "conditions",
        "images",
        "volumesInUse",
        "volumesAttached",
        "containerStatuses",
        "initContainerStatuses",
        "ephemeralContainerStatuses",
    }
)


_PODS_FINGERPRINT = "nodeTopologyPodsFingerprint"


class ObjectKind(StrEnum):
    """The kinds of objects that are watched."""

    NODE = "Node"
    TOPOLOGY = "NodeResourceTopology"
    POD = "Pod"
    RESERVATION = "Reservation"
    POD_GROUP = "PodGroup"


class Key(NamedTuple):
    """An object; the namespace is empty if the object is in none.

    The name of a PodGroup has its API group before it, as different kinds of them have that kind.
    """

    kind: ObjectKind
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class WatchedObject:
    """An object as last seen.

    `text` is the manifest as JSON, `mark` tells whether anything that matters changed. `node` is the node a
    pod occupies; one that waits for a node or is `over` occupies none. The text of a pod that is over is not
    kept. Reservations may be `over`, too. `group_key` is the PodGroup that a pod names.
    """

    text: bytes
    mark: bytes
    uid: str
    node: str | None = None
    over: bool = False
    group_key: Key | None = None

    def has_ended_as(self, watched: WatchedObject | None) -> bool:
        """Return whether this pod is over or gone for the first time, now that its name is seen so."""
        return not self.over and (watched is None or watched.over or watched.uid != self.uid)

    @property
    def pinned_to(self) -> str | None:
        """Return the node that the loop chose for a pod before it took its gate away, None for other pods."""
        if PINNED.encode() not in self.text:
            return None
        annotations = self.manifest["metadata"].get("annotations")
        node = annotations.get(PINNED) if isinstance(annotations, Mapping) else None
        return node if isinstance(node, str) and node else None

    @property
    def manifest(self) -> dict[str, Any]:
        found: dict[str, Any] = orjson.loads(self.text)
        return found


def watched_object(manifest: Mapping[str, Any]) -> WatchedObject:
    """Return the object to keep of a manifest: text, as 100,000 dictionaries would need gigabytes."""
    lasting = lasting_part(manifest)
    mark = hashlib.blake2b(orjson.dumps(lasting, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()
    uid = canonical_uid(manifest["metadata"].get("uid") or "")
    over = lasting["status"].get("phase") in ENDED_PHASES
    if manifest["kind"] != ObjectKind.POD:
        over = over and manifest["kind"] == ObjectKind.RESERVATION
        return WatchedObject(orjson.dumps(manifest), mark, uid, over=over)
    node = None if over else (manifest.get("spec") or {}).get("nodeName") or None
    text = b"" if over else orjson.dumps(manifest)
    named = named_pod_group(manifest)
    return WatchedObject(text, mark, uid, node, over, None if named is None else key_of_named(named))


def key_of_named(group: NamedPodGroup) -> Key:
    """Return the key of the PodGroup that a pod names."""
    return pod_group_key(group.kind.api_group, group.namespace, group.name)


def pod_group_key(api_group: str, namespace: str, name: str) -> Key:
    """Return the key of a PodGroup of an API group."""
    return Key(ObjectKind.POD_GROUP, namespace, f"{api_group}/{name}")


def lasting_part(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest without volatile parts, which decide nothing; a resize in place stays."""
    # Schedulers write into the status of a PodGroup how many of its pods run.
    is_group = manifest["kind"] == ObjectKind.POD_GROUP
    status = {} if is_group else _without(manifest, "status", _VOLATILE_STATUS)
    if manifest["kind"] == ObjectKind.POD:
        status |= resize_status(manifest)
    volatile = _VOLATILE_METADATA
    if manifest["kind"] == ObjectKind.RESERVATION:
        # Schedulers write the rest of its status, and its CPUs as an annotation: the service knows them.
        status = {"phase": status["phase"]} if status.get("phase") in ENDED_PHASES else {}
        volatile |= {"annotations"}
    lasting = {**manifest, "metadata": _without(manifest, "metadata", volatile), "status": status}
    return lasting | _lasting_amounts(manifest) if manifest["kind"] == ObjectKind.TOPOLOGY else lasting


def _lasting_amounts(topology: Mapping[str, Any]) -> dict[str, Any]:
    """Return zones without what is available in them, and attributes without the fingerprint of pods.

    Node agents write both whenever a pod comes or goes. Members of other types stay as they are.
    """

    def without_use(zone: Any) -> Any:
        resources = zone.get("resources") if isinstance(zone, Mapping) else None
        if not isinstance(resources, list):
            return zone
        kept = [
            {name: amount for name, amount in each.items() if name != "available"}
            if isinstance(each, Mapping)
            else each
            for each in resources
        ]
        return {**zone, "resources": kept}

    zones, attributes = topology.get("zones"), topology.get("attributes")
    lasting: dict[str, Any] = {}
    if isinstance(zones, list):
        lasting["zones"] = list(map(without_use, zones))
    if isinstance(attributes, list):
        lasting["attributes"] = [
            each
            for each in attributes
            if not isinstance(each, Mapping) or each.get("name") != _PODS_FINGERPRINT
        ]
    return lasting


def _without(manifest: Mapping[str, Any], part: str, volatile: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in (manifest.get(part) or {}).items() if name not in volatile}
