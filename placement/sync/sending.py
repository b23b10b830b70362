"""The outcome of sending, and refused things, which are not sent over and over."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Hashable
from dataclasses import dataclass, field

from placement.client.client import ServiceError
from placement.sync.events import RejectionEvents
from placement.sync.figures import WRITES
from placement.sync.informer_store import InformerStore
from placement.sync.journal import Journal
from placement.sync.pause import Pause
from placement.sync.service import CONFLICT, Sent, is_refusal, outcome_of
from placement.sync.watched_objects import Key, ObjectKind

_LONGEST_PAUSE_SECONDS = 300.0
ReservationListener = Callable[[str, ServiceError | None], None]
"""A call with the name of a reservation and why the service refused it, None if it did not."""


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

    def mark_of(self, key: Key) -> Hashable:
        """Return the mark of the state in which the thing was refused, None if it was not."""
        rejection = self._found.get(key)
        return None if rejection is None else rejection.mark

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

    def ripen(self, keys: Collection[Key] | None = None) -> set[Key]:
        """Make all conflicts due now, or the ones among these things, and return the things."""
        conflicts = self.ripe(float("inf"))
        if keys is not None:
            conflicts &= set(keys)
        for key in conflicts:
            self._found[key].again_at = 0.0
        return conflicts


@dataclass(slots=True)
class _Rejection:
    mark: Hashable
    again_at: float | None = None
    pause: Pause = field(default_factory=lambda: Pause(_LONGEST_PAUSE_SECONDS))


@dataclass
class Sending:
    """The outcomes of the things that are sent.

    A refusal concerns its thing only, any other failure all of them. `made_room` is called with every change
    that may help a pod which waits, `reserved` with the outcome of every reservation, None for a good one.
    """

    _journal: Journal
    _progress: Callable[[], None]
    _store: InformerStore
    _events: RejectionEvents | None = None
    made_room: Callable[[], None] = lambda: None
    reserved: ReservationListener = lambda _, __: None
    rejections: Rejections = field(default_factory=Rejections)

    def accepted(self, key: Key, mark: Hashable, send: Callable[[], Sent | bool]) -> bool:
        """Send the thing, or delete it, unless its mark is held back; return whether the service took that.

        Raises ServiceError other than refusals.
        """
        if self.rejections.holds_back(key, mark):
            return False
        return self.took(key, mark, outcome_of(send))

    def took(self, key: Key, mark: Hashable, sent: Sent) -> bool:
        """Note whether the service took the thing, and return it. Raises errors other than refusals."""
        if sent.refusal is not None:
            self.refused(key, mark, sent.refusal)
            WRITES.labels(key.kind, "rejected").inc()
            return False
        WRITES.labels(key.kind, "accepted").inc()
        if key.kind is not ObjectKind.POD:
            self.made_room()
        if key.kind is ObjectKind.RESERVATION:
            self.reserved(key.name, None)
        self.settled(key)
        for warning in sent.warnings:
            self._journal.note(f"{_title(key)}: {warning}")
        self._progress()
        return True

    def refused(self, key: Key, mark: Hashable, error: ServiceError) -> None:
        """Note that the service refused the thing in this state. Raises errors other than refusals."""
        if not is_refusal(error):
            raise error
        self.rejections.add(key, mark, conflict=error.status == CONFLICT)
        if key.kind is ObjectKind.RESERVATION:
            self.reserved(key.name, error)
        self._journal.trouble(_title(key), f"rejected: {error}")
        watched = self._store.get(key)
        if self._events is not None and watched is not None and watched.text:
            self._events.rejected(key, watched.manifest, str(error))

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
