"""Statements on traits of providers and the aggregates they are in. Callers lock the provider's row first."""

from __future__ import annotations

import datetime
from collections.abc import Collection
from typing import Any, NamedTuple

import sqlalchemy as sa

from placement.storage import tables
from placement.storage.database import Executor, Transaction
from placement.storage.statements import names
from placement.storage.statements.given_rows import RowStatement

_providers = tables.providers
_traits = tables.traits
_aggregates = tables.aggregates
_provider_traits = tables.provider_traits
_provider_aggregates = tables.provider_aggregates


class Members(NamedTuple):
    """What a provider carries or is in, in order of ids, and when the newest of it was created."""

    generation: int
    members: list[str]
    newest: datetime.datetime | None


def traits_of(connection: Executor, uuid: str) -> Members | None:
    """The traits of a provider; None if there is no such provider."""
    return _members(connection, uuid, _provider_traits, "trait_id", _traits.c.name, _traits)


def aggregates_of(connection: Executor, uuid: str) -> Members | None:
    """The aggregates of a provider; None if there is no such provider."""
    return _members(connection, uuid, _provider_aggregates, "aggregate_id", _aggregates.c.uuid, _aggregates)


def _members(
    connection: Executor,
    uuid: str,
    pairs: sa.Table,
    column: str,
    shown: sa.Column[Any],
    named: sa.Table,
) -> Members | None:
    statement = (
        sa.select(_providers.c.generation, shown, named.c.created_at)
        .select_from(_providers)
        .outerjoin(pairs, pairs.c.resource_provider_id == _providers.c.id)
        .outerjoin(named, named.c.id == pairs.c[column])
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


class Replaced(NamedTuple):
    """Which members a provider had before, and whether they are others now."""

    before: list[str]
    changed: bool


def replace_traits(transaction: Transaction, provider_id: int, trait_ids: Collection[int]) -> Replaced:
    """Make these the provider's traits."""
    return _replace(transaction, _provider_traits, "trait_id", _traits.c.name, provider_id, trait_ids)


def replace_aggregates(transaction: Transaction, provider_id: int, uuids: Collection[str]) -> Replaced:
    """Make these the provider's aggregates, creating those never seen before."""
    names.insert_ignoring_known(transaction, _aggregates, "uuid", uuids)
    ids = names.aggregate_ids(transaction, uuids).values()
    return _replace(transaction, _provider_aggregates, "aggregate_id", _aggregates.c.uuid, provider_id, ids)


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
    """Put providers into an existing aggregate; those that were not there already."""
    if not provider_ids:
        return set()
    rows = [(id_,) for id_ in sorted(provider_ids)]
    return set(_ADD.run(transaction, rows, aggregate=uuid, now=transaction.now).scalars())


def _replace(
    transaction: Transaction,
    pairs: sa.Table,
    column: str,
    shown: sa.Column[Any],
    provider_id: int,
    ids: Collection[int],
) -> Replaced:
    mine = pairs.c.resource_provider_id == provider_id
    named = sa.select(pairs.c[column], shown).join(shown.table, shown.table.c.id == pairs.c[column])
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
