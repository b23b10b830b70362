"""Every failure of a database has its meaning: repeated within limits where that mends it, or told."""

import math
import sqlite3
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psycopg2.errors
import pytest
import sqlalchemy as sa

from placement.engine.domain import request_scope
from placement.engine.domain.errors import Unavailable
from placement.storage import database as transactions
from placement.storage import schema, tables
from placement.storage.backends.sqlite import SQLite
from placement.storage.database import Attempts, Database, Transaction, run_in_transaction
from placement.storage.failures import Faster, TryAgain, Unreachable
from tests.patience import PATIENCE_SECONDS
from tests.server import database_url, postgresql_server

on_postgresql = pytest.mark.parametrize("connection_url", ["postgresql"], indirect=True)


def failing(database: Database, statement: str) -> Exception:
    """What a statement raises in the end."""
    with pytest.raises(Exception) as raised, database.write() as transaction:  # noqa: PT011
        transaction.execute(sa.text(statement))
    return raised.value


def test_statements_fail_alike_on_both_databases(database: Database):
    allocation = (
        "allocations (resource_provider_id, consumer_id, resource_class_id, used) VALUES (1, '', 1, 1)"
    )
    for statement, kind, words in (
        ("INSERT INTO traits (name) VALUES ('A'), ('A')", Faster, "concurrent"),
        (f"INSERT INTO {allocation}", Faster, "concurrent"),
        ("SELECT * FROM unheard_of", Unavailable, "tables of this version"),
        ("SELECT unheard_of FROM traits", Unavailable, "tables of this version"),
        # What a repetition cannot mend is a fault of ours.
        ("INSERT INTO traits (id) VALUES (NULL)", sa.exc.IntegrityError, ""),
        ("INSERT INTO traits (name) VALUES (NULL)", sa.exc.IntegrityError, ""),
    ):
        error = failing(database, statement)
        assert type(error) is kind, statement
        assert words in str(error)


@on_postgresql
def test_conflicts_are_repeated_and_of_all_else_the_cause_is_told(database: Database):
    for code, words in {
        "25006": "read-only",
        "53100": "full",
        "53200": "out of memory",
        "57014": "too long",
        "42501": "does not let this service do that",
        "58030": "read or write its files",
        "XX001": "read or write its files",
        "26000": "session pooling",
        **dict.fromkeys(("40001", "40P01", "55P03")),
    }.items():
        error = failing(database, f"DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '{code}'; END $$")
        if words is None:
            assert isinstance(error, TryAgain), code
            assert not isinstance(error, Unreachable)
        else:
            assert isinstance(error, Unavailable), code
            assert not isinstance(error, TryAgain)
            assert words in str(error)


def test_refused_connections_tell_why():
    for changed, words in (
        ({"database": "missing"}, "does not exist"),
        ({"username": "nobody_of_this_name"}, "does not let this service in"),
    ):
        database = Database(postgresql_server().set(**changed).render_as_string(hide_password=False))
        with pytest.raises(Unavailable, match=words), database.read():
            pass
        assert database.engine.pool.checkedout() == 0


def test_an_unreachable_host_is_logged_once_with_everything_but_the_password(caplog):
    database = Database("postgresql://me:secret@127.0.0.1:1/mine")
    for _ in range(3):
        with pytest.raises(Unreachable, match="cannot be reached"), database.read():
            pass
    (line,) = [record.getMessage() for record in caplog.records if "cannot be reached" in record.getMessage()]
    assert all(part in line for part in ("127.0.0.1", "port 1", "database mine", "user me", "refused"))
    assert "secret" not in caplog.text


def test_a_read_only_file_is_named_and_its_connection_given_up(tmp_path: Path):
    path = tmp_path / "file"
    sqlite3.connect(path).execute("CREATE TABLE t (i)").connection.close()
    connection = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    with pytest.raises(sqlite3.OperationalError) as raised:
        connection.execute("INSERT INTO t VALUES (1)")
    connection.close()
    backend = SQLite(sa.make_url(f"sqlite:///{path}"), durable=True)
    found = backend.diagnose(raised.value, is_lost=False)
    assert found is not None
    assert "read-only" in found.sentence
    assert backend.stays_broken(raised.value)


def test_a_full_file_is_named_and_has_room_again_later(tmp_path: Path):
    with database_url("sqlite") as url:
        database = Database(url)
        limit = "PRAGMA max_page_count = 1"
        sa.event.listen(database.engine, "connect", lambda connection, _: connection.execute(limit))
        rows = ", ".join(f"('CUSTOM_{number:0200}')" for number in range(3000))
        statement = f"INSERT INTO traits (name) VALUES {rows}"
        assert "full" in str(failing(database, statement))
        limit = "PRAGMA max_page_count = 1000000"
        database.dispose()
        with database.write() as transaction:
            transaction.execute(sa.text(statement))
        database.dispose()


@on_postgresql
def test_a_commit_of_what_had_failed_does_not_pass_for_one(database: Database):
    """An error was swallowed: the database rolls back, whatever is asked of it."""
    with pytest.raises(Exception), database.write() as transaction:  # noqa: B017, PT011, PT012
        insert(transaction, "CUSTOM_X")
        with pytest.raises(sa.exc.DBAPIError):
            transaction.execute(sa.text("SELECT 1/0"))


