"""The driver of PostgreSQL: how connections are opened, and how transactions end on them.

Connections are in autocommit mode all their lives, and transactions are begun and ended by statements that
say all there is to say. So returning a connection to the pool sends nothing, and cannot fail.

Waiting for a database server that says nothing any more has an end. The driver waits inside of libpq, where
nothing of Python can interrupt it. So every connection notes until when its present statement may run, and
one thread per process shuts the sockets of late connections. The statement then fails as when the server had
gone. TCP's own timeouts do not help here: a server that is stopped or behind a dead proxy still acknowledges
what it is sent.

A quick statement, such as a look at what changed, takes a millisecond. After two seconds it is doubted: if a
new connection is answered meanwhile, the silent one is cut. A server that is stopped answers neither.
"""

from __future__ import annotations

import io
import math
import os
import socket
import struct
import threading
import time
import uuid
import weakref
from collections.abc import Callable
from contextlib import suppress
from operator import itemgetter
from typing import Any

import psycopg2
import psycopg2.errors
import psycopg2.extensions
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql.psycopg2 import PGDialect_psycopg2, PGExecutionContext_psycopg2

from placement.engine.domain import request_scope

# Longer than the server takes to end a statement by itself: if it is alive, its answer says more.
_PATIENCE_SECONDS = 35.0
# The time that the server gets beyond the deadline of the request, so that it can answer.
GRACE_SECONDS = 2.0
_QUICK_SECONDS = 2.0
_LOOK_SECONDS = 0.25


class WatchedConnection(psycopg2.extensions.connection):  # type: ignore[misc]
    """A connection that ends its statements after `patience` seconds, or soon after the deadline."""

    patience = _PATIENCE_SECONDS
    # Whether the statements that begin now are quick ones.
    is_quick = False

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.autocommit = True
        self.cursor_factory = WatchedCursor
        self.expires = self.doubted = math.inf
        # Asked about a quick statement without an answer: whether others are answered.
        self.are_others_answered: Callable[[], bool] = bool
        # To be sent in one message with the end of the present transaction.
        self.last_statement = b""
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

    def take_last(self) -> bytes:
        """Return the last statement, once. The pool's stand-in for a connection passes on no assignment."""
        last, self.last_statement = self.last_statement, b""
        return last

    def allow(self) -> None:
        """Note until when the statement that begins now may run, and from when it is doubted."""
        now = time.monotonic()
        if self.is_quick:
            self.doubted = now + _QUICK_SECONDS
        self.expires = min(now + self.patience, max(now, request_scope.deadline()) + GRACE_SECONDS)

    def close(self) -> None:
        super().close()
        with _watch.lock:
            self._line = None
            self._let_go()

    def cut(self) -> None:
        """Shut the socket, which ends all waiting for it; the caller holds the lock of the watch."""
        self.expires = self.doubted = math.inf
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
        self._watched(super().execute, query, vars)

    def executemany(self, query: Any, vars_list: Any) -> None:
        self._watched(super().executemany, query, vars_list)

    def _watched(self, run: Callable[[Any, Any], None], query: Any, given: Any) -> None:
        connection: Any = self.connection
        connection.allow()
        try:
            run(query, given)
        finally:
            connection.expires = connection.doubted = math.inf


class _Watch:
    """The thread that looks after all connections of this process."""

    def __init__(self) -> None:
        # Reentrant: the collector of garbage may close a connection while this thread holds the lock.
        self.lock = threading.RLock()
        self._connections: weakref.WeakSet[WatchedConnection] = weakref.WeakSet()
        self._thread: threading.Thread | None = None
        self._doubt: threading.Thread | None = None

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
            self._cut_expired()
            self._settle_doubt()

    def _cut_expired(self) -> None:
        # Apart from the loop, which would keep the last connections from being collected while it sleeps.
        now = time.monotonic()
        with self.lock:
            expired = [connection for connection in self._connections if connection.expires < now]
        for connection in expired:
            with self.lock:
                # Its statement may have ended in the meantime.
                if connection.expires < time.monotonic():
                    connection.cut()

    def _settle_doubt(self) -> None:
        """Ask about the statement that is doubted longest; about one at a time, as all may be slow."""
        if self._doubt is not None and self._doubt.is_alive():
            return
        with self.lock:
            doubts = [(each.doubted, each) for each in self._connections]
        since, connection = min(doubts, key=itemgetter(0), default=(math.inf, None))
        if since < time.monotonic():
            doubt = threading.Thread(
                target=self._cut_silent, args=(connection, since), name="database doubt", daemon=True
            )
            # Without room for one more thread it is tried again when this one looks next.
            with suppress(RuntimeError):
                doubt.start()
                self._doubt = doubt

    def _cut_silent(self, connection: WatchedConnection, since: float) -> None:
        if connection.are_others_answered():
            with self.lock:
                # Its statement may have ended, and another one begun.
                if connection.doubted == since:
                    connection.cut()


