"""The writing of audit records: all records of a transaction in one statement, before it commits."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa

from placement.engine.domain.audit import AuditRecord, TargetKind
from placement.engine.domain.request_scope import Initiator, initiator
from placement.storage.backends.backend import Backend
from placement.storage.claim_rows import ClaimRecord

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


def store(
    connection: sa.Connection, backend: Backend, records: Sequence[AuditRecord], stamp: Mapping[str, Any]
) -> None:
    """Write the records, at least one, of the transaction on this connection, which is committed next.

    `stamp`: the time of the transaction, as `now`, and the parameters of its stamp.
    """
    # The record of a pod covers its allocations.
    shown = {record.consumer for record in records if record.kind in _OF_PODS}
    alike = {**dict(zip(_WHO, described(initiator()), strict=True)), **stamp}
    rows = []
    for record in records:
        if record.kind is not TargetKind.ALLOCATIONS or record.consumer not in shown:
            values = (*record[:3], record.consumer, *documents(record.before, record.after))
            rows.append({**dict(zip(_COLUMNS, values, strict=True)), **alike})
    backend.run_last(connection, _insert(type(backend)), rows)


def described(by_initiator: Initiator) -> tuple[str | None, ...]:
    """Return the values of the columns about the initiator, in the order of the table."""
    return (
        by_initiator.user_id,
        by_initiator.project_id,
        ",".join(by_initiator.roles) or None,
        by_initiator.request_id and by_initiator.request_id[:_LONGEST_ID],
        by_initiator.global_request_id and by_initiator.global_request_id[:_LONGEST_ID],
        by_initiator.address,
    )


def claim_record(
    kind: str, target: str, consumer_uuid: str, after: Mapping[str, Any] | None, by_initiator: Initiator
) -> ClaimRecord:
    """Return the record of a new consumer, for the statement that writes its claim."""
    return ClaimRecord(kind, target, consumer_uuid, document(after), *described(by_initiator))


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
