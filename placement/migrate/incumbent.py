"""Databases of the incumbent: how one is opened, read at one moment and written all or nothing.

Only moving uses them, so there are no time limits of ours and no pool, and looking changes nothing in them.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from placement.engine.domain.errors import BadRequest
from placement.storage.backends.urls import described_server
from placement.storage.failures import FailedElsewhere, words_of

_DRIVERS = {
    "sqlite": "sqlite",
    "postgresql": "postgresql+psycopg2",
    "mysql": "mysql+pymysql",
    "mariadb": "mysql+pymysql",
}


class IncumbentDatabase:
    """A database with the tables of OpenStack Placement: SQLite, PostgreSQL, MySQL or MariaDB."""

    def __init__(self, url: str) -> None:
        """Set up the database at `url`, as the incumbent's configuration has it. Raises BadRequest."""
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
        # How many digits of an allocation ratio it keeps; others than MySQL have double precision.
        self.digits = 6 if _DRIVERS[self._kind] == _DRIVERS["mysql"] else 17
        options: dict[str, Any] = {} if self._is_file else {"isolation_level": "REPEATABLE READ"}
        try:
            self._engine = sa.create_engine(self.url, poolclass=sa.NullPool, **options)
        except ModuleNotFoundError as error:
            raise BadRequest(
                f"the other database needs the Python package {error.name}; the extra `mysql` brings PyMySQL"
            ) from None
        self._driver_error: type[Exception] = self._engine.dialect.loaded_dbapi.Error
        sa.event.listen(self._engine, "handle_error", self._name_failure)
        if self._is_file:
            sa.event.listen(self._engine, "connect", _leave_transactions_to_us)

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Begin a transaction that sees one state. Raises FailedElsewhere."""
        with self._begun("BEGIN") as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Begin a transaction that commits unless the block raises. Raises FailedElsewhere."""
        with self._begun("BEGIN IMMEDIATE") as connection:
            yield connection
            connection.commit()

    @contextmanager
    def _begun(self, file_statement: str) -> Iterator[sa.Connection]:
        if self._is_file and not Path(self.url.database or "").is_file():
            raise FailedElsewhere(f"There is no database: {self.where}")
        try:
            with self._engine.connect() as connection:
                if self._is_file:
                    connection.exec_driver_sql(file_statement)
                yield connection
        except self._driver_error as error:
            # Rows are copied past SQLAlchemy.
            raise self._failed(error) from error

    def _name_failure(self, context: sa.engine.ExceptionContext) -> None:
        """Raise the failure as one of this database: both are used at once, and one is inside the other."""
        raise self._failed(context.original_exception)

    def _failed(self, error: BaseException) -> FailedElsewhere:
        return FailedElsewhere(f"The other database failed, {self.where}: {words_of(error)}")

    def missing(self, tables: sa.MetaData) -> list[str]:
        """Return the tables and columns, as table.column, that it lacks. Raises FailedElsewhere."""
        with self._begun("BEGIN") as connection:
            inspector = sa.inspect(connection)
            present = {
                name: {column["name"] for column in inspector.get_columns(name)}
                for name in inspector.get_table_names()
            }
        lacking = [name for name in tables.tables if name not in present]
        return lacking + [
            f"{name}.{column.name}"
            for name, table in tables.tables.items()
            for column in table.c
            if column.name not in present.get(name, {column.name})
        ]

    def has(self, table: str) -> bool:
        """Return whether there is a table of this name. Raises FailedElsewhere."""
        with self._begun("BEGIN") as connection:
            return bool(sa.inspect(connection).has_table(table))


def _leave_transactions_to_us(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None