_watch = _Watch()


_FIRST_ROWS = 1000
_IDLE = psycopg2.extensions.TRANSACTION_STATUS_IDLE
_UNKNOWN = psycopg2.extensions.TRANSACTION_STATUS_UNKNOWN


class StreamingCursor(WatchedCursor):
    """A cursor that has the server keep the rows until they are asked for; it ends with the transaction.

    The driver's own named cursors insist on transactions of the driver's making.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._rows = f"placement_rows_{uuid.uuid4().hex}"
        self._is_at_end = False

    def execute(self, query: Any, vars: Any = None) -> None:
        text = query.decode() if isinstance(query, bytes) else query
        fetch = f"FETCH FORWARD {_FIRST_ROWS} FROM {self._rows}"
        super().execute(f"DECLARE {self._rows} NO SCROLL CURSOR FOR {text}; {fetch}", vars)

    def fetchmany(self, size: int | None = None) -> list[tuple[Any, ...]]:
        wanted = self.arraysize if size is None else size
        rows: list[tuple[Any, ...]] = super().fetchmany(wanted)
        if not rows and not self._is_at_end:
            super().execute(f"FETCH FORWARD {wanted} FROM {self._rows}")
            rows = super().fetchmany(wanted)
            self._is_at_end = not rows
        return rows

    def fetchone(self) -> tuple[Any, ...] | None:
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchall(self) -> list[tuple[Any, ...]]:
        found = []
        while rows := self.fetchmany(_FIRST_ROWS):
            found += rows
        return found


IS_COPIED = "placement_is_copied"
"""The execution option of queries for a `CopyingCursor`."""
_COPY_HEADER = struct.Struct("!11sii")
_COUNT, _LENGTH = struct.Struct("!h"), struct.Struct("!i")


class CopyingCursor(WatchedCursor):
    """A cursor for a query of one row: the server copies out its values as the bytes that they are.

    The driver gets bytes as text, which is twice as long, takes the server twice as long to write, and may
    not be longer than 1 GiB. Source: PostgreSQL documentation, "COPY", "Binary Format".
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._values: list[tuple[memoryview | None, ...]] = []
        self._names: list[tuple[Any, ...]] | None = None

    @property
    def description(self) -> list[tuple[Any, ...]] | None:
        """Return a description of each column, as the driver does, with a number for a name."""
        return self._names

    def execute(self, query: Any, vars: Any = None) -> None:
        content = io.BytesIO()
        copy = b"COPY (" + self.mogrify(query, vars) + b") TO STDOUT (FORMAT binary)"
        self._watched(self.copy_expert, copy, content)
        values = _copied_values(content.getbuffer())
        self._names = [(f"column_{number}", *[None] * 6) for number, _ in enumerate(values)]
        self._values = [values]

    def fetchone(self) -> tuple[memoryview | None, ...] | None:
        return self._values.pop() if self._values else None


def _copied_values(content: memoryview) -> tuple[memoryview | None, ...]:
    """Return the values of the first row of a copy in binary format."""
    place = _COPY_HEADER.size + _COPY_HEADER.unpack_from(content)[2]
    (count,) = _COUNT.unpack_from(content, place)
    place += _COUNT.size
    values: list[memoryview | None] = []
    for _ in range(count):
        (length,) = _LENGTH.unpack_from(content, place)
        place += _LENGTH.size
        # A null has the length -1 and no bytes.
        values.append(None if length < 0 else content[place : place + length])
        place += max(length, 0)
    return tuple(values)


class _Execution(PGExecutionContext_psycopg2):
    def create_default_cursor(self) -> Any:
        if self.execution_options.get(IS_COPIED):
            return self._dbapi_connection.cursor(cursor_factory=CopyingCursor)
        return super().create_default_cursor()

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


sa.dialects.registry.register("postgresql.placement", __name__, "Dialect")