def test_errors_that_are_none_of_a_database_are_none(database: Database):
    assert database.diagnose(ValueError("x")) is None
    assert database.diagnose(psycopg2.errors.DivisionByZero("x")) is None


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Time that goes on while it is waited for, and threads that begin without a deadline."""
    now, pauses = [0.0], list[float]()

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        now[0] += seconds

    monkeypatch.setattr(
        transactions, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep, pauses=pauses)
    )
    request_scope.set_deadline(math.inf)
    yield transactions.time
    request_scope.set_deadline(math.inf)


def insert(transaction: Transaction, *traits: str) -> None:
    rows = [{"name": name, "created_at": transaction.now} for name in traits]
    transaction.execute(sa.insert(tables.traits).values(rows))


def test_work_is_repeated_until_it_succeeds_or_is_given_up(database: Database, clock: Any):
    collisions = [TryAgain("collided")] * 2

    def work(_: Transaction) -> str:
        if collisions:
            raise collisions.pop()
        return "done"

    assert run_in_transaction(database, work) == "done"
    assert not collisions

    def always(_: Transaction) -> None:
        raise TryAgain("collided")

    with pytest.raises(Unavailable, match=r"collided Nothing was changed"):
        run_in_transaction(database, always)

    def fail(transaction: Transaction) -> None:
        insert(transaction, "CUSTOM_GONE")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_in_transaction(database, fail)
    with database.read() as connection:
        assert not connection.execute(sa.select(tables.traits.c.id).filter_by(name="CUSTOM_GONE")).first()


@on_postgresql
def test_a_deadlock_is_repeated_until_both_are_through(database: Database):
    """Two transactions take two rows in opposite order; PostgreSQL ends one, which then succeeds."""
    pair = ("CUSTOM_A", "CUSTOM_B")
    with database.write() as transaction:
        insert(transaction, *pair)
    meeting = threading.Barrier(2, timeout=PATIENCE_SECONDS)

    def work_on(*names: str) -> str:
        met = []

        def work(transaction: Transaction) -> str:
            for name in names:
                change = sa.update(tables.traits).where(tables.traits.c.name == name)
                transaction.execute(change.values(updated_at=transaction.now))
                if not met:
                    met.append(meeting.wait())
            return names[0]

        return run_in_transaction(database, work)

    with ThreadPoolExecutor(2) as pool:
        done = [pool.submit(work_on, *names) for names in (pair, pair[::-1])]
        assert [each.result(PATIENCE_SECONDS) for each in done] == list(pair)


def failures(attempts: Attempts, clock: Any, each_takes: float = 0.0) -> int:
    """How many attempts are made if all fail."""
    for made in count(1):
        clock.sleep(each_takes)
        if not attempts.may_go_on():
            return made
        attempts.pause()
    raise AssertionError


def test_attempts_end_by_number_by_time_and_with_the_request(clock: Any):
    assert failures(Attempts(most=4), clock) == 4
    # The fourth ends after 12 seconds.
    assert failures(Attempts(patience_seconds=10), clock, each_takes=3.0) == 4
    # Some failures are worth less patience.
    attempts = Attempts(patience_seconds=10)
    clock.sleep(3)
    assert attempts.may_go_on()
    assert not attempts.may_go_on(2.0)
    attempts = Attempts(first_pause_seconds=1000.0)
    assert attempts.may_go_on()
    with request_scope.within(1000.0):
        assert not attempts.may_go_on(), "the pause alone may take longer"


def test_pauses_double_up_to_the_longest_and_never_are_the_same(clock: Any):
    attempts = Attempts(most=8, patience_seconds=1000, first_pause_seconds=1.0, longest_pause_seconds=8.0)
    failures(attempts, clock)
    pauses = [pause for pause in clock.pauses if pause]
    for pause, usual in zip(pauses, (1, 2, 4, 8, 8, 8, 8), strict=True):
        assert 0.5 * usual <= pause <= 1.5 * usual
    assert len(set(pauses)) == len(pauses)


def test_each_step_of_an_upgrade_begins_with_short_pauses(clock: Any, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(schema, "time", clock)

    def step(failures: int) -> list[float]:
        left, before = iter(range(failures)), len(clock.pauses)

        def work() -> None:
            if next(left, None) is not None:
                raise TryAgain("a writer is in the way")

        schema._persist("a step", work, until, lambda _: None, ())
        return [pause for pause in clock.pauses[before:] if pause]

    until = clock.monotonic() + 300
    first, second = step(10), step(1)
    assert max(first) > 0.5
    assert second[0] <= 0.075
    clock.sleep(300)
    with pytest.raises(Unavailable, match="blocked a step for 300 s"):
        step(1)


def test_a_deadline_bounds_what_is_waited_for_where_it_was_set(clock: Any):
    assert (request_scope.remaining(), request_scope.remaining(10)) == (math.inf, 10)
    assert not request_scope.is_over()
    with request_scope.within(100):
        assert 0 < request_scope.remaining() <= 100
        assert request_scope.remaining(10) == 10
        with request_scope.within(1000):
            assert request_scope.remaining() <= 100
        with ThreadPoolExecutor(1) as pool:
            assert pool.submit(request_scope.remaining).result() == math.inf
    assert request_scope.remaining() == math.inf
    with request_scope.within(-1):
        assert request_scope.is_over()
        assert request_scope.remaining(10) == 0


def test_the_next_request_of_a_thread_begins_anew(clock: Any):
    request_scope.set_deadline(time.monotonic() - 1)
    request_scope.set_deadline(time.monotonic() + 100)
    assert request_scope.remaining() > 0
    request_scope.set_deadline(math.inf)
    assert request_scope.deadline() == math.inf
