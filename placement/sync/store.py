"""The objects of Kubernetes as the watches reported them, and which of them changed."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import orjson

from placement.common.documents import RESERVATION_API_VERSION
from placement.common.pod_identity import ENDED_PHASES, canonical_uid, resize_status
from placement.sync.api_server import NOT_FOUND, ApiServer, ApiServerError, object_path
from placement.sync.service import PodId

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


class ObjectKind(StrEnum):
    """The kinds of objects that are watched."""

    NODE = "Node"
    TOPOLOGY = "NodeResourceTopology"
    POD = "Pod"
    RESERVATION = "Reservation"


class Key(NamedTuple):
    """An object; the namespace is empty if the object is in none."""

    kind: ObjectKind
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class WatchedObject:
    """An object as last seen.

    `text` is the manifest as JSON, `mark` tells whether anything that matters changed. `node` is the node a
    pod occupies; one that waits for a node or is `over` occupies none, and its text is not kept. Reservations
    may be `over`, too.
    """

    text: bytes
    mark: bytes
    uid: str
    node: str | None = None
    over: bool = False

    def has_ended_as(self, seen: WatchedObject | None) -> bool:
        """Return whether this pod is over or gone for the first time, now that its name is seen so."""
        return not self.over and (seen is None or seen.over or seen.uid != self.uid)

    @property
    def manifest(self) -> dict[str, Any]:
        """Return the manifest."""
        found: dict[str, Any] = orjson.loads(self.text)
        return found


def watched_object(manifest: Mapping[str, Any]) -> WatchedObject:
    """Return what to remember of a manifest: text, as 100,000 dictionaries would need gigabytes."""
    lasting = lasting_part(manifest)
    mark = hashlib.blake2b(orjson.dumps(lasting, option=orjson.OPT_SORT_KEYS), digest_size=16).digest()
    uid = canonical_uid(manifest["metadata"].get("uid") or "")
    over = lasting["status"].get("phase") in ENDED_PHASES
    if manifest["kind"] != ObjectKind.POD:
        over = over and manifest["kind"] == ObjectKind.RESERVATION
        return WatchedObject(orjson.dumps(manifest), mark, uid, over=over)
    node = None if over else (manifest.get("spec") or {}).get("nodeName") or None
    return WatchedObject(orjson.dumps(manifest) if node else b"", mark, uid, node, over)


def lasting_part(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the manifest without what changes all the time and decides nothing; a resize in place stays."""
    status = _without(manifest, "status", _VOLATILE_STATUS)
    if manifest["kind"] == ObjectKind.POD:
        status |= resize_status(manifest)
    return {**manifest, "metadata": _without(manifest, "metadata", _VOLATILE_METADATA), "status": status}


def _without(manifest: Mapping[str, Any], part: str, volatile: frozenset[str]) -> dict[str, Any]:
    return {name: value for name, value in (manifest.get(part) or {}).items() if name not in volatile}


class InformerStore:
    """The latest state of every object; written by several threads, read by one."""

    def __init__(self, collections: Iterable[str]) -> None:
        self._seen: dict[Key, WatchedObject] = {}
        self._members: dict[str, set[Key]] = {}
        self._missing = set(collections)
        self._lacking: set[str] = set()
        self._changed: set[Key] = set()
        self._ended: set[PodId] = set()
        self._condition = threading.Condition()

    def lacks(self, collection: str) -> None:
        """Note that there is no such collection."""
        with self._condition:
            self.replace(collection, {})
            self._lacking.add(collection)

    def is_lacking(self, collection: str) -> bool:
        """Return whether there was no such collection when it was listed last."""
        with self._condition:
            return collection in self._lacking

    def replace(self, collection: str, found: Mapping[Key, WatchedObject]) -> None:
        """Replace all objects of the collection by these."""
        with self._condition:
            self._lacking.discard(collection)
            known = self._members.get(collection, set())
            for key in known - found.keys():
                self._set(key, None)
            for key, seen in found.items():
                self._set(key, seen)
            self._members[collection] = set(found)
            self._missing.discard(collection)
            self._condition.notify()

    def put(self, collection: str, key: Key, seen: WatchedObject | None) -> None:
        """Store an object of the collection that is new or changed, or remove it (None)."""
        with self._condition:
            self._set(key, seen)
            members = self._members[collection]
            if seen is None:
                members.discard(key)
            else:
                members.add(key)
            self._condition.notify()

    def _set(self, key: Key, seen: WatchedObject | None) -> None:
        before = self._seen.get(key)
        if seen is None:
            self._seen.pop(key, None)
        else:
            self._seen[key] = seen
        if (before and before.mark) != (seen and seen.mark):
            self._changed.add(key)
        if key.kind is ObjectKind.POD and before is not None and before.has_ended_as(seen):
            self._ended.add(PodId(key.namespace, key.name, before.uid))

    def changed(self, timeout: float) -> set[Key]:
        """Return what changed since the last call, at the latest after `timeout` seconds.

        Return nothing before every collection is listed: what is not listed yet would look as if gone.
        """
        with self._condition:
            self._condition.wait_for(lambda: self._changed and not self._missing, timeout)
            if self._missing:
                return set()
            changed, self._changed = self._changed, set()
            return changed

    def ended(self) -> set[PodId]:
        """Return the pods that were seen and are over or gone since the last call, each by its uid."""
        with self._condition:
            ended, self._ended = self._ended, set()
            return ended

    @property
    def complete(self) -> bool:
        """Return whether every collection has been listed."""
        with self._condition:
            return not self._missing

    def get(self, key: Key) -> WatchedObject | None:
        """Return the object as last seen."""
        with self._condition:
            return self._seen.get(key)

    def keys(self) -> set[Key]:
        """Return the keys of all objects."""
        with self._condition:
            return set(self._seen)


