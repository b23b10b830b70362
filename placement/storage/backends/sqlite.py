"""SQLite: a file of this machine, with one writer at a time."""

from __future__ import annotations

import json
import os
import re
import sqlite3
from array import array
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import sqlite

from placement.engine.domain import request_scope
from placement.engine.forest.providers import NumberColumn
from placement.storage import failures, node_parts, records, tables
from placement.storage.backends import sqlite_claims
from placement.storage.backends.backend import Backend, SingleWrite
from placement.storage.backends.sqlite_turn import WriterTurn
from placement.storage.claim_rows import NewClaims
from placement.storage.failures import Diagnosis, OutcomeUnknown
from placement.storage.history import HISTORY_KEY
from placement.storage.tables import Revision

# The meaning of errors, by primary result codes.
_CODES = {
    sqlite3.SQLITE_BUSY: failures.LOCKED,
    sqlite3.SQLITE_LOCKED: failures.LOCKED,
    sqlite3.SQLITE_FULL: failures.FULL,
    sqlite3.SQLITE_READONLY: failures.READ_ONLY,
    sqlite3.SQLITE_CANTOPEN: failures.GONE,
    sqlite3.SQLITE_IOERR: failures.DAMAGED,
    sqlite3.SQLITE_CORRUPT: failures.DAMAGED,
    sqlite3.SQLITE_NOTADB: failures.DAMAGED,
    sqlite3.SQLITE_NOMEM: failures.MEMORY,
    sqlite3.SQLITE_PERM: failures.RIGHTS,
    sqlite3.SQLITE_SCHEMA: failures.CONCURRENT,
    sqlite3.SQLITE_PROTOCOL: failures.LOCKED,
}
_MENDED_BY_REPEATING = (
    sqlite3.SQLITE_CONSTRAINT_UNIQUE,
    sqlite3.SQLITE_CONSTRAINT_PRIMARYKEY,
    sqlite3.SQLITE_CONSTRAINT_FOREIGNKEY,
)
# After these a SQLite connection stays broken for good, although the file may have become well again.
_STAYS_BROKEN = (
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
)
_PRIMARY = 0xFF


def _code(error: BaseException) -> int | None:
    return getattr(error, "sqlite_errorcode", None)


# How SQLite shows what changed: writers are serial, so a counter is the stamp. The second part is the witness
# of the history.
_CHANGED = records.changed(
    sa.literal_column(":horizon"),
    sa.literal_column(":most"),
    sa.func.json_array,
    # The value of a subquery would pass for a text.
    lambda row: sa.func.json(sa.func.json_group_array(row)),
    # Numbers in JSON have 15 digits.
    sa.func.printf(sa.literal_column("'%!.17g'"), tables.inventories.c.allocation_ratio),
).compile(dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True})
_LOOK = f"""
    SELECT 'horizon' AS kind, 0 AS reference, value + 1 AS revision, 0 AS root, 0 AS cluster, NULL AS document
      FROM change_counter
    UNION ALL
    SELECT 'history', 0, schema_version, 0, 0, NULL FROM pragma_schema_version
    UNION ALL
    {_CHANGED}
    UNION ALL
    SELECT kind, reference, revision, 0, 0, NULL FROM changes WHERE revision >= :horizon
    UNION ALL
    SELECT 'rules', id, rules_generation, 0, 0, NULL
      FROM clusters WHERE rules_generation > 0 AND id IN (SELECT value FROM json_each(:clusters))
"""
_HORIZON = "SELECT value + 1, schema_version, 0 FROM change_counter, pragma_schema_version"
_BUSY_SECONDS = 15.0
_PATIENCE = "placement_patience"
_BEGIN_WRITE = "BEGIN IMMEDIATE"
# A reader that turns writer in mid-transaction fails at once with "locked"; writers take the write lock
# first and wait for their turn instead.
_BEGIN_SNAPSHOT = "BEGIN DEFERRED"
_REPLACED = (
    "The file of the database was removed or replaced while committing; the change may or may not be stored. "
    "Repeating the same request settles it."
)
_IDS: Any = sa.bindparam("ids", expanding=True)
_RECORDS = records.everything_about(lambda column: column.in_(_IDS))
_NODE_PARTS = node_parts.together(lambda column: column.in_(_IDS), sa.bindparam("cluster", type_=sa.Integer))
_IN_MEMORY = (None, "", ":memory:")


