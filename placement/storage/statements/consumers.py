"""Statements on consumers and their labels: projects, users, consumer types."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

import sqlalchemy as sa

from placement.domain.errors import Conflict
from placement.storage import tables
from placement.storage.database import Database, Executor, Transaction
from placement.storage.failures import TryAgain
from placement.storage.statements import names
from placement.storage.statements.given_rows import RowStatement

_table = tables.consumers
_LABELS = {
    "project": (tables.projects, "external_id"),
    "user": (tables.users, "external_id"),
    "type": (tables.consumer_types, "name"),
}
_MOST_KNOWN = 100_000

# Its kind, "project", "user" or "type", and what callers call it.
Label = tuple[str, str]


class LabelRegistry:
    """Sees to it that projects, users and consumer types are known; labels are registered on first use, never
    deleted.

    Registration is a transaction of its own: a label without consumers harms nobody. Only that a label was
    registered is remembered, never its id, which is another one in a database that was restored: statements
    look ids up.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: set[Label] = set()
        database.history.forget_with(self.forget)

    def register(self, labels: Iterable[Label]) -> None:
        """Have these labels, as far as is known, in the database. Raises Unavailable."""
        # One set all along: another thread may begin a new one at any time.
        known = self._known
        unknown = set(labels) - known
        if not unknown:
            return
        with self._database.write() as transaction:
            for kind, (table, column) in _LABELS.items():
                wanted = [label for of_kind, label in unknown if of_kind == kind]
                names.insert_ignoring_known(transaction, table, column, wanted)
        if len(known) >= _MOST_KNOWN:
            self._known = unknown
        else:
            known.update(unknown)

    def forget(self) -> None:
        """Believe in no label any more."""
        self._known = set()


class Consumer(NamedTuple):
    """A consumer that holds allocations.

    `dedicated_cpus` are the dedicated CPUs of a guest, in its own numbers, if it was claimed by its flavor
    and nothing was claimed for it since.
    """

    uuid: str
    generation: int
    project_id: str
    user_id: str
    consumer_type: str | None
    dedicated_cpus: str | None = None


_described = (
    sa.select(
        _table.c.uuid,
        _table.c.generation,
        tables.projects.c.external_id,
        tables.users.c.external_id,
        tables.consumer_types.c.name,
        _table.c.dedicated_cpus,
    )
    .select_from(_table)
    .join(tables.projects, tables.projects.c.id == _table.c.project_id)
    .join(tables.users, tables.users.c.id == _table.c.user_id)
    .outerjoin(tables.consumer_types, tables.consumer_types.c.id == _table.c.consumer_type_id)
)


def find(connection: Executor, uuid: str) -> Consumer | None:
    """The consumer with its labels."""
    row = connection.execute(_described.where(_table.c.uuid == uuid)).first()
    return Consumer(*row) if row else None


class Locked(NamedTuple):
    """A consumer whose row is held until the transaction ends; pods have the id of their cluster."""

    generation: int
    cluster_id: int | None


def lock(transaction: Transaction, uuids: Collection[str]) -> dict[str, Locked]:
    """Hold those of the consumers that exist, in ascending order of uuids."""
    statement = (
        sa.select(_table.c.uuid, _table.c.generation, _table.c.cluster_id)
        .where(_table.c.uuid.in_(sorted(uuids)))
        .order_by(_table.c.uuid)
    )
    return {row[0]: Locked(row[1], row[2]) for row in transaction.execute(transaction.locked(statement))}


def lock_generations(transaction: Transaction, uuids: Collection[str]) -> dict[str, int]:
    """Hold those of the consumers that exist, none of which may be a pod; their generations.

    What pods hold follows from the pods (Pods, Clusters). Raises Conflict.
    """
    locked = lock(transaction, uuids)
    for uuid, consumer in locked.items():
        if consumer.cluster_id is not None:
            raise Conflict(
                f"Consumer {uuid} is a pod of a cluster; what it holds changes with the pod only, "
                "see /ext/v1/clusters."
            )
    return {uuid: consumer.generation for uuid, consumer in locked.items()}


class Labelling(NamedTuple):
    """The labels a consumer shall carry; type None leaves the type alone. Pods have a cluster, too."""

    uuid: str
    project: str
    user: str
    consumer_type: str | None
    cluster_id: int | None = None

    def labels(self) -> set[Label]:
        """The labels by kind."""
        labels = {("project", self.project), ("user", self.user)}
        return labels if self.consumer_type is None else {*labels, ("type", self.consumer_type)}


