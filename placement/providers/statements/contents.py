"""Statements on inventories. Callers lock the provider's row first."""

from __future__ import annotations

import datetime
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import astuple
from typing import Any, NamedTuple

import sqlalchemy as sa

from placement.engine.domain.inventories import Inventory
from placement.engine.domain.portions import portions
from placement.providers.statements import names
from placement.storage import tables
from placement.storage.database import Executor, RowStatement, Transaction

_table = tables.inventories
_classes = tables.resource_classes
_providers = tables.providers
# SQLite may refuse statements with more than 32,766 values.
_AT_ONCE, _READ_AT_ONCE = 2_000, 20_000


class Stored(NamedTuple):
    """One inventory record as it is kept."""

    class_id: int
    class_name: str
    inventory: Inventory
    used: int
    changed_at: datetime.datetime


class Offer(NamedTuple):
    """A provider's generation and all its inventory records, in order of the classes."""

    provider_id: int
    generation: int
    records: list[Stored]


_offer = (
    sa.select(
        _providers.c.id,
        _providers.c.generation,
        _table.c.resource_class_id,
        _classes.c.name,
        *_table.c["total", "reserved", "min_unit", "max_unit", "step_size", "allocation_ratio", "used"],
        sa.func.coalesce(_table.c.updated_at, _table.c.created_at),
    )
    .select_from(_providers)
    .outerjoin(_table, _table.c.resource_provider_id == _providers.c.id)
    .outerjoin(_classes, _classes.c.id == _table.c.resource_class_id)
    .order_by(_table.c.resource_class_id)
)


def offer(connection: Executor, uuid: str) -> Offer | None:
    """Return everything a provider offers and how much of it is used; None if there is no such provider."""
    rows = connection.execute(_offer.where(_providers.c.uuid == uuid)).all()
    if not rows:
        return None
    return Offer(rows[0][0], rows[0][1], [_stored(row) for row in rows if row[2] is not None])


def _stored(row: Any) -> Stored:
    return Stored(row[2], row[3], Inventory(*row[4:10]), row[10], row[11])


def stored(connection: Executor, provider_ids: Collection[int]) -> dict[int, dict[int, Stored]]:
    """Return the inventory records of some providers: provider id -> class id -> record."""
    found: dict[int, dict[int, Stored]] = {}
    for some in portions(sorted(provider_ids), _READ_AT_ONCE):
        for row in connection.execute(_offer.where(_providers.c.id.in_(some))):
            if row[2] is not None:
                found.setdefault(row[0], {})[row[2]] = _stored(row)
    return found


_COLUMNS = {
    "provider_id": "integer",
    "class_id": "integer",
    "total": "integer",
    "reserved": "integer",
    "min_unit": "integer",
    "max_unit": "integer",
    "step_size": "integer",
    "ratio": "double precision",
}
_NOW = sa.bindparam("now", type_=sa.DateTime)
_INSERT = RowStatement(
    """
    INSERT INTO inventories (resource_provider_id, resource_class_id, used, created_at,
                             total, reserved, min_unit, max_unit, step_size, allocation_ratio)
    SELECT given.provider_id, given.class_id, 0, :now,
           given.total, given.reserved, given.min_unit, given.max_unit, given.step_size, given.ratio
      FROM {rows}
    """,
    "given",
    _COLUMNS,
    _NOW,
)
_UPDATE = RowStatement(
    """
    UPDATE inventories SET total = given.total, reserved = given.reserved, min_unit = given.min_unit,
                           max_unit = given.max_unit, step_size = given.step_size,
                           allocation_ratio = given.ratio, updated_at = :now
      FROM {rows}
     WHERE inventories.resource_provider_id = given.provider_id
       AND inventories.resource_class_id = given.class_id
    """,
    "given",
    _COLUMNS,
    _NOW,
)


def insert(transaction: Transaction, wanted: Sequence[tuple[int, int, Inventory]]) -> None:
    """Insert records: (provider id, class id, record)."""
    _write(transaction, _INSERT, wanted)


def update(transaction: Transaction, wanted: Sequence[tuple[int, int, Inventory]]) -> None:
    """Replace records; their usage stays."""
    _write(transaction, _UPDATE, wanted)


def _write(
    transaction: Transaction, statement: RowStatement, wanted: Sequence[tuple[int, int, Inventory]]
) -> None:
    if wanted:
        rows = [(provider_id, class_id, *astuple(record)) for provider_id, class_id, record in wanted]
        statement.run(transaction, rows, now=transaction.now)


def delete(transaction: Transaction, keys: Collection[tuple[int, int]]) -> None:
    """Remove records: (provider id, class id)."""
    place = sa.tuple_(_table.c.resource_provider_id, _table.c.resource_class_id)
    for some in portions(sorted(keys), _AT_ONCE):
        transaction.execute(sa.delete(_table).where(place.in_(some)))


