"""Followers of the database: memories of a process that are brought up to date before each use.

One statement asks what changed since the last look (storage.feed). A subclass defines what to begin with,
how to take over what changed, and how to forget everything; this module decides when each of these is due.
"""

from __future__ import annotations

import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator
from contextlib import contextmanager

from placement.engine.domain import request_scope
from placement.engine.domain.errors import Unavailable
from placement.metrics.catalog import FEED_ROWS, LOOK_SECONDS, RELOADS
from placement.storage.database import Database
from placement.storage.feed import Feed, FeedBatch
from placement.storage.history import Horizon

# Longer than any look, shorter than callers wait; a first load may take longer.
_PATIENCE_SECONDS = 20
_ROUNDS = 5


class Follower(ABC):
    """A memory in step with the database, which looks before each use and never guesses.

    `horizon` is the stamp to look from, None as long as nothing is remembered. `clusters` are the ids of
    clusters with generations of rules that every look should report. A look brings the documents of at most
    `most_documents` providers.
    """

    most_documents = 0

    def __init__(self, database: Database, remembered: str) -> None:
        """Take the database; `remembered` is the name of the memory, for callers that have to wait."""
        self.database = database
        self.feed = Feed(database)
        self.horizon: Horizon | None = None
        self.clusters: Collection[int] = ()
        self._remembered = remembered
        self._look_seconds = LOOK_SECONDS.labels(remembered)
        self._rows, self._reloads = FEED_ROWS.labels(remembered), RELOADS.labels(remembered)
        # Held while catching up, never while a caller works with the view that it took.
        self._lock = threading.Lock()
        self._caught_up_at = 0.0

    @contextmanager
    def caught_up(self) -> Iterator[None]:
        """Hold the lock, with everything remembered that was committed before. Raises Unavailable."""
        arrived = time.monotonic()
        with self.alone():
            # Another thread may have looked while this one waited: one look serves all that wait for it.
            if self.horizon is None or self._caught_up_at <= arrived:
                began = time.monotonic()
                self._catch_up()
                self._caught_up_at = began
                self._look_seconds.observe(time.monotonic() - began)
            yield

    @property
    def behind_seconds(self) -> float:
        """Return how long ago the last complete look began; infinite before the first."""
        return time.monotonic() - self._caught_up_at if self._caught_up_at else math.inf

    @contextmanager
    def alone(self, patience_seconds: float = _PATIENCE_SECONDS) -> Iterator[None]:
        """Hold the lock, with what is remembered as it is. Raises Unavailable."""
        if not self._lock.acquire(timeout=request_scope.remaining(patience_seconds)):
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
            look = self.feed.look(self.horizon, self.clusters, self.most_documents)
            if look is None:
                return
            self._rows.inc(len(look.changed) + len(look.deleted))
            if look.horizon < self.horizon:
                # The database is an older one than we know: restored, or a replica that lagged behind.
                self.forget()
                continue
            try:
                is_applied = self.apply(look)
            except BaseException:
                # Changes taken over in part must not pass for all changes.
                self.forget()
                raise
            if is_applied:
                self.horizon = look.horizon
                return
        self.forget()
        self._reloads.inc()
        self.begin()

    def forget(self) -> None:
        """Forget everything that is remembered."""
        self.horizon = None

    @abstractmethod
    def begin(self) -> None:
        """Load what is always remembered, and set the horizon if that is anything. Raises Unavailable."""

    @abstractmethod
    def apply(self, batch: FeedBatch) -> bool:
        """Apply a look; return False if another look or loading everything has to bring more.

        Raises Unavailable.
        """

    def close(self) -> None:
        """Give back the connection."""
        self.feed.close()
