"""Consumers with their projects, users, types and generations."""

from __future__ import annotations

from collections.abc import Set
from types import SimpleNamespace
from typing import Any

import sqlalchemy as sa

from placement.engine.domain.errors import Conflict
from placement.engine.domain.portions import portions
from placement.migrate import names
from placement.migrate.endpoint import AT_ONCE, Endpoint
from placement.migrate.migration import Migration
from placement.migrate.names import NewIds, canonical
from placement.migrate.providers import foreign_ids

_CONTENT = ("uuid", "project_id", "user_id", "consumer_type_id", "generation")
_READ_AT_ONCE = 5000


def copy(migration: Migration, ids: NewIds) -> set[str]:
    """Add and change consumers until the ones of the source are there; return their uuids.

    They are spelled in canonical form. A kind that is not there counts as none.
    """
    source, table = migration.source, migration.source.tables.consumers
    total = source.rows(sa.select(sa.func.count()).select_from(table))[0][0]
    columns = [table.c[name] for name in ("id", *_CONTENT, "created_at", "updated_at")]
    query = sa.select(*columns).where(table.c.id > sa.bindparam("after")).order_by(table.c.id)
    present = _present(migration.target)
    found: set[str] = set()
    respelled, after = 0, -1
    while rows := source.rows(query.limit(_READ_AT_ONCE), after=after):
        after = rows[-1][0]
        wanted = [
            (
                canonical(uuid),
                ids["projects"][project],
                ids["users"][user],
                ids["consumer_types"].get(kind),
                *rest,
            )
            for _, uuid, project, user, kind, *rest in rows
        ]
        respelled += sum(row[0] != given[1] for row, given in zip(wanted, rows, strict=True))
        found.update(row[0] for row in wanted)
        _write(migration, wanted, present)
        migration.progress("consumers", len(found), total)
    migration.report.respelled["consumers"] = respelled
    return found


def _present(endpoint: Endpoint) -> dict[str, Any]:
    """Return the consumers of the target by uuid: id, cluster, and the columns of `_CONTENT`.

    The incumbent's are also there by their canonical uuids, so that they are changed to these. A consumer of
    this service in another spelling, from a former import, is another one: allocations refer to it.
    """
    table = endpoint.tables.consumers
    cluster = table.c.cluster_id if endpoint.is_ours else sa.null()
    rows = endpoint.rows(sa.select(table.c.id, cluster, *(table.c[name] for name in _CONTENT)))
    known = {row.uuid: row for row in rows}
    return known if endpoint.is_ours else {**{canonical(uuid): row for uuid, row in known.items()}, **known}


def _write(migration: Migration, wanted: list[tuple[Any, ...]], present: dict[str, Any]) -> None:
    """Write rows with the columns of `_CONTENT`, and the times of creation and change."""
    pods = [row[0] for row in wanted if row[0] in present and present[row[0]][1] is not None]
    if pods:
        raise Conflict(f"consumers that are pods of clusters of this service: {', '.join(pods[:5])}")
    columns = (*_CONTENT, "created_at", "updated_at")
    new = [row for row in wanted if row[0] not in present]
    changed = [
        {**dict(zip(columns, row, strict=True)), "id": present[row[0]].id}
        for row in wanted
        if row[0] in present and row[: len(_CONTENT)] != tuple(present[row[0]][2:])
    ]
    table = migration.target.tables.consumers
    migration.target.insert(table, columns, new)
    migration.target.update(table, changed)
    migration.report.of("consumers").added += len(new)
    migration.report.of("consumers").changed += len(changed)


def complete(migration: Migration, owner: tuple[str, str], known: Set[str]) -> set[str]:
    """Give holders without a record one with this project and user, as `online_data_migrations` does.

    `known` are the consumers with a record. Returns the uuids of the others.
    """
    source, target = migration.source, migration.target
    allocations, consumers = source.tables.allocations, source.tables.consumers
    query = (
        sa.select(allocations.c.consumer_id)
        .outerjoin(consumers, consumers.c.uuid == allocations.c.consumer_id)
        .where(consumers.c.id.is_(None))
        .distinct()
    )
    orphans = sorted({canonical(row[0]) for row in source.rows(query)} - known)
    if orphans:
        project, user = names.id_of(target, "projects", owner[0]), names.id_of(target, "users", owner[1])
        present = _present(target)
        for some in portions(orphans, AT_ONCE):
            _write(migration, [(uuid, project, user, None, 0, None, None) for uuid in some], present)
    migration.report.completed_consumers = len(orphans)
    return set(orphans)


def holding(source_endpoint: Endpoint) -> tuple[SimpleNamespace, set[str]]:
    """Return the tables without the consumers that hold nothing, and the canonical uuids of these.

    The incumbent leaves them behind after refused claims, and this service has none. What is held under
    another spelling of a consumer's uuid counts.
    """
    tables = source_endpoint.tables
    table, held = tables.consumers, tables.allocations
    own_spelling = table.c.uuid.in_(sa.select(held.c.consumer_id))
    query = sa.select(table.c.id, table.c.uuid).where(~own_spelling)
    others = {id_: canonical(uuid) for id_, uuid in source_endpoint.rows(query)}
    spelled_otherwise = _spelled_otherwise(source_endpoint, set(others.values()))
    found = [id_ for id_, uuid in others.items() if uuid in spelled_otherwise]
    # Written into the statement, as databases limit the number of parameters.
    ids: sa.BindParameter[int] = sa.bindparam(
        "spelled_otherwise", found, expanding=True, literal_execute=True, unique=True
    )
    holders = sa.select(table).where(sa.or_(own_spelling, table.c.id.in_(ids))).subquery("consumers")
    return SimpleNamespace(**{**vars(tables), "consumers": holders}), set(others.values()) - spelled_otherwise


def _spelled_otherwise(source_endpoint: Endpoint, uuids: Set[str]) -> set[str]:
    """Return the canonical uuids of which allocations have some spelling, of consumers without their own."""
    column = source_endpoint.tables.allocations.c.consumer_id
    query = sa.select(column).distinct()
    found = {canonical(row[0]) for row in source_endpoint.rows(query.where(names.is_odd(column)))}
    for some in portions(sorted(uuids - found), AT_ONCE):
        found.update(canonical(row[0]) for row in source_endpoint.rows(query.where(column.in_(some))))
    return found & uuids


def only_in(target: Endpoint, wanted: Set[str]) -> dict[str, bool]:
    """Return the consumers that only the target has, and whether they hold something.

    Consumers of clusters, and with resources there, are left out; so are the incumbent's that hold nothing.
    """
    table, held = target.tables.consumers, target.tables.allocations
    holds = sa.exists().where(held.c.consumer_id == table.c.uuid)
    query = sa.select(table.c.uuid, holds)
    if target.is_ours:
        of_clusters = held.c.resource_provider_id.in_(foreign_ids(target))
        holding_there = sa.exists().where(held.c.consumer_id == table.c.uuid, of_clusters)
        query = query.where(table.c.cluster_id.is_(None), ~holding_there)
    else:
        query = query.where(holds)
    return {uuid: bool(is_holding) for uuid, is_holding in target.rows(query) if uuid not in wanted}


def remove(migration: Migration, gone: list[str]) -> None:
    """Remove consumers; their allocations were removed with the rows of providers."""
    table = migration.target.tables.consumers
    for some in portions(gone, AT_ONCE):
        migration.target.connection.execute(sa.delete(table).where(table.c.uuid.in_(some)))
    migration.report.of("consumers").removed += len(gone)
