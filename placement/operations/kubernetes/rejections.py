"""What the service refused, so that it is not asked the same over and over."""

from __future__ import annotations

import time
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from placement.operations.kubernetes.pause import Pause

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
