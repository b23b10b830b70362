"""The schema's life: upgrade, version, and the standard names every database holds."""

from __future__ import annotations

import logging
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import alembic.command
import alembic.config
import alembic.script
import alembic.util
import os_resource_classes
import os_traits
import sqlalchemy as sa

from placement.engine.domain.errors import BadRequest, Unavailable
from placement.storage import tables
from placement.storage.changes import NAMES_CHANGED, record_change
from placement.storage.database import Attempts, Database
from placement.storage.failures import TryAgain, Unreachable, words_of
from placement.storage.tables import Revision

LOG = logging.getLogger(__name__)
_versions = sa.table("alembic_version", sa.column("version_num", sa.String))
_PACKAGE = Path(__file__).resolve().parents[1]
# An upgrade goes on for so long although writers of the previous release are in its way.
_PATIENCE_SECONDS = 300.0
_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.05, 2.0


def configuration(database: Database) -> alembic.config.Config:
    """Return Alembic's configuration for this database."""
    config = alembic.config.Config()
    # The migrations are inside an installed package, or beside it in a checkout.
    installed = _PACKAGE / "migrations"
    migrations = installed if installed.is_dir() else _PACKAGE.parent / "migrations"
    config.set_main_option("script_location", str(migrations))
    config.attributes["database"] = database
    return config


def upgrade(database: Database, revision: str = "head", tell: Callable[[str], object] = LOG.info) -> None:
    """Bring the schema to `revision` and insert missing standard names; repeating it changes nothing.

    Each migration is a transaction of its own, begun again if writers of the previous release are in its way;
    `tell` takes a line for each, and one for the whole of a new schema. Raises Unavailable if they are there
    all of the time; what took effect until then stays.
    """
    database.create()
    config = configuration(database)
    until = time.monotonic() + _PATIENCE_SECONDS
    script = alembic.script.ScriptDirectory.from_config(config)
    present = version(database)
    missing = script.iterate_revisions(revision, present or "base")
    steps = [each.revision for each in reversed(list(missing))]
    for number, step in enumerate(steps):
        migrate = partial(alembic.command.upgrade, config, step)
        _persist(f"migration {step}", migrate, until, tell, steps[number:])
        if present is not None:
            tell(f"migration {step} took effect")
    if present is None and steps:
        tell(f"made the schema, version {steps[-1]}")
    _persist("resetting foreign stamps", lambda: _forget_foreign_stamps(database), until, tell, ())
    _persist("inserting standard names", lambda: sync_standard_names(database), until, tell, ())


def _persist(
    what: str,
    work: Callable[[], object],
    until: float,
    tell: Callable[[str], object],
    waiting: Sequence[str],
) -> None:
    """Do a transaction of the upgrade, again `until` that moment while other writers are in its way.

    Raises Unavailable, which names the migrations that are still `waiting`.
    """
    # The pauses of each begin short: that others were long in the way of the one before says nothing.
    attempts = Attempts(None, until - time.monotonic(), _FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS)
    while True:
        try:
            work()
            return
        except Unreachable:
            raise
        except TryAgain as error:
            if not attempts.may_go_on():
                left = (
                    f"Not done: migrations {', '.join(waiting)}."
                    if waiting
                    else "All migrations took effect."
                )
                raise Unavailable(
                    f"Other writers blocked {what} for {_PATIENCE_SECONDS:g} s. {left} "
                    "Earlier steps stay; run `placement db upgrade` again."
                ) from error.__cause__
            tell(f"{what} starts again: {words_of(error)}")
        attempts.pause()


def _forget_foreign_stamps(database: Database) -> None:
    with database.write() as transaction:
        transaction.backend.forget_foreign_stamps(transaction.connection, _stamps(transaction.connection))


def _stamps(connection: sa.Connection) -> list[sa.Column[int]]:
    """Return the columns of stamps that exist: older schemas have fewer."""
    inspector, found = sa.inspect(connection), []
    for table in tables.metadata.tables.values():
        stamps = [column for column in table.c if isinstance(column.type, Revision)]
        if stamps and inspector.has_table(table.name):
            with warnings.catch_warnings():
                # SQLAlchemy warns of types of columns that it does not know; they are not used here.
                warnings.simplefilter("ignore", sa.exc.SAWarning)
                present = {column["name"] for column in inspector.get_columns(table.name)}
            found += [column for column in stamps if column.name in present]
    return found


def stamp(database: Database, revision: str) -> None:
    """Record a revision without running migrations. Raises BadRequest for one that does not exist."""
    database.create()
    try:
        alembic.command.stamp(configuration(database), revision)
    except alembic.util.CommandError as error:
        raise BadRequest(str(error)) from None


def version(database: Database) -> str | None:
    """Return the schema revision of the database, None if it is empty."""
    if not database.backend.exists():
        return None
    with database.read() as connection:
        return revision_of(connection)


def revision_of(connection: sa.Connection) -> str | None:
    """Return the schema revision of the database that a connection is to, None if it is empty."""
    # Alembic would make a table each time, and each stays with its statement in SQLAlchemy's cache.
    if not sa.inspect(connection).has_table(_versions.name):
        return None
    return connection.scalar(sa.select(_versions.c.version_num))


def revisions(database: Database) -> frozenset[str]:
    """Return every schema revision that this code knows."""
    script = alembic.script.ScriptDirectory.from_config(configuration(database))
    return frozenset(known.revision for known in script.walk_revisions())


def newest(database: Database) -> str | None:
    """Return the newest schema revision that this code knows."""
    return alembic.script.ScriptDirectory.from_config(configuration(database)).get_current_head()


def is_newer(database: Database) -> bool:
    """Return whether another release brought the schema to a version that this code does not know."""
    present = version(database)
    return present is not None and present not in revisions(database)


def obstacles(database: Database) -> list[str]:
    """Return the obstacles in the schema of another release: missing parts, and columns without default."""
    with database.read() as connection, warnings.catch_warnings():
        # SQLAlchemy warns of types of columns that it does not know; they are not used here.
        warnings.simplefilter("ignore", sa.exc.SAWarning)
        inspector = sa.inspect(connection)
        present = set(inspector.get_table_names())
        found = [f"table {name} is not there" for name in sorted(tables.metadata.tables.keys() - present)]
        for name in sorted(tables.metadata.tables.keys() & present):
            known = tables.metadata.tables[name].columns.keys()
            columns = {column["name"]: column for column in inspector.get_columns(name)}
            found += [f"{name} has no column {missing}" for missing in known if missing not in columns]
            found += [
                f"{name} has a column {other} that has to be given"
                for other, column in columns.items()
                if other not in known and not column["nullable"] and column["default"] is None
            ]
    return found


def sync_standard_names(database: Database) -> None:
    """Insert the standard resource classes and traits that are missing; none is ever removed."""
    with database.write() as transaction:
        for table, names in (
            (tables.resource_classes, os_resource_classes.STANDARDS),
            (tables.traits, sorted(os_traits.get_traits())),
        ):
            present = set(transaction.execute(sa.select(table.c.name)).scalars())
            missing = [name for name in names if name not in present]
            if not missing:
                continue
            transaction.execute(
                sa.insert(table), [{"name": name, "created_at": transaction.now} for name in missing]
            )
            record_change(transaction, NAMES_CHANGED)
