"""Consumers with their projects, users, kinds and generations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from placement.engine.domain.errors import Conflict
from placement.engine.domain.identifiers import portions
from placement.migrate import side
from placement.migrate.providers import foreign_ids
from placement.migrate.side import AT_ONCE, Endpoint, Ids, MigrationReport, Progress, with_progress

_CONTENT = ("uuid", "project_id", "user_id", "consumer_type_id", "generation")
_READ_AT_ONCE = 5000


def copy(
    source: Endpoint, target: Endpoint, ids: Ids, report: MigrationReport, progress: Progress
) -> set[str]:
    """Add and change consumers until the ones of the source are there; return their uuids."""
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


def _present(target: Endpoint) -> dict[str, Any]:
    """Return the consumers of the target by uuid: id, cluster, and what `_CONTENT` names."""
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


def _write(
    wanted: list[dict[str, Any]], present: dict[str, Any], target: Endpoint, report: MigrationReport
) -> None:
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


def complete(
    source: Endpoint, target: Endpoint, owner: tuple[str, str], report: MigrationReport
) -> list[str]:
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
        project = side.id_of(target, "projects", owner[0])
        user = side.id_of(target, "users", owner[1])
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


def only_in(target: Endpoint, wanted: set[str]) -> list[str]:
    """Return the consumers that only the target has, unless they are of clusters or hold resources there."""
    table, held = target.tables.consumers, target.tables.allocations
    query = sa.select(table.c.uuid)
    if target.is_ours:
        of_clusters = held.c.resource_provider_id.in_(foreign_ids(target))
        holding = sa.exists().where(held.c.consumer_id == table.c.uuid, of_clusters)
        query = query.where(table.c.cluster_id.is_(None), ~holding)
    return [row[0] for row in target.rows(query) if row[0] not in wanted]


def remove(gone: list[str], target: Endpoint, report: MigrationReport) -> None:
    """Remove consumers; what they held was removed with the rows of its providers."""
    table = target.tables.consumers
    for some in portions(gone, AT_ONCE):
        target.connection.execute(sa.delete(table).where(table.c.uuid.in_(some)))
    report.of("consumers").removed += len(gone)


# Whether two databases say the same: what is used of every provider, and what every consumer is and holds.
#
# The rows are read again, with the names and uuids that each database has for its ids, so that a mistake in
# translating ids shows.


_PROVIDERS_AT_ONCE = 5000
# The column with the names that each kind of id stands for.
_NAMED_BY = {
    "providers": "uuid",
    "resource_classes": "name",
    "projects": "external_id",
    "users": "external_id",
    "consumer_types": "name",
}
_PROVIDER = "resource_provider_id"

Facts = Set[tuple[Any, ...]]
Names = Mapping[int, str]


@dataclass(frozen=True)
class _KnownNames:
    """A database with the names of its ids."""

    side: Endpoint
    providers: Names
    resource_classes: Names
    projects: Names
    users: Names
    consumer_types: Names


def differences(
    source: Endpoint, target: Endpoint, moved: Mapping[int, int], consumers: Set[str], progress: Progress
) -> Iterator[str]:
    """Yield a sentence for each provider and consumer about which the two do not agree.

    `moved` are all providers of the source, target ids by source ids; `consumers` are the uuids of all that
    the target is to have from the source.
    """
    there, here = _known(source), _known(target)
    for some in with_progress(progress, "providers compared", list(moved), _PROVIDERS_AT_ONCE):
        at = [moved[id_] for id_ in some]
        held, holds = _held(there, some), _held(here, at)
        used = _sums(holds)
        yield from _told("provider", _sums(held), used)
        if target.is_ours:
            yield from _told("the kept sum of provider", _kept(here, at), used)
        yield from _told("consumer", held, holds)
    if target.is_ours:
        yield from _told("consumer", set(), _held_of_clusters(here, consumers))
    records = _records(here)
    for uuid, record in _records(there).items():
        if records.get(uuid) != record:
            yield from _told("consumer", {record}, {records[uuid]} if uuid in records else set())
    progress("consumers compared", len(consumers), len(consumers))


def _told(what: str, there: Facts, here: Facts) -> Iterator[str]:
    if there == here:
        return
    for uuid in sorted({fact[0] for fact in there ^ here}):
        one, other = (sorted(map(str, (f[1:] for f in facts if f[0] == uuid))) for facts in (there, here))
        yield f"{what} {uuid}: {'; '.join(one) or 'nothing'} there, {'; '.join(other) or 'nothing'} here"


def _known(side: Endpoint) -> _KnownNames:
    names = {}
    for kind, column in _NAMED_BY.items():
        table = getattr(side.tables, kind)
        names[kind] = dict(map(tuple, side.rows(sa.select(table.c.id, table.c[column]))))
    return _KnownNames(side, **names)


def _held(known: _KnownNames, ids: Sequence[int]) -> Facts:
    """Return (consumer, provider, class, amount) of what is held of these providers."""
    columns = ("consumer_id", _PROVIDER, "resource_class_id", "used")
    return _amounts(known, known.side.rows_of(known.side.tables.allocations, columns, _PROVIDER, ids))


def _amounts(known: _KnownNames, rows: Iterable[Sequence[Any]]) -> Facts:
    providers, classes = known.providers, known.resource_classes
    return {(consumer, providers[id_], classes[kind], used) for consumer, id_, kind, used in rows}


def _sums(held: Facts) -> Facts:
    """Return (provider, class, sum of what is used of it)."""
    used: dict[tuple[str, str], int] = defaultdict(int)
    for _, provider, resource_class, amount in held:
        used[provider, resource_class] += amount
    return {(*what, amount) for what, amount in used.items()}


def _kept(known: _KnownNames, ids: Sequence[int]) -> Facts:
    """Return (provider, class, sum), as `_sums` does, from the sums that are kept with inventories."""
    columns = (_PROVIDER, "resource_class_id", "used")
    rows = known.side.rows_of(known.side.tables.inventories, columns, _PROVIDER, ids)
    providers, classes = known.providers, known.resource_classes
    return {(providers[id_], classes[kind], used) for id_, kind, used in rows if used}


def _held_of_clusters(known: _KnownNames, consumers: Set[str]) -> Facts:
    """Return what these consumers hold of providers that belong to clusters, which no source knows."""
    table = known.side.tables.allocations
    columns = [table.c[name] for name in ("consumer_id", _PROVIDER, "resource_class_id", "used")]
    rows = known.side.rows(sa.select(*columns).where(table.c[_PROVIDER].in_(foreign_ids(known.side))))
    return _amounts(known, (row for row in rows if row[0] in consumers))


def _records(known: _KnownNames) -> Mapping[str, tuple[Any, ...]]:
    """Return (consumer, project, user, kind, generation) of all consumers with a record, by their uuids."""
    columns = ("uuid", "project_id", "user_id", "consumer_type_id", "generation")
    table = known.side.tables.consumers
    rows = known.side.rows(sa.select(*(table.c[name] for name in columns)))
    projects, users, kinds = known.projects, known.users, known.consumer_types
    return {
        uuid: (uuid, projects[project], users[user], kinds.get(kind), generation)
        for uuid, project, user, kind, generation in rows
    }
