"""PostgreSQL: a server that many processes share, which locks rows and stamps them with transaction ids."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar
from uuid import uuid4

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from placement.domain import deadline
from placement.storage import tables as _tables
from placement.storage.backends import postgresql_claims, postgresql_driver, postgresql_failures
from placement.storage.backends.backend import SingleWrite, Stamped
from placement.storage.backends.postgresql_driver import STATEMENT_SECONDS
from placement.storage.backends.silence import GRACE_SECONDS
from placement.storage.backends.types import Revision
from placement.storage.backends.urls import described_server
from placement.storage.changes.history import History
from placement.storage.failures import Diagnosis

# A look is quick; one that takes longer may wait on a dead connection.
_QUICK_SECONDS = 5.0
# The witness of storage.changes.history. On PostgreSQL the only row of this table never changes.
_WITNESS = (
    "SELECT 'history' AS kind, 0 AS reference, xmin::text::bigint AS revision, 0 AS root, "
    "tableoid::bigint AS cluster FROM change_counter"
)
# Prepared once per connection: planning it would cost more than running it. Its name is that of one session,
# so that a pooler cannot have another one answer.
_PREPARE = f"""
    PREPARE {{name}}(xid8) AS
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
    SELECT 'rules', id, rules_generation::bigint, 0, 0 FROM clusters WHERE rules_generation > 0
"""
_HORIZON = f"""
    SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint, revision, cluster
      FROM (SELECT 1) AS one LEFT JOIN ({_WITNESS}) AS witness ON true
