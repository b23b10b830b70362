"""Inserting very many rows as fast as a database takes them, where moving needs it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from placement.domain.portions import portions

_ESCAPED = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})
_NULL = r"\N"
_LINES_AT_ONCE = 100


def insert(
    connection: sa.Connection, table: sa.Table, columns: Sequence[str], rows: Iterable[Sequence[Any]]
) -> None:
    """Insert rows with values in the order of the columns. Raises errors of SQLAlchemy and of the driver."""
    if connection.dialect.name == "postgresql":
        _copy(connection, table, columns, rows)
    else:
        _execute_many(connection, table, columns, rows)


def _copy(
    connection: sa.Connection, table: sa.Table, columns: Sequence[str], rows: Iterable[Sequence[Any]]
) -> None:
    cursor = connection.connection.cursor()
    try:
        cursor.copy_expert(f"COPY {table.name} ({', '.join(columns)}) FROM STDIN", _Lines(rows))
    finally:
        cursor.close()


class _Lines:
    """A file of the rows that is written while it is read, so that the server need not wait for all of it."""

    def __init__(self, rows: Iterable[Sequence[Any]]) -> None:
        self._portions = portions(rows, _LINES_AT_ONCE)

    def read(self, _size: int) -> str:
        """The next lines, none at the end."""
        return "".join(map(_line, next(self._portions, ())))


def _line(row: Sequence[Any]) -> str:
    texts = [
        _NULL if value is None else value.translate(_ESCAPED) if isinstance(value, str) else str(value)
        for value in row
    ]
    return "\t".join(texts) + "\n"


def _execute_many(
    connection: sa.Connection, table: sa.Table, columns: Sequence[str], rows: Iterable[Sequence[Any]]
) -> None:
    dialect = connection.dialect
    processors = [table.c[name].type.dialect_impl(dialect).bind_processor(dialect) for name in columns]
    plain = [
        tuple(
            value if process is None else process(value)
            for process, value in zip(processors, row, strict=True)
        )
        for row in rows
    ]
    mark = "?" if dialect.paramstyle == "qmark" else "%s"
    marks = ", ".join([mark] * len(columns))
    if plain:
        statement = f"INSERT INTO {table.name} ({', '.join(columns)}) VALUES ({marks})"
        connection.exec_driver_sql(statement, plain)
