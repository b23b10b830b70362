"""What writers tell all processes beside the stamps of providers: rows of the table `changes`.

Old rows are removed, and a mark in their place carries the newest stamp among them. A reader whose horizon is
older than that stamp finds the mark and knows that it missed rows; other readers do not see it. Marks are
removed like other rows; a newer mark takes their place.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable

import sqlalchemy as sa

from placement.storage import tables
from placement.storage.database import Transaction

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
    """Remove some of the rows that are older than a day, but none that a reader who is up to date may miss.

    So such a reader never meets a mark.
    """
    oldest = (
        sa.select(_table.c.id)
        .where(_table.c.created_at < transaction.now - KEPT)
        .order_by(_table.c.created_at)
        .limit(AT_ONCE)
    )
    ids = transaction.backend.removable(oldest, _table.c.revision).cte("oldest")
    stamp = sa.cast(sa.cast(_table.c.revision, sa.Text), sa.BigInteger)
    statement = sa.delete(_table).where(_table.c.id.in_(sa.select(ids.c.id))).returning(stamp)
    stamps = list(transaction.execute(statement).scalars())
    if stamps:
        newest = sa.cast(str(max(stamps)), _table.c.revision.type)
        values = {"kind": REMOVED, "reference": 0, "created_at": transaction.now, "revision": newest}
        transaction.execute(sa.insert(_table).values(values))


def record_change(transaction: Transaction, kind: str, references: Iterable[int] = (0,)) -> None:
    """Tell all processes of deleted providers and changed clusters (their ids), or of changed names."""
    rows = [{"kind": kind, "reference": reference, "created_at": transaction.now} for reference in references]
    statement = sa.insert(tables.changes).values(revision=transaction.stamp).returning(tables.changes.c.id)
    ids = transaction.execute(statement, rows).scalars()
    if any(id_ % EVERY == 0 for id_ in ids):
        remove_old(transaction)
