"""Reading records: pages of them, and what changed since a moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from typing import Any

import sqlalchemy as sa

from placement.domain.audit import Action, AuditFilter, Change, Kind, RecordHead, StoredRecord
from placement.storage import tables
from placement.storage.backends.backend import Backend
from placement.storage.database import Executor

_table = tables.audit_records
_LAST = 2**62
# What a field of AuditFilter asks of a record; `before` is the marker of a page.
_CONDITIONS = {
    "user_id": "user_id = :user_id",
    "project_id": "project_id = :project_id",
    "request_id": "(request_id = :request_id OR global_request_id = :request_id)",
    "action": "action = :action",
    "kind": "kind = :kind",
    "targets": "target IN :targets",
    "consumer_id": "consumer_id = :consumer_id",
    "since": "recorded_at >= :since",
    "until": "recorded_at < :until",
    "before": "id < :before",
}
_TIMES = {"since", "until"}


def page(connection: Executor, wanted: AuditFilter, before: int | None, count: int) -> list[StoredRecord]:
    """Return records from the newest to the oldest, those with smaller ids than `before`, at most `count`."""
    return [StoredRecord._make(row) for row in _rows(connection, StoredRecord._fields, wanted, before, count)]


def heads(connection: Executor, wanted: AuditFilter, before: int | None, count: int) -> list[RecordHead]:
    """Return the records of `page` as lists show them, without what was before and after."""
    return [RecordHead._make(row) for row in _rows(connection, RecordHead._fields, wanted, before, count)]


def _rows(
    connection: Executor, columns: tuple[str, ...], wanted: AuditFilter, before: int | None, count: int
) -> Sequence[sa.Row[Any]]:
    """Return rows to which all that is wanted applies. Raises KeyError for a field without a condition."""
    given = {field.name: getattr(wanted, field.name) for field in fields(wanted)} | {"before": before}
    values = {name: value for name, value in given.items() if value not in (None, ())}
    rows = connection.execute(_statement(columns, frozenset(values)), {**values, "count": count})
    return list(rows)


@cache
def _statement(columns: tuple[str, ...], given: frozenset[str]) -> sa.TextualSelect:
    """Return the statement for these parameters: building one anew takes as long as its execution."""
    conditions = [_CONDITIONS[name] for name in sorted(given)]
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    text = sa.text(f"SELECT {', '.join(columns)} FROM audit_records {where} ORDER BY id DESC LIMIT :count")
    if "targets" in given:
        text = text.bindparams(sa.bindparam("targets", expanding=True))
    text = text.bindparams(*(sa.bindparam(name, type_=sa.DateTime) for name in sorted(_TIMES & given)))
    return text.columns(*(_table.c[name] for name in columns))


def moment(connection: Executor, backend: Backend) -> str:
    """The present moment, in a transaction that sees one state."""
    return str(connection.execute(sa.text(f"SELECT {backend.moment}")).scalar_one())


def changes_since(connection: Executor, backend: Backend, since: str, most: int) -> list[Change] | None:
    """What changed after a moment, each thing once, those that are gone and consumers in their order.

    None if there are more than `most` changes to look through.
    """
    rows = connection.execute(_changes(type(backend)), {"since": since, "most": most + 1}).all()
    if len(rows) > most:
        return None
    last: dict[tuple[str, str], Change] = {}
    for row in rows:
        change = Change(*row[:4])
        # The last one counts, and has its place.
        last.pop((change.kind, change.id), None)
        last[change.kind, change.id] = change
    return list(last.values())


@cache
def _changes(backend: type[Backend]) -> sa.TextClause:
    """Providers that are there carry the stamp of their last change; all else is told by records.

    A provider that is there was deleted before, if at all, be it in the same transaction. Records are written
    last in a transaction, while it locks what it changed, so of one thing they are in the order of commits;
    stamps are taken when a transaction begins to write, and are not.
    """
    provider, record = (
        backend.is_later.format(column=f"{table}.revision") for table in ("provider", "record")
    )
    return sa.text(
        f"""
        SELECT '{Kind.PROVIDER}' AS kind, provider.uuid AS id, '{Action.UPDATE}' AS action,
               provider.generation AS generation, {_LAST} AS number
          FROM resource_providers AS provider WHERE {provider}
        UNION ALL
        SELECT CASE WHEN record.kind IN ('{Kind.PROVIDER}', '{Kind.DATABASE}') THEN record.kind
                    ELSE 'consumer' END,
               COALESCE(record.consumer_id, record.target), record.action, NULL, record.id
          FROM audit_records AS record
         WHERE {record}
           AND (record.consumer_id IS NOT NULL OR record.kind = '{Kind.DATABASE}'
                OR record.kind = '{Kind.PROVIDER}' AND record.action = '{Action.DELETE}')
         ORDER BY 5 LIMIT :most
        """
    )
