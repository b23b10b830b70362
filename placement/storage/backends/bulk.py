"""Inserting very many rows as fast as a database takes them, where moving needs it."""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from typing import Any

import sqlalchemy as sa

_ESCAPED = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})
_NULL = r"\N"


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
    lines = io.StringIO("".join("\t".join(map(_text, row)) + "\n" for row in rows))
    cursor = connection.connection.cursor()
    try:
        cursor.copy_expert(f"COPY {table.name} ({', '.join(columns)}) FROM STDIN", lines)
    finally:
        cursor.close()


def _text(value: object) -> str:
    if value is None:
        return _NULL
    return value.translate(_ESCAPED) if isinstance(value, str) else str(value)


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
