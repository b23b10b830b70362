"""PostgreSQL: a server that many processes share, which locks rows and stamps them with transaction ids."""

from __future__ import annotations

import math
import select
import sys
import time
from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import orjson
import psycopg2
import psycopg2.errors
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from placement.common import clock
from placement.engine.domain import request_scope
from placement.engine.forest.providers import NumberColumn
from placement.storage import tables
from placement.storage.backends import postgresql_claims
from placement.storage.backends.backend import Backend, SingleWrite, Stamped
from placement.storage.backends.postgresql_driver import GRACE_SECONDS, IS_COPIED, Dialect, WatchedConnection
from placement.storage.backends.postgresql_errors import diagnosis_of, is_undecided, state_of
from placement.storage.backends.postgresql_lookout import HORIZON, ServerLookout
from placement.storage.backends.urls import described_server
from placement.storage.claim_rows import NewClaims, NewPod
from placement.storage.failures import Diagnosis
from placement.storage.history import History
from placement.storage.tables import Revision

# The bounds of what is waited for.
STATEMENT_SECONDS = 30.0
_LOCK_SECONDS = 10.0
_CONNECT_SECONDS, _LEAST_CONNECT_SECONDS = 5, 2
# A little later than a lock runs out, because that error says what was waited for.
_LATER_SECONDS = 0.5
# A connection that was idle for longer is asked whether it still works; a shorter one if anything came in.
_FRESH_SECONDS = 10
# If one was silent, those that were idle meanwhile are asked, and not waited for long: others are answered.
_SILENT_SECONDS = 1
_TRANSPORT = {
    "connect_timeout": _CONNECT_SECONDS,
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    # For so many milliseconds the server may leave what was sent unacknowledged.
    "tcp_user_timeout": 10_000,
}
# The time there, and which server it is, for the history; also for a user that may not read the control file.
_IDENTITY, _IDENTITY_WITHOUT_SYSTEM = (
    f"SELECT extract(epoch FROM clock_timestamp()), concat_ws('/', {system}, "
    "(SELECT oid FROM pg_database WHERE datname = current_database()), "
    "extract(epoch FROM pg_postmaster_start_time()), "
    "extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time()))"
    for system in ("(SELECT system_identifier FROM pg_control_system())::text", "NULL")
)
# The row locks and conditional updates of a claim decide alone; a higher level would only add conflicts
# that a client would see although there is room.
_BEGIN_WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED"
_BEGIN_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_SESSION = "SELECT pg_backend_pid()"
_INTEGERS, _FLOAT = frozenset({"integer", "bigint"}), "double precision"


