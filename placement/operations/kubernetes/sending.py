"""Sending single things to the service, which is not asked for what it refused over and over."""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from placement.operations.client import ServiceError
from placement.operations.kubernetes.informer_store import Key, Kind
from placement.operations.kubernetes.journal import Journal
from placement.operations.kubernetes.pause import Pause
from placement.operations.kubernetes.service import CONFLICT, is_refusal

Thing = TypeVar("Thing", bound=Hashable)
_LONGEST_PAUSE_SECONDS = 300.0


@dataclass(slots=True)
class _Rejection:
    mark: Hashable
    again_at: float | None = None
    pause: Pause = field(default_factory=lambda: Pause(_LONGEST_PAUSE_SECONDS))


class Rejections(Generic[Thing]):
    """Things by what they were when they were refused.

    What is wrong in itself waits until it changes. A conflict may be over without any change of the thing,
    when another consumer has made room, so it is tried again, less and less often.
    """

    def __init__(self) -> None:
        self._found: dict[Thing, _Rejection] = {}

    def __len__(self) -> int:
        return len(self._found)

    def add(self, thing: Thing, mark: Hashable, *, conflict: bool) -> None:
        """The thing was refused as it is now."""
        rejection = self._found.get(thing)
        if rejection is None or rejection.mark != mark:
            rejection = self._found[thing] = _Rejection(mark)
        rejection.again_at = time.monotonic() + rejection.pause.after_failure() if conflict else None

    def discard(self, thing: Thing) -> bool:
        """The thing was accepted, or is gone; whether it had been refused."""
        return self._found.pop(thing, None) is not None

    def forgive(self) -> None:
        """Forget all refusals: everything is tried again."""
        for rejection in self._found.values():
            rejection.again_at = 0.0

    def holds_back(self, thing: Thing, mark: Hashable) -> bool:
        """Whether there is no use in sending the thing as it is now."""
        rejection = self._found.get(thing)
        if rejection is None or rejection.mark != mark:
            return False
        return rejection.again_at is None or rejection.again_at > time.monotonic()

    def ripe(self) -> set[Thing]:
        """Conflicts that are to be tried again now."""
        now = time.monotonic()
        return {
            thing
            for thing, rejection in self._found.items()
            if rejection.again_at is not None and rejection.again_at <= now
        }

    def ripen(self) -> set[Thing]:
        """All conflicts, to be tried again now."""
        for rejection in self._found.values():
            if rejection.again_at is not None:
                rejection.again_at = 0.0
        return self.ripe()


class Sending:
    """One call after the other; a refusal concerns its thing only, any other failure everything."""

    def __init__(self, journal: Journal, progress: Callable[[], None]) -> None:
        self._journal = journal
        self._progress = progress
        self.rejections: Rejections[Key] = Rejections()

    def accepted(self, key: Key, mark: Hashable, send: Callable[[], list[str] | None]) -> bool:
        """Whether the service took the thing, which it is not asked again while the mark stays.

        `send` may return warnings. Raises ServiceError for what is no refusal.
        """
        if self.rejections.holds_back(key, mark):
            return False
        try:
            warnings = send()
        except ServiceError as error:
            if not is_refusal(error):
                raise
            self.rejections.add(key, mark, conflict=error.status == CONFLICT)
            self._journal.trouble(_title(key), f"rejected: {error}")
            return False
        self.settled(key)
        for warning in warnings or ():
            self._journal.note(f"{_title(key)}: {warning}")
        self._progress()
        return True

    def settled(self, key: Key) -> None:
        """Nothing is wrong with this, or it is gone."""
        if self.rejections.discard(key):
            self._journal.well(_title(key))


def _title(key: Key) -> str:
    return f"pod {key.namespace}/{key.name}" if key.kind is Kind.POD else f"node {key.name}"
