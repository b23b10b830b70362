"""What a database failure means: try again, come back later, or a fault of ours.

Retried by the services: deadlock, serialization failure, lock timeout, a connection lost before commit, and
what another writer was faster with. Everything else that ails a database is told by its cause and not
retried.
"""

from __future__ import annotations

import re
import sqlite3
from typing import Any, NamedTuple

import sqlalchemy as sa

from placement.domain.errors import Unavailable


class TryAgain(Unavailable):
    """The transaction was rolled back for a passing reason; running it again is safe and likely to work."""


class Unreachable(TryAgain):
    """There is no connection to the database, or it was lost before anything was stored."""


class OutcomeUnknown(Unavailable):
    """The connection was lost while committing: the change may or may not be stored."""


class Diagnosis(NamedTuple):
    """The error to raise, and whether the operator should read of it in the log."""

    kind: type[Unavailable]
    sentence: str
    is_incident: bool = True

    def raised(self) -> Unavailable:
        """The error for the caller."""
        return self.kind(self.sentence)


_CONCURRENT = Diagnosis(
    TryAgain, "The database could not finish the transaction because of concurrent ones.", is_incident=False
)
_FASTER = Diagnosis(
    TryAgain, "The database refused the transaction because of a concurrent one.", is_incident=False
)
_LOCKED = Diagnosis(TryAgain, "The database stayed locked by other writers.", is_incident=False)
_NO_SLOT = Diagnosis(
    Unavailable, "The service is overloaded: no database connection became free in time.", is_incident=False
)
_SLOW = Diagnosis(Unavailable, "The database took too long to answer; nothing was changed.")
_FULL = Diagnosis(Unavailable, "The database is full; nothing was changed.")
_READ_ONLY = Diagnosis(Unavailable, "The database is read-only at present; nothing was changed.")
_NO_CONNECTION = Diagnosis(Unreachable, "The database takes no more connections at present.")
_CHANGING = Diagnosis(Unreachable, "The database cannot be reached: it is starting, stopping or recovering.")
_GONE = Diagnosis(Unreachable, "The database cannot be reached.")
_MISSING = Diagnosis(Unavailable, "The database of this service does not exist.")
_LOGIN = Diagnosis(Unavailable, "The database does not let this service in.")
_RIGHTS = Diagnosis(Unavailable, "The database does not let this service do that.")
_TABLES = Diagnosis(Unavailable, "The database does not have the tables of this version of the service.")
_MEMORY = Diagnosis(Unavailable, "The database is out of memory or another resource; nothing was changed.")
_DAMAGED = Diagnosis(Unavailable, "The database cannot read or write its files.")
_POOLER = Diagnosis(
    Unavailable,
    "The connection pooler in front of the database does not keep sessions; session pooling is needed.",
)

# SQLSTATE of PostgreSQL, whole or its class.
_STATES = {
    "40P01": _CONCURRENT, "40001": _CONCURRENT, "55P03": _CONCURRENT, "55006": _CONCURRENT,
    "23505": _FASTER, "23503": _FASTER,
    "57014": _SLOW, "25P03": _SLOW,
    "53100": _FULL, "53300": _NO_CONNECTION, "53": _MEMORY, "54": _MEMORY,
    "25006": _READ_ONLY,
    "57P03": _CHANGING, "57P": _CHANGING,
    "3D000": _MISSING, "28": _LOGIN, "42501": _RIGHTS,
    "42P01": _TABLES, "42703": _TABLES, "42883": _TABLES, "3F000": _TABLES,
    "26000": _POOLER, "42P05": _POOLER,
    "58": _DAMAGED, "XX": _DAMAGED, "08": _GONE,
}  # fmt: skip
# A refused connection has no SQLSTATE for the driver; these are words of libpq and of English servers.
_WORDS = (
    (re.compile(r"too many (clients|connections)|connection slots|no more connections"), _NO_CONNECTION),
    (re.compile(r"the database system is|not currently accepting connections"), _CHANGING),
    (re.compile(r"database \"?.*\"? does not exist|no such database"), _MISSING),
    (
        re.compile(
            r"authentication failed|role .* does not exist|no password supplied|no pg_hba\.conf entry|"
            r"not permitted to log in|permission denied for database"
        ),
        _LOGIN,
    ),
    (re.compile(r"session is read-only|server is in hot standby mode"), _READ_ONLY),
    (re.compile(r"unsupported startup parameter|prepared statement .* does not exist"), _POOLER),
)  # fmt: skip
# Primary result codes of SQLite.
_CODES = {
    sqlite3.SQLITE_BUSY: _LOCKED,
    sqlite3.SQLITE_LOCKED: _LOCKED,
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_READONLY: _READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: _GONE,
    sqlite3.SQLITE_IOERR: _DAMAGED,
    sqlite3.SQLITE_CORRUPT: _DAMAGED,
    sqlite3.SQLITE_NOTADB: _DAMAGED,
    sqlite3.SQLITE_NOMEM: _MEMORY,
    sqlite3.SQLITE_PERM: _RIGHTS,
    sqlite3.SQLITE_SCHEMA: _CONCURRENT,
    sqlite3.SQLITE_PROTOCOL: _LOCKED,
}
_MENDED_BY_REPEATING = frozenset(
    {
        sqlite3.SQLITE_CONSTRAINT_UNIQUE,
        sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY,
        sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY,
    }
)
# After these a SQLite connection stays as it is for good, although the file may have become well again.
_STAYS_BROKEN = frozenset(
    {
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
    }
)
_PRIMARY = 0xFF


