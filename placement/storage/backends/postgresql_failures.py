"""What the errors of PostgreSQL and of its driver mean."""

from __future__ import annotations

import re

from placement.storage.failures import (
    CHANGING,
    CONCURRENT,
    DAMAGED,
    FASTER,
    FULL,
    GONE,
    LOGIN,
    MEMORY,
    MISSING,
    NO_CONNECTION,
    POOLER,
    READ_ONLY,
    RIGHTS,
    SLOW,
    TABLES,
    Diagnosis,
)

# SQLSTATE, whole or its class.
_STATES = {
    "40P01": CONCURRENT, "40001": CONCURRENT, "55P03": CONCURRENT, "55006": CONCURRENT,
    "23505": FASTER, "23503": FASTER,
    "57014": SLOW, "25P03": SLOW,
    "53100": FULL, "53300": NO_CONNECTION, "53": MEMORY, "54": MEMORY,
    "25006": READ_ONLY,
    "57P03": CHANGING, "57P": CHANGING,
    "3D000": MISSING, "28": LOGIN, "42501": RIGHTS,
    "42P01": TABLES, "42703": TABLES, "42883": TABLES, "3F000": TABLES,
    "26000": POOLER, "42P05": POOLER,
    "58": DAMAGED, "XX": DAMAGED, "08": GONE,
}  # fmt: skip
# A refused connection has no SQLSTATE for the driver; these are words of libpq and of English servers.
_WORDS = (
    (re.compile(r"too many (clients|connections)|connection slots|no more connections"), NO_CONNECTION),
    (re.compile(r"the database system is|not currently accepting connections"), CHANGING),
    (re.compile(r"database \"?.*\"? does not exist|no such database"), MISSING),
    (
        re.compile(
            r"authentication failed|role .* does not exist|no password supplied|no pg_hba\.conf entry|"
            r"not permitted to log in|permission denied for database"
        ),
        LOGIN,
    ),
    (re.compile(r"session is read-only|server is in hot standby mode"), READ_ONLY),
    (re.compile(r"unsupported startup parameter|prepared statement .* does not exist"), POOLER),
)  # fmt: skip
_OF_DRIVER = frozenset({"OperationalError", "InterfaceError", "InternalError", "DatabaseError"})
# The connection, the server, its files or its program failed, so it did not decide on what was sent.
_UNDECIDED = frozenset({"57", "08", "58", "XX"})


def diagnose(error: BaseException, *, is_lost: bool) -> Diagnosis | None:
    """What is wrong, None for what is a fault of ours; `is_lost`: the connection cannot be used any more."""
    state = _state(error)
    if state is not None:
        known = next((_STATES[key] for key in (state, state[:3], state[:2]) if key in _STATES), None)
        if known is not None:
            return known
    if is_lost or type(error).__name__ in _OF_DRIVER:
        return _of_words(str(error))
    return None


def _state(error: BaseException) -> str | None:
    return getattr(error, "pgcode", None)


def _of_words(words: str) -> Diagnosis:
    return next((diagnosis for pattern, diagnosis in _WORDS if pattern.search(words)), GONE)


def stays_broken(error: BaseException) -> bool:
    """Whether the connection is of no use any more: another of several hosts may take writes now."""
    return _state(error) == "25006"


def leaves_in_doubt(error: BaseException) -> bool:
    """Whether what was sent may be committed: the server has not said that it refused."""
    state = _state(error)
    return state is None or state[:2] in _UNDECIDED
