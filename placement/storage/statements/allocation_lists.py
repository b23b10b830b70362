"""The list of all allocations, page by page.

A page ends after a consumer, so its key, which never changes, is the cursor: an allocation that exists all
the while is on exactly one page, also if it is replaced between two of them.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import sqlalchemy as sa

from placement.domain.allocation import AllocationFilter
from placement.storage import tables
from placement.storage.database import Executor

_table = tables.allocations
_providers = tables.providers
_classes = tables.resource_classes
_consumers = tables.consumers
_projects = tables.projects
_users = tables.users
_types = tables.consumer_types
_clusters = tables.clusters
_listed = sa.select(
    _table.c.consumer_id,
    _consumers.c.generation,
    _projects.c.external_id,
    _users.c.external_id,
    _types.c.name,
    _providers.c.uuid,
    _providers.c.name,
    _clusters.c.name,
    _classes.c.name,
    _table.c.used,
    _consumers.c.dedicated_cpus,
)
_order = (_table.c.consumer_id, _providers.c.id, _classes.c.id)


class ListedAllocation(NamedTuple):
    """One allocation by names; `cluster` is the provider's, `dedicated_cpus` are the consumer's."""

    consumer_uuid: str
    consumer_generation: int
    project_id: str
    user_id: str
    consumer_type: str | None
    provider_uuid: str
    provider_name: str
    cluster: str | None
    class_name: str
    amount: int
    dedicated_cpus: str | None


def page(
    connection: Executor, wanted: AllocationFilter, after: str | None, consumers: int
) -> list[ListedAllocation]:
    """The allocations of the next consumers in order of their uuids, at most so many, in one statement."""
    keys = _narrowed(sa.select(_table.c.consumer_id), wanted)
    if after is not None:
        keys = keys.where(_table.c.consumer_id > after)
    keys = keys.distinct().order_by(_table.c.consumer_id).limit(consumers)
    statement = _narrowed(_listed, wanted)
    statement = statement.where(_table.c.consumer_id.in_(keys.subquery().select()))
    return [ListedAllocation(*row) for row in connection.execute(statement.order_by(*_order))]


class Held(NamedTuple):
    """What somebody holds of a provider, which is known by its id as the class is."""

    consumer_uuid: str
    project_id: str
    user_id: str
    consumer_type: str | None
    provider_id: int
    class_id: int
    amount: int


_held = (
    sa.select(
        _table.c.consumer_id,
        _projects.c.external_id,
        _users.c.external_id,
        _types.c.name,
        _table.c.resource_provider_id,
        _table.c.resource_class_id,
        _table.c.used,
    )
    .select_from(_table)
    .join(_consumers, _consumers.c.uuid == _table.c.consumer_id)
    .join(_projects, _projects.c.id == _consumers.c.project_id)
    .join(_users, _users.c.id == _consumers.c.user_id)
    .outerjoin(_types, _types.c.id == _consumers.c.consumer_type_id)
)


def on_providers(connection: Executor, ids: Collection[int]) -> list[Held]:
    """All that is held of some providers, by consumer."""
    order = (_table.c.consumer_id, _table.c.resource_provider_id, _table.c.resource_class_id)
    statement = _held.where(_table.c.resource_provider_id.in_(sorted(ids))).order_by(*order)
    return [Held(*row) for row in connection.execute(statement)]


def _narrowed(statement: sa.Select[Any], wanted: AllocationFilter) -> sa.Select[Any]:
    statement = (
        statement.select_from(_table)
        .join(_consumers, _consumers.c.uuid == _table.c.consumer_id)
        .join(_projects, _projects.c.id == _consumers.c.project_id)
        .join(_users, _users.c.id == _consumers.c.user_id)
        .join(_providers, _providers.c.id == _table.c.resource_provider_id)
        .join(_classes, _classes.c.id == _table.c.resource_class_id)
        .outerjoin(_types, _types.c.id == _consumers.c.consumer_type_id)
        .outerjoin(_clusters, _clusters.c.id == _providers.c.cluster_id)
    )
    for column, value in (
        (_projects.c.external_id, wanted.project_id),
        (_users.c.external_id, wanted.user_id),
        (_types.c.name, wanted.consumer_type),
        (_consumers.c.uuid, wanted.consumer_uuid),
        (_providers.c.uuid, wanted.provider_uuid),
        (_clusters.c.name, wanted.cluster),
    ):
        if value is not None:
            statement = statement.where(column == value)
    if wanted.untyped:
        statement = statement.where(_consumers.c.consumer_type_id.is_(None))
    return statement
