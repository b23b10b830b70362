"""The release before goes on after a migration: nothing it uses goes, nothing new has to be given.

What a release stopped using is removed by a migration of the release after it, and not before.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

import alembic.script
import pytest
import sqlalchemy as sa

from placement.server import schema as life
from placement.server.schema import SchemaOutdated
from placement.storage import schema
from placement.storage.database import Database
from tests.server import BACKENDS, database_url


class Shape(NamedTuple):
    """What statements of a release depend on: columns by table and name, and what may be there once only."""

    columns: dict[tuple[str, str], dict[str, Any]]
    unique: set[tuple[str, tuple[str, ...]]]
    references: set[tuple[str, tuple[str, ...]]]


@pytest.fixture(params=BACKENDS)
def empty(request: pytest.FixtureRequest) -> Iterator[Database]:
    with database_url(request.param, migrated=False) as url:
        database = Database(url)
        yield database
        database.dispose()


def shape(database: Database) -> Shape:
    inspector = sa.inspect(database.engine)
    tables = inspector.get_table_names()
    return Shape(
        {
            (table, column["name"]): dict(column)
            for table in tables
            for column in inspector.get_columns(table)
        },
        {(t, tuple(found["column_names"])) for t in tables for found in inspector.get_unique_constraints(t)},
        {(t, tuple(found["constrained_columns"])) for t in tables for found in inspector.get_foreign_keys(t)},
    )


def narrowed(before: Shape, after: Shape) -> list[str]:
    """What a release that knows only `before` cannot do any more."""
    tables = {table for table, _ in before.columns}
    found = [f"{'.'.join(name)} is gone" for name in before.columns.keys() - after.columns.keys()]
    for name, column in after.columns.items():
        former = before.columns.get(name)
        if former is None and name[0] in tables and not column["nullable"] and column["default"] is None:
            found.append(f"{'.'.join(name)} has to be given")
        if former is not None and former["nullable"] and not column["nullable"]:
            found.append(f"{'.'.join(name)} may not be missing any more")
        if former is not None and str(former["type"]) != str(column["type"]):
            found.append(f"{'.'.join(name)} is of another type")
    for kind, old, new in (
        ("unique", before.unique, after.unique),
        ("a reference", before.references, after.references),
    ):
        found += [f"{table}.{columns} is {kind} now" for table, columns in new - old if table in tables]
    return found


@pytest.mark.filterwarnings("ignore:Did not recognize type 'xid8'")
def test_each_migration_only_adds(empty: Database):
    script = alembic.script.ScriptDirectory.from_config(schema.configuration(empty))
    revisions = [known.revision for known in reversed(list(script.walk_revisions()))]
    assert len(revisions) >= 3
    for before, after in pairwise(revisions):
        schema.upgrade(empty, before)
        old = shape(empty)
        schema.upgrade(empty, after)
        assert narrowed(old, shape(empty)) == [], after


@pytest.mark.parametrize("empty", ["postgresql"], indirect=True)
@pytest.mark.filterwarnings("ignore:Did not recognize type 'xid8'")
@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("ALTER TABLE pods DROP COLUMN format", "pods.format is gone"),
        ("ALTER TABLE pods RENAME COLUMN format TO form", "pods.format is gone"),
        ("ALTER TABLE pods ADD COLUMN fresh integer NOT NULL", "pods.fresh has to be given"),
        ("ALTER TABLE pods ALTER COLUMN node_id SET NOT NULL", "pods.node_id may not be missing any more"),
        ("ALTER TABLE pods ALTER COLUMN uid TYPE text", "pods.uid is of another type"),
        ("ALTER TABLE pods ADD UNIQUE (name)", "pods.('name',) is unique now"),
    ],
)
def test_what_takes_away_is_noticed(empty: Database, statement: str, said: str):
    schema.upgrade(empty)
    before = shape(empty)
    with empty.write() as transaction:
        transaction.execute(sa.text(statement))
    assert said in narrowed(before, shape(empty))


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


@pytest.mark.parametrize("empty", ["postgresql"], indirect=True)
def test_a_release_does_not_start_where_it_would_leave_out_what_has_to_be_given(empty: Database):
    url = advance(empty, "ALTER TABLE pods ADD COLUMN fresh integer NOT NULL")
    with pytest.raises(SchemaOutdated, match="pods has a column fresh that has to be given"):
        life.make_ready(url)
