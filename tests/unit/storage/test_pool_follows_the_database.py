"""When new connections lead to another database, those that were kept are given up, the feed's too."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
import sqlalchemy as sa

from placement.providers.statements import providers
from placement.storage.database import Database
from placement.storage.feed import Feed
from tests.server import database_url


@pytest.fixture
def url() -> Iterator[str]:
    with database_url("postgresql") as made:
        yield made


@pytest.fixture
def database(url: str) -> Iterator[Database]:
    made = Database(url)
    yield made
    made.dispose()


@pytest.fixture
def feed(database: Database) -> Iterator[Feed]:
    made = Feed(database)
    yield made
    made.close()


def created(database: Database, name: str) -> None:
    with database.write() as transaction:
        providers.insert(transaction, str(uuid.uuid4()), name)


def lead_new_connections_to(database: Database, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a name or an address moves to another server, and the old one runs on."""
    name, dialect = sa.make_url(url).database, database.engine.dialect
    connect = dialect.connect
    monkeypatch.setattr(dialect, "connect", lambda **options: connect(**{**options, "dbname": name}))


def session_of(feed: Feed) -> int:
    with feed.session(0) as connection:
        return int(connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())


def test_a_feed_moves_with_the_pool(database: Database, feed: Feed, monkeypatch: pytest.MonkeyPatch):
    created(database, "old")
    with feed.snapshot() as (horizon, snapshot):
        assert len(list(snapshot.providers)) == 1
    assert feed.look(horizon).horizon
    with database_url("postgresql") as elsewhere:
        lead_new_connections_to(database, elsewhere, monkeypatch)
        # One that lies in the pool goes on, the other one is new.
        with database.read(), database.read():
            pass
        assert feed.look(horizon).horizon == 0, "everything is to be read again"
        with feed.snapshot() as (_, snapshot):
            assert list(snapshot.providers) == []
        feed.close()
        database.dispose()


def test_a_feed_does_not_keep_its_connection_for_longer_than_the_pool(url: str):
    for seconds, is_kept in ((3600, True), (0, False)):
        database = Database(url, recycle_seconds=seconds)
        feed = Feed(database)
        assert (session_of(feed) == session_of(feed)) is is_kept
        feed.close()
        database.dispose()


def test_a_connection_just_made_is_not_refused(database: Database):
    """New connections may lead here and there for a while: that is no fault of ours."""

    def flap(*_: Any) -> None:
        database.history.observe(str(uuid.uuid4()))

    sa.event.listen(database.engine, "connect", flap)
    for _ in range(3):
        with database.read() as connection:
            assert connection.exec_driver_sql("SELECT 1").scalar_one() == 1
