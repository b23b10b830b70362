"""Amounts: what is used is what is allocated, of inventories that are there and have room for it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import os_resource_classes
import sqlalchemy as sa

from placement.storage import tables
from placement.storage.checks.invariant import Invariant, Repair
from placement.storage.database import Transaction
from placement.storage.statements import consumers, providers

_allocations, _inventories = tables.allocations, tables.inventories
_providers, _classes, _consumers = tables.providers, tables.resource_classes, tables.consumers
_held = (
    sa.select(
        _allocations.c.resource_provider_id,
        _allocations.c.resource_class_id,
        sa.func.sum(_allocations.c.used).label("amount"),
    )
    .group_by(_allocations.c.resource_provider_id, _allocations.c.resource_class_id)
    .subquery("held")
)
# A sum of big integers is a decimal on PostgreSQL.
_amount = sa.cast(sa.func.coalesce(_held.c.amount, 0), sa.BigInteger)
_capacity = (_inventories.c.total - _inventories.c.reserved) * _inventories.c.allocation_ratio
_of_inventories = (
    sa.select(
        _providers.c.id,
        _providers.c.uuid,
        _providers.c.name,
        _classes.c.name.label("kind"),
        _inventories.c.used,
        _inventories.c.total,
        _amount.label("amount"),
        sa.cast(sa.func.floor(_capacity), sa.BigInteger).label("capacity"),
    )
    .select_from(_inventories)
    .join(_providers, _providers.c.id == _inventories.c.resource_provider_id)
    .join(_classes, _classes.c.id == _inventories.c.resource_class_id)
    .outerjoin(
        _held,
        sa.and_(
            _held.c.resource_provider_id == _inventories.c.resource_provider_id,
            _held.c.resource_class_id == _inventories.c.resource_class_id,
        ),
    )
    .order_by(_providers.c.id, _classes.c.id)
)
_of_allocations = (
    sa.select(
        _allocations.c.consumer_id,
        _allocations.c.used,
        _providers.c.uuid,
        _providers.c.name,
        _classes.c.name.label("kind"),
    )
    .select_from(_allocations)
    .join(_providers, _providers.c.id == _allocations.c.resource_provider_id)
    .join(_classes, _classes.c.id == _allocations.c.resource_class_id)
    .order_by(_allocations.c.consumer_id, _allocations.c.id)
)
# The threads of a core of a node that was imported: nobody lowers those below what is held.
_is_core = sa.and_(_providers.c.cluster_id.is_not(None), _classes.c.name == os_resource_classes.PCPU)
_pod_of = sa.select(tables.pods.c.id).where(tables.pods.c.status["consumer"].as_string() == _consumers.c.uuid)


def _sum_up(transaction: Transaction, rows: Sequence[Any]) -> None:
    """With the providers locked, as for a claim, nobody changes what they hold."""
    ids = sorted({row.id for row in rows})
    providers.lock_and_stamp(transaction, (), ids)
    mine = sa.and_(
        _allocations.c.resource_provider_id == _inventories.c.resource_provider_id,
        _allocations.c.resource_class_id == _inventories.c.resource_class_id,
    )
    total = sa.select(sa.func.coalesce(sa.func.sum(_allocations.c.used), 0)).where(mine).scalar_subquery()
    chosen = _inventories.c.resource_provider_id.in_(ids)
    transaction.execute(sa.update(_inventories).where(chosen).values(used=total))


def _remove_idle(transaction: Transaction, rows: Sequence[Any]) -> None:
    consumers.delete_idle(transaction, consumers.lock(transaction, [row.uuid for row in rows]))


INVARIANTS = (
    Invariant(
        "used-is-what-is-allocated",
        _of_inventories.where(_inventories.c.used != _amount),
        "provider {uuid} ({name}): {used} {kind} are kept as used, its allocations are {amount}",
        repair=Repair("keep {amount} as used", _sum_up),
    ),
    Invariant(
        "cores-are-held-once",
        _of_inventories.where(_is_core, _amount > _inventories.c.total),
        "provider {uuid} ({name}): {amount} of its {total} CPUs are held, so one has two owners",
    ),
    Invariant(
        "capacity-suffices",
        _of_inventories.where(_amount > _capacity, ~sa.and_(_is_core, _amount > _inventories.c.total)),
        "provider {uuid} ({name}): {amount} {kind} are allocated, its capacity is {capacity}; "
        "so it is after an inventory was lowered",
        is_warning=True,
    ),
    Invariant(
        "allocations-have-an-inventory",
        _of_allocations.outerjoin(
            _inventories,
            sa.and_(
                _inventories.c.resource_provider_id == _allocations.c.resource_provider_id,
                _inventories.c.resource_class_id == _allocations.c.resource_class_id,
            ),
        ).where(_inventories.c.id.is_(None)),
        "consumer {consumer_id}: it holds {used} {kind} of provider {uuid} ({name}), which offers none",
    ),
    Invariant(
        "allocations-are-positive",
        _of_allocations.where(_allocations.c.used < 1),
        "consumer {consumer_id}: it holds {used} {kind} of provider {uuid} ({name})",
    ),
    Invariant(
        "consumers-hold-something",
        sa.select(_consumers.c.uuid)
        .where(
            ~sa.exists().where(_allocations.c.consumer_id == _consumers.c.uuid),
            ~sa.exists().where(tables.logical_cpus.c.consumer_id == _consumers.c.uuid),
            sa.or_(_consumers.c.cluster_id.is_(None), ~_pod_of.exists()),
        )
        .order_by(_consumers.c.uuid),
        "consumer {uuid}: it holds nothing, and is no pod",
        repair=Repair("delete its record", _remove_idle),
    ),
)
