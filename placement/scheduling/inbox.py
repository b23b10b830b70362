"""Updates for the loop from other threads: pods as the watch sees them, outcomes of Bindings, and wakes."""

from __future__ import annotations

import queue
from collections.abc import Iterator

from placement.scheduling.binder import BindingOutcome
from placement.sync.watched_objects import Key, ObjectKind, WatchedObject

Update = tuple[Key, WatchedObject | None]
"""An object as the watch has it now, None if it is gone."""


class Inbox:
    """The updates in the order in which they came; None stands for a wake."""

    def __init__(self) -> None:
        self._updates: queue.SimpleQueue[Update | BindingOutcome | None] = queue.SimpleQueue()

    def saw(self, key: Key, watched: WatchedObject | None) -> None:
        """Note a pod or a PodGroup. Nodes and reservations count only once the service has them."""
        if key.kind in (ObjectKind.POD, ObjectKind.POD_GROUP):
            self._updates.put((key, watched))

    def finished(self, outcome: BindingOutcome) -> None:
        """Note what became of a claim."""
        self._updates.put(outcome)

    def wake(self) -> None:
        """Note that a pod that waits may fit now."""
        self._updates.put(None)

    def take(self, seconds: float) -> Iterator[Update | BindingOutcome | None]:
        """Yield all that has come in; wait for the first of it for at most these seconds."""
        try:
            yield self._updates.get(timeout=seconds) if seconds > 0 else self._updates.get_nowait()
            while True:
                yield self._updates.get_nowait()
        except queue.Empty:
            return
