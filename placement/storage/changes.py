"""Changes that writers report to all processes beside the stamps of providers: rows of the table `changes`.

Old rows are removed, and a mark in their place carries the newest stamp among them. A reader with an
older horizon than that finds the mark and knows that it missed rows; other readers do not see it. Marks
are removed like other rows; a newer mark takes their place.
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
