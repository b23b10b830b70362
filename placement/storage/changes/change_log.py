"""What writers tell all processes beside the stamps of providers: rows of the table `changes`."""

from __future__ import annotations

from collections.abc import Iterable

import sqlalchemy as sa

from placement.storage import tables
from placement.storage.changes import old_changes
from placement.storage.database import Transaction

PROVIDER_DELETED = "provider"
NAMES_CHANGED = "names"
CLUSTER_CHANGED = "cluster"


def record_change(transaction: Transaction, kind: str, references: Iterable[int] = (0,)) -> None:
    """Tell all processes of deleted providers and changed clusters (their ids), or of changed names."""
    rows = [{"kind": kind, "reference": reference, "created_at": transaction.now} for reference in references]
    statement = sa.insert(tables.changes).values(revision=transaction.stamp).returning(tables.changes.c.id)
    ids = transaction.execute(statement, rows).scalars()
    if any(id_ % old_changes.EVERY == 0 for id_ in ids):
        old_changes.remove_old(transaction)
