"""The meaning of the errors of PostgreSQL and of its driver."""

from __future__ import annotations

import re

from placement.storage import failures
from placement.storage.failures import Diagnosis

# SQLSTATE, whole or its class.
_STATES = {
    "40P01": failures.CONCURRENT, "40001": failures.CONCURRENT, "55P03": failures.CONCURRENT,
    "55006": failures.CONCURRENT,
    "23505": failures.FASTER, "23503": failures.FASTER,
    "57014": failures.SLOW, "25P03": failures.SLOW,
    "53100": failures.FULL, "53300": failures.NO_CONNECTION, "53": failures.MEMORY, "54": failures.MEMORY,
    "25006": failures.READ_ONLY,
    "57P03": failures.CHANGING, "57P": failures.CHANGING,
    "3D000": failures.MISSING, "28": failures.LOGIN, "42501": failures.RIGHTS,
    "42P01": failures.TABLES, "42703": failures.TABLES, "42883": failures.TABLES, "3F000": failures.TABLES,
    "26000": failures.POOLER, "42P05": failures.POOLER,
    "58": failures.DAMAGED, "XX": failures.DAMAGED, "08": failures.GONE,
}  # fmt: skip
# A refused connection has no SQLSTATE for the driver; these are words of libpq and of English servers.
_WORDS = (
    (
        re.compile(r"too many (clients|connections)|connection slots|no more connections"),
        failures.NO_CONNECTION,
    ),
    (re.compile(r"the database system is|not currently accepting connections"), failures.CHANGING),
    (re.compile(r"database \"?.*\"? does not exist|no such database"), failures.MISSING),
    (
        re.compile(
            r"authentication failed|role .* does not exist|no password supplied|no pg_hba\.conf entry|"
            r"not permitted to log in|permission denied for database"
        ),
        failures.LOGIN,
    ),
    (re.compile(r"session is read-only|server is in hot standby mode"), failures.READ_ONLY),
    (re.compile(r"unsupported startup parameter|prepared statement .* does not exist"), failures.POOLER),
)
_OF_DRIVER = frozenset({"OperationalError", "InterfaceError", "InternalError", "DatabaseError"})
# The connection, the server, its files or its program failed, so it did not decide on what was sent.
_UNDECIDED = frozenset({"57", "08", "58", "XX"})


def diagnosis_of(error: BaseException, *, is_lost: bool) -> Diagnosis | None:
    """Return the diagnosis of an error, by SQLSTATE and by words; None for a fault of ours."""
    state = state_of(error)
    if state is not None:
        known = next((_STATES[key] for key in (state, state[:3], state[:2]) if key in _STATES), None)
        if known is not None:
            return known
    if is_lost or type(error).__name__ in _OF_DRIVER:
        words = str(error)
        return next((diagnosis for pattern, diagnosis in _WORDS if pattern.search(words)), failures.GONE)
    return None


def is_undecided(error: BaseException) -> bool:
    """Return whether the server has not reported that it refused."""
    state = state_of(error)
    return state is None or state[:2] in _UNDECIDED


def state_of(error: BaseException) -> str | None:
    """Return the SQLSTATE of an error, None if it has none."""
    return getattr(error, "pgcode", None)
