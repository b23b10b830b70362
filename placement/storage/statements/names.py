"""Names of resource classes, traits and aggregates, and their ids."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import os_resource_classes
import os_traits
import sqlalchemy as sa

from placement.domain.audit import Action, Kind
from placement.domain.portions import portions
from placement.storage import tables
from placement.storage.changes.change_log import NAMES_CHANGED, record_change
from placement.storage.changes.history import History
from placement.storage.database import Executor, Transaction

STANDARD_CLASSES = frozenset(os_resource_classes.STANDARDS)
SHARING_TRAIT = os_traits.MISC_SHARES_VIA_AGGREGATE
# SQLite takes 250,000 parameters in a statement.
_AT_ONCE = 5000


@dataclass(frozen=True)
class Names:
    """All names of one moment, both ways."""

    class_ids: Mapping[str, int]
    trait_ids: Mapping[str, int]

    @cached_property
    def classes(self) -> Mapping[int, str]:
        """Resource class names by id."""
        return {number: name for name, number in self.class_ids.items()}

    @cached_property
    def traits(self) -> Mapping[int, str]:
        """Trait names by id."""
        return {number: name for name, number in self.trait_ids.items()}


def load(connection: sa.Connection) -> Names:
    """All names as they are now."""
    return Names(_all(connection, tables.resource_classes), _all(connection, tables.traits))


def _all(connection: sa.Connection, table: sa.Table) -> dict[str, int]:
    return {row[0]: row[1] for row in connection.execute(sa.select(table.c.name, table.c.id))}


def ids_of(
    connection: Executor, table: sa.Table, names: Iterable[str], *, keep: bool = False
) -> dict[str, int]:
    """Return the ids of the names that exist; with `keep` none of them can be removed until the end."""
    found: dict[str, int] = {}
    for some in portions(sorted(set(names)), _AT_ONCE):
        statement = sa.select(table.c.name, table.c.id).where(table.c.name.in_(some))
        if keep:
            statement = statement.with_for_update(read=True, key_share=True)
        found.update((row[0], row[1]) for row in connection.execute(statement))
    return found


def aggregate_ids(connection: Executor, uuids: Iterable[str]) -> dict[str, int]:
    """The ids of those aggregates that a provider has ever been in."""
    table = tables.aggregates
    found: dict[str, int] = {}
    for some in portions(sorted(set(uuids)), _AT_ONCE):
        rows = connection.execute(sa.select(table.c.uuid, table.c.id).where(table.c.uuid.in_(some)))
        found.update((row[0], row[1]) for row in rows)
    return found


def insert_ignoring_known(
    transaction: Transaction, table: sa.Table, column: str, values: Iterable[str], **others: object
) -> list[str]:
    """Insert the values that are not there; those another transaction inserts meanwhile are fine.

    `others` are further columns of new rows. Returns the values that this transaction inserted.
    """
    rows = [{column: value, "created_at": transaction.now, **others} for value in sorted(set(values))]
    if not rows:
        return []
    insert = transaction.insert_or_ignore(table).returning(table.c[column])
    return list(transaction.execute(insert, rows).scalars())


def create(transaction: Transaction, table: sa.Table, name: str, **others: object) -> bool:
    """Insert a class or trait with `others` as further columns, and record it; False if it exists."""
    created = bool(insert_ignoring_known(transaction, table, "name", [name], **others))
    if created:
        kind = Kind.TRAIT if table is tables.traits else Kind.RESOURCE_CLASS
        transaction.record(Action.CREATE, kind, name)
        record_change(transaction, NAMES_CHANGED)
    return created


def class_ids(connection: Executor, wanted: Iterable[str]) -> dict[str, int]:
    """The ids of the resource classes that exist."""
    return ids_of(connection, tables.resource_classes, wanted)


def trait_ids(connection: Executor, wanted: Iterable[str]) -> dict[str, int]:
    """The ids of the traits that exist."""
    return ids_of(connection, tables.traits, wanted)


def class_names(connection: Executor, ids: Collection[int]) -> dict[int, str]:
    """The names of resource classes by id."""
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
        """The ids of the resource classes that exist."""
        server, standard = transaction.server, self._standard
        known = {name: standard[server, name] for name in wanted if (server, name) in standard}
        found = class_ids(transaction, [name for name in wanted if name not in known])
        standard.update(((server, name), id_) for name, id_ in found.items() if name in STANDARD_CLASSES)
        return {**found, **known}

    def names(self, transaction: Transaction, ids: Collection[int]) -> dict[int, str]:
        """The names of resource classes by id."""
        server = transaction.server
        standard = {id_: name for (where, name), id_ in self._standard.items() if where == server}
        known = {id_: standard[id_] for id_ in ids if id_ in standard}
        found = class_names(transaction, [id_ for id_ in ids if id_ not in known])
        self._standard.update(
            ((server, name), id_) for id_, name in found.items() if name in STANDARD_CLASSES
        )
        return {**found, **known}

    def forget(self) -> None:
        """Ask for all ids again."""
        # A new dictionary: threads that still write to the old one must not put old ids into this one.
        self._standard = {}
