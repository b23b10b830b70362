"""Removing records that are old, beside the writers and never inside of what they write."""

from __future__ import annotations

import datetime
import logging
import random
import threading
import time
from typing import TYPE_CHECKING

import sqlalchemy as sa

from placement.domain.errors import PlacementError
from placement.storage import tables

if TYPE_CHECKING:
    from placement.storage.database import Database

LOG = logging.getLogger(__name__)
_table = tables.audit_records
# Few enough that a writer who waits for them hardly notices.
AT_ONCE = 500
_PAUSE_SECONDS = 0.1
_EVERY_SECONDS = 600.0


class Retention:
    """Removes old records now and then while there are writers, in a thread that ends when it has done so."""

    def __init__(self, database: Database, keep: datetime.timedelta) -> None:
        self._database = database
        self._keep = keep
        self._lock = threading.Lock()
        # Processes that started together do not look together.
        self._due = time.monotonic() + random.uniform(0.1, 1) * _EVERY_SECONDS

    def wrote(self) -> None:
        """Records were written: look for old ones if nobody has for long."""
        if time.monotonic() < self._due:
            return
        with self._lock:
            if time.monotonic() < self._due:
                return
            self._due = time.monotonic() + _EVERY_SECONDS
        threading.Thread(target=self._run, name="audit-retention", daemon=True).start()

    def _run(self) -> None:
        try:
            while self.remove_some() == AT_ONCE:
                time.sleep(_PAUSE_SECONDS)
        except PlacementError as error:
            LOG.info("Old audit records are removed later: %s", error)
        except Exception:
            LOG.exception("Removing old audit records failed.")

    def remove_some(self) -> int:
        """Remove the oldest records that are past their time; how many. Raises Unavailable."""
        with self._database.write() as transaction:
            oldest = (
                sa.select(_table.c.id)
                .where(_table.c.recorded_at < transaction.now - self._keep)
                .order_by(_table.c.recorded_at)
                .limit(AT_ONCE)
            )
            ids = transaction.backend.removable(oldest, _table.c.revision).cte("oldest")
            statement = sa.delete(_table).where(_table.c.id.in_(sa.select(ids.c.id))).returning(_table.c.id)
            return len(transaction.execute(statement).all())
