"""What the errors of SQLite mean."""

from __future__ import annotations

import re
import sqlite3

from placement.storage.failures import (
    CONCURRENT,
    DAMAGED,
    FASTER,
    FULL,
    GONE,
    LOCKED,
    MEMORY,
    READ_ONLY,
    RIGHTS,
    TABLES,
    Diagnosis,
)

# Primary result codes.
_CODES = {
    sqlite3.SQLITE_BUSY: LOCKED,
    sqlite3.SQLITE_LOCKED: LOCKED,
    sqlite3.SQLITE_FULL: FULL,
    sqlite3.SQLITE_READONLY: READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: GONE,
    sqlite3.SQLITE_IOERR: DAMAGED,
    sqlite3.SQLITE_CORRUPT: DAMAGED,
    sqlite3.SQLITE_NOTADB: DAMAGED,
    sqlite3.SQLITE_NOMEM: MEMORY,
    sqlite3.SQLITE_PERM: RIGHTS,
    sqlite3.SQLITE_SCHEMA: CONCURRENT,
    sqlite3.SQLITE_PROTOCOL: LOCKED,
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


def diagnose(error: BaseException, *, is_lost: bool) -> Diagnosis | None:
    """What is wrong, None for what is a fault of ours; `is_lost`: the connection cannot be used any more."""
    if not isinstance(error, sqlite3.Error):
        return GONE if is_lost else None
    code = _code(error)
    if isinstance(error, sqlite3.IntegrityError):
        return FASTER if code in _MENDED_BY_REPEATING else None
    if code is None:
        return GONE if isinstance(error, (sqlite3.OperationalError, sqlite3.ProgrammingError)) else None
    if code & _PRIMARY == sqlite3.SQLITE_ERROR:
        return TABLES if re.match(r"no such (table|column)", str(error)) else None
    return _CODES.get(code & _PRIMARY)


def _code(error: BaseException) -> int | None:
    return getattr(error, "sqlite_errorcode", None)


def stays_broken(error: BaseException) -> bool:
    """Whether a connection that met this error is of no use any more, though the driver does not say so."""
    return ((_code(error) or sqlite3.SQLITE_OK) & _PRIMARY) in _STAYS_BROKEN


def leaves_in_doubt(error: BaseException) -> bool:
    """Whether what was sent may be committed: reading or writing the file failed."""
    code = _code(error)
    return code is None or code & _PRIMARY == sqlite3.SQLITE_IOERR
