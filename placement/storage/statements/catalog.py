"""Statements that list, create, rename and delete resource classes and traits."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from typing import NamedTuple

import sqlalchemy as sa

from placement.domain.audit import Action, Kind
from placement.storage import tables
from placement.storage.changes.change_log import NAMES_CHANGED, record_change
from placement.storage.database import Executor, Transaction
from placement.storage.failures import TryAgain
from placement.storage.statements.names import create

_classes = tables.resource_classes
_traits = tables.traits
_OFFERED = sa.exists().where(tables.inventories.c.resource_class_id == _classes.c.id)
_HELD = sa.exists().where(tables.allocations.c.resource_class_id == _classes.c.id)
_USES_OF_CLASSES = (_OFFERED, _HELD)
_AT_ONCE = 64


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
    """Insert a class that stays until it is deleted; False if it exists, which stays from now on, too.

    Raises TryAgain.
    """
    query = sa.select(_classes.c.id, _classes.c.made_by_import).where(_classes.c.name == name)
    row = transaction.execute(query).first()
    if row is None:
        if create(transaction, _classes, name):
            return True
        raise TryAgain(f"Another writer made resource class {name} at the same moment.")
    if row.made_by_import:
        marked = sa.update(_classes).where(_classes.c.id == row.id)
        if not transaction.execute(marked.values(made_by_import=None)).rowcount:
            raise TryAgain(f"Another writer removed resource class {name} at the same moment.")
    return False


def create_trait(transaction: Transaction, name: str) -> bool:
    """Insert a trait; False if it exists."""
    return create(transaction, _traits, name)


def rename_class(transaction: Transaction, id_: int, name: str) -> bool:
    """Rename a class; False if the name is taken. Inventories follow, for they refer to the id."""
    if find_class(transaction, name) is not None:
        return False
    transaction.execute(
        sa.update(_classes)
        .where(_classes.c.id == id_)
        .values(name=name, updated_at=transaction.now, made_by_import=None)
    )
    record_change(transaction, NAMES_CHANGED)
    return True


def delete_class(transaction: Transaction, id_: int) -> bool:
    """Delete a class; False if an inventory uses it."""
    return bool(_delete(transaction, _classes, [id_], *_USES_OF_CLASSES))


def remove_unused_classes(transaction: Transaction) -> None:
    """Remove at most 64 classes that imports made and no inventory uses, as many as a node may have.

    A class that another transaction keeps or removes stays; the next removal looks at it again.
    """
    idle = (
        sa.select(_classes.c.id)
        .where(_classes.c.made_by_import.is_(True), ~_OFFERED)
        .order_by(_classes.c.id)
        .limit(_AT_ONCE)
        .with_for_update(skip_locked=True)
    )
    ids = list(transaction.execute(idle).scalars())
    # An inventory may have come before they were locked; the next statement sees it.
    for name in sorted(_delete(transaction, _classes, ids, *_USES_OF_CLASSES)) if ids else ():
        transaction.record(Action.DELETE, Kind.RESOURCE_CLASS, name)


def delete_trait(transaction: Transaction, id_: int) -> bool:
    """Delete a trait; False if a provider carries it."""
    used = sa.exists().where(tables.provider_traits.c.trait_id == _traits.c.id)
    return bool(_delete(transaction, _traits, [id_], used))


def _delete(
    transaction: Transaction, table: sa.Table, ids: Sequence[int], *uses: sa.ColumnElement[bool]
) -> Sequence[str]:
    """Delete what has no use; the names that are gone."""
    unused = sa.delete(table).where(table.c.id.in_(ids), *(~use for use in uses))
    deleted: Sequence[str] = transaction.execute(unused.returning(table.c.name)).scalars().all()
    if deleted:
        record_change(transaction, NAMES_CHANGED)
    return deleted
