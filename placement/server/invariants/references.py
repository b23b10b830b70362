"""References: no row names a row that is not there.

The keys of the tables refuse that, but not what a damaged disk, a partial restore or a session that
switched them off leaves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import sqlalchemy as sa

from placement.server import online_migrations
from placement.server.invariants.invariant import Invariant
from placement.server.online_migrations import MigrationOwner
from placement.storage import tables
from placement.storage.database import Transaction

# Rows that only describe a missing row mean nothing. On all others an operator has to decide: where owners of
# CPUs are deleted, the CPUs may be given away twice.
_BELONGINGS = {
    *(
        key.parent
        for table in (tables.provider_traits, tables.provider_aggregates)
        for key in table.foreign_keys
    ),
    tables.logical_cpus.c.node_id,
}
# The column that people know a row by, beside its key.
_KNOWN_BY = {
    tables.providers: "uuid",
    tables.consumers: "uuid",
    tables.allocations: "consumer_id",
    tables.clusters: "name",
    tables.nodes: "name",
    tables.pods: "name",
}


def references(owner: MigrationOwner) -> Iterator[Invariant]:
    """Yield an invariant for each column that refers to a row; holders without a record get this owner."""
    for table in tables.metadata.sorted_tables:
        keys = list(table.primary_key.columns)
        known_by = [table.c[_KNOWN_BY[table]].label("known_by")] if table in _KNOWN_BY else []
        which = ", ".join(f"{part.name} {{key_{part.name}}}" for part in keys)
        named = " ({known_by})" if known_by else ""
        for key in sorted(table.foreign_keys, key=lambda key: key.parent.name):
            column, referred = key.parent, key.column.table.alias("referred")
            target = referred.c[key.column.name]
            query = (
                sa.select(
                    *(part.label(f"key_{part.name}") for part in keys), *known_by, column.label("missing")
                )
                .select_from(table)
                .outerjoin(referred, target == column)
                .where(column.is_not(None), target.is_(None))
                .order_by(*keys)
            )
            remedy, mend = "", None
            if column is tables.allocations.c.consumer_id:
                remedy = f"give {{missing}} a record, of project {owner.project_id} and user {owner.user_id}"
                mend = partial(_record, owner)
            elif column in _BELONGINGS:
                remedy, mend = "delete the row", partial(_delete, table)
            yield Invariant(
                f"{table.name}-refer-to-{column.name}",
                query,
                f"{table.name}, {which}{named}: its {column.name} {{missing}} is not in "
                f"{key.column.table.name}",
                remedy=remedy,
                mend=mend,
            )


def _record(owner: MigrationOwner, transaction: Transaction, rows: Sequence[Any]) -> None:
    online_migrations.create_consumers(transaction, len(rows), owner)


def _delete(table: sa.Table, transaction: Transaction, rows: Sequence[Any]) -> None:
    # No other transaction writes these: what they refer to cannot be found, and ids are never given again.
    for row in rows:
        mine = [key == getattr(row, f"key_{key.name}") for key in table.primary_key.columns]
        transaction.execute(sa.delete(table).where(*mine))
