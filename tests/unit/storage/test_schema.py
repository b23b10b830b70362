"""Migrations run up and down on both databases and give the tables the code expects."""

from __future__ import annotations

import warnings

import alembic.autogenerate
import alembic.command
import alembic.migration
import pytest
import sqlalchemy as sa

from placement.storage import schema, tables
from placement.storage.database import Database
from tests.server import BACKENDS, database_url


@pytest.fixture(params=BACKENDS)
def empty(request):
    with database_url(request.param, migrated=False) as url:
        database = Database(url)
        yield database
        database.dispose()


def names(database: Database) -> set[str]:
    return set(sa.inspect(database.engine).get_table_names())


def test_upgrade_creates_every_table_and_is_idempotent(empty):
    assert schema.version(empty) is None
    schema.upgrade(empty)
    schema.upgrade(empty)
    assert schema.version(empty) == schema.newest(empty)
    assert set(tables.metadata.tables) <= names(empty)


def test_migrations_and_tables_do_not_differ(empty):
    schema.upgrade(empty)
    with empty.read() as connection:
        warnings.filterwarnings("ignore", "Did not recognize type 'xid8'")
        context = alembic.migration.MigrationContext.configure(connection, opts={"compare_type": False})
        assert alembic.autogenerate.compare_metadata(context, tables.metadata) == []


def test_downgrade_takes_everything_back(empty):
    schema.upgrade(empty)
    alembic.command.downgrade(schema.configuration(empty), "base")
    assert names(empty) <= {"alembic_version"}
    schema.upgrade(empty)
    assert schema.version(empty) == schema.newest(empty)


def test_standard_names_are_inserted_in_library_order_and_missing_ones_again(empty):
    schema.upgrade(empty)
    with empty.read() as connection:
        classes = connection.execute(sa.select(tables.resource_classes.c.name).order_by("id")).scalars().all()
        assert classes[:4] == ["VCPU", "MEMORY_MB", "DISK_GB", "PCI_DEVICE"]
    with empty.write() as transaction:
        transaction.execute(sa.delete(tables.traits).where(tables.traits.c.name == "COMPUTE_NODE"))
    schema.sync_standard_names(empty)
    with empty.read() as connection:
        assert connection.execute(sa.select(tables.traits.c.id).filter_by(name="COMPUTE_NODE")).first()


@pytest.mark.parametrize("empty", ["postgresql"], indirect=True)
def test_stamps_from_another_server_are_reset_by_upgrade(empty):
    schema.upgrade(empty)
    with empty.write() as transaction:
        values = {"uuid": "u", "name": "restored", "generation": 0}
        far = sa.cast(sa.literal("99999999999"), sa.Text).op("::")(sa.text("xid8"))
        transaction.execute(sa.insert(tables.providers).values(revision=far, **values))
    schema.upgrade(empty)
    with empty.read() as connection:
        ahead = connection.execute(
            sa.text("SELECT count(*) FROM resource_providers WHERE revision > pg_current_xact_id()")
        ).scalar_one()
    assert ahead == 0


def test_asking_for_the_version_again_keeps_nothing(database: Database):
    """The health check asks every two seconds, for as long as a process runs."""
    kept = database.engine._compiled_cache
    first = schema.version(database)
    size = len(kept)
    for _ in range(5):
        assert schema.version(database) == first
    assert len(kept) == size
