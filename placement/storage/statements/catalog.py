"""Statements that list, create, rename and delete resource classes and traits."""

from __future__ import annotations

import datetime
from typing import NamedTuple

import sqlalchemy as sa

from placement.storage import tables
from placement.storage.changes.change_log import NAMES_CHANGED, record_change
from placement.storage.database import Executor, Transaction
from placement.storage.statements.names import create

_classes = tables.resource_classes
_traits = tables.traits


class KnownName(NamedTuple):
    """A resource class or trait."""

    id: int
    name: str
    created_at: datetime.datetime


def _entries(table: sa.Table) -> sa.Select[*tuple[object, ...]]:
    changed = sa.func.coalesce(table.c.updated_at, table.c.created_at)
    return sa.select(table.c.id, table.c.name, changed).order_by(table.c.id)


def classes(connection: Executor) -> list[KnownName]:
    """All resource classes in creation order, which has the standard ones first."""
    return [KnownName(*row) for row in connection.execute(_entries(_classes))]


def traits(connection: Executor, *, associated: bool | None = None) -> list[KnownName]:
    """All traits, or only those some provider carries, or only those none does."""
    statement = _entries(_traits)
    if associated is not None:
        carried = sa.exists().where(tables.provider_traits.c.trait_id == _traits.c.id)
        statement = statement.where(carried if associated else ~carried)
    return [KnownName(*row) for row in connection.execute(statement)]


def _find(connection: Executor, table: sa.Table, name: str) -> KnownName | None:
    row = connection.execute(_entries(table).where(table.c.name == name)).first()
    return KnownName(*row) if row else None


def find_class(connection: Executor, name: str) -> KnownName | None:
    """The class of this name."""
    return _find(connection, _classes, name)


def find_trait(connection: Executor, name: str) -> KnownName | None:
    """The trait of this name."""
    return _find(connection, _traits, name)


def create_class(transaction: Transaction, name: str) -> bool:
    """Insert a class; False if it exists."""
    return create(transaction, _classes, name)


def create_trait(transaction: Transaction, name: str) -> bool:
    """Insert a trait; False if it exists."""
    return create(transaction, _traits, name)


def rename_class(transaction: Transaction, id_: int, name: str) -> bool:
    """Rename a class; False if the name is taken. Inventories follow, for they refer to the id."""
    if find_class(transaction, name) is not None:
        return False
    transaction.execute(
        sa.update(_classes).where(_classes.c.id == id_).values(name=name, updated_at=transaction.now)
    )
    record_change(transaction, NAMES_CHANGED)
    return True


def delete_class(transaction: Transaction, id_: int) -> bool:
    """Delete a class; False if an inventory uses it."""
    used = sa.exists().where(tables.inventories.c.resource_class_id == _classes.c.id)
    return _delete(transaction, _classes, id_, used)


def delete_trait(transaction: Transaction, id_: int) -> bool:
    """Delete a trait; False if a provider carries it."""
    used = sa.exists().where(tables.provider_traits.c.trait_id == _traits.c.id)
    return _delete(transaction, _traits, id_, used)


def _delete(transaction: Transaction, table: sa.Table, id_: int, used: sa.ColumnElement[bool]) -> bool:
    deleted = transaction.execute(sa.delete(table).where(table.c.id == id_, ~used)).rowcount
    if deleted:
        record_change(transaction, NAMES_CHANGED)
    return bool(deleted)
