"""Statements on consumers and their labels: projects, users, consumer types."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

import sqlalchemy as sa

from placement.domain.errors import Conflict
from placement.storage import names, tables
from placement.storage.database import Database, Executor, Transaction

_table = tables.consumers
_LABELS = {
    "project": (tables.projects, "external_id"),
    "user": (tables.users, "external_id"),
    "type": (tables.consumer_types, "name"),
}
_MOST_KNOWN = 100_000


class LabelIds:
    """Ids of projects, users and consumer types; labels are registered on first use and never deleted.

    Registration is a transaction of its own: a label without consumers harms nobody, and what this object
    remembers must not depend on whether a claim succeeds.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._known: dict[tuple[str, str], int] = {}

    def of(self, labels: Iterable[tuple[str, str]]) -> Mapping[tuple[str, str], int]:
        """The ids of (kind, label) pairs; kind is "project", "user" or "type"."""
        # One dictionary all along: another thread may begin a new one at any time.
        known = self._known
        wanted = set(labels)
        ids = {label: known[label] for label in wanted if label in known}
        unknown = wanted - ids.keys()
        if unknown:
            found = self._register(unknown)
            ids.update(found)
            if len(known) >= _MOST_KNOWN:
                self._known = found
            else:
                known.update(found)
        return ids

    def _register(self, labels: Collection[tuple[str, str]]) -> dict[tuple[str, str], int]:
        found: dict[tuple[str, str], int] = {}
        with self._database.write() as transaction:
            for kind, (table, column) in _LABELS.items():
                wanted = [label for of_kind, label in labels if of_kind == kind]
                if wanted:
                    names.insert_ignoring_known(transaction, table, column, wanted)
                    found.update({(kind, label): id_ for label, id_ in _ids(transaction, kind, wanted)})
        return found


def _ids(connection: Executor, kind: str, labels: Collection[str]) -> list[tuple[str, int]]:
    table, column = _LABELS[kind]
    statement = sa.select(table.c[column], table.c.id).where(table.c[column].in_(sorted(set(labels))))
    return [(row[0], row[1]) for row in connection.execute(statement)]


class Consumer(NamedTuple):
    """A consumer that holds allocations."""

    uuid: str
    generation: int
    project_id: str
    user_id: str
    consumer_type: str | None


_described = (
    sa.select(
        _table.c.uuid,
        _table.c.generation,
        tables.projects.c.external_id,
        tables.users.c.external_id,
        tables.consumer_types.c.name,
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
    """The label ids a consumer shall carry; type None leaves the type alone. Pods have a cluster, too."""

    uuid: str
    project_id: int
    user_id: int
    consumer_type_id: int | None
    cluster_id: int | None = None


def create(transaction: Transaction, labellings: Collection[Labelling]) -> set[str]:
    """Insert consumers at generation 1; the uuids inserted, so without those another writer was faster on."""
    if not labellings:
        return set()
    rows = [
        {**labelling._asdict(), "generation": 1, "created_at": transaction.now}
        for labelling in sorted(labellings, key=lambda labelling: labelling.uuid)
    ]
    statement = transaction.insert_or_ignore(_table).returning(_table.c.uuid)
    return set(transaction.execute(statement, rows).scalars())


# Both texts are constant, so that nothing is compiled twice. A type of 0 leaves the type alone.
_ADVANCE = """
    UPDATE consumers SET generation = generation + 1, updated_at = :now,
           project_id = wanted.project_id, user_id = wanted.user_id,
           consumer_type_id = COALESCE(NULLIF(wanted.type_id, 0), consumer_type_id)
      FROM {wanted}
     WHERE consumers.uuid = wanted.uuid
"""
_ADVANCE_POSTGRESQL = sa.text(
    _ADVANCE.format(
        wanted="""unnest(CAST(:uuid AS varchar[]), CAST(:project_id AS integer[]),
                         CAST(:user_id AS integer[]), CAST(:type_id AS integer[]))
                  AS wanted(uuid, project_id, user_id, type_id)"""
    )
).bindparams(sa.bindparam("now", type_=sa.DateTime))
_ADVANCE_SQLITE = sa.text(
    _ADVANCE.format(
        wanted="""(SELECT json_extract(value, '$[0]') AS uuid,
                          json_extract(value, '$[1]') AS project_id,
                          json_extract(value, '$[2]') AS user_id,
                          json_extract(value, '$[3]') AS type_id
                     FROM json_each(:labellings)) AS wanted"""
    )
).bindparams(sa.bindparam("now", type_=sa.DateTime))


def advance(transaction: Transaction, labellings: Sequence[Labelling]) -> None:
    """The next generation of existing consumers, with their labels."""
    if not labellings:
        return
    rows = [labelling._replace(consumer_type_id=labelling.consumer_type_id or 0) for labelling in labellings]
    if transaction.is_postgresql:
        uuid, project_id, user_id, type_id, _ = (list(column) for column in zip(*rows, strict=True))
        columns = {"uuid": uuid, "project_id": project_id, "user_id": user_id, "type_id": type_id}
        transaction.execute(_ADVANCE_POSTGRESQL, {**columns, "now": transaction.now})
    else:
        transaction.execute(_ADVANCE_SQLITE, {"labellings": json.dumps(rows), "now": transaction.now})


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
