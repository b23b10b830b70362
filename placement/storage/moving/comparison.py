"""Whether two databases say the same: what is used of every provider, and what every consumer holds.

The rows are read again by names and uuids, so that a mistake in translating ids shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from placement.domain.portions import portions
from placement.storage.moving.side import AT_ONCE, Progress, Side, with_progress

_PROVIDERS_AT_ONCE = 1000
_CONSUMERS_AT_ONCE = 2000

Facts = set[tuple[Any, ...]]


def differences(
    source: Side,
    target: Side,
    providers: Sequence[str],
    consumers: Sequence[str],
    orphans: Sequence[str],
    progress: Progress,
) -> Iterator[str]:
    """A sentence for each provider and consumer, given by uuid, about which the two do not agree.

    `orphans` are holders without a record in the source: only what they hold is compared.
    """
    for some in with_progress(progress, "providers compared", providers, _PROVIDERS_AT_ONCE):
        yield from _told("provider", _usage(source, some), _usage(target, some))
        if target.is_ours:
            yield from _told("the kept sum of provider", _kept(target, some), _usage(target, some))
    for some in with_progress(progress, "consumers compared", consumers, _CONSUMERS_AT_ONCE):
        yield from _told("consumer", _records(source, some), _records(target, some))
        yield from _told("consumer", _amounts(source, some), _amounts(target, some))
    for some in portions(orphans, AT_ONCE):
        yield from _told("consumer", _amounts(source, some), _amounts(target, some))


def _told(what: str, there: Facts, here: Facts) -> Iterator[str]:
    if there == here:
        return
    for uuid in sorted({fact[0] for fact in there ^ here}):
        one, other = (sorted(map(str, (f[1:] for f in facts if f[0] == uuid))) for facts in (there, here))
        yield f"{what} {uuid}: {'; '.join(one) or 'nothing'} there, {'; '.join(other) or 'nothing'} here"


def _usage(side: Side, uuids: Sequence[str]) -> Facts:
    """(provider, class, sum of what is used of it)."""
    tables = side.tables
    query = (
        sa.select(
            tables.providers.c.uuid, tables.resource_classes.c.name, sa.func.sum(tables.allocations.c.used)
        )
        .select_from(tables.providers)
        .join(tables.allocations, tables.allocations.c.resource_provider_id == tables.providers.c.id)
        .join(tables.resource_classes, tables.resource_classes.c.id == tables.allocations.c.resource_class_id)
        .where(tables.providers.c.uuid.in_(uuids))
        .group_by(tables.providers.c.uuid, tables.resource_classes.c.name)
    )
    return {(uuid, name, int(used)) for uuid, name, used in side.rows(query)}


def _kept(side: Side, uuids: Sequence[str]) -> Facts:
    """The same from the sums that this service keeps with inventories."""
    tables = side.tables
    query = (
        sa.select(tables.providers.c.uuid, tables.resource_classes.c.name, tables.inventories.c.used)
        .select_from(tables.providers)
        .join(tables.inventories, tables.inventories.c.resource_provider_id == tables.providers.c.id)
        .join(tables.resource_classes, tables.resource_classes.c.id == tables.inventories.c.resource_class_id)
        .where(tables.providers.c.uuid.in_(uuids), tables.inventories.c.used > 0)
    )
    return {(uuid, name, int(used)) for uuid, name, used in side.rows(query)}


def _records(side: Side, uuids: Sequence[str]) -> Facts:
    """(consumer, project, user, kind, generation)."""
    tables = side.tables
    consumers, kinds = tables.consumers, tables.consumer_types
    query = (
        sa.select(
            consumers.c.uuid,
            tables.projects.c.external_id,
            tables.users.c.external_id,
            kinds.c.name,
            consumers.c.generation,
        )
        .join(tables.projects, tables.projects.c.id == consumers.c.project_id)
        .join(tables.users, tables.users.c.id == consumers.c.user_id)
        .outerjoin(kinds, kinds.c.id == consumers.c.consumer_type_id)
        .where(consumers.c.uuid.in_(uuids))
    )
    return {tuple(row) for row in side.rows(query)}


def _amounts(side: Side, uuids: Sequence[str]) -> Facts:
    """(consumer, provider, class, amount)."""
    tables = side.tables
    held = tables.allocations
    query = (
        sa.select(held.c.consumer_id, tables.providers.c.uuid, tables.resource_classes.c.name, held.c.used)
        .join(tables.providers, tables.providers.c.id == held.c.resource_provider_id)
        .join(tables.resource_classes, tables.resource_classes.c.id == held.c.resource_class_id)
        .where(held.c.consumer_id.in_(uuids))
    )
    return {tuple(row) for row in side.rows(query)}
