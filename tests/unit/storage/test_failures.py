"""Every failure of a database has its meaning: repeated where that mends it, else told by its cause."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import psycopg2.errors
import pytest
import sqlalchemy as sa

from placement.engine.domain.errors import Unavailable
from placement.storage import tables
from placement.storage.backends.sqlite import SQLite
from placement.storage.database import Database
from placement.storage.failures import Faster, TryAgain, Unreachable
from tests.server import database_url, postgresql_server


@pytest.fixture
def postgresql() -> Iterator[Database]:
    with database_url("postgresql") as url:
        database = Database(url)
        yield database
        database.dispose()


def failing(database: Database, statement: str) -> Exception:
    """What a statement raises in the end."""
    with pytest.raises(Exception) as raised, database.write() as transaction:  # noqa: PT011
        transaction.execute(sa.text(statement))
    return raised.value


@pytest.mark.parametrize(
    ("statement", "kind", "words"),
    [
        ("INSERT INTO traits (name) VALUES ('A'), ('A')", Faster, "concurrent"),
        ("INSERT INTO allocations (resource_provider_id, consumer_id, resource_class_id, used) "
         "VALUES (1, 'x', 1, 1)", Faster, "concurrent"),
        ("SELECT * FROM unheard_of", Unavailable, "tables of this version"),
        ("SELECT unheard_of FROM traits", Unavailable, "tables of this version"),
    ],
)  # fmt: skip
def test_on_both_databases(database: Database, statement: str, kind: type[Exception], words: str):
    error = failing(database, statement)
    assert type(error) is kind
    assert words in str(error)


@pytest.mark.parametrize(
    "statement", ["INSERT INTO traits (id) VALUES (NULL)", "INSERT INTO traits (name) VALUES (NULL)"]
)
def test_what_a_repetition_cannot_mend_is_a_fault_of_ours(database: Database, statement: str):
    assert isinstance(failing(database, statement), sa.exc.IntegrityError)


@pytest.mark.parametrize(
    ("code", "words"),
    [
        ("25006", "read-only"),
        ("53100", "full"),
        ("53200", "out of memory"),
        ("57014", "too long"),
        ("42501", "does not let this service do that"),
        ("58030", "read or write its files"),
        ("XX001", "read or write its files"),
        ("26000", "session pooling"),
    ],
)
def test_the_cause_is_told(postgresql: Database, code: str, words: str):
    error = failing(postgresql, f"DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '{code}'; END $$")
    assert isinstance(error, Unavailable)
    assert not isinstance(error, TryAgain)
    assert words in str(error)


@pytest.mark.parametrize("code", ["40001", "40P01", "55P03"])
def test_conflicts_are_repeated(postgresql: Database, code: str):
    error = failing(postgresql, f"DO $$ BEGIN RAISE EXCEPTION 'x' USING ERRCODE = '{code}'; END $$")
    assert isinstance(error, TryAgain)
    assert not isinstance(error, Unreachable)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"database": "missing"}, "does not exist"),
        ({"username": "nobody_of_this_name"}, "does not let this service in"),
    ],
)
def test_refused_connections_tell_why(changed: dict[str, str], words: str):
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


def test_a_commit_of_what_had_failed_does_not_pass_for_one(postgresql: Database):
    """Somebody swallowed an error: the database rolls back, whatever is asked of it."""
    with pytest.raises(Exception), postgresql.write() as transaction:  # noqa: B017, PT011, PT012
        values = {"name": "CUSTOM_X", "created_at": transaction.now}
        transaction.execute(sa.insert(tables.traits).values(values))
        with pytest.raises(sa.exc.DBAPIError):
            transaction.execute(sa.text("SELECT 1/0"))


def test_errors_that_are_none_of_a_database_are_none(database: Database):
    assert database.diagnose(ValueError("x")) is None
    assert database.diagnose(psycopg2.errors.DivisionByZero("x")) is None
