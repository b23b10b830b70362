"""The schema's life: upgrade, version, and the standard names every database holds."""

from __future__ import annotations

import warnings
from pathlib import Path

import alembic.command
import alembic.config
import alembic.migration
import alembic.script
import alembic.util
import os_resource_classes
import os_traits
import sqlalchemy as sa

from placement.domain.errors import BadRequest
from placement.storage import tables
from placement.storage.backends.types import Revision
from placement.storage.changes.change_log import NAMES_CHANGED, record_change
from placement.storage.database import Database

_PACKAGE = Path(__file__).resolve().parents[1]


def _migrations() -> Path:
    """The migrations beside the checkout, or inside an installed package."""
    installed = _PACKAGE / "migrations"
    return installed if installed.is_dir() else _PACKAGE.parent / "migrations"


def configuration(database: Database) -> alembic.config.Config:
    """Alembic's configuration for this database."""
    config = alembic.config.Config()
    config.set_main_option("script_location", str(_migrations()))
    config.attributes["database"] = database
    return config


def upgrade(database: Database, revision: str = "head") -> None:
    """Bring the schema to `revision` and insert missing standard names; repeating it changes nothing."""
    database.create()
    alembic.command.upgrade(configuration(database), revision)
    with database.write() as transaction:
        transaction.backend.forget_foreign_stamps(transaction.connection, _stamps(transaction.connection))
    sync_standard_names(database)


def _stamps(connection: sa.Connection) -> list[sa.Column[int]]:
    """The columns of stamps that there are: older schemas have fewer."""
    inspector, found = sa.inspect(connection), []
    for table in tables.metadata.tables.values():
        stamps = [column for column in table.c if isinstance(column.type, Revision)]
        if stamps and inspector.has_table(table.name):
            with warnings.catch_warnings():
                # The types of columns are not asked for, some of which SQLAlchemy does not know.
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
    """The schema revision of the database, None if it is empty."""
    if not database.exists():
        return None
    with database.read() as connection:
        return revision_of(connection)


def revision_of(connection: sa.Connection) -> str | None:
    """The schema revision of the database that a connection is to, None if it is empty."""
    return alembic.migration.MigrationContext.configure(connection).get_current_revision()


def revisions(database: Database) -> frozenset[str]:
    """Every schema revision this code knows."""
    script = alembic.script.ScriptDirectory.from_config(configuration(database))
    return frozenset(known.revision for known in script.walk_revisions())


def newest(database: Database) -> str | None:
    """The newest schema revision this code knows."""
    return alembic.script.ScriptDirectory.from_config(configuration(database)).get_current_head()


def is_newer(database: Database) -> bool:
    """Whether another release brought the schema to a version that this code does not know."""
    present = version(database)
    return present is not None and present not in revisions(database)


def obstacles(database: Database) -> list[str]:
    """What keeps this release from working with another one's schema: what it lacks, what is to be filled."""
    with database.read() as connection, warnings.catch_warnings():
        # The types of columns are not asked for, some of which SQLAlchemy does not know.
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
