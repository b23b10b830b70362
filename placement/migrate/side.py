"""One of the two databases between which rows move, inside of one transaction, and rows many at a time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import ModuleType
from typing import Any

import sqlalchemy as sa

from placement.engine.domain.identifiers import portions
from placement.storage import tables as own_tables
from placement.storage.database import Transaction
from placement.storage.feed import NAMES_CHANGED, record_change

# Inserting very many rows as fast as a database takes them, where moving needs it.


_ESCAPED = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})
_NULL = r"\N"
_LINES_AT_ONCE = 100


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
        return "".join(map(_line, next(self._portions, ())))


def _line(row: Sequence[Any]) -> str:
    texts = [
        _NULL if value is None else value.translate(_ESCAPED) if isinstance(value, str) else str(value)
        for value in row
    ]
    return "\t".join(texts) + "\n"


AT_ONCE = 1000
_WRITTEN_AT_ONCE = 20_000
# Ids that are further apart from each other are looked up one by one.
_SPARSE = 3

Progress = Callable[[str, int, int], None]
"""A function that takes what is being moved, how many are done, and of how many."""


@dataclass(frozen=True)
class Endpoint:
    """A database with the tables of this service, or the tables of the incumbent under the same names.

    `transaction` is there where rows of this service are written. `digits`: how many digits of an allocation
    ratio the database keeps.
    """

    connection: sa.Connection
    tables: ModuleType
    transaction: Transaction | None = None
    digits: int = 17

    @property
    def is_ours(self) -> bool:
        """Return whether it has what only this service keeps: stamps, amounts in use, clusters."""
        return self.tables is own_tables

    def rows(self, statement: Any, **parameters: Any) -> Sequence[Any]:
        """Return all rows of a query."""
        return self.connection.execute(statement, parameters).all()

    def rows_of(
        self, table: sa.Table, columns: Sequence[str], name: str, ids: Sequence[int]
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
        """Return what a provider row needs besides its contents when it is written."""
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


@dataclass
class Changes:
    """The numbers of rows of a table that were added, changed and removed."""

    added: int = 0
    changed: int = 0
    removed: int = 0


@dataclass
class MigrationReport:
    """The result of moving: changes by what people call the rows, and what was compared afterwards."""

    changes: dict[str, Changes] = field(default_factory=dict)
    completed_consumers: int = 0
    compared: dict[str, int] = field(default_factory=dict)

    def of(self, what: str) -> Changes:
        """Return the changes of one kind of rows."""
        return self.changes.setdefault(what, Changes())


@dataclass(frozen=True)
class Migration:
    """A move of rows from one database to the other, and what is reported of it."""

    source: Endpoint
    target: Endpoint
    progress: Progress
    report: MigrationReport = field(default_factory=MigrationReport)


def with_progress(progress: Progress, what: str, rows: Sequence[Any], size: int = AT_ONCE) -> Iterator[Any]:
    """Yield the rows in lists of at most `size`, and report how far they are."""
    done = 0
    for some in portions(rows, size):
        yield some
        done += len(some)
        progress(what, done, len(rows))


def rounded(ratio: float, digits: int) -> float:
    """Return an allocation ratio as a database of so many digits keeps it."""
    return ratio if digits >= 17 or not math.isfinite(ratio) else float(f"{ratio:.{digits}g}")


# What is known by a name: projects, users, kinds of consumers, resource classes, traits, aggregates.


# Where each is (tables, column), and what people call it.
_NAMED = {
    "resource_classes": ("name", "resource classes"),
    "traits": ("name", "traits"),
    "aggregates": ("uuid", "aggregates"),
    "projects": ("external_id", "projects"),
    "users": ("external_id", "users"),
    "consumer_types": ("name", "consumer types"),
}


Ids = Mapping[str, Mapping[int, int]]
"""The ids in the target by the ids in the source, for each kind."""


def copy(migration: Migration) -> Ids:
    """Add the names that the target lacks, in the order of the source; return all ids, and remove none."""
    source, target, report = migration.source, migration.target, migration.report
    found: dict[str, dict[int, int]] = {}
    for kind, (column, title) in _NAMED.items():
        table = getattr(source.tables, kind)
        query = sa.select(table.c.id, table.c[column], table.c.created_at, table.c.updated_at)
        rows = source.rows(query.order_by(table.c.id))
        known = _ids(target, kind)
        missing = [row[1:] for row in rows if row[1] not in known]
        target.insert(getattr(target.tables, kind), (column, "created_at", "updated_at"), missing)
        report.of(title).added += len(missing)
        if missing:
            known = _ids(target, kind)
        found[kind] = {id_: known[name] for id_, name, *_ in rows}
    new = report.of("resource classes").added + report.of("traits").added
    if target.transaction is not None and new:
        record_change(target.transaction, NAMES_CHANGED)
    return found


def _ids(side: Endpoint, kind: str) -> dict[str, int]:
    table = getattr(side.tables, kind)
    return dict(map(tuple, side.rows(sa.select(table.c[_NAMED[kind][0]], table.c.id))))


def id_of(target: Endpoint, kind: str, name: str) -> int:
    """Return the id of one name in the target, which is added if it is not there."""
    column, _ = _NAMED[kind]
    table = getattr(target.tables, kind)
    statement = sa.select(table.c.id).where(table.c[column] == name)
    if not target.rows(statement):
        target.insert(table, [column], [[name]])
    return int(target.rows(statement)[0][0])