# The collections that are watched, and how their objects are read.


_CORE = "/api/v1"
ALL_PODS = f"{_CORE}/pods"
_TOPOLOGY_GROUP = "topology.node.k8s.io/v1alpha1"
RESERVATIONS = "reservations"
_UNKNOWN = frozenset({NOT_FOUND})
_FORBIDDEN = 403
_NO_TOPOLOGIES = "nodes have no NUMA nodes and cores"


class Collection(NamedTuple):
    """The objects of one kind under one path.

    A list that is refused with one of the `absent` statuses means that there are none; `without` is what
    follows from that, empty if nothing needs to be reported.
    """

    title: str
    kind: ObjectKind
    api_version: str
    path: str
    absent: frozenset[int] = frozenset()
    without: str = ""

    def seen(self, manifest: dict[str, Any]) -> tuple[Key, WatchedObject]:
        """Return an object of the collection. Items of a list may omit what the list says for all of them."""
        try:
            whole = {"apiVersion": self.api_version, "kind": str(self.kind), **manifest}
            metadata = whole["metadata"]
            return Key(self.kind, metadata.get("namespace") or "", metadata["name"]), watched_object(whole)
        except (LookupError, TypeError, AttributeError) as error:
            raise ApiServerError(f"not a {self.kind}: {error!r}") from None

    def listed(self, api_server: ApiServer) -> tuple[dict[Key, WatchedObject], str]:
        """Return all objects now, and the version from which a watch goes on. Raises ApiServerError."""
        found: dict[Key, WatchedObject] = {}
        version = ""
        for page in api_server.pages(self.path):
            found.update(self.seen(manifest) for manifest in page.items)
            version = page.resource_version
        return found, version


def collections(namespaces: Iterable[str]) -> list[Collection]:
    """Return what to watch: nodes, topologies, reservations, and the pods of these namespaces, or of all."""
    reservations = f"/apis/{RESERVATION_API_VERSION}/reservations"
    topologies = f"/apis/{_TOPOLOGY_GROUP}/noderesourcetopologies"
    pods = [
        Collection(f"pods of {namespace}", ObjectKind.POD, "v1", pods_path(namespace))
        for namespace in dict.fromkeys(namespaces)
    ]
    return [
        Collection("nodes", ObjectKind.NODE, "v1", f"{_CORE}/nodes"),
        Collection("topologies", ObjectKind.TOPOLOGY, _TOPOLOGY_GROUP, topologies, _UNKNOWN, _NO_TOPOLOGIES),
        # Roles of clusters without that kind need not name it, and then the answer is 403.
        Collection(
            RESERVATIONS,
            ObjectKind.RESERVATION,
            RESERVATION_API_VERSION,
            reservations,
            _UNKNOWN | {_FORBIDDEN},
        ),
        *(pods or [Collection("pods", ObjectKind.POD, "v1", ALL_PODS)]),
    ]


def pods_path(namespace: str) -> str:
    """Return the path of the pods of a namespace."""
    return object_path(_CORE, "namespaces", namespace, "pods")


def version_of(manifest: dict[str, Any]) -> str:
    """Return the version of an object, from which a watch can go on. Raises ApiServerError."""
    try:
        return str(manifest["metadata"]["resourceVersion"])
    except (LookupError, TypeError):
        raise ApiServerError("an event names no resourceVersion") from None
