"""What changed since the last look, and everything at once for the first.

PostgreSQL: each write stamps the providers it touches with its transaction id. A look remembers the oldest
transaction that was still running (the horizon); whatever becomes visible later carries that stamp or a
newer one, in whatever order the writers commit. Rows may be reported twice, never missed.
SQLite: writers are serial, so a counter does the same; `PRAGMA data_version` tells for free that nothing
was committed since.

Stamps mean something within one history only (storage.changes.history). Each look says which one it is of;
a horizon of another one counts as too old for anything but loading everything again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import uuid4

import sqlalchemy as sa

from placement.domain.errors import Unavailable
from placement.domain.inventory import Inventory
from placement.forest.records import (
    InventoryRow,
    ProviderRecord,
    ProviderRow,
    Snapshot,
)
from placement.storage import tables
from placement.storage.changes import history, old_changes
from placement.storage.changes.history import BEFORE_ALL, Horizon
from placement.storage.database import Database, Transaction

PROVIDER_DELETED = "provider"
NAMES_CHANGED = "names"
CLUSTER_CHANGED = "cluster"
_RECORDS_AT_ONCE = 2000
_STREAM = 10_000

# A look is quick; one that is not may have met a connection that leads nowhere any more.
_QUICK_SECONDS = 5.0
# The witness of storage.changes.history. Nobody changes the only row of this table on PostgreSQL.
_WITNESS_POSTGRESQL = (
    "SELECT 'history' AS kind, 0 AS reference, xmin::text::bigint AS revision, 0 AS root, "
    "tableoid::bigint AS cluster FROM change_counter"
)
_WITNESS_SQLITE = "SELECT 'history', 0, schema_version, 0, 0 FROM pragma_schema_version"
# Prepared once per connection: planning it would cost more than running it. Its name is that of one session,
# so that a pooler cannot have another one answer.
_PREPARE_POSTGRESQL = f"""
    PREPARE {{name}}(xid8) AS
    SELECT 'horizon' AS kind, 0 AS reference,
           pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS revision, 0 AS root, 0::bigint AS cluster
    UNION ALL
    {_WITNESS_POSTGRESQL}
    UNION ALL
    SELECT 'changed', id, revision::text::bigint, root_provider_id, cluster_id
      FROM resource_providers WHERE revision >= $1
    UNION ALL
    SELECT kind, reference, revision::text::bigint, 0, 0 FROM changes WHERE revision >= $1
"""
_LOOK_SQLITE = f"""
    SELECT 'horizon' AS kind, 0 AS reference, value + 1 AS revision, 0 AS root, 0 AS cluster
      FROM change_counter
    UNION ALL
    {_WITNESS_SQLITE}
    UNION ALL
    SELECT 'changed', id, revision, root_provider_id, cluster_id
      FROM resource_providers WHERE revision >= :horizon
    UNION ALL
    SELECT kind, reference, revision, 0, 0 FROM changes WHERE revision >= :horizon
