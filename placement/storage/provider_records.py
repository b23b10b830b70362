"""Providers as the forest takes them: some of them as they are now, or all of one moment."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from placement.engine.domain.identifiers import portions
from placement.engine.domain.inventories import Inventory
from placement.engine.forest.providers import (
    LARGEST_RATIO,
    MILLION,
    InventoryRow,
    NumberColumn,
    ProviderRecord,
    ProviderRow,
    ProviderStates,
    Snapshot,
)
from placement.storage import tables
from placement.storage.sql import CONTENT

if TYPE_CHECKING:
    from placement.storage.backends.backend import Backend

_AT_ONCE = 2000
_STREAM = 10_000
_SEPARATOR = ","
_NOTHING: frozenset[int] = frozenset()


def read(rows_of: Callable[[Sequence[int]], Iterable[Any]], ids: Sequence[int]) -> list[ProviderRecord]:
    """Return the present state of some providers, each consistent in itself; missing ones are left out.

    `rows_of` returns the rows of the `statement` for some ids.
    """
    return [record for some in portions(ids, _AT_ONCE) for record in _assemble(rows_of(some))]


def read_states(
    connection: sa.Connection,
    backend: Backend,
    ids: Sequence[int],
    others: Callable[[Sequence[NumberColumn]], Sequence[int]],
    strangers: Sequence[int] = (),
) -> ProviderStates:
    """Return the present state of very many providers, in a transaction that sees one state.

    Missing ones are left out. The result has the uuids of `strangers`. `others` finds, from the columns of
    providers, the ids of providers that changed in more than their use.
    """
    id_, uuid, generation, parent, root, revision, content = _provider_columns()
    places = sa.select(id_, generation, sa.func.coalesce(parent, 0), root, revision, content)
    owner, class_id, used = (
        tables.inventories.c[name] for name in ("resource_provider_id", "resource_class_id", "used")
    )
    providers = backend.columns(connection, places.where(backend.among(id_, sorted(ids))))
    altered = sorted(others(providers))
    same = sorted(set(map(int, providers[0])).difference(altered))

    named: Iterable[Any] = ()
    if strangers:
        named = connection.execute(sa.select(id_, uuid).where(backend.among(id_, sorted(strangers))))

    def sets(table: sa.Table, column: str) -> list[tuple[frozenset[int], NumberColumn]]:
        if not altered:
            return []
        provider = table.c.resource_provider_id
        each = _members(table, column).where(backend.among(provider, altered)).subquery()
        carriers = sa.func.aggregate_strings(sa.cast(each.c.provider, sa.String), _SEPARATOR)
        rows = connection.execute(sa.select(each.c.members, carriers).group_by(each.c.members))
        return [
            (_ids_in(members), array("q", map(int, carried.split(_SEPARATOR)))) for members, carried in rows
        ]

    offers = sa.select(owner, *_inventory_columns()).where(backend.among(owner, altered))
    usage = sa.select(owner, class_id, used).where(backend.among(owner, same))
    return ProviderStates(
        providers,
        dict(iter(named)),
        backend.columns(connection, usage),
        altered,
        backend.columns(connection, offers),
        sets(tables.provider_traits, "trait_id"),
        sets(tables.provider_aggregates, "aggregate_id"),
    )


def _members(table: sa.Table, column: str) -> sa.Select[Any]:
    """Return a query for the members of each provider, as one text."""
    members = sa.func.aggregate_strings(sa.cast(table.c[column], sa.String), _SEPARATOR)
    provider = table.c.resource_provider_id
    return sa.select(provider.label("provider"), members.label("members")).group_by(provider)


def snapshot(connection: sa.Connection) -> Snapshot:
    """Return all providers, in a transaction that sees one state. They stream: read before that ends."""
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
    """Return the stamp of a provider as a number."""
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
        sa.cast(sa.cast(sa.literal_column(f"({CONTENT})"), sa.Text), sa.BigInteger),
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
    capacity, ratio = _capacity_and_ratio(total, reserved, allocation_ratio)
    return InventoryRow(class_id, capacity, min_unit, max_unit, step_size, used, total, reserved, ratio)


# Many hosts are alike.
@lru_cache(maxsize=4096)
def _capacity_and_ratio(total: int, reserved: int, allocation_ratio: float) -> tuple[int, int]:
    capacity = Inventory(total, reserved, allocation_ratio=allocation_ratio).capacity
    return capacity, round(min(allocation_ratio, LARGEST_RATIO) * MILLION)


def _pairs(connection: sa.Connection, table: sa.Table, column: str) -> Iterator[tuple[int, int]]:
    for row in connection.execute(sa.select(table.c.resource_provider_id, table.c[column])):
        yield row[0], row[1]


def statement(
    is_among: Callable[[sa.ColumnElement[int]], sa.ColumnElement[bool]],
) -> sa.CompoundSelect[Any]:
    """Return one statement for everything about some providers, so that each record is of one moment.

    `is_among` is the condition that an id is one of theirs.
    """
    none = sa.null()
    inventory = tables.inventories.c
    id_, uuid, generation, parent, root, revision, content = _provider_columns()
    members = (
        (2, tables.provider_traits, "trait_id"),
        (3, tables.provider_aggregates, "aggregate_id"),
    )
    return sa.union_all(
        sa.select(
            sa.literal(0), id_, uuid, generation, parent, root, revision, content, none, none,
            sa.cast(none, sa.Float),
        ).where(is_among(tables.providers.c.id)),
        sa.select(
            sa.literal(1), inventory.resource_provider_id, none, *_inventory_columns()
        ).where(is_among(inventory.resource_provider_id)),
        *(
            sa.select(
                sa.literal(kind),
                table.c.resource_provider_id,
                sa.func.aggregate_strings(sa.cast(table.c[column], sa.String), _SEPARATOR),
                *([none] * 8),
            )
            .where(is_among(table.c.resource_provider_id))
            .group_by(table.c.resource_provider_id)
            for kind, table, column in members
        ),
    )  # fmt: skip


def _assemble(rows: Iterable[Any]) -> list[ProviderRecord]:
    providers: list[ProviderRow] = []
    inventories: dict[int, list[InventoryRow]] = defaultdict(list)
    members: dict[tuple[int, int], frozenset[int]] = {}
    for kind, provider, text, *numbers in rows:
        if kind == 0:
            providers.append(ProviderRow(provider, text, *numbers[:5]))
        elif kind == 1:
            inventories[provider].append(_inventory_row(*numbers))
        else:
            members[kind, provider] = _ids_in(text)
    return [
        ProviderRecord(
            row,
            tuple(inventories.get(row.id, ())),
            members.get((2, row.id), _NOTHING),
            members.get((3, row.id), _NOTHING),
        )
        for row in providers
    ]


# Many providers have the same traits.
@lru_cache(maxsize=4096)
def _ids_in(text: str) -> frozenset[int]:
    return frozenset(map(int, text.split(_SEPARATOR)))
