"""Providers as the forest takes them: some of them as they are now, or all of one moment."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import starmap
from typing import Any, Protocol

import orjson
import sqlalchemy as sa

from placement.engine.domain.inventories import Inventory
from placement.engine.domain.portions import portions
from placement.engine.forest import providers as forest_providers
from placement.engine.forest.providers import NumberColumn
from placement.storage import tables
from placement.storage.tables import CONTENT
from placement.storage.union_query import UnionQuery

_AT_ONCE = 2000
# How many providers are read at once where all are: their inventories stay below the limit of a value.
_STREAM = 100_000
_SEPARATOR = ","
_NOTHING: frozenset[int] = frozenset()


class ColumnReader(Protocol):
    """The part of a backend (storage.backends) that reads very many rows."""

    @staticmethod
    def among(column: sa.ColumnElement[Any], values: Sequence[int] | Sequence[str]) -> sa.ColumnElement[bool]:
        """Return the condition that a column of ids or texts is one of any number of them."""
        ...

    def columns(self, connection: sa.Connection, statement: sa.Select[Any]) -> list[NumberColumn]:
        """Return the rows of a query by column: 64-bit integers, or floats where its column is a Float.

        All values are numbers, none is null.
        """
        ...


def read_providers(
    rows_of: Callable[[Sequence[int]], Sequence[Iterable[Any]]], ids: Sequence[int]
) -> list[forest_providers.ProviderRecord]:
    """Return the present state of some providers, each consistent in itself; missing ones are left out.

    `rows_of` returns the rows of each query of `everything_about` some ids.
    """
    return [record for some in portions(ids, _AT_ONCE) for record in _assemble(rows_of(some))]


def read_states(
    connection: sa.Connection,
    reader: ColumnReader,
    ids: Sequence[int],
    others: Callable[[Sequence[NumberColumn]], Sequence[int]],
    strangers: Sequence[int] = (),
) -> forest_providers.ProviderStates:
    """Return the present state of very many providers, in a transaction that sees one state.

    Missing ones are left out. The result has the uuids of `strangers`. `others` finds, from the columns of
    providers, the ids of providers that changed in more than their use.
    """
    id_, uuid = tables.providers.c.id, tables.providers.c.uuid
    owner, class_id, used = (
        tables.inventories.c[name] for name in ("resource_provider_id", "resource_class_id", "used")
    )
    providers = reader.columns(connection, _places().where(reader.among(id_, sorted(ids))))
    altered = sorted(others(providers))
    same = sorted(set(map(int, providers[0])).difference(altered))

    named: Iterable[Any] = ()
    if strangers:
        named = connection.execute(sa.select(id_, uuid).where(reader.among(id_, sorted(strangers))))

    def sets(table: sa.Table, column: str) -> list[tuple[frozenset[int], NumberColumn]]:
        if not altered:
            return []
        provider = table.c.resource_provider_id
        members = sa.select(provider.label("provider"), _joined(table.c[column]).label("members"))
        each = members.where(reader.among(provider, altered)).group_by(provider).subquery()
        carriers = _joined(each.c.provider)
        rows = connection.execute(sa.select(each.c.members, carriers).group_by(each.c.members))
        return [(_ids_in(members), _numbers_in(carried)) for members, carried in rows]

    offers = sa.select(owner, *_inventory_columns()).where(reader.among(owner, altered))
    usage = sa.select(owner, class_id, used).where(reader.among(owner, same))
    return forest_providers.ProviderStates(
        providers,
        dict(iter(named)),
        reader.columns(connection, usage),
        altered,
        reader.columns(connection, offers),
        sets(tables.provider_traits, "trait_id"),
        sets(tables.provider_aggregates, "aggregate_id"),
    )


def _numbers_in(text: str) -> NumberColumn:
    """Return the ids of a text that `_joined` made."""
    return array("q", map(int, text.split(_SEPARATOR)))


def _joined(ids: sa.ColumnElement[int]) -> sa.ColumnElement[str]:
    """Return the ids of a group as one text."""
    return sa.func.aggregate_strings(sa.cast(ids, sa.String), _SEPARATOR)


def snapshot(connection: sa.Connection, reader: ColumnReader) -> forest_providers.Snapshot:
    """Return all providers, in a transaction that sees one state. They stream: read before that ends."""
    providers = reader.columns(connection, _places())
    bounds = [(some[0], some[-1]) for some in portions(sorted(providers[0]), _STREAM)]

    def streamed(owner: sa.Column[int], *columns: sa.Column[Any]) -> Iterator[list[NumberColumn]]:
        for least, most in bounds:
            yield reader.columns(connection, sa.select(owner, *columns).where(owner.between(least, most)))

    def uuids() -> Iterator[tuple[NumberColumn, str]]:
        id_, uuid = tables.providers.c.id, tables.providers.c.uuid
        texts = sa.select(_joined(id_), sa.func.aggregate_strings(uuid, ""))
        for least, most in bounds:
            ids, joined = connection.execute(texts.where(id_.between(least, most))).one()
            yield _numbers_in(ids), joined

    traits, aggregates = tables.provider_traits.c, tables.provider_aggregates.c
    return forest_providers.Snapshot(
        providers,
        uuids(),
        streamed(tables.inventories.c.resource_provider_id, *_inventory_columns()),
        streamed(traits.resource_provider_id, traits.trait_id),
        streamed(aggregates.resource_provider_id, aggregates.aggregate_id),
    )


def _places() -> sa.Select[Any]:
    """Return the query for the columns of `ProviderStates.providers`."""
    id_, _, generation, parent, root, revision, content = _provider_columns()
    return sa.select(id_, generation, sa.func.coalesce(parent, 0), root, revision, content)


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
) -> forest_providers.InventoryRow:
    capacity, ratio = capacity_and_ratio(total, reserved, allocation_ratio)
    return forest_providers.InventoryRow(
        class_id, capacity, min_unit, max_unit, step_size, used, total, reserved, ratio
    )


# Many hosts are alike.
@lru_cache(maxsize=4096)
def capacity_and_ratio(total: int, reserved: int, allocation_ratio: float) -> tuple[int, int]:
    """Return the capacity of an inventory, and its ratio in millionths."""
    capacity = Inventory(total, reserved, allocation_ratio=allocation_ratio).capacity
    return capacity, round(min(allocation_ratio, forest_providers.LARGEST_RATIO) * forest_providers.MILLION)


def _assemble(parts: Sequence[Iterable[Any]]) -> list[forest_providers.ProviderRecord]:
    providers, offers, *members = parts
    inventories: dict[int, list[forest_providers.InventoryRow]] = defaultdict(list)
    for provider, *numbers in offers:
        inventories[provider].append(_inventory_row(*numbers))
    traits, aggregates = ({owner: _ids_in(text) for owner, text in rows} for rows in members)
    return [
        forest_providers.ProviderRecord(
            forest_providers.ProviderRow(*row),
            tuple(inventories.get(row[0], ())),
            traits.get(row[0], _NOTHING),
            aggregates.get(row[0], _NOTHING),
        )
        for row in providers
    ]


# Many providers have the same traits.
@lru_cache(maxsize=4096)
def _ids_in(text: str) -> frozenset[int]:
    return frozenset(map(int, text.split(_SEPARATOR)))


def changed(
    since: sa.ColumnElement[int],
    most_documents: sa.ColumnElement[int],
    array: Callable[..., Any],
    arrays: Callable[..., Any],
    ratio: sa.ColumnElement[Any],
) -> sa.Select[Any]:
    """Return the rows of a look (storage.feed) for providers with that stamp or a newer one.

    They have documents unless they are more than `most_documents`. A database has functions of its own for an
    `array` of columns and for the array of `arrays` of many rows, and an exact form of an allocation `ratio`.
    """
    provider, other = tables.providers.c, tables.providers.alias().c
    amounts = [ratio if each.name == "allocation_ratio" else each for each in _inventory_columns()]

    def all_of(table: sa.Table, members: sa.ColumnElement[Any]) -> sa.ColumnElement[Any]:
        return sa.select(members).where(table.c.resource_provider_id == provider.id).scalar_subquery()

    some = sa.select(other.id).where(other.revision >= since).limit(most_documents + 1)
    are_few = sa.select(sa.func.count()).select_from(some.subquery()).scalar_subquery() <= most_documents
    document = array(
        *_provider_columns(),
        all_of(tables.inventories, arrays(array(*amounts))),
        all_of(tables.provider_traits, _joined(tables.provider_traits.c.trait_id)),
        all_of(tables.provider_aggregates, _joined(tables.provider_aggregates.c.aggregate_id)),
    )
    return sa.select(
        sa.literal("changed"),
        provider.id,
        revision_number(),
        provider.root_provider_id,
        provider.cluster_id,
        sa.case((are_few, sa.cast(document, sa.Text))),
    ).where(provider.revision >= since)


def read_document(text: str) -> forest_providers.ProviderRecord:
    """Return the provider of a document."""
    *row, offers, traits, aggregates = orjson.loads(text)
    amounts = ((*integers, float(ratio)) for *integers, ratio in offers or ())
    return forest_providers.ProviderRecord(
        forest_providers.ProviderRow(*row),
        tuple(starmap(_inventory_row, amounts)),
        _ids_in(traits) if traits else _NOTHING,
        _ids_in(aggregates) if aggregates else _NOTHING,
    )


def everything_about(is_given: Callable[[sa.ColumnElement[int]], sa.ColumnElement[bool]]) -> UnionQuery:
    """Return the queries for some providers, their inventories, traits and aggregates.

    `is_given` is the condition that an id is one of theirs.
    """
    owner = tables.inventories.c.resource_provider_id
    pairs = ((tables.provider_traits, "trait_id"), (tables.provider_aggregates, "aggregate_id"))
    return UnionQuery(
        sa.select(*_provider_columns()).where(is_given(tables.providers.c.id)),
        sa.select(owner, *_inventory_columns()).where(is_given(owner)),
        *(
            sa.select(table.c.resource_provider_id, _joined(table.c[column]))
            .where(is_given(table.c.resource_provider_id))
            .group_by(table.c.resource_provider_id)
            for table, column in pairs
        ),
    )
