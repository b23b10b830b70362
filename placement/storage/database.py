"""Engines, transactions and the stamp that every write leaves on the providers it touches."""

from __future__ import annotations

import datetime
import logging
import math
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import cached_property
from typing import Any, NoReturn, Protocol, TypeVar, cast

import sqlalchemy as sa

from placement.common.clock import utcnow
from placement.engine.domain import request_scope
from placement.engine.domain.audit import Action, AuditRecord, TargetKind
from placement.engine.domain.errors import Unavailable
from placement.metrics.catalog import DATABASE_FAILURES, RETRIES
from placement.storage import audit, failures, json_text
from placement.storage.backends.backend import Backend, SingleWrite
from placement.storage.backends.postgresql import PostgreSQL
from placement.storage.backends.sqlite import SQLite
from placement.storage.backends.urls import supported
from placement.storage.history import HISTORY_KEY, History
from placement.storage.tables import Revision

# What the pool notes of a connection: when it was opened, and when it came back.
_LAST_USE = "placement_last_use"
_OPENED = "placement_opened"
# A server that is asked whether it answers, beside a statement that it does not answer, gets this long.
_DOUBT_SECONDS = 5.0


class DeadlinePool(sa.QueuePool):
    """A pool that waits for a connection no longer than until the deadline of the request."""

    @property
    def _timeout(self) -> float:
        return request_scope.remaining(self._usual_timeout)

    @_timeout.setter
    def _timeout(self, seconds: float) -> None:
        self._usual_timeout = seconds

    @contextmanager
    def entry(self) -> Iterator[sa.pool.ConnectionPoolEntry]:
        """Yield a pooled connection of the driver, for statements that commit by themselves.

        It is looked at, counted and kept as all others, without what SQLAlchemy puts around them: that takes
        longer than the driver takes for a claim. Raises errors of SQLAlchemy and of the driver.
        """
        entry: Any = self._do_get()
        is_ready = False
        try:
            connection = entry.get_connection()
            try:
                self.dispatch.checkout(connection, entry, None)
            except sa.exc.DisconnectionError as error:
                self._renew(entry, error, are_all_lost=error.invalidate_pool)
                entry.get_connection()
            is_ready = True
            yield entry
        except BaseException as error:
            # A statement that was interrupted may still be running. Older releases of SQLAlchemy keep a
            # connection that could not be prepared.
            if not is_ready or not isinstance(error, Exception):
                entry.invalidate(error)
            raise
        finally:
            self.dispatch.checkin(entry.dbapi_connection, entry)
            self._do_return_conn(entry)

    def give_up(self, entry: sa.pool.ConnectionPoolEntry, error: BaseException) -> None:
        """Close a connection that is lost; whatever is older than this will be replaced as well."""
        self._renew(entry, error, are_all_lost=True)

    def _renew(self, entry: Any, error: BaseException, *, are_all_lost: bool) -> None:
        # A connection that was made since others were lost says nothing new about them.
        if are_all_lost and self._invalidate_time < entry.starttime:
            self._invalidate_time = time.time()
        entry.invalidate(error)


# Its debug lines show whole connection strings, with whatever secrets are in them; the others tell operators
# nothing, and would be printed by every command.
logging.getLogger(f"{DeadlinePool.__module__}.{DeadlinePool.__name__}").setLevel(logging.WARNING)


def backend_of(url: sa.URL, history: History, *, durable: bool, statement_seconds: float) -> Backend:
    """Return the backend of a database: the one place where that follows from its URL."""
    if url.get_backend_name() == "sqlite":
        return SQLite(url, durable=durable)
    return PostgreSQL(url, history, statement_seconds)


_LOST_COMMIT = (
    "The database connection was lost while committing; the change may or may not be stored. "
    "Repeating the same request settles it."
)


class Executor(Protocol):
    """A runner of statements: a read connection or a write transaction."""

    def execute(self, statement: Any, parameters: Any = None, /) -> Any:
        """Run one statement."""


