"""Data sets written straight into PostgreSQL, for sizes that take too long through REST."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

import sqlalchemy as sa
from tqdm import tqdm

from benchmarks.data import CUSTOM_TRAITS, DataSet, Provider, identifier
from placement.storage.database import Database

_PROVIDERS = "resource_providers (id, uuid, name, generation, root_provider_id, parent_provider_id, revision)"
_INVENTORIES = (
    "inventories (resource_provider_id, resource_class_id, total, reserved, min_unit, max_unit, step_size,"
    " allocation_ratio, used)"
)
_TABLES = {
    "placement_aggregates (id, uuid)": "aggregates",
    _PROVIDERS: "providers",
    _INVENTORIES: "inventories",
    "resource_provider_traits (resource_provider_id, trait_id)": "traits",
    "resource_provider_aggregates (resource_provider_id, aggregate_id)": "memberships",
}
_BLOCK = 200_000


def tidy(connection: str) -> None:
    """Have the database tidy up after many new rows, as autovacuum does within a minute or so."""
    engine = sa.create_engine(connection, isolation_level="AUTOCOMMIT")
    with engine.connect() as session:
        session.exec_driver_sql("VACUUM ANALYZE" if engine.dialect.name == "postgresql" else "ANALYZE")
    engine.dispose()


def fill(connection: str, data: DataSet) -> None:
    """Write the hosts of a data set into an empty database, used as its consumers use them.

    There are no consumers afterwards: amounts in use are only counted.
    """
    database = Database(connection)
    raw = database.engine.raw_connection()
    cursor = raw.cursor()
    cursor.execute("SET statement_timeout = 0")
    for trait in CUSTOM_TRAITS:
        cursor.execute("INSERT INTO traits (name) VALUES (%s)", [trait])
    cursor.execute("SELECT pg_current_xact_id()::text")
    ((revision,),) = cursor.fetchall()
    rows = _Rows(data, _ids(cursor, "resource_classes"), _ids(cursor, "traits"), revision)
    for table, kind in _TABLES.items():
        for block in _blocks(tqdm(getattr(rows, kind)(), desc=f"{data.name}: {kind}", unit="")):
            cursor.copy_expert(f"COPY {table} FROM STDIN", block)
    raw.commit()
    driver: Any = raw.driver_connection
    driver.autocommit = True
    for table in ("resource_providers", "placement_aggregates"):
        cursor.execute(f"SELECT setval('{table}_id_seq', (SELECT max(id) + 1 FROM {table}))")
    cursor.execute("VACUUM ANALYZE")
    raw.close()
    database.dispose()


def _ids(cursor: Any, table: str) -> dict[str, int]:
    cursor.execute(f"SELECT name, id FROM {table}")
    return dict(cursor.fetchall())


class _Rows:
    """The rows of each table."""

    def __init__(self, data: DataSet, classes: dict[str, int], traits: dict[str, int], revision: str) -> None:
        self._data, self._classes, self._traits, self._revision = data, classes, traits, revision
        numbers = count(1)
        self._ids = {provider.name: next(numbers) for tree in data.hosts for provider in tree}
        numbers = count(1)
        self._aggregates: dict[str, int] = {}
        for provider in self._all():
            for uuid in provider.aggregates:
                if uuid not in self._aggregates:
                    self._aggregates[uuid] = next(numbers)
        self._used: dict[tuple[str, str], int] = {}
        for held in data.consumers:
            for name, amounts in held.items():
                for resource_class, amount in amounts.items():
                    key = name, resource_class
                    self._used[key] = self._used.get(key, 0) + amount

    def _all(self) -> Iterator[Provider]:
        for tree in self._data.hosts:
            yield from tree

    def aggregates(self) -> Iterator[tuple[Any, ...]]:
        for uuid, id_ in self._aggregates.items():
            yield id_, uuid

    def providers(self) -> Iterator[tuple[Any, ...]]:
        for tree in self._data.hosts:
            root = self._ids[tree[0].name]
            for provider in tree:
                parent = self._ids[provider.parent] if provider.parent else r"\N"
                own = self._ids[provider.name]
                yield own, identifier(provider.name), provider.name, 1, root, parent, self._revision

    def inventories(self) -> Iterator[tuple[Any, ...]]:
        for provider in self._all():
            for name, given in provider.inventories.items():
                total, ratio = given["total"], given.get("allocation_ratio", 1.0)
                used = self._used.get((provider.name, name), 0)
                most = given.get("max_unit", 2147483647)
                own = self._ids[provider.name]
                yield own, self._classes[name], total, 0, 1, most, 1, ratio, used

    def traits(self) -> Iterator[tuple[Any, ...]]:
        for provider in self._all():
            for trait in provider.traits:
                yield self._ids[provider.name], self._traits[trait]

    def memberships(self) -> Iterator[tuple[Any, ...]]:
        for provider in self._all():
            for uuid in provider.aggregates:
                yield self._ids[provider.name], self._aggregates[uuid]


def _blocks(rows: Iterable[tuple[Any, ...]]) -> Iterator[io.StringIO]:
    lines: list[str] = []
    for row in rows:
        lines.append("\t".join(map(str, row)) + "\n")
        if len(lines) >= _BLOCK:
            yield io.StringIO("".join(lines))
            lines = []
    yield io.StringIO("".join(lines))
