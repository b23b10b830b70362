"""The move from OpenStack Placement and back: one database is made equal to the other."""

from __future__ import annotations

from collections.abc import Sequence, Set
from contextlib import suppress
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path
from types import SimpleNamespace

from placement.engine.domain.audit import Action, TargetKind
from placement.engine.domain.errors import BadRequest, Conflict
from placement.migrate import (
    consumers,
    incumbent_tables,
    names,
    provider_contents,
    providers,
    refused_names,
    unmovable_rows,
    verification,
)
from placement.migrate.endpoint import Endpoint
from placement.migrate.incumbent import IncumbentDatabase
from placement.migrate.migration import Changes, Migration, MigrationReport, ProgressCallback
from placement.server import schema
from placement.storage import tables

__all__ = ["Changes", "MigrationReport", "Owner", "ProgressCallback", "bring_in", "write_back"]


_SHOWN = 10
_NAMED = 5
# The release whose tables have had what is read here since, kinds of consumers at last.
_OLDEST = "6.0 (Xena)"
Owner = tuple[str, str]
"""Project and user of consumers that have no record."""


def bring_in(
    incumbent: str,
    connection: str,
    owner: Owner,
    progress: ProgressCallback,
    *,
    may_remove: bool,
    rehearse: bool,
    skipped: Path | None = None,
) -> MigrationReport:
    """Make the database at `connection` equal to the incumbent's; with `rehearse` undo it at the end.

    Consumers that hold nothing are left out. With a file `skipped`, so are rows that refer to nothing, which
    are written there.

    Raises BadRequest for another kind of database, or a file that exists or cannot be written; Conflict for
    rows that cannot be moved, SchemaOutdated, Unavailable.
    """
    incumbent_database = _opened(incumbent)
    schema.make_ready(connection)
    with schema.opened(connection) as database, incumbent_database.reading() as there:
        source = Endpoint(there, incumbent_tables, digits=incumbent_database.digits)
        tables_of_source, skipped_rows = _movable(source, skipped)
        source = replace(source, tables=tables_of_source)
        tables_of_holders, idle = consumers.holding(source)
        source = replace(source, tables=tables_of_holders)
        report = MigrationReport()
        with suppress(_Rehearsed), database.write() as transaction:
            database.backend.take_time(transaction.connection)
            target = Endpoint(transaction.connection, tables, transaction)
            migration = Migration(source, target, progress)
            report = move(migration, owner, may_remove=may_remove, idle=idle)
            report.idle_consumers, report.skipped_rows = len(idle), skipped_rows
            # Millions of rows may have come: one record stands for all of them.
            after = {
                what: asdict(changes) for what, changes in report.changes.items() if changes != Changes()
            }
            if after:
                transaction.record(Action.UPDATE, TargetKind.DATABASE, incumbent_database.where, after=after)
            if rehearse:
                raise _Rehearsed
    return report


def write_back(
    connection: str,
    incumbent: str,
    owner: Owner,
    progress: ProgressCallback,
    *,
    may_remove: bool,
    rehearse: bool,
) -> MigrationReport:
    """Make the incumbent's database equal to ours at `connection`; otherwise like `bring_in`."""
    incumbent_database = _opened(incumbent)
    with schema.opened(connection) as database, database.snapshot() as here:
        database.backend.take_time(here)
        source = Endpoint(here, tables)
        report = MigrationReport()
        with suppress(_Rehearsed), incumbent_database.writing() as there:
            target = Endpoint(there, incumbent_tables, digits=incumbent_database.digits)
            report = move(Migration(source, target, progress), owner, may_remove=may_remove)
            if rehearse:
                raise _Rehearsed
    return report


