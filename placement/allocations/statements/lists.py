"""Allocations as they are read: of consumers, providers and projects, and all of them page by page.

A page ends after a consumer, and the consumer's key, which never changes, is the cursor. So an allocation
that exists throughout is on exactly one page, even if it is replaced between two pages.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection
from dataclasses import fields
from functools import cache
from typing import Any, NamedTuple

import sqlalchemy as sa

from placement.engine.domain.claims import AllocationFilter
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


class NamedHolding(NamedTuple):
    """One allocation by names; uuid and generation are of its provider, or of its consumer."""

    uuid: str
    generation: int
    class_name: str
    amount: int
    created_at: datetime.datetime


_named = (
    sa.select(
        _table.c.consumer_id,
        _providers.c.uuid,
        _providers.c.generation,
        _classes.c.name,
        _table.c.used,
        _table.c.created_at,
    )
    .select_from(_table)
    .join(_providers, _providers.c.id == _table.c.resource_provider_id)
    .join(_classes, _classes.c.id == _table.c.resource_class_id)
    .order_by(_providers.c.id, _classes.c.id)
)


def named(connection: Executor, consumer_uuids: Collection[str]) -> list[tuple[str, NamedHolding]]:
    """Return all that some consumers hold, each with the consumer, in order of providers and classes."""
    if not consumer_uuids:
        return []
    rows = connection.execute(_named.where(_table.c.consumer_id.in_(sorted(consumer_uuids))))
    return [(row[0], NamedHolding(*row[1:])) for row in rows]


def on_provider(connection: Executor, provider_uuid: str) -> tuple[int, list[NamedHolding]] | None:
    """Return a provider's generation and all allocations on it; None if there is no such provider."""
    statement = (
        sa.select(
            _providers.c.generation,
            _table.c.consumer_id,
            _consumers.c.generation,
            _classes.c.name,
            _table.c.used,
            _table.c.created_at,
        )
        .select_from(_providers)
        .outerjoin(_table, _table.c.resource_provider_id == _providers.c.id)
        .outerjoin(_consumers, _consumers.c.uuid == _table.c.consumer_id)
        .outerjoin(_classes, _classes.c.id == _table.c.resource_class_id)
        .where(_providers.c.uuid == provider_uuid)
        .order_by(_table.c.consumer_id, _classes.c.id)
    )
    rows = connection.execute(statement).all()
    if not rows:
        return None
    return rows[0][0], [NamedHolding(*row[1:]) for row in rows if row[1] is not None]


class ProjectUse(NamedTuple):
    """The use of one class by the consumers of one type; type None if they have none."""

    consumer_type: str | None
    class_name: str
    amount: int


def used_by_project(connection: Executor, project_id: str, user_id: str | None = None) -> list[ProjectUse]:
    """Return the usage of the consumers of a project (and user), by consumer type and class."""
    columns = tables.consumer_types.c.name, _classes.c.name
    statement = _of_project(project_id, user_id, *columns, sa.func.sum(_table.c.used))
    statement = statement.join(_classes, _classes.c.id == _table.c.resource_class_id).group_by(*columns)
    return [ProjectUse(row[0], row[1], int(row[2])) for row in connection.execute(statement)]


def consumers_of_project(
    connection: Executor, project_id: str, user_id: str | None = None
) -> dict[str | None, int]:
    """Return how many consumers of each type a project (and user) has."""
    kind, count = tables.consumer_types.c.name, sa.func.count(sa.distinct(_consumers.c.id))
    rows = connection.execute(_of_project(project_id, user_id, kind, count).group_by(kind))
    return {row[0]: row[1] for row in rows}


