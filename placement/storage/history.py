"""The history of writes that a database is in, so that a process forgets what was true in another one.

After a crash, a restore or the promotion of a replica a database may have lost commits. It then gives their
stamps to other commits, so what a process remembers is wrong and stamps do not show it. Each connection
therefore finds out which history it is in, by the server or file and by a witness inside of the database:
the README of storage has both. A promoted replica goes on with what it had, so its history stays as it is.

This is the one place that tells the caches of a process that the database is another one now.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Any

# Operators know its lines by this name.
LOG = logging.getLogger("placement.storage.backends.backend")

# Where a connection notes its history.
HISTORY_KEY = "placement_history"


class Horizon(int):
    """A stamp to look from, and the history in which it means something."""

    history: str

    def __new__(cls, number: int, history: str) -> Horizon:
        """Make the stamp `number` of a history."""
        made = super().__new__(cls, number)
        made.history = history
        return made


BEFORE_ALL = Horizon(0, "")


class History:
    """The history that the connections of this process are in, and the caches that forget when it changes."""

    def __init__(self) -> None:
        self._seen: dict[str, str] = {}
        self._forgetters: list[Callable[[], Any]] = []
        self._lock = threading.Lock()

    def forget_with(self, forget: Callable[[], Any]) -> None:
        """Have `forget` called, from any thread, whenever the database turns out to be another one."""
        self._forgetters.append(forget)

    def observe(self, server: str, witness: str | None = None) -> None:
        """Note a connection's server (or file), and its witness if one was read; forget if they differ."""
        seen = {"server": server} if witness is None else {"server": server, "witness": witness}
        with self._lock:
            is_other = any(self._seen.get(key, value) != value for key, value in seen.items())
            if is_other:
                self._seen = seen
            else:
                self._seen |= seen
        if is_other:
            self.forget()

    def forget(self) -> None:
        """Have all caches of the process forget: the database is another one now."""
        LOG.warning(
            "The database was restarted, promoted, restored or replaced; nothing known before counts."
        )
        for forget in self._forgetters:
            forget()

    def is_present(self, server: str) -> bool:
        """Return whether the newest connection was to this server."""
        return self._seen.get("server", server) == server