class FileLookout:
    """A connection that knows for free whether anything was committed since it looked last."""

    def __init__(self, connection: sa.Connection) -> None:
        self._connection = connection
        self._data_version: int | None = None

    def rows(
        self, horizon: int, clusters: Collection[int], most_documents: int, *, is_quick: bool
    ) -> Sequence[Any] | None:
        version = self._connection.exec_driver_sql("PRAGMA data_version").scalar_one()
        if version == self._data_version:
            return None
        given = {"horizon": int(horizon), "clusters": json.dumps(list(clusters)), "most": most_documents}
        rows = self._connection.exec_driver_sql(_LOOK, given).all()
        self._data_version = version
        return rows

    def records(self, ids: Sequence[int]) -> Sequence[Sequence[Any]]:
        return _RECORDS.parted(self._connection.execute(_RECORDS.statement, {"ids": ids}))

    def node_parts(self, cluster_id: int, roots: Collection[int]) -> Sequence[Sequence[Any]]:
        rows = self._connection.execute(_NODE_PARTS.statement, {"ids": list(roots), "cluster": cluster_id})
        return _NODE_PARTS.parted(rows)


class SQLite(Backend):
    """A database in one file; see storage.backends.backend for the contracts."""

    name = "sqlite"
    is_embedded = True
    alters_by_copying = True
    has_pod_statement = False
    stamp = sa.bindparam("stamp", type_=Revision())
    stamp_text = ":stamp"
    horizon = _HORIZON
    moment = "(SELECT CAST(value AS text) FROM change_counter)"
    is_later = "{column} > CAST(:since AS integer)"
    allocations_of = "json_each({column}, '$.allocations') AS entry"

    def __init__(self, url: sa.URL, *, durable: bool) -> None:
        """Take the URL; `durable` False may lose commits in a power cut."""
        self._url = url
        self.where = f"file {url.database}"
        self._durable = durable
        # Other processes do not have a database in memory.
        self._file = None if url.database in _IN_MEMORY else Path(str(url.database))
        self._turn = WriterTurn(self._file)

    # -- connections --------------------------------------------------------------------------------

    def engine_options(self) -> dict[str, Any]:
        return {"connect_args": {"timeout": _BUSY_SECONDS, "check_same_thread": False}}

    def connect(self, dialect: sa.Dialect, record: Any, arguments: Sequence[Any], options: Any) -> None:
        """Leave it to SQLAlchemy, but raise for a missing file, which must not be created by looking."""
        self._identity()

    def prepare(self, connection: Any) -> str:
        """Set up a new connection, which must open no transactions on its own; return which file it is to."""
        found = self._identity()
        connection.isolation_level = None
        synchronous = "FULL" if self._durable else "OFF"
        for pragma in ("journal_mode=WAL", f"synchronous={synchronous}", "foreign_keys=ON"):
            connection.execute(f"PRAGMA {pragma}")
        return found

    def _identity(self) -> str:
        """Return which file is at the database's place. Raises an error of the driver if there is none."""
        if self._file is None:
            return "memory"
        try:
            found = self._file.stat()
        except OSError as error:
            raise sqlite3.OperationalError(f"unable to open database file: {error}") from None
        return f"{found.st_dev}/{found.st_ino}"

    def is_present(self, opened: str) -> bool:
        """Return whether that file is still at the database's place."""
        try:
            return self._identity() == opened
        except sqlite3.Error:
            return False

    # -- transactions -------------------------------------------------------------------------------

    def begin_snapshot(self) -> str:
        return _BEGIN_SNAPSHOT

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let the writers of this process in one after another, in order of arrival. Raises TryAgain.

        The processes queue when the writer begins: it has its connection then, and keeps none of them waiting
        for that.
        """
        with self._turn.taken(request_scope.remaining(_BUSY_SECONDS)) as is_taken:
            if not is_taken:
                raise failures.LOCKED.raised()
            yield

    def begin_write(self, connection: sa.Connection) -> str:
        """Return the beginning, waiting for writers of other processes no longer than the request has."""
        self._turn.lock_files()
        for setting in _new_patience(connection.info):
            connection.exec_driver_sql(setting)
            connection.rollback()
        return _BEGIN_WRITE

    def run_last(
        self, connection: sa.Connection, insert: sa.TextClause, rows: Sequence[Mapping[str, Any]]
    ) -> None:
        connection.execute(insert, rows)

    def confirm(self, info: Mapping[str, Any]) -> None:
        """Raise OutcomeUnknown if the file was removed or replaced meanwhile."""
        if not self.is_present(info[HISTORY_KEY]):
            raise OutcomeUnknown(_REPLACED)

    def is_writable(self, connection: sa.Connection) -> bool:
        """Return whether the file and its directory, for the log beside it, may be written to."""
        file = self._file
        return file is None or all(os.access(path, os.W_OK) for path in (file, file.parent))

    # -- errors of the driver -----------------------------------------------------------------------

    def diagnose(self, error: BaseException, *, is_lost: bool) -> Diagnosis | None:
        """Return the diagnosis of an error, by result codes."""
        if not isinstance(error, sqlite3.Error):
            return failures.GONE if is_lost else None
        code = _code(error)
        if isinstance(error, sqlite3.IntegrityError):
            return failures.FASTER if code in _MENDED_BY_REPEATING else None
        if code is None:
            is_gone = isinstance(error, (sqlite3.OperationalError, sqlite3.ProgrammingError))
            return failures.GONE if is_gone else None
        if code & _PRIMARY == sqlite3.SQLITE_ERROR:
            return failures.TABLES if re.match(r"no such (table|column)", str(error)) else None
        return _CODES.get(code & _PRIMARY)

    def stays_broken(self, error: BaseException) -> bool:
        """Return whether the connection stays broken although the file may become well again."""
        return ((_code(error) or sqlite3.SQLITE_OK) & _PRIMARY) in _STAYS_BROKEN

    def leaves_in_doubt(self, error: BaseException) -> bool:
        """Return whether reading or writing the file failed."""
        code = _code(error)
        return code is None or code & _PRIMARY == sqlite3.SQLITE_IOERR

    # -- statements ---------------------------------------------------------------------------------

    def stamp_parameters(self, connection: sa.Connection) -> Mapping[str, int]:
        """Take the next number of the counter."""
        return {"stamp": int(connection.exec_driver_sql(sqlite_claims.NEXT_STAMP).scalar_one())}

    def claim_at_once(
        self, single_write: Callable[[], AbstractContextManager[SingleWrite]], claims: NewClaims
    ) -> bool:
        with single_write() as write:
            self._turn.lock_files()
            for statement in (*_new_patience(write.info), _BEGIN_WRITE):
                write.prepare(statement)
            return sqlite_claims.claim(write, claims)

    @staticmethod
    def insert_or_ignore(table: sa.Table) -> Any:
        return sqlite.insert(table).on_conflict_do_nothing()

    @staticmethod
    def given_rows(name: str, columns: Mapping[str, str]) -> str:
        """Return one JSON text with all rows as a table."""
        selected = ", ".join(
            f"json_extract(value, '$[{number}]') AS {column}" for number, column in enumerate(columns)
        )
        return f"(SELECT {selected} FROM json_each(:rows)) AS {name}"

    @staticmethod
    def row_parameters(columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
        return {"rows": json.dumps(rows)}

    # -- reading very many rows ---------------------------------------------------------------------

    @staticmethod
    def among(column: sa.ColumnElement[Any], values: Sequence[int] | Sequence[str]) -> sa.ColumnElement[bool]:
        """Return a comparison with a JSON text: statements take a limited number of parameters."""
        given = sa.func.json_each(json.dumps(list(values))).table_valued("value")
        return column.in_(sa.select(given.c.value))

    def columns(self, connection: sa.Connection, statement: sa.Select[Any]) -> list[NumberColumn]:
        rows = connection.execute(statement).all()
        columns = zip(*rows, strict=True) if rows else [()] * len(statement.selected_columns)
        return [
            array("d" if isinstance(column.type, sa.Float) else "q", values)
            for column, values in zip(statement.selected_columns, columns, strict=True)
        ]

    # -- looking at what changed --------------------------------------------------------------------

    def lookout(self, connection: sa.Connection, is_answering: Callable[[], bool]) -> FileLookout:
        return FileLookout(connection)

    # -- life ---------------------------------------------------------------------------------------

    def exists(self) -> bool:
        return self._file is None or self._file.exists()

    def create(self) -> None:
        """Make an empty database that only its owner can read, and its directories, unless there is one.

        SQLite gives the files beside it the same mode.
        """
        if self._file is None:
            return
        self._file.parent.mkdir(parents=True, exist_ok=True)
        # SQLite reports a file that cannot be created, and its own special names are not files.
        with suppress(OSError):
            if not str(self._file).startswith("file:"):
                os.close(os.open(self._file, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
        sqlite3.connect(self._file).close()


def _new_patience(info: dict[str, Any]) -> Sequence[str]:
    """Return the statement that bounds waits for writers of other processes, none where that bound is set.

    `info` is what is kept with the connection.
    """
    seconds = request_scope.remaining(_BUSY_SECONDS)
    if info.get(_PATIENCE, _BUSY_SECONDS) == seconds:
        return ()
    info[_PATIENCE] = seconds
    return (f"PRAGMA busy_timeout={max(1, round(seconds * 1000))}",)
