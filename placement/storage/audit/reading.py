"""Reading records: pages of them, and what changed since a moment."""

from __future__ import annotations

from functools import cache
from typing import Any

import sqlalchemy as sa

from placement.domain.audit import Action, AuditFilter, Change, Kind, RecordHead, StoredRecord
from placement.storage import tables
from placement.storage.backends.backend import Backend
from placement.storage.database import Executor

_table = tables.audit_records


_LAST = 2**62
_records = sa.select(*(_table.c[name] for name in StoredRecord._fields)).order_by(_table.c.id.desc())


def page(connection: Executor, wanted: AuditFilter, before: int | None, count: int) -> list[StoredRecord]:
    """Records from the newest to the oldest, those with smaller ids than `before`, at most `count`."""
    rows = connection.execute(_narrowed(_records, wanted, before).limit(count))
    return [StoredRecord(*row) for row in rows]


def heads(connection: Executor, wanted: AuditFilter, before: int | None, count: int) -> list[RecordHead]:
    """The same as lists show them, without what was before and after.

    Of what is wanted, users, projects, kinds, targets, consumers and the beginning count.
    """
    given = {name: value for name in _CONDITIONS if (value := getattr(wanted, name, None))}
    values = {**given, **({} if before is None else {"before": before}), "count": count}
    return [RecordHead(*row) for row in connection.execute(_heads(frozenset(values)), values)]


_CONDITIONS = {
    "user_id": "user_id = :user_id",
    "project_id": "project_id = :project_id",
    "kind": "kind = :kind",
    "targets": "target IN :targets",
    "consumer_id": "consumer_id = :consumer_id",
    "since": "recorded_at >= :since",
    "before": "id < :before",
}


@cache
def _heads(given: frozenset[str]) -> sa.TextualSelect:
    """The statement for these parameters: building one anew takes as long as its execution."""
    conditions = [_CONDITIONS[name] for name in sorted(given & _CONDITIONS.keys())]
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    columns = ", ".join(RecordHead._fields)
    text = sa.text(f"SELECT {columns} FROM audit_records {where} ORDER BY id DESC LIMIT :count")
    if "targets" in given:
        text = text.bindparams(sa.bindparam("targets", expanding=True))
    if "since" in given:
        text = text.bindparams(sa.bindparam("since", type_=sa.DateTime))
    return text.columns(*(_table.c[name] for name in RecordHead._fields))


def _narrowed(
    statement: sa.Select[tuple[Any, ...]], wanted: AuditFilter, before: int | None
) -> sa.Select[tuple[Any, ...]]:
    for name in ("user_id", "project_id", "action", "kind", "target", "consumer_id"):
        value = getattr(wanted, name)
        if value is not None:
            statement = statement.where(_table.c[name] == value)
    if wanted.targets:
        statement = statement.where(_table.c.target.in_(wanted.targets))
    if wanted.request_id is not None:
        own, callers = _table.c.request_id, _table.c.global_request_id
        statement = statement.where(sa.or_(own == wanted.request_id, callers == wanted.request_id))
    if wanted.since is not None:
        statement = statement.where(_table.c.recorded_at >= wanted.since)
    if wanted.until is not None:
        statement = statement.where(_table.c.recorded_at < wanted.until)
    if before is not None:
        statement = statement.where(_table.c.id < before)
    return statement


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
