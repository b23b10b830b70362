"""The one protocol of databases: PostgreSQL and SQLite differ behind it, and nowhere else.

Everything else in the service is written once. It asks the backend to do a thing, or for a fact of this
protocol, never which database it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from typing import Any, ClassVar, NamedTuple, Protocol

import sqlalchemy as sa

from placement.storage.claim_rows import NewClaims, NewPod
from placement.storage.failures import Diagnosis
from placement.storage.records import ColumnReader


class SingleWrite:
    """A connection of the driver for one write that commits by itself; `info` is kept with it."""

    def __init__(self, connection: Any, info: dict[str, Any]) -> None:
        self.connection = connection
        self.info = info
        self.is_sent = False

    def prepare(self, statement: str) -> None:
        """Run a statement that the one that commits needs."""
        with closing(self.connection.cursor()) as cursor:
            cursor.execute(statement)

    def send(self, statement: str, parameters: Sequence[Any] = ()) -> Any:
        """Return the row of the statement that commits. From here on a loss leaves the outcome unknown."""
        self.is_sent = True
        with closing(self.connection.cursor()) as cursor:
            cursor.execute(statement, parameters)
            return cursor.fetchone()


class Stamped(NamedTuple):
    """A write that took place: the stamp it left, and on which server (`History`).

    `former` are the providers it stamped, each with the stamp that it had until then.
    """

    stamp: int
    server: str
    former: frozenset[tuple[int, int]]


class Lookout(Protocol):
    """A connection that was prepared for looking at what changed."""

    def rows(
        self, horizon: int, clusters: Collection[int], most_documents: int, *, is_quick: bool
    ) -> Sequence[Any] | None:
        """Return the rows of a look (storage.feed) since `horizon`; None if surely nothing changed.

        The look also reports the generation of rules of the `clusters`, given by their ids. If at most
        `most_documents` providers changed, each comes with its document (storage.records).

        `is_quick`: give up a connection that is silent where others are not. Raises errors of SQLAlchemy and
        of the driver.
        """

    def records(self, ids: Sequence[int]) -> Sequence[Sequence[Any]]:
        """Return the rows of each part (storage.records) of some providers, of one moment.

        Raises as `rows` does.
        """

    def node_parts(self, cluster_id: int, roots: Collection[int]) -> Sequence[Sequence[Any]]:
        """Return the rows of each part (storage.records) of the nodes with these host providers.

        All of them are of one moment. Raises as `rows` does.
        """


class Backend(ColumnReader, Protocol):
    """A database: how to reach it, and the statements and errors in which databases differ.

    What is done here suits a database that needs nothing of the kind: a file that one writer has to itself
    needs no locks, a server no confirmation.
    """

    # -- facts --------------------------------------------------------------------------------------

    # The name of the product, for operators.
    name: ClassVar[str]
    # Whether it lives in this process, so that the service itself upgrades its schema.
    is_embedded: ClassVar[bool]
    # Whether a table is altered by making another one and copying the rows.
    alters_by_copying: ClassVar[bool]
    # Whether `place_at_once` can ever write anything.
    has_pod_statement: ClassVar[bool]
    # Which database it is, for people; never a password.
    where: str

    # -- connections --------------------------------------------------------------------------------

    def engine_options(self) -> dict[str, Any]:
        """Return the options of an engine for it."""

    def connect(self, dialect: sa.Dialect, record: Any, arguments: Sequence[Any], options: Any) -> Any:
        """Open a connection of the driver, or return None to have SQLAlchemy open it. Raises its errors."""

    def prepare(self, connection: Any) -> str:
        """Set up a new connection of the driver; return which server or file it is to (`History`)."""

    def is_present(self, opened: str) -> bool:
        """Return whether that server or file is the present database, not one that was replaced since."""

    def refuse_dead(self, dialect: sa.Dialect, connection: Any, idle_seconds: float) -> None:
        """Raise InvalidatePoolError for a connection of the driver that was lost while it was idle."""
        return

    def keeps_sessions(self, read: Callable[[], AbstractContextManager[sa.Connection]]) -> bool:
        """Return whether each connection that `read` opens has a session of its own all along."""
        return True

    # -- transactions -------------------------------------------------------------------------------

    def begin_snapshot(self) -> str:
        """Return the statement that begins a read-only transaction in which all statements see one state."""

    def alone(self) -> AbstractContextManager[None]:
        """Return a block that other writers wait for, if they cannot write beside it. It raises TryAgain."""
        return nullcontext()

    def begin_write(self, connection: sa.Connection) -> str:
        """Return the statement that begins a transaction which writes on this connection."""

    def take_time(self, connection: sa.Connection) -> None:
        """Let the transaction on this connection last, and be idle, for as long as it takes."""
        return

    def wait_briefly(self, connection: sa.Connection) -> None:
        """Let the transaction on this connection wait a second for each lock: others queue behind it."""
        return

    def run_last(
        self, connection: sa.Connection, insert: sa.TextClause, rows: Sequence[Mapping[str, Any]]
    ) -> None:
        """Run an insert, with VALUES of one row, for some rows, as the last statement before the commit."""

    def confirm(self, info: Mapping[str, Any]) -> None:
        """Raise OutcomeUnknown after a commit on what may not be the database any more.

        `info` is what is kept with the connection.
        """
        return

    def is_writable(self, connection: sa.Connection) -> bool:
        """Return whether the database takes writes, as far as reading shows: a full disk is not noticed."""

    # -- errors of the driver -----------------------------------------------------------------------

    def diagnose(self, error: BaseException, *, is_lost: bool) -> Diagnosis | None:
        """Return the diagnosis of an error, None for a fault of ours; `is_lost`: of a lost connection."""

    def stays_broken(self, error: BaseException) -> bool:
        """Return whether a connection is of no use after this error, although the driver goes on with it."""

    def leaves_in_doubt(self, error: BaseException) -> bool:
        """Return whether the server may have committed before this error cut the connection."""

    # -- statements ---------------------------------------------------------------------------------

    # The value for `revision` columns (storage.tables.Revision) in statements that are made once.
    stamp: ClassVar[sa.ColumnElement[int]]
    # `stamp` as text, for statements that are written as text.
    stamp_text: ClassVar[str]

    def stamp_parameters(self, connection: sa.Connection) -> Mapping[str, int]:
        """Take the stamp of a transaction, once in each; return the parameters of `stamp`."""

    def forget_foreign_stamps(self, connection: sa.Connection, stamps: Sequence[sa.Column[int]]) -> None:
        """Re-stamp rows with stamps that this database cannot have given, as after restoring a dump."""
        return

    @staticmethod
    def insert_or_ignore(table: sa.Table) -> Any:
        """Return an insert that skips rows with a unique key that exists."""

    @staticmethod
    def removable(statement: sa.Select[Any], stamp: sa.ColumnElement[int]) -> sa.Select[Any]:
        """Return only the rows that no up-to-date reader needs and no other transaction removes."""
        return statement

    def lock_number(self, connection: sa.Connection, number: int, *, shared: bool) -> None:
        """Lock this number until the transaction ends, alone or together with others that lock it shared."""
        return

    @staticmethod
    def given_rows(name: str, columns: Mapping[str, str]) -> str:
        """Return parameter rows as a table for FROM; `columns` are their names and SQL types."""

    @staticmethod
    def row_parameters(columns: Mapping[str, str], rows: Sequence[Sequence[Any]]) -> dict[str, Any]:
        """Return the parameters of `given_rows`; there must be rows."""

    def claim_at_once(
        self, single_write: Callable[[], AbstractContextManager[SingleWrite]], claims: NewClaims
    ) -> bool:
        """Write claims of new consumers as one write; see allocations.new_claims.

        Returns False, with nothing done, if that cannot be. Raises TryAgain, OutcomeUnknown, Unavailable.
        """

    def place_at_once(
        self, single_write: Callable[[], AbstractContextManager[SingleWrite]], pod: NewPod
    ) -> Stamped | None:
        """Write a new pod on a node by one statement; see pods.store.statements.

        Returns None, with nothing done, if that cannot be. Raises TryAgain, OutcomeUnknown, Unavailable.
        """
        return None

    # -- looking at what changed --------------------------------------------------------------------

    # A statement for the stamp to look from next, and the two parts of the witness (`History`).
    horizon: ClassVar[str]
    # An expression for the present moment as text, which separates later writes from earlier ones; and the
    # condition that a {column} with stamps is later than the moment :since.
    moment: ClassVar[str]
    is_later: ClassVar[str]

    def lookout(self, connection: sa.Connection, is_answering: Callable[[], bool]) -> Lookout:
        """Prepare a connection for looks; it is only read from.

        `is_answering` returns whether a new connection is answered. It is asked if this one is silent.
        """

    # -- documents ----------------------------------------------------------------------------------

    # The providers of the allocations in a {column} with JSON, as a table `entry` with a column `key`.
    allocations_of: ClassVar[str]

    # -- life ---------------------------------------------------------------------------------------

    def exists(self) -> bool:
        """Return whether there is a database; True where only a connection can find out."""
        return True

    def create(self) -> None:
        """Make an empty database if there is none and that can be done. Raises an error of the driver."""
        return
