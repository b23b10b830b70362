"""Making one database hold what another one holds, in one transaction of each."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import islice

from placement.engine.domain.audit import Action, TargetKind
from placement.engine.domain.errors import BadRequest, Conflict
from placement.migrate import consumers, providers, side
from placement.migrate import incumbent as incumbent_tables
from placement.migrate.incumbent import IncumbentDatabase
from placement.migrate.side import Changes, Endpoint, Migration, MigrationReport, Progress
from placement.server import schema
from placement.storage import tables

_SHOWN = 10
_NAMED = 5


def move(migration: Migration, owner: tuple[str, str], *, may_remove: bool) -> MigrationReport:
    """Bring about in the target what the source holds, and compare both afterwards.

    `owner` is the project and user of consumers that have no record. What else the target holds stays if it
    belongs to a cluster of this service. Otherwise it is removed, but only if `may_remove`.

    Raises Conflict for what clusters here have already, and for what would have to be removed and may not.
    It is also raised if the two differ in the end.
    """
    source, target, report = migration.source, migration.target, migration.report
    wanted, present = providers.read(source), providers.read(target)
    providers.refuse_taken(wanted, present)
    gone = providers.only_in(present, wanted)
    ids = side.copy(migration)
    at = providers.write(migration, wanted, present, gone)
    known = consumers.copy(migration, ids)
    orphans = consumers.complete(migration, owner)
    left = consumers.only_in(target, known.union(orphans))
    if not may_remove and (gone or left):
        names = [present.providers[uuid].name for uuid in gone]
        raise Conflict(
            f"{_counted('providers', names)} and {_counted('consumers', left)} are in the target and not in "
            "the source; allow to remove them with --remove, or choose another target"
        )
    moved = {wanted.ids[uuid]: at[uuid] for uuid in wanted.ids}
    fresh = {at[uuid] for uuid in wanted.ids if uuid not in present.ids}
    _analyze(target)
    providers.copy(migration, ids, moved, fresh)
    providers.remove(migration, gone, present)
    consumers.remove(migration, left)
    _analyze(target)
    found = consumers.differences(migration, moved, known.union(orphans))
    _refuse("The two databases differ afterwards", list(islice(found, _SHOWN)))
    report.compared = {"providers": len(wanted.ids), "consumers": len(known) + len(orphans)}
    return report


def _counted(what: str, names: Sequence[str]) -> str:
    """Return how many things there are, with the first names."""
    shown = ", ".join([*names[:_NAMED], *(["..."] if len(names) > _NAMED else [])])
    return f"{len(names)} {what}{f' ({shown})' if names else ''}"


def _analyze(target: Endpoint) -> None:
    """Have the database know how full its tables are; statements on tables just filled would take ages."""
    if target.transaction is not None:
        target.connection.exec_driver_sql("ANALYZE")


def _refuse(sentence: str, findings: list[str]) -> None:
    if findings:
        raise Conflict("\n  ".join([f"{sentence}:", *findings]))


# Moving over from OpenStack Placement, and back: its database into ours, ours into its.


__all__ = ["Changes", "MigrationReport", "Owner", "Progress", "bring_in", "write_back"]

Owner = tuple[str, str]
"""Project and user of consumers that have no record."""


class _Rehearsed(Exception):
    """The end of a transaction that was only to show what it would do."""


def bring_in(
    incumbent: str, connection: str, owner: Owner, progress: Progress, *, may_remove: bool, rehearse: bool
) -> MigrationReport:
    """Make the database at `connection` hold what the incumbent's holds; with `rehearse` undo it at the end.

    Raises BadRequest for what is no database of the incumbent, Conflict for what cannot be moved,
    SchemaOutdated, Unavailable.
    """
    other = _opened(incumbent)
    schema.make_ready(connection)
    with schema.opened(connection) as database, other.reading() as there:
        source = Endpoint(there, incumbent_tables, digits=other.digits)
        faulty = "The source has rows that cannot be moved; correct or delete them there"
        _refuse(faulty, list(incumbent_tables.find(source)))
        report = MigrationReport()
        with suppress(_Rehearsed), database.write() as transaction:
            database.backend.take_time(transaction.connection)
            target = Endpoint(transaction.connection, tables, transaction)
            report = move(Migration(source, target, progress), owner, may_remove=may_remove)
            # Millions of rows may have come: one record tells of all of them.
            after = {
                what: asdict(changes) for what, changes in report.changes.items() if changes != Changes()
            }
            if after:
                transaction.record(Action.UPDATE, TargetKind.DATABASE, other.where, after=after)
            if rehearse:
                raise _Rehearsed
    return report


def write_back(
    connection: str, incumbent: str, owner: Owner, progress: Progress, *, may_remove: bool, rehearse: bool
) -> MigrationReport:
    """Make the incumbent's database hold what ours at `connection` holds; otherwise like `bring_in`."""
    other = _opened(incumbent)
    with schema.opened(connection) as database, database.snapshot() as here:
        database.backend.take_time(here)
        source = Endpoint(here, tables)
        report = MigrationReport()
        with suppress(_Rehearsed), other.writing() as there:
            target = Endpoint(there, incumbent_tables, digits=other.digits)
            report = move(Migration(source, target, progress), owner, may_remove=may_remove)
            if rehearse:
                raise _Rehearsed
    return report


def _opened(url: str) -> IncumbentDatabase:
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
