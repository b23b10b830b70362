"""Statements that write a whole provider tree: a handful per tree instead of a handful per provider."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

import sqlalchemy as sa

from placement.storage import tables
from placement.storage.database import Executor, RowStatement, Transaction

_providers = tables.providers
_traits = tables.provider_traits


class NewProvider(NamedTuple):
    """A provider to insert; ids of parent and root, None for a root."""

    uuid: str
    name: str
    parent_id: int | None
    root_id: int | None
    generation: int = 0


def ids_below(transaction: Transaction, root_ids: Collection[int]) -> set[int]:
    """Return the ids of all providers of the trees."""
    statement = sa.select(_providers.c.id).where(_providers.c.root_provider_id.in_(sorted(root_ids)))
    return set(transaction.execute(statement).scalars())


_INSERT = RowStatement(
    """
    INSERT INTO resource_providers (uuid, name, generation, parent_provider_id, root_provider_id, cluster_id,
                                    created_at, revision)
    SELECT given.uuid, given.name, given.generation, given.parent_id, given.root_id, :cluster_id,
           :now, {stamp}
      FROM {rows} WHERE true
    ON CONFLICT DO NOTHING RETURNING uuid, id
    """,
    "given",
    {
        "uuid": "varchar",
        "name": "varchar",
        "parent_id": "integer",
        "root_id": "integer",
        "generation": "integer",
    },
    sa.bindparam("now", type_=sa.DateTime),
    sa.bindparam("cluster_id", type_=sa.Integer),
)
_ADD_TRAITS = RowStatement(
    """
    INSERT INTO resource_provider_traits (resource_provider_id, trait_id, created_at)
    SELECT given.provider_id, given.trait_id, :now FROM {rows}
    """,
    "given",
    {"provider_id": "integer", "trait_id": "integer"},
    sa.bindparam("now", type_=sa.DateTime),
)


def insert_providers(
    transaction: Transaction, rows: Sequence[NewProvider], cluster_id: int | None
) -> dict[str, int]:
    """Insert providers; return their ids by uuid. Providers with a taken name or uuid are left out."""
    if not rows:
        return {}
    found = _INSERT.run(
        transaction, rows, cluster_id=cluster_id, now=transaction.now, **transaction.stamp_parameters
    )
    ids = {row[0]: row[1] for row in found}
    roots = [ids[row.uuid] for row in rows if row.root_id is None and row.uuid in ids]
    if roots:
        transaction.execute(
            sa.update(_providers).where(_providers.c.id.in_(roots)).values(root_provider_id=_providers.c.id)
        )
    return ids


def traits_of(connection: Executor, provider_ids: Collection[int]) -> dict[int, set[int]]:
    """Return the trait ids of providers."""
    statement = sa.select(_traits.c.resource_provider_id, _traits.c.trait_id)
    found: dict[int, set[int]] = {}
    for row in connection.execute(statement.where(_traits.c.resource_provider_id.in_(sorted(provider_ids)))):
        found.setdefault(row[0], set()).add(row[1])
    return found


def change_traits(
    transaction: Transaction,
    added: Collection[tuple[int, int]],
    removed: Collection[tuple[int, int]],
) -> None:
    """Add and remove (provider id, trait id) pairs."""
    if removed:
        place = sa.tuple_(_traits.c.resource_provider_id, _traits.c.trait_id)
        transaction.execute(sa.delete(_traits).where(place.in_(sorted(removed))))
    if added:
        _ADD_TRAITS.run(transaction, sorted(added), now=transaction.now)


def allocated(connection: Executor, provider_ids: Collection[int]) -> dict[int, list[str]]:
    """Return the consumers that hold something of the providers, by provider."""
    table = tables.allocations
    statement = (
        sa.select(table.c.resource_provider_id, table.c.consumer_id)
        .where(table.c.resource_provider_id.in_(sorted(provider_ids)))
        .distinct()
        .order_by(table.c.resource_provider_id, table.c.consumer_id)
    )
    found: dict[int, list[str]] = {}
    for row in connection.execute(statement):
        found.setdefault(row[0], []).append(row[1])
    return found


class TreeMember(NamedTuple):
    """One provider of a tree for reading; `parent_id` None for the root."""

    id: int
    uuid: str
    name: str
    generation: int
    parent_id: int | None
    traits: list[str]


def members(connection: Executor, root_id: int) -> list[TreeMember]:
    """Return all providers of a tree with their traits, in order of ids."""
    statement = (
        sa.select(
            *_providers.c["id", "uuid", "name", "generation", "parent_provider_id"],
            tables.traits.c.name,
        )
        .select_from(_providers)
        .outerjoin(_traits, _traits.c.resource_provider_id == _providers.c.id)
        .outerjoin(tables.traits, tables.traits.c.id == _traits.c.trait_id)
        .where(_providers.c.root_provider_id == root_id)
        .order_by(_providers.c.id, tables.traits.c.name)
    )
    found: dict[int, TreeMember] = {}
    for row in connection.execute(statement):
        member = found.setdefault(row[0], TreeMember(row[0], row[1], row[2], row[3], row[4], []))
        if row[5] is not None:
            member.traits.append(row[5])
    return list(found.values())


def count_classes(connection: Executor, cluster_id: int) -> int:
    """Return how many resource classes there are in inventories that imports of a cluster made."""
    statement = (
        sa.select(sa.func.count(sa.distinct(tables.inventories.c.resource_class_id)))
        .join(tables.providers, tables.providers.c.id == tables.inventories.c.resource_provider_id)
        .where(tables.providers.c.cluster_id == cluster_id)
    )
    found: int = connection.execute(statement).scalar_one()
    return found
