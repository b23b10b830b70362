"""Clusters: nodes, pods and the owners of CPUs agree with the providers they are of."""

from __future__ import annotations

import os_resource_classes
import sqlalchemy as sa

from placement.storage import tables
from placement.storage.checks.invariant import Invariant

_nodes, _pods, _cpus, _clusters = tables.nodes, tables.pods, tables.logical_cpus, tables.clusters
_providers, _consumers, _allocations = tables.providers, tables.consumers, tables.allocations
_root = tables.providers.alias("root")
_cluster_of_node = _clusters.join(_nodes, _nodes.c.cluster_id == _clusters.c.id)
_owned = (
    sa.select(_cpus.c.node_id, _cpus.c.consumer_id, sa.func.count().label("count"))
    .group_by(_cpus.c.node_id, _cpus.c.consumer_id)
    .subquery("owned")
)
# The threads of cores that pods hold, for each pod and node, and at least how many CPUs that are: cores that
# are given in steps are held in such, also for fewer CPUs.
_threads = (
    sa.select(
        _nodes.c.id.label("node_id"),
        _nodes.c.name.label("node"),
        _consumers.c.uuid,
        sa.cast(sa.func.sum(_allocations.c.used), sa.BigInteger).label("amount"),
        sa.func.sum(_allocations.c.used - tables.inventories.c.step_size + 1).label("least"),
    )
    .select_from(_allocations)
    .join(tables.resource_classes, tables.resource_classes.c.id == _allocations.c.resource_class_id)
    .join(_consumers, _consumers.c.uuid == _allocations.c.consumer_id)
    .join(_providers, _providers.c.id == _allocations.c.resource_provider_id)
    .join(
        tables.inventories,
        sa.and_(
            tables.inventories.c.resource_provider_id == _allocations.c.resource_provider_id,
            tables.inventories.c.resource_class_id == _allocations.c.resource_class_id,
        ),
    )
    .join(_nodes, _nodes.c.resource_provider_id == _providers.c.root_provider_id)
    .where(
        tables.resource_classes.c.name == os_resource_classes.PCPU,
        _consumers.c.cluster_id == _nodes.c.cluster_id,
    )
    .group_by(_nodes.c.id, _nodes.c.name, _consumers.c.uuid)
    .subquery("threads")
)
_count = sa.func.coalesce(_owned.c.count, 0)

INVARIANTS = (
    Invariant(
        "nodes-are-roots-of-their-cluster",
        sa.select(_clusters.c.name.label("cluster"), _nodes.c.name.label("node"), _providers.c.uuid)
        .select_from(_cluster_of_node)
        .join(_providers, _providers.c.id == _nodes.c.resource_provider_id)
        .where(
            sa.or_(
                _providers.c.parent_provider_id.is_not(None),
                _providers.c.cluster_id.is_distinct_from(_nodes.c.cluster_id),
            )
        )
        .order_by(_nodes.c.id),
        "node {node} of cluster {cluster}: its provider {uuid} is no root of that cluster",
    ),
    Invariant(
        "clusters-have-nodes-for-their-providers",
        sa.select(_providers.c.uuid, _providers.c.name)
        .select_from(_providers)
        .outerjoin(_nodes, _nodes.c.resource_provider_id == _providers.c.id)
        .where(
            _providers.c.cluster_id.is_not(None),
            _providers.c.parent_provider_id.is_(None),
            _nodes.c.id.is_(None),
        )
        .order_by(_providers.c.id),
        "provider {uuid} ({name}): a cluster made it for a node that is not there",
    ),
    Invariant(
        "trees-are-of-one-cluster",
        sa.select(_providers.c.uuid, _providers.c.name, _root.c.uuid.label("root"))
        .join(_root, _root.c.id == _providers.c.root_provider_id)
        .where(
            _providers.c.cluster_id.is_not(None), _providers.c.cluster_id.is_distinct_from(_root.c.cluster_id)
        )
        .order_by(_providers.c.id),
        "provider {uuid} ({name}): it is of another cluster than its root {root}",
    ),
    Invariant(
        "nodes-are-found-in-their-cluster",
        sa.select(_clusters.c.name.label("cluster"), _nodes.c.name.label("node"))
        .select_from(_cluster_of_node)
        .outerjoin(
            tables.provider_aggregates,
            sa.and_(
                tables.provider_aggregates.c.resource_provider_id == _nodes.c.resource_provider_id,
                tables.provider_aggregates.c.aggregate_id == _clusters.c.aggregate_id,
            ),
        )
        .where(tables.provider_aggregates.c.aggregate_id.is_(None))
        .order_by(_nodes.c.id),
        "node {node} of cluster {cluster}: its provider is not in the aggregate of the cluster",
    ),
    Invariant(
        "pods-are-on-nodes-of-their-cluster",
        sa.select(_pods.c.namespace, _pods.c.name, _nodes.c.name.label("node"))
        .join(_nodes, _nodes.c.id == _pods.c.node_id)
        .where(_nodes.c.cluster_id != _pods.c.cluster_id)
        .order_by(_pods.c.id),
        "pod {namespace}/{name}: its node {node} is of another cluster",
    ),
    Invariant(
        "owners-of-cpus-are-of-their-cluster",
        sa.select(_nodes.c.name.label("node"), _cpus.c.cpu, _consumers.c.uuid)
        .select_from(_cpus)
        .join(_nodes, _nodes.c.id == _cpus.c.node_id)
        .join(_consumers, _consumers.c.uuid == _cpus.c.consumer_id)
        .where(_consumers.c.cluster_id.is_distinct_from(_nodes.c.cluster_id))
        .order_by(_nodes.c.id, _cpus.c.cpu),
        "node {node}: its CPU {cpu} belongs to consumer {uuid}, which is not of that cluster",
    ),
    Invariant(
        "threads-that-pods-hold-are-theirs",
        sa.select(_threads.c.uuid, _threads.c.node, _threads.c.amount, _count.label("count"))
        .outerjoin(
            _owned, sa.and_(_owned.c.node_id == _threads.c.node_id, _owned.c.consumer_id == _threads.c.uuid)
        )
        .where(_threads.c.least > _count)
        .order_by(_threads.c.node_id, _threads.c.uuid),
        "consumer {uuid}: it holds {amount} threads of cores of node {node} and owns {count} CPUs there",
    ),
)
