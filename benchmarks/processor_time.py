"""Processor time that a service took, of its workers and of PostgreSQL on the same machine.

It is counted and not elapsed time, so that a busy machine matters less.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import sqlalchemy as sa

from benchmarks.servers import children_of

_OWN = "benchmark"
_SESSIONS = f"""
SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name <> '{_OWN}'
"""


class Taken(NamedTuple):
    """Milliseconds of processor time of the workers, and of their sessions in the database."""

    workers: float
    sessions: float


def named(connection: str) -> str:
    """Return a URL of that database for sessions of the benchmark, which count for no service."""
    url = sa.make_url(connection)
    if url.get_backend_name() == "postgresql":
        url = url.update_query_dict({"application_name": _OWN})
    return url.render_as_string(hide_password=False)


class ProcessorTime:
    """The processor time of a service, by its master process and its database; SQLite has no sessions."""

    def __init__(self, master: int, connection: str) -> None:
        self._master = master
        self._engine = sa.create_engine(named(connection), isolation_level="AUTOCOMMIT")
        self._of_sessions: dict[int, float] = {}

    def taken(self) -> Taken:
        """Return what was taken so far; sessions that ended stay with what was seen of them."""
        self._of_sessions |= {pid: milliseconds_of([pid]) for pid in self._sessions()}
        return Taken(milliseconds_of(children_of(self._master)), sum(self._of_sessions.values()))

    def _sessions(self) -> list[int]:
        if self._engine.dialect.name != "postgresql":
            return []
        with self._engine.connect() as connection:
            return list(connection.scalars(sa.text(_SESSIONS)))


def milliseconds_of(pids: Iterable[int]) -> float:
    """Return how long the threads of these processes have computed so far."""
    total = 0
    for pid in pids:
        for file in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with suppress(FileNotFoundError):
                total += int(file.read_text().split()[0])
    return total / 1e6
