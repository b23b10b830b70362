"""Resource providers: the source's are brought into the target as trees, its others are removed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa

from placement.engine.domain.errors import Conflict
from placement.engine.domain.portions import portions
from placement.migrate.endpoint import AT_ONCE, Endpoint
from placement.migrate.migration import Migration, with_progress
from placement.migrate.names import canonical
from placement.storage.changes import PROVIDER_DELETED, record_change

_SHOWN = 5
_COLUMNS = (
    "uuid",
    "name",
    "generation",
    "parent_provider_id",
    "root_provider_id",
    "created_at",
    "updated_at",
)
# No real name begins so; for rows that have to leave their name to another row.
_ASIDE = "\x01moved aside "


class MigratedProvider(NamedTuple):
    """A provider; `parent` and `root` are uuids, as ids differ between databases."""

    name: str
    generation: int
    parent: str | None
    root: str


@dataclass(frozen=True)
class KnownProviders:
    """The providers of a database by uuid, with their ids; `foreign` belong to clusters.

    The database spells the uuids of `respelled` ones in another way. `odd` are these, and the ones of which
    it has another root.
    """

    ids: dict[str, int]
    rows: dict[str, MigratedProvider]
    times: dict[str, tuple[Any, Any]]
    foreign: frozenset[str]
    respelled: frozenset[str]
    odd: frozenset[str]


def read(endpoint: Endpoint) -> KnownProviders:
    """Return all providers, in the order of their ids, by their uuids in canonical spelling.

    One without a name is called as its uuid. A parent that is not there counts as none, and the root is where
    the parents lead.
    """
    table = endpoint.tables.providers
    names = ("id", "uuid", "name", "generation", "parent_provider_id", "root_provider_id")
    columns = [table.c[name] for name in (*names, "created_at", "updated_at")]
    rows = endpoint.rows(sa.select(*columns).order_by(table.c.id))
    uuids = _canonical_uuids({row.id: row.uuid for row in rows})
    parents = present_parents({row.id: row.parent_provider_id for row in rows})
    roots = {row.id: top(row.id, parents) for row in rows}
    respelled = {uuids[row.id] for row in rows if row.uuid != uuids[row.id]}
    known = {}
    for row in rows:
        parent = parents[row.id]
        known[uuids[row.id]] = MigratedProvider(
            uuids[row.id] if row.name is None else row.name,
            row.generation or 0,
            None if parent is None else uuids[parent],
            uuids[roots[row.id]],
        )
    return KnownProviders(
        ids={uuid: id_ for id_, uuid in uuids.items()},
        rows=known,
        times={uuids[row.id]: (row.created_at, row.updated_at) for row in rows},
        foreign=frozenset(uuids[row.id] for row in endpoint.rows(foreign_ids(endpoint)))
        if endpoint.is_ours
        else frozenset(),
        respelled=frozenset(respelled),
        odd=frozenset(respelled | {uuids[row.id] for row in rows if row.root_provider_id != roots[row.id]}),
    )


def _canonical_uuids(spellings: Mapping[int, str]) -> dict[int, str]:
    """Return the uuids by id, in canonical spelling unless another provider has that one."""
    taken = {spelling for spelling in spellings.values() if spelling == canonical(spelling)}
    uuids = {}
    for id_, spelling in spellings.items():
        uuid = canonical(spelling)
        uuids[id_] = spelling if spelling != uuid and uuid in taken else uuid
        taken.add(uuid)
    return uuids


def foreign_ids(endpoint: Endpoint) -> sa.Select[tuple[int]]:
    """Return a query for ids of providers that belong to clusters of this service, or are below such."""
    table, root = endpoint.tables.providers, endpoint.tables.providers.alias("root")
    return (
        sa.select(table.c.id)
        .outerjoin(root, root.c.id == table.c.root_provider_id)
        .where(sa.or_(table.c.cluster_id.is_not(None), root.c.cluster_id.is_not(None)))
    )


def present_parents(parents: Mapping[int, int | None]) -> dict[int, int | None]:
    """Return the parents of providers by id, none in place of one that is not there."""
    return {id_: parent if parent in parents else None for id_, parent in parents.items()}


def top(id_: int, parents: Mapping[int, int | None]) -> int:
    """Return the root of a provider for which the tables have none that is there."""
    seen = {id_}
    while (parent := parents.get(id_)) is not None and parent not in seen:
        seen.add(parent)
        id_ = parent
    return id_


def refuse_taken(wanted_providers: KnownProviders, present_providers: KnownProviders) -> None:
    """Raise Conflict if a provider belongs to a cluster here, or a provider of a cluster has its name."""
    taken = sorted(uuid for uuid in present_providers.foreign if uuid in wanted_providers.rows)
    if taken:
        raise Conflict(f"providers that belong to clusters of this service: {_some(taken)}")
    names = {present_providers.rows[uuid].name for uuid in present_providers.foreign}
    named = sorted(row.name for row in wanted_providers.rows.values() if row.name in names)
    if named:
        raise Conflict(f"names of providers that clusters of this service have: {_some(named)}")


def only_in(present_providers: KnownProviders, wanted_providers: KnownProviders) -> list[str]:
    """Return the providers that only the target has, without the ones of clusters."""
    return [
        uuid
        for uuid in present_providers.rows
        if uuid not in wanted_providers.rows and uuid not in present_providers.foreign
    ]


def write(
    migration: Migration,
    wanted_providers: KnownProviders,
    present_providers: KnownProviders,
    gone: Iterable[str],
) -> dict[str, int]:
    """Add and change providers of the target until the source's are there; return their ids by uuid.

    `gone` are the ones that only the target has: their names may be taken.
    """
    target, report = migration.target, migration.report
    changed = [
        uuid
        for uuid, row in wanted_providers.rows.items()
        if uuid in present_providers.rows
        and (present_providers.rows[uuid] != row or uuid in present_providers.odd)
    ]
    # Names that change owners are moved aside, as they are unique at every moment.
    aside = [
        {"id": present_providers.ids[uuid], "name": f"{_ASIDE}{uuid}"}
        for uuid in (*changed, *gone)
        if uuid not in wanted_providers.rows
        or wanted_providers.rows[uuid].name != present_providers.rows[uuid].name
    ]
    target.update(target.tables.providers, aside)
    ids = {uuid: id_ for uuid, id_ in present_providers.ids.items() if uuid in wanted_providers.rows}
    new = [uuid for uuid in wanted_providers.rows if uuid not in present_providers.rows]
    _insert(migration, new, wanted_providers, ids)
    rows = [
        {"id": ids[uuid], **dict(zip(_COLUMNS, _values(uuid, wanted_providers, ids), strict=True))}
        for uuid in changed
    ]
    target.update(target.tables.providers, rows, **target.stamped)
    report.of("providers").added += len(new)
    report.of("providers").changed += len(changed)
    return ids


def _insert(
    migration: Migration, new: list[str], wanted_providers: KnownProviders, ids: dict[str, int]
) -> None:
    """Insert roots first, then their children, level by level; `ids` gets the new ids."""
    target, table, done = migration.target, migration.target.tables.providers, 0
    while new:
        # A provider that becomes a root again may still be below another one: parents are known, not roots.
        ready = [
            uuid
            for uuid in new
            if (row := wanted_providers.rows[uuid]).parent is None or (row.parent in ids and row.root in ids)
        ]
        if not ready:
            raise Conflict(f"providers that are their own ancestors: {_some(new)}")
        for some in portions(ready, AT_ONCE):
            target.insert(
                table, _COLUMNS, [_values(uuid, wanted_providers, ids) for uuid in some], **target.stamped
            )
            query = sa.select(table.c.uuid, table.c.id).where(table.c.uuid.in_(some))
            ids.update(map(tuple, target.rows(query)))
            done += len(some)
            migration.progress("providers", done, len(wanted_providers.rows))
        roots = [ids[uuid] for uuid in ready if wanted_providers.rows[uuid].parent is None]
        for some_roots in portions(roots, AT_ONCE):
            target.connection.execute(
                sa.update(table).where(table.c.id.in_(some_roots)).values(root_provider_id=table.c.id)
            )
        left = set(ready)
        new = [uuid for uuid in new if uuid not in left]


def _values(uuid: str, wanted_providers: KnownProviders, ids: dict[str, int]) -> tuple[Any, ...]:
    """Return the values of `_COLUMNS`; a root that is not there yet becomes its own afterwards."""
    provider = wanted_providers.rows[uuid]
    parent = ids[provider.parent] if provider.parent else None
    return (
        uuid,
        provider.name,
        provider.generation,
        parent,
        ids.get(provider.root),
        *wanted_providers.times[uuid],
    )


def remove(migration: Migration, gone: list[str], present_providers: KnownProviders) -> None:
    """Remove providers and everything about them."""
    target, tables = migration.target, migration.target.tables
    of_provider = (tables.allocations, tables.inventories, tables.provider_traits, tables.provider_aggregates)
    ids = [present_providers.ids[uuid] for uuid in gone]
    for some in with_progress(migration.progress, "providers to remove", ids):
        for table in of_provider:
            target.connection.execute(sa.delete(table).where(table.c.resource_provider_id.in_(some)))
        alone = {"parent_provider_id": None, "root_provider_id": None}
        target.connection.execute(
            sa.update(tables.providers).where(tables.providers.c.id.in_(some)).values(**alone)
        )
    for some in portions(ids, AT_ONCE):
        target.connection.execute(sa.delete(tables.providers).where(tables.providers.c.id.in_(some)))
    if target.transaction is not None and ids:
        record_change(target.transaction, PROVIDER_DELETED, ids)
    migration.report.of("providers").removed += len(ids)


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
