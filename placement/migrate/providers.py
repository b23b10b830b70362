"""Resource providers: the source's are brought into the target as trees, its others are removed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa

from placement.engine.domain.errors import Conflict
from placement.engine.domain.identifiers import portions
from placement.migrate.side import AT_ONCE, Endpoint, Ids, Migration, rounded, with_progress
from placement.storage.feed import PROVIDER_DELETED, record_change

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
class Known:
    """The providers of a database by uuid, with their ids; `foreign` belong to clusters."""

    ids: dict[str, int]
    providers: dict[str, MigratedProvider]
    times: dict[str, tuple[Any, Any]]
    foreign: frozenset[str]


def read(side: Endpoint) -> Known:
    """Return all providers, in the order of their ids."""
    table = side.tables.providers
    names = ("id", "uuid", "name", "generation", "parent_provider_id", "root_provider_id")
    columns = [table.c[name] for name in (*names, "created_at", "updated_at")]
    rows = side.rows(sa.select(*columns).order_by(table.c.id))
    uuids = {row.id: row.uuid for row in rows}
    parents = {row.id: row.parent_provider_id for row in rows}
    providers = {
        row.uuid: MigratedProvider(
            row.name,
            row.generation or 0,
            uuids.get(row.parent_provider_id),
            uuids[row.root_provider_id or _top(row.id, parents)],
        )
        for row in rows
    }
    return Known(
        ids={row.uuid: row.id for row in rows},
        providers=providers,
        times={row.uuid: (row.created_at, row.updated_at) for row in rows},
        foreign=frozenset(uuids[row.id] for row in side.rows(foreign_ids(side)))
        if side.is_ours
        else frozenset(),
    )


def foreign_ids(side: Endpoint) -> sa.Select[tuple[int]]:
    """Return a query for ids of providers that belong to clusters of this service, or are below such."""
    table, root = side.tables.providers, side.tables.providers.alias("root")
    return (
        sa.select(table.c.id)
        .outerjoin(root, root.c.id == table.c.root_provider_id)
        .where(sa.or_(table.c.cluster_id.is_not(None), root.c.cluster_id.is_not(None)))
    )


def _top(id_: int, parents: dict[int, int | None]) -> int:
    """Return the root of a provider for which old releases wrote no root."""
    seen = {id_}
    while (parent := parents.get(id_)) is not None and parent not in seen:
        seen.add(parent)
        id_ = parent
    return id_


def refuse_taken(wanted: Known, present: Known) -> None:
    """Raise Conflict if a provider belongs to a cluster here, or a provider of a cluster has its name."""
    taken = sorted(uuid for uuid in present.foreign if uuid in wanted.providers)
    if taken:
        raise Conflict(f"providers that belong to clusters of this service: {_some(taken)}")
    names = {present.providers[uuid].name for uuid in present.foreign}
    named = sorted(row.name for row in wanted.providers.values() if row.name in names)
    if named:
        raise Conflict(f"names of providers that clusters of this service have: {_some(named)}")


def only_in(present: Known, wanted: Known) -> list[str]:
    """Return the providers that only the target has, without the ones of clusters."""
    return [
        uuid for uuid in present.providers if uuid not in wanted.providers and uuid not in present.foreign
    ]


def write(migration: Migration, wanted: Known, present: Known, gone: Iterable[str]) -> dict[str, int]:
    """Add and change providers of the target until the source's are there; return their ids by uuid.

    `gone` are the ones that only the target has: their names may be taken.
    """
    target, report = migration.target, migration.report
    changed = [
        uuid
        for uuid, row in wanted.providers.items()
        if uuid in present.providers and present.providers[uuid] != row
    ]
    # Names that change owners are moved aside, as they are unique at every moment.
    aside = [
        {"id": present.ids[uuid], "name": f"{_ASIDE}{uuid}"}
        for uuid in (*changed, *gone)
        if uuid not in wanted.providers or wanted.providers[uuid].name != present.providers[uuid].name
    ]
    target.update(target.tables.providers, aside)
    ids = {uuid: id_ for uuid, id_ in present.ids.items() if uuid in wanted.providers}
    new = [uuid for uuid in wanted.providers if uuid not in present.providers]
    _insert(migration, new, wanted, ids)
    rows = [
        {"id": ids[uuid], **dict(zip(_COLUMNS, _values(uuid, wanted, ids), strict=True))} for uuid in changed
    ]
    target.update(target.tables.providers, rows, **target.stamped)
    report.of("providers").added += len(new)
    report.of("providers").changed += len(changed)
    return ids


def _insert(migration: Migration, new: list[str], wanted: Known, ids: dict[str, int]) -> None:
    """Insert roots first, then their children, level by level; `ids` gets the new ids."""
    target, table, done = migration.target, migration.target.tables.providers, 0
    while new:
        # A provider that becomes a root again may still be below another one: parents are known, not roots.
        ready = [
            uuid
            for uuid in new
            if (row := wanted.providers[uuid]).parent is None or (row.parent in ids and row.root in ids)
        ]
        if not ready:
            raise Conflict(f"providers that are their own ancestors: {_some(new)}")
        for some in portions(ready, AT_ONCE):
            target.insert(table, _COLUMNS, [_values(uuid, wanted, ids) for uuid in some], **target.stamped)
            query = sa.select(table.c.uuid, table.c.id).where(table.c.uuid.in_(some))
            ids.update(map(tuple, target.rows(query)))
            done += len(some)
            migration.progress("providers", done, len(wanted.providers))
        roots = [ids[uuid] for uuid in ready if wanted.providers[uuid].parent is None]
        for some_roots in portions(roots, AT_ONCE):
            target.connection.execute(
                sa.update(table).where(table.c.id.in_(some_roots)).values(root_provider_id=table.c.id)
            )
        left = set(ready)
        new = [uuid for uuid in new if uuid not in left]


def _values(uuid: str, wanted: Known, ids: dict[str, int]) -> tuple[Any, ...]:
    """Return the values of `_COLUMNS`; a root that is not there yet becomes its own afterwards."""
    provider = wanted.providers[uuid]
    parent = ids[provider.parent] if provider.parent else None
    return uuid, provider.name, provider.generation, parent, ids.get(provider.root), *wanted.times[uuid]


def remove(migration: Migration, gone: list[str], present: Known) -> None:
    """Remove providers and everything about them."""
    target, tables = migration.target, migration.target.tables
    of_provider = (tables.allocations, tables.inventories, tables.provider_traits, tables.provider_aggregates)
    ids = [present.ids[uuid] for uuid in gone]
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


# What providers have: inventories, traits, aggregates and allocations, some providers at a time.
#
# Rows of both databases are compared by their contents in the ids of the target. A row that differs is
# deleted and inserted again: nothing outside knows these rows by an id.


_PROVIDER = "resource_provider_id"
_RATIO = "allocation_ratio"
_CAPACITY = ("total", "reserved", "min_unit", "max_unit", "step_size", _RATIO)
_PROVIDERS_AT_ONCE = 5000

Content = tuple[Any, ...]
Rows = dict[Content, tuple[Any, Any]]
"""When rows were made and changed, by their contents."""


@dataclass(frozen=True)
class _Kind:
    """A table of such rows: what people call them, their columns, and how many of them are the key."""

    title: str
    table: str
    columns: tuple[str, ...]
    key: int


_ALLOCATIONS = _Kind(
    "allocations", "allocations", (_PROVIDER, "resource_class_id", "consumer_id", "used"), key=3
)
_INVENTORIES = _Kind("inventories", "inventories", (_PROVIDER, "resource_class_id", *_CAPACITY), key=2)
_USED_INVENTORIES = _Kind("inventories", "inventories", (*_INVENTORIES.columns, "used"), key=2)
_TRAITS = _Kind("traits of providers", "provider_traits", (_PROVIDER, "trait_id"), key=2)
_AGGREGATES = _Kind("aggregates of providers", "provider_aggregates", (_PROVIDER, "aggregate_id"), key=2)


def copy(migration: Migration, ids: Ids, moved: Mapping[int, int], fresh: Set[int]) -> None:
    """Bring about in the target what the providers `moved` (target ids by source ids) have in the source.

    `fresh` ones were just written: they carry the stamp already. The others about which something changed are
    stamped, so that running services look at them again.
    """
    source, target = migration.source, migration.target
    for some in with_progress(migration.progress, "what providers have", list(moved), _PROVIDERS_AT_ONCE):
        here = [moved[id_] for id_ in some]
        held = _translated(source, _ALLOCATIONS, some, moved, ids["resource_classes"])
        touched = _write(migration, _ALLOCATIONS, held, here)
        kind, offered = _INVENTORIES, _translated(source, _INVENTORIES, some, moved, ids["resource_classes"])
        if target.is_ours:
            # This service keeps the sums of allocations with its inventories.
            used: dict[tuple[int, int], int] = defaultdict(int)
            for provider, resource_class, _, amount in held:
                used[provider, resource_class] += amount
            kind = _USED_INVENTORIES
            offered = {(*row, used.get((row[0], row[1]), 0)): times for row, times in offered.items()}
        touched |= _write(migration, kind, offered, here)
        for kind, names in ((_TRAITS, ids["traits"]), (_AGGREGATES, ids["aggregates"])):
            touched |= _write(migration, kind, _translated(source, kind, some, moved, names), here)
        if target.transaction is not None:
            table = target.tables.providers
            for old in portions(sorted(touched - fresh), AT_ONCE):
                statement = sa.update(table).where(table.c.id.in_(old)).values(**target.stamped)
                target.connection.execute(statement)


def _translated(
    source: Endpoint, kind: _Kind, some: Sequence[int], moved: Mapping[int, int], names: Mapping[int, int]
) -> Rows:
    """Return the rows of the source, with the ids of the target."""
    rows = _read(source, kind, some)
    return {(moved[row[0]], names[row[1]], *row[2:-2]): (row[-2], row[-1]) for row in rows}


def _read(side: Endpoint, kind: _Kind, some: Sequence[int]) -> Iterable[Sequence[Any]]:
    columns = (*kind.columns, "created_at", "updated_at")
    return side.rows_of(getattr(side.tables, kind.table), columns, _PROVIDER, some)


def _write(migration: Migration, kind: _Kind, wanted: Rows, here: Sequence[int]) -> set[int]:
    """Replace the rows of the providers `here` that differ; return the providers of such rows."""
    target = migration.target
    present = {tuple(row[:-2]) for row in _read(target, kind, here)}
    surplus, missing = _differing(kind, present, wanted.keys(), target.digits)
    table = getattr(target.tables, kind.table)
    target.delete(table, kind.columns[: kind.key], [row[: kind.key] for row in surplus])
    # In the order of the source, as far as it has one.
    rows = [(*row, *times) for row, times in wanted.items() if row in missing]
    target.insert(table, (*kind.columns, "created_at", "updated_at"), rows)
    # A key that is both removed and added counts as one changed row.
    gone = {row[: kind.key] for row in surplus}
    changed = sum(row[: kind.key] in gone for row in missing)
    changes = migration.report.of(kind.title)
    changes.added += len(missing) - changed
    changes.changed += changed
    changes.removed += len(surplus) - changed
    return {row[0] for row in missing} | {row[0] for row in surplus}


def _differing(
    kind: _Kind, present: Set[Content], wanted: Set[Content], digits: int
) -> tuple[Set[Content], Set[Content]]:
    """Return rows that only one side has; ratios are compared by the digits that the target keeps."""
    if not present or _RATIO not in kind.columns:
        return present - wanted, wanted - present
    place = kind.columns.index(_RATIO)

    def kept(row: Content) -> Content:
        return (*row[:place], rounded(row[place], digits), *row[place + 1 :])

    here, there = {kept(row): row for row in present}, {kept(row): row for row in wanted}
    return (
        {here[row] for row in here.keys() - there.keys()},
        {there[row] for row in there.keys() - here.keys()},
    )
