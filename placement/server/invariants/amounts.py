"""Amounts: what is used is what is allocated, of inventories that exist and have the capacity.

A sum of big integers is a decimal on PostgreSQL, hence the casts. Ids are compared through COALESCE: they
are positive, and SQLite knows IS DISTINCT FROM only from 3.39 on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from placement.allocations.statements import consumers
from placement.providers.statements import providers
from placement.server.invariants.invariant import Invariant
from placement.storage import tables
from placement.storage.database import Transaction

_OF_INVENTORIES = """
    SELECT provider.id, provider.uuid, provider.name, class.name AS kind, used, total, amount, capacity
    FROM (
        SELECT inventories.resource_provider_id, inventories.resource_class_id, inventories.used, total,
            CAST(COALESCE(SUM(allocations.used), 0) AS BIGINT) AS amount,
            (total - reserved) * allocation_ratio AS exactly,
            CAST(FLOOR((total - reserved) * allocation_ratio) AS BIGINT) AS capacity
        FROM inventories LEFT JOIN allocations USING (resource_provider_id, resource_class_id)
        GROUP BY inventories.id
    ) AS inventory
    JOIN resource_providers AS provider ON provider.id = resource_provider_id
    JOIN resource_classes AS class ON class.id = resource_class_id
    WHERE {} ORDER BY provider.id, class.id
"""
_OF_ALLOCATIONS = """
    SELECT consumer_id, allocations.used, provider.uuid, provider.name, class.name AS kind
    FROM allocations
    JOIN resource_providers AS provider ON provider.id = allocations.resource_provider_id
    JOIN resource_classes AS class ON class.id = allocations.resource_class_id
    LEFT JOIN inventories ON inventories.resource_provider_id = allocations.resource_provider_id
        AND inventories.resource_class_id = allocations.resource_class_id
    WHERE {} ORDER BY consumer_id, allocations.id
"""
# The threads of a core of an imported node: their number is never lowered below what is held.
_OVER_CORES = "(provider.cluster_id IS NOT NULL AND class.name = 'PCPU' AND amount > total)"


def _sum_up(transaction: Transaction, rows: Sequence[Any]) -> None:
    """Set used amounts to the sums of allocations, with the providers locked as for a claim."""
    ids = sorted({row.id for row in rows})
    providers.lock_and_stamp(transaction, (), ids)
    held, inventories = tables.allocations, tables.inventories
    total = (
        sa.select(sa.func.coalesce(sa.func.sum(held.c.used), 0))
        .where(held.c.resource_provider_id == inventories.c.resource_provider_id)
        .where(held.c.resource_class_id == inventories.c.resource_class_id)
        .scalar_subquery()
    )
    chosen = inventories.c.resource_provider_id.in_(ids)
    transaction.execute(sa.update(inventories).where(chosen).values(used=total))


def _remove_idle(transaction: Transaction, rows: Sequence[Any]) -> None:
    consumers.delete_idle(transaction, consumers.lock(transaction, [row.uuid for row in rows]))


_pod_of = sa.select(tables.pods.c.id).where(
    tables.TextMember(tables.pods.c.status, "consumer") == tables.consumers.c.uuid
)

AMOUNTS = (
    Invariant(
        "used-is-what-is-allocated",
        sa.text(_OF_INVENTORIES.format("used <> amount")),
        "provider {uuid} ({name}): {used} {kind} are kept as used, its allocations are {amount}",
        remedy="keep {amount} as used",
        mend=_sum_up,
    ),
    Invariant(
        "cores-are-held-once",
        sa.text(_OF_INVENTORIES.format(_OVER_CORES)),
        "provider {uuid} ({name}): {amount} of its {total} CPUs are held, so one has two owners",
    ),
    Invariant(
        "capacity-suffices",
        sa.text(_OF_INVENTORIES.format(f"amount > exactly AND NOT {_OVER_CORES}")),
        "provider {uuid} ({name}): {amount} {kind} are allocated, its capacity is {capacity}; "
        "this happens when an inventory is lowered",
        is_warning=True,
    ),
    Invariant(
        "allocations-have-an-inventory",
        sa.text(_OF_ALLOCATIONS.format("inventories.id IS NULL")),
        "consumer {consumer_id}: it holds {used} {kind} of provider {uuid} ({name}), which offers none",
    ),
    Invariant(
        "allocations-are-positive",
        sa.text(_OF_ALLOCATIONS.format("allocations.used < 1")),
        "consumer {consumer_id}: it holds {used} {kind} of provider {uuid} ({name})",
    ),
    Invariant(
        "consumers-hold-something",
        sa.select(tables.consumers.c.uuid)
        .where(
            ~sa.exists().where(tables.allocations.c.consumer_id == tables.consumers.c.uuid),
            ~sa.exists().where(tables.logical_cpus.c.consumer_id == tables.consumers.c.uuid),
            sa.or_(tables.consumers.c.cluster_id.is_(None), ~_pod_of.exists()),
        )
        .order_by(tables.consumers.c.uuid),
        "consumer {uuid}: it holds nothing and is not a pod",
        remedy="delete its record",
        mend=_remove_idle,
    ),
)
