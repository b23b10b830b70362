"""Whether two databases say the same: what is used of every provider, and what every consumer is and holds.

The rows are read again, and told by the names and uuids that each database has for its ids, so that a mistake
in translating ids shows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from placement.storage.moving.providers import foreign_ids
from placement.storage.moving.side import Progress, Side, with_progress

_PROVIDERS_AT_ONCE = 5000
# Whose column has the names that each kind of id stands for.
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
class _Known:
    """A database with the names of its ids."""

    side: Side
    providers: Names
    resource_classes: Names
    projects: Names
    users: Names
    consumer_types: Names


def differences(
    source: Side, target: Side, moved: Mapping[int, int], consumers: Set[str], progress: Progress
) -> Iterator[str]:
    """A sentence for each provider and consumer about which the two do not agree.

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


def _known(side: Side) -> _Known:
    names = {}
    for kind, column in _NAMED_BY.items():
        table = getattr(side.tables, kind)
        names[kind] = dict(map(tuple, side.rows(sa.select(table.c.id, table.c[column]))))
    return _Known(side, **names)


def _held(known: _Known, ids: Sequence[int]) -> Facts:
    """(consumer, provider, class, amount) of what is held of these providers."""
    columns = ("consumer_id", _PROVIDER, "resource_class_id", "used")
    return _amounts(known, known.side.rows_of(known.side.tables.allocations, columns, _PROVIDER, ids))


def _amounts(known: _Known, rows: Iterable[Sequence[Any]]) -> Facts:
    providers, classes = known.providers, known.resource_classes
    return {(consumer, providers[id_], classes[kind], used) for consumer, id_, kind, used in rows}


def _sums(held: Facts) -> Facts:
    """(provider, class, sum of what is used of it)."""
    used: dict[tuple[str, str], int] = defaultdict(int)
    for _, provider, resource_class, amount in held:
        used[provider, resource_class] += amount
    return {(*what, amount) for what, amount in used.items()}


def _kept(known: _Known, ids: Sequence[int]) -> Facts:
    """The same from the sums that this service keeps with inventories."""
    columns = (_PROVIDER, "resource_class_id", "used")
    rows = known.side.rows_of(known.side.tables.inventories, columns, _PROVIDER, ids)
    providers, classes = known.providers, known.resource_classes
    return {(providers[id_], classes[kind], used) for id_, kind, used in rows if used}


def _held_of_clusters(known: _Known, consumers: Set[str]) -> Facts:
    """What these consumers hold of providers that belong to clusters, which no source knows."""
    table = known.side.tables.allocations
    columns = [table.c[name] for name in ("consumer_id", _PROVIDER, "resource_class_id", "used")]
    rows = known.side.rows(sa.select(*columns).where(table.c[_PROVIDER].in_(foreign_ids(known.side))))
    return _amounts(known, (row for row in rows if row[0] in consumers))


def _records(known: _Known) -> Mapping[str, tuple[Any, ...]]:
    """(consumer, project, user, kind, generation) of all consumers that have a record, by their uuids."""
    columns = ("uuid", "project_id", "user_id", "consumer_type_id", "generation")
    table = known.side.tables.consumers
    rows = known.side.rows(sa.select(*(table.c[name] for name in columns)))
    projects, users, kinds = known.projects, known.users, known.consumer_types
    return {
        uuid: (uuid, projects[project], users[user], kinds.get(kind), generation)
        for uuid, project, user, kind, generation in rows
    }
