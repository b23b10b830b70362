"""The driver of PostgreSQL: how connections are opened, and how transactions end on them.

Connections are in autocommit mode all their lives, and transactions are begun and ended by statements that
say all there is to say. So returning a connection to the pool sends nothing, and cannot fail.
"""

from __future__ import annotations

import math
import select
import uuid
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import psycopg2
import psycopg2.errors
import psycopg2.extensions
import sqlalchemy as sa
from sqlalchemy.dialects.postgresql.psycopg2 import PGDialect_psycopg2, PGExecutionContext_psycopg2

from placement.domain import deadline
from placement.storage.backends.silence import WatchedConnection, WatchedCursor

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
# Which server it is: see storage.changes.history.
_IDENTITY = f"SELECT {_PLACE.format(system=_SYSTEM)}"
# Where this user may not read the control file.
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
        """The next rows, none at the end."""
        wanted = self.arraysize if size is None else size
        rows: list[tuple[Any, ...]] = super().fetchmany(wanted)
        if not rows and not self._is_at_end:
            super().execute(f"FETCH FORWARD {wanted} FROM {self._rows}")
            rows = super().fetchmany(wanted)
            self._is_at_end = not rows
        return rows

    def fetchone(self) -> tuple[Any, ...] | None:
        """The next row, None at the end."""
        rows = self.fetchmany(1)
        return rows[0] if rows else None

    def fetchall(self) -> list[tuple[Any, ...]]:
        """All rows that are left."""
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
        """Nothing: the backend's statements begin transactions."""

    def do_commit(self, dbapi_connection: Any) -> None:
        """Commit, if a transaction was begun. Raises an error of the driver if it had failed before."""
        if dbapi_connection.get_transaction_status() == _IDLE:
            return
        last = dbapi_connection.take_last()
        with dbapi_connection.cursor() as cursor:
            try:
                cursor.execute(last + b"; COMMIT" if last else "COMMIT")
            except psycopg2.Error:
                # If what came before it failed there was no COMMIT, and nobody else would end this.
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
    """An insert up to its values, and the values of one row, for the driver to fill in."""
    begin, word, values = str(insert.compile(dialect=Dialect())).partition("VALUES ")
    return (begin + word).encode(), values


sa.dialects.registry.register("postgresql.placement", __name__, "Dialect")


def engine_options(url: sa.URL) -> dict[str, Any]:
    """How to make an engine: what the URL says about the transport wins over what is usual here."""
    usual = {name: value for name, value in _TRANSPORT.items() if name not in url.query}
    return {"connect_args": {**usual, "connection_factory": WatchedConnection}}


def prepare(connection: Any, statement_seconds: float, lock_seconds: float) -> str:
    """Set up a new connection; which server it is to (storage.changes.history).

    By statements, not by start-up parameters, which poolers refuse or drop.
    """
    settings = (
        f"SET statement_timeout = {_milliseconds(statement_seconds)}; "
        f"SET lock_timeout = {_milliseconds(lock_seconds)}; "
        # A session whose client cannot be heard any more must not keep its locks for good.
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
    """The statements that limit one transaction, to be sent in one message with its beginning."""
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
    if deadline.is_over():
        raise psycopg2.OperationalError("there is no time left to connect in")
    seconds = deadline.remaining() / (str(options.get("host", "")).count(",") + 1)
    allowed = str(options.get("connect_timeout", 0))
    # For the driver 0 means no limit; it refuses by itself what is no number.
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