class PostgreSQL(Backend):
    """A database of a PostgreSQL server; see storage.backends.backend for the contracts."""

    name = "postgresql"
    is_embedded = False
    alters_by_copying = False
    has_pod_statement = True
    stamp = sa.func.pg_current_xact_id(type_=Revision())
    stamp_text = "pg_current_xact_id()"
    horizon = HORIZON
    # The moment is a snapshot of the transactions that were over: in whatever order they commit, none is
    # reported twice and none is missed.
    moment = "CAST(pg_current_snapshot() AS text)"
    is_later = (
        "{column} >= pg_snapshot_xmin(CAST(:since AS pg_snapshot)) "
        "AND NOT pg_visible_in_snapshot({column}, CAST(:since AS pg_snapshot))"
    )
    allocations_of = "LATERAL json_object_keys(CAST({column} AS json) -> 'allocations') AS entry(key)"

    def __init__(self, url: sa.URL, history: History, statement_seconds: float) -> None:
        """Take the URL; `statement_seconds`: how long a statement may take, if that is less than usual."""
        self._url = url
        self._history = history
        self._statement_seconds = min(statement_seconds, STATEMENT_SECONDS)
        self._lock_seconds = min(_LOCK_SECONDS, self._statement_seconds)
        self.where = described_server(url)
        self._found_silent_at = -math.inf

    # -- connections --------------------------------------------------------------------------------

    def engine_options(self) -> dict[str, Any]:
        """Return options in which the URL's settings of the transport win over the usual ones."""
        usual = {name: value for name, value in _TRANSPORT.items() if name not in self._url.query}
        return {"connect_args": {**usual, "connection_factory": WatchedConnection}}

    def connect(self, dialect: sa.Dialect, record: Any, arguments: Sequence[Any], options: Any) -> Any:
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

    def prepare(self, connection: Any) -> str:
        """Set the limits of a new connection by statements: poolers refuse or drop start-up parameters.

        The clock of the server comes with the answer.
        """
        settings = (
            f"SET statement_timeout = {_milliseconds(self._statement_seconds)}; "
            f"SET lock_timeout = {_milliseconds(self._lock_seconds)}; "
            # A session that has lost its client must not keep its locks for good.
            f"SET idle_in_transaction_session_timeout = {_milliseconds(STATEMENT_SECONDS)}; "
            "SET TimeZone = 'UTC'; SET plan_cache_mode = force_generic_plan; "
            # Without sequential scans, plans look so dear that a server would compile each look for 200 ms.
            "SET jit = off; "
        )
        with connection.cursor() as cursor:
            asked = time.monotonic()
            try:
                cursor.execute(settings + _IDENTITY)
            except psycopg2.errors.InsufficientPrivilege:
                cursor.execute(settings + _IDENTITY_WITHOUT_SYSTEM)
            seconds, identity = cursor.fetchone()
            clock.note_server(float(seconds), asked, time.monotonic())
            return str(identity)

    def is_present(self, opened: str) -> bool:
        """Return whether the newest connection of this process was to that server."""
        return self._history.is_present(opened)

    def refuse_dead(self, dialect: sa.Dialect, connection: Any, idle_seconds: float) -> None:
        """Raise InvalidatePoolError for a connection that was lost while it was idle.

        A server that goes away closes its end, which shows without asking it.
        """
        is_suspect = time.monotonic() - idle_seconds < self._found_silent_at
        incoming = select.poll()
        try:
            # The driver has no file descriptor for a connection that it has closed itself.
            incoming.register(connection.fileno(), select.POLLIN)
            if idle_seconds < _FRESH_SECONDS and not is_suspect and not incoming.poll(0):
                return
            seconds = _SILENT_SECONDS if is_suspect else _CONNECT_SECONDS
            patience, connection.patience = connection.patience, seconds
            dialect.do_ping(connection)
            connection.patience = patience
        except Exception as error:
            raise sa.exc.InvalidatePoolError from error

    def keeps_sessions(self, read: Callable[[], AbstractContextManager[sa.Connection]]) -> bool:
        """Return whether there is no pooler, or one that keeps a session beyond a transaction.

        A pooler of transactions gives the session that was just used to the next transaction.
        """
        with read() as one, read() as other:
            first, second = (connection.exec_driver_sql(_SESSION).scalar_one() for connection in (one, other))
            return bool(first != second and one.exec_driver_sql(_SESSION).scalar_one() == first)

    # -- transactions -------------------------------------------------------------------------------

    def begin_snapshot(self) -> str:
        """Return the beginning, with bounds of its own if the request is short or reading may be long."""
        seconds = request_scope.remaining(STATEMENT_SECONDS)
        if not self._is_hurried() and seconds <= self._statement_seconds:
            return _BEGIN_SNAPSHOT
        return f"{_BEGIN_SNAPSHOT}; {_bounds(seconds, self._lock_seconds)}"

    def begin_write(self, connection: sa.Connection) -> str:
        """Return the beginning, with the limits that the deadline of the request sets."""
        limits = self._limits()
        return f"{_BEGIN_WRITE}; {limits}" if limits else _BEGIN_WRITE

    def _limits(self) -> str:
        """Return the statements that limit a write to what the request has left; empty if that is enough."""
        if not self._is_hurried():
            return ""
        return _bounds(
            request_scope.remaining(self._statement_seconds), request_scope.remaining(self._lock_seconds)
        )

    def _is_hurried(self) -> bool:
        """Return whether the deadline comes before the server would end a statement by itself."""
        return request_scope.remaining(self._statement_seconds) + GRACE_SECONDS < self._statement_seconds

    def take_time(self, connection: sa.Connection) -> None:
        """Lift the limits of the server, except for locks; the driver keeps its own."""
        for limit in ("statement_timeout", "idle_in_transaction_session_timeout"):
            connection.exec_driver_sql(f"SET LOCAL {limit} = 0")

    def wait_briefly(self, connection: sa.Connection) -> None:
        connection.exec_driver_sql("SET LOCAL lock_timeout = '1s'")

    def run_last(
        self, connection: sa.Connection, insert: sa.TextClause, rows: Sequence[Mapping[str, Any]]
    ) -> None:
        """Send it together with the COMMIT that must follow now, in one round trip."""
        driver: Any = connection.connection.dbapi_connection
        begin, values = _parts(insert)
        with driver.cursor() as cursor:
            driver.last_statement = begin + b", ".join(cursor.mogrify(values, row) for row in rows)

    def is_writable(self, connection: sa.Connection) -> bool:
        """Return whether the server is neither a standby nor set to be read-only."""
        return bool(connection.exec_driver_sql("SHOW transaction_read_only").scalar_one() == "off")

    # -- errors of the driver -----------------------------------------------------------------------

    def diagnose(self, error: BaseException, *, is_lost: bool) -> Diagnosis | None:
        """Return the diagnosis of an error, by SQLSTATE and by words."""
        return diagnosis_of(error, is_lost=is_lost)

    def stays_broken(self, error: BaseException) -> bool:
        """Return whether this server takes no writes; another of the hosts may take them."""
        return state_of(error) == "25006"

    def leaves_in_doubt(self, error: BaseException) -> bool:
        """Return whether the server has not reported that it refused."""
        return is_undecided(error)

    # -- statements ---------------------------------------------------------------------------------

    def stamp_parameters(self, connection: sa.Connection) -> Mapping[str, int]:
        """Return no parameters: the server knows the id of the transaction."""
        return {}

    def forget_foreign_stamps(self, connection: sa.Connection, stamps: Sequence[sa.Column[int]]) -> None:
        """Re-stamp rows that carry transaction ids of another server."""
        for column in stamps:
            restamped = sa.update(column.table).where(column > self.stamp)
            connection.execute(restamped.values({column.name: self.stamp}))
        # The witness of the history: running processes take it for another database from now on.
        counter = tables.change_counter
        connection.execute(sa.update(counter).values(value=counter.c.value))

    @staticmethod
    def insert_or_ignore(table: sa.Table) -> Any:
        return postgresql.insert(table).on_conflict_do_nothing()

    @staticmethod
    def removable(statement: sa.Select[Any], stamp: sa.ColumnElement[int]) -> sa.Select[Any]:
        """Return the rows that are older than every running transaction, and that none is removing."""
        horizon = sa.func.pg_snapshot_xmin(sa.func.pg_current_snapshot(), type_=stamp.type)
        return statement.where(stamp < horizon).with_for_update(skip_locked=True)

    def lock_number(self, connection: sa.Connection, number: int, *, shared: bool) -> None:
        function = sa.func.pg_advisory_xact_lock_shared if shared else sa.func.pg_advisory_xact_lock
        connection.execute(sa.select(function(number)))

    @staticmethod
    def given_rows(name: str, columns: Mapping[str, str]) -> str:
        """Return the rows as one array for each column."""
        arrays = ", ".join(f"CAST(:{column} AS {type_}[])" for column, type_ in columns.items())
        return f"unnest({arrays}) AS {name}({', '.join(columns)})"

    @staticmethod
    def row_parameters(columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """Return the rows by column, each a text: many values would be parsed and planned one by one."""
        given = zip(columns.items(), zip(*rows, strict=True), strict=True)
        return {name: _array(values, type_) for (name, type_), values in given}

    def claim_at_once(
        self, single_write: Callable[[], AbstractContextManager[SingleWrite]], claims: NewClaims
    ) -> bool:
        with single_write() as write:
            return postgresql_claims.claim(write, claims, self._limits())

    def place_at_once(
        self, single_write: Callable[[], AbstractContextManager[SingleWrite]], pod: NewPod
    ) -> Stamped | None:
        with single_write() as write:
            return postgresql_claims.place(write, pod, self._limits())

    # -- reading very many rows ---------------------------------------------------------------------

    @staticmethod
    def among(column: sa.ColumnElement[Any], values: Sequence[int] | Sequence[str]) -> sa.ColumnElement[bool]:
        """Return a comparison with an array as one text: to plan a list takes as long as to read the rows."""
        kind, name = (
            (sa.Integer, "integer") if isinstance(column.type, sa.Integer) else (sa.String, "varchar")
        )
        text = sa.literal(_array(values, name), sa.Text)
        return column == sa.any_(sa.cast(text, postgresql.ARRAY(kind)))

    def columns(self, connection: sa.Connection, statement: sa.Select[Any]) -> list[NumberColumn]:
        """Read each column as one value, of the server's bytes: no row becomes an object."""
        rows = statement.subquery()
        is_float = [isinstance(column.type, sa.Float) for column in rows.c]
        packed = [
            sa.func.string_agg(
                sa.func.float8send(column) if floats else sa.func.int8send(sa.cast(column, sa.BigInteger)),
                sa.literal(b""),
            )
            for column, floats in zip(rows.c, is_float, strict=True)
        ]
        found: list[NumberColumn] = [array("d") if floats else array("q") for floats in is_float]
        values = connection.execute(sa.select(*packed), execution_options={IS_COPIED: True}).one()
        for numbers, value in zip(found, values, strict=True):
            # The bytes come with the highest first; None if there are no rows.
            numbers.frombytes(value or b"")
            if sys.byteorder == "little":
                numbers.byteswap()
        return found

    def lookout(self, connection: sa.Connection, is_answering: Callable[[], bool]) -> ServerLookout:
        def are_others_answered() -> bool:
            if not is_answering():
                return False
            self._found_silent_at = time.monotonic()
            return True

        return ServerLookout(connection, are_others_answered)


def _bounds(statement_seconds: float, lock_seconds: float) -> str:
    """Return the statements that limit one transaction, to be sent in one message with its beginning."""
    return (
        f"SET LOCAL statement_timeout = {_milliseconds(statement_seconds + _LATER_SECONDS)}; "
        f"SET LOCAL lock_timeout = {_milliseconds(lock_seconds)}"
    )


def _milliseconds(seconds: float) -> int:
    # 0 would mean: no limit.
    return max(1, round(seconds * 1000))


@cache
def _parts(insert: sa.TextClause) -> tuple[bytes, str]:
    """Return an insert up to its values, and the values of one row, for the driver to fill in."""
    begin, word, values = str(insert.compile(dialect=Dialect())).partition("VALUES ")
    return (begin + word).encode(), values


def _array(values: Iterable[Any], type_: str) -> str:
    """Return an array of numbers or texts as the server reads it.

    Source: PostgreSQL documentation, "Array Value Input".
    """
    # JSON is written ten times as fast, but has no word for infinite floats.
    if type_ in _INTEGERS:
        return f"{{{orjson.dumps(list(values))[1:-1].decode()}}}"
    if type_ == _FLOAT:
        return f"{{{','.join(map(str, values)).replace('None', 'NULL')}}}"
    return f"{{{','.join(map(_element, values))}}}"


def _element(text: str | None) -> str:
    if text is None:
        return "NULL"
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
