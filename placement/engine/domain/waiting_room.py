"""A bound on how many threads wait for another server at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

_PATIENCE_SECONDS = 1.0


class Full(Exception):
    """The error of a waiting room in which too many threads wait already."""


class WaitingRoom:
    """A room that lets a number of threads in at once.

    As many others may wait for a second until one leaves. Once a thread has been inside for longer than that,
    no thread may wait any more: all others are refused at once.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._since: dict[int, float] = {}
        self._queued = 0
        self._changed = threading.Condition()

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Stay inside the room while the block runs. Raises Full."""
        with self._changed:
            if not self._has_room():
                oldest = min(self._since.values())
                if self._queued >= self._most or time.monotonic() - oldest > _PATIENCE_SECONDS:
                    raise Full
                self._queued += 1
                try:
                    if not self._changed.wait_for(self._has_room, _PATIENCE_SECONDS):
                        raise Full
                finally:
                    self._queued -= 1
            self._since[threading.get_ident()] = time.monotonic()
        try:
            yield
        finally:
            with self._changed:
                del self._since[threading.get_ident()]
                self._changed.notify()

    def _has_room(self) -> bool:
        return len(self._since) < self._most
