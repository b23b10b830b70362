"""The check of everything that must hold in a database, and the repair of what can be repaired."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from placement.engine.domain.audit import Action, TargetKind
from placement.providers.statements import providers
from placement.server import schema
from placement.server.invariants.amounts import AMOUNTS
from placement.server.invariants.clusters import CLUSTERS
from placement.server.invariants.invariant import Invariant, InvariantViolation
from placement.server.invariants.names import name_violations
from placement.server.invariants.pods import pod_violations
from placement.server.invariants.references import references
from placement.server.invariants.trees import TREES
from placement.server.online_migrations import MigrationOwner
from placement.storage.database import Database, Executor, Transaction, run_in_transaction

_MENDED_AT_ONCE = 1000


def check(connection: str, owner: MigrationOwner) -> Findings:
    """Return everything that does not hold in the database at `connection` at one moment; it may be in use.

    A repair would give consumers without a record to `owner`. Raises SchemaOutdated, Unavailable.
    """
    with schema.opened(connection) as database:
        schema.require(database)
        return check_database(database, owner)


def check_database(database: Database, owner: MigrationOwner) -> Findings:
    """Check a database that is known to have the current schema, as `check` does."""
    with database.snapshot() as connection:
        database.backend.take_time(connection)
        found = list(violations(connection, owner))
        is_well = all(one.is_warning for one in found)
        if is_well:
            found += pod_violations(connection)
    return Findings(found, is_well)


def repair(connection: str, owner: MigrationOwner) -> None:
    """Repair what can be, in one transaction, while others write. Raises SchemaOutdated, Unavailable."""

    def work(transaction: Transaction) -> None:
        database.backend.take_time(transaction.connection)
        # No other transaction moves trees meanwhile.
        providers.lock_trees(transaction, shared=False)
        mended = {}
        for each in _invariants(owner):
            rows = transaction.execute(each.query).all() if each.mend is not None else ()
            for start in range(0, len(rows), _MENDED_AT_ONCE):
                assert each.mend is not None
                each.mend(transaction, rows[start : start + _MENDED_AT_ONCE])
            if rows:
                mended[each.name] = len(rows)
        if mended:
            transaction.record(Action.UPDATE, TargetKind.DATABASE, "db check --repair", after=mended)

    with schema.opened(connection) as database:
        schema.require(database)
        run_in_transaction(database, work)


def _invariants(owner: MigrationOwner) -> list[Invariant]:
    """Return all invariants that queries check, in the order in which they are mended.

    References come first: they decide what the others can see.
    """
    return [*references(owner), *TREES, *CLUSTERS, *AMOUNTS]


def violations(connection: Executor, owner: MigrationOwner) -> Iterator[InvariantViolation]:
    """Yield what breaks the invariants in a connection that sees one state, in the order of each query."""
    for each in _invariants(owner):
        for row in connection.execute(each.query):
            sentence, remedy = (text.format_map(row._asdict()) for text in (each.sentence, each.remedy))
            yield InvariantViolation(each.name, each.is_warning, sentence, remedy)
    yield from name_violations(connection)


class Findings(NamedTuple):
    """The violations, and whether the pods of nodes were compared, for which the rest must be well."""

    violations: list[InvariantViolation]
    are_pods_compared: bool

    @property
    def errors(self) -> list[InvariantViolation]:
        """Return the violations that cannot come about in ordinary use."""
        return [one for one in self.violations if not one.is_warning]
