"""Events of Kubernetes about objects that the service rejects, so that `kubectl describe` shows why.

A repeated message about an object counts up the Event that is there. A thread writes a few in a second. When
too many wait, further ones are dropped: an Event is a courtesy, and the journal has it.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Mapping
from typing import Any

from placement.sync.api_server import ApiServer, ApiServerError
from placement.sync.event_source import EventSource, reference_of
from placement.sync.figures import EVENTS
from placement.sync.journal import Journal
from placement.sync.watched_objects import Key

REASON = "PlacementRejected"
_COMPONENT = "placement-sync"
_SOURCE = "events"
_MOST_WAITING = 100
_PAUSE_SECONDS = 0.2
# Kubernetes forgets Events after an hour; what is still so is reported again before.
_AGAIN_AFTER_SECONDS = 1200.0
_MOST_REMEMBERED = 10_000
_LONGEST_MESSAGE = 1000


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
            self._waiting.put_nowait((reference_of(manifest), text[:_LONGEST_MESSAGE]))
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