def _movable(source: Endpoint, skipped: Path | None) -> tuple[SimpleNamespace, int]:
    """Return the tables of the source with the rows that can be moved, and how many others were skipped.

    Raises Conflict if there are others and no file `skipped`, or some without which nothing can be moved;
    BadRequest if the file is there already or cannot be written.
    """
    found = unmovable_rows.find(source)
    if skipped is None:
        faulty = (
            "The source has rows that cannot be moved; correct or delete them there, or leave them out with "
            "--skip-inconsistent FILE"
        )
        sql = ["SQL for the source:", *(f"  {each}" for each in found.statements)]
        _refuse(faulty, [*found.sentences, *sql] if found.kinds else [])
        return found.movable(source.tables), 0
    _refuse("The source has rows that cannot be left out; correct them there", found.final)
    try:
        with skipped.open("x", encoding="utf-8") as file:
            return found.movable(source.tables), found.write(source, file)
    except FileExistsError:
        raise BadRequest(f"--skip-inconsistent: {skipped}: exists already; name a new file") from None
    except OSError as error:
        raise BadRequest(f"--skip-inconsistent: {skipped}: {error.strerror}") from None


def move(
    migration: Migration, owner: Owner, *, may_remove: bool, idle: Set[str] = frozenset()
) -> MigrationReport:
    """Make the target equal to the source, and compare both afterwards.

    `owner` is the project and user of consumers that have no record. What else the target holds stays if it
    belongs to a cluster of this service. Otherwise it is removed, but only if `may_remove`, or if nothing is
    lost: `idle` consumers hold nothing in the source.

    Raises Conflict for names that the target cannot hold, rows that clusters here have already, and rows that
    may not be removed. It is also raised if the two differ in the end.
    """
    source, target, report = migration.source, migration.target, migration.report
    wanted_providers, present_providers = providers.read(source), providers.read(target)
    providers.refuse_taken(wanted_providers, present_providers)
    refused_names.refuse(source, target, wanted_providers)
    gone = providers.only_in(present_providers, wanted_providers)
    report.respelled["providers"] = len(wanted_providers.respelled)
    ids = names.copy(migration)
    at = providers.write(migration, wanted_providers, present_providers, gone)
    known = consumers.copy(migration, ids)
    known |= consumers.complete(migration, owner, known)
    left = consumers.only_in(target, known)
    lost = [uuid for uuid, holds in left.items() if holds and names.canonical(uuid) not in known | idle]
    if not may_remove and (gone or lost):
        gone_names = [present_providers.rows[uuid].name for uuid in gone]
        raise Conflict(
            f"{_counted('providers', gone_names)} and {_counted('consumers', lost)} are in the target and "
            "not in the source; allow to remove them with --remove, or choose another target"
        )
    moved = {wanted_providers.ids[uuid]: at[uuid] for uuid in wanted_providers.ids}
    fresh = {at[uuid] for uuid in wanted_providers.ids if uuid not in present_providers.ids}
    _analyze(target)
    provider_contents.copy(migration, ids, moved, fresh)
    providers.remove(migration, gone, present_providers)
    consumers.remove(migration, list(left))
    _analyze(target)
    found = verification.differences(migration, moved, known)
    _refuse("The two databases differ afterwards", list(islice(found, _SHOWN)))
    report.compared = {"providers": len(wanted_providers.ids), "consumers": len(known)}
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


class _Rehearsed(Exception):
    """The end of a transaction that is undone: it was a rehearsal."""


def _opened(url: str) -> IncumbentDatabase:
    incumbent_database = IncumbentDatabase(url)
    if incumbent_database.has(tables.clusters.name):
        raise BadRequest(
            f"this is a database of this service, not one of OpenStack Placement: {incumbent_database.where}"
        )
    missing = incumbent_database.missing(incumbent_tables.metadata)
    if missing:
        raise BadRequest(
            f"this is not a database of OpenStack Placement {_OLDEST} or newer, {', '.join(missing[:5])} is "
            "missing; bring it up to date with its own `placement-manage db sync`: "
            f"{incumbent_database.where}"
        )
    return incumbent_database
