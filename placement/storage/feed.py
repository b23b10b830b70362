"""The feed of changes since the last look, and of everything at once for the first.

Each write stamps the providers it touches, and each look returns the stamp from which the next one has to
look (the horizon). Rows may be reported twice, never missed; the backends define how (storage.backends).

Stamps mean something within one history only (`History`). Each look carries its own history; a
horizon of another one counts as too old for anything but loading everything again.
"""

from __future__ import annotations

import datetime
import math
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import sqlalchemy as sa

from placement.engine.domain import request_scope
from placement.engine.domain.errors import Unavailable
from placement.engine.forest.providers import NumberColumn, ProviderRecord, ProviderStates, Snapshot
from placement.metrics.catalog import FEED_ROWS, LOOK_SECONDS, RELOADS
from placement.storage import records, tables
from placement.storage.backends.backend import BEFORE_ALL, HISTORY_KEY, Horizon, Lookout
from placement.storage.database import Database, Transaction
from placement.storage.records import NodeParts

# What writers report to all processes beside the stamps of providers: rows of the table `changes`.
#
# Old rows are removed, and a mark in their place carries the newest stamp among them. A reader with an
# older horizon than that finds the mark and knows that it missed rows; other readers do not see it. Marks
# are removed like other rows; a newer mark takes their place.


REMOVED = "removed"
KEPT = datetime.timedelta(days=1)
# One in so many new rows removes up to so many old ones: cheap, and faster than they are added.
EVERY = 100
AT_ONCE = 1000

_table = tables.changes
PROVIDER_DELETED = "provider"
NAMES_CHANGED = "names"
CLUSTER_CHANGED = "cluster"


def remove_old(transaction: Transaction) -> None:
    """Remove some rows that are older than a day, but none that an up-to-date reader may miss.

    So such a reader never meets a mark.
    """
    stamp = sa.cast(sa.cast(_table.c.revision, sa.Text), sa.BigInteger)
    times = _table.c.created_at
    statement = transaction.removal(times, AT_ONCE, times < transaction.now - KEPT)
    stamps = list(transaction.execute(statement.returning(stamp)).scalars())
    if stamps:
        newest = sa.cast(str(max(stamps)), _table.c.revision.type)
        values = {"kind": REMOVED, "reference": 0, "created_at": transaction.now, "revision": newest}
        transaction.execute(sa.insert(_table).values(values))


def record_change(transaction: Transaction, kind: str, references: Iterable[int] = (0,)) -> None:
    """Report to all processes deleted providers and changed clusters (their ids), or changed names."""
    rows = [{"kind": kind, "reference": reference, "created_at": transaction.now} for reference in references]
    statement = sa.insert(tables.changes).values(revision=transaction.stamp).returning(tables.changes.c.id)
    ids = transaction.execute(statement, rows).scalars()
    if any(id_ % EVERY == 0 for id_ in ids):
        remove_old(transaction)


_END = "COMMIT"


class Changed(NamedTuple):
    """A provider that may have changed, with its root and the cluster it belongs to, if any."""

    id: int
    revision: int
    root_id: int | None
    cluster_id: int | None


@dataclass(slots=True)
class FeedBatch:
    """A look: providers that may have changed, ids of deleted ones, and the horizon.

    `clusters` are the ids of clusters that were created, deleted or given other settings. `rules_generations`
    count the pods with required anti-affinity that had come by then, by cluster that was asked about; 0 is
    left out. The horizon is 0, older than any, if everything has to be loaded again: the look comes too
    late, after some of what changed was removed, or the history is another one.
    """

    horizon: Horizon = BEFORE_ALL
    changed: list[Changed] = field(default_factory=list)
    deleted: list[int] = field(default_factory=list)
    clusters: set[int] = field(default_factory=set)
    rules_generations: dict[int, int] = field(default_factory=dict)
    names_changed: bool = False
    witness: str = ""


