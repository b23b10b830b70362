"""Statements on allocations and on what is used of inventories. Callers lock the providers' rows first."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import sqlalchemy as sa

from placement.allocations.statements.consumers import ConsumerAttributes
from placement.engine.domain.request_scope import Initiator
from placement.storage import tables
from placement.storage.audit import described, document
from placement.storage.database import Database, Executor, RowStatement, Transaction, utcnow
from placement.storage.tables import CHANGE_FITS

_table = tables.allocations
_inventories = tables.inventories
_providers = tables.providers
_classes = tables.resource_classes
_consumers = tables.consumers
# The decision of a claim.
_APPLY = RowStatement(
    f"""
    UPDATE inventories SET used = used + wanted.delta
      FROM {{rows}}
     WHERE inventories.resource_provider_id = wanted.provider_id
       AND inventories.resource_class_id = wanted.class_id
       AND {CHANGE_FITS}
    RETURNING inventories.resource_provider_id, inventories.resource_class_id
    """,
    "wanted",
    {
        "provider_id": "integer",
        "class_id": "integer",
        "delta": "bigint",
        "least": "bigint",
        "most": "bigint",
        "divisor": "bigint",
    },
)
_insert = sa.insert(_table)


class HeldAllocation(NamedTuple):
    """One allocation by ids; `amount` in units of the class."""

    consumer_uuid: str
    provider_id: int
    class_id: int
    amount: int


def held_by(connection: Executor, consumer_uuids: Collection[str]) -> list[HeldAllocation]:
    """Return all that some consumers hold."""
    statement = sa.select(
        _table.c.consumer_id, _table.c.resource_provider_id, _table.c.resource_class_id, _table.c.used
    ).where(_table.c.consumer_id.in_(sorted(consumer_uuids)))
    return [HeldAllocation(*row) for row in connection.execute(statement)]


class UsageChange(NamedTuple):
    """A change of the use of one inventory: see storage.tables."""

    provider_id: int
    class_id: int
    delta: int
    least: int
    most: int
    divisor: int


def apply_changes(transaction: Transaction, changes: Sequence[UsageChange]) -> set[tuple[int, int]]:
    """Raise and lower `used` where units and capacity allow; return the allowed (provider, class) ids."""
    if not changes:
        return set()
    return {(row[0], row[1]) for row in _APPLY.run(transaction, changes)}


def replace(
    transaction: Transaction, consumers_holding: Collection[str], fresh: Sequence[HeldAllocation]
) -> None:
    """Delete what the consumers hold and insert the fresh allocations."""
    if consumers_holding:
        transaction.execute(sa.delete(_table).where(_table.c.consumer_id.in_(sorted(consumers_holding))))
    if fresh:
        rows = [
            {
                "consumer_id": held.consumer_uuid,
                "resource_provider_id": held.provider_id,
                "resource_class_id": held.class_id,
                "used": held.amount,
                "created_at": transaction.now,
            }
            for held in sorted(fresh)
        ]
        transaction.execute(_insert, rows)


def replace_on(
    transaction: Transaction,
    consumers_holding: Collection[str],
    provider_ids: Collection[int],
    fresh: Sequence[HeldAllocation],
) -> None:
    """Delete what the consumers hold of some providers and insert the fresh allocations."""
    if consumers_holding and provider_ids:
        mine = _table.c.consumer_id.in_(sorted(consumers_holding))
        there = _table.c.resource_provider_id.in_(sorted(provider_ids))
        transaction.execute(sa.delete(_table).where(mine, there))
    replace(transaction, (), fresh)


class ConsumerHolding(NamedTuple):
    """One allocation of a consumer, by names."""

    provider_uuid: str
    provider_generation: int
    class_name: str
    amount: int
    created_at: datetime.datetime


_named = (
    sa.select(
        _table.c.consumer_id,
        _providers.c.uuid,
        _providers.c.generation,
        _classes.c.name,
        _table.c.used,
        _table.c.created_at,
    )
    .select_from(_table)
    .join(_providers, _providers.c.id == _table.c.resource_provider_id)
    .join(_classes, _classes.c.id == _table.c.resource_class_id)
    .order_by(_providers.c.id, _classes.c.id)
)


def of_consumer(connection: Executor, consumer_uuid: str) -> list[ConsumerHolding]:
    """Return all that one consumer holds, in order of providers and classes."""
    return [
        ConsumerHolding(*row[1:])
        for row in connection.execute(_named.where(_table.c.consumer_id == consumer_uuid))
    ]


def named(connection: Executor, consumer_uuids: Collection[str]) -> list[tuple[str, ConsumerHolding]]:
    """Return all that some consumers hold, each with the consumer, in order of providers and classes."""
    if not consumer_uuids:
        return []
    rows = connection.execute(_named.where(_table.c.consumer_id.in_(sorted(consumer_uuids))))
    return [(row[0], ConsumerHolding(*row[1:])) for row in rows]


class ProviderHolding(NamedTuple):
    """One allocation on a provider, by names."""

    consumer_uuid: str
    consumer_generation: int
    class_name: str
    amount: int
    created_at: datetime.datetime


def on_provider(connection: Executor, provider_uuid: str) -> tuple[int, list[ProviderHolding]] | None:
    """Return a provider's generation and all allocations on it; None if there is no such provider."""
    statement = (
        sa.select(
            _providers.c.generation,
            _table.c.consumer_id,
            _consumers.c.generation,
            _classes.c.name,
            _table.c.used,
            _table.c.created_at,
        )
        .select_from(_providers)
        .outerjoin(_table, _table.c.resource_provider_id == _providers.c.id)
        .outerjoin(_consumers, _consumers.c.uuid == _table.c.consumer_id)
        .outerjoin(_classes, _classes.c.id == _table.c.resource_class_id)
        .where(_providers.c.uuid == provider_uuid)
        .order_by(_table.c.consumer_id, _classes.c.id)
    )
    rows = connection.execute(statement).all()
    if not rows:
        return None
    return rows[0][0], [ProviderHolding(*row[1:]) for row in rows if row[1] is not None]