class Transaction:
    """A write transaction that executes statements and knows its stamp."""

    def __init__(
        self, connection: sa.Connection, backend: Backend, forget_caches: Callable[[], None]
    ) -> None:
        """Store `forget_caches`, which empties the caches of the process; called where one is stale."""
        self.connection = connection
        self.execute: Callable[..., Any] = connection.execute
        # Which server, or file, this transaction is with: see `History` of the backends.
        self.server = str(connection.info[HISTORY_KEY])
        self.backend = backend
        self.insert_or_ignore = backend.insert_or_ignore
        self.now = utcnow()
        self.forget_caches = forget_caches
        self.records: list[AuditRecord] = []

    def record(
        self,
        action: Action,
        kind: TargetKind,
        target: str,
        *,
        before: Mapping[str, Any] | None = None,
        after: Mapping[str, Any] | None = None,
        consumer: str | None = None,
    ) -> None:
        """Have this change recorded with the transaction; see placement.engine.domain.audit."""
        self.records.append(AuditRecord(action, kind, target, before, after, consumer))

    def removal(
        self, times: sa.Column[datetime.datetime], most: int, *conditions: sa.ColumnElement[bool]
    ) -> sa.Delete:
        """Return the removal of at most `most` rows that meet the conditions, the oldest first.

        Rows that an up-to-date reader may miss are left.
        """
        table: Any = times.table
        oldest = sa.select(table.c.id).where(*conditions).order_by(times).limit(most)
        ids = self.backend.removable(oldest, table.c.revision).cte("oldest")
        return sa.delete(table).where(table.c.id.in_(sa.select(ids.c.id)))

    @cached_property
    def stamp(self) -> Any:
        """Return the value for `revision` columns: see storage.tables.Revision."""
        given = self.stamp_parameters
        return sa.literal(given["stamp"], type_=Revision()) if given else self.backend.stamp

    @cached_property
    def stamp_parameters(self) -> Mapping[str, int]:
        """Return the parameters of the backend's `stamp`, for statements that are made once."""
        return self.backend.stamp_parameters(self.connection)


# Failures that only a write shows, and that last until an operator acts.
_LASTING = (failures.FULL, failures.READ_ONLY)
_REFUSED_SECONDS = 10.0


