"""Consumers with their projects, users, kinds and generations."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import sqlalchemy as sa

from placement.engine.domain.errors import Conflict
from placement.engine.domain.identifiers import portions
from placement.migrate import side
from placement.migrate.providers import foreign_ids
from placement.migrate.side import AT_ONCE, Endpoint, Ids, Migration, with_progress

_CONTENT = ("uuid", "project_id", "user_id", "consumer_type_id", "generation")
_READ_AT_ONCE = 5000


def copy(migration: Migration, ids: Ids) -> set[str]:
    """Add and change consumers until the ones of the source are there; return their uuids."""
    source, table = migration.source, migration.source.tables.consumers
    total = source.rows(sa.select(sa.func.count()).select_from(table))[0][0]
    columns = [table.c[name] for name in ("id", *_CONTENT, "created_at", "updated_at")]
    query = sa.select(*columns).where(table.c.id > sa.bindparam("after")).order_by(table.c.id)
    present = _present(migration.target)
    found: set[str] = set()
    after = -1
    while rows := source.rows(query.limit(_READ_AT_ONCE), after=after):
        after = rows[-1][0]
        wanted = [
            (
                uuid,
                ids["projects"][project],
                ids["users"][user],
                None if kind is None else ids["consumer_types"][kind],
                *rest,
            )
            for _, uuid, project, user, kind, *rest in rows
        ]
        found.update(row[0] for row in wanted)
        _write(migration, wanted, present)
        migration.progress("consumers", len(found), total)
    return found


def _present(target: Endpoint) -> dict[str, Any]:
    """Return the consumers of the target by uuid: id, cluster, and what `_CONTENT` names."""
    table = target.tables.consumers
    cluster = table.c.cluster_id if target.is_ours else sa.null()
    rows = target.rows(sa.select(table.c.id, cluster, *(table.c[name] for name in _CONTENT)))
    return {row.uuid: row for row in rows}


def _write(migration: Migration, wanted: list[tuple[Any, ...]], present: dict[str, Any]) -> None:
    """Write rows of what `_CONTENT` names, and when they were made and changed."""
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


def complete(migration: Migration, owner: tuple[str, str]) -> list[str]:
    """Give holders without a record one with this project and user, as `online_data_migrations` does.

    Returns their uuids.
    """
    source, target = migration.source, migration.target
    allocations, consumers = source.tables.allocations, source.tables.consumers
    query = (
        sa.select(allocations.c.consumer_id)
        .outerjoin(consumers, consumers.c.uuid == allocations.c.consumer_id)
        .where(consumers.c.id.is_(None))
        .distinct()
    )
    orphans = [row[0] for row in source.rows(query)]
    if orphans:
        project, user = side.id_of(target, "projects", owner[0]), side.id_of(target, "users", owner[1])
        present = _present(target)
        for some in portions(orphans, AT_ONCE):
            _write(migration, [(uuid, project, user, None, 0, None, None) for uuid in some], present)
    migration.report.completed_consumers = len(orphans)
    return orphans


def only_in(target: Endpoint, wanted: set[str]) -> list[str]:
    """Return the consumers that only the target has, unless they are of clusters or hold resources there."""
    table, held = target.tables.consumers, target.tables.allocations
    query = sa.select(table.c.uuid)
    if target.is_ours:
        of_clusters = held.c.resource_provider_id.in_(foreign_ids(target))
        holding = sa.exists().where(held.c.consumer_id == table.c.uuid, of_clusters)
        query = query.where(table.c.cluster_id.is_(None), ~holding)
    return [row[0] for row in target.rows(query) if row[0] not in wanted]


def remove(migration: Migration, gone: list[str]) -> None:
    """Remove consumers; what they held was removed with the rows of its providers."""
    table = migration.target.tables.consumers
    for some in portions(gone, AT_ONCE):
        migration.target.connection.execute(sa.delete(table).where(table.c.uuid.in_(some)))
    migration.report.of("consumers").removed += len(gone)


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

_ALLOCATION = ("consumer_id", _PROVIDER, "resource_class_id", "used")

Facts = Set[tuple[Any, ...]]


def differences(migration: Migration, moved: Mapping[int, int], consumers: Set[str]) -> Iterator[str]:
    """Yield a sentence for each provider and consumer about which the two do not agree.

    `moved` are all providers of the source, target ids by source ids; `consumers` are the uuids of all that
    the target is to have from the source.
    """
    progress = migration.progress
    there, here = _NamedFacts(migration.source), _NamedFacts(migration.target)
    is_ours = migration.target.is_ours
    for some in with_progress(progress, "providers compared", list(moved), _PROVIDERS_AT_ONCE):
        at = [moved[id_] for id_ in some]
        held, holds = there.held(some), here.held(at)
        used = _sums(holds)
        yield from _differing("provider", _sums(held), used)
        if is_ours:
            yield from _differing("the kept sum of provider", here.kept(at), used)
        yield from _differing("consumer", held, holds)
    if is_ours:
        yield from _differing("consumer", set(), here.held_of_clusters(consumers))
    records = here.records()
    for uuid, record in there.records().items():
        if records.get(uuid) != record:
            yield from _differing("consumer", {record}, {records[uuid]} if uuid in records else set())
    progress("consumers compared", len(consumers), len(consumers))


def _differing(what: str, there: Facts, here: Facts) -> Iterator[str]:
    if there == here:
        return
    for uuid in sorted({fact[0] for fact in there ^ here}):
        one, other = (sorted(map(str, (f[1:] for f in facts if f[0] == uuid))) for facts in (there, here))
        yield f"{what} {uuid}: {'; '.join(one) or 'nothing'} there, {'; '.join(other) or 'nothing'} here"


def _sums(held: Facts) -> Facts:
    """Return (provider, class, sum of what is used of it)."""
    used: dict[tuple[str, str], int] = defaultdict(int)
    for _, provider, resource_class, amount in held:
        used[provider, resource_class] += amount
    return {(*what, amount) for what, amount in used.items()}


class _NamedFacts:
    """The facts of a database, with the names of its ids."""

    def __init__(self, side: Endpoint) -> None:
        self._side = side
        self._names: dict[str, dict[int, str]] = {}
        for kind, column in _NAMED_BY.items():
            table = getattr(side.tables, kind)
            self._names[kind] = dict(map(tuple, side.rows(sa.select(table.c.id, table.c[column]))))

    def held(self, ids: Sequence[int]) -> Facts:
        """Return (consumer, provider, class, amount) of what is held of these providers."""
        return self._amounts(self._side.rows_of(self._side.tables.allocations, _ALLOCATION, _PROVIDER, ids))

    def held_of_clusters(self, consumers: Set[str]) -> Facts:
        """Return what these consumers hold of providers that belong to clusters, which no source knows."""
        table = self._side.tables.allocations
        query = sa.select(*(table.c[name] for name in _ALLOCATION))
        rows = self._side.rows(query.where(table.c[_PROVIDER].in_(foreign_ids(self._side))))
        return self._amounts(row for row in rows if row[0] in consumers)

    def _amounts(self, rows: Iterable[Sequence[Any]]) -> Facts:
        providers, classes = self._names["providers"], self._names["resource_classes"]
        return {(consumer, providers[id_], classes[kind], used) for consumer, id_, kind, used in rows}

    def kept(self, ids: Sequence[int]) -> Facts:
        """Return (provider, class, sum), as `_sums` does, from the sums that are kept with inventories."""
        columns = (_PROVIDER, "resource_class_id", "used")
        rows = self._side.rows_of(self._side.tables.inventories, columns, _PROVIDER, ids)
        providers, classes = self._names["providers"], self._names["resource_classes"]
        return {(providers[id_], classes[kind], used) for id_, kind, used in rows if used}

    def records(self) -> Mapping[str, tuple[Any, ...]]:
        """Return (consumer, project, user, kind, generation) of consumers with a record, by their uuids."""
        table = self._side.tables.consumers
        rows = self._side.rows(sa.select(*(table.c[name] for name in _CONTENT)))
        projects, users, kinds = (self._names[kind] for kind in ("projects", "users", "consumer_types"))
        return {
            uuid: (uuid, projects[project], users[user], kinds.get(kind), generation)
            for uuid, project, user, kind, generation in rows
        }
