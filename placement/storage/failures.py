"""The meaning of database failures: try again, come back later, or a fault of ours.

The services retry a deadlock, a serialization failure, a lock timeout, a connection lost before commit, and
a write that another writer was faster with. Every other failure is reported by its cause and not retried.
The backends assign the errors of their drivers to these.
"""

from __future__ import annotations

import logging
import threading
import time
from typing import NamedTuple

from placement.engine.domain.errors import Unavailable

LOG = logging.getLogger(__name__)
_EVERY_SECONDS = 30.0


class TryAgain(Unavailable):
    """A failure that rolled the transaction back for a passing reason; running it again is likely to work."""


class Faster(TryAgain):
    """A refusal of a row by a key: another transaction was faster, or the row contradicts what is stored."""


class Unreachable(TryAgain):
    """A failure to connect, or a connection that was lost before anything was stored."""


class OutcomeUnknown(Unavailable):
    """A loss of the connection while committing: the change may or may not be stored."""


class FailedElsewhere(Unavailable):
    """A failure of a database that is not the one of this service."""


class Diagnosis(NamedTuple):
    """The error to raise, whether the operator should read of it in the log, and advice for the operator."""

    kind: type[Unavailable]
    sentence: str
    is_incident: bool = True
    advice: str = ""

    def raised(self) -> Unavailable:
        """Return the error for the caller."""
        return self.kind(self.sentence)


_CORRECT = "correct [placement_database] connection"
CONCURRENT = Diagnosis(
    TryAgain, "The database could not finish the transaction because of concurrent ones.", is_incident=False
)
FASTER = Diagnosis(
    Faster, "The database refused the transaction because of a concurrent one.", is_incident=False
)
LOCKED = Diagnosis(TryAgain, "The database stayed locked by other writers.", is_incident=False)
NO_SLOT = Diagnosis(
    Unavailable, "The service is overloaded: no database connection became free in time.", is_incident=False
)
SLOW = Diagnosis(Unavailable, "The database took too long to answer; nothing was changed.")
FULL = Diagnosis(Unavailable, "The database is full; nothing was changed.")
READ_ONLY = Diagnosis(Unavailable, "The database is read-only at present; nothing was changed.")
NO_CONNECTION = Diagnosis(Unreachable, "The database takes no more connections at present.")
CHANGING = Diagnosis(Unreachable, "The database cannot be reached: it is starting, stopping or recovering.")
GONE = Diagnosis(Unreachable, "The database cannot be reached.", advice=f"Start it, or {_CORRECT}.")
MISSING = Diagnosis(
    Unavailable,
    "The database of this service does not exist.",
    advice=f"Create it, as with `createdb`, or {_CORRECT}.",
)
LOGIN = Diagnosis(
    Unavailable,
    "The database does not let this service in.",
    advice=f"Create the user there, or {_CORRECT}, or password_file.",
)
RIGHTS = Diagnosis(
    Unavailable,
    "The database does not let this service do that.",
    advice=f"Give the user the right to do it, or {_CORRECT}.",
)
TABLES = Diagnosis(Unavailable, "The database does not have the tables of this version of the service.")
MEMORY = Diagnosis(Unavailable, "The database is out of memory or another resource; nothing was changed.")
DAMAGED = Diagnosis(Unavailable, "The database cannot read or write its files.")
POOLER = Diagnosis(
    Unavailable,
    "The connection pooler in front of the database does not keep sessions; session pooling is needed.",
)


def words_of(error: BaseException) -> str:
    """Return the driver's message on one line, from the cause of the error if it has one."""
    origin = error.__cause__ or error
    return " ".join(str(getattr(origin, "orig", None) or origin).split())


class Incidents:
    """The log of one database's failures: one line per cause and half a minute."""

    def __init__(self, where: str) -> None:
        """Take `where`, which names the database for people."""
        self._where = where
        self._told: dict[str, float] = {}
        self._kept_back: dict[str, int] = {}
        self._lock = threading.Lock()

    def note(self, cause: str, words: str) -> None:
        """Log a failure by its cause, with the driver's own words, at most every 30 seconds for a cause."""
        now = time.monotonic()
        with self._lock:
            if now - self._told.get(cause, -_EVERY_SECONDS) < _EVERY_SECONDS:
                self._kept_back[cause] = self._kept_back.get(cause, 0) + 1
                return
            self._told[cause] = now
            more = self._kept_back.pop(cause, 0)
        since = f" ({more} more since it was logged last)" if more else ""
        LOG.error("%s %s: %s%s", cause, self._where, words, since)
