"""No row refers to a row that is not there.

The keys of the tables refuse that, but not what a damaged disk, a partial restore or a session that switched
them off leaves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import sqlalchemy as sa

from placement.storage import tables
from placement.storage.checks.invariant import Invariant, Repair
from placement.storage.database import Transaction
from placement.storage.statements import online_migrations

# What is said of a row that is not there means nothing. Of all others a person says what becomes of them:
# who deletes the owners of CPUs may give them away twice.
_BELONGINGS = {
    *(
        key.parent
        for table in (tables.provider_traits, tables.provider_aggregates)
        for key in table.foreign_keys
    ),
    tables.logical_cpus.c.node_id,
}
# What people know a row by, beside its key.
_KNOWN_BY = {
    tables.providers: "uuid",
    tables.consumers: "uuid",
    tables.allocations: "consumer_id",
    tables.clusters: "name",
    tables.nodes: "name",
    tables.pods: "name",
}


def invariants(project: str, user: str) -> list[Invariant]:
    """One for each column that refers to a row; holders without a record are given one of this owner."""
    return [
        _of(table, key, project, user)
        for table in tables.metadata.sorted_tables
        for key in sorted(table.foreign_keys, key=lambda key: key.parent.name)
    ]


def _of(table: sa.Table, key: sa.ForeignKey, project: str, user: str) -> Invariant:
    column, referred = key.parent, key.column.table.alias("referred")
    target = referred.c[key.column.name]
    keys = list(table.primary_key.columns)
    known_by = [table.c[_KNOWN_BY[table]]] if table in _KNOWN_BY else []
    query = (
        sa.select(
            *(part.label(f"key_{part.name}") for part in keys), *_labelled(known_by), column.label("missing")
        )
        .select_from(table)
        .outerjoin(referred, target == column)
        .where(column.is_not(None), target.is_(None))
        .order_by(*keys)
    )
    which = ", ".join(f"{part.name} {{key_{part.name}}}" for part in keys)
    who = " ({known_by})" if known_by else ""
    return Invariant(
        f"{table.name}-refer-to-{column.name}",
        query,
        f"{table.name}, {which}{who}: its {column.name} {{missing}} is not in {key.column.table.name}",
        repair=_repair(table, column, project, user),
    )


def _labelled(columns: list[sa.Column[Any]]) -> Iterator[sa.ColumnElement[Any]]:
    return (column.label("known_by") for column in columns)


def _repair(table: sa.Table, column: sa.Column[Any], project: str, user: str) -> Repair | None:
    if column is tables.allocations.c.consumer_id:
        sentence = f"give {{missing}} a record, of project {project} and user {user}"
        return Repair(
            sentence.replace("{{missing}}", "{missing}"), partial(_record, project=project, user=user)
        )
    if column in _BELONGINGS:
        return Repair("delete the row", partial(_delete, table, list(table.primary_key.columns)))
    return None


def _record(transaction: Transaction, rows: Sequence[Any], project: str, user: str) -> None:
    online_migrations.create_consumers(transaction, len(rows), project, user)


def _delete(
    table: sa.Table, keys: list[sa.Column[Any]], transaction: Transaction, rows: Sequence[Any]
) -> None:
    # Nobody else writes these: what they refer to cannot be found, and ids are never given again.
    for row in rows:
        mine = [key == getattr(row, f"key_{key.name}") for key in keys]
        transaction.execute(sa.delete(table).where(*mine))
