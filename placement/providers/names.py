"""Use cases on resource classes and traits. Source: placement-api.md, "Resource classes", "Traits"."""

from __future__ import annotations

import datetime

import os_resource_classes

from placement.engine.domain.audit import Action, TargetKind
from placement.engine.domain.errors import BadRequest, Conflict, NotFound
from placement.providers.statements import names
from placement.providers.statements.names import KnownName
from placement.storage import tables
from placement.storage.database import Database, Executor, Transaction, run_in_transaction


class ResourceClasses:
    """A use case that creates, lists, renames and deletes resource classes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def listed(self) -> list[KnownName]:
        """Return all classes, standard ones first."""
        with self._database.read() as connection:
            return names.classes(connection)

    def get(self, name: str) -> KnownName:
        """Return one class. Raises NotFound."""
        with self._database.read() as connection:
            return _class(connection, name)

    def create(self, name: str) -> bool:
        """Make sure the class exists; return False if it did before."""
        return run_in_transaction(self._database, lambda transaction: names.create_class(transaction, name))

    def rename(self, name: str, new: str) -> None:
        """Give a custom class another name. Raises NotFound, BadRequest, Conflict."""

        def work(transaction: Transaction) -> None:
            entry = _class(transaction, name)
            if is_standard_class(name):
                raise BadRequest(f"Cannot update standard resource class {name}")
            if new == name:
                return
            if not names.rename_class(transaction, entry.id, new):
                raise Conflict(f"Resource class already exists: {new}")
            before, after = {"name": name}, {"name": new}
            transaction.record(Action.UPDATE, TargetKind.RESOURCE_CLASS, name, before=before, after=after)

        run_in_transaction(self._database, work)

    def delete(self, name: str) -> None:
        """Delete a custom class that no inventory uses. Raises NotFound, BadRequest, Conflict."""
        prefix = "Error in delete resource class: Cannot delete "

        def work(transaction: Transaction) -> None:
            entry = _class(transaction, name)
            if is_standard_class(name):
                raise BadRequest(f"{prefix}standard resource class {name}.")
            if not names.delete_class(transaction, entry.id):
                raise Conflict(f"{prefix}resource class {name}. Class is in use in inventory.")
            transaction.record(Action.DELETE, TargetKind.RESOURCE_CLASS, name)

        run_in_transaction(self._database, work)


def is_standard_class(name: str) -> bool:
    """Return whether the class is one that every service knows."""
    return not os_resource_classes.is_custom(name)


def _class(connection: Executor, name: str) -> KnownName:
    entry = names.find(connection, tables.resource_classes, name)
    if entry is None:
        raise NotFound(f"No such resource class {name}.")
    return entry


def _trait(connection: Executor, name: str) -> KnownName:
    entry = names.find(connection, tables.traits, name)
    if entry is None:
        raise NotFound(f"No such trait(s): {name}.")
    return entry


class Traits:
    """A use case that creates, lists and deletes traits."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def listed(
        self,
        only: frozenset[str] | None = None,
        prefix: str | None = None,
        associated: bool | None = None,
    ) -> list[KnownName]:
        """Return the traits of these names, with this prefix, that providers carry or do not."""
        with self._database.read() as connection:
            entries = names.traits(connection, associated=associated)
        return [
            entry
            for entry in entries
            if (only is None or entry.name in only) and (prefix is None or entry.name.startswith(prefix))
        ]

    def get(self, name: str) -> KnownName:
        """Return one trait. Raises NotFound."""
        with self._database.read() as connection:
            return _trait(connection, name)

    def create(self, name: str) -> tuple[bool, datetime.datetime]:
        """Make sure the trait exists; return whether it is new, and when it was created."""

        def work(transaction: Transaction) -> tuple[bool, datetime.datetime]:
            created = names.create(transaction, tables.traits, name)
            entry = names.find(transaction, tables.traits, name)
            return created, entry.created_at if entry else transaction.now

        return run_in_transaction(self._database, work)

    def delete(self, name: str) -> None:
        """Delete a custom trait that no provider carries. Raises NotFound, BadRequest, Conflict."""

        def work(transaction: Transaction) -> None:
            entry = _trait(transaction, name)
            if not name.startswith("CUSTOM_"):
                raise BadRequest(f"Cannot delete standard trait {name}.")
            if not names.delete_trait(transaction, entry.id):
                raise Conflict(f"The trait {name} is in use by a resource provider.")
            transaction.record(Action.DELETE, TargetKind.TRAIT, name)

        run_in_transaction(self._database, work)
