"""Migrations run up and down on both databases and only add; they give the tables the code expects."""

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import alembic.autogenerate
import alembic.command
import alembic.migration
import alembic.script
import pytest
import sqlalchemy as sa

from placement.server import schema as life
from placement.server.schema import SchemaOutdated
from placement.storage import schema, tables
from placement.storage.database import Database
from tests.server import BACKENDS, database_url

on_postgresql = pytest.mark.parametrize("empty", ["postgresql"], indirect=True)
XID8 = pytest.mark.filterwarnings("ignore:Did not recognize type 'xid8'")


@pytest.fixture(params=BACKENDS)
def empty(request: pytest.FixtureRequest) -> Iterator[Database]:
    with database_url(request.param, migrated=False) as url:
        database = Database(url)
        yield database
        database.dispose()


@XID8
def test_upgrades_give_the_tables_of_the_code_and_downgrades_take_them_back(empty: Database):
    def names() -> set[str]:
        return set(sa.inspect(empty.engine).get_table_names())

    assert schema.version(empty) is None
    for _ in range(2):
        schema.upgrade(empty)
    assert schema.version(empty) == schema.newest(empty)
    assert set(tables.metadata.tables) <= names()
    with empty.read() as connection:
        context = alembic.migration.MigrationContext.configure(connection, opts={"compare_type": False})
        assert alembic.autogenerate.compare_metadata(context, tables.metadata) == []
    alembic.command.downgrade(schema.configuration(empty), "base")
    assert names() <= {"alembic_version"}
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


@on_postgresql
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


Shape = tuple[dict[tuple[str, str], dict[str, Any]], set[tuple[str, str, tuple[str, ...]]]]


def shape(bind: sa.Engine | sa.Connection) -> Shape:
    """What statements of a release depend on: columns by table and name, and what they have to heed."""
    inspector = sa.inspect(bind)
    tables = inspector.get_table_names()
    columns = {(table, each["name"]): dict(each) for table in tables for each in inspector.get_columns(table)}
    unique = {
        ("unique", table, tuple(each["column_names"]))
        for table in tables
        for each in inspector.get_unique_constraints(table)
    }
    references = {
        ("a reference", table, tuple(each["constrained_columns"]))
        for table in tables
        for each in inspector.get_foreign_keys(table)
    }
    return columns, unique | references


def narrowed(before: Shape, after: Shape) -> list[str]:
    """What a release that knows only `before` cannot do any more."""
    tables = {table for table, _ in before[0]}
    found = [f"{'.'.join(name)} is gone" for name in before[0].keys() - after[0].keys()]
    for name, column in after[0].items():
        former = before[0].get(name)
        if former is None and name[0] in tables and not column["nullable"] and column["default"] is None:
            found.append(f"{'.'.join(name)} has to be given")
        if former is not None and former["nullable"] and not column["nullable"]:
            found.append(f"{'.'.join(name)} may not be missing any more")
        if former is not None and str(former["type"]) != str(column["type"]):
            found.append(f"{'.'.join(name)} is of another type")
    new = after[1] - before[1]
    return found + [f"{table}.{columns} is {kind} now" for kind, table, columns in new if table in tables]


@XID8
def test_each_migration_only_adds(empty: Database):
    script = alembic.script.ScriptDirectory.from_config(schema.configuration(empty))
    revisions = [known.revision for known in reversed(list(script.walk_revisions()))]
    assert len(revisions) >= 3
    for before, after in pairwise(revisions):
        schema.upgrade(empty, before)
        old = shape(empty.engine)
        schema.upgrade(empty, after)
        assert narrowed(old, shape(empty.engine)) == [], after


@on_postgresql
@XID8
def test_what_takes_away_is_noticed(empty: Database):
    schema.upgrade(empty)
    before = shape(empty.engine)
    for statement, said in (
        ("DROP COLUMN format", "pods.format is gone"),
        ("RENAME COLUMN format TO form", "pods.format is gone"),
        ("ADD COLUMN fresh integer NOT NULL", "pods.fresh has to be given"),
        ("ALTER COLUMN node_id SET NOT NULL", "pods.node_id may not be missing any more"),
        ("ALTER COLUMN uid TYPE text", "pods.uid is of another type"),
        ("ADD UNIQUE (name)", "pods.('name',) is unique now"),
    ):
        with pytest.raises(InterruptedError), empty.write() as transaction:  # noqa: PT012
            transaction.execute(sa.text(f"ALTER TABLE pods {statement}"))
            after = shape(transaction.connection)
            raise InterruptedError  # so that it is taken back
        assert said in narrowed(before, after), statement


def advance(database: Database, statement: str) -> str:
    """Bring the schema to a version of a later release; its URL."""
    schema.upgrade(database)
    with database.write() as transaction:
        transaction.execute(sa.text(statement))
        transaction.execute(sa.text("UPDATE alembic_version SET version_num = 'later'"))
    return database.url.render_as_string(hide_password=False)


def test_a_release_starts_on_what_a_later_one_added(empty: Database):
    url = advance(empty, "ALTER TABLE pods ADD COLUMN fresh integer")
    life.make_ready(url)
    life.make_ready(url, upgrade_first=True)
    assert schema.version(empty) == "later"
    with pytest.raises(SchemaOutdated, match="of a newer release"):
        life.upgrade(url)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("ALTER TABLE pods ADD COLUMN fresh integer NOT NULL DEFAULT 0", None),
        ("ALTER TABLE pods RENAME COLUMN format TO form", "pods has no column format"),
        ("ALTER TABLE changes RENAME TO notes", "table changes is not there"),
    ],
)
def test_a_release_says_what_it_lacks_of_a_later_schema(empty: Database, statement: str, said: str | None):
    url = advance(empty, statement)
    if said is None:
        life.make_ready(url)
        return
    with pytest.raises(SchemaOutdated, match=said):
        life.make_ready(url)


@on_postgresql
def test_a_release_does_not_start_where_it_would_leave_out_what_has_to_be_given(empty: Database):
    url = advance(empty, "ALTER TABLE pods ADD COLUMN fresh integer NOT NULL")
    with pytest.raises(SchemaOutdated, match="pods has a column fresh that has to be given"):
        life.make_ready(url)
