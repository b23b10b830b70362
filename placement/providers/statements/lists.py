"""Lists of providers with inventories, traits and aggregates, page by page, one statement for each."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from placement.engine.domain.inventories import Inventory
from placement.storage import tables
from placement.storage.database import Executor

_self, _parent, _root = tables.providers, tables.providers.alias("parent"), tables.providers.alias("root")
_inventories = tables.inventories
_classes = tables.resource_classes
_clusters = tables.clusters


class ListedProvider(NamedTuple):
    """A provider by names; `id` is its place in the list."""

    id: int
    uuid: str
    name: str
    generation: int
    parent_uuid: str | None
    root_uuid: str
    cluster: str | None


class InventoryUse(NamedTuple):
    """One inventory with what is used of it."""

    class_name: str
    inventory: Inventory
    used: int


def page(connection: Executor, cluster: str | None, after: int, count: int) -> list[ListedProvider]:
    """Return the next providers in order of their ids, which never change."""
    statement = (
        sa.select(
            _self.c.id,
            _self.c.uuid,
            _self.c.name,
            _self.c.generation,
            _parent.c.uuid,
            sa.func.coalesce(_root.c.uuid, _self.c.uuid),
            _clusters.c.name,
        )
        .select_from(_self)
        .outerjoin(_parent, _parent.c.id == _self.c.parent_provider_id)
        .outerjoin(_root, _root.c.id == _self.c.root_provider_id)
        .outerjoin(_clusters, _clusters.c.id == _self.c.cluster_id)
        .where(_self.c.id > after)
        .order_by(_self.c.id)
        .limit(count)
    )
    if cluster is not None:
        statement = statement.where(_clusters.c.name == cluster)
    return [ListedProvider(*row) for row in connection.execute(statement)]


def records_of(connection: Executor, ids: Sequence[int]) -> dict[int, list[InventoryUse]]:
    """Return the inventories of providers with their use, in order of classes."""
    statement = (
        sa.select(
            _inventories.c.resource_provider_id,
            _classes.c.name,
            _inventories.c.total,
            _inventories.c.reserved,
            _inventories.c.min_unit,
            _inventories.c.max_unit,
            _inventories.c.step_size,
            _inventories.c.allocation_ratio,
            _inventories.c.used,
        )
        .join(_classes, _classes.c.id == _inventories.c.resource_class_id)
        .where(_inventories.c.resource_provider_id.in_(ids))
        .order_by(_classes.c.id)
    )
    found: dict[int, list[InventoryUse]] = defaultdict(list)
    for row in connection.execute(statement):
        found[row[0]].append(InventoryUse(row[1], Inventory(*row[2:8]), row[8]))
    return found


def traits_of(connection: Executor, ids: Sequence[int]) -> dict[int, list[str]]:
    """Return the traits of providers by name."""
    return _members(connection, ids, tables.provider_traits, "trait_id", tables.traits, "name")


def aggregates_of(connection: Executor, ids: Sequence[int]) -> dict[int, list[str]]:
    """Return the aggregates that providers are in, by uuid."""
    return _members(connection, ids, tables.provider_aggregates, "aggregate_id", tables.aggregates, "uuid")


def _members(
    connection: Executor, ids: Sequence[int], pairs: sa.Table, column: str, named: sa.Table, shown: str
) -> dict[int, list[str]]:
    statement: sa.Select[Any] = (
        sa.select(pairs.c.resource_provider_id, named.c[shown])
        .join(named, named.c.id == pairs.c[column])
        .where(pairs.c.resource_provider_id.in_(ids))
        .order_by(named.c[shown])
    )
    found: dict[int, list[str]] = defaultdict(list)
    for row in connection.execute(statement):
        found[row[0]].append(row[1])
    return found
