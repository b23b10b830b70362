"""Engines, transactions and the stamp that every write leaves on the providers it touches."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql as postgresql_dialect
from sqlalchemy.dialects import sqlite as sqlite_dialect

from placement.domain import deadline
from placement.storage import (
    failures,
    pool,
    tables,
    urls,
)
from placement.storage.backends import postgresql, sqlite
from placement.storage.backends.silence import GRACE_SECONDS
from placement.storage.changes import history
from placement.storage.changes.history import History
from placement.storage.failures import OutcomeUnknown, TryAgain
from placement.storage.incidents import Incidents

_LOST_COMMIT = (
    "The database connection was lost while committing; the change may or may not be stored. "
    "Repeating the same request settles it."
)
_REPLACED = (
    "The file of the database was removed or replaced while committing; the change may or may not be stored. "
    "Repeating the same request settles it."
)
_BEGIN = "placement_begin"


def utcnow() -> datetime.datetime:
    """The present in UTC without a zone, as the tables keep it."""
    return datetime.datetime.now(datetime.UTC).replace(tzinfo=None)


_NEXT_STAMP = (
    sa.update(tables.change_counter)
    .values(value=tables.change_counter.c.value + 1)
    .returning(tables.change_counter.c.value)
)


class Executor(Protocol):
    """Whatever runs statements: a read connection or a write transaction."""

    def execute(self, statement: Any, parameters: Any = None, /) -> Any:
        """Run one statement."""


class Transaction:
    """One write transaction: executes statements and knows its stamp."""

    def __init__(self, connection: sa.Connection, doubt: Callable[[], None]) -> None:
        """`doubt` has all caches of the process forget, for somebody found that one of them is wrong."""
        self.connection = connection
        self.now = utcnow()
        self.doubt = doubt

    def execute(self, statement: Any, parameters: Any = None, /) -> Any:
        """Run one statement."""
        return self.connection.execute(statement, parameters)

    @property
    def server(self) -> str:
        """Which server, or file, this transaction is with: see storage.changes.history."""
        return str(self.connection.info[history.KEY])

    @property
    def is_postgresql(self) -> bool:
        """Whether rows can and must be locked; on SQLite the whole transaction is alone."""
        return self.connection.dialect.name == "postgresql"

    @property
    def stamp(self) -> Any:
        """The value for `revision` columns: see storage.types.Revision."""
        if self.is_postgresql:
            return sa.func.pg_current_xact_id(type_=tables.providers.c.revision.type)
        return sa.literal(self.stamp_number, type_=tables.providers.c.revision.type)

    @cached_property
    def stamp_number(self) -> int:
        """The stamp on SQLite: the next number of the counter."""
        return int(self.execute(_NEXT_STAMP).scalar_one())

    def insert_or_ignore(self, table: sa.Table) -> Any:
        """An insert that skips rows whose unique key exists."""
        dialect = postgresql_dialect if self.is_postgresql else sqlite_dialect
        return dialect.insert(table).on_conflict_do_nothing()

    def locked(self, statement: sa.Select[Any]) -> sa.Select[Any]:
        """The same query, keeping its rows locked until the end where the database needs that."""
        return statement.with_for_update() if self.is_postgresql else statement


class SingleWrite:
    """A connection for one statement that commits by itself."""

    def __init__(self, connection: sa.Connection) -> None:
        self.connection = connection
        self.is_sent = False

    def send(self, statement: str, parameters: Any) -> None:
        """Run the statement that writes. From here on a lost connection leaves the outcome unknown."""
        self.is_sent = True
        self.connection.exec_driver_sql(statement, parameters)


class Database:
    """One database: short read connections and all-or-nothing write transactions."""

    def __init__(
        self,
        url: str,
        *,
        parameters: str = "",
        pool_size: int = 10,
        max_overflow: int = 10,
        pool_timeout: int = 10,
        recycle_seconds: int = 3600,
        durable: bool = True,
        attempts: int = 10,
        statement_seconds: float = postgresql.STATEMENT_SECONDS,
        log_failures: bool = True,
    ) -> None:
        """The database at `url`, whose query gets the `parameters`.

        `durable` False lets SQLite lose commits in a power cut. `attempts`: how often services try a
        transaction that concurrent ones keep from finishing. `statement_seconds`: how long PostgreSQL may
        take for a statement. `log_failures` False is for those who say themselves what is wrong.
        """
        self.url = urls.supported(url, parameters)
        self.attempts = attempts
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        self.history = History()
        self.where = urls.described(self.url)
        self._incidents = Incidents(self.where) if log_failures else None
        self._durable = durable
        self._recycle_seconds = recycle_seconds
        self._statement_seconds = min(statement_seconds, postgresql.STATEMENT_SECONDS)
        self._lock_seconds = min(postgresql.LOCK_SECONDS, self._statement_seconds)
        # SQLite has one writer: queueing the threads of this process here is fair and cheap, while
        # its own busy handler polls.
        self._turn = threading.Lock()
        options = sqlite.engine_options() if self.is_sqlite else postgresql.engine_options(self.url)
        self.engine = sa.create_engine(
            self.url,
            poolclass=pool.Pool,
            pool_timeout=pool_timeout,
            pool_size=pool_size,
            max_overflow=max_overflow,
            pool_recycle=recycle_seconds,
            **options,
        )
        self._driver_error: type[Exception] = self.engine.dialect.loaded_dbapi.Error
        self._listen()

    # -- connections --------------------------------------------------------------------------------

    def _listen(self) -> None:
        listen = sa.event.listen
        if self.is_sqlite:
            # Before it is opened: what is not there must not be created by looking at it.
            listen(self.engine, "do_connect", self._refuse_missing)
        else:
            listen(self.engine, "do_connect", postgresql.connect_in_time)
        listen(self.engine, "connect", self._prepare)
        listen(self.engine, "checkin", pool.note_use)
        listen(self.engine, "checkout", self._refuse)
        listen(self.engine, "begin", _begin)
        listen(self.engine, "handle_error", _give_up_broken)

    def _refuse_missing(self, *_: Any) -> None:
        sqlite.identity(self.url)

    def _prepare(self, connection: Any, record: Any) -> None:
        if self.is_sqlite:
            found = sqlite.identity(self.url)
            sqlite.prepare(connection, durable=self._durable)
        else:
            found = postgresql.prepare(connection, self._statement_seconds, self._lock_seconds)
        record.info[history.KEY] = found
        pool.note_opening(record.info)
        self.history.observe(found)

    def _refuse(self, connection: Any, record: Any, _proxy: Any) -> None:
        """Have the pool replace a connection that is lost, or to what is not the database any more."""
        idle = pool.idle_seconds(record)
        if idle is None:
            # It was just made; the pool does not make a third one for somebody who refuses two.
            return
        if not self._is_to_present(record.info[history.KEY]):
            raise sa.exc.DisconnectionError
        if not self.is_sqlite:
            postgresql.refuse_dead(self.engine.dialect, connection, idle)

    def _is_to_present(self, opened: str) -> bool:
        return self._is_same_file(opened) if self.is_sqlite else self.history.is_present(opened)

    def _is_same_file(self, opened: str | None) -> bool:
        try:
            return sqlite.identity(self.url) == opened
        except self._driver_error:
            return False

    def is_current(self, connection: sa.Connection) -> bool:
        """Whether a connection may be kept: it is to what is the database now, and not old.

        The pool asks the same whenever it hands a connection out.
        """
        if not self._is_to_present(connection.info[history.KEY]):
            return False
        return self._recycle_seconds < 0 or pool.age_seconds(connection.info) < self._recycle_seconds

    # -- units of work ------------------------------------------------------------------------------

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A connection for reading single statements, each on its own snapshot. Raises Unavailable."""
        with self.translating(), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[sa.Connection]:
        """A read-only transaction in which all statements see one state. Raises Unavailable."""
        begin = sqlite.BEGIN_SNAPSHOT if self.is_sqlite else postgresql.BEGIN_SNAPSHOT
        # Whoever reads very much outside of requests may take longer than they have.
        if not self.is_sqlite and (
            self.is_hurried() or self._statement_seconds < postgresql.STATEMENT_SECONDS
        ):
            begin += postgresql.bounds(deadline.remaining(postgresql.STATEMENT_SECONDS), self._lock_seconds)
        with self.translating(), self.engine.connect() as plain:
            connection = plain.execution_options(**{_BEGIN: begin})
            with connection.begin():
                yield connection

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """A transaction that commits unless the block raises.

        Raises TryAgain, OutcomeUnknown, Unavailable.
        """
        if self.is_sqlite:
            with self._taken_turn(), self._write_sqlite() as transaction:
                yield transaction
            return
        begin = postgresql.BEGIN_WRITE
        if self.is_hurried():
            begin += postgresql.bounds(
                deadline.remaining(self._statement_seconds), deadline.remaining(self._lock_seconds)
            )
        with self.translating(), self.engine.connect() as plain:
            connection = plain.execution_options(**{_BEGIN: begin})
            with connection.begin() as transaction:
                yield Transaction(connection, self.history.forget)
                self._commit(transaction)

    @contextmanager
    def _write_sqlite(self) -> Iterator[Transaction]:
        with self.translating(), self.engine.connect() as plain:
            opened = plain.info[history.KEY]
            sqlite.be_patient(plain, deadline.remaining(sqlite.BUSY_SECONDS))
            connection = plain.execution_options(**{_BEGIN: sqlite.BEGIN_WRITE})
            with connection.begin() as transaction:
                yield Transaction(connection, self.history.forget)
                self._commit(transaction)
            if not self._is_same_file(opened):
                raise OutcomeUnknown(_REPLACED)

    @contextmanager
    def _taken_turn(self) -> Iterator[None]:
        if not self._turn.acquire(timeout=deadline.remaining(sqlite.BUSY_SECONDS)):
            raise TryAgain("The database stayed locked by other writers.")
        try:
            yield
        finally:
            self._turn.release()

    @contextmanager
    def single_write(self) -> Iterator[SingleWrite]:
        """A connection for one statement that commits by itself. Raises as `write` does."""
        with self.translating(), self.engine.connect() as connection:
            write = SingleWrite(connection)
            try:
                yield write
            except sa.exc.DBAPIError as error:
                if write.is_sent and failures.leaves_in_doubt(error):
                    self._note(error)
                    raise OutcomeUnknown(_LOST_COMMIT) from error
                raise

    def _commit(self, transaction: sa.RootTransaction) -> None:
        try:
            transaction.commit()
        except sa.exc.DBAPIError as error:
            if failures.leaves_in_doubt(error):
                self._note(error)
                raise OutcomeUnknown(_LOST_COMMIT) from error
            raise

    # -- time and errors ----------------------------------------------------------------------------

    def is_hurried(self) -> bool:
        """Whether the deadline comes before the database would end a statement: it then needs limits."""
        return deadline.remaining(self._statement_seconds) + GRACE_SECONDS < self._statement_seconds

    @contextmanager
    def translating(self) -> Iterator[None]:
        """Errors of SQLAlchemy and the driver become Unavailable, or stay if they are faults of ours."""
        try:
            yield
        except (sa.exc.SQLAlchemyError, self._driver_error) as error:
            found = failures.diagnose(error)
            if found is None:
                raise
            self._note(error)
            raise found.raised() from error

    def _note(self, error: Exception) -> None:
        found = failures.diagnose(error)
        if self._incidents is not None and found is not None and found.is_incident:
            self._incidents.note(found.sentence, failures.words_of(error))

    def keeps_sessions(self) -> bool:
        """Whether a connection is to one and the same session of the database all along.

        A pooler that hands sessions out for a transaction gives one that was just used to the next.
        """
        if self.is_sqlite:
            return True
        session = sa.text("SELECT pg_backend_pid()")
        with self.read() as one, self.read() as other:
            first, second = (connection.execute(session).scalar_one() for connection in (one, other))
            return bool(first != second and one.execute(session).scalar_one() == first)

    def exists(self) -> bool:
        """Whether there is a database, which for a server only a connection can tell."""
        return not self.is_sqlite or not self.url.database or Path(self.url.database).exists()

    def create(self) -> None:
        """Make an empty database if there is none and it is a file. Raises Unavailable."""
        if self.is_sqlite:
            with self.translating():
                sqlite.create(self.url)

    def dispose(self) -> None:
        """Close all pooled connections."""
        self.engine.dispose()


def _begin(connection: sa.Connection) -> None:
    begin = connection.get_execution_options().get(_BEGIN)
    if begin is not None:
        connection.exec_driver_sql(begin)


def _give_up_broken(context: Any) -> None:
    if failures.stays_broken(context.original_exception):
        context.is_disconnect = True
