"""Database URLs are taken as people and libpq write them, without passwords shown, and heeded."""

import uuid
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import sqlalchemy as sa

from placement.engine.domain.errors import BadRequest
from placement.providers.statements import providers
from placement.storage.backends import urls
from placement.storage.backends.postgresql import PostgreSQL
from placement.storage.backends.postgresql_driver import Dialect
from placement.storage.database import Database
from placement.storage.feed import Feed
from placement.storage.history import BEFORE_ALL, History
from tests.server import database_url


def arguments(url: str) -> dict[str, str]:
    """What the driver is given."""
    found: dict[str, str] = Dialect().create_connect_args(urls.supported(url))[1]
    return found


def test_several_hosts_have_ports_and_the_one_that_takes_writes_is_wanted():
    assert arguments("postgresql://u:p%40ss@h1:1111,h2:2222/db?target_session_attrs=any") == {
        "host": "h1,h2",
        "port": "1111,2222",
        "dbname": "db",
        "user": "u",
        "password": "p@ss",
        "target_session_attrs": "any",
    }
    # Ports that are not given are the usual one.
    for url, host, port in (
        ("postgresql://u@h1,h2/db", "h1,h2", "5432,5432"),
        ("postgresql+psycopg2://h1,h2/db", "h1,h2", "5432,5432"),
        ("postgresql://u@h1:1,h2/db", "h1,h2", "1,5432"),
        ("postgresql://u@[::1]:5,h2:6/db", "::1,h2", "5,6"),
        ("postgresql://u@h1:1,h2:2,h3:3/db", "h1,h2,h3", "1,2,3"),
        ("postgresql://u@/db?host=h1:1&host=h2:2", "h1,h2", "1,2"),
    ):
        found = arguments(url)
        assert (found["host"], found["port"], found["target_session_attrs"]) == (host, port, "read-write")
    assert "target_session_attrs" not in arguments("postgresql://u@h1:1/db")


@pytest.mark.parametrize("url", ["postgresql://u:secret@h1:x,h2:1/db", "mysql://u:secret@h/db", "secret"])
def test_what_cannot_be_understood_is_said_without_the_password(url: str):
    with pytest.raises(BadRequest) as refused:
        urls.supported(url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("url", ["postgresql://u:secret@h1:1,h2:2/db", "postgresql://u:secret@h1:1/db"])
def test_passwords_are_not_shown(url: str):
    shown = urls.described_server(urls.supported(url))
    assert "secret" not in shown
    assert all(part in shown for part in ("h1", "1", "db", "user u"))


def test_what_the_url_says_about_the_transport_wins():
    url = urls.supported("postgresql://u@h/db?connect_timeout=1&tcp_user_timeout=7")
    options = PostgreSQL(url, History(), 30.0).engine_options()
    engine = sa.create_engine(url, **options)
    given = options["connect_args"]
    assert "connect_timeout" not in given
    assert "tcp_user_timeout" not in given
    assert given["keepalives"] == 1
    assert arguments("postgresql://u@h/db?connect_timeout=1")["connect_timeout"] == "1"
    engine.dispose()


on_postgresql = pytest.mark.parametrize("connection_url", ["postgresql"], indirect=True)


@pytest.fixture
def feed(database: Database) -> Iterator[Feed]:
    with closing(Feed(database)) as feed:
        yield feed


def session_of(feed: Feed) -> int:
    with feed.session(BEFORE_ALL) as connection:
        return int(connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one())


@on_postgresql
def test_a_feed_moves_with_the_pool(database: Database, feed: Feed, monkeypatch: pytest.MonkeyPatch):
    with database.write() as transaction:
        providers.insert(transaction, str(uuid.uuid4()), "old")
    with feed.snapshot() as (horizon, snapshot):
        assert len(snapshot.providers[0]) == 1
    assert feed.look(horizon).horizon
    with database_url("postgresql") as elsewhere:
        # As when a name or an address moves to another server, and the old one runs on.
        name, dialect = sa.make_url(elsewhere).database, database.engine.dialect
        connect = dialect.connect
        monkeypatch.setattr(dialect, "connect", lambda **options: connect(**{**options, "dbname": name}))
        # One that lies in the pool goes on, the other one is new.
        with database.read(), database.read():
            pass
        assert feed.look(horizon).horizon == 0, "everything is to be read again"
        with feed.snapshot() as (_, snapshot):
            assert len(snapshot.providers[0]) == 0
        feed.close()
        database.dispose()


@on_postgresql
def test_a_feed_does_not_keep_its_connection_for_longer_than_the_pool(connection_url: str):
    for seconds, is_kept in ((3600, True), (0, False)):
        database = Database(connection_url, recycle_seconds=seconds)
        feed = Feed(database)
        assert (session_of(feed) == session_of(feed)) is is_kept
        feed.close()
        database.dispose()


@on_postgresql
def test_a_connection_just_made_is_not_refused(database: Database):
    """New connections may lead here and there for a while: that is no fault of ours."""

    def flap(*_: Any) -> None:
        database.history.observe(str(uuid.uuid4()))

    sa.event.listen(database.engine, "connect", flap)
    for _ in range(3):
        with database.read() as connection:
            assert connection.exec_driver_sql("SELECT 1").scalar_one() == 1


@on_postgresql
def test_no_statement_is_compiled_whatever_the_server_does_for_others(database: Database, feed: Feed):
    """Compiling takes longer than running any of ours."""
    with database.engine.connect() as connection, connection.begin():
        name = connection.exec_driver_sql("SELECT current_database()").scalar_one()
        connection.exec_driver_sql(f'ALTER DATABASE "{name}" SET jit = on')
    database.engine.dispose()
    for session in (database.read(), feed.session(BEFORE_ALL)):
        with session as connection:
            assert connection.exec_driver_sql("SHOW jit").scalar_one() == "off"
