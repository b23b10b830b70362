"""What providers have: inventories, traits, aggregates and allocations, some providers at a time.

Rows of both databases are compared by their contents in the ids of the target. A row that differs is deleted
and inserted again: nothing outside knows these rows by an id.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from placement.storage.moving import providers
from placement.storage.moving.names import Ids
from placement.storage.moving.side import Progress, Report, Side, rounded, with_progress

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


def copy(
    source: Side,
    target: Side,
    ids: Ids,
    moved: Mapping[int, int],
    fresh: Set[int],
    report: Report,
    progress: Progress,
) -> None:
    """Bring about in the target what the providers `moved` (target ids by source ids) have in the source.

    `fresh` ones were just written: they carry the stamp already.
    """
    for some in with_progress(progress, "what providers have", list(moved), _PROVIDERS_AT_ONCE):
        here = [moved[id_] for id_ in some]
        held = _translated(source, _ALLOCATIONS, some, moved, ids.resource_classes)
        touched = _write(target, _ALLOCATIONS, held, here, report)
        offered = _translated(source, _INVENTORIES, some, moved, ids.resource_classes)
        if target.is_ours:
            touched |= _write(target, _USED_INVENTORIES, _with_use(offered, held), here, report)
        else:
            touched |= _write(target, _INVENTORIES, offered, here, report)
        for kind, names in ((_TRAITS, ids.traits), (_AGGREGATES, ids.aggregates)):
            touched |= _write(target, kind, _translated(source, kind, some, moved, names), here, report)
        providers.touch(sorted(touched - fresh), target)


def _with_use(offered: Rows, held: Rows) -> Rows:
    """The inventories with the sums of their allocations, which this service keeps."""
    used: dict[tuple[int, int], int] = defaultdict(int)
    for provider, resource_class, _, amount in held:
        used[provider, resource_class] += amount
    return {(*row, used.get((row[0], row[1]), 0)): times for row, times in offered.items()}


def _translated(
    source: Side, kind: _Kind, some: Sequence[int], moved: Mapping[int, int], names: Mapping[int, int]
) -> Rows:
    """The rows of the source, with the ids of the target."""
    rows = _read(source, kind, some)
    return {(moved[row[0]], names[row[1]], *row[2:-2]): (row[-2], row[-1]) for row in rows}


def _read(side: Side, kind: _Kind, some: Sequence[int]) -> Iterable[Sequence[Any]]:
    columns = (*kind.columns, "created_at", "updated_at")
    return side.rows_of(getattr(side.tables, kind.table), columns, _PROVIDER, some)


def _write(target: Side, kind: _Kind, wanted: Rows, here: Sequence[int], report: Report) -> set[int]:
    """Replace the rows that differ, of the providers `here`; the providers they are of."""
    present = {tuple(row[:-2]) for row in _read(target, kind, here)}
    surplus, missing = _differing(kind, present, wanted.keys(), target.digits)
    table = getattr(target.tables, kind.table)
    target.delete(table, kind.columns[: kind.key], [row[: kind.key] for row in surplus])
    # In the order of the source, as far as it has one.
    rows = [(*row, *times) for row, times in wanted.items() if row in missing]
    target.insert(table, (*kind.columns, "created_at", "updated_at"), rows)
    _count(kind, surplus, missing, report)
    return {row[0] for row in missing} | {row[0] for row in surplus}


def _differing(
    kind: _Kind, present: Set[Content], wanted: Set[Content], digits: int
) -> tuple[Set[Content], Set[Content]]:
    """Rows that only one has, where ratios count by the digits that the target keeps."""
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


def _count(kind: _Kind, surplus: Set[Content], missing: Set[Content], report: Report) -> None:
    """A row whose key goes and comes was changed."""
    gone = {row[: kind.key] for row in surplus}
    changed = sum(row[: kind.key] in gone for row in missing)
    changes = report.of(kind.title)
    changes.added += len(missing) - changed
    changes.changed += changed
    changes.removed += len(surplus) - changed
