"""Nobody waits for the database longer than may be: for an answer, a lock, a connection."""

from __future__ import annotations

import os
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import sqlalchemy as sa

from placement.engine.domain import request_scope
from placement.engine.domain.errors import Unavailable
from placement.storage import tables
from placement.storage.backends import postgresql as backend
from placement.storage.backends import sqlite
from placement.storage.database import Database, Transaction, run_in_transaction
from placement.storage.failures import OutcomeUnknown, Unreachable
from placement.storage.feed import Feed
from tests.server import database_url, free_port

# Far more than is allowed below, far less than everything would take without a deadline.
_UPPER_SECONDS = 60
_ENDLESS_SECONDS = 300
_SLEEP = f"SELECT pg_sleep({_ENDLESS_SECONDS})"


@pytest.fixture
def postgresql(monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """A database whose usual limits are none, so that what ends in time ends with the request."""
    monkeypatch.setattr(backend, "_LOCK_SECONDS", _ENDLESS_SECONDS)
    monkeypatch.setattr(backend, "STATEMENT_SECONDS", _ENDLESS_SECONDS)
    with database_url("postgresql") as url:
        database = Database(url, pool_size=2, max_overflow=0, pool_timeout=_ENDLESS_SECONDS)
        yield database
        database.dispose()


def impatient(connection: sa.Connection) -> None:
    """As if the server said nothing from now on."""
    driver = connection.connection.dbapi_connection
    driver.patience = 0.2  # type: ignore[union-attr]


def test_a_read_without_an_answer_is_given_up(postgresql: Database):
    begun = time.monotonic()
    with pytest.raises(Unreachable), postgresql.read() as connection:  # noqa: PT012
        impatient(connection)
        connection.exec_driver_sql(_SLEEP)
    assert time.monotonic() - begun < _UPPER_SECONDS
    assert postgresql.engine.pool.checkedout() == 0
    with postgresql.read() as connection:
        assert connection.exec_driver_sql("SELECT 1").scalar_one() == 1


def test_a_write_without_an_answer_was_not_done(postgresql: Database):
    with pytest.raises(Unreachable), postgresql.write() as transaction:  # noqa: PT012
        values = {"name": "CUSTOM_X", "created_at": transaction.now}
        transaction.execute(sa.insert(tables.traits).values(values))
        impatient(transaction.connection)
        transaction.connection.exec_driver_sql(_SLEEP)
    with postgresql.read() as connection:
        assert not connection.execute(sa.select(tables.traits.c.id).filter_by(name="CUSTOM_X")).first()


def test_a_statement_that_commits_by_itself_leaves_its_outcome_open(postgresql: Database):
    with pytest.raises(OutcomeUnknown), postgresql.single_write() as write:  # noqa: PT012
        impatient(write.connection)
        write.send(_SLEEP, ())
    assert postgresql.engine.pool.checkedout() == 0


def test_locks_and_attempts_end_with_the_request(postgresql: Database):
    table = tables.change_counter

    def change(transaction: Transaction) -> None:
        transaction.execute(sa.update(table).values(value=table.c.value + 1))

    begun = time.monotonic()
    with postgresql.write() as holder:
        change(holder)
        with (
            request_scope.within(0.5),
            pytest.raises(Unavailable, match="Nothing was changed; try again later"),
        ):
            run_in_transaction(postgresql, change)
    assert time.monotonic() - begun < _UPPER_SECONDS


def test_waiting_for_a_connection_ends_with_the_request(postgresql: Database):
    with postgresql.read(), postgresql.read(), request_scope.within(0.2):
        begun = time.monotonic()
        with pytest.raises(Unavailable, match="overloaded"), postgresql.read():
            pass
        assert time.monotonic() - begun < _UPPER_SECONDS


def test_connecting_ends_with_the_request():
    """The kernel takes connections to a server that never says anything, whatever number of hosts it has."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        database = Database(f"postgresql://u@{host},{host}/d?connect_timeout={_ENDLESS_SECONDS}")
        begun = time.monotonic()
        with request_scope.within(4), pytest.raises(Unreachable), database.read():
            pass
        assert time.monotonic() - begun < _UPPER_SECONDS
        with request_scope.within(0), pytest.raises(Unreachable), database.read():
            pass
        database.dispose()


def test_a_look_that_cannot_connect_tries_once(monkeypatch: pytest.MonkeyPatch):
    database = Database(f"postgresql://u@127.0.0.1:{free_port()}/d")
    dialect, tried = database.engine.dialect, []
    connect = dialect.connect

    def count(**options: Any) -> Any:
        tried.append(options)
        return connect(**options)

    monkeypatch.setattr(dialect, "connect", count)
    with pytest.raises(Unreachable):
        Feed(database).look(1)
    assert len(tried) == 1


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """This process can open so many files more, and not one above."""
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.open(os.devnull, os.O_RDONLY)]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(taken[0] + 50, 256), usual[1]))
    try:
        with suppress(OSError):
            while True:
                taken.append(os.dup(taken[0]))
        for _ in range(count):
            os.close(taken.pop())
        yield
    finally:
        for descriptor in taken:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)


def test_a_connection_that_cannot_be_watched_is_not_made(postgresql: Database):
    with descriptors_left(1), pytest.raises(Unreachable), postgresql.read():
        pass
    assert postgresql.engine.pool.checkedout() == 0
    with postgresql.read() as connection:
        assert connection.exec_driver_sql("SELECT 1").scalar_one() == 1


def test_an_answer_is_given_up_where_no_file_can_be_opened(postgresql: Database):
    with pytest.raises(Unreachable), postgresql.read() as connection, descriptors_left(0):  # noqa: PT012
        impatient(connection)
        connection.exec_driver_sql(_SLEEP)


def test_the_only_writer_of_a_file_is_waited_for_no_longer_than_the_request(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sqlite, "_BUSY_SECONDS", _ENDLESS_SECONDS)
    with database_url("sqlite") as url:
        database = Database(url)
        with database.write(), request_scope.within(0.2):
            begun = time.monotonic()
            with pytest.raises(Unavailable, match="locked"):
                run_in_transaction(database, lambda _: None)
            assert time.monotonic() - begun < _UPPER_SECONDS
        database.dispose()
