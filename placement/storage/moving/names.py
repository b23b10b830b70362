"""What is known by a name: projects, users, kinds of consumers, resource classes, traits, aggregates."""

from __future__ import annotations

from dataclasses import dataclass

import sqlalchemy as sa

from placement.storage.changes.change_log import NAMES_CHANGED, record_change
from placement.storage.moving.side import Report, Side

# Where each is (tables, column), and what people call it.
_NAMED = {
    "resource_classes": ("name", "resource classes"),
    "traits": ("name", "traits"),
    "aggregates": ("uuid", "aggregates"),
    "projects": ("external_id", "projects"),
    "users": ("external_id", "users"),
    "consumer_types": ("name", "consumer types"),
}


@dataclass(frozen=True)
class Ids:
    """For each kind the ids in the target, by the ids in the source."""

    resource_classes: dict[int, int]
    traits: dict[int, int]
    aggregates: dict[int, int]
    projects: dict[int, int]
    users: dict[int, int]
    consumer_types: dict[int, int]


def copy(source: Side, target: Side, report: Report) -> Ids:
    """Add the names that the target lacks, in the order of the source; none is removed."""
    found = Ids(**{kind: _copy(kind, source, target, report) for kind in _NAMED})
    new = report.of("resource classes").added + report.of("traits").added
    if target.transaction is not None and new:
        record_change(target.transaction, NAMES_CHANGED)
    return found


def _copy(kind: str, source: Side, target: Side, report: Report) -> dict[int, int]:
    column, title = _NAMED[kind]
    table = getattr(source.tables, kind)
    query = sa.select(table.c.id, table.c[column], table.c.created_at, table.c.updated_at)
    rows = source.rows(query.order_by(table.c.id))
    known = _ids(target, kind)
    missing = [row[1:] for row in rows if row[1] not in known]
    target.insert(getattr(target.tables, kind), (column, "created_at", "updated_at"), missing)
    report.of(title).added += len(missing)
    if missing:
        known = _ids(target, kind)
    return {id_: known[name] for id_, name, *_ in rows}


def _ids(side: Side, kind: str) -> dict[str, int]:
    table = getattr(side.tables, kind)
    return dict(map(tuple, side.rows(sa.select(table.c[_NAMED[kind][0]], table.c.id))))


def id_of(target: Side, kind: str, name: str) -> int:
    """The id of one name in the target, which is added if it is not there."""
    column, _ = _NAMED[kind]
    table = getattr(target.tables, kind)
    statement = sa.select(table.c.id).where(table.c[column] == name)
    if not target.rows(statement):
        target.insert(table, [column], [[name]])
    return int(target.rows(statement)[0][0])
