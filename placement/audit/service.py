"""The reading of audit records in pages, with the names of their targets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from functools import cache
from itertools import groupby
from operator import itemgetter
from typing import Any, TypeVar

import sqlalchemy as sa

from placement.audit.statements.targets import AuditTarget, targets_called
from placement.engine.domain.audit import (
    AuditFilter,
    DescribedRecord,
    StoredRecord,
    TargetKind,
)
from placement.engine.domain.errors import parameter
from placement.storage import tables
from placement.storage.backends.backend import Backend
from placement.storage.database import Database

_table = tables.audit_records
# The condition of each field of AuditFilter on a record; `before` is the marker of a page.
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


@cache
def _statement(given: frozenset[str]) -> sa.TextualSelect:
    """Return the statement for these parameters: building one anew takes as long as its execution."""
    text = _bound(_page(StoredRecord._fields, given), given)
    return text.columns(*(_table.c[name] for name in StoredRecord._fields))


def _page(columns: Sequence[str], given: frozenset[str]) -> str:
    conditions = [_CONDITIONS[name] for name in sorted(given)]
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    return f"SELECT {', '.join(columns)} FROM audit_records {where} ORDER BY id DESC LIMIT :count"


def _bound(text: str, given: frozenset[str]) -> sa.TextClause:
    bound = sa.text(text)
    if "targets" in given:
        bound = bound.bindparams(sa.bindparam("targets", expanding=True))
    return bound.bindparams(*(sa.bindparam(name, type_=sa.DateTime) for name in sorted(_TIMES & given)))


_DESCRIBED = DescribedRecord._fields[:9]
_OF_PROVIDERS = (TargetKind.PROVIDER, TargetKind.INVENTORIES, TargetKind.TRAITS, TargetKind.AGGREGATES)
_TARGET, _BEFORE, _AFTER = "target", "before", "after"


@cache
def _with_names(backend: type[Backend], given: frozenset[str]) -> sa.TextualSelect:
    """Return the statement for records with names; a record has a row for each name, or one without any."""
    kinds = ", ".join(f"'{kind}'" for kind in _OF_PROVIDERS)
    claims = (
        f"""SELECT claims.id, '{side}', entry.key
              FROM (SELECT id, {side} FROM page
                     WHERE kind = '{TargetKind.ALLOCATIONS}' AND {side} IS NOT NULL) AS claims,
                   {backend.allocations_of.format(column=f"claims.{side}")}"""
        for side in (_BEFORE, _AFTER)
    )
    text = f"""
        WITH page AS ({_page(_DESCRIBED, given)}),
        mentioned AS (
            SELECT id, '{_TARGET}' AS side, target AS uuid FROM page WHERE kind IN ({kinds})
            UNION {" UNION ".join(claims)}),
        named AS (
            SELECT DISTINCT mentioned.id, mentioned.side,
                   CASE WHEN mentioned.side = '{_TARGET}' THEN providers.name ELSE roots.name END AS name
              FROM mentioned JOIN resource_providers AS providers ON providers.uuid = mentioned.uuid
              JOIN resource_providers AS roots ON roots.id = providers.root_provider_id)
        SELECT {", ".join(f"page.{name}" for name in _DESCRIBED)}, named.side, named.name
          FROM page LEFT JOIN named ON named.id = page.id
         ORDER BY page.id DESC, named.name
    """
    of_names = sa.column("side", sa.Text), sa.column("name", sa.Text)
    return _bound(text, given).columns(*(_table.c[name] for name in _DESCRIBED), *of_names)


def _described(rows: Iterable[Any]) -> Iterator[DescribedRecord]:
    """Yield records of rows that have a name each."""
    for _, rows_of_one in groupby(rows, key=itemgetter(0)):
        alike = list(rows_of_one)
        named: dict[str, list[str]] = {_TARGET: [], _BEFORE: [], _AFTER: []}
        for *_, side, name in alike:
            if side is not None:
                named[side].append(name)
        target, before, after = named.values()
        names = (next(iter(target), None), tuple(before), tuple(after))
        yield DescribedRecord._make((*alike[0][: len(_DESCRIBED)], *names))


class AuditTrail:
    """The stored audit records, page by page."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def targets(self, called: str) -> list[AuditTarget]:
        """Return all things that are called so, by name or UUID, now or in records.

        Raises BadRequest if there are none.
        """
        with self._database.read() as connection:
            return targets_called(connection, called, parameter("target"))

    def listed(
        self, filter_: AuditFilter, marker: int | None, count: int
    ) -> tuple[list[StoredRecord], int | None]:
        """Return a page of the next records that match all wanted fields, newest first.

        The second is the marker of the following page, None on the last. Raises KeyError for a field without
        a condition.
        """
        values = _values(filter_, marker)
        with self._database.read() as connection:
            rows = connection.execute(_statement(frozenset(values)), {**values, "count": count + 1}).all()
        return _cut([StoredRecord._make(row) for row in rows], count)

    def described(
        self, filter_: AuditFilter, marker: int | None, count: int
    ) -> tuple[list[DescribedRecord], int | None]:
        """Return a page of records as `listed` does, with the names of providers and hosts."""
        values = _values(filter_, marker)
        with self._database.read() as connection:
            statement = _with_names(type(self._database.backend), frozenset(values))
            rows = connection.execute(statement, {**values, "count": count + 1}).all()
        return _cut(list(_described(rows)), count)


def _values(filter_: AuditFilter, marker: int | None) -> dict[str, Any]:
    given = {field.name: getattr(filter_, field.name) for field in fields(filter_)} | {"before": marker}
    return {name: value for name, value in given.items() if value not in (None, ())}


Record = TypeVar("Record", StoredRecord, DescribedRecord)


def _cut(found: list[Record], count: int) -> tuple[list[Record], int | None]:
    return found[:count], found[count - 1].id if len(found) > count else None
