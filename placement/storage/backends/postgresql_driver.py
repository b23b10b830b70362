"""The driver of PostgreSQL: how connections are opened, and how transactions end on them.

Connections are in autocommit mode all their lives, and transactions are begun and ended by statements that
say all there is to say. So returning a connection to the pool sends nothing, and cannot fail.
"""

from __future__ import annotations

import math
import os
import re
import select
import socket
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any

import psycopg2
import psycopg2.errors
import psycopg2.extensions
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql.psycopg2 import PGDialect_psycopg2, PGExecutionContext_psycopg2

from placement.engine.domain import request_scope
from placement.storage.failures import (
    CHANGING,
    CONCURRENT,
    DAMAGED,
    FASTER,
    FULL,
    GONE,
    LOGIN,
    MEMORY,
    MISSING,
    NO_CONNECTION,
    POOLER,
    READ_ONLY,
    RIGHTS,
    SLOW,
    TABLES,
    Diagnosis,
)

# An end to waiting for a database server that says nothing any more.
#
# The driver waits inside of libpq, where nothing of Python can interrupt it. So every connection notes until
# when its present statement may run, and one thread per process shuts the sockets of late connections.
# The statement then fails as when the server had gone. TCP's own timeouts do not help here: a server that is
# stopped or behind a dead proxy still acknowledges what it is sent.


# Longer than the server takes to end a statement by itself: if it is alive, its answer says more.
_PATIENCE_SECONDS = 35.0
# The time that the server gets beyond the deadline of the request, so that it can answer.
GRACE_SECONDS = 2.0
_LOOK_SECONDS = 0.25


class WatchedConnection(psycopg2.extensions.connection):  # type: ignore[misc]
    """A connection that ends its statements after `patience` seconds, or soon after the deadline."""

    patience = _PATIENCE_SECONDS

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.autocommit = True
        self.cursor_factory = WatchedCursor
        self.expires = math.inf
        self._last_statement = b""
        # A second descriptor for the socket: libpq may close its own at any time, and the number would then
        # stand for something else.
        try:
            line = os.dup(self.fileno())
        except OSError as error:
            super().close()
            raise psycopg2.OperationalError(f"no connection can be watched: {error}") from error
        self._line: int | None = line
        self._let_go = weakref.finalize(self, os.close, line)
        self._let_go.atexit = False
        _watch.over(self)

    def __repr__(self) -> str:
        """Leave out the connection string: the driver's own text hides the password but no other secrets."""
        return f"<connection {id(self):#x}, closed: {self.closed}>"

    def keep_last(self, statement: bytes) -> None:
        """Keep a statement that is to be sent in one message with the end of the present transaction."""
        self._last_statement = statement

    def take_last(self) -> bytes:
        """Return the statement that was kept, once; empty if there is none."""
        last, self._last_statement = self._last_statement, b""
        return last

    def allow(self) -> None:
        """Note until when the statement that begins now may run."""
        now = time.monotonic()
        self.expires = min(now + self.patience, max(now, request_scope.at()) + GRACE_SECONDS)

    def close(self) -> None:
        """Close the connection."""
        super().close()
        with _watch.lock:
            self._line = None
            self._let_go()

    def cut(self) -> None:
        """Shut the socket, which ends all waiting for it; the caller holds the lock of the watch."""
        self.expires = math.inf
        if self._line is None:
            return
        # Open no descriptor: there may be none left, and the thread must not go on waiting.
        with suppress(OSError):
            line = socket.socket(fileno=self._line)
            try:
                line.shutdown(socket.SHUT_RDWR)
            finally:
                line.detach()


class WatchedCursor(psycopg2.extensions.cursor):  # type: ignore[misc]
    """A cursor that has its statements watched."""

    def execute(self, query: Any, vars: Any = None) -> None:
        """Run one statement."""
        self._watched(super().execute, query, vars)

    def executemany(self, query: Any, vars_list: Any) -> None:
        """Run one statement for each of the parameters."""
        self._watched(super().executemany, query, vars_list)

    def _watched(self, run: Callable[[Any, Any], None], query: Any, given: Any) -> None:
        connection: Any = self.connection
        connection.allow()
        try:
            run(query, given)
        finally:
            connection.expires = math.inf


