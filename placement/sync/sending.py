"""Sending to the service, without sending what it refused over and over."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from placement.client.client import ServiceError
from placement.sync.events import Journal, RejectionEvents
from placement.sync.figures import WRITES
from placement.sync.service import CONFLICT, is_refusal
from placement.sync.store import InformerStore, Key, ObjectKind
from placement.sync.watching import Pause

Thing = TypeVar("Thing", bound=Hashable)
_LONGEST_PAUSE_SECONDS = 300.0


@dataclass(slots=True)
class _Rejection:
    mark: Hashable
    again_at: float | None = None
    pause: Pause = field(default_factory=lambda: Pause(_LONGEST_PAUSE_SECONDS))


class Rejections(Generic[Thing]):
    """The refused things, with the mark of the state that was refused.

    What is wrong in itself waits until it changes. A conflict may be over without any change of the thing,
    when another consumer has made room. So it is tried again, less and less often.
    """

    def __init__(self) -> None:
        self._found: dict[Thing, _Rejection] = {}

    def __len__(self) -> int:
        return len(self._found)

    def add(self, thing: Thing, mark: Hashable, *, conflict: bool) -> None:
        """Note that the thing was refused in this state."""
        rejection = self._found.get(thing)
        if rejection is None or rejection.mark != mark:
            rejection = self._found[thing] = _Rejection(mark)
        rejection.again_at = time.monotonic() + rejection.pause.after_failure() if conflict else None

    def discard(self, thing: Thing) -> bool:
        """Forget a thing that was accepted or is gone; return whether it had been refused."""
        return self._found.pop(thing, None) is not None

    def forgive(self) -> None:
        """Forget all refusals: everything is tried again."""
        for rejection in self._found.values():
            rejection.again_at = 0.0

    def holds_back(self, thing: Thing, mark: Hashable) -> bool:
        """Return whether the thing would be refused again in this state."""
        rejection = self._found.get(thing)
        if rejection is None or rejection.mark != mark:
            return False
        return rejection.again_at is None or rejection.again_at > time.monotonic()

    def ripe(self) -> set[Thing]:
        """Return the conflicts that are to be tried again by now."""
        now = time.monotonic()
        return {
            thing
            for thing, rejection in self._found.items()
            if rejection.again_at is not None and rejection.again_at <= now
        }

    def ripen(self) -> set[Thing]:
        """Make all conflicts due now, and return the things."""
        for rejection in self._found.values():
            if rejection.again_at is not None:
                rejection.again_at = 0.0
        return self.ripe()


class Sending:
    """A sender that notes what became of the things it sends.

    A refusal concerns its thing only, any other failure all of them.
    """

    def __init__(
        self,
        journal: Journal,
        progress: Callable[[], None],
        store: InformerStore,
        events: RejectionEvents | None = None,
    ) -> None:
        self._journal = journal
        self._progress = progress
        self._store = store
        self._events = events
        self.rejections: Rejections[Key] = Rejections()

    def accepted(self, key: Key, mark: Hashable, send: Callable[[], list[str] | None]) -> bool:
        """Send the thing, unless its mark is held back, and return whether the service took it.

        `send` may return warnings. Raises ServiceError for what is no refusal.
        """
        if self.rejections.holds_back(key, mark):
            return False
        try:
            warnings = send()
        except ServiceError as error:
            self.rejected(key, mark, error)
            return False
        self.took(key, warnings or ())
        return True

    def took(self, key: Key, warnings: Iterable[str]) -> None:
        """Note that the service took the thing."""
        WRITES.labels(key.kind, "accepted").inc()
        self.settled(key)
        for warning in warnings:
            self._journal.note(f"{_title(key)}: {warning}")
        self._progress()

    def rejected(self, key: Key, mark: Hashable, error: ServiceError) -> None:
        """Note that the service refused the thing as it is. Raises `error` if it is no refusal."""
        if not is_refusal(error):
            raise error
        WRITES.labels(key.kind, "rejected").inc()
        self.rejections.add(key, mark, conflict=error.status == CONFLICT)
        self._journal.trouble(_title(key), f"rejected: {error}")
        seen = self._store.get(key)
        if self._events is not None and seen is not None and seen.text:
            self._events.rejected(key, seen.manifest, str(error))

    def settled(self, key: Key) -> None:
        """Note that nothing is wrong with a thing, or that it is gone."""
        if self.rejections.discard(key):
            self._journal.well(_title(key))
            if self._events is not None:
                self._events.settled(key)


def _title(key: Key) -> str:
    if key.kind is ObjectKind.POD:
        return f"pod {key.namespace}/{key.name}"
    return f"reservation {key.name}" if key.kind is ObjectKind.RESERVATION else f"node {key.name}"