"""
_LOCK_SECONDS = 10.0
# The row locks and conditional updates of a claim decide alone; a higher level would only add conflicts
# that a client would see although there is room.
_BEGIN_WRITE = "BEGIN ISOLATION LEVEL READ COMMITTED"
_BEGIN_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
_SESSION = "SELECT pg_backend_pid()"
_UNBOUNDED: AbstractContextManager[None] = nullcontext()


class ServerLookout:
    """A session that has the statement of a look prepared.

    Each write stamps the providers it touches with its transaction id. A look remembers the oldest
    transaction that was still running (the horizon); whatever becomes visible later carries that stamp or a
    newer one, in whatever order the writers commit. Rows may be reported twice, never missed.
    """

    def __init__(self, connection: sa.Connection) -> None:
        name = f"placement_look_{uuid4().hex}"
        # Few rows are ever new, whatever statistics from before a bulk load say.
        connection.exec_driver_sql("SET enable_seqscan = off")
        connection.exec_driver_sql(_PREPARE.format(name=name))
        self._connection = connection
        self._statement = f"EXECUTE {name}(%s)"

    def rows(self, horizon: int, *, is_quick: bool) -> Sequence[Any]:
        """The rows of a look (storage.changes.feed). Raises errors of SQLAlchemy and of the driver."""
        driver: Any = self._connection.connection.dbapi_connection
        usual = driver.patience
        if is_quick:
            driver.patience = _QUICK_SECONDS
        try:
            # Every search looks; asking the driver itself takes half of the time.
            with driver.cursor() as cursor:
                cursor.execute(self._statement, (str(int(horizon)),))
                found: Sequence[Any] = cursor.fetchall()
        finally:
            driver.patience = usual
        return found


class PostgreSQL:
    """One database of a PostgreSQL server; see storage.backends.backend for the contracts."""

    is_embedded: ClassVar[bool] = False
    alters_by_copying: ClassVar[bool] = False
    stamp: ClassVar[sa.ColumnElement[int]] = sa.func.pg_current_xact_id(type_=Revision())
    stamp_text: ClassVar[str] = "pg_current_xact_id()"
    horizon: ClassVar[str] = _HORIZON
    # Which transactions were over and which were not: whatever order they commit in, none is told of twice,
    # and none is missed.
    moment: ClassVar[str] = "CAST(pg_current_snapshot() AS text)"
    is_later: ClassVar[str] = (
        "{column} >= pg_snapshot_xmin(CAST(:since AS pg_snapshot)) "
        "AND NOT pg_visible_in_snapshot({column}, CAST(:since AS pg_snapshot))"
    )

    def __init__(self, url: sa.URL, history: History, statement_seconds: float) -> None:
        """`statement_seconds`: how long a statement may take, if that is less than usual."""
        self._url = url
        self._history = history
        self._statement_seconds = min(statement_seconds, STATEMENT_SECONDS)
        self._lock_seconds = min(_LOCK_SECONDS, self._statement_seconds)

    @property
    def where(self) -> str:
        """Which database it is, for people."""
        return described_server(self._url)

    # -- connections --------------------------------------------------------------------------------

    def engine_options(self) -> dict[str, Any]:
        """How to make an engine for it."""
        return postgresql_driver.engine_options(self._url)

    def connect(self, dialect: sa.Dialect, record: Any, arguments: Sequence[Any], options: Any) -> Any:
        """A new connection, made in the time that the request has."""
        return postgresql_driver.connect_in_time(dialect, record, arguments, options)

    def prepare(self, connection: Any) -> str:
        """Set the limits of a new connection; which server it is to."""
        return postgresql_driver.prepare(connection, self._statement_seconds, self._lock_seconds)

    def is_present(self, opened: str) -> bool:
        """Whether the newest connection of this process was to that server."""
        return self._history.is_present(opened)

    def refuse_dead(self, dialect: sa.Dialect, connection: Any, idle_seconds: float) -> None:
        """Raises InvalidatePoolError for a connection that was lost while it was idle."""
        postgresql_driver.refuse_dead(dialect, connection, idle_seconds)

    def keeps_sessions(self, read: Callable[[], AbstractContextManager[sa.Connection]]) -> bool:
        """Whether there is no pooler, or one that hands sessions out for longer than a transaction.

        One that hands them out for a transaction gives the session that was just used to the next.
        """
        with read() as one, read() as other:
            first, second = (connection.exec_driver_sql(_SESSION).scalar_one() for connection in (one, other))
            return bool(first != second and one.exec_driver_sql(_SESSION).scalar_one() == first)

    # -- transactions -------------------------------------------------------------------------------

    def begin_snapshot(self) -> str:
        """Begin, with bounds of time of its own if the request has little left or reading may take long."""
        if not self._is_hurried() and self._statement_seconds == STATEMENT_SECONDS:
            return _BEGIN_SNAPSHOT
        seconds = deadline.remaining(STATEMENT_SECONDS)
        return _BEGIN_SNAPSHOT + postgresql_driver.bounds(seconds, self._lock_seconds)

    def alone(self) -> AbstractContextManager[None]:
        """An empty block: writers lock rows and need not be alone."""
        return _UNBOUNDED

    def begin_write(self, connection: sa.Connection) -> str:
        """Begin, with the limits that the deadline of the request sets."""
        if not self._is_hurried():
            return _BEGIN_WRITE
        return _BEGIN_WRITE + postgresql_driver.bounds(
            deadline.remaining(self._statement_seconds), deadline.remaining(self._lock_seconds)
        )

    def _is_hurried(self) -> bool:
        """Whether the deadline comes before the server would end a statement by itself."""
        return deadline.remaining(self._statement_seconds) + GRACE_SECONDS < self._statement_seconds

    def take_time(self, connection: sa.Connection) -> None:
        """No limits but those of the driver, and for locks."""
        for limit in ("statement_timeout", "idle_in_transaction_session_timeout"):
            connection.exec_driver_sql(f"SET LOCAL {limit} = 0")

    def run_last(
        self, connection: sa.Connection, insert: sa.TextClause, rows: Sequence[Mapping[str, Any]]
    ) -> None:
        """Send it with the commit, in one round trip."""
        postgresql_driver.commit_with(connection, insert, rows)

    def confirm(self, connection: sa.Connection) -> None:
        """Nothing: the server has said that it is stored."""

    def is_writable(self, connection: sa.Connection) -> bool:
        """Whether it is no standby and not set to be read-only."""
        return bool(connection.exec_driver_sql("SHOW transaction_read_only").scalar_one() == "off")

    # -- errors of the driver -----------------------------------------------------------------------

    def diagnose(self, error: BaseException, *, is_lost: bool) -> Diagnosis | None:
        """What is wrong, by SQLSTATE and by words."""
        return postgresql_failures.diagnose(error, is_lost=is_lost)

    def stays_broken(self, error: BaseException) -> bool:
        """Whether this server takes no writes; another of the hosts may take them."""
        return postgresql_failures.stays_broken(error)

    def leaves_in_doubt(self, error: BaseException) -> bool:
        """Whether the error leaves open if the server had committed."""
        return postgresql_failures.leaves_in_doubt(error)

    # -- statements ---------------------------------------------------------------------------------

    def stamp_parameters(self, connection: sa.Connection) -> Mapping[str, int]:
        """None: the server knows the id of the transaction."""
        return {}

    def stamp_with(self, parameters: Mapping[str, int]) -> sa.ColumnElement[int]:
        """The id of the transaction."""
        return self.stamp

    def forget_foreign_stamps(self, connection: sa.Connection, tables: Sequence[sa.Table]) -> None:
        """Re-stamp rows that carry transaction ids of another server."""
        for table in tables:
            column = table.c.revision
            connection.execute(sa.update(table).where(column > self.stamp).values(revision=self.stamp))
        # The witness of storage.changes.history: running processes take it for another database from now on.
        counter = _tables.change_counter
        connection.execute(sa.update(counter).values(value=counter.c.value))

    @staticmethod
    def insert_or_ignore(table: sa.Table) -> Any:
        """An insert that skips rows whose unique key exists."""
        return postgresql.insert(table).on_conflict_do_nothing()

    @staticmethod
    def locked(statement: sa.Select[Any], *, may_be_referred_to: bool = False) -> sa.Select[Any]:
        """The same query, keeping its rows locked until the end."""
        return statement.with_for_update(key_share=may_be_referred_to)

    @staticmethod
    def removable(statement: sa.Select[Any], stamp: sa.ColumnElement[int]) -> sa.Select[Any]:
        """Rows older than every running transaction, without those that another one is removing."""
        horizon = sa.func.pg_snapshot_xmin(sa.func.pg_current_snapshot(), type_=stamp.type)
        return statement.where(stamp < horizon).with_for_update(skip_locked=True)

    def lock_number(self, connection: sa.Connection, number: int, *, shared: bool) -> None:
        """An advisory lock."""
        function = sa.func.pg_advisory_xact_lock_shared if shared else sa.func.pg_advisory_xact_lock
        connection.execute(sa.select(function(number)))

    @staticmethod
    def given_rows(name: str, columns: Mapping[str, str]) -> str:
        """One array for each column."""
        arrays = ", ".join(f"CAST(:{column} AS {type_}[])" for column, type_ in columns.items())
        return f"unnest({arrays}) AS {name}({', '.join(columns)})"

    @staticmethod
    def row_parameters(columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """The rows column by column."""
        return dict(zip(columns, (list(column) for column in zip(*rows, strict=True)), strict=True))

    def claim_at_once(
        self,
        single_write: Callable[[], AbstractContextManager[SingleWrite]],
        values: Sequence[Any],
    ) -> bool:
        """In one round trip, unless time is short: then the limits would take a second one."""
        if self._is_hurried():
            return False
        with single_write() as write:
            return postgresql_claims.claim(write, values)

    def place_at_once(
        self,
        single_write: Callable[[], AbstractContextManager[SingleWrite]],
        values: Sequence[Any],
    ) -> Stamped | None:
        """Place in one round trip, like `claim_at_once`."""
        if self._is_hurried():
            return None
        with single_write() as write:
            return postgresql_claims.place(write, values)

    # -- looking at what changed --------------------------------------------------------------------

    def lookout(self, connection: sa.Connection) -> ServerLookout:
        """A session with the statement of a look."""
        return ServerLookout(connection)

    # -- life ---------------------------------------------------------------------------------------

    def exists(self) -> bool:
        """True: only a connection can tell."""
        return True

    def create(self) -> None:
        """Nothing: the operator of a server creates its databases."""
