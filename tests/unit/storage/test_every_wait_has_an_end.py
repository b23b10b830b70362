"""Nobody waits for the database longer than may be: for an answer, a lock, a connection."""

import os
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from unittest.mock import Mock

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
from placement.storage.history import Horizon
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


def is_usable(database: Database) -> None:
    """No connection is taken, and there is one to be had."""
    assert database.engine.pool.checkedout() == 0
    with database.read() as connection:
        assert connection.exec_driver_sql("SELECT 1").scalar_one() == 1


@contextmanager
def in_time() -> Iterator[None]:
    begun = time.monotonic()
    yield
    assert time.monotonic() - begun < _UPPER_SECONDS


def test_a_read_without_an_answer_is_given_up(postgresql: Database):
    with in_time(), pytest.raises(Unreachable), postgresql.read() as connection:  # noqa: PT012
        impatient(connection)
        connection.exec_driver_sql(_SLEEP)
    is_usable(postgresql)


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
        write.connection.patience = 0.2
        write.send(_SLEEP, ())
    assert postgresql.engine.pool.checkedout() == 0


def test_locks_and_attempts_end_with_the_request(postgresql: Database):
    table, nothing = tables.change_counter, "Nothing was changed; try again later"

    def change(transaction: Transaction) -> None:
        transaction.execute(sa.update(table).values(value=table.c.value + 1))

    with in_time(), postgresql.write() as holder:
        change(holder)
        with request_scope.within(0.5), pytest.raises(Unavailable, match=nothing):
            run_in_transaction(postgresql, change)


def test_waiting_for_a_connection_ends_with_the_request(postgresql: Database):
    with in_time(), postgresql.read(), postgresql.read(), request_scope.within(0.2):  # noqa: SIM117
        with pytest.raises(Unavailable, match="overloaded"), postgresql.read():
            pass


def test_connecting_ends_with_the_request():
    """The kernel takes connections to a server that never says anything, whatever number of hosts it has."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        host = f"127.0.0.1:{silent.getsockname()[1]}"
        database = Database(f"postgresql://u@{host},{host}/d?connect_timeout={_ENDLESS_SECONDS}")
        for seconds in (4, 0):
            with in_time(), request_scope.within(seconds), pytest.raises(Unreachable), database.read():
                pass
        database.dispose()


def test_a_look_that_cannot_connect_tries_once(monkeypatch: pytest.MonkeyPatch):
    database = Database(f"postgresql://u@127.0.0.1:{free_port()}/d")
    dialect = database.engine.dialect
    tried = Mock(side_effect=dialect.connect)
    monkeypatch.setattr(dialect, "connect", tried)
    with pytest.raises(Unreachable):
        Feed(database).look(Horizon(1, ""))
    assert tried.call_count == 1


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


def test_without_files_no_connection_is_made_and_no_answer_waited_for(postgresql: Database):
    """A connection that cannot be watched is not made."""
    with descriptors_left(1), pytest.raises(Unreachable), postgresql.read():
        pass
    is_usable(postgresql)
    with pytest.raises(Unreachable), postgresql.read() as connection, descriptors_left(0):  # noqa: PT012
        impatient(connection)
        connection.exec_driver_sql(_SLEEP)


def test_the_only_writer_of_a_file_is_waited_for_no_longer_than_the_request(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(sqlite, "_BUSY_SECONDS", _ENDLESS_SECONDS)
    with database_url("sqlite") as url:
        database = Database(url)
        with in_time(), database.write(), request_scope.within(0.2):  # noqa: SIM117
            with pytest.raises(Unavailable, match="locked"):
                run_in_transaction(database, lambda _: None)
        database.dispose()
