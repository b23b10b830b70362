"""Writing records of changes: all those of a transaction in one statement, before it commits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from placement.domain.audit import Initiator, Kind, Record, initiator
from placement.storage.backends.backend import Backend

if TYPE_CHECKING:
    from placement.storage.database import Transaction

# Of a document that is kept as it is, in characters of JSON.
_LONGEST_DOCUMENT = 4000
_LONGEST_ID = 64
# Made once: it takes longer than encoding a claim.
_encoded = json.JSONEncoder(separators=(",", ":")).encode
_OF_PODS = (Kind.POD, Kind.RESERVATION)
_COLUMNS = ("action", "kind", "target", "consumer_id", "before", "after")
_WHO = ("user_id", "project_id", "roles", "request_id", "global_request_id", "address")


@cache
def _insert(backend: type[Backend]) -> sa.TextClause:
    """The insert of one record. Values that are named in it cost a server less than rows it has to read."""
    columns = (*_COLUMNS, *_WHO)
    text = f"""
        INSERT INTO audit_records (recorded_at, revision, {", ".join(columns)})
        VALUES (:now, {backend.stamp_text}, {", ".join(f":{column}" for column in columns)})
    """
    return sa.text(text).bindparams(sa.bindparam("now", type_=sa.DateTime))


def store(transaction: Transaction, records: Sequence[Record]) -> None:
    """Write the records of a transaction, of which there must be some; it is committed next."""
    # Whoever tells of a pod tells of its allocations.
    told = {record.consumer for record in records if record.kind in _OF_PODS}
    alike = {
        "now": transaction.now,
        **dict(zip(_WHO, described(initiator()), strict=True)),
        **transaction.stamp_parameters,
    }
    rows = [
        {**dict(zip(_COLUMNS, _values(record), strict=True)), **alike}
        for record in records
        if record.kind is not Kind.ALLOCATIONS or record.consumer not in told
    ]
    statement = _insert(type(transaction.backend))
    transaction.backend.run_last(transaction.connection, statement, rows)


def _values(record: Record) -> tuple[str | None, ...]:
    """The values of `_COLUMNS`."""
    return (*record[:3], record.consumer, document(record.before), document(record.after))


def described(who: Initiator) -> tuple[str | None, ...]:
    """The values of the columns that say who acts, in the order of the table."""
    return (
        who.user_id,
        who.project_id,
        ",".join(who.roles) or None,
        _id(who.request_id),
        _id(who.global_request_id),
        who.address,
    )


def document(content: Mapping[str, Any] | None) -> str | None:
    """A document as it is kept: as JSON, or its length if it is long."""
    if content is None:
        return None
    text = _encoded(content)
    return text if len(text) <= _LONGEST_DOCUMENT else json.dumps({"omitted_characters": len(text)})


def _id(text: str | None) -> str | None:
    return None if text is None else text[:_LONGEST_ID]
