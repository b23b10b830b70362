"""Databases as OpenStack Placement leaves them, made here from its tables, without it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa

from tests.server import database_url

_TIMES = "created_at TIMESTAMP, updated_at TIMESTAMP"
_NAMED = "({times}, id {id}, {column} NOT NULL UNIQUE)"
_TABLES = {
    "alembic_version": "(version_num VARCHAR(32) PRIMARY KEY)",
    "projects": _NAMED.replace("{column}", "external_id VARCHAR(255)"),
    "users": _NAMED.replace("{column}", "external_id VARCHAR(255)"),
    "consumer_types": _NAMED.replace("{column}", "name VARCHAR(255)"),
    "resource_classes": _NAMED.replace("{column}", "name VARCHAR(255)"),
    "traits": _NAMED.replace("{column}", "name VARCHAR(255)"),
    "placement_aggregates": "({times}, id {id}, uuid VARCHAR(36) UNIQUE)",
    "resource_providers": "({times}, id {id}, uuid VARCHAR(36) NOT NULL UNIQUE, name VARCHAR(200) UNIQUE,"
    " generation INTEGER, root_provider_id INTEGER REFERENCES resource_providers (id),"
    " parent_provider_id INTEGER REFERENCES resource_providers (id))",
    "inventories": "({times}, id {id}, resource_provider_id INTEGER NOT NULL,"
    " resource_class_id INTEGER NOT NULL,"
    " total INTEGER NOT NULL,"
    " reserved INTEGER NOT NULL, min_unit INTEGER NOT NULL, max_unit INTEGER NOT NULL,"
    " step_size INTEGER NOT NULL, allocation_ratio FLOAT NOT NULL,"
    " UNIQUE (resource_provider_id, resource_class_id))",
    "resource_provider_traits": "({times}, trait_id INTEGER REFERENCES traits (id),"
    " resource_provider_id INTEGER REFERENCES resource_providers (id),"
    " PRIMARY KEY (trait_id, resource_provider_id))",
    "resource_provider_aggregates": "({times}, resource_provider_id INTEGER, aggregate_id INTEGER,"
    " PRIMARY KEY (resource_provider_id, aggregate_id))",
    "consumers": "({times}, id {id}, uuid VARCHAR(36) NOT NULL UNIQUE, project_id INTEGER NOT NULL,"
    " user_id INTEGER NOT NULL, generation INTEGER DEFAULT 0 NOT NULL,"
    " consumer_type_id INTEGER REFERENCES consumer_types (id))",
    "allocations": "({times}, id {id}, resource_provider_id INTEGER NOT NULL,"
    " consumer_id VARCHAR(36) NOT NULL,"
    " resource_class_id INTEGER NOT NULL, used INTEGER NOT NULL)",
}
_IDS = {"sqlite": "INTEGER PRIMARY KEY", "postgresql": "SERIAL PRIMARY KEY"}


class Incumbent:
    """One such database; rows are written and read as dictionaries."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._engine = sa.create_engine(url)

    def create(self, backend: str) -> None:
        """Make the tables."""
        with self._engine.begin() as connection:
            for name, columns in _TABLES.items():
                connection.exec_driver_sql(
                    f"CREATE TABLE {name} {columns.format(times=_TIMES, id=_IDS[backend])}"
                )
            connection.exec_driver_sql("INSERT INTO alembic_version VALUES ('a082b8bb98d0')")

    def add(self, table: str, **row: Any) -> None:
        """Insert a row."""
        names = ", ".join(row)
        self.run(f"INSERT INTO {table} ({names}) VALUES ({', '.join(f':{name}' for name in row)})", **row)

    def run(self, statement: str, **parameters: Any) -> None:
        """Run a statement."""
        with self._engine.begin() as connection:
            connection.execute(sa.text(statement), parameters)

    def rows(self, query: str) -> list[tuple[Any, ...]]:
        """What a query finds, in order."""
        with self._engine.begin() as connection:
            return sorted(map(tuple, connection.execute(sa.text(query))))

    def dispose(self) -> None:
        """Close all connections."""
        self._engine.dispose()


@contextmanager
def incumbent_database(backend: str) -> Iterator[Incumbent]:
    """A database with the incumbent's empty tables."""
    with database_url(backend, migrated=False) as url:
        made = Incumbent(url)
        made.create(backend)
        yield made
        made.dispose()
