"""Rows from which nodes of a cluster are loaded, all nodes or nodes of certain hosts, and their locks."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import sqlalchemy as sa

from placement.storage import records, tables
from placement.storage.database import Executor, Transaction
from placement.storage.records import NodeParts, NodeRow, revision_number

_nodes = tables.nodes
_providers = tables.providers
_inventories = tables.inventories
_allocations = tables.allocations
_consumers = tables.consumers
_classes = tables.resource_classes


# A transaction that places pods locks their cluster first, as one may do so alone (clusters.lock_alone).
_cluster = (
    sa.select(tables.clusters.c.id)
    .where(tables.clusters.c.id == sa.bindparam("cluster"))
    .with_for_update(read=True, key_share=True)
)
_in_cluster = sa.exists(sa.select(_cluster.cte("cluster")))
_unchanged_cluster = _cluster.where(tables.clusters.c.rules_generation == sa.bindparam("generation"))
_in_unchanged_cluster = sa.exists(sa.select(_unchanged_cluster.cte("cluster")))


def lock(transaction: Transaction, roots: Collection[int], cluster_id: int | None = None) -> dict[int, int]:
    """Lock host providers in ascending order of ids; return the stamps of the existing ones.

    `cluster_id`: the cluster in which pods may come to them.
    """
    statement = (
        sa.select(_providers.c.id, revision_number())
        .where(_providers.c.id.in_(sorted(roots)))
        .order_by(_providers.c.id)
    )
    given = {}
    if cluster_id is not None:
        statement, given = statement.where(_in_cluster), {"cluster": cluster_id}
    return {row[0]: row[1] for row in transaction.execute(transaction.locked(statement), given)}


class LockedHost(NamedTuple):
    """The stamp of a host with a locked row, and how much is used of the providers that its import made.

    `used` adds units of all classes.
    """

    revision: int
    used: int


_member = _providers.alias()
_used_in_tree = (
    sa.select(sa.func.sum(_inventories.c.used))
    .join(_member, _member.c.id == _inventories.c.resource_provider_id)
    .where(_member.c.root_provider_id == _providers.c.id, _member.c.cluster_id.is_not(None))
    .correlate(_providers)
    .scalar_subquery()
)
_trees = (
    sa.select(_providers.c.id, revision_number(), _used_in_tree)
    .where(_providers.c.id.in_(sa.bindparam("roots", expanding=True)))
    .order_by(_providers.c.id)
)


_trees_for_pods = _trees.where(_in_unchanged_cluster)


def lock_with_use(
    transaction: Transaction, roots: Collection[int], cluster_id: int, generation: int | None
) -> dict[int, LockedHost]:
    """Lock host providers as `lock` does; return their stamps, with the sum of what is in use.

    None is locked unless the cluster has this generation of rules, if one is given.
    """
    given = {"roots": sorted(roots)}
    if generation is None:
        rows = transaction.execute(transaction.locked(_trees), given)
    else:
        of_cluster = {"cluster": cluster_id, "generation": generation}
        rows = transaction.execute(transaction.locked(_trees_for_pods), {**given, **of_cluster})
    return {row[0]: LockedHost(row[1], int(row[2] or 0)) for row in rows}


def nodes(connection: Executor, cluster_id: int) -> list[NodeRow]:
    """Return the nodes of a cluster by name."""
    return records.nodes_by_name(connection.execute(records.NODES, {"cluster": cluster_id}))


def all_parts(connection: Executor, cluster_id: int) -> NodeParts:
    """Return the rows of all nodes of a cluster; the connection should see one state of the database."""
    queries = (records.NODES, records.PODS, records.HOST_RECORDS, records.OTHER_USES)
    return records.read_nodes([connection.execute(query, {"cluster": cluster_id}) for query in queries])


_ROOTS: Any = sa.bindparam("roots", expanding=True, type_=sa.Integer)
_PARTS = records.together(lambda column: column.in_(_ROOTS), sa.bindparam("cluster", type_=sa.Integer))


def parts(connection: Executor, cluster_id: int, roots: Collection[int]) -> NodeParts:
    """Return the rows of the nodes of a cluster that have these host providers, by one statement."""
    found = connection.execute(_PARTS.statement, {"cluster": cluster_id, "roots": sorted(roots)})
    return records.read_nodes(_PARTS.parted(found))


def manifests(
    connection: Executor, node_ids: Collection[int]
) -> dict[int, tuple[dict[str, Any], str | None]]:
    """Return the Node of nodes by their ids, and the text of the NodeResourceTopology."""
    topology = sa.cast(_nodes.c.topology_manifest, sa.Text)
    statement = sa.select(_nodes.c.id, _nodes.c.manifest, topology)
    rows = connection.execute(statement.where(_nodes.c.id.in_(sorted(node_ids))))
    return {row[0]: (row[1], row[2]) for row in rows}


class OwnUse(NamedTuple):
    """The amount that a pod of the cluster holds of one inventory in a node's tree."""

    root_id: int
    consumer_uuid: str
    provider_name: str
    class_name: str
    amount: int


def own_uses(connection: Executor, cluster_id: int, roots: Collection[int]) -> list[OwnUse]:
    """Return what pods of the cluster hold in some trees."""
    statement = (
        sa.select(
            _providers.c.root_provider_id,
            _allocations.c.consumer_id,
            _providers.c.name,
            _classes.c.name,
            _allocations.c.used,
        )
        .select_from(_allocations)
        .join(_providers, _providers.c.id == _allocations.c.resource_provider_id)
        .join(_classes, _classes.c.id == _allocations.c.resource_class_id)
        .join(_consumers, _consumers.c.uuid == _allocations.c.consumer_id)
        .where(_providers.c.root_provider_id.in_(sorted(roots)), _consumers.c.cluster_id == cluster_id)
    )
    return [OwnUse(*row) for row in connection.execute(statement)]
