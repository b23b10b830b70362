"""Clusters: nodes, pods and the owners of CPUs agree with the providers that they have."""

from __future__ import annotations

import sqlalchemy as sa

from placement.server.invariants.invariant import Invariant

_NODES = """
    FROM clusters AS cluster JOIN nodes AS node ON node.cluster_id = cluster.id
"""
# The threads of cores that pods hold, for each pod and node, and at least how many CPUs that are: cores that
# are given in steps are held in such, also for fewer CPUs.
_THREADS = """
    SELECT threads.uuid, node, amount, COALESCE(count, 0) AS count
    FROM (
        SELECT nodes.id AS node_id, nodes.name AS node, consumers.uuid,
            CAST(SUM(allocations.used) AS BIGINT) AS amount, SUM(allocations.used - step_size + 1) AS least
        FROM allocations
        JOIN resource_classes AS class ON class.id = allocations.resource_class_id AND class.name = 'PCPU'
        JOIN consumers ON consumers.uuid = allocations.consumer_id
        JOIN resource_providers AS provider ON provider.id = allocations.resource_provider_id
        JOIN inventories ON inventories.resource_provider_id = allocations.resource_provider_id
            AND inventories.resource_class_id = allocations.resource_class_id
        JOIN nodes ON nodes.resource_provider_id = provider.root_provider_id
        WHERE consumers.cluster_id = nodes.cluster_id
        GROUP BY nodes.id, nodes.name, consumers.uuid
    ) AS threads
    LEFT JOIN (
        SELECT node_id, consumer_id, COUNT(*) AS count FROM logical_cpus GROUP BY node_id, consumer_id
    ) AS owned ON owned.node_id = threads.node_id AND owned.consumer_id = threads.uuid
    WHERE least > COALESCE(count, 0)
    ORDER BY threads.node_id, threads.uuid
"""

CLUSTERS = (
    Invariant(
        "nodes-are-roots-of-their-cluster",
        sa.text(f"""
            SELECT cluster.name AS cluster, node.name AS node, provider.uuid {_NODES}
            JOIN resource_providers AS provider ON provider.id = node.resource_provider_id
            WHERE parent_provider_id IS NOT NULL OR COALESCE(provider.cluster_id, 0) <> node.cluster_id
            ORDER BY node.id
        """),
        "node {node} of cluster {cluster}: its provider {uuid} is not a root of that cluster",
    ),
    Invariant(
        "clusters-have-nodes-for-their-providers",
        sa.text("""
            SELECT provider.uuid, provider.name FROM resource_providers AS provider
            LEFT JOIN nodes ON nodes.resource_provider_id = provider.id
            WHERE provider.cluster_id IS NOT NULL AND parent_provider_id IS NULL AND nodes.id IS NULL
            ORDER BY provider.id
        """),
        "provider {uuid} ({name}): a cluster made it for a node that is not there",
    ),
    Invariant(
        "trees-are-of-one-cluster",
        sa.text("""
            SELECT provider.uuid, provider.name, root.uuid AS root FROM resource_providers AS provider
            JOIN resource_providers AS root ON root.id = provider.root_provider_id
            WHERE provider.cluster_id <> COALESCE(root.cluster_id, 0)
            ORDER BY provider.id
        """),
        "provider {uuid} ({name}): it is of another cluster than its root {root}",
    ),
    Invariant(
        "nodes-are-found-in-their-cluster",
        sa.text(f"""
            SELECT cluster.name AS cluster, node.name AS node {_NODES}
            LEFT JOIN resource_provider_aggregates AS membership
                ON membership.resource_provider_id = node.resource_provider_id
                AND membership.aggregate_id = cluster.aggregate_id
            WHERE membership.aggregate_id IS NULL
            ORDER BY node.id
        """),
        "node {node} of cluster {cluster}: its provider is not in the aggregate of the cluster",
    ),
    Invariant(
        "pods-are-on-nodes-of-their-cluster",
        sa.text("""
            SELECT pods.namespace, pods.name, nodes.name AS node
            FROM pods JOIN nodes ON nodes.id = pods.node_id
            WHERE nodes.cluster_id <> pods.cluster_id
            ORDER BY pods.id
        """),
        "pod {namespace}/{name}: its node {node} is of another cluster",
    ),
    Invariant(
        "owners-of-cpus-are-of-their-cluster",
        sa.text("""
            SELECT nodes.name AS node, cpu, consumers.uuid FROM logical_cpus
            JOIN nodes ON nodes.id = node_id
            JOIN consumers ON consumers.uuid = consumer_id
            WHERE COALESCE(consumers.cluster_id, 0) <> nodes.cluster_id
            ORDER BY nodes.id, cpu
        """),
        "node {node}: its CPU {cpu} belongs to consumer {uuid}, which is not of that cluster",
    ),
    Invariant(
        "threads-that-pods-hold-are-theirs",
        sa.text(_THREADS),
        "consumer {uuid}: it holds {amount} threads of cores of node {node} and owns {count} CPUs there",
    ),
)
