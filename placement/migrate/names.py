"""Rows that are known by a name: projects, users, consumer types, resource classes, traits, aggregates."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from placement.engine.domain.identifiers import normalize_uuid
from placement.migrate.endpoint import Endpoint
from placement.migrate.migration import Migration
from placement.storage.changes import NAMES_CHANGED, record_change

# Where each is (tables, column), and what people call it.
_NAMED = {
    "resource_classes": ("name", "resource classes"),
    "traits": ("name", "traits"),
    "aggregates": ("uuid", "aggregates"),
    "projects": ("external_id", "projects"),
    "users": ("external_id", "users"),
    "consumer_types": ("name", "consumer types"),
}
# Those that are called by a uuid.
_SPELLED = "aggregates"
# The columns of consumers that refer to owners.
_OWNERS = {"projects": "project_id", "users": "user_id"}
_is_canonical = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}").fullmatch
_UUID_LENGTH = 36
NewIds = Mapping[str, Mapping[int, int]]
"""The ids in the target by the ids in the source, for each kind."""


def canonical(uuid: str) -> str:
    """Return a uuid in lower case with dashes, as this service spells all; what is none stays as it is.

    The incumbent stores uuids of aggregates and consumers as callers spell them.
    """
    return uuid if _is_canonical(uuid) else normalize_uuid(uuid) or uuid


def is_odd(column: sa.ColumnElement[str]) -> sa.ColumnElement[bool]:
    """Return the condition that a uuid is hardly in canonical spelling, as far as all databases can tell.

    MySQL compares without case, so that two spellings which differ by case alone cannot both be there.
    """
    return sa.or_(column != sa.func.lower(column), sa.func.length(column) != _UUID_LENGTH)


def copy(migration: Migration) -> NewIds:
    """Add the names that the target lacks, in the order of the source; return all ids, and remove none.

    Two spellings of one uuid become one aggregate. Projects and users without a consumer are left out.
    """
    source, target, report = migration.source, migration.target, migration.report
    found: dict[str, dict[int, int]] = {}
    for kind, (column, title) in _NAMED.items():
        rows = _rows(source, kind)
        names = {id_: _spelled(kind, name) for id_, name, *_ in rows}
        if kind == _SPELLED:
            report.respelled[title] = sum(names[id_] != name for id_, name, *_ in rows)
            report.merged_aggregates = len(rows) - len(set(names.values()))
        known = _ids(target, kind)
        # The first of two spellings decides about the times.
        times = {names[row[0]]: row[2:] for row in reversed(rows)}
        missing = [(name, *times[name]) for name in dict.fromkeys(names.values()) if name not in known]
        target.insert(getattr(target.tables, kind), (column, "created_at", "updated_at"), missing)
        report.of(title).added += len(missing)
        if missing:
            known = _ids(target, kind)
        found[kind] = {id_: known[name] for id_, name in names.items()}
    new = report.of("resource classes").added + report.of("traits").added
    if target.transaction is not None and new:
        record_change(target.transaction, NAMES_CHANGED)
    return found


def _rows(source: Endpoint, kind: str) -> Sequence[Any]:
    """Return id, name and times, in the order of the ids; projects and users only if they have consumers."""
    table = getattr(source.tables, kind)
    query = sa.select(table.c.id, table.c[_NAMED[kind][0]], table.c.created_at, table.c.updated_at)
    if kind in _OWNERS:
        query = query.where(table.c.id.in_(sa.select(source.tables.consumers.c[_OWNERS[kind]])))
    return source.rows(query.order_by(table.c.id))


def owners(source: Endpoint, kind: str) -> list[str]:
    """Return the names of the projects, or users, that have consumers."""
    return [row[1] for row in _rows(source, kind)]


def _spelled(kind: str, name: str) -> str:
    return canonical(name) if kind == _SPELLED else name


def _ids(endpoint: Endpoint, kind: str) -> dict[str, int]:
    """Return the ids in a target by name.

    An aggregate that this service has in another spelling, from a former import, is not known: running
    services see it replaced. The incumbent's is known, as MySQL would take both spellings for one.
    """
    table = getattr(endpoint.tables, kind)
    rows = endpoint.rows(sa.select(table.c[_NAMED[kind][0]], table.c.id))
    known = dict(map(tuple, rows))
    return known if endpoint.is_ours else {**{_spelled(kind, name): id_ for name, id_ in rows}, **known}


def id_of(target: Endpoint, kind: str, name: str) -> int:
    """Return the id of one name in the target, which is added if it is not there."""
    column, _ = _NAMED[kind]
    table = getattr(target.tables, kind)
    statement = sa.select(table.c.id).where(table.c[column] == name)
    if not target.rows(statement):
        target.insert(table, [column], [[name]])
    return int(target.rows(statement)[0][0])
