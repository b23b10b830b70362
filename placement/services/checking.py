"""Whether everything that must hold of a database does, and putting right what can be."""

from __future__ import annotations

from typing import NamedTuple

from placement.domain.audit import Action, Kind
from placement.services import schema
from placement.services.clusters import node_check
from placement.services.online_migrations import Owner
from placement.services.transactions import attempt
from placement.storage.checks import everything
from placement.storage.checks.invariant import Violation
from placement.storage.database import Database, Transaction

__all__ = ["Findings", "Violation", "check", "check_database", "repair"]


class Findings(NamedTuple):
    """What was found, and whether the pods of nodes were compared, for which the rest must be well."""

    violations: list[Violation]
    are_pods_compared: bool

    @property
    def errors(self) -> list[Violation]:
        """What cannot come about in ordinary use."""
        return [one for one in self.violations if not one.is_warning]


def check(connection: str, owner: Owner) -> Findings:
    """Everything that does not hold of the database at `connection`, all of one moment; it may be in use.

    `owner` is who consumers without a record would be given to. Raises SchemaOutdated, Unavailable.
    """
    with schema.opened(connection) as database:
        schema.require(database)
        return check_database(database, owner)


def check_database(database: Database, owner: Owner) -> Findings:
    """The same for a database whose schema is known to be current."""
    with database.snapshot() as connection:
        database.backend.take_time(connection)
        found = list(everything.violations(connection, owner.project_id, owner.user_id))
        is_well = all(one.is_warning for one in found)
        if is_well:
            found += node_check.violations(connection)
    return Findings(found, is_well)


def repair(connection: str, owner: Owner) -> None:
    """Put right what can be, in one transaction, while others write. Raises SchemaOutdated, Unavailable."""

    def work(transaction: Transaction) -> None:
        database.backend.take_time(transaction.connection)
        mended = everything.mend(transaction, owner.project_id, owner.user_id)
        if mended:
            transaction.record(Action.UPDATE, Kind.DATABASE, "db check --repair", after=mended)

    with schema.opened(connection) as database:
        schema.require(database)
        attempt(database, work)
