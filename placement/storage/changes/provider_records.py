"""Providers as the forest takes them: some of them as they are now, or all of one moment."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from placement.domain.inventory import Inventory
from placement.domain.portions import portions
from placement.forest.records import (
    MILLION,
    InventoryRow,
    ProviderRecord,
    ProviderRow,
    Snapshot,
)
from placement.storage import tables

_AT_ONCE = 2000
_STREAM = 10_000
# What is watched of a ratio; capacities are computed from all of it.
_LARGEST_RATIO = 1e9


def read(connection: sa.Connection, ids: Sequence[int]) -> list[ProviderRecord]:
    """The present state of some providers, each consistent in itself; missing ones are left out."""
    records: list[ProviderRecord] = []
    for some in portions(ids, _AT_ONCE):
        records.extend(_assemble(connection.execute(_RECORDS, {"ids": some})))
    return records


def snapshot(connection: sa.Connection) -> Snapshot:
    """All providers, in a transaction that sees one state. Streams: consume it before that ends."""
    stream = connection.execution_options(yield_per=_STREAM)
    return Snapshot(
        providers=(ProviderRow(*row) for row in stream.execute(sa.select(*_provider_columns()))),
        inventories=_inventories(stream),
        traits=_pairs(stream, tables.provider_traits, "trait_id"),
        aggregates=_pairs(stream, tables.provider_aggregates, "aggregate_id"),
    )


def _inventories(connection: sa.Connection) -> Iterator[tuple[int, InventoryRow]]:
    statement = sa.select(tables.inventories.c.resource_provider_id, *_inventory_columns())
    for provider, *rest in connection.execute(statement):
        yield provider, _inventory_row(*rest)


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
    ratio = round(min(allocation_ratio, _LARGEST_RATIO) * MILLION)
    return InventoryRow(class_id, capacity, min_unit, max_unit, step_size, used, total, reserved, ratio)


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
