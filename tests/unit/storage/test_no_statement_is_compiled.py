"""PostgreSQL compiles no statement of ours to machine code: that takes longer than running any of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from placement.storage.database import Database
from placement.storage.feed import Feed
from tests.server import database_url


@pytest.fixture
def database() -> Iterator[Database]:
    with database_url("postgresql") as url:
        database = Database(url)
        yield database
        database.dispose()


def test_whatever_the_server_does_for_others(database: Database):
    with database.engine.connect() as connection, connection.begin():
        name = connection.exec_driver_sql("SELECT current_database()").scalar_one()
        connection.exec_driver_sql(f'ALTER DATABASE "{name}" SET jit = on')
    database.engine.dispose()
    with database.read() as connection:
        assert connection.exec_driver_sql("SHOW jit").scalar_one() == "off"


def test_nor_those_that_ask_what_changed(database: Database):
    feed = Feed(database)
    with feed.session(0) as connection:
        assert connection.exec_driver_sql("SHOW jit").scalar_one() == "off"
    feed.close()