class _Watch:
    """The thread that looks after all connections of this process."""

    def __init__(self) -> None:
        # Reentrant: the collector of garbage may close a connection while this thread holds the lock.
        self.lock = threading.RLock()
        self._connections: weakref.WeakSet[WatchedConnection] = weakref.WeakSet()
        self._thread: threading.Thread | None = None

    def over(self, connection: WatchedConnection) -> None:
        """Watch one more connection."""
        with self.lock:
            self._connections.add(connection)
            # A forked process has no such thread, also if its parent has one.
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._run, name="database watch", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            time.sleep(_LOOK_SECONDS)
            self._cut(self._expired())

    def _expired(self) -> Sequence[WatchedConnection]:
        now = time.monotonic()
        with self.lock:
            return [connection for connection in self._connections if connection.expires < now]

    def _cut(self, expired: Sequence[WatchedConnection]) -> None:
        for connection in expired:
            with self.lock:
                # Its statement may have ended in the meantime.
                if connection.expires < time.monotonic():
                    connection.cut()


_watch = _Watch()


_FIRST_ROWS = 1000
STATEMENT_SECONDS = 30.0
CONNECT_SECONDS = 5
_LEAST_CONNECT_SECONDS = 2
_LATER_SECONDS = 0.5
# A connection that was idle for longer is asked whether it still works; a shorter one if anything came in.
_FRESH_SECONDS = 10
_IDLE = psycopg2.extensions.TRANSACTION_STATUS_IDLE
_UNKNOWN = psycopg2.extensions.TRANSACTION_STATUS_UNKNOWN
_TRANSPORT = {
    "connect_timeout": CONNECT_SECONDS,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    # For so many milliseconds the server may leave what was sent unacknowledged.
    "tcp_user_timeout": 10_000,
}
_SYSTEM = "(SELECT system_identifier FROM pg_control_system())::text"
_PLACE = (
    "concat_ws('/', {system}, (SELECT oid FROM pg_database WHERE datname = current_database()), "
    "extract(epoch FROM pg_postmaster_start_time()), "
    "extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time()))"
)
# Which server it is: see storage.history.
_IDENTITY = f"SELECT {_PLACE.format(system=_SYSTEM)}"
# For a user that may not read the control file.
_IDENTITY_WITHOUT_SYSTEM = f"SELECT {_PLACE.format(system='NULL')}"


class StreamingCursor(WatchedCursor):
    """A cursor that has the server keep the rows until they are asked for; it ends with the transaction.

    The driver's own named cursors insist on transactions of the driver's making.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._rows = f"placement_rows_{uuid.uuid4().hex}"
        self._is_at_end = False

    def execute(self, query: Any, vars: Any = None) -> None:
        """Run a query and fetch its first rows."""
        text = query.decode() if isinstance(query, bytes) else query
        fetch = f"FETCH FORWARD {_FIRST_ROWS} FROM {self._rows}"
        super().execute(f"DECLARE {self._rows} NO SCROLL CURSOR FOR {text}; {fetch}", vars)

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        """Return the next rows, none at the end."""
        wanted = self.arraysize if size is None else size
        rows: list[tuple[Any, ...]] = super().fetchmany(wanted)
        if not rows and not self._is_at_end:
            super().execute(f"FETCH FORWARD {wanted} FROM {self._rows}")
            rows = super().fetchmany(wanted)
            self._is_at_end = not rows
        return rows

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, None at the end."""
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return all rows that are left."""
        found = []
        while rows := self.fetchmany(_FIRST_ROWS):
            found += rows
        return found


class _Execution(PGExecutionContext_psycopg2):
    def create_server_side_cursor(self) -> Any:
        return self._dbapi_connection.cursor(cursor_factory=StreamingCursor)


class Dialect(PGDialect_psycopg2):
    """The driver psycopg2, without transactions of its own making."""

    supports_statement_cache = True
    execution_ctx_cls = _Execution

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "use_native_hstore": False})  # type: ignore[no-untyped-call]

    def do_begin(self, dbapi_connection: Any) -> None:
        """Do nothing: the backend's statements begin transactions."""

    def do_commit(self, dbapi_connection: Any) -> None:
        """Commit, if a transaction was begun. Raises an error of the driver if it had failed before."""
        if dbapi_connection.get_transaction_status() == _IDLE:
            return
        last = dbapi_connection.take_last()
        with dbapi_connection.cursor() as cursor:
            try:
                cursor.execute(last + b"; COMMIT" if last else "COMMIT")
            except psycopg2.Error:
                # If the insert before it failed there was no COMMIT, and nothing else would end this.
                self.do_rollback(dbapi_connection)
                raise
            if cursor.statusmessage != "COMMIT":
                raise psycopg2.errors.InFailedSqlTransaction("a statement before had failed: rolled back")

    def do_rollback(self, dbapi_connection: Any) -> None:
        """Roll back, if a transaction was begun; for a connection that is lost the server has done so."""
        if dbapi_connection.get_transaction_status() in (_IDLE, _UNKNOWN):
            return
        dbapi_connection.take_last()
        try:
            with dbapi_connection.cursor() as cursor:
                cursor.execute("ROLLBACK")
        except (psycopg2.OperationalError, psycopg2.InterfaceError):
            dbapi_connection.close()