class Database:
    """A database with short read connections and all-or-nothing write transactions."""

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
        statement_seconds: float = math.inf,
        log_failures: bool = True,
        audits: bool = True,
    ) -> None:
        """Prepare the database at `url`, with the `parameters` added to its query.

        `durable` False lets SQLite lose commits in a power cut. `attempts`: how often services try a
        transaction that concurrent ones keep from finishing. `statement_seconds`: how long a server may
        take for a statement, if that is less than usual. `log_failures` False is for callers that
        report failures themselves. `audits` False keeps no record of changes.
        """
        self.url = supported(url, parameters)
        self.attempts = attempts
        self.audits = audits
        # Called after each write that left records (storage.retention).
        self.after_records: Callable[[], object] | None = None
        self.history = History()
        # Why the last write was refused, and when.
        self._refused: tuple[str, float] | None = None
        self.backend = backend_of(
            self.url, self.history, durable=durable, statement_seconds=statement_seconds
        )
        self.where = self.backend.where
        self._incidents = failures.Incidents(self.where) if log_failures else None
        self._recycle_seconds = recycle_seconds
        self.engine = sa.create_engine(
            self.url,
            poolclass=DeadlinePool,
            pool_timeout=pool_timeout,
            pool_size=pool_size,
            max_overflow=max_overflow,
            pool_recycle=recycle_seconds,
            # Thousands of manifests are read at once.
            json_serializer=json_text.written,
            json_deserializer=json_text.read,
            **self.backend.engine_options(),
        )
        self._driver_error: type[Exception] = self.engine.dialect.loaded_dbapi.Error
        sa.event.listen(self.engine, "do_connect", self.backend.connect)
        sa.event.listen(self.engine, "connect", self._prepare)
        sa.event.listen(self.engine, "checkin", _note_use)
        sa.event.listen(self.engine, "checkout", self._refuse)
        sa.event.listen(self.engine, "handle_error", self._give_up_broken)

    # -- connections --------------------------------------------------------------------------------

    def _prepare(self, connection: Any, record: Any) -> None:
        found = self.backend.prepare(connection)
        record.info |= {HISTORY_KEY: found, _OPENED: time.monotonic()}
        self.history.observe(found)

    def _refuse(self, connection: Any, record: Any, _proxy: Any) -> None:
        """Have the pool replace a connection that is lost, or leads to a former database."""
        used = record.info.get(_LAST_USE)
        if used is None:
            # It was just made. If a new one is refused as well, the pool makes no third.
            return
        if not self.backend.is_present(record.info[HISTORY_KEY]):
            raise sa.exc.DisconnectionError
        # Files do not hang up.
        if not self.backend.is_embedded:
            self.backend.refuse_dead(self.engine.dialect, connection, time.monotonic() - used)

    def _give_up_broken(self, context: Any) -> None:
        if self.backend.stays_broken(context.original_exception):
            context.is_disconnect = True

    def is_current(self, connection: sa.Connection) -> bool:
        """Return whether a connection may be kept: it is to the present database, and not old.

        The pool checks this, too, whenever it hands a connection out.
        """
        if not self.backend.is_present(connection.info[HISTORY_KEY]):
            return False
        age = time.monotonic() - connection.info[_OPENED]
        return self._recycle_seconds < 0 or bool(age < self._recycle_seconds)

    def is_answering(self) -> bool:
        """Return whether a new connection, which the pool does not count, is answered within 5 seconds."""
        beside = self.engine.pool.recreate()
        try:
            # Connecting asks the server which one it is.
            with request_scope.within(_DOUBT_SECONDS), closing(beside.connect()):
                return True
        except (sa.exc.SQLAlchemyError, self._driver_error):
            return False
        finally:
            beside.dispose()

    # -- units of work ------------------------------------------------------------------------------

    @contextmanager
    def read(self) -> Iterator[sa.Connection]:
        """Yield a connection for reading single statements, each on its own snapshot. Raises Unavailable."""
        with self.translating(), self.engine.connect() as connection:
            yield connection

    @contextmanager
    def snapshot(self) -> Iterator[sa.Connection]:
        """Yield a read-only transaction in which all statements see one state. Raises Unavailable."""
        begin = self.backend.begin_snapshot()
        with self.translating(), self.engine.connect() as connection, connection.begin():
            connection.exec_driver_sql(begin)
            yield connection

    @contextmanager
    def write(self) -> Iterator[Transaction]:
        """Yield a transaction that commits unless the block raises.

        Raises TryAgain, OutcomeUnknown, Unavailable.
        """
        with self.backend.alone(), self.translating(is_write=True), self.engine.connect() as connection:
            begin = self.backend.begin_write(connection)
            # The connection is in autocommit mode: the driver sends no BEGIN, so this has to.
            with connection.begin() as begun:
                connection.exec_driver_sql(begin)
                transaction = Transaction(connection, self.backend, self.history.forget)
                yield transaction
                is_recorded = self.audits and bool(transaction.records)
                if is_recorded:
                    stamp = {"now": transaction.now, **transaction.stamp_parameters}
                    audit.store(connection, self.backend, transaction.records, stamp)
                try:
                    begun.commit()
                except sa.exc.DBAPIError as error:
                    # It may be committed where the connection was lost; the server refused otherwise.
                    if error.connection_invalidated and self.backend.leaves_in_doubt(error.orig or error):
                        self._raise_outcome_unknown(error)
                    raise
            self.backend.confirm(connection.info)
        if is_recorded and self.after_records is not None:
            self.after_records()

    @contextmanager
    def single_write(self) -> Iterator[SingleWrite]:
        """Yield a connection for one write that commits by itself. Raises as `write` does."""
        pool = cast(DeadlinePool, self.engine.pool)
        with self.backend.alone(), self.translating(is_write=True), pool.entry() as entry:
            write = SingleWrite(entry.dbapi_connection, entry.info)
            try:
                yield write
            except self._driver_error as error:
                if self._is_lost(write.connection, error):
                    pool.give_up(entry, error)
                    if write.is_sent and self.backend.leaves_in_doubt(error):
                        self._raise_outcome_unknown(error)
                raise
            self.backend.confirm(entry.info)
        if self.audits and self.after_records is not None:
            self.after_records()

    @property
    def refusal(self) -> str | None:
        """The reason for refusing a write in the last 10 seconds, None if the last one succeeded."""
        refused = self._refused
        return refused[0] if refused and time.monotonic() - refused[1] <= _REFUSED_SECONDS else None

    # -- errors -------------------------------------------------------------------------------------

    def _is_lost(self, connection: Any, error: BaseException) -> bool:
        """Return whether a connection of the driver is of no use after this error."""
        is_lost = self.engine.dialect.is_disconnect(error, connection, None)  # type: ignore[arg-type]
        return is_lost or self.backend.stays_broken(error)

    def _raise_outcome_unknown(self, error: Exception) -> NoReturn:
        self._note(error)
        raise failures.OutcomeUnknown(_LOST_COMMIT) from error

    @contextmanager
    def translating(self, *, is_write: bool = False) -> Iterator[None]:
        """Turn errors of SQLAlchemy and the driver into Unavailable, unless they are faults of ours.

        What refuses a write is kept for `refusal`.
        """
        try:
            yield
        except (sa.exc.SQLAlchemyError, self._driver_error) as error:
            found = self.diagnose(error)
            if found is None:
                raise
            if is_write and found in _LASTING:
                self._refused = found.sentence, time.monotonic()
            self._note(error)
            raise found.raised() from error
        if is_write:
            self._refused = None

    def diagnose(self, error: BaseException) -> failures.Diagnosis | None:
        """Return the diagnosis of an error of SQLAlchemy or of the driver, None for a fault of ours."""
        if isinstance(error, sa.exc.TimeoutError):
            return failures.NO_SLOT
        if isinstance(error, sa.exc.PendingRollbackError):
            return failures.GONE
        is_lost = getattr(error, "connection_invalidated", False)
        original = error.orig if isinstance(error, sa.exc.DBAPIError) else error
        return self.backend.diagnose(original or error, is_lost=is_lost)

    def _note(self, error: Exception) -> None:
        found = self.diagnose(error)
        if found is not None:
            DATABASE_FAILURES.labels(found.sentence).inc()
        if self._incidents is not None and found is not None and found.is_incident:
            self._incidents.note(found.sentence, failures.words_of(error))

    def clock(self) -> float:
        """Return the seconds since 1970 as a database server counts them. Raises Unavailable."""
        with self.read() as connection:
            now: datetime.datetime = connection.execute(sa.select(sa.func.current_timestamp())).scalar_one()
        return now.timestamp()

    def seconds_apart(self) -> float:
        """Return how far the clock of the database server is ahead of the one here, in seconds.

        An embedded database has no clock of its own: 0. Raises Unavailable.
        """
        if self.backend.is_embedded:
            return 0.0
        before, there, after = time.time(), self.clock(), time.time()
        return there - (before + after) / 2

    # -- life ---------------------------------------------------------------------------------------

    def connections(self) -> Mapping[str, int]:
        """Return how many connections the pool has in use and idle, and how many it may have."""
        found: Any = self.engine.pool
        most = found.size() + found._max_overflow
        return {"used": found.checkedout(), "idle": found.checkedin(), "limit": most}

    def create(self) -> None:
        """Make an empty database if there is none and it is a file. Raises Unavailable."""
        with self.translating():
            self.backend.create()

    def dispose(self) -> None:
        """Close all pooled connections."""
        self.engine.dispose()


