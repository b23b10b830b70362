"""The check whether two databases agree: the amounts in use of every provider, and every consumer.

The rows are read again, with the names and uuids that each database has for its ids, so that a mistake in
translating ids shows. Spellings of uuids do not count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any

import sqlalchemy as sa

from placement.migrate.consumers import _CONTENT
from placement.migrate.endpoint import Endpoint
from placement.migrate.migration import Migration, with_progress
from placement.migrate.names import canonical
from placement.migrate.providers import foreign_ids

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
    """Return (provider, class, sum of the amounts in use)."""
    used: dict[tuple[str, str], int] = defaultdict(int)
    for _, provider, resource_class, amount in held:
        used[provider, resource_class] += amount
    return {(*what, amount) for what, amount in used.items()}


class _NamedFacts:
    """The facts of a database, with the names of its ids."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._endpoint = endpoint
        self._names: dict[str, dict[int, str]] = {}
        for kind, column in _NAMED_BY.items():
            table = getattr(endpoint.tables, kind)
            self._names[kind] = dict(map(tuple, endpoint.rows(sa.select(table.c.id, table.c[column]))))
        self._names["providers"] = {id_: canonical(uuid) for id_, uuid in self._names["providers"].items()}

    def held(self, ids: Sequence[int]) -> Facts:
        """Return (consumer, provider, class, amount) of allocations of these providers."""
        return self._amounts(
            self._endpoint.rows_of(self._endpoint.tables.allocations, _ALLOCATION, _PROVIDER, ids)
        )

    def held_of_clusters(self, consumers: Set[str]) -> Facts:
        """Return allocations of these consumers from providers of clusters, which no source knows."""
        table = self._endpoint.tables.allocations
        query = sa.select(*(table.c[name] for name in _ALLOCATION))
        rows = self._endpoint.rows(query.where(table.c[_PROVIDER].in_(foreign_ids(self._endpoint))))
        return self._amounts(row for row in rows if row[0] in consumers)

    def _amounts(self, rows: Iterable[Sequence[Any]]) -> Facts:
        providers, classes = self._names["providers"], self._names["resource_classes"]
        return {
            (canonical(consumer), providers[id_], classes[kind], used) for consumer, id_, kind, used in rows
        }

    def kept(self, ids: Sequence[int]) -> Facts:
        """Return (provider, class, sum), as `_sums` does, from the sums that are kept with inventories."""
        columns = (_PROVIDER, "resource_class_id", "used")
        rows = self._endpoint.rows_of(self._endpoint.tables.inventories, columns, _PROVIDER, ids)
        providers, classes = self._names["providers"], self._names["resource_classes"]
        return {(providers[id_], classes[kind], used) for id_, kind, used in rows if used}

    def records(self) -> Mapping[str, tuple[Any, ...]]:
        """Return (consumer, project, user, kind, generation) of consumers with a record, by their uuids."""
        table = self._endpoint.tables.consumers
        rows = self._endpoint.rows(sa.select(*(table.c[name] for name in _CONTENT)))
        projects, users, kinds = (self._names[kind] for kind in ("projects", "users", "consumer_types"))
        return {
            canonical(uuid): (
                canonical(uuid),
                projects.get(project),
                users.get(user),
                kinds.get(kind),
                generation,
            )
            for uuid, project, user, kind, generation in rows
        }