class ProjectUse(NamedTuple):
    """The use of one class by the consumers of one type; type None if they have none."""

    consumer_type: str | None
    class_name: str
    amount: int


def used_by_project(connection: Executor, project_id: str, user_id: str | None = None) -> list[ProjectUse]:
    """Return what the consumers of a project (and user) use, by consumer type and class."""
    statement = _of_project(
        sa.select(tables.consumer_types.c.name, _classes.c.name, sa.func.sum(_table.c.used)),
        project_id,
        user_id,
    ).join(_classes, _classes.c.id == _table.c.resource_class_id)
    statement = statement.group_by(tables.consumer_types.c.name, _classes.c.name)
    return [ProjectUse(row[0], row[1], int(row[2])) for row in connection.execute(statement)]


def consumers_of_project(
    connection: Executor, project_id: str, user_id: str | None = None
) -> dict[str | None, int]:
    """Return how many consumers of each type a project (and user) has."""
    count = sa.func.count(sa.distinct(_consumers.c.id))
    statement = _of_project(sa.select(tables.consumer_types.c.name, count), project_id, user_id)
    statement = statement.group_by(tables.consumer_types.c.name)
    return {row[0]: row[1] for row in connection.execute(statement)}


def _of_project(
    statement: sa.Select[*tuple[object, ...]], project_id: str, user_id: str | None
) -> sa.Select[*tuple[object, ...]]:
    projects, users, types = tables.projects, tables.users, tables.consumer_types
    statement = (
        statement.select_from(_table)
        .join(_consumers, _consumers.c.uuid == _table.c.consumer_id)
        .join(projects, projects.c.id == _consumers.c.project_id)
        .outerjoin(types, types.c.id == _consumers.c.consumer_type_id)
        .where(projects.c.external_id == project_id)
    )
    if user_id is not None:
        statement = statement.join(users, users.c.id == _consumers.c.user_id)
        statement = statement.where(users.c.external_id == user_id)
    return statement


class Rise(NamedTuple):
    """A rise of the use of one inventory: see storage.tables."""

    provider_uuid: str
    class_name: str
    delta: int
    least: int
    most: int
    divisor: int


class InventoryAmount(NamedTuple):
    """The amount that one consumer gets from one inventory."""

    consumer_uuid: str
    provider_uuid: str
    class_name: str
    amount: int


def claim_at_once(
    database: Database,
    consumers: Sequence[ConsumerAttributes],
    rises: Sequence[Rise],
    amounts: Sequence[InventoryAmount],
    records: Sequence[Mapping[str, object]],
    requests: Sequence[str | None],
    initiators: Sequence[Initiator],
    steps: Mapping[str, int],
) -> bool:
    """Create the consumers with their allocations; return False, with nothing done, if any part fails.

    `records` are the documents that the records of the consumers show, `requests` what is kept of their
    requests, `initiators` the callers that claim for them, all in the order of the consumers. The generation
    of each provider that gives something rises by its step, by uuid.

    Returns False, too, where the database has no such statement. None of the sequences may be empty. Raises
    TryAgain, OutcomeUnknown, Unavailable.
    """
    columns = [list(column) for rows in (consumers, rises, amounts) for column in zip(*rows, strict=True)]
    texts = [document(record) for record in records] if database.audits else []
    initiator_columns = [list(column) for column in zip(*map(described, initiators), strict=True)]
    return database.backend.claim_at_once(
        database.single_write,
        (utcnow(), *columns, texts, *initiator_columns, list(requests), list(steps), list(steps.values())),
    )
