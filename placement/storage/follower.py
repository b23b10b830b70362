"""Following the database: what a process remembers is brought up to date before each use.

One statement asks what changed since the last look (storage.feed). Who follows says what to begin
with, how to take over what changed, and how to forget everything; when each of these is due is said here.
"""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from placement.engine.domain import deadline
from placement.engine.domain.errors import Unavailable
from placement.metrics.catalog import FEED_ROWS, LOOK_SECONDS, RELOADS
from placement.storage.database import Database
from placement.storage.feed import Feed, Look
from placement.storage.history import Horizon

# Longer than any look, shorter than what callers wait; a first load may take longer.
_PATIENCE_SECONDS = 20
_ROUNDS = 5


class Follower(ABC):
    """Keeps something in step with the database, by looking before each use; it never guesses.

    `horizon` is the stamp to look from, None as long as nothing is remembered.
    """

    def __init__(self, database: Database, remembered: str) -> None:
        """`remembered` names, for people who have to wait, what is loaded."""
        self.database = database
        self.feed = Feed(database)
        self.horizon: Horizon | None = None
        self._remembered = remembered
        self._look_seconds = LOOK_SECONDS.labels(remembered)
        self._rows, self._reloads = FEED_ROWS.labels(remembered), RELOADS.labels(remembered)
        # Held while catching up, never while somebody works with what is remembered.
        self._lock = threading.Lock()
        self._caught_up_at = 0.0

    @contextmanager
    def caught_up(self) -> Iterator[None]:
        """Alone, with everything remembered that was committed before. Raises Unavailable."""
        arrived = time.monotonic()
        with self.alone():
            # Somebody may have looked while this caller waited: one look serves all who wait for it.
            if self.horizon is None or self._caught_up_at <= arrived:
                began = time.monotonic()
                self._catch_up()
                self._caught_up_at = began
                self._look_seconds.observe(time.monotonic() - began)
            yield

    @property
    def behind_seconds(self) -> float:
        """How long ago the last look began that told everything; infinite before the first."""
        return time.monotonic() - self._caught_up_at if self._caught_up_at else math.inf

    @contextmanager
    def alone(self, patience_seconds: float = _PATIENCE_SECONDS) -> Iterator[None]:
        """Alone, with what is remembered as it is. Raises Unavailable."""
        if not self._lock.acquire(timeout=deadline.remaining(patience_seconds)):
            raise Unavailable(
                f"The {self._remembered} are still being loaded, or the database is slow; try again."
            )
        try:
            yield
        finally:
            self._lock.release()

    def _catch_up(self) -> None:
        for _ in range(_ROUNDS):
            if self.horizon is None:
                break
            look = self.feed.look(self.horizon, self.clusters)
            if look is None:
                return
            self._rows.inc(len(look.changed) + len(look.deleted))
            if look.horizon < self.horizon:
                # The database is an older one than we know: restored, or a replica that lagged behind.
                self.forget()
            elif self._take_over(look):
                self.horizon = look.horizon
                return
        self.forget()
        self._reloads.inc()
        self.begin()

    @property
    def clusters(self) -> Sequence[int]:
        """The ids of clusters whose generation of rules every look should tell."""
        return ()

    def _take_over(self, look: Look) -> bool:
        try:
            return self.apply(look)
        except BaseException:
            # What was taken over in part must not pass for the whole.
            self.forget()
            raise

    def forget(self) -> None:
        """Nothing is remembered any more."""
        self.horizon = None

    @abstractmethod
    def begin(self) -> None:
        """Load what is always remembered, and set the horizon if that is anything. Raises Unavailable."""

    @abstractmethod
    def apply(self, look: Look) -> bool:
        """Take over what changed; False if another look has to bring more, or everything has to be loaded.

        Raises Unavailable.
        """

    def close(self) -> None:
        """Give back the connection."""
        self.feed.close()