def _note_use(connection: Any, record: Any) -> None:
    if connection is not None:
        record.info[_LAST_USE] = time.monotonic()


# The running of a use case as one transaction, and the policy for repeating it.
#
# One policy serves all work that others got in the way of: transactions that the database asks to repeat, and
# claims that decide again because another consumer was faster (allocations.best_fit). Time is never more
# than the request has left (engine.domain.request_scope).


# Jitter keeps writers that collided from colliding again.
_LEAST_PART, _LARGEST_PART = 0.5, 1.5
WorkResult = TypeVar("WorkResult")
# A database that cannot be reached is not waited for longer: a restart takes a second, an outage many.
_OUTAGE_SECONDS = 2.0


class Attempts:
    """The attempts of one caller so far, and their limits.

    `most` attempts, None for any number. Pauses double from the first to the longest.
    """

    def __init__(
        self,
        most: int | None = None,
        patience_seconds: float = 30.0,
        first_pause_seconds: float = 0.005,
        longest_pause_seconds: float = 0.5,
    ) -> None:
        self._most, self._patience_seconds = most, patience_seconds
        self._pause, self._longest_pause = first_pause_seconds, longest_pause_seconds
        self._begun = time.monotonic()
        self._failed = 0

    def may_go_on(self, patience_seconds: float = math.inf) -> bool:
        """Note that an attempt failed; return whether there may be another one.

        `patience_seconds`: how long this failure is worth waiting for in all, if that is less than usual.
        """
        self._failed += 1
        if self._failed == self._most:
            return False
        if time.monotonic() - self._begun > min(patience_seconds, self._patience_seconds):
            return False
        return request_scope.remaining() > _LARGEST_PART * self._pause

    def pause(self) -> None:
        """Wait for the next attempt."""
        time.sleep(self._pause * random.uniform(_LEAST_PART, _LARGEST_PART))
        self._pause = min(2 * self._pause, self._longest_pause)


