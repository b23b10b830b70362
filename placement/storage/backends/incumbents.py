"""Databases of the incumbent: how one is opened, read at one moment and written all or nothing.

Only moving uses them, so there are no time limits of ours, no pool, and nothing of the database is changed by
looking at it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from placement.domain.errors import BadRequest, Unavailable
from placement.storage.backends.urls import described_server
from placement.storage.failures import words_of

_DRIVERS = {
    "sqlite": "sqlite",
    "postgresql": "postgresql+psycopg2",
    "mysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
}
# Digits of a FLOAT that MySQL gives back; the others keep double precision.
_SHORT_DIGITS = 6


class IncumbentDatabase:
    """A database with the tables of OpenStack Placement: SQLite, PostgreSQL, MySQL or MariaDB."""

    def __init__(self, url: str) -> None:
        """The database at `url`, as the incumbent's configuration has it. Raises BadRequest."""
        try:
            parsed = sa.engine.make_url(url)
        except (sa.exc.ArgumentError, ValueError):
            # Not with its cause, which may show the password.
            raise BadRequest("the URL of the other database cannot be understood") from None
        self._kind = parsed.get_backend_name()
        if self._kind not in _DRIVERS:
            raise BadRequest(f"the other database is of kind {self._kind}, not one of {', '.join(_DRIVERS)}")
        self.url = parsed.set(drivername=_DRIVERS[self._kind])
        self._is_file = self._kind == "sqlite"
        self.where = f"file {parsed.database}" if self._is_file else described_server(parsed)
        self._engine = self._made()

    @property
    def digits(self) -> int:
        """How many digits of an allocation ratio it keeps."""
        return _SHORT_DIGITS if _DRIVERS[self._kind] == _DRIVERS["mysql"] else 17

    def _made(self) -> sa.Engine:
        options: dict[str, Any] = {} if self._is_file else {"isolation_level": "REPEATABLE READ"}
        try:
            engine = sa.create_engine(self.url, poolclass=sa.NullPool, **options)
        except ModuleNotFoundError as error:
            raise BadRequest(
                f"the other database needs the Python package {error.name}; the extra `mysql` brings PyMySQL"
            ) from None
        if self._is_file:
            sa.event.listen(engine, "connect", _leave_transactions_to_us)
        return engine

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A transaction that sees one state. Raises Unavailable."""
        with self._begun("BEGIN") as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction that commits unless the block raises. Raises Unavailable."""
        with self._begun("BEGIN IMMEDIATE") as connection:
            yield connection
            connection.commit()

    @contextmanager
    def _begun(self, file_statement: str) -> Iterator[sa.Connection]:
        if self._is_file and not Path(self.url.database or "").is_file():
            raise Unavailable(f"There is no database: {self.where}")
        try:
            with self._engine.connect() as connection:
                if self._is_file:
                    connection.exec_driver_sql(file_statement)
                yield connection
        except sa.exc.DBAPIError as error:
            raise Unavailable(f"The other database failed, {self.where}: {words_of(error)}") from error

    def missing(self, tables: sa.MetaData) -> list[str]:
        """The tables and columns, as table.column, that it lacks. Raises Unavailable."""
        with self._begun("BEGIN") as connection:
            inspector = sa.inspect(connection)
            present = {
                name: {column["name"] for column in inspector.get_columns(name)}
                for name in inspector.get_table_names()
            }
        lacking = [name for name in tables.tables if name not in present]
        for name, table in tables.tables.items():
            lacking += [
                f"{name}.{column.name}"
                for column in table.c
                if column.name not in present.get(name, {column.name})
            ]
        return lacking

    def has(self, table: str) -> bool:
        """Whether there is a table of this name. Raises Unavailable."""
        with self._begun("BEGIN") as connection:
            return bool(sa.inspect(connection).has_table(table))


def _leave_transactions_to_us(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None
