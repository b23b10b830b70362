"""Sending to the service, without sending what it refused over and over."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from placement.client.client import ServiceError
from placement.sync.events import Journal, RejectionEvents
from placement.sync.figures import WRITES
from placement.sync.service import CONFLICT, Sent, ServiceCluster, is_refusal
from placement.sync.store import InformerStore, Key, ObjectKind
from placement.sync.watching import Pause

_LONGEST_PAUSE_SECONDS = 300.0


@dataclass(slots=True)
class _Rejection:
    mark: Hashable
    again_at: float | None = None
    pause: Pause = field(default_factory=lambda: Pause(_LONGEST_PAUSE_SECONDS))


class Rejections:
    """The refused things, with the mark of the state that was refused.

    What is wrong in itself waits until it changes. A conflict may be over without any change of the thing,
    when another consumer has made room. So it is tried again, less and less often.
    """

    def __init__(self) -> None:
        self._found: dict[Key, _Rejection] = {}

    def __len__(self) -> int:
        return len(self._found)

    def add(self, key: Key, mark: Hashable, *, conflict: bool) -> None:
        """Note that the thing was refused in this state."""
        rejection = self._found.get(key)
        if rejection is None or rejection.mark != mark:
            rejection = self._found[key] = _Rejection(mark)
        rejection.again_at = time.monotonic() + rejection.pause.after_failure() if conflict else None

    def discard(self, key: Key) -> bool:
        """Forget a thing that was accepted or is gone; return whether it had been refused."""
        return self._found.pop(key, None) is not None

    def forgive(self) -> None:
        """Forget all refusals: everything is tried again."""
        for rejection in self._found.values():
            rejection.again_at = 0.0

    def holds_back(self, key: Key, mark: Hashable) -> bool:
        """Return whether the thing would be refused again in this state."""
        rejection = self._found.get(key)
        if rejection is None or rejection.mark != mark:
            return False
        return rejection.again_at is None or rejection.again_at > time.monotonic()

    def ripe(self, by: float | None = None) -> set[Key]:
        """Return the conflicts that are to be tried again by now, or by another time."""
        now = time.monotonic() if by is None else by
        return {
            key
            for key, rejection in self._found.items()
            if rejection.again_at is not None and rejection.again_at <= now
        }

    def ripen(self) -> set[Key]:
        """Make all conflicts due now, and return the things."""
        conflicts = self.ripe(float("inf"))
        for key in conflicts:
            self._found[key].again_at = 0.0
        return conflicts


@dataclass
class Sending:
    """A sender that notes what became of the things it sends.

    A refusal concerns its thing only, any other failure all of them.
    """

    _journal: Journal
    _progress: Callable[[], None]
    _store: InformerStore
    _events: RejectionEvents | None = None
    rejections: Rejections = field(default_factory=Rejections)

    def accepted(self, key: Key, mark: Hashable, send: Callable[[], list[str] | None]) -> bool:
        """Send the thing, unless its mark is held back, and return whether the service took it.

        `send` may return warnings. Raises ServiceError for what is no refusal.
        """
        if self.rejections.holds_back(key, mark):
            return False
        try:
            sent = Sent(send() or [])
        except ServiceError as error:
            sent = Sent([], error)
        return self.took(key, mark, sent)

    def took(self, key: Key, mark: Hashable, sent: Sent) -> bool:
        """Note whether the service took the thing as it is, and return it. Raises what is no refusal."""
        error = sent.refusal
        if error is not None and not is_refusal(error):
            raise error
        WRITES.labels(key.kind, "accepted" if error is None else "rejected").inc()
        if error is None:
            self.settled(key)
            for warning in sent.warnings:
                self._journal.note(f"{_title(key)}: {warning}")
            self._progress()
            return True
        self.rejections.add(key, mark, conflict=error.status == CONFLICT)
        self._journal.trouble(_title(key), f"rejected: {error}")
        seen = self._store.get(key)
        if self._events is not None and seen is not None and seen.text:
            self._events.rejected(key, seen.manifest, str(error))
        return False

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


class HeldObject(NamedTuple):
    """An object that the service holds, with the mark it was sent with, if this process sent it."""

    mark: Hashable = None
    uid: str | None = None
    node: str | None = None


class Reconciled:
    """The objects of one kind that the service holds, and the ones that are due."""

    def __init__(self, service: ServiceCluster, store: InformerStore, sending: Sending) -> None:
        self._service = service
        self._store = store
        self._sending = sending
        self._held: dict[Key, HeldObject] = {}
        self._due: set[Key] = set()

    def __len__(self) -> int:
        return len(self._held)

    def look_at(self, keys: Iterable[Key]) -> None:
        """Note objects that may have changed."""
        self._due.update(keys)

    def _holds(self, keys: Iterable[Key]) -> None:
        """Note what the service holds; marks of what this process sent stay, and all of it becomes due."""
        self._held = {key: self._held.get(key, HeldObject()) for key in keys}
        self._due.update(self._held)

    def _took(self, key: Key, held: HeldObject, sent: Sent) -> bool:
        """Note the outcome; return whether the object was taken. Raises ServiceError that is no refusal."""
        taken = self._sending.took(key, held.mark, sent)
        if taken:
            self._held[key] = held
        self._due.discard(key)
        return taken
