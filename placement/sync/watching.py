"""The objects of Kubernetes as the watches reported them, and which of them changed."""

from __future__ import annotations

import hashlib
import random
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple, TextIO

import orjson

from placement.common.documents import RESERVATION_API_VERSION
from placement.common.pod_identity import ENDED_PHASES, canonical_uid, resize_status
from placement.common.texts import printable
from placement.sync.api_server import ALL_PODS, CORE, GONE, NOT_FOUND, ApiServer, ApiServerError, pods_path
from placement.sync.figures import WATCH_FAILURES
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
        with self._condition:
            return set(self._seen)


# The collections that are watched, and how their objects are read.


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
        Collection("nodes", ObjectKind.NODE, "v1", f"{CORE}/nodes"),
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


def version_of(manifest: dict[str, Any]) -> str:
    """Return the version of an object, from which a watch can go on. Raises ApiServerError."""
    try:
        return str(manifest["metadata"]["resourceVersion"])
    except (LookupError, TypeError):
        raise ApiServerError("an event names no resourceVersion") from None


# A thread that keeps one collection of the store current, also after the connection was lost.


# The lines that the command prints for the person at the terminal.


class Journal:
    """A journal of progress on one stream and trouble on the other; may be used by several threads."""

    def __init__(self, progress: TextIO, trouble: TextIO) -> None:
        self._progress = progress
        self._trouble = trouble
        self._lock = threading.Lock()
        self._last: dict[str, str] = {}

    def note(self, text: str) -> None:
        """Print progress."""
        self._write(self._progress, text)

    def trouble(self, source: str, text: str) -> None:
        """Print what went wrong with a thing, but not the same text again until `well` was called for it."""
        with self._lock:
            repeated = self._last.get(source) == text
            self._last[source] = text
        if not repeated:
            self._write(self._trouble, f"{source}: {text}")

    def well(self, source: str) -> None:
        """Note that the trouble with a thing is over."""
        with self._lock:
            settled = self._last.pop(source, None) is not None
        if settled:
            self._write(self._trouble, f"{source}: well again")

    def troubles(self) -> dict[str, str]:
        """Return what goes wrong at present, by source."""
        with self._lock:
            return dict(self._last)

    def _write(self, stream: TextIO, text: str) -> None:
        with self._lock:
            print(printable(text), file=stream, flush=True)


# How long to wait before trying again.


_FIRST_SECONDS = 0.5
_LONGEST_SECONDS = 30.0


class Pause:
    """A pause that doubles with each failure in a row; jitter keeps callers from coming back together."""

    def __init__(self, longest: float = _LONGEST_SECONDS) -> None:
        self._longest = longest
        self._next = _FIRST_SECONDS

    def after_failure(self) -> float:
        """Return the seconds to wait now."""
        now = self._next
        self._next = min(2 * now, self._longest)
        return now * random.uniform(0.5, 1.0)

    def after_success(self) -> None:
        """Begin again with a short pause."""
        self._next = _FIRST_SECONDS


# The beginning of the trouble with a kind that need not be there.
UNKNOWN_KIND = "Kubernetes knows no"
SOURCE = "Kubernetes, "
# Short enough that a connection which died without a word is noticed soon, long enough to cost nothing.
_WATCH_SECONDS = (90, 150)
_UNKNOWN_KIND_SECONDS = 300.0
_SUSPICIOUSLY_SHORT_SECONDS = 1.0
# After so many watches that were let in and broke off at once, only an event proves that one is on.
_MOST_BROKEN_AT_ONCE = 2


class Watching(threading.Thread):
    """A thread that lists, then watches from the version of the list; it lists anew only when it must."""

    def __init__(
        self, api_server: ApiServer, collection: Collection, store: InformerStore, journal: Journal
    ) -> None:
        super().__init__(name=collection.title, daemon=True)
        self._api_server = api_server
        self._collection = collection
        self._store = store
        self._journal = journal
        self._source = _source(collection)
        self._pause = Pause()
        # How many watches in a row were let in and broke off at once.
        self._broken_at_once = 0

    def run(self) -> None:
        while True:
            try:
                version = list_into(self._api_server, self._collection, self._store, self._journal)
                if version is None:
                    time.sleep(_UNKNOWN_KIND_SECONDS)
                else:
                    self._follow(version)
            except ApiServerError as error:
                self._recover(error)

    def _follow(self, version: str) -> None:
        """Watch from this version. Raises ApiServerError when only a new list helps."""
        is_doubtful = False
        while True:
            began, before, is_on = time.monotonic(), version, False
            try:
                if is_doubtful:
                    # A restored etcd has older versions, and a watch from a later one brings nothing.
                    page = next(self._api_server.pages(self._collection.path, {"limit": "1"}))
                    latest = page.resource_version
                    if _number(latest) < _number(version):
                        raise ApiServerError(f"version {version} is after the latest, {latest}", GONE)
                events = self._api_server.watch(
                    self._collection.path, version, random.randint(*_WATCH_SECONDS)
                )
                is_on = True
                # Where nothing happens no event tells that the watch is on again.
                if self._broken_at_once < _MOST_BROKEN_AT_ONCE:
                    self._journal.well(self._source)
                for event in events:
                    version = version_of(event.object)
                    if event.type != "BOOKMARK":
                        key, seen = self._collection.seen(event.object)
                        gone = event.type == "DELETED"
                        self._store.put(self._collection.title, key, None if gone else seen)
                    self._well()
            except ApiServerError as error:
                if error.status is not None:
                    raise
                is_short = is_on and time.monotonic() - began < _SUSPICIOUSLY_SHORT_SECONDS
                self._broken_at_once = self._broken_at_once + 1 if is_short else 0
                self._recover(error)
                is_doubtful = True
                continue
            is_doubtful = version == before
            # A server that ends every watch at once must not be asked a thousand times a second.
            if version == before and time.monotonic() - began < _SUSPICIOUSLY_SHORT_SECONDS:
                time.sleep(self._pause.after_failure())
            else:
                self._well()

    def _well(self) -> None:
        self._broken_at_once = 0
        self._pause.after_success()
        self._journal.well(self._source)

    def _recover(self, error: ApiServerError) -> None:
        if error.status == GONE:
            self._journal.note(f"{self._source}: versions since the last one are not known, listing again")
        else:
            WATCH_FAILURES.labels(self._collection.title).inc()
            self._journal.trouble(self._source, str(error))
        time.sleep(self._pause.after_failure())


def list_into(
    api_server: ApiServer, collection: Collection, store: InformerStore, journal: Journal
) -> str | None:
    """List the collection into the store; return the version of the list. Raises ApiServerError.

    Return None if Kubernetes does not know the kind, where that may be: then there are no objects.
    """
    source = _source(collection)
    try:
        found, version = collection.listed(api_server)
    except ApiServerError as error:
        if error.status not in collection.absent:
            raise
        store.lacks(collection.title)
        if collection.without:
            journal.trouble(source, f"{UNKNOWN_KIND} {collection.kind}, so {collection.without}")
        else:
            journal.well(source)
        return None
    store.replace(collection.title, found)
    journal.well(source)
    return version


def _number(version: str) -> int:
    """Return the number of a version, 0 if it is none. Kubernetes compares versions so (KEP-5504)."""
    return int(version) if version.isdecimal() else 0


def _source(collection: Collection) -> str:
    return f"{SOURCE}{collection.title}"
