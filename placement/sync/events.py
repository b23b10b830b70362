"""Events of Kubernetes about objects that the service rejects, so that `kubectl describe` shows why.

A repeated message about an object counts up the Event that is there. A thread writes a few in a second. When
too many wait, further ones are dropped: an Event is a courtesy, and the journal has it.
"""

from __future__ import annotations

import hashlib
import queue
import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from placement.sync.api_server import ApiServer, ApiServerError, object_path
from placement.sync.figures import EVENTS
from placement.sync.journal import Journal
from placement.sync.service import CONFLICT
from placement.sync.watched_objects import Key, ObjectKind

REASON = "PlacementRejected"
_COMPONENT = "placement-sync"
_SOURCE = "events"
# Events of objects that are in no namespace are in this one.
_DEFAULT_NAMESPACE = "default"
_MOST_WAITING = 100
_PAUSE_SECONDS = 0.2
# Kubernetes forgets Events after an hour; what is still so is reported again before.
_AGAIN_AFTER_SECONDS = 1200.0
_MOST_REMEMBERED = 10_000
_LONGEST_MESSAGE, _LONGEST_NAME = 1000, 200


class RejectionEvents(threading.Thread):
    """The thread that writes the Events until the process ends."""

    def __init__(self, api_server: ApiServer, journal: Journal) -> None:
        super().__init__(name="events", daemon=True)
        self._source = EventSource(api_server, _COMPONENT)
        self._journal = journal
        self._waiting: queue.Queue[tuple[dict[str, Any], str]] = queue.Queue(_MOST_WAITING)
        # The last text about each object, and when it was given.
        self._sent: dict[Key, tuple[str, float]] = {}

    def rejected(self, key: Key, manifest: Mapping[str, Any], text: str) -> None:
        """Have an Event written, unless one about that object had the same text a short while ago."""
        (given, at), now = self._sent.get(key, ("", 0.0)), time.monotonic()
        if given == text and now - at < _AGAIN_AFTER_SECONDS:
            return
        if len(self._sent) >= _MOST_REMEMBERED:
            self._sent.clear()
        self._sent[key] = text, now
        try:
            self._waiting.put_nowait((reference_of(key, manifest), text[:_LONGEST_MESSAGE]))
        except queue.Full:
            EVENTS.labels("dropped").inc()

    def settled(self, key: Key) -> None:
        """Note that nothing is wrong with the object any more."""
        self._sent.pop(key, None)

    def run(self) -> None:
        while True:
            self.write_next()
            time.sleep(_PAUSE_SECONDS)

    def write_all(self) -> None:
        """Write all waiting Events, and return."""
        while not self._waiting.empty():
            self.write_next()

    def write_next(self) -> None:
        """Wait for an Event to write, and write it."""
        reference, text = self._waiting.get()
        try:
            self._source.write(reference, REASON, text, "Warning")
        except ApiServerError as error:
            EVENTS.labels("failed").inc()
            self._journal.trouble(_SOURCE, str(error))
        else:
            EVENTS.labels("written").inc()
            self._journal.well(_SOURCE)


class EventSource:
    """A component that reports Events."""

    def __init__(self, api_server: ApiServer, component: str) -> None:
        self._api_server = api_server
        self._component = component

    def write(self, reference: Mapping[str, Any], reason: str, text: str, kind: str) -> None:
        """Write an Event of the type `kind`, or count up the one that is there. Raises ApiServerError."""
        event = self._event(reference, reason, text, kind)
        collection = object_path("/api/v1", "namespaces", event["metadata"]["namespace"], "events")
        try:
            self._api_server.post(collection, event)
        except ApiServerError as error:
            if error.status != CONFLICT:
                raise
            path = object_path(collection, event["metadata"]["name"])
            found = self._api_server.get(path)
            if found is not None:
                again = {"count": (found.get("count") or 0) + 1, "lastTimestamp": event["lastTimestamp"]}
                self._api_server.patch(path, again)

    def _event(self, reference: Mapping[str, Any], reason: str, text: str, kind: str) -> dict[str, Any]:
        """Return the Event; a repeated message about an object gets the same name."""
        shown = "\0".join([reference["kind"], reference["name"], reference.get("uid", ""), text])
        digest = hashlib.sha256(shown.encode()).hexdigest()[:16]
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {
                "namespace": reference.get("namespace") or _DEFAULT_NAMESPACE,
                "name": f"{reference['name'][:_LONGEST_NAME].rstrip('.-')}.{digest}",
            },
            "involvedObject": reference,
            "reason": reason,
            "message": text,
            "type": kind,
            "source": {"component": self._component},
            "reportingComponent": self._component,
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }


def reference_of(key: Key, manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the ObjectReference of an object."""
    metadata = manifest["metadata"]
    # kubelet names nodes by their names in Events, and kubectl looks for that.
    uid = key.name if key.kind is ObjectKind.NODE else str(metadata.get("uid") or "")
    found = {
        "apiVersion": manifest["apiVersion"],
        "kind": manifest["kind"],
        "name": key.name,
        "uid": uid,
        "resourceVersion": metadata.get("resourceVersion"),
    }
    if key.namespace:
        found["namespace"] = key.namespace
    return {name: value for name, value in found.items() if value}
