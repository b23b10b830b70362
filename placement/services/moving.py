"""Moving over from OpenStack Placement, and back: its database into ours, ours into its."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict

from placement.domain.audit import Action, Kind
from placement.domain.errors import BadRequest
from placement.services import schema
from placement.storage import tables
from placement.storage.backends.incumbents import IncumbentDatabase
from placement.storage.moving import incumbent_tables
from placement.storage.moving.moving import move, refuse_faulty
from placement.storage.moving.side import Changes, Progress, Report, Side

__all__ = ["Changes", "Owner", "Progress", "Report", "bring_in", "write_back"]

Owner = tuple[str, str]
"""Project and user of consumers that have no record."""


class _Rehearsed(Exception):
    """Ends a transaction that was only to show what it would do."""


def bring_in(
    incumbent: str, connection: str, owner: Owner, progress: Progress, *, may_remove: bool, rehearse: bool
) -> Report:
    """Make the database at `connection` hold what the incumbent's holds; with `rehearse` undo it at the end.

    Raises BadRequest for what is no database of the incumbent, Conflict for what cannot be moved,
    SchemaOutdated, Unavailable.
    """
    other = _opened(incumbent)
    schema.make_ready(connection)
    with schema.opened(connection) as database, other.reading() as there:
        source = Side(there, incumbent_tables, digits=other.digits)
        refuse_faulty(source)
        report = Report()
        with suppress(_Rehearsed), database.write() as transaction:
            database.backend.take_time(transaction.connection)
            target = Side(transaction.connection, tables, transaction)
            report = move(source, target, owner, progress, may_remove=may_remove)
            # Millions of rows may have come: one record tells of all of them.
            after = {
                what: asdict(changes) for what, changes in report.changes.items() if changes != Changes()
            }
            if after:
                transaction.record(Action.UPDATE, Kind.DATABASE, other.where, after=after)
            if rehearse:
                raise _Rehearsed
    return report


def write_back(
    connection: str, incumbent: str, owner: Owner, progress: Progress, *, may_remove: bool, rehearse: bool
) -> Report:
    """Make the incumbent's database hold what ours at `connection` holds; otherwise like `bring_in`."""
    other = _opened(incumbent)
    with schema.opened(connection) as database, database.snapshot() as here:
        database.backend.take_time(here)
        source = Side(here, tables)
        report = Report()
        with suppress(_Rehearsed), other.writing() as there:
            target = Side(there, incumbent_tables, digits=other.digits)
            report = move(source, target, owner, progress, may_remove=may_remove)
            if rehearse:
                raise _Rehearsed
    return report


def _opened(url: str) -> IncumbentDatabase:
    """The incumbent's database, if it is one."""
    other = IncumbentDatabase(url)
    if other.has(tables.clusters.name):
        raise BadRequest(f"this is a database of this service, not one of OpenStack Placement: {other.where}")
    missing = other.missing(incumbent_tables.metadata)
    if missing:
        raise BadRequest(
            f"this is no database of OpenStack Placement 16, {', '.join(missing[:5])} is missing; "
            f"bring it up to date with its own `placement-manage db sync`: {other.where}"
        )
    return other
