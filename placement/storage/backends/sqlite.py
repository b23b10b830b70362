"""SQLite: how its connections are opened, and whether its file is still the one that was opened."""

from __future__ import annotations

import os
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

BUSY_SECONDS = 15.0
_PATIENCE = "placement_patience"
BEGIN_WRITE = "BEGIN IMMEDIATE"
# A reader that turns writer in mid-transaction fails at once with "locked"; writers take the write lock
# first and wait for their turn instead.
BEGIN_SNAPSHOT = "BEGIN DEFERRED"


def engine_options() -> dict[str, Any]:
    """How to make an engine."""
    return {"connect_args": {"timeout": BUSY_SECONDS, "check_same_thread": False}}


def prepare(connection: Any, *, durable: bool) -> None:
    """Set up a new connection. The driver must not open transactions on its own."""
    connection.isolation_level = None
    synchronous = "FULL" if durable else "OFF"
    for pragma in ("journal_mode=WAL", f"synchronous={synchronous}", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def be_patient(connection: sa.Connection, seconds: float) -> None:
    """Have statements of this connection wait so long for other writers."""
    if connection.info.get(_PATIENCE, BUSY_SECONDS) == seconds:
        return
    connection.exec_driver_sql(f"PRAGMA busy_timeout={max(1, round(seconds * 1000))}")
    connection.rollback()
    connection.info[_PATIENCE] = seconds


def create(url: sa.URL) -> None:
    """Make an empty database that only its owner can read, and the directories above it, unless there is one.

    SQLite gives the files beside it the same mode.
    """
    if not url.database:
        return
    path = Path(url.database)
    path.parent.mkdir(parents=True, exist_ok=True)
    # What cannot be created is for SQLite to report, and names of its own are not files.
    with suppress(OSError):
        if not url.database.startswith((":memory:", "file:")):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    sqlite3.connect(path).close()


def identity(url: sa.URL) -> str:
    """Which file stands at the place of the database. Raises an error of the driver if there is none.

    Opening the place would make a new, empty database of what was removed.
    """
    if not url.database:
        return "memory"
    try:
        found = Path(url.database).stat()
    except OSError as error:
        raise sqlite3.OperationalError(f"unable to open database file: {error}") from None
    return f"{found.st_dev}/{found.st_ino}"
