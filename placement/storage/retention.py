"""The removal of old records, beside the writers, and only by a clock that is proved right."""

from __future__ import annotations

import datetime
import logging
import random
import threading
import time

import sqlalchemy as sa

from placement.engine.domain.errors import PlacementError
from placement.metrics.catalog import RETENTION_HELD
from placement.storage import tables
from placement.storage.database import Database, Transaction

# Operators know this name from log lines of former releases.
LOG = logging.getLogger("placement.storage.audit")
_table = tables.audit_records
_times = _table.c.recorded_at
# Few enough that a writer that waits for their removal hardly notices.
AT_ONCE = 500
_PAUSE_SECONDS = 0.1
_EVERY_SECONDS = 600.0


# Clocks that differ by as much are no longer two good ones.
CLOCKS_DIFFER_SECONDS = 60.0
_DAY = datetime.timedelta(days=1)


def proof_of(keep: datetime.timedelta) -> datetime.timedelta:
    """Return how long a clock has to show the same era before it removes what is kept for `keep`.

    Until then a clock that is ahead removes no more than what falls due within that time.
    """
    return min(_DAY, keep / 4)


class ClockDoubt(Exception):
    """A finding that the clock may be wrong, so that nothing is removed by it; has the reason."""

    def __init__(self, metric_reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.metric_reason = metric_reason


class Doubts:
    """Things that are due for removal while the clock may be wrong: they stay, which is logged once."""

    def __init__(self, what: str) -> None:
        """Take the name of the things that are kept, in words."""
        self._what = what
        self._logged = ""

    def note(self, doubt: ClockDoubt) -> None:
        """Log and count that nothing is removed."""
        RETENTION_HELD.labels(self._what, doubt.metric_reason).inc()
        if self._logged != doubt.metric_reason:
            self._logged = doubt.metric_reason
            LOG.warning("No old %s are removed: %s", self._what, doubt)

    def clear(self) -> None:
        """Have the next doubt logged again."""
        self._logged = ""


def refuse_other_clock(database: Database) -> None:
    """Raise ClockDoubt if the clock here and the database's differ by a minute. Raises Unavailable."""
    apart = database.seconds_apart()
    if abs(apart) >= CLOCKS_DIFFER_SECONDS:
        raise ClockDoubt(
            "clocks differ", f"the clock of the database is {apart:+.0f} s from the one here; set both right"
        )


class Retention:
    """The removal of old records: now and then a write starts a thread, which ends with its work.

    Removed records do not come back, and clocks may be wrong. So a record goes only if

    1. the clocks of process and database agree;
    2. another record proves the time: it is at least a day old, and younger than what goes. A machine that
       boots 400 days ahead finds none, and has a day to be set right;
    3. it was written before the first record that stays. Records of a machine that was behind or ahead stay
       so for as long as the ones beside them.

    """

    def __init__(self, database: Database, keep: datetime.timedelta) -> None:
        self._database = database
        self._keep = keep
        self._lock = threading.Lock()
        self._doubts = Doubts("audit records")
        # Processes that started together do not look together.
        self._due = time.monotonic() + random.uniform(0.1, 1) * _EVERY_SECONDS

    def follow(self) -> None:
        """Start with writes to the database that leave records, ten minutes after the last start or later."""
        self._database.after_records = self._start_if_due

    def _start_if_due(self) -> None:
        # Each writer compares, and few of them start anything.
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
        """Remove the oldest records that are past their time; return how many. Raises Unavailable."""
        try:
            refuse_other_clock(self._database)
            with self._database.write() as transaction:
                before = self._end_of_due(transaction)
                first_kept = (
                    sa.select(_table.c.id).where(_times >= before).order_by(_times, _table.c.id).limit(1)
                )
                written_before = _table.c.id < first_kept.scalar_subquery()
                removed = 0
                # Records of a clock that was ahead go with the ones beside them, too.
                for due in (_times < before, _times > transaction.now + _DAY):
                    some = transaction.removal(_times, AT_ONCE - removed, due, written_before)
                    removed += len(transaction.execute(some.returning(_table.c.id)).all())
        except ClockDoubt as doubt:
            self._doubts.note(doubt)
            return 0
        self._doubts.clear()
        return removed

    def _end_of_due(self, transaction: Transaction) -> datetime.datetime:
        """Return the time before which records are due.

        Raises ClockDoubt if there is none, although some would be overdue by the clock alone.
        """
        proof, due = proof_of(self._keep), transaction.now - self._keep
        proving = sa.select(sa.func.max(_times)).where(_times <= transaction.now - proof)
        proven: datetime.datetime | None = transaction.execute(proving).scalar()
        before = due if proven is None else min(due, proven + proof - self._keep)
        first = transaction.execute(sa.select(sa.func.min(_times))).scalar()
        # A quiet day is no reason to doubt the clock.
        if first is not None and before <= first < due - proof:
            raise ClockDoubt(
                "clock jumped",
                f"the clock here says {transaction.now:%Y-%m-%d %H:%M} UTC, but the last record is of "
                f"{proven:%Y-%m-%d %H:%M}; correct the clock, or wait a day if it is right",
            )
        return before