def _of_project(
    project_id: str, user_id: str | None, *columns: sa.ColumnElement[Any]
) -> sa.Select[*tuple[Any, ...]]:
    projects, users, types = tables.projects, tables.users, tables.consumer_types
    statement = (
        sa.select(*columns)
        .select_from(_table)
        .join(_consumers, _consumers.c.uuid == _table.c.consumer_id)
        .join(projects, projects.c.id == _consumers.c.project_id)
        .outerjoin(types, types.c.id == _consumers.c.consumer_type_id)
        .where(projects.c.external_id == project_id)
    )
    if user_id is not None:
        statement = statement.join(users, users.c.id == _consumers.c.user_id)
        statement = statement.where(users.c.external_id == user_id)
    return statement


# The list of all allocations.

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
    _consumers.c.created_at,
    sa.func.coalesce(_consumers.c.updated_at, _consumers.c.created_at),
)
_order = (_table.c.consumer_id, _providers.c.id, _classes.c.id)


class ListedAllocation(NamedTuple):
    """One allocation by names; `cluster` is the provider's, CPUs and times are the consumer's."""

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
    created_at: datetime.datetime | None
    changed_at: datetime.datetime | None


def page(
    connection: Executor, filter_: AllocationFilter, after: str | None, consumers: int
) -> list[ListedAllocation]:
    """Return in one statement the allocations of the next `consumers` consumers, in order of their uuids."""
    keys = _narrowed(sa.select(_table.c.consumer_id), filter_)
    if after is not None:
        keys = keys.where(_table.c.consumer_id > after)
    keys = keys.distinct().order_by(_table.c.consumer_id).limit(consumers)
    statement = _narrowed(_listed, filter_)
    statement = statement.where(_table.c.consumer_id.in_(keys.subquery().select()))
    return [ListedAllocation(*row) for row in connection.execute(statement.order_by(*_order))]


class NamedHost(NamedTuple):
    """A host by its name and uuid."""

    name: str
    uuid: str


class ConsumerSum(NamedTuple):
    """The amount that a consumer holds of one class over all providers.

    `first_host` and `last_host` are, by their names, the first and the last host of these providers, of
    which there are `hosts`.
    """

    consumer_uuid: str
    consumer_type: str | None
    project_id: str
    user_id: str
    class_name: str
    amount: int
    first_host: NamedHost
    last_host: NamedHost
    hosts: int


_FILTERS = {
    "project_id": "projects.external_id = :project_id",
    "user_id": "users.external_id = :user_id",
    "consumer_type": "consumer_types.name = :consumer_type",
}
_IN_CLUSTER = """
    AND allocations.resource_provider_id IN (
        SELECT providers.id FROM resource_providers AS providers
          JOIN clusters ON clusters.id = providers.cluster_id WHERE clusters.name = :cluster)
"""


_ON_HOST = """
    AND allocations.resource_provider_id IN (
        SELECT providers.id FROM resource_providers AS providers
          JOIN resource_providers AS roots ON roots.id = COALESCE(providers.root_provider_id, providers.id)
         WHERE roots.uuid = :host)
"""
# A host in one text, so that the least one has its own uuid: the name, a blank, the uuid.
_HOST = "roots.name || ' ' || roots.uuid"


@cache
def _sums(given: frozenset[str], *, untyped: bool, later: bool) -> sa.TextClause:
    """Return the statement for these parameters, cached: building one takes as long as its execution."""
    conditions = [_FILTERS[name] for name in sorted(given - {"cluster", "host"})]
    conditions += ["consumers.consumer_type_id IS NULL"] * untyped + ["consumers.uuid > :after"] * later
    narrowed = "".join(f" AND {each}" for each in conditions)
    where = (_IN_CLUSTER if "cluster" in given else "") + (_ON_HOST if "host" in given else "")
    return sa.text(
        f"""
        SELECT chosen.uuid, chosen.type, chosen.project, chosen."user", resource_classes.name,
               CAST(SUM(allocations.used) AS BIGINT), MIN({_HOST}), MAX({_HOST}),
               COUNT(DISTINCT roots.id)
          FROM (SELECT consumers.uuid, consumer_types.name AS type, projects.external_id AS project,
                       users.external_id AS "user"
                  FROM consumers
                  JOIN projects ON projects.id = consumers.project_id
                  JOIN users ON users.id = consumers.user_id
                  LEFT JOIN consumer_types ON consumer_types.id = consumers.consumer_type_id
                 WHERE EXISTS (SELECT 1 FROM allocations
                                WHERE allocations.consumer_id = consumers.uuid {where}) {narrowed}
                 ORDER BY consumers.uuid LIMIT :count) AS chosen
          JOIN allocations ON allocations.consumer_id = chosen.uuid {where}
          JOIN resource_classes ON resource_classes.id = allocations.resource_class_id
          JOIN resource_providers AS providers ON providers.id = allocations.resource_provider_id
          JOIN resource_providers AS roots ON roots.id = COALESCE(providers.root_provider_id, providers.id)
         GROUP BY chosen.uuid, chosen.type, chosen.project, chosen."user", resource_classes.id,
                  resource_classes.name
         ORDER BY chosen.uuid, resource_classes.id
        """
    )


