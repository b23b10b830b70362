"""Which backend a database has: the one place where that follows from its URL."""

from __future__ import annotations

import sqlalchemy as sa

from placement.storage.backends.backend import Backend
from placement.storage.backends.postgresql import PostgreSQL
from placement.storage.backends.sqlite import SQLite
from placement.storage.changes.history import History


def backend_of(
    url: sa.URL,
    history: History,
    *,
    durable: bool,
    statement_seconds: float,
) -> Backend:
    """The backend for a URL as storage.backends.urls makes them.

    `durable` False may lose commits of a file in a power cut. `statement_seconds`: how long a server may take
    for a statement, if that is less than usual.
    """
    if url.get_backend_name() == "sqlite":
        return SQLite(url, durable=durable)
    return PostgreSQL(url, history, statement_seconds)
