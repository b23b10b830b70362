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

from placement.engine.domain.errors import BadRequest, Unavailable
from placement.migrate.side import Endpoint
from placement.storage.backends.backend import described_server
from placement.storage.failures import words_of

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
        if self._is_file:
            sa.event.listen(self._engine, "connect", _leave_transactions_to_us)

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """Begin a transaction that sees one state. Raises Unavailable."""
        with self._begun("BEGIN") as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """Begin a transaction that commits unless the block raises. Raises Unavailable."""
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
        """Return the tables and columns, as table.column, that it lacks. Raises Unavailable."""
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
        """Return whether there is a table of this name. Raises Unavailable."""
        with self._begun("BEGIN") as connection:
            return bool(sa.inspect(connection).has_table(table))


def _leave_transactions_to_us(connection: sqlite3.Connection, _record: Any) -> None:
    connection.isolation_level = None


# The tables of OpenStack Placement 16, as `placement-manage db sync` of the incumbent leaves them: their
# columns with types, which is all that moving needs.
#
# Hardly a column there refers to its table, so rows may refer to nothing (`find`).


metadata = sa.MetaData()
_NAME, _UUID = sa.String(255), sa.String(36)


def _table(table: str, /, *integers: str, **others: sa.types.TypeEngine[Any]) -> sa.Table:
    types: dict[str, sa.types.TypeEngine[Any]] = {"created_at": sa.DateTime(), "updated_at": sa.DateTime()}
    types |= {**dict.fromkeys(integers, sa.Integer()), **others}
    return sa.Table(table, metadata, *(sa.Column(column, kind) for column, kind in types.items()))


projects = _table("projects", "id", external_id=_NAME)
users = _table("users", "id", external_id=_NAME)
consumer_types = _table("consumer_types", "id", name=_NAME)
resource_classes = _table("resource_classes", "id", name=_NAME)
traits = _table("traits", "id", name=_NAME)
aggregates = _table("placement_aggregates", "id", uuid=_UUID)
providers = _table(
    "resource_providers",
    *("id", "generation", "root_provider_id", "parent_provider_id"),
    uuid=_UUID,
    name=sa.Unicode(200),
)
inventories = _table(
    "inventories",
    *("id", "resource_provider_id", "resource_class_id"),
    *("total", "reserved", "min_unit", "max_unit", "step_size"),
    allocation_ratio=sa.Float(),
)
provider_traits = _table("resource_provider_traits", "trait_id", "resource_provider_id")
provider_aggregates = _table("resource_provider_aggregates", "resource_provider_id", "aggregate_id")
consumers = _table("consumers", "id", "project_id", "user_id", "generation", "consumer_type_id", uuid=_UUID)
allocations = _table(
    "allocations", "id", "resource_provider_id", "resource_class_id", "used", consumer_id=_UUID
)


# Rows of the incumbent that refer to nothing, which no table here can hold.
#
# The incumbent's own statements join such rows away, so they are not seen there. They cannot be moved, and
# are reported rather than dropped.


_SHOWN = 5
# Tables, their columns that refer to a table, and that table.
_REFERENCES = (
    ("providers", "root_provider_id", "providers"),
    ("providers", "parent_provider_id", "providers"),
    ("inventories", "resource_provider_id", "providers"),
    ("inventories", "resource_class_id", "resource_classes"),
    ("provider_traits", "resource_provider_id", "providers"),
    ("provider_traits", "trait_id", "traits"),
    ("provider_aggregates", "resource_provider_id", "providers"),
    ("provider_aggregates", "aggregate_id", "aggregates"),
    ("allocations", "resource_provider_id", "providers"),
    ("allocations", "resource_class_id", "resource_classes"),
    ("consumers", "project_id", "projects"),
    ("consumers", "user_id", "users"),
    ("consumers", "consumer_type_id", "consumer_types"),
)
_NAMED = (("providers", "name"), ("aggregates", "uuid"))


def find(source: Endpoint) -> Iterator[str]:
    """Yield a sentence for each kind of rows that cannot be moved, with the first of them."""
    for name, column, referred in _REFERENCES:
        table, other = getattr(source.tables, name), getattr(source.tables, referred).alias("other")
        query = (
            sa.select(table.c[column])
            .outerjoin(other, other.c.id == table.c[column])
            .where(table.c[column].is_not(None), other.c.id.is_(None))
        )
        sentence = f"rows of {table.name} have a {column} that does not exist"
        yield from _first(source, query.distinct(), sentence)
    for name, column in _NAMED:
        table = getattr(source.tables, name)
        query = sa.select(table.c.id).where(table.c[column].is_(None))
        yield from _first(source, query, f"rows of {table.name} have no {column}; their id")
    table = source.tables.allocations
    query = (
        sa.select(table.c.consumer_id)
        .group_by(table.c.consumer_id, table.c.resource_provider_id, table.c.resource_class_id)
        .having(sa.func.count() > 1)
    )
    yield from _first(source, query, "consumers hold one resource class of one provider in several rows")


def _first(source: Endpoint, query: sa.Select[tuple[Any]], sentence: str) -> Iterator[str]:
    found = [str(row[0]) for row in source.rows(query.limit(_SHOWN + 1))]
    if found:
        more = ", ..." if len(found) > _SHOWN else ""
        yield f"{sentence}: {', '.join(found[:_SHOWN])}{more}"