class Feed:
    """The changes of one database, looked at over a connection of its own."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: sa.Connection | None = None
        self._lookout: Lookout | None = None
        self._driver_error: type[Exception] = database.engine.dialect.loaded_dbapi.Error

    def look(self, horizon: int, clusters: Collection[int] = ()) -> FeedBatch | None:
        """Return what may have changed since `horizon`; None if nothing has. Raises Unavailable.

        The look also reports the generation of rules of the `clusters`, given by their ids.
        """
        self._drop_outdated()
        if self._connection is not None:
            # Only this connection may be broken; another one is tried below.
            with suppress(sa.exc.SQLAlchemyError, self._driver_error):
                look = self._look(self._connection, horizon, clusters, is_quick=True)
                # The look came too late; perhaps this connection leads to a former database.
                if look is None or look.horizon:
                    return look
            self.close()
        # A failure over a new connection is not tried again: that would take too long.
        with self.session(0) as connection:
            look = self._look(connection, horizon, clusters, is_quick=False)
        return look

    def _look(
        self, connection: sa.Connection, horizon: int, clusters: Collection[int], *, is_quick: bool
    ) -> FeedBatch | None:
        server, look, is_late = connection.info[HISTORY_KEY], FeedBatch(), False
        assert self._lookout is not None
        rows = self._lookout.rows(horizon, clusters, is_quick=is_quick)
        if rows is None:
            return None
        for kind, reference, revision, root_id, cluster_id in rows:
            if kind == "horizon":
                look.horizon = Horizon(revision, "")
            elif kind == "history":
                look.witness = f"{revision}/{cluster_id}"
            elif kind == "changed":
                look.changed.append(Changed(reference, revision, root_id, cluster_id))
            elif kind == "rules":
                look.rules_generations[reference] = revision
            elif kind == PROVIDER_DELETED:
                look.deleted.append(reference)
            elif kind == CLUSTER_CHANGED:
                look.clusters.add(reference)
            elif kind == REMOVED:
                is_late = True
            else:
                look.names_changed = True
        # A horizon of another history than the connection's comes too late.
        present = f"{server} {look.witness}"
        if is_late:
            look.horizon = BEFORE_ALL
        elif look.horizon:
            look.horizon = Horizon(look.horizon, present)
        if getattr(horizon, "history", present) != present:
            self._database.history.observe(server, look.witness)
            look.horizon = BEFORE_ALL
        return look

    def _drop_outdated(self) -> None:
        """Give up a connection that is old, or leads to a former database by what the pool has found."""
        if self._connection is not None and not self._database.is_current(self._connection):
            self.close()

    def _connect(self) -> sa.Connection:
        self._connection = self._database.engine.connect()
        self._lookout = self._database.backend.lookout(self._connection)
        return self._connection

    def horizon(self, snapshot: sa.Connection) -> Horizon:
        """Return the horizon to look from after reading in this transaction, which must be of one state."""
        number, revision, place = snapshot.exec_driver_sql(self._database.backend.horizon).one()
        witness = f"{revision}/{place}"
        server = snapshot.info[HISTORY_KEY]
        self._database.history.observe(server, witness)
        return Horizon(number, f"{server} {witness}")

    @contextmanager
    def session(self, horizon: int) -> Iterator[sa.Connection]:
        """Yield this feed's connection, for reading more of what was looked at.

        Raises Unavailable, also if it is not to the server that the horizon is of.
        """
        try:
            with self._database.translating():
                self._drop_outdated()
                connection = self._connection or self._connect()
                known = getattr(horizon, "history", None)
                if known is not None and not known.startswith(f"{connection.info[HISTORY_KEY]} "):
                    raise Unavailable("The database was exchanged while it was read; try again.")
                yield connection
        except BaseException:
            self.close()
            raise

    @contextmanager
    def one_state(self, horizon: int = 0) -> Iterator[sa.Connection]:
        """Yield this feed's connection in a transaction that sees one state. Raises Unavailable.

        Looks hold that connection anyway, so a caller with a pooled connection need not wait for a second.
        """
        with self.session(horizon) as connection:
            connection.exec_driver_sql(self._database.backend.begin_snapshot())
            yield connection
            connection.exec_driver_sql(_END)

    @staticmethod
    def is_of(server: str, horizon: Horizon | None) -> bool:
        """Return whether a horizon is of the history of that server."""
        return horizon is not None and horizon.history.startswith(f"{server} ")

    def close(self) -> None:
        """Give the connection back."""
        if self._connection is not None:
            connection, self._connection, self._lookout = self._connection, None, None
            with suppress(sa.exc.SQLAlchemyError, self._driver_error):
                connection.invalidate()
                connection.close()

    def records(self, ids: Sequence[int]) -> list[ProviderRecord]:
        """Return the present state of some providers, each of one moment; missing ones are left out."""
        with self.session(0):
            assert self._lookout is not None
            return records.read_providers(self._lookout.records, ids)

    def node_parts(self, cluster_id: int, roots: Collection[int], horizon: int) -> NodeParts:
        """Return the parts of the nodes of a cluster that have these host providers, of one moment.

        Raises Unavailable, also if another server answers than the horizon's.
        """
        with self.session(horizon):
            assert self._lookout is not None
            return records.read_nodes(self._lookout.node_parts(cluster_id, roots))

    def states(
        self,
        ids: Sequence[int],
        horizon: int,
        others: Callable[[Sequence[NumberColumn]], Sequence[int]],
        strangers: Sequence[int] = (),
    ) -> ProviderStates:
        """Return the present state of very many providers, of one moment; missing ones are left out.

        The result has the uuids of `strangers`. `others` finds, from the columns of providers, the ids of
        providers that changed in more than their use. Raises Unavailable, also if another server answers
        than the horizon's.
        """
        with self.one_state(horizon) as connection:
            return records.read_states(connection, self._database.backend, ids, others, strangers)

    @contextmanager
    def snapshot(self) -> Iterator[tuple[Horizon, Snapshot]]:
        """Yield all providers of one moment and the horizon to look from next. They stream: read inside."""
        with self._database.snapshot() as connection:
            yield self.horizon(connection), records.snapshot(connection)


# The following of the database: what a process remembers is brought up to date before each use.
#
# One statement asks what changed since the last look (storage.feed). A subclass defines what to begin with,
# how to take over what changed, and how to forget everything; this module decides when each of these is due.


# Longer than any look, shorter than callers wait; a first load may take longer.
_PATIENCE_SECONDS = 20
_ROUNDS = 5


class Follower(ABC):
    """A keeper of something in step with the database that looks before each use; it never guesses.

    `horizon` is the stamp to look from, None as long as nothing is remembered. `clusters` are the ids of
    clusters with generations of rules that every look should report.
    """

    def __init__(self, database: Database, remembered: str) -> None:
        """Take the database; `remembered` names what is loaded, for callers that have to wait."""
        self.database = database
        self.feed = Feed(database)
        self.horizon: Horizon | None = None
        self.clusters: Collection[int] = ()
        self._remembered = remembered
        self._look_seconds = LOOK_SECONDS.labels(remembered)
        self._rows, self._reloads = FEED_ROWS.labels(remembered), RELOADS.labels(remembered)
        # Held while catching up, never while a caller works with the view that it took.
        self._lock = threading.Lock()
        self._caught_up_at = 0.0

    @contextmanager
    def caught_up(self) -> Iterator[None]:
        """Hold the lock, with everything remembered that was committed before. Raises Unavailable."""
        arrived = time.monotonic()
        with self.alone():
            # Another thread may have looked while this one waited: one look serves all that wait for it.
            if self.horizon is None or self._caught_up_at <= arrived:
                began = time.monotonic()
                self._catch_up()
                self._caught_up_at = began
                self._look_seconds.observe(time.monotonic() - began)
            yield

    @property
    def behind_seconds(self) -> float:
        """Return how long ago the last complete look began; infinite before the first."""
        return time.monotonic() - self._caught_up_at if self._caught_up_at else math.inf

    @contextmanager
    def alone(self, patience_seconds: float = _PATIENCE_SECONDS) -> Iterator[None]:
        """Hold the lock, with what is remembered as it is. Raises Unavailable."""
        if not self._lock.acquire(timeout=request_scope.remaining(patience_seconds)):
            raise Unavailable(
                f"The {self._remembered} are still being loaded, or the database is slow; try again."
            )
        try:
            yield
        finally:
            self._lock.release()

    def _catch_up(self) -> None:
        for _ in range(_ROUNDS):
            if self.horizon is None:
                break
            look = self.feed.look(self.horizon, self.clusters)
            if look is None:
                return
            self._rows.inc(len(look.changed) + len(look.deleted))
            if look.horizon < self.horizon:
                # The database is an older one than we know: restored, or a replica that lagged behind.
                self.forget()
                continue
            try:
                is_applied = self.apply(look)
            except BaseException:
                # Changes taken over in part must not pass for all changes.
                self.forget()
                raise
            if is_applied:
                self.horizon = look.horizon
                return
        self.forget()
        self._reloads.inc()
        self.begin()

    def forget(self) -> None:
        """Forget everything that is remembered."""
        self.horizon = None

    @abstractmethod
    def begin(self) -> None:
        """Load what is always remembered, and set the horizon if that is anything. Raises Unavailable."""

    @abstractmethod
    def apply(self, look: FeedBatch) -> bool:
        """Take over what changed; return False if another look or loading everything has to bring more.

        Raises Unavailable.
        """

    def close(self) -> None:
        """Give back the connection."""
        self.feed.close()