"""


class Changed(NamedTuple):
    """A provider that may have changed, with its root and the cluster it belongs to, if any."""

    id: int
    revision: int
    root_id: int | None
    cluster_id: int | None


@dataclass(slots=True)
class Look:
    """One look: providers that may have changed, ids of deleted ones, and the horizon.

    `clusters` are the ids of clusters that were created, deleted or given other settings. A look has the
    horizon 0,
    older than any, if everything has to be loaded again: it comes too late, and some of what changed was
    removed since, or the history is another one.
    """

    horizon: Horizon = BEFORE_ALL
    changed: list[Changed] = field(default_factory=list)
    deleted: list[int] = field(default_factory=list)
    clusters: set[int] = field(default_factory=set)
    names_changed: bool = False
    witness: str = ""


class Feed:
    """The changes of one database, looked at over a connection of its own."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: sa.Connection | None = None
        self._data_version: int | None = None
        self._statement = ""
        self._driver_error: type[Exception] = database.engine.dialect.loaded_dbapi.Error

    def look(self, horizon: int) -> Look | None:
        """What may have changed since `horizon`, None if surely nothing. Raises Unavailable."""
        self._drop_outdated()
        if self._connection is not None:
            # Whatever ails it may be this connection alone.
            with suppress(sa.exc.SQLAlchemyError, self._driver_error):
                look = self._look(horizon, quick=True)
                # Nobody has told this connection, perhaps, that the database is somewhere else now.
                if look is None or look.horizon or self._database.is_sqlite:
                    return look
            self.close()
        return self._look_anew(horizon)

    def _look_anew(self, horizon: int) -> Look | None:
        """Look over a new connection. What fails there is not tried again: it took its time."""
        try:
            with self._database.translating():
                return self._look(horizon, quick=False)
        except BaseException:
            self.close()
            raise

    def _look(self, horizon: int, *, quick: bool) -> Look | None:
        connection = self._connected()
        if self._database.is_sqlite:
            return self._look_at_file(connection, horizon)
        driver: Any = connection.connection.dbapi_connection
        usual = driver.patience
        if quick:
            driver.patience = _QUICK_SECONDS
        try:
            # Every search looks; asking the driver itself takes half of the time.
            with driver.cursor() as cursor:
                cursor.execute(self._statement, (str(int(horizon)),))
                rows = cursor.fetchall()
        finally:
            driver.patience = usual
        return self._within_history(_read_look(rows), horizon)

    def _look_at_file(self, connection: sa.Connection, horizon: int) -> Look | None:
        version = connection.exec_driver_sql("PRAGMA data_version").scalar_one()
        if version == self._data_version:
            return None
        look = _read_look(connection.exec_driver_sql(_LOOK_SQLITE, {"horizon": int(horizon)}))
        self._data_version = version
        return self._within_history(look, horizon)

    def _within_history(self, look: Look, horizon: int) -> Look:
        """The look, if the horizon is of the history that the connection is in; else one that is too late."""
        assert self._connection is not None
        server = self._connection.info[history.KEY]
        present = f"{server} {look.witness}"
        if look.horizon:
            look.horizon = Horizon(look.horizon, present)
        if getattr(horizon, "history", present) != present:
            self._database.history.observe(server, look.witness)
            look.horizon = BEFORE_ALL
        return look

    def _drop_outdated(self) -> None:
        """Give up a connection to what is not the database any more: the pool has heard of another one."""
        if self._connection is not None and not self._database.is_current(self._connection):
            self.close()

    def _connected(self) -> sa.Connection:
        if self._connection is None:
            self._connection = self._database.engine.connect()
            self._data_version = None
            if not self._database.is_sqlite:
                name = f"placement_look_{uuid4().hex}"
                # Few rows are ever new, whatever statistics from before a bulk load say.
                self._connection.exec_driver_sql("SET enable_seqscan = off")
                self._connection.exec_driver_sql(_PREPARE_POSTGRESQL.format(name=name))
                self._statement = f"EXECUTE {name}(%s)"
        return self._connection

    def horizon(self, snapshot: sa.Connection) -> Horizon:
        """The horizon to look from after reading in this transaction, which must be of one state."""
        statement = f"""
            SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint, revision, cluster
              FROM (SELECT 1) AS one LEFT JOIN ({_WITNESS_POSTGRESQL}) AS witness ON true
        """
        if self._database.is_sqlite:
            statement = "SELECT value + 1, schema_version, 0 FROM change_counter, pragma_schema_version"
        number, revision, place = snapshot.exec_driver_sql(statement).one()
        witness = _witness(revision, place)
        server = snapshot.info[history.KEY]
        self._database.history.observe(server, witness)
        return Horizon(number, f"{server} {witness}")

    @contextmanager
    def session(self, horizon: int) -> Iterator[sa.Connection]:
        """This feed's connection, for reading more of what was looked at. Raises Unavailable."""
        try:
            with self._database.translating():
                self._drop_outdated()
                connection = self._connected()
                self.check(connection, horizon)
                yield connection
        except BaseException:
            self.close()
            raise

    def check(self, connection: sa.Connection, horizon: int) -> None:
        """Raises Unavailable if a connection is not to the server that the horizon is of."""
        known = getattr(horizon, "history", None)
        if known is not None and not known.startswith(f"{connection.info[history.KEY]} "):
            raise Unavailable("The database was exchanged while it was read; try again.")

    def close(self) -> None:
        """Give the connection back."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with suppress(sa.exc.SQLAlchemyError, self._driver_error):
                connection.invalidate()
                connection.close()

    def records(self, ids: Sequence[int]) -> list[ProviderRecord]:
        """The present state of some providers, each consistent in itself; missing ones are left out."""
        records: list[ProviderRecord] = []
        with self.session(0) as connection:
            for start in range(0, len(ids), _RECORDS_AT_ONCE):
                wanted = {"ids": list(ids[start : start + _RECORDS_AT_ONCE])}
                records.extend(_assemble(connection.execute(_RECORDS, wanted)))
        return records

    @contextmanager
    def snapshot(self) -> Iterator[tuple[Horizon, Snapshot]]:
        """All providers of one moment and the horizon to look from next. Streams: consume it inside."""
        with self._database.snapshot() as connection:
            horizon = self.horizon(connection)
            stream = connection.execution_options(yield_per=_STREAM)
            inventory = tables.inventories.c
            yield (
                horizon,
                Snapshot(
                    providers=(ProviderRow(*row) for row in stream.execute(sa.select(*_provider_columns()))),
                    inventories=(
                        (provider, _inventory_row(*rest))
                        for provider, *rest in stream.execute(
                            sa.select(inventory.resource_provider_id, *_inventory_columns())
                        )
                    ),
                    traits=_pairs(stream, tables.provider_traits, "trait_id"),
                    aggregates=_pairs(stream, tables.provider_aggregates, "aggregate_id"),
                ),
            )


def record_change(transaction: Transaction, kind: str, references: Iterable[int] = (0,)) -> None:
    """Tell all processes of deleted providers and changed clusters (their ids), or of changed names."""
    rows = [{"kind": kind, "reference": reference, "created_at": transaction.now} for reference in references]
    statement = sa.insert(tables.changes).values(revision=transaction.stamp).returning(tables.changes.c.id)
    ids = transaction.execute(statement, rows).scalars()
    if any(id_ % old_changes.EVERY == 0 for id_ in ids):
        old_changes.remove_old(transaction)


def _read_look(rows: Iterable[Any]) -> Look:
    look = Look()
    is_late = False
    for kind, reference, revision, root_id, cluster_id in rows:
        if kind == "horizon":
            look.horizon = Horizon(revision, "")
        elif kind == "history":
            look.witness = _witness(revision, cluster_id)
        elif kind == "changed":
            look.changed.append(Changed(reference, revision, root_id, cluster_id))
        elif kind == PROVIDER_DELETED:
            look.deleted.append(reference)
        elif kind == CLUSTER_CHANGED:
            look.clusters.add(reference)
        elif kind == old_changes.REMOVED:
            is_late = True
        else:
            look.names_changed = True
    if is_late:
        look.horizon = BEFORE_ALL
    return look


def _witness(revision: int | None, place: int | None) -> str:
    return f"{revision}/{place}"


def revision_number() -> sa.ColumnElement[int]:
    """The stamp of a provider as a number."""
    return sa.cast(sa.cast(tables.providers.c.revision, sa.Text), sa.BigInteger)


def _provider_columns() -> tuple[sa.ColumnElement[Any], ...]:
    column = tables.providers.c
    return (
        column.id,
        column.uuid,
        column.generation,
        column.parent_provider_id,
        sa.func.coalesce(column.root_provider_id, column.id),
        revision_number(),
    )


def _inventory_columns() -> tuple[sa.Column[Any], ...]:
    column = tables.inventories.c
    return (
        column.resource_class_id,
        column.total,
        column.reserved,
        column.min_unit,
        column.max_unit,
        column.step_size,
        column.used,
        column.allocation_ratio,
    )


def _inventory_row(
    class_id: int,
    total: int,
    reserved: int,
    min_unit: int,
    max_unit: int,
    step_size: int,
    used: int,
    allocation_ratio: float,
) -> InventoryRow:
    capacity = Inventory(total, reserved, allocation_ratio=allocation_ratio).capacity
    return InventoryRow(class_id, capacity, min_unit, max_unit, step_size, used)


def _pairs(connection: sa.Connection, table: sa.Table, column: str) -> Iterator[tuple[int, int]]:
    for row in connection.execute(sa.select(table.c.resource_provider_id, table.c[column])):
        yield row[0], row[1]


def _records_statement() -> sa.CompoundSelect[Any]:
    """Everything about the providers in one statement, so that each record is of one moment."""
    none = sa.null()
    ids: Any = sa.bindparam("ids", expanding=True)
    inventory = tables.inventories.c
    id_, uuid, generation, parent, root, revision = _provider_columns()
    members = (
        (2, tables.provider_traits, "trait_id"),
        (3, tables.provider_aggregates, "aggregate_id"),
    )
    return sa.union_all(
        sa.select(
            sa.literal(0), id_, uuid, generation, parent, root, revision, none, none, none,
            sa.cast(none, sa.Float),
        ).where(tables.providers.c.id.in_(ids)),
        sa.select(
            sa.literal(1), inventory.resource_provider_id, none, *_inventory_columns()
        ).where(inventory.resource_provider_id.in_(ids)),
        *(
            sa.select(
                sa.literal(kind), table.c.resource_provider_id, none, table.c[column], *([none] * 7)
            ).where(table.c.resource_provider_id.in_(ids))
            for kind, table, column in members
        ),
    )  # fmt: skip


_RECORDS = _records_statement()


def _assemble(rows: Iterable[Any]) -> list[ProviderRecord]:
    providers: dict[int, ProviderRow] = {}
    parts: dict[int, tuple[list[InventoryRow], set[int], set[int]]] = {}
    for kind, provider, uuid, *numbers in rows:
        inventories, traits, aggregates = parts.setdefault(provider, ([], set(), set()))
        if kind == 0:
            generation, parent, root, revision = numbers[:4]
            providers[provider] = ProviderRow(provider, uuid, generation, parent, root, revision)
        elif kind == 1:
            inventories.append(_inventory_row(*numbers))
        else:
            (traits if kind == 2 else aggregates).add(numbers[0])
    return [
        ProviderRecord(row, tuple(parts[id_][0]), frozenset(parts[id_][1]), frozenset(parts[id_][2]))
        for id_, row in providers.items()
    ]
