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
from placement.storage import tables
from placement.storage.backends.backend import Backend

if TYPE_CHECKING:
    from placement.storage.database import Database, Transaction


LOG = logging.getLogger(__name__)
_table = tables.audit_records
# Few enough that a writer that waits for their removal hardly notices.
AT_ONCE = 500
_PAUSE_SECONDS = 0.1
_EVERY_SECONDS = 600.0


class Retention:
    """A remover of old records: now and then a write starts a thread, which ends when it has done so."""

    def __init__(self, database: Database, keep: datetime.timedelta) -> None:
        self._database = database
        self._keep = keep
        self._lock = threading.Lock()
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
        with self._database.write() as transaction:
            statement = transaction.removal(_table.c.recorded_at, self._keep, AT_ONCE)
            return len(transaction.execute(statement.returning(_table.c.id)).all())


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
