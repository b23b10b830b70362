"""Rows that are written in bulk come back as they were, whatever their columns hold."""

from __future__ import annotations

import datetime

import pytest
import sqlalchemy as sa

from placement.migrate import endpoint
from tests.server import database_url

TIME = datetime.datetime(2026, 1, 31, 12, 0, 0, 250_000)
ROWS = [
    (1, "plain", 2.5, TIME),
    (2, "tab\tand\\backslash", float("inf"), None),
    (3, "line\nand return\r", 0.1, TIME),
    (4, r"\N", None, TIME),
    (None, None, None, None),
    (5, "None", 1e-300, TIME),
]


@pytest.mark.parametrize("rows", [ROWS, ROWS[:1], ROWS[:1] * 1001, []], ids=["odd", "one", "many", "none"])
def test_rows_of_all_kinds(rows: list[tuple[object, ...]]):
    table = sa.Table(
        "copied",
        sa.MetaData(),
        sa.Column("number", sa.Integer),
        sa.Column("text", sa.Text),
        sa.Column("ratio", sa.Double),
        sa.Column("at", sa.DateTime),
    )
    with database_url("postgresql", migrated=False) as url:
        engine = sa.create_engine(url)
        with engine.begin() as connection:
            table.create(connection)
            endpoint.insert(connection, table, table.c.keys(), rows)
            assert sorted(map(str, connection.execute(sa.select(table)))) == sorted(map(str, rows))
        engine.dispose()
