"""An end to waiting for a database server that says nothing any more.

The driver waits inside of libpq, where nothing of Python can interrupt it. So every connection notes until
when its present statement may take, and one thread per process shuts the sockets of those that are past it.
The statement then fails as when the server had gone. TCP's own timeouts do not help here: a server that is
stopped or behind a dead proxy still acknowledges what it is sent.
"""

from __future__ import annotations

import math
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import psycopg2
import psycopg2.extensions

from placement.domain import deadline

# More than the server takes to end a statement by itself: if it is alive, its answer says more.
_PATIENCE_SECONDS = 35.0
# What the server gets beyond the deadline of the request, for the same reason.
GRACE_SECONDS = 2.0
_LOOK_SECONDS = 0.25


class WatchedConnection(psycopg2.extensions.connection):  # type: ignore[misc]
    """A connection whose statements come to an end: after `patience` seconds, or soon after the deadline."""

    patience = _PATIENCE_SECONDS

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.autocommit = True
        self.cursor_factory = WatchedCursor
        self.expires = math.inf
        self._last_statement = b""
        # A descriptor of our own for the same socket: libpq may close its own at any time, and the number
        # would then stand for something else.
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
        """Without the connection string, for that of the driver hides the password but no other secrets."""
        return f"<connection {id(self):#x}, closed: {self.closed}>"

    def keep_last(self, statement: bytes) -> None:
        """Keep a statement that is to be sent in one message with the end of the present transaction."""
        self._last_statement = statement

    def take_last(self) -> bytes:
        """The statement that was kept, once; empty if there is none."""
        last, self._last_statement = self._last_statement, b""
        return last

    def allow(self) -> None:
        """Note until when the statement that begins now may take."""
        now = time.monotonic()
        self.expires = min(now + self.patience, max(now, deadline.at()) + GRACE_SECONDS)

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
        # Without opening a descriptor: there may be none left, and the thread must not wait on.
        with suppress(OSError):
            line = socket.socket(fileno=self._line)
            try:
                line.shutdown(socket.SHUT_RDWR)
            finally:
                line.detach()


class WatchedCursor(psycopg2.extensions.cursor):  # type: ignore[misc]
    """A cursor whose statements are watched."""

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
                # Unless its statement came to an end in the meantime.
                if connection.expires < time.monotonic():
                    connection.cut()


_watch = _Watch()
