"""The inventories, traits, aggregates and allocations of providers, some providers at a time.

Rows of both databases are compared by their contents in the ids of the target. A row that differs is
deleted and inserted again: nothing outside knows these rows by an id.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from placement.engine.domain.portions import portions
from placement.migrate.endpoint import AT_ONCE, Endpoint
from placement.migrate.migration import Migration, rounded, with_progress
from placement.migrate.names import NewIds, canonical

_PROVIDER = "resource_provider_id"
_RATIO = "allocation_ratio"
_CAPACITY = ("total", "reserved", "min_unit", "max_unit", "step_size", _RATIO)
_PROVIDERS_AT_ONCE = 5000
RowContent = tuple[Any, ...]
TimesByContent = dict[RowContent, tuple[Any, Any]]
"""When rows were made and changed, by their contents."""


@dataclass(frozen=True)
class _Kind:
    """A table of such rows: their title, their columns, and how many of these are the key."""

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


def copy(migration: Migration, ids: NewIds, moved: Mapping[int, int], fresh: Set[int]) -> None:
    """Give the providers `moved` (target ids by source ids) the same rows in the target as in the source.

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
) -> TimesByContent:
    """Return the rows of the source, with the ids of the target and canonical uuids of consumers."""
    rows = _read(source, kind, some)
    if kind is _ALLOCATIONS:
        rows = ((provider, name, canonical(consumer), *rest) for provider, name, consumer, *rest in rows)
    return {(moved[row[0]], names[row[1]], *row[2:-2]): (row[-2], row[-1]) for row in rows}


def _read(endpoint: Endpoint, kind: _Kind, some: Sequence[int]) -> Iterable[Sequence[Any]]:
    columns = (*kind.columns, "created_at", "updated_at")
    return endpoint.rows_of(getattr(endpoint.tables, kind.table), columns, _PROVIDER, some)


def _write(migration: Migration, kind: _Kind, wanted: TimesByContent, here: Sequence[int]) -> set[int]:
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
    kind: _Kind, present: Set[RowContent], wanted: Set[RowContent], digits: int
) -> tuple[Set[RowContent], Set[RowContent]]:
    """Return rows that only one side has; ratios are compared by the digits that the target keeps."""
    if not present or _RATIO not in kind.columns:
        return present - wanted, wanted - present
    place = kind.columns.index(_RATIO)

    def kept(row: RowContent) -> RowContent:
        return (*row[:place], rounded(row[place], digits), *row[place + 1 :])

    here, there = {kept(row): row for row in present}, {kept(row): row for row in wanted}
    return (
        {here[row] for row in here.keys() - there.keys()},
        {there[row] for row in there.keys() - here.keys()},
    )
