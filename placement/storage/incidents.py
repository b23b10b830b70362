"""What is wrong with the database, in the log of the service: once in a while, not once per request."""

from __future__ import annotations

import logging
import threading
import time

LOG = logging.getLogger(__name__)
_EVERY_SECONDS = 30.0


class Incidents:
    """The log of one database's failures: one line per cause and half a minute."""

    def __init__(self, where: str) -> None:
        """`where` tells people which database it is."""
        self._where = where
        self._told: dict[str, float] = {}
        self._kept_back: dict[str, int] = {}
        self._lock = threading.Lock()

    def note(self, cause: str, words: str) -> None:
        """Something went wrong for this cause, and these are the driver's own words."""
        now = time.monotonic()
        with self._lock:
            if now - self._told.get(cause, -_EVERY_SECONDS) < _EVERY_SECONDS:
                self._kept_back[cause] = self._kept_back.get(cause, 0) + 1
                return
            self._told[cause] = now
            more = self._kept_back.pop(cause, 0)
        since = f" ({more} more since it was logged last)" if more else ""
        LOG.error("%s %s: %s%s", cause, self._where, words, since)
