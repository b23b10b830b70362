"""One of the two databases between which rows move, inside of one transaction, and rows many at a time."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import ModuleType, SimpleNamespace
from typing import Any

import sqlalchemy as sa

from placement.engine.domain.portions import portions
from placement.storage import tables as own_tables
from placement.storage.database import Transaction

AT_ONCE = 1000
_WRITTEN_AT_ONCE = 20_000
# Ids that are further apart from each other are looked up one by one.
_SPARSE = 3
_ESCAPED = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})
_NULL = r"\N"
_NEEDS_ESCAPES = re.compile(r"[\\\t\n\r]").search
_LINES_AT_ONCE = 1000


@dataclass(frozen=True)
class Endpoint:
    """A database with the tables of this service, or the tables of the incumbent under the same names.

    A source may have queries in place of tables, which leave rows out. `transaction` is there where rows of
    this service are written. `digits`: how many digits of an allocation ratio the database keeps.
    """

    connection: sa.Connection
    tables: ModuleType | SimpleNamespace
    transaction: Transaction | None = None
    digits: int = 17

    @property
    def is_ours(self) -> bool:
        """Return whether it is of this service, with stamps, amounts in use and clusters."""
        return self.tables is own_tables

    @property
    def refuses_nul(self) -> bool:
        """Return whether its texts hold no NUL."""
        return self.connection.dialect.name == "postgresql"

    @property
    def heeds_lengths(self) -> bool:
        """Return whether it refuses texts that are longer than their column says."""
        return self.connection.dialect.name != "sqlite"

    def rows(self, statement: Any, **parameters: Any) -> Sequence[Any]:
        """Return all rows of a query."""
        return self.connection.execute(statement, parameters).all()

    def rows_of(
        self, table: sa.FromClause, columns: Sequence[str], name: str, ids: Sequence[int]
    ) -> Iterable[Sequence[Any]]:
        """Return these columns of the rows with one of the ids, at least one, in the column `name`."""
        place = columns.index(name)
        query = sa.select(*(table.c[column] for column in columns))
        least, most = min(ids), max(ids)
        if most - least >= _SPARSE * len(ids):
            return self.rows(query.where(table.c[name].in_(ids)))
        # Much cheaper than a list; rows between the ids are left out again.
        rows, wanted = self.rows(query.where(table.c[name].between(least, most))), set(ids)
        return [row for row in rows if row[place] in wanted]

    @cached_property
    def stamped(self) -> dict[str, Any]:
        """Return the columns that a provider row needs besides its contents when it is written."""
        return {"revision": self.transaction.stamp} if self.transaction else {}

    def insert(
        self, table: sa.Table, columns: Sequence[str], rows: Iterable[Sequence[Any]], **same: Any
    ) -> None:
        """Insert rows, with values in the order of the columns; `same` are expressions alike in all."""
        alike = [self.rows(sa.select(sa.cast(value, sa.Text)))[0][0] for value in same.values()]
        for some in portions(rows, _WRITTEN_AT_ONCE):
            insert(self.connection, table, (*columns, *same), [(*row, *alike) for row in some])

    def delete(self, table: sa.Table, columns: Sequence[str], keys: Iterable[Sequence[Any]]) -> None:
        """Delete the rows with these values in these columns."""
        place = sa.tuple_(*(table.c[column] for column in columns))
        for some in portions(keys, AT_ONCE):
            self.connection.execute(sa.delete(table).where(place.in_(some)))

    def update(self, table: sa.Table, rows: Iterable[dict[str, Any]], **same: Any) -> None:
        """Give the rows with these ids the other values in the dictionaries; `same` as for `insert`."""
        for some in portions(rows, _WRITTEN_AT_ONCE):
            # Bound parameters must not be called like columns.
            given = [{"key_id": row["id"], **{k: v for k, v in row.items() if k != "id"}} for row in some]
            values: dict[str, Any] = {column: sa.bindparam(column) for column in some[0] if column != "id"}
            statement = sa.update(table).where(table.c.id == sa.bindparam("key_id"))
            self.connection.execute(statement.values(**values, **same), given)


def insert(
    connection: sa.Connection, table: sa.Table, columns: Sequence[str], rows: Iterable[Sequence[Any]]
) -> None:
    """Insert rows with values in the order of the columns. Raises errors of SQLAlchemy and of the driver."""
    dialect, names = connection.dialect, f"{table.name} ({', '.join(columns)})"
    if dialect.name == "postgresql":
        cursor = connection.connection.cursor()
        try:
            cursor.copy_expert(f"COPY {names} FROM STDIN", _Lines(rows))
        finally:
            cursor.close()
        return
    processors = [table.c[name].type.dialect_impl(dialect).bind_processor(dialect) for name in columns]
    plain = [
        tuple(
            value if process is None else process(value)
            for process, value in zip(processors, row, strict=True)
        )
        for row in rows
    ]
    marks = ", ".join(["?" if dialect.paramstyle == "qmark" else "%s"] * len(columns))
    if plain:
        connection.exec_driver_sql(f"INSERT INTO {names} VALUES ({marks})", plain)


class _Lines:
    """A file of the rows that is written while it is read, so that the server need not wait for all of it."""

    def __init__(self, rows: Iterable[Sequence[Any]]) -> None:
        self._portions = portions(rows, _LINES_AT_ONCE)

    def read(self, _size: int) -> str:
        """Return the next lines, none at the end."""
        rows = next(self._portions, ())
        columns = map(_texts, zip(*rows, strict=True))
        return "".join(f"{line}\n" for line in map("\t".join, zip(*columns, strict=True)))


def _texts(values: Sequence[Any]) -> Iterable[str]:
    """Return the values of a column as COPY reads them; columns without odd values take no Python each."""
    kinds = set(map(type, values))
    if kinds == {str}:
        if not _NEEDS_ESCAPES("".join(values)):
            return values
    elif kinds.isdisjoint((str, type(None))):
        return map(str, values)
    return [
        _NULL if value is None else value.translate(_ESCAPED) if isinstance(value, str) else str(value)
        for value in values
    ]
