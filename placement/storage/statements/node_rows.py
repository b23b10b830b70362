"""Rows from which the nodes of a cluster are loaded: all of them, or those with certain hosts."""

from __future__ import annotations

import datetime
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from placement.domain.inventory import Inventory
from placement.storage import tables
from placement.storage.changes.provider_records import revision_number
from placement.storage.database import Executor, Transaction
from placement.storage.statements.together import Together

_nodes = tables.nodes
_pods = tables.pods
_providers = tables.providers
_inventories = tables.inventories
_allocations = tables.allocations
_consumers = tables.consumers
_classes = tables.resource_classes


# Whoever has pods come locks their cluster first, as one pod may do that alone (clusters.lock_alone).
_cluster = (
    sa.select(tables.clusters.c.id)
    .where(tables.clusters.c.id == sa.bindparam("cluster"))
    .with_for_update(read=True, key_share=True)
)
_in_cluster = sa.exists(sa.select(_cluster.cte("cluster")))
_unchanged_cluster = _cluster.where(tables.clusters.c.rules_generation == sa.bindparam("generation"))
_in_unchanged_cluster = sa.exists(sa.select(_unchanged_cluster.cte("cluster")))


def lock(transaction: Transaction, roots: Collection[int], cluster_id: int | None = None) -> dict[int, int]:
    """Lock host providers in ascending order of ids; the stamps of those that exist.

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
    """The stamp of a host whose row is locked, and how much is used of the providers that its import made.

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
    """The same as `lock`, with the sum of what is in use.

    None is locked unless the cluster has this generation of rules, if one is given.
    """
    given = {"roots": sorted(roots)}
    if generation is None:
        rows = transaction.execute(transaction.locked(_trees), given)
    else:
        of_cluster = {"cluster": cluster_id, "generation": generation}
        rows = transaction.execute(transaction.locked(_trees_for_pods), {**given, **of_cluster})
    return {row[0]: LockedHost(row[1], int(row[2] or 0)) for row in rows}


class NodeRow(NamedTuple):
    """A node without its manifests; `revision` is the stamp of its host provider."""

    id: int
    name: str
    root_id: int
    root_uuid: str
    revision: int
    imported_at: datetime.datetime


_NODES = (
    sa.select(
        _nodes.c.id,
        _nodes.c.name,
        _providers.c.id,
        _providers.c.uuid,
        revision_number(),
        sa.func.coalesce(_nodes.c.updated_at, _nodes.c.created_at),
    )
    .select_from(_nodes)
    .join(_providers, _providers.c.id == _nodes.c.resource_provider_id)
)


def nodes(connection: Executor, cluster_id: int) -> list[NodeRow]:
    """The nodes of a cluster by name."""
    statement = _NODES.where(_nodes.c.cluster_id == cluster_id).order_by(_nodes.c.name)
    return [NodeRow(*row) for row in connection.execute(statement)]


Manifests = tuple[dict[str, Any], dict[str, Any] | None]


def manifests(connection: Executor, node_ids: Collection[int]) -> dict[int, Manifests]:
    """The Node and NodeResourceTopology of nodes by their ids."""
    statement = sa.select(_nodes.c.id, _nodes.c.manifest, _nodes.c.topology_manifest)
    rows = connection.execute(statement.where(_nodes.c.id.in_(sorted(node_ids))))
    return {row[0]: (row[1], row[2]) for row in rows}


class PodRow(NamedTuple):
    """A pod on a node, with what it was given."""

    root_id: int
    id: int
    namespace: str
    name: str
    uid: str
    status: dict[str, Any]


_PODS = (
    sa.select(
        _nodes.c.resource_provider_id,
        _pods.c.id,
        _pods.c.namespace,
        _pods.c.name,
        _pods.c.uid,
        _pods.c.status,
    )
    .select_from(_pods)
    .join(_nodes, _nodes.c.id == _pods.c.node_id)
)


class HostRecord(NamedTuple):
    """One inventory of a host provider: how much there is of it, and how much of that is used."""

    root_id: int
    class_name: str
    capacity: int
    used: int


