"""Consumers with their projects, users, kinds and generations."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from placement.domain.errors import Conflict
from placement.domain.portions import portions
from placement.storage.moving import names
from placement.storage.moving.names import Ids
from placement.storage.moving.providers import foreign_ids
from placement.storage.moving.side import AT_ONCE, Progress, Report, Side

_CONTENT = ("uuid", "project_id", "user_id", "consumer_type_id", "generation")
_READ_AT_ONCE = 5000


def copy(source: Side, target: Side, ids: Ids, report: Report, progress: Progress) -> set[str]:
    """Add and change consumers until those of the source are there; their uuids."""
    table = source.tables.consumers
    total = source.rows(sa.select(sa.func.count()).select_from(table))[0][0]
    columns = [table.c[name] for name in ("id", *_CONTENT, "created_at", "updated_at")]
    query = sa.select(*columns).where(table.c.id > sa.bindparam("after")).order_by(table.c.id)
    present = _present(target)
    found: set[str] = set()
    after = -1
    while rows := source.rows(query.limit(_READ_AT_ONCE), after=after):
        after = rows[-1][0]
        wanted = [_translated(row, ids) for row in rows]
        found.update(row["uuid"] for row in wanted)
        _write(wanted, present, target, report)
        progress("consumers", len(found), total)
    return found


def _present(target: Side) -> dict[str, Any]:
    """The consumers of the target by uuid: id, cluster, and what `_CONTENT` names."""
    table = target.tables.consumers
    cluster = table.c.cluster_id if target.is_ours else sa.null()
    rows = target.rows(sa.select(table.c.id, cluster, *(table.c[name] for name in _CONTENT)))
    return {row.uuid: row for row in rows}


def _translated(row: Any, ids: Ids) -> dict[str, Any]:
    _, uuid, project, user, kind, generation, created, updated = row
    return {
        "uuid": uuid,
        "project_id": ids.projects[project],
        "user_id": ids.users[user],
        "consumer_type_id": None if kind is None else ids.consumer_types[kind],
        "generation": generation,
        "created_at": created,
        "updated_at": updated,
    }


def _write(wanted: list[dict[str, Any]], present: dict[str, Any], target: Side, report: Report) -> None:
    found = [present[row["uuid"]] for row in wanted if row["uuid"] in present]
    pods = [row.uuid for row in found if row[1] is not None]
    if pods:
        raise Conflict(f"consumers that are pods of clusters of this service: {', '.join(pods[:5])}")
    new = [tuple(row.values()) for row in wanted if row["uuid"] not in present]
    changed = [
        {**row, "id": present[row["uuid"]].id}
        for row in wanted
        if row["uuid"] in present and tuple(row[name] for name in _CONTENT) != tuple(present[row["uuid"]][2:])
    ]
    table = target.tables.consumers
    target.insert(table, list(wanted[0]), new)
    target.update(table, changed)
    report.of("consumers").added += len(new)
    report.of("consumers").changed += len(changed)


def complete(source: Side, target: Side, owner: tuple[str, str], report: Report) -> list[str]:
    """Give holders without a record one with this project and user, as `online_data_migrations` does.

    Returns their uuids.
    """
    allocations, consumers = source.tables.allocations, source.tables.consumers
    query = (
        sa.select(allocations.c.consumer_id)
        .outerjoin(consumers, consumers.c.uuid == allocations.c.consumer_id)
        .where(consumers.c.id.is_(None))
        .distinct()
    )
    orphans = [row[0] for row in source.rows(query)]
    if orphans:
        project = names.id_of(target, "projects", owner[0])
        user = names.id_of(target, "users", owner[1])
        present = _present(target)
        for some in portions(orphans, AT_ONCE):
            _write([_incomplete(uuid, project, user) for uuid in some], present, target, report)
    report.completed_consumers = len(orphans)
    return orphans


def _incomplete(uuid: str, project: int, user: int) -> dict[str, Any]:
    return {
        "uuid": uuid,
        "project_id": project,
        "user_id": user,
        "consumer_type_id": None,
        "generation": 0,
        "created_at": None,
        "updated_at": None,
    }


def only_in(target: Side, wanted: set[str]) -> list[str]:
    """The consumers that the target has alone, without those that have something to do with clusters."""
    table, held = target.tables.consumers, target.tables.allocations
    query = sa.select(table.c.uuid)
    if target.is_ours:
        of_clusters = held.c.resource_provider_id.in_(foreign_ids(target))
        holding = sa.exists().where(held.c.consumer_id == table.c.uuid, of_clusters)
        query = query.where(table.c.cluster_id.is_(None), ~holding)
    return [row[0] for row in target.rows(query) if row[0] not in wanted]


def remove(gone: list[str], target: Side, report: Report) -> None:
    """Remove consumers; what they held was removed with what their providers have."""
    table = target.tables.consumers
    for some in portions(gone, AT_ONCE):
        target.connection.execute(sa.delete(table).where(table.c.uuid.in_(some)))
    report.of("consumers").removed += len(gone)
