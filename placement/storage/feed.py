"""The feed of changes since the last look, and of everything at once for the first.

Each write stamps the providers it touches, and each look returns the stamp from which the next one has to
look (the horizon). Rows may be reported twice, never missed; the backends define how (storage.backends).

Stamps mean something within one history only (`History`). Each look carries its own history; a
horizon of another one counts as too old for anything but loading everything again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import NamedTuple

import sqlalchemy as sa

from placement.engine.domain.errors import Unavailable
from placement.engine.forest.providers import NumberColumn, ProviderRecord, ProviderStates, Snapshot
from placement.storage import node_parts, records
from placement.storage.backends.backend import Lookout
from placement.storage.changes import CLUSTER_CHANGED, PROVIDER_DELETED, REMOVED
from placement.storage.database import Database
from placement.storage.history import BEFORE_ALL, HISTORY_KEY, Horizon
from placement.storage.node_parts import NodeParts

_END = "COMMIT"


class Changed(NamedTuple):
    """A provider that may have changed, with its root and the cluster it belongs to, if any.

    `document` has everything about it (storage.records), if the look brought that.
    """

    id: int
    revision: int
    root_id: int | None
    cluster_id: int | None
    document: str | None


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

    def look(
        self, horizon: Horizon, clusters: Collection[int] = (), most_documents: int = 0
    ) -> FeedBatch | None:
        """Return what may have changed since `horizon`; None if nothing has. Raises Unavailable.

        The look also reports the generation of rules of the `clusters`, given by their ids. It brings the
        documents of changed providers, if they are not more than `most_documents`.
        """
        self._drop_outdated()
        if self._connection is not None:
            # Only this connection may be broken; another one is tried below.
            with suppress(sa.exc.SQLAlchemyError, self._driver_error):
                batch = self._look(self._connection, horizon, clusters, most_documents, is_quick=True)
                # The look came too late; perhaps this connection leads to a former database.
                if batch is None or batch.horizon:
                    return batch
            self.close()
        # A failure over a new connection is not tried again: that would take too long.
        with self.session(BEFORE_ALL) as connection:
            batch = self._look(connection, horizon, clusters, most_documents, is_quick=False)
        return batch

    def _look(
        self,
        connection: sa.Connection,
        horizon: Horizon,
        clusters: Collection[int],
        most_documents: int,
        *,
        is_quick: bool,
    ) -> FeedBatch | None:
        server, batch, is_late = connection.info[HISTORY_KEY], FeedBatch(), False
        assert self._lookout is not None
        rows = self._lookout.rows(horizon, clusters, most_documents, is_quick=is_quick)
        if rows is None:
            return None
        for kind, reference, revision, root_id, cluster_id, document in rows:
            if kind == "horizon":
                batch.horizon = Horizon(revision, "")
            elif kind == "history":
                batch.witness = f"{revision}/{cluster_id}"
            elif kind == "changed":
                batch.changed.append(Changed(reference, revision, root_id, cluster_id, document))
            elif kind == "rules":
                batch.rules_generations[reference] = revision
            elif kind == PROVIDER_DELETED:
                batch.deleted.append(reference)
            elif kind == CLUSTER_CHANGED:
                batch.clusters.add(reference)
            elif kind == REMOVED:
                is_late = True
            else:
                # NAMES_CHANGED, or what a later release reports: reading names again does no harm.
                batch.names_changed = True
        # A horizon of another history than the connection's comes too late.
        present = f"{server} {batch.witness}"
        if is_late:
            batch.horizon = BEFORE_ALL
        elif batch.horizon:
            batch.horizon = Horizon(batch.horizon, present)
        if horizon.history != present:
            self._database.history.observe(server, batch.witness)
            batch.horizon = BEFORE_ALL
        return batch

    def _drop_outdated(self) -> None:
        """Give up a connection that is old, or leads to a former database by what the pool has found."""
        if self._connection is not None and not self._database.is_current(self._connection):
            self.close()

    def _connect(self) -> sa.Connection:
        self._connection = self._database.engine.connect()
        self._lookout = self._database.backend.lookout(self._connection, self._database.is_answering)
        return self._connection

    def horizon(self, snapshot: sa.Connection) -> Horizon:
        """Return the horizon to look from after reading in this transaction, which must be of one state."""
        number, revision, place = snapshot.exec_driver_sql(self._database.backend.horizon).one()
        witness = f"{revision}/{place}"
        server = snapshot.info[HISTORY_KEY]
        self._database.history.observe(server, witness)
        return Horizon(number, f"{server} {witness}")

    @contextmanager
    def session(self, horizon: Horizon) -> Iterator[sa.Connection]:
        """Yield this feed's connection, for further reading about a look.

        Raises Unavailable, also if it is not to the server that the horizon is of; BEFORE_ALL is of any.
        """
        try:
            with self._database.translating():
                self._drop_outdated()
                connection = self._connection or self._connect()
                history, server = horizon.history, connection.info[HISTORY_KEY]
                if history and not history.startswith(f"{server} "):
                    raise Unavailable("The database was replaced while it was read; try again.")
                yield connection
        except BaseException:
            self.close()
            raise

    @contextmanager
    def one_state(self, horizon: Horizon = BEFORE_ALL) -> Iterator[sa.Connection]:
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
        with self.session(BEFORE_ALL):
            assert self._lookout is not None
            return records.read_providers(self._lookout.records, ids)

    def node_parts(self, cluster_id: int, roots: Collection[int], horizon: Horizon) -> NodeParts:
        """Return the parts of the nodes of a cluster that have these host providers, of one moment.

        Raises Unavailable, also if another server answers than the horizon's.
        """
        with self.session(horizon):
            assert self._lookout is not None
            return node_parts.read_nodes(self._lookout.node_parts(cluster_id, roots))

    def states(
        self,
        ids: Sequence[int],
        horizon: Horizon,
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
            yield self.horizon(connection), records.snapshot(connection, self._database.backend)
