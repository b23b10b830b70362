"""Engines, transactions and the stamp that every write leaves on the providers it touches."""

from __future__ import annotations

import datetime
import os
import select
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from placement.domain.errors import BadRequest
from placement.storage import tables
from placement.storage.failures import OutcomeUnknown, classify

# The row locks and conditional updates of a claim decide alone; a higher level would only add conflicts
# that a client would see although there is room.
ISOLATION = "READ COMMITTED"
_SQLITE_BUSY_SECONDS = 15
_LOST_COMMIT = (
    "The database connection was lost while committing; the change may or may not be stored. "
    "Repeating the same request settles it."
)
# A connection that was idle for longer is asked whether it still works; a shorter one if anything came in.
_FRESH_SECONDS = 10
_LAST_USE = "placement_last_use"
_POSTGRESQL_OPTIONS = (
    "-c statement_timeout=30000 -c lock_timeout=10000 -c TimeZone=UTC -c plan_cache_mode=force_generic_plan"
)


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

    def __init__(self, connection: sa.Connection) -> None:
        self.connection = connection
        self.now = utcnow()

    def execute(self, statement: Any, parameters: Any = None, /) -> Any:
        """Run one statement."""
        return self.connection.execute(statement, parameters)

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
        dialect = postgresql if self.is_postgresql else sqlite
        return dialect.insert(table).on_conflict_do_nothing()

    def locked(self, statement: sa.Select[Any]) -> sa.Select[Any]:
        """The same query, keeping its rows locked until the end where the database needs that."""
        return statement.with_for_update() if self.is_postgresql else statement


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
    ) -> None:
        """The database at `url`, whose query gets the `parameters`.

        `durable` False lets SQLite lose commits in a power cut. `attempts`: how often services try a
        transaction that concurrent ones keep from finishing.
        """
        self.url = _supported_url(url)
        if parameters:
            self.url = self.url.update_query_string(parameters)
        self.attempts = attempts
        self.is_sqlite = self.url.get_backend_name() == "sqlite"
        options: dict[str, Any] = {"pool_timeout": pool_timeout, "pool_size": pool_size}
        options |= {"max_overflow": max_overflow, "pool_recycle": recycle_seconds}
        if self.is_sqlite:
            if self.url.database:
                _create_private(Path(self.url.database))
            options["connect_args"] = {"timeout": _SQLITE_BUSY_SECONDS, "check_same_thread": False}
            # SQLite has one writer: queueing the threads of this process here is fair and cheap, while
            # its own busy handler polls.
            self._turn: Any = threading.Lock()
        else:
            options["isolation_level"] = ISOLATION
            options["connect_args"] = {"connect_timeout": 5, "options": _POSTGRESQL_OPTIONS}
            self._turn = nullcontext()
        self.engine = sa.create_engine(self.url, **options)
        self._autocommit = self.engine.execution_options(isolation_level="AUTOCOMMIT")
        if self.is_sqlite:
            synchronous = "FULL" if durable else "OFF"
            sa.event.listen(
                self.engine, "connect", lambda connection, _: _prepare_sqlite(connection, synchronous)
            )
            sa.event.listen(self.engine, "begin", _begin_sqlite)
        else:
            sa.event.listen(self.engine, "checkin", _note_use)
            sa.event.listen(self.engine, "checkout", self._refuse_dead)

    def _refuse_dead(self, connection: Any, record: Any, _proxy: Any) -> None:
        """Have the pool open another connection if this one was lost while it was idle.

        A server that goes away closes its end, which shows without asking it.
        """
        used = record.info.get(_LAST_USE)
        if used is None:
            return
        incoming = select.poll()
        try:
            # The driver has no file descriptor for a connection that it has closed itself.
            incoming.register(connection.fileno(), select.POLLIN)
            if time.monotonic() - used < _FRESH_SECONDS and not incoming.poll(0):
                return
            self.engine.dialect.do_ping(connection)
        except Exception as error:
            raise sa.exc.InvalidatePoolError from error

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """A connection for reading single statements, each on its own snapshot. Raises Unavailable."""
        try:
            with self._autocommit.connect() as connection:
                yield connection
        except sa.exc.SQLAlchemyError as error:
            raise self._translate(error) from error

    @contextmanager
    def snapshot(self) -> Iterator[sa.Connection]:
        """A read-only transaction in which all statements see one state. Raises Unavailable."""
        options = (
            {} if self.is_sqlite else {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
        )
        try:
            with self.engine.connect() as connection:
                connection = connection.execution_options(**options)
                with connection.begin():
                    yield connection
        except sa.exc.SQLAlchemyError as error:
            raise self._translate(error) from error

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """A transaction that commits unless the block raises.

        Raises TryAgain, OutcomeUnknown, Unavailable.
        """
        try:
            with self._turn, self.engine.connect() as plain:
                connection = plain.execution_options(placement_writes=True)
                with connection.begin() as transaction:
                    yield Transaction(connection)
                    self._commit(transaction)
        except sa.exc.SQLAlchemyError as error:
            raise self._translate(error) from error

    @contextmanager
    def single_write(self) -> Iterator[sa.Connection]:
        """A connection for one statement that commits by itself. Raises as `write` does."""
        try:
            with self._autocommit.connect() as connection:
                yield connection
        except sa.exc.DBAPIError as error:
            if error.connection_invalidated:
                raise OutcomeUnknown(_LOST_COMMIT) from error
            raise self._translate(error) from error
        except sa.exc.SQLAlchemyError as error:
            raise self._translate(error) from error

    def _commit(self, transaction: sa.RootTransaction) -> None:
        try:
            transaction.commit()
        except sa.exc.DBAPIError as error:
            if error.connection_invalidated:
                raise OutcomeUnknown(_LOST_COMMIT) from error
            raise

    @staticmethod
    def _translate(error: sa.exc.SQLAlchemyError) -> Exception:
        return classify(error) or error

    def dispose(self) -> None:
        """Close all pooled connections."""
        self.engine.dispose()


def _supported_url(url: str) -> sa.URL:
    try:
        parsed = sa.engine.make_url(url)
    except sa.exc.ArgumentError:
        raise BadRequest("connection: the database URL cannot be understood") from None
    if parsed.drivername in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg2")
    if parsed.drivername not in ("sqlite", "sqlite+pysqlite", "postgresql+psycopg2"):
        raise BadRequest(f"connection: {parsed.drivername} is not supported, only sqlite and postgresql")
    return parsed


def _create_private(path: Path) -> None:
    """See to it that only the owner can read a new file; SQLite gives the files beside it the same mode."""
    path.parent.mkdir(parents=True, exist_ok=True)
    # What cannot be created is for SQLite to report, and names of its own are not files.
    with suppress(OSError):
        if not str(path).startswith((":memory:", "file:")):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def _note_use(connection: Any, record: Any) -> None:
    if connection is not None:
        record.info[_LAST_USE] = time.monotonic()


def _prepare_sqlite(connection: Any, synchronous: str) -> None:
    # The driver must not open transactions on its own: `begin` below chooses their kind.
    connection.isolation_level = None
    for pragma in ("journal_mode=WAL", f"synchronous={synchronous}", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")


def _begin_sqlite(connection: sa.Connection) -> None:
    options = connection.get_execution_options()
    if options.get("isolation_level") == "AUTOCOMMIT":
        return
    # A reader that turns writer in mid-transaction fails at once with "locked"; taking the write lock
    # first waits for its turn instead.
    kind = "IMMEDIATE" if options.get("placement_writes") else "DEFERRED"
    connection.exec_driver_sql(f"BEGIN {kind}")