# Statements on traits of providers and the aggregates they are in. Callers lock the provider's row first.


class MembershipKind(NamedTuple):
    """A kind of membership: the table of its pairs, its column there, and the column of the name."""

    pairs: sa.Table
    column: str
    name: sa.Column[Any]

    @property
    def is_joined(self) -> sa.ColumnElement[bool]:
        """The condition that joins names to pairs."""
        joined: sa.ColumnElement[bool] = self.name.table.c.id == self.pairs.c[self.column]
        return joined


TRAITS = MembershipKind(tables.provider_traits, "trait_id", tables.traits.c.name)
AGGREGATES = MembershipKind(tables.provider_aggregates, "aggregate_id", tables.aggregates.c.uuid)


class Members(NamedTuple):
    """The traits or aggregates of a provider, in order of ids, and when the newest of them was created."""

    generation: int
    members: list[str]
    newest: datetime.datetime | None


def members_of(connection: Executor, kind: MembershipKind, uuid: str) -> Members | None:
    """Return the traits or aggregates of a provider; None if there is no such provider."""
    named = kind.name.table
    statement = (
        sa.select(_providers.c.generation, kind.name, named.c.created_at)
        .select_from(_providers)
        .outerjoin(kind.pairs, kind.pairs.c.resource_provider_id == _providers.c.id)
        .outerjoin(named, kind.is_joined)
        .where(_providers.c.uuid == uuid)
        .order_by(named.c.id)
    )
    rows = connection.execute(statement).all()
    if not rows:
        return None
    present = [row for row in rows if row[1] is not None]
    # Rows that were imported may have no times.
    times = [row[2] for row in present if row[2] is not None]
    return Members(rows[0][0], [row[1] for row in present], max(times, default=None))


def members_by_provider(
    connection: Executor, kind: MembershipKind, ids: Sequence[int]
) -> dict[int, list[str]]:
    """Return the traits of providers by name, or the aggregates that they are in by uuid."""
    owner = kind.pairs.c.resource_provider_id
    statement: sa.Select[Any] = sa.select(owner, kind.name).join(kind.name.table, kind.is_joined)
    statement = statement.where(owner.in_(ids)).order_by(kind.name)
    found: dict[int, list[str]] = defaultdict(list)
    for row in connection.execute(statement):
        found[row[0]].append(row[1])
    return found


class Replaced(NamedTuple):
    """The members that a provider had before, and whether they have changed."""

    before: list[str]
    changed: bool


def replace_aggregates(transaction: Transaction, provider_id: int, uuids: Collection[str]) -> Replaced:
    """Make these the provider's aggregates, and create aggregates that were never seen before."""
    names.insert_ignoring_known(transaction, tables.aggregates, "uuid", uuids)
    ids = names.aggregate_ids(transaction, uuids).values()
    return replace_members(transaction, AGGREGATES, provider_id, ids)


_ADD = RowStatement(
    """
    INSERT INTO resource_provider_aggregates (resource_provider_id, aggregate_id, created_at)
    SELECT given.provider_id, placement_aggregates.id, :now
      FROM {rows} JOIN placement_aggregates ON placement_aggregates.uuid = :aggregate WHERE true
    ON CONFLICT DO NOTHING RETURNING resource_provider_id
    """,
    "given",
    {"provider_id": "integer"},
    sa.bindparam("now", type_=sa.DateTime),
)


def add_to_aggregate(transaction: Transaction, provider_ids: Collection[int], uuid: str) -> set[int]:
    """Put providers into an existing aggregate; return the providers that were not in it already."""
    if not provider_ids:
        return set()
    rows = [(id_,) for id_ in sorted(provider_ids)]
    return set(_ADD.run(transaction, rows, aggregate=uuid, now=transaction.now).scalars())


def replace_members(
    transaction: Transaction, kind: MembershipKind, provider_id: int, ids: Collection[int]
) -> Replaced:
    """Make these the provider's traits or aggregates."""
    pairs, column = kind.pairs, kind.column
    mine = pairs.c.resource_provider_id == provider_id
    named = sa.select(pairs.c[column], kind.name).join(kind.name.table, kind.is_joined)
    present = {row[0]: row[1] for row in transaction.execute(named.where(mine))}
    gone, fresh = present.keys() - set(ids), set(ids) - present.keys()
    if gone:
        transaction.execute(sa.delete(pairs).where(mine, pairs.c[column].in_(sorted(gone))))
    if fresh:
        rows = [
            {"resource_provider_id": provider_id, column: id_, "created_at": transaction.now}
            for id_ in sorted(fresh)
        ]
        transaction.execute(sa.insert(pairs), rows)
    return Replaced(sorted(present.values()), bool(gone or fresh))