def run_in_transaction(
    database: Database, work: Callable[[Transaction], WorkResult], before: Callable[[], object] | None = None
) -> WorkResult:
    """Run `work` in a transaction, repeating it a bounded number of times and seconds with jitter.

    `before` is done each time before the transaction begins. Raises Unavailable when the attempts or the time
    are used up; nothing was changed then.
    """

    def once() -> WorkResult:
        if before is not None:
            before()
        with database.write() as transaction:
            return work(transaction)

    return retry(database, once)


def retry(database: Database, once: Callable[[], WorkResult]) -> WorkResult:
    """Do something that is a transaction of its own, as often and as long as `run_in_transaction` would try.

    Raises Unavailable when the attempts or the time are used up; nothing was changed then.
    """
    return retry_until_deadline(once, database.attempts)


def retry_until_deadline(once: Callable[[], WorkResult], most: int | None = None) -> WorkResult:
    """Do something again while other writers get in its way, with jitter and for a bounded time.

    `most` attempts, if given. Raises Unavailable when time is up; nothing was changed then.
    """
    attempts = Attempts(most)
    while True:
        try:
            return once()
        except failures.TryAgain as error:
            patience = _OUTAGE_SECONDS if isinstance(error, failures.Unreachable) else math.inf
            if not attempts.may_go_on(patience):
                raise Unavailable(f"{error} Nothing was changed; try again later.") from error
            RETRIES.labels("unreachable" if isinstance(error, failures.Unreachable) else "concurrent").inc()
            attempts.pause()


# Statements on many rows at once, which come as parameters.


class RowStatement:
    """A statement on given rows. Its text is made once per kind of database, and compiled once."""

    def __init__(
        self, text: str, name: str, columns: Mapping[str, str], *parameters: sa.BindParameter[Any]
    ) -> None:
        """Take a `text` with {rows} for the table `name` of these columns (names and SQL types), and {stamp}
        for the stamp of the transaction.

        The driver has to know the type of the `parameters`.
        """
        self._text = text
        self._name = name
        self._columns = columns
        self._parameters = parameters
        self._made: dict[type[Backend], sa.TextClause] = {}

    def run(self, transaction: Transaction, rows: Sequence[Sequence[Any]], **others: Any) -> Any:
        """Run it on one or more rows, with its other parameters."""
        backend = transaction.backend
        statement = self._made.get(type(backend))
        if statement is None:
            given_rows = backend.given_rows(self._name, self._columns)
            text = self._text.format(rows=given_rows, stamp=backend.stamp_text)
            statement = self._made[type(backend)] = sa.text(text).bindparams(*self._parameters)
        return transaction.execute(statement, {**backend.row_parameters(self._columns, rows), **others})