_record = _inventories.c
_HOST_RECORDS = (
    sa.select(
        _record.resource_provider_id,
        _classes.c.name,
        _record.total,
        _record.reserved,
        _record.allocation_ratio,
        _record.used,
    )
    .select_from(_inventories)
    .join(_classes, _classes.c.id == _record.resource_class_id)
    .join(_nodes, _nodes.c.resource_provider_id == _record.resource_provider_id)
)


class OtherUse(NamedTuple):
    """What consumers that are no pods of the cluster hold of one inventory in a node's tree."""

    root_id: int
    provider_name: str
    class_name: str
    amount: int


_OTHER_USES = (
    sa.select(
        _providers.c.root_provider_id,
        _providers.c.name,
        _classes.c.name,
        sa.func.sum(_allocations.c.used),
    )
    .select_from(_allocations)
    .join(_providers, _providers.c.id == _allocations.c.resource_provider_id)
    .join(_classes, _classes.c.id == _allocations.c.resource_class_id)
    .join(_consumers, _consumers.c.uuid == _allocations.c.consumer_id)
    .where(
        # Only the providers that the import of nodes made.
        _providers.c.cluster_id.is_not(None),
        sa.or_(
            _consumers.c.cluster_id.is_(None),
            _consumers.c.cluster_id != sa.bindparam("cluster", type_=sa.Integer),
        ),
    )
    .group_by(_providers.c.root_provider_id, _providers.c.name, _classes.c.name)
)


class NodeParts(NamedTuple):
    """All rows of some nodes but their manifests; pods are in the order in which they were recorded."""

    nodes: list[NodeRow]
    pods: list[PodRow]
    records: list[HostRecord]
    others: list[OtherUse]


def all_parts(connection: Executor, cluster_id: int) -> NodeParts:
    """The rows of all nodes of a cluster; the connection should see one state of the database."""
    given = {"cluster": cluster_id}
    of_cluster = _nodes.c.cluster_id == cluster_id
    records = connection.execute(_HOST_RECORDS.where(of_cluster))
    others = connection.execute(_OTHER_USES.where(_providers.c.cluster_id == cluster_id), given)
    return NodeParts(
        nodes(connection, cluster_id),
        [PodRow(*row) for row in connection.execute(_PODS.where(of_cluster).order_by(_pods.c.id))],
        [_host_record(row) for row in records],
        [_other_use(row) for row in others],
    )


def _host_record(row: Sequence[Any]) -> HostRecord:
    root_id, class_name, total, reserved, ratio, used = row
    inventory = Inventory(total, reserved, allocation_ratio=ratio)
    return HostRecord(root_id, class_name, inventory.capacity, used)


def _other_use(row: Sequence[Any]) -> OtherUse:
    return OtherUse(row[0], row[1], row[2], int(row[3]))


def parts(connection: Executor, cluster_id: int, roots: Collection[int]) -> NodeParts:
    """The rows of the nodes of a cluster that have these host providers, by one statement."""
    given = {"cluster": cluster_id, "roots": sorted(roots)}
    found_nodes, found_pods, records, others = _PARTS.rows(connection, given)
    return NodeParts(
        sorted((NodeRow(*row) for row in found_nodes), key=lambda row: row.name),
        sorted((PodRow(*row) for row in found_pods), key=lambda row: row.id),
        [_host_record(row) for row in records],
        [_other_use(row) for row in others],
    )


_roots = sa.bindparam("roots", expanding=True, type_=sa.Integer)
_PARTS = Together(
    _NODES.where(_nodes.c.resource_provider_id.in_(_roots)),
    _PODS.where(_nodes.c.resource_provider_id.in_(_roots)),
    _HOST_RECORDS.where(_record.resource_provider_id.in_(_roots)),
    _OTHER_USES.where(_providers.c.root_provider_id.in_(_roots)),
)


class OwnUse(NamedTuple):
    """What a pod of the cluster holds of one inventory in a node's tree."""

    root_id: int
    consumer_uuid: str
    provider_name: str
    class_name: str
    amount: int


def own_uses(connection: Executor, cluster_id: int, roots: Collection[int]) -> list[OwnUse]:
    """What pods of the cluster hold in some trees."""
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