def sums(
    connection: Executor, filter_: AllocationFilter, after: str | None, consumers: int
) -> list[ConsumerSum]:
    """Return the sums of at most so many next consumers by class, in order of their uuids.

    Raises KeyError where one consumer, provider or class is wanted, for which there is no statement.
    """
    given = {field.name: getattr(filter_, field.name) for field in fields(filter_) if field.name != "untyped"}
    given = {name: value for name, value in given.items() if value is not None}
    statement = _sums(frozenset(given), untyped=filter_.untyped, later=after is not None)
    values = {**given, "count": consumers, **({} if after is None else {"after": after})}
    rows = connection.execute(statement, values)
    return [
        ConsumerSum._make((*sums, NamedHost(*first.rsplit(" ", 1)), NamedHost(*last.rsplit(" ", 1)), hosts))
        for *sums, first, last, hosts in rows
    ]


class ListedHolding(NamedTuple):
    """An amount that a consumer holds of a provider; provider and class are given by their ids."""

    consumer_uuid: str
    project_id: str
    user_id: str
    consumer_type: str | None
    provider_id: int
    class_id: int
    amount: int


_held = sa.text(
    """
    SELECT allocations.consumer_id, projects.external_id, users.external_id, consumer_types.name,
           allocations.resource_provider_id, allocations.resource_class_id, allocations.used
      FROM resource_providers AS providers
      JOIN allocations ON allocations.resource_provider_id = providers.id
      JOIN consumers ON consumers.uuid = allocations.consumer_id
      JOIN projects ON projects.id = consumers.project_id
      JOIN users ON users.id = consumers.user_id
      LEFT JOIN consumer_types ON consumer_types.id = consumers.consumer_type_id
     WHERE providers.root_provider_id = :root_id
     ORDER BY allocations.consumer_id, providers.id, allocations.resource_class_id
    """
)


def on_tree(connection: Executor, root_id: int) -> list[ListedHolding]:
    """Return all that is held of the providers of a tree, by consumer."""
    return [ListedHolding(*row) for row in connection.execute(_held, {"root_id": root_id})]


def _narrowed(statement: sa.Select[Any], filter_: AllocationFilter) -> sa.Select[Any]:
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
        (_projects.c.external_id, filter_.project_id),
        (_users.c.external_id, filter_.user_id),
        (_types.c.name, filter_.consumer_type),
        (_consumers.c.uuid, filter_.consumer_uuid),
        (_providers.c.uuid, filter_.provider_uuid),
        (_clusters.c.name, filter_.cluster),
        (_classes.c.name, filter_.resource_class),
    ):
        if value is not None:
            statement = statement.where(column == value)
    if filter_.host is not None:
        roots = sa.select(_providers.c.id).where(_providers.c.uuid == filter_.host).subquery()
        root = sa.func.coalesce(_providers.c.root_provider_id, _providers.c.id)
        statement = statement.where(root.in_(roots.select()))
    if filter_.untyped:
        statement = statement.where(_consumers.c.consumer_type_id.is_(None))
    return statement
