"""PostgreSQL: a server that many processes share, which locks rows and stamps them with transaction ids."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar
from uuid import uuid4

import orjson
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from placement.engine.domain import request_scope
from placement.engine.forest.providers import NumberColumn
from placement.storage import records, tables
from placement.storage.backends import postgresql_claims, postgresql_driver
from placement.storage.backends.backend import SingleWrite, Stamped, described_server
from placement.storage.backends.postgresql_driver import GRACE_SECONDS, STATEMENT_SECONDS
from placement.storage.failures import Diagnosis
from placement.storage.history import History
from placement.storage.types import Revision

# The questions to PostgreSQL about changes: statements that are prepared once in each session that looks.


# A look is quick; one that takes longer may wait on a dead connection.
_QUICK_SECONDS = 5.0
# The witness of storage.history. On PostgreSQL the only row of this table never changes.
_WITNESS = (
    "SELECT 'history' AS kind, 0 AS reference, xmin::text::bigint AS revision, 0 AS root, "
    "tableoid::bigint AS cluster FROM change_counter"
)
_LOOK = f"""
    SELECT 'horizon' AS kind, 0 AS reference,
           pg_snapshot_xmin(pg_current_snapshot())::text::bigint AS revision, 0 AS root, 0::bigint AS cluster
    UNION ALL
    {_WITNESS}
    UNION ALL
    SELECT 'changed', id, revision::text::bigint, root_provider_id, cluster_id
      FROM resource_providers WHERE revision >= $1
    UNION ALL
    SELECT kind, reference, revision::text::bigint, 0, 0 FROM changes WHERE revision >= $1
    UNION ALL
    SELECT 'rules', id, rules_generation::bigint, 0, 0
      FROM clusters WHERE id = ANY($2) AND rules_generation > 0
"""


def _is_given(column: sa.ColumnElement[int]) -> sa.ColumnElement[bool]:
    return column == sa.any_(sa.literal_column("$1"))


def _text(statement: sa.CompoundSelect[Any]) -> str:
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    return str(statement.compile(dialect=dialect, compile_kwargs={"literal_binds": True}))


_RECORDS = _text(records.statement(_is_given))
_NODE_PARTS = records.together(_is_given, sa.literal_column("$2", sa.Integer))
_NODES = _text(_NODE_PARTS.statement)
HORIZON = f"""
    SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint, revision, cluster
      FROM (SELECT 1) AS one LEFT JOIN ({_WITNESS}) AS witness ON true