def diagnose(error: BaseException) -> Diagnosis | None:
    """What is wrong, or None for what is a fault of ours; takes errors of SQLAlchemy and of the drivers."""
    if isinstance(error, sa.exc.TimeoutError):
        return _NO_SLOT
    if isinstance(error, sa.exc.PendingRollbackError):
        return _GONE
    is_lost = getattr(error, "connection_invalidated", False)
    original = error.orig if isinstance(error, sa.exc.DBAPIError) else error
    if isinstance(original, sqlite3.Error):
        return _of_sqlite(original)
    state = getattr(original, "pgcode", None)
    if state is not None:
        known = next((_STATES[key] for key in (state, state[:3], state[:2]) if key in _STATES), None)
        if known is not None:
            return known
    name = type(original).__name__
    if is_lost or name in ("OperationalError", "InterfaceError", "InternalError", "DatabaseError"):
        return _of_words(str(original))
    return None


def _of_words(words: str) -> Diagnosis:
    return next((diagnosis for pattern, diagnosis in _WORDS if pattern.search(words)), _GONE)


def _of_sqlite(error: sqlite3.Error) -> Diagnosis | None:
    code: int | None = getattr(error, "sqlite_errorcode", None)
    if isinstance(error, sqlite3.IntegrityError):
        return _FASTER if code in _MENDED_BY_REPEATING else None
    if code is None:
        return _GONE if isinstance(error, (sqlite3.OperationalError, sqlite3.ProgrammingError)) else None
    if code & _PRIMARY == sqlite3.SQLITE_ERROR:
        return _TABLES if re.match(r"no such (table|column)", str(error)) else None
    return _CODES.get(code & _PRIMARY)


def stays_broken(error: Any) -> bool:
    """Whether a connection that met this error is of no use any more, though the driver does not say so."""
    if isinstance(error, sqlite3.Error):
        return getattr(error, "sqlite_errorcode", sqlite3.SQLITE_OK) & _PRIMARY in _STAYS_BROKEN
    # Another of several hosts may be the one that takes writes now.
    return getattr(error, "pgcode", None) == "25006"


def leaves_in_doubt(error: sa.exc.DBAPIError) -> bool:
    """Whether what was sent may be committed: the connection was lost, and the server had not refused."""
    if not error.connection_invalidated:
        return False
    if isinstance(error.orig, sqlite3.Error):
        code: int = getattr(error.orig, "sqlite_errorcode", sqlite3.SQLITE_IOERR)
        return code & _PRIMARY == sqlite3.SQLITE_IOERR
    state: str | None = getattr(error.orig, "pgcode", None)
    return state is None or state[:2] in ("57", "08", "58", "XX")


def words_of(error: BaseException) -> str:
    """What the driver said, on one line; of an error that stands for another one, what that said."""
    origin = error.__cause__ or error
    return " ".join(str(getattr(origin, "orig", None) or origin).split())


def classify(error: Exception) -> Unavailable | None:
    """The error to raise instead of a database error, or None if it is a fault of ours."""
    diagnosis = diagnose(error)
    return None if diagnosis is None else diagnosis.raised()