_COLUMNS = {
    "uuid": "varchar",
    "project": "varchar",
    "person": "varchar",
    "type": "varchar",
    "cluster_id": "integer",
}
_NOW = sa.bindparam("now", type_=sa.DateTime)
# Whoever has a label that is not there is left out.
_FOUND = """
    FROM {rows}
    JOIN projects ON projects.external_id = given.project
    JOIN users ON users.external_id = given.person
    LEFT JOIN consumer_types ON consumer_types.name = given.type
   WHERE (given.type IS NULL OR consumer_types.id IS NOT NULL)
"""
_CREATE = RowStatement(
    f"""
    INSERT INTO consumers (uuid, project_id, user_id, consumer_type_id, cluster_id, generation, created_at)
    SELECT given.uuid, projects.id, users.id, consumer_types.id, given.cluster_id, 1, :now {_FOUND}
     ORDER BY given.uuid ON CONFLICT DO NOTHING RETURNING uuid
    """,
    "given",
    _COLUMNS,
    _NOW,
)
_ADVANCE = RowStatement(
    f"""
    UPDATE consumers SET generation = generation + 1, updated_at = :now, project_id = projects.id,
           user_id = users.id, consumer_type_id = COALESCE(consumer_types.id, consumers.consumer_type_id),
           dedicated_cpus = NULL
    {_FOUND} AND consumers.uuid = given.uuid
    """,
    "given",
    _COLUMNS,
    _NOW,
)


def create(transaction: Transaction, labellings: Collection[Labelling]) -> set[str]:
    """Insert consumers at generation 1; the uuids inserted, so without those another writer was faster on.

    Raises TryAgain if a label is not there.
    """
    if not labellings:
        return set()
    rows = sorted(labellings, key=lambda labelling: labelling.uuid)
    created = set(_CREATE.run(transaction, rows, now=transaction.now).scalars())
    if len(created) < len(rows):
        _check_labels(transaction, rows)
    return created


def advance(transaction: Transaction, labellings: Sequence[Labelling]) -> None:
    """The next generation of existing consumers, with their labels. Raises TryAgain if one is not there."""
    if not labellings:
        return
    advanced = _ADVANCE.run(transaction, labellings, now=transaction.now)
    if advanced.rowcount < len(labellings):
        _check_labels(transaction, labellings)


def _check_labels(transaction: Transaction, labellings: Collection[Labelling]) -> None:
    """Raises TryAgain, having told all caches to forget, if labels that were registered are not there."""
    wanted = set().union(*(labelling.labels() for labelling in labellings))
    found = 0
    for kind, (table, column) in _LABELS.items():
        of_kind = sorted(label for its_kind, label in wanted if its_kind == kind)
        count = sa.select(sa.func.count()).where(table.c[column].in_(of_kind))
        found += transaction.execute(count).scalar_one() if of_kind else 0
    if found < len(wanted):
        transaction.doubt()
        raise TryAgain("The database does not know a label any more: it is another one than before.")


def note_dedicated_cpus(transaction: Transaction, uuid: str, generation: int, cpus: str) -> None:
    """Keep the dedicated CPUs of a guest with its consumer, unless that has another generation by now."""
    mine = (_table.c.uuid == uuid, _table.c.generation == generation)
    transaction.execute(sa.update(_table).where(*mine).values(dedicated_cpus=cpus))


def delete(transaction: Transaction, uuids: Collection[str]) -> None:
    """Remove consumers, which must hold nothing any more."""
    if uuids:
        transaction.execute(sa.delete(_table).where(_table.c.uuid.in_(sorted(uuids))))


def delete_idle(transaction: Transaction, uuids: Collection[str]) -> None:
    """Remove those of the consumers that hold nothing any more, no logical CPU either."""
    if uuids:
        allocations, cpus = tables.allocations, tables.logical_cpus
        holds = sa.exists().where(allocations.c.consumer_id == _table.c.uuid)
        owns = sa.exists().where(cpus.c.consumer_id == _table.c.uuid)
        transaction.execute(sa.delete(_table).where(_table.c.uuid.in_(sorted(uuids)), ~holds, ~owns))
