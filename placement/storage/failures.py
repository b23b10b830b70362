"""What a database failure means: try again, come back later, or a fault of ours.

Retried by the services: deadlock, serialization failure, lock timeout, a connection lost before commit.
"""

from __future__ import annotations

import sqlite3

import sqlalchemy as sa

from placement.domain.errors import Unavailable

# SQLSTATE classes of PostgreSQL.
_DEADLOCK = "40P01"
_SERIALIZATION = "40001"
_LOCK_NOT_AVAILABLE = "55P03"
_STATEMENT_CANCELLED = "57014"
_RETRY_STATES = frozenset({_DEADLOCK, _SERIALIZATION, _LOCK_NOT_AVAILABLE})
_BUSY_STATES = frozenset({_STATEMENT_CANCELLED, "53300", "57P01", "57P02", "57P03"})


class TryAgain(Unavailable):
    """The transaction was rolled back for a passing reason; running it again is safe and likely to work."""


class OutcomeUnknown(Unavailable):
    """The connection was lost while committing: the change may or may not be stored."""


def classify(error: Exception) -> Unavailable | None:
    """The error to raise instead of a database error, or None if it is not about availability."""
    if isinstance(error, sa.exc.TimeoutError):
        return Unavailable("The service is overloaded: no database connection became free in time.")
    if not isinstance(error, sa.exc.DBAPIError):
        return None
    original = error.orig
    state = getattr(original, "pgcode", None)
    if state in _RETRY_STATES:
        return TryAgain("The database could not finish the transaction because of concurrent ones.")
    if state in _BUSY_STATES:
        return Unavailable("The database is overloaded or shutting down; nothing was changed.")
    if isinstance(error, sa.exc.IntegrityError):
        # Two writers passed their checks side by side; run again, the slower one's check now sees the faster.
        return TryAgain("The database refused the transaction because of a concurrent one.")
    if isinstance(original, sqlite3.OperationalError) and "locked" in str(original):
        return TryAgain("The database stayed locked by other writers.")
    if error.connection_invalidated or isinstance(error, (sa.exc.OperationalError, sa.exc.InterfaceError)):
        return TryAgain("The database cannot be reached.")
    return None
