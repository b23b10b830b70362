"""Everybody who holds something, with all that moving them takes to know."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import sqlalchemy as sa

from placement.domain.portions import portions
from placement.storage import tables
from placement.storage.database import Executor
from placement.storage.statements.pods import RESERVED

_AT_ONCE = 5000
_consumers = tables.consumers
_providers = tables.providers


class Holder(NamedTuple):
    """A consumer; pods have the id of their cluster. `request` is what it was claimed with, as it is kept.

    `group_name` is the group of consumers that it is in.
    """

    uuid: str
    generation: int
    project_id: str
    user_id: str
    consumer_type: str | None
    cluster_id: int | None
    request: str | None
    group_name: str | None


_described = (
    sa.select(
        _consumers.c.uuid,
        _consumers.c.generation,
        tables.projects.c.external_id,
        tables.users.c.external_id,
        tables.consumer_types.c.name,
        _consumers.c.cluster_id,
        _consumers.c.request,
        _consumers.c.group_name,
    )
    .select_from(_consumers)
    .join(tables.projects, tables.projects.c.id == _consumers.c.project_id)
    .join(tables.users, tables.users.c.id == _consumers.c.user_id)
    .outerjoin(tables.consumer_types, tables.consumer_types.c.id == _consumers.c.consumer_type_id)
)


def holders(connection: Executor, root_ids: Collection[int] | None = None) -> list[Holder]:
    """All consumers by uuid, or those that hold something of the trees with these roots."""
    if root_ids is None:
        return [Holder(*row) for row in connection.execute(_described.order_by(_consumers.c.uuid))]
    found = {
        row[0]: Holder(*row)
        for some in portions(sorted(root_ids), _AT_ONCE)
        for row in connection.execute(_described.where(_consumers.c.uuid.in_(_holding(some))))
    }
    return [found[uuid] for uuid in sorted(found)]


def _holding(root_ids: Collection[int]) -> sa.Select[tuple[str]]:
    held = tables.allocations
    inside = sa.select(_providers.c.id).where(_providers.c.root_provider_id.in_(root_ids))
    return sa.select(held.c.consumer_id).where(held.c.resource_provider_id.in_(inside))


class Amount(NamedTuple):
    """One allocation by ids."""

    consumer_uuid: str
    provider_id: int
    class_id: int
    amount: int


def amounts(connection: Executor, root_ids: Collection[int] | None = None) -> list[Amount]:
    """All that is held, or all that those hold who hold something of the trees with these roots."""
    held = tables.allocations
    statement = sa.select(
        held.c.consumer_id, held.c.resource_provider_id, held.c.resource_class_id, held.c.used
    )
    if root_ids is None:
        return [Amount(*row) for row in connection.execute(statement)]
    found = {
        Amount(*row)
        for some in portions(sorted(root_ids), _AT_ONCE)
        for row in connection.execute(statement.where(held.c.consumer_id.in_(_holding(some))))
    }
    return sorted(found)


def manifests(
    connection: Executor, cluster_id: int, root_ids: Collection[int] | None = None
) -> dict[str, dict[str, Any]]:
    """The manifests of the pods on the nodes of a cluster, or on some, by host; by their consumers."""
    table = tables.pods
    statement = sa.select(table.c.status["consumer"].as_string(), table.c.manifest).where(
        table.c.cluster_id == cluster_id, table.c.node_id.is_not(None), table.c.namespace != RESERVED
    )
    if root_ids is None:
        return {row[0]: row[1] for row in connection.execute(statement) if row[0]}
    return {
        row[0]: row[1]
        for some in portions(sorted(root_ids), _AT_ONCE)
        for row in connection.execute(statement.where(table.c.node_id.in_(_nodes_of(some))))
        if row[0]
    }


def _nodes_of(root_ids: Collection[int]) -> sa.Select[tuple[int]]:
    return sa.select(tables.nodes.c.id).where(tables.nodes.c.resource_provider_id.in_(root_ids))