"""
"""The value of `horizon` in storage.backends.backend."""


class ServerLookout:
    """A session that has the statements of looks prepared: planning them would cost more than running them.

    Each write stamps the providers it touches with its transaction id. A look remembers the oldest
    transaction that was still running (the horizon); whatever becomes visible later carries that stamp or a
    newer one, in whatever order the writers commit. Rows may be reported twice, never missed.
    """

    def __init__(self, connection: sa.Connection) -> None:
        # The names are of one session, so that a pooler cannot have another session answer.
        name = uuid4().hex
        # Few rows are ever new, whatever statistics from before a bulk load say. Where many are, parallel
        # workers of the server would take longer to begin than to help.
        connection.exec_driver_sql(
            "SET enable_seqscan = off; SET max_parallel_workers_per_gather = 0; "
            f"PREPARE placement_look_{name}(xid8, integer[]) AS {_LOOK}; "
            f"PREPARE placement_records_{name}(integer[]) AS {_RECORDS}; "
            f"PREPARE placement_nodes_{name}(integer[], integer) AS {_NODES}"
        )
        self._driver: Any = connection.connection.dbapi_connection
        self._look = f"EXECUTE placement_look_{name}(%s, %s)"
        self._records = f"EXECUTE placement_records_{name}(%s)"
        self._nodes = f"EXECUTE placement_nodes_{name}(%s, %s)"

    def rows(self, horizon: int, clusters: Sequence[int], *, is_quick: bool) -> Sequence[Any]:
        """Return the rows of a look (storage.feed). Raises errors of the driver."""
        usual = self._driver.patience
        if is_quick:
            self._driver.patience = _QUICK_SECONDS
        try:
            return self._asked(self._look, str(int(horizon)), list(clusters))
        finally:
            self._driver.patience = usual

    def records(self, ids: Sequence[int]) -> Sequence[Any]:
        """Return the rows of some providers (storage.records). Raises errors of the driver."""
        return self._asked(self._records, list(ids))

    def node_parts(self, cluster_id: int, roots: Collection[int]) -> Sequence[Sequence[Any]]:
        """Return the rows of each part of nodes (storage.records). Raises errors of the driver."""
        return _NODE_PARTS.parted(self._asked(self._nodes, list(roots), cluster_id))

    def _asked(self, statement: str, *parameters: object) -> Sequence[Any]:
        # Every search looks; asking the driver itself takes half of the time.
        with self._driver.cursor() as cursor:
            cursor.execute(statement, parameters)
            found: Sequence[Any] = cursor.fetchall()
        return found


_LOCK_SECONDS = 10.0
# While a statement waits for a table, all later ones wait, too.
_BRIEF_LOCK_SECONDS = 1
# The row locks and conditional updates of a claim decide alone; a higher level would only add conflicts
# that a client would see although there is room.
_BEGIN_WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED"
_BEGIN_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_SESSION = "SELECT pg_backend_pid()"
_INTEGERS, _FLOAT = frozenset({"integer", "bigint"}), "double precision"
_UNBOUNDED: AbstractContextManager[None] = nullcontext()


class PostgreSQL:
    """A database of a PostgreSQL server; see storage.backends.backend for the contracts."""

    is_embedded: ClassVar[bool] = False
    alters_by_copying: ClassVar[bool] = False
    has_claim_statement: ClassVar[bool] = True
    stamp: ClassVar[sa.ColumnElement[int]] = sa.func.pg_current_xact_id(type_=Revision())
    stamp_text: ClassVar[str] = "pg_current_xact_id()"
    horizon: ClassVar[str] = HORIZON
    # The moment is a snapshot of the transactions that were over: in whatever order they commit, none is
    # reported twice and none is missed.
    moment: ClassVar[str] = "CAST(pg_current_snapshot() AS text)"
    is_later: ClassVar[str] = (
        "{column} >= pg_snapshot_xmin(CAST(:since AS pg_snapshot)) "
        "AND NOT pg_visible_in_snapshot({column}, CAST(:since AS pg_snapshot))"
    )

    def __init__(self, url: sa.URL, history: History, statement_seconds: float) -> None:
        """Take the URL; `statement_seconds`: how long a statement may take, if that is less than usual."""
        self._url = url
        self._history = history
        self._statement_seconds = min(statement_seconds, STATEMENT_SECONDS)
        self._lock_seconds = min(_LOCK_SECONDS, self._statement_seconds)

    @property
    def where(self) -> str:
        """Return which database it is, for people."""
        return described_server(self._url)

    # -- connections --------------------------------------------------------------------------------

    def engine_options(self) -> dict[str, Any]:
        """Return the options of an engine for it."""
        return postgresql_driver.engine_options(self._url)

    def connect(self, dialect: sa.Dialect, record: Any, arguments: Sequence[Any], options: Any) -> Any:
        """Open a connection in the time that the request has."""
        return postgresql_driver.connect_in_time(dialect, record, arguments, options)

    def prepare(self, connection: Any) -> str:
        """Set the limits of a new connection; return which server it is to."""
        return postgresql_driver.prepare(connection, self._statement_seconds, self._lock_seconds)

    def is_present(self, opened: str) -> bool:
        """Return whether the newest connection of this process was to that server."""
        return self._history.is_present(opened)

    def refuse_dead(self, dialect: sa.Dialect, connection: Any, idle_seconds: float) -> None:
        """Raise InvalidatePoolError for a connection that was lost while it was idle."""
        postgresql_driver.refuse_dead(dialect, connection, idle_seconds)

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
        if not self._is_hurried() and self._statement_seconds == STATEMENT_SECONDS:
            return _BEGIN_SNAPSHOT
        seconds = request_scope.remaining(STATEMENT_SECONDS)
        return f"{_BEGIN_SNAPSHOT}; {postgresql_driver.bounds(seconds, self._lock_seconds)}"

    def alone(self) -> AbstractContextManager[None]:
        """Return an empty block: writers lock rows and need not be alone."""
        return _UNBOUNDED

    def begin_write(self, connection: sa.Connection) -> str:
        """Return the beginning, with the limits that the deadline of the request sets."""
        limits = self._limits()
        return f"{_BEGIN_WRITE}; {limits}" if limits else _BEGIN_WRITE

    def _limits(self) -> str:
        """Return the statements that limit a write to what the request has left; empty if that is enough."""
        if not self._is_hurried():
            return ""
        return postgresql_driver.bounds(
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
        """Wait no longer than a second for each lock."""
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_BRIEF_LOCK_SECONDS}s'")

    def run_last(
        self, connection: sa.Connection, insert: sa.TextClause, rows: Sequence[Mapping[str, Any]]
    ) -> None:
        """Send it with the commit, in one round trip."""
        postgresql_driver.commit_with(connection, insert, rows)

    def confirm(self, connection: sa.Connection) -> None:
        """Do nothing: the server has confirmed that it is stored."""

    def is_writable(self, connection: sa.Connection) -> bool:
        """Return whether the server is neither a standby nor set to be read-only."""
        return bool(connection.exec_driver_sql("SHOW transaction_read_only").scalar_one() == "off")

    # -- errors of the driver -----------------------------------------------------------------------

    def diagnose(self, error: BaseException, *, is_lost: bool) -> Diagnosis | None:
        """Return what is wrong, by SQLSTATE and by words."""
        return postgresql_driver.diagnose(error, is_lost=is_lost)

    def stays_broken(self, error: BaseException) -> bool:
        """Return whether this server takes no writes; another of the hosts may take them."""
        return postgresql_driver.stays_broken(error)

    def leaves_in_doubt(self, error: BaseException) -> bool:
        """Return whether the error leaves open if the server had committed."""
        return postgresql_driver.leaves_in_doubt(error)

    # -- statements ---------------------------------------------------------------------------------

    def stamp_parameters(self, connection: sa.Connection) -> Mapping[str, int]:
        """Return no parameters: the server knows the id of the transaction."""
        return {}

    def stamp_with(self, parameters: Mapping[str, int]) -> sa.ColumnElement[int]:
        """Return the id of the transaction."""
        return self.stamp

    def forget_foreign_stamps(self, connection: sa.Connection, stamps: Sequence[sa.Column[int]]) -> None:
        """Re-stamp rows that carry transaction ids of another server."""
        for column in stamps:
            restamped = sa.update(column.table).where(column > self.stamp)
            connection.execute(restamped.values({column.name: self.stamp}))
        # The witness of storage.history: running processes take it for another database from now on.
        counter = tables.change_counter
        connection.execute(sa.update(counter).values(value=counter.c.value))

    @staticmethod
    def insert_or_ignore(table: sa.Table) -> Any:
        """Return an insert that skips rows with a unique key that exists."""
        return postgresql.insert(table).on_conflict_do_nothing()

    @staticmethod
    def locked(statement: sa.Select[Any], *, may_be_referred_to: bool = False) -> sa.Select[Any]:
        """Return the query with its rows locked until the end."""
        return statement.with_for_update(key_share=may_be_referred_to)

    @staticmethod
    def removable(statement: sa.Select[Any], stamp: sa.ColumnElement[int]) -> sa.Select[Any]:
        """Return the rows that are older than every running transaction, and that none is removing."""
        horizon = sa.func.pg_snapshot_xmin(sa.func.pg_current_snapshot(), type_=stamp.type)
        return statement.where(stamp < horizon).with_for_update(skip_locked=True)

    def lock_number(self, connection: sa.Connection, number: int, *, shared: bool) -> None:
        """Take an advisory lock."""
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
        self,
        single_write: Callable[[], AbstractContextManager[SingleWrite]],
        values: Sequence[Any],
    ) -> bool:
        """Write the claim in one round trip."""
        with single_write() as write:
            return postgresql_claims.claim(write, values, self._limits())

    def place_at_once(
        self,
        single_write: Callable[[], AbstractContextManager[SingleWrite]],
        values: Sequence[Any],
    ) -> Stamped | None:
        """Write the pod in one round trip."""
        with single_write() as write:
            return postgresql_claims.place(write, values, self._limits())

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
        found = connection.execute(sa.select(*packed)).one()
        return [_unpacked(value, floats) for value, floats in zip(found, is_float, strict=True)]

    # -- looking at what changed --------------------------------------------------------------------

    def lookout(self, connection: sa.Connection) -> ServerLookout:
        """Return a session with the statements of looks."""
        return ServerLookout(connection)

    # -- life ---------------------------------------------------------------------------------------

    def exists(self) -> bool:
        """Return True: only a connection can find out."""
        return True

    def create(self) -> None:
        """Do nothing: the operator of a server creates its databases."""


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


def _unpacked(value: bytes | None, is_float: bool) -> NumberColumn:
    """Return numbers from the bytes that a server sends, the highest first; None: there are none."""
    numbers: NumberColumn = array("d") if is_float else array("q")
    numbers.frombytes(value or b"")
    if sys.byteorder == "little":
        numbers.byteswap()
    return numbers