def commit_with(connection: sa.Connection, insert: sa.TextClause, rows: Sequence[Mapping[str, Any]]) -> None:
    """Have the rows inserted by a statement that is sent together with the COMMIT that must follow now."""
    driver: Any = connection.connection.dbapi_connection
    begin, values = _parts(insert)
    with driver.cursor() as cursor:
        driver.keep_last(begin + b", ".join(cursor.mogrify(values, row) for row in rows))


@cache
def _parts(insert: sa.TextClause) -> tuple[bytes, str]:
    """Return an insert up to its values, and the values of one row, for the driver to fill in."""
    begin, word, values = str(insert.compile(dialect=Dialect())).partition("VALUES ")
    return (begin + word).encode(), values


sa.dialects.registry.register("postgresql.placement", __name__, "Dialect")


def engine_options(url: sa.URL) -> dict[str, Any]:
    """Return the options of an engine; the URL's settings of the transport win over the usual ones."""
    usual = {name: value for name, value in _TRANSPORT.items() if name not in url.query}
    return {"connect_args": {**usual, "connection_factory": WatchedConnection}}


def prepare(connection: Any, statement_seconds: float, lock_seconds: float) -> str:
    """Set up a new connection; return which server it is to (storage.history).

    It sends statements, because poolers refuse or drop start-up parameters.
    """
    settings = (
        f"SET statement_timeout = {_milliseconds(statement_seconds)}; "
        f"SET lock_timeout = {_milliseconds(lock_seconds)}; "
        # A session that has lost its client must not keep its locks for good.
        f"SET idle_in_transaction_session_timeout = {_milliseconds(STATEMENT_SECONDS)}; "
        "SET TimeZone = 'UTC'; SET plan_cache_mode = force_generic_plan; "
        # Without sequential scans, plans look so dear that a server would compile each look for 200 ms.
        "SET jit = off; "
    )
    with connection.cursor() as cursor:
        try:
            cursor.execute(settings + _IDENTITY)
        except psycopg2.errors.InsufficientPrivilege:
            cursor.execute(settings + _IDENTITY_WITHOUT_SYSTEM)
        return str(cursor.fetchone()[0])


def bounds(statement_seconds: float, lock_seconds: float) -> str:
    """Return the statements that limit one transaction, to be sent in one message with its beginning."""
    # A little later than a lock runs out, because that error says what was waited for.
    return (
        f"SET LOCAL statement_timeout = {_milliseconds(statement_seconds + _LATER_SECONDS)}; "
        f"SET LOCAL lock_timeout = {_milliseconds(lock_seconds)}"
    )


def _milliseconds(seconds: float) -> int:
    # 0 would mean: no limit.
    return max(1, round(seconds * 1000))


