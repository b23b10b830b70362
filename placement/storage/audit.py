"""The storage of audit records: written with a transaction, and removed beside the writers when old."""

from __future__ import annotations

import datetime
import hashlib
import json
import logging
import random
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from placement.engine.domain.audit import AuditRecord, TargetKind
from placement.engine.domain.errors import PlacementError
from placement.engine.domain.request_scope import Initiator, initiator
from placement.metrics.catalog import RETENTION_HELD
from placement.storage import tables
from placement.storage.backends.backend import Backend

if TYPE_CHECKING:
    from placement.storage.database import Database, Transaction


LOG = logging.getLogger(__name__)
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


class DoubtedClock(Exception):
    """A finding that the clock may be wrong, so that nothing is removed by it; has the reason."""

    def __init__(self, metric_reason: str, sentence: str) -> None:
        super().__init__(sentence)
        self.metric_reason = metric_reason


class Doubts:
    """What has to be removed by time, while the clock may be wrong: it stays, which is logged once."""

    def __init__(self, what: str) -> None:
        """Take the name of the things that are kept, in words."""
        self._what = what
        self._logged = ""

    def note(self, doubt: DoubtedClock) -> None:
        """Log and count that nothing is removed."""
        RETENTION_HELD.labels(self._what, doubt.metric_reason).inc()
        if self._logged != doubt.metric_reason:
            self._logged = doubt.metric_reason
            LOG.warning("No old %s are removed: %s", self._what, doubt)

    def clear(self) -> None:
        """Have the next doubt logged again."""
        self._logged = ""


def refuse_other_clock(database: Database) -> None:
    """Raise DoubtedClock if the clock here and the database's differ by a minute. Raises Unavailable."""
    apart = database.seconds_apart()
    if abs(apart) >= CLOCKS_DIFFER_SECONDS:
        raise DoubtedClock(
            "clocks differ", f"the clock of the database is {apart:+.0f} s from the one here; set both right"
        )


class Retention:
    """A remover of old records: now and then a write starts a thread, which ends when it has done so.

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

    def wrote(self) -> None:
        """Start to remove old records if that is due; called after records were written."""
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
        except DoubtedClock as doubt:
            self._doubts.note(doubt)
            return 0
        self._doubts.clear()
        return removed

    def _end_of_due(self, transaction: Transaction) -> datetime.datetime:
        """Return the time before which records are due.

        Raises DoubtedClock if there is none, although some would be overdue by the clock alone.
        """
        proof, due = proof_of(self._keep), transaction.now - self._keep
        proving = sa.select(sa.func.max(_times)).where(_times <= transaction.now - proof)
        proven: datetime.datetime | None = transaction.execute(proving).scalar()
        before = due if proven is None else min(due, proven + proof - self._keep)
        first = transaction.execute(sa.select(sa.func.min(_times))).scalar()
        # A quiet day is no reason to doubt the clock.
        if first is not None and before <= first < due - proof:
            raise DoubtedClock(
                "clock jumped",
                f"the clock here says {transaction.now:%Y-%m-%d %H:%M} UTC, and the last record before is of "
                f"{proven:%Y-%m-%d %H:%M}; set it right, or if it is right, wait: they are removed in a day",
            )
        return before


# Writing records of changes: all records of a transaction in one statement, before it commits.


# The longest document that is kept as it is, in characters of JSON.
_LONGEST_DOCUMENT = 4000
_LONGEST_ID = 64
_OMITTED = "omitted_characters"
# The names of changed members that are kept.
_MOST_NAMES = 50
# Made once: making the encoder takes longer than encoding a claim.
_encoded = json.JSONEncoder(separators=(",", ":")).encode
_OF_PODS = (TargetKind.POD, TargetKind.RESERVATION)
_COLUMNS = ("action", "kind", "target", "consumer_id", "before", "after")
_WHO = ("user_id", "project_id", "roles", "request_id", "global_request_id", "address")


@cache
def _insert(backend: type[Backend]) -> sa.TextClause:
    """Return the insert of one record. Values named in it cost a server less than rows it has to read."""
    columns = (*_COLUMNS, *_WHO)
    text = f"""
        INSERT INTO audit_records (recorded_at, revision, {", ".join(columns)})
        VALUES (:now, {backend.stamp_text}, {", ".join(f":{column}" for column in columns)})
    """
    return sa.text(text).bindparams(sa.bindparam("now", type_=sa.DateTime))


def store(transaction: Transaction, records: Sequence[AuditRecord]) -> None:
    """Write the records of a transaction, of which there must be some; it is committed next."""
    # The record of a pod covers its allocations.
    shown = {record.consumer for record in records if record.kind in _OF_PODS}
    alike = {
        "now": transaction.now,
        **dict(zip(_WHO, described(initiator()), strict=True)),
        **transaction.stamp_parameters,
    }
    rows = []
    for record in records:
        if record.kind is not TargetKind.ALLOCATIONS or record.consumer not in shown:
            values = (*record[:3], record.consumer, *documents(record.before, record.after))
            rows.append({**dict(zip(_COLUMNS, values, strict=True)), **alike})
    statement = _insert(type(transaction.backend))
    transaction.backend.run_last(transaction.connection, statement, rows)


def described(acting: Initiator) -> tuple[str | None, ...]:
    """Return the values of the columns about the initiator, in the order of the table."""
    return (
        acting.user_id,
        acting.project_id,
        ",".join(acting.roles) or None,
        acting.request_id and acting.request_id[:_LONGEST_ID],
        acting.global_request_id and acting.global_request_id[:_LONGEST_ID],
        acting.address,
    )


def documents(
    before: Mapping[str, Any] | None, after: Mapping[str, Any] | None
) -> tuple[str | None, str | None]:
    """Return both documents as they are kept; of long ones with the names of the members that differ."""
    kept = document(before), document(after)
    if before is None or after is None or not any(text and _OMITTED in text for text in kept):
        return kept
    names = sorted(before.keys() | after.keys())
    changed = [name for name in names if before.get(name) != after.get(name)][:_MOST_NAMES]
    return document(before, changed), document(after, changed)


def document(content: Mapping[str, Any] | None, changed: Sequence[str] | None = None) -> str | None:
    """Return a document as it is kept: as JSON, or its length, its SHA-256 and what `changed` if it is long.

    So no change hides in a long document: one with another hash is another document.
    """
    if content is None:
        return None
    text = _encoded(content)
    if len(text) <= _LONGEST_DOCUMENT:
        return text
    digest = hashlib.sha256(text.encode()).hexdigest()
    kept = {_OMITTED: len(text), "sha256": digest}
    return json.dumps(kept if changed is None else {**kept, "changed": changed})
