"""Names of resource classes, traits and aggregates, and their ids."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import os_resource_classes
import os_traits
import sqlalchemy as sa

from placement.engine.domain.audit import Action, TargetKind
from placement.storage import tables
from placement.storage.changes import NAMES_CHANGED, record_change
from placement.storage.database import Executor, Transaction
from placement.storage.failures import TryAgain
from placement.storage.history import History

STANDARD_CLASSES = frozenset(os_resource_classes.STANDARDS)
SHARING_TRAIT = os_traits.MISC_SHARES_VIA_AGGREGATE
CLOSING_TRAIT = os_traits.COMPUTE_STATUS_DISABLED
"""The trait of hosts to which nova sends no servers: a state, which no request asks for."""
# SQLite takes 250,000 parameters in a statement.
_AT_ONCE = 5000


@dataclass(frozen=True)
class Names:
    """All names of one moment, both ways."""

    class_ids: Mapping[str, int]
    trait_ids: Mapping[str, int]

    @cached_property
    def classes(self) -> Mapping[int, str]:
        """Return resource class names by id."""
        return {number: name for name, number in self.class_ids.items()}

    @cached_property
    def traits(self) -> Mapping[int, str]:
        """Return trait names by id."""
        return {number: name for name, number in self.trait_ids.items()}


def load(connection: sa.Connection) -> Names:
    """Return all names as they are now."""
    kinds = (tables.resource_classes, tables.traits)
    rows = (connection.execute(sa.select(table.c.name, table.c.id)) for table in kinds)
    return Names(*({row[0]: row[1] for row in found} for found in rows))


def ids_of(
    connection: Executor, table: sa.Table, names: Iterable[str], *, keep: bool = False, column: str = "name"
) -> dict[str, int]:
    """Return the ids of the names that exist; with `keep` they stay until the transaction ends."""
    found: dict[str, int] = {}
    wanted = sorted(set(names))
    # Slices: nearly always it is one class of a pod.
    for start in range(0, len(wanted), _AT_ONCE):
        some = wanted[start : start + _AT_ONCE]
        statement = sa.select(table.c[column], table.c.id).where(table.c[column].in_(some))
        if keep:
            statement = statement.with_for_update(read=True, key_share=True)
        found.update(connection.execute(statement).all())
    return found


def aggregate_ids(connection: Executor, uuids: Iterable[str]) -> dict[str, int]:
    """Return the ids of the aggregates that a provider has ever been in."""
    return ids_of(connection, tables.aggregates, uuids, column="uuid")


def insert_ignoring_known(
    transaction: Transaction, table: sa.Table, column: str, values: Iterable[str], **others: object
) -> list[str]:
    """Insert the values that are missing, and accept values that another transaction inserts meanwhile.

    `others` are further columns of new rows. Returns the values that this transaction inserted.
    """
    rows = [{column: value, "created_at": transaction.now, **others} for value in sorted(set(values))]
    if not rows:
        return []
    insert = transaction.insert_or_ignore(table).returning(table.c[column])
    return list(transaction.execute(insert, rows).scalars())


def create(transaction: Transaction, table: sa.Table, name: str, **others: object) -> bool:
    """Insert and record a class or trait with `others` as further columns; return False if it exists."""
    created = bool(insert_ignoring_known(transaction, table, "name", [name], **others))
    if created:
        kind = TargetKind.TRAIT if table is tables.traits else TargetKind.RESOURCE_CLASS
        transaction.record(Action.CREATE, kind, name)
        record_change(transaction, NAMES_CHANGED)
    return created


def class_ids(connection: Executor, wanted: Iterable[str]) -> dict[str, int]:
    """Return the ids of the resource classes that exist."""
    return ids_of(connection, tables.resource_classes, wanted)


def trait_ids(connection: Executor, wanted: Iterable[str]) -> dict[str, int]:
    """Return the ids of the traits that exist."""
    return ids_of(connection, tables.traits, wanted)


def class_names(connection: Executor, ids: Collection[int]) -> dict[int, str]:
    """Return the names of resource classes by id."""
    if not ids:
        return {}
    table = tables.resource_classes
    rows = connection.execute(sa.select(table.c.id, table.c.name).where(table.c.id.in_(sorted(ids))))
    return {row[0]: row[1] for row in rows}


class ClassIds:
    """Ids of resource classes for the hot path: standard classes never go, so they are asked for once."""

    def __init__(self, history: History) -> None:
        self._standard: dict[tuple[str, str], int] = {}
        history.forget_with(self.forget)

    def __call__(self, transaction: Transaction, wanted: Collection[str]) -> dict[str, int]:
        """Return the ids of the resource classes that exist."""
        server, standard = transaction.server, self._standard
        known = {name: standard[server, name] for name in wanted if (server, name) in standard}
        missing = set(wanted).difference(known)
        if not missing:
            return known
        found = ids_of(transaction, tables.resource_classes, missing)
        standard.update(((server, name), id_) for name, id_ in found.items() if name in STANDARD_CLASSES)
        return {**found, **known}

    def names(self, transaction: Transaction, ids: Collection[int]) -> dict[int, str]:
        """Return the names of resource classes by id."""
        server = transaction.server
        standard = {id_: name for (where, name), id_ in self._standard.items() if where == server}
        known = {id_: standard[id_] for id_ in ids if id_ in standard}
        found = class_names(transaction, [id_ for id_ in ids if id_ not in known])
        self._standard.update(
            ((server, name), id_) for id_, name in found.items() if name in STANDARD_CLASSES
        )
        return {**found, **known}

    def forget(self) -> None:
        """Forget all ids, so that they are asked for again."""
        # A new dictionary: threads that still write to the old one must not put old ids into this one.
        self._standard = {}


# Statements that list, create, rename and delete resource classes and traits.


_classes = tables.resource_classes
_traits = tables.traits
_OFFERED = sa.exists().where(tables.inventories.c.resource_class_id == _classes.c.id)
_HELD = sa.exists().where(tables.allocations.c.resource_class_id == _classes.c.id)
_USES_OF_CLASSES = (_OFFERED, _HELD)
_CARRIED = sa.exists().where(tables.provider_traits.c.trait_id == _traits.c.id)
_CATALOG_AT_ONCE, _TRAITS_AT_ONCE = 64, 256


class KnownName(NamedTuple):
    """A resource class or trait."""

    id: int
    name: str
    created_at: datetime.datetime


def _entries(table: sa.Table) -> sa.Select[*tuple[object, ...]]:
    changed = sa.func.coalesce(table.c.updated_at, table.c.created_at)
    return sa.select(table.c.id, table.c.name, changed).order_by(table.c.id)


def classes(connection: Executor) -> list[KnownName]:
    """Return all resource classes in creation order, which has the standard ones first."""
    return [KnownName(*row) for row in connection.execute(_entries(_classes))]


def traits(connection: Executor, *, associated: bool | None = None) -> list[KnownName]:
    """Return all traits, or only traits that some provider carries, or only the others."""
    statement = _entries(_traits)
    if associated is not None:
        statement = statement.where(_CARRIED if associated else ~_CARRIED)
    return [KnownName(*row) for row in connection.execute(statement)]


def find(connection: Executor, table: sa.Table, name: str) -> KnownName | None:
    """Return the class or trait of this name."""
    row = connection.execute(_entries(table).where(table.c.name == name)).first()
    return KnownName(*row) if row else None


def create_lasting(transaction: Transaction, table: sa.Table, name: str) -> bool:
    """Insert a class or trait that stays until it is deleted; return False if it exists.

    An existing one stays from now on, too. Raises TryAgain.
    """
    query = sa.select(table.c.id, table.c.made_by_import).where(table.c.name == name)
    row = transaction.execute(query).first()
    if row is None:
        if create(transaction, table, name):
            return True
        raise TryAgain(f"Another writer made {name} at the same moment.")
    if row.made_by_import:
        marked = sa.update(table).where(table.c.id == row.id)
        if not transaction.execute(marked.values(made_by_import=None)).rowcount:
            raise TryAgain(f"Another writer removed {name} at the same moment.")
    return False


def rename_class(transaction: Transaction, id_: int, name: str) -> bool:
    """Rename a class; False if the name is taken. Inventories follow, for they refer to the id."""
    if find(transaction, _classes, name) is not None:
        return False
    renamed = {"name": name, "updated_at": transaction.now, "made_by_import": None}
    transaction.execute(sa.update(_classes).where(_classes.c.id == id_).values(renamed))
    record_change(transaction, NAMES_CHANGED)
    return True


def delete_class(transaction: Transaction, id_: int) -> bool:
    """Delete a class; False if an inventory uses it."""
    return bool(_delete(transaction, _classes, [id_], *_USES_OF_CLASSES))


def remove_unused(transaction: Transaction) -> None:
    """Remove classes and traits that imports made and that nothing uses.

    It removes at most 64 classes, as many as a node may have, and 256 traits. What another transaction keeps
    or removes stays; the next removal looks at it again.
    """
    _remove_unused(transaction, _classes, TargetKind.RESOURCE_CLASS, _CATALOG_AT_ONCE, *_USES_OF_CLASSES)
    _remove_unused(transaction, _traits, TargetKind.TRAIT, _TRAITS_AT_ONCE, _CARRIED)


def _remove_unused(
    transaction: Transaction, table: sa.Table, kind: TargetKind, most: int, *uses: sa.ColumnElement[bool]
) -> None:
    idle = (
        sa.select(table.c.id)
        .where(table.c.made_by_import.is_(True), ~uses[0])
        .order_by(table.c.id)
        .limit(most)
        .with_for_update(skip_locked=True)
    )
    ids = list(transaction.execute(idle).scalars())
    # A use may have come before they were locked; the next statement sees it.
    for name in sorted(_delete(transaction, table, ids, *uses)) if ids else ():
        transaction.record(Action.DELETE, kind, name)


def delete_trait(transaction: Transaction, id_: int) -> bool:
    """Delete a trait; False if a provider carries it."""
    return bool(_delete(transaction, _traits, [id_], _CARRIED))


def _delete(
    transaction: Transaction, table: sa.Table, ids: Sequence[int], *uses: sa.ColumnElement[bool]
) -> Sequence[str]:
    """Delete what has no use; return the names that are gone."""
    unused = sa.delete(table).where(table.c.id.in_(ids), *(~use for use in uses))
    deleted: Sequence[str] = transaction.execute(unused.returning(table.c.name)).scalars().all()
    if deleted:
        record_change(transaction, NAMES_CHANGED)
    return deleted