def connect_in_time(dialect: sa.Dialect, _record: Any, arguments: Sequence[Any], options: Any) -> Any:
    """Connect, and wait for it no longer than the request has, however many hosts there are to try.

    Less than two seconds for a host are too few for the driver. Raises an error of the driver.
    """
    if request_scope.is_over():
        raise psycopg2.OperationalError("there is no time left to connect in")
    seconds = request_scope.remaining() / (str(options.get("host", "")).count(",") + 1)
    allowed = str(options.get("connect_timeout", 0))
    # For the driver 0 means no limit; it refuses by itself a value that is no number.
    if allowed.isdecimal() and seconds < (int(allowed) or math.inf):
        options = {**options, "connect_timeout": max(_LEAST_CONNECT_SECONDS, int(seconds))}
    return dialect.connect(*arguments, **options)


def refuse_dead(dialect: sa.Dialect, connection: Any, idle_seconds: float) -> None:
    """Have the pool open another connection if this one was lost while it was idle for so long.

    A server that goes away closes its end, which shows without asking it. Raises InvalidatePoolError.
    """
    incoming = select.poll()
    try:
        # The driver has no file descriptor for a connection that it has closed itself.
        incoming.register(connection.fileno(), select.POLLIN)
        if idle_seconds < _FRESH_SECONDS and not incoming.poll(0):
            return
        patience, connection.patience = connection.patience, CONNECT_SECONDS
        dialect.do_ping(connection)
        connection.patience = patience
    except Exception as error:
        raise sa.exc.InvalidatePoolError from error


# The meaning of the errors of PostgreSQL and of its driver.


# SQLSTATE, whole or its class.
_STATES = {
    "40P01": CONCURRENT, "40001": CONCURRENT, "55P03": CONCURRENT, "55006": CONCURRENT,
    "23505": FASTER, "23503": FASTER,
    "57014": SLOW, "25P03": SLOW,
    "53100": FULL, "53300": NO_CONNECTION, "53": MEMORY, "54": MEMORY,
    "25006": READ_ONLY,
    "57P03": CHANGING, "57P": CHANGING,
    "3D000": MISSING, "28": LOGIN, "42501": RIGHTS,
    "42P01": TABLES, "42703": TABLES, "42883": TABLES, "3F000": TABLES,
    "26000": POOLER, "42P05": POOLER,
    "58": DAMAGED, "XX": DAMAGED, "08": GONE,
}  # fmt: skip
# A refused connection has no SQLSTATE for the driver; these are words of libpq and of English servers.
_WORDS = (
    (re.compile(r"too many (clients|connections)|connection slots|no more connections"), NO_CONNECTION),
    (re.compile(r"the database system is|not currently accepting connections"), CHANGING),
    (re.compile(r"database \"?.*\"? does not exist|no such database"), MISSING),
    (
        re.compile(
            r"authentication failed|role .* does not exist|no password supplied|no pg_hba\.conf entry|"
            r"not permitted to log in|permission denied for database"
        ),
        LOGIN,
    ),
    (re.compile(r"session is read-only|server is in hot standby mode"), READ_ONLY),
    (re.compile(r"unsupported startup parameter|prepared statement .* does not exist"), POOLER),
)  # fmt: skip
_OF_DRIVER = frozenset({"OperationalError", "InterfaceError", "InternalError", "DatabaseError"})
# The connection, the server, its files or its program failed, so it did not decide on what was sent.
_UNDECIDED = frozenset({"57", "08", "58", "XX"})


def diagnose(error: BaseException, *, is_lost: bool) -> Diagnosis | None:
    """Return what is wrong, None for a fault of ours; `is_lost`: the connection cannot be used any more."""
    state = _state(error)
    if state is not None:
        known = next((_STATES[key] for key in (state, state[:3], state[:2]) if key in _STATES), None)
        if known is not None:
            return known
    if is_lost or type(error).__name__ in _OF_DRIVER:
        return _of_words(str(error))
    return None


def _state(error: BaseException) -> str | None:
    return getattr(error, "pgcode", None)


def _of_words(words: str) -> Diagnosis:
    return next((diagnosis for pattern, diagnosis in _WORDS if pattern.search(words)), GONE)


def stays_broken(error: BaseException) -> bool:
    """Return whether the connection is of no use any more: another of several hosts may take writes now."""
    return _state(error) == "25006"


def leaves_in_doubt(error: BaseException) -> bool:
    """Return whether what was sent may be committed: the server has not reported that it refused."""
    state = _state(error)
    return state is None or state[:2] in _UNDECIDED
