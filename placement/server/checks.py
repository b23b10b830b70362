"""The invariants of a database: amounts, clusters, references between rows, and provider trees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import os_resource_classes
import sqlalchemy as sa

from placement.allocations.statements import consumers
from placement.providers.statements import providers
from placement.server import online_migrations
from placement.storage import tables
from placement.storage.database import Executor, Transaction

# An invariant: a query for the rows that break it, a sentence about each, perhaps a way to mend it.


_MENDED_AT_ONCE = 1000


class InvariantViolation(NamedTuple):
    """A row or group of rows that breaks an invariant: which one, a sentence on it, and what would mend it.

    A warning may come about in ordinary use. `remedy` is empty where an operator has to decide.
    """

    invariant: str
    is_warning: bool
    sentence: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Repair:
    """A function that mends the rows of an invariant's query, and a sentence on how it mends one of them.

    `mend` locks what it changes as other writers do, and checks again what is wrong before it changes it.
    """

    sentence: str
    mend: Callable[[Transaction, Sequence[Any]], None]


@dataclass(frozen=True, slots=True)
class Invariant:
    """A name, a query with one row for each violation, and a sentence that takes its columns by name."""

    name: str
    query: sa.Select[Any]
    sentence: str
    is_warning: bool = False
    repair: Repair | None = None

    def violations(self, connection: Executor) -> Iterator[InvariantViolation]:
        """Yield every violation, in the order of the query."""
        for row in connection.execute(self.query):
            given = row._asdict()
            remedy = self.repair.sentence.format_map(given) if self.repair else ""
            yield InvariantViolation(self.name, self.is_warning, self.sentence.format_map(given), remedy)

    def mend(self, transaction: Transaction) -> int:
        """Mend what can be mended, and return how many rows were looked at for that."""
        if self.repair is None:
            return 0
        rows = transaction.execute(self.query).all()
        for start in range(0, len(rows), _MENDED_AT_ONCE):
            self.repair.mend(transaction, rows[start : start + _MENDED_AT_ONCE])
        return len(rows)


# Amounts: what is used is what is allocated, of inventories that are there and have room for it.
_allocations, _inventories = tables.allocations, tables.inventories
_providers, _classes, _consumers = tables.providers, tables.resource_classes, tables.consumers
_held = (
    sa.select(
        _allocations.c.resource_provider_id,
        _allocations.c.resource_class_id,
        sa.func.sum(_allocations.c.used).label("amount"),
    )
    .group_by(_allocations.c.resource_provider_id, _allocations.c.resource_class_id)
    .subquery("held")
)
# A sum of big integers is a decimal on PostgreSQL.
_amount = sa.cast(sa.func.coalesce(_held.c.amount, 0), sa.BigInteger)
_capacity = (_inventories.c.total - _inventories.c.reserved) * _inventories.c.allocation_ratio
_of_inventories = (
    sa.select(
        _providers.c.id,
        _providers.c.uuid,
        _providers.c.name,
        _classes.c.name.label("kind"),
        _inventories.c.used,
        _inventories.c.total,
        _amount.label("amount"),
        sa.cast(sa.func.floor(_capacity), sa.BigInteger).label("capacity"),
    )
    .select_from(_inventories)
    .join(_providers, _providers.c.id == _inventories.c.resource_provider_id)
    .join(_classes, _classes.c.id == _inventories.c.resource_class_id)
    .outerjoin(
        _held,
        sa.and_(
            _held.c.resource_provider_id == _inventories.c.resource_provider_id,
            _held.c.resource_class_id == _inventories.c.resource_class_id,
        ),
    )
    .order_by(_providers.c.id, _classes.c.id)
)
_of_allocations = (
    sa.select(
        _allocations.c.consumer_id,
        _allocations.c.used,
        _providers.c.uuid,
        _providers.c.name,
        _classes.c.name.label("kind"),
    )
    .select_from(_allocations)
    .join(_providers, _providers.c.id == _allocations.c.resource_provider_id)
    .join(_classes, _classes.c.id == _allocations.c.resource_class_id)
    .order_by(_allocations.c.consumer_id, _allocations.c.id)
)
# The threads of a core of an imported node: their number is never lowered below what is held.
_is_core = sa.and_(_providers.c.cluster_id.is_not(None), _classes.c.name == os_resource_classes.PCPU)
_pod_of = sa.select(tables.pods.c.id).where(tables.pods.c.status["consumer"].as_string() == _consumers.c.uuid)


def _sum_up(transaction: Transaction, rows: Sequence[Any]) -> None:
    """Set used amounts to the sums of allocations, with the providers locked as for a claim."""
    ids = sorted({row.id for row in rows})
    providers.lock_and_stamp(transaction, (), ids)
    mine = sa.and_(
        _allocations.c.resource_provider_id == _inventories.c.resource_provider_id,
        _allocations.c.resource_class_id == _inventories.c.resource_class_id,
    )
    total = sa.select(sa.func.coalesce(sa.func.sum(_allocations.c.used), 0)).where(mine).scalar_subquery()
    chosen = _inventories.c.resource_provider_id.in_(ids)
    transaction.execute(sa.update(_inventories).where(chosen).values(used=total))


def _remove_idle(transaction: Transaction, rows: Sequence[Any]) -> None:
    consumers.delete_idle(transaction, consumers.lock(transaction, [row.uuid for row in rows]))


AMOUNTS = (
    Invariant(
        "used-is-what-is-allocated",
        _of_inventories.where(_inventories.c.used != _amount),
        "provider {uuid} ({name}): {used} {kind} are kept as used, its allocations are {amount}",
        repair=Repair("keep {amount} as used", _sum_up),
    ),
    Invariant(
        "cores-are-held-once",
        _of_inventories.where(_is_core, _amount > _inventories.c.total),
        "provider {uuid} ({name}): {amount} of its {total} CPUs are held, so one has two owners",
    ),
    Invariant(
        "capacity-suffices",
        _of_inventories.where(_amount > _capacity, ~sa.and_(_is_core, _amount > _inventories.c.total)),
        "provider {uuid} ({name}): {amount} {kind} are allocated, its capacity is {capacity}; "
        "so it is after an inventory was lowered",
        is_warning=True,
    ),
    Invariant(
        "allocations-have-an-inventory",
        _of_allocations.outerjoin(
            _inventories,
            sa.and_(
                _inventories.c.resource_provider_id == _allocations.c.resource_provider_id,
                _inventories.c.resource_class_id == _allocations.c.resource_class_id,
            ),
        ).where(_inventories.c.id.is_(None)),
        "consumer {consumer_id}: it holds {used} {kind} of provider {uuid} ({name}), which offers none",
    ),
    Invariant(
        "allocations-are-positive",
        _of_allocations.where(_allocations.c.used < 1),
        "consumer {consumer_id}: it holds {used} {kind} of provider {uuid} ({name})",
    ),
    Invariant(
        "consumers-hold-something",
        sa.select(_consumers.c.uuid)
        .where(
            ~sa.exists().where(_allocations.c.consumer_id == _consumers.c.uuid),
            ~sa.exists().where(tables.logical_cpus.c.consumer_id == _consumers.c.uuid),
            sa.or_(_consumers.c.cluster_id.is_(None), ~_pod_of.exists()),
        )
        .order_by(_consumers.c.uuid),
        "consumer {uuid}: it holds nothing, and is no pod",
        repair=Repair("delete its record", _remove_idle),
    ),
)


# Clusters: nodes, pods and the owners of CPUs agree with the providers they are of.


_nodes, _pods, _cpus, _clusters = tables.nodes, tables.pods, tables.logical_cpus, tables.clusters
_clusters_providers, _clusters_consumers, _clusters_allocations = (
    tables.providers,
    tables.consumers,
    tables.allocations,
)
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
        _clusters_consumers.c.uuid,
        sa.cast(sa.func.sum(_clusters_allocations.c.used), sa.BigInteger).label("amount"),
        sa.func.sum(_clusters_allocations.c.used - tables.inventories.c.step_size + 1).label("least"),
    )
    .select_from(_clusters_allocations)
    .join(tables.resource_classes, tables.resource_classes.c.id == _clusters_allocations.c.resource_class_id)
    .join(_clusters_consumers, _clusters_consumers.c.uuid == _clusters_allocations.c.consumer_id)
    .join(_clusters_providers, _clusters_providers.c.id == _clusters_allocations.c.resource_provider_id)
    .join(
        tables.inventories,
        sa.and_(
            tables.inventories.c.resource_provider_id == _clusters_allocations.c.resource_provider_id,
            tables.inventories.c.resource_class_id == _clusters_allocations.c.resource_class_id,
        ),
    )
    .join(_nodes, _nodes.c.resource_provider_id == _clusters_providers.c.root_provider_id)
    .where(
        tables.resource_classes.c.name == os_resource_classes.PCPU,
        _clusters_consumers.c.cluster_id == _nodes.c.cluster_id,
    )
    .group_by(_nodes.c.id, _nodes.c.name, _clusters_consumers.c.uuid)
    .subquery("threads")
)
_count = sa.func.coalesce(_owned.c.count, 0)

CLUSTERS = (
    Invariant(
        "nodes-are-roots-of-their-cluster",
        sa.select(_clusters.c.name.label("cluster"), _nodes.c.name.label("node"), _clusters_providers.c.uuid)
        .select_from(_cluster_of_node)
        .join(_clusters_providers, _clusters_providers.c.id == _nodes.c.resource_provider_id)
        .where(
            sa.or_(
                _clusters_providers.c.parent_provider_id.is_not(None),
                _clusters_providers.c.cluster_id.is_distinct_from(_nodes.c.cluster_id),
            )
        )
        .order_by(_nodes.c.id),
        "node {node} of cluster {cluster}: its provider {uuid} is no root of that cluster",
    ),
    Invariant(
        "clusters-have-nodes-for-their-providers",
        sa.select(_clusters_providers.c.uuid, _clusters_providers.c.name)
        .select_from(_clusters_providers)
        .outerjoin(_nodes, _nodes.c.resource_provider_id == _clusters_providers.c.id)
        .where(
            _clusters_providers.c.cluster_id.is_not(None),
            _clusters_providers.c.parent_provider_id.is_(None),
            _nodes.c.id.is_(None),
        )
        .order_by(_clusters_providers.c.id),
        "provider {uuid} ({name}): a cluster made it for a node that is not there",
    ),
    Invariant(
        "trees-are-of-one-cluster",
        sa.select(_clusters_providers.c.uuid, _clusters_providers.c.name, _root.c.uuid.label("root"))
        .join(_root, _root.c.id == _clusters_providers.c.root_provider_id)
        .where(
            _clusters_providers.c.cluster_id.is_not(None),
            _clusters_providers.c.cluster_id.is_distinct_from(_root.c.cluster_id),
        )
        .order_by(_clusters_providers.c.id),
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
        sa.select(_nodes.c.name.label("node"), _cpus.c.cpu, _clusters_consumers.c.uuid)
        .select_from(_cpus)
        .join(_nodes, _nodes.c.id == _cpus.c.node_id)
        .join(_clusters_consumers, _clusters_consumers.c.uuid == _cpus.c.consumer_id)
        .where(_clusters_consumers.c.cluster_id.is_distinct_from(_nodes.c.cluster_id))
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


# No row refers to a row that is not there.
#
# The keys of the tables refuse that, but not what a damaged disk, a partial restore or a session that
# switched them off leaves.


# Rows that only describe a missing row mean nothing. On all others an operator has to decide: where owners of
# CPUs are deleted, the CPUs may be given away twice.
_BELONGINGS = {
    *(
        key.parent
        for table in (tables.provider_traits, tables.provider_aggregates)
        for key in table.foreign_keys
    ),
    tables.logical_cpus.c.node_id,
}
# The column that people know a row by, beside its key.
_KNOWN_BY = {
    tables.providers: "uuid",
    tables.consumers: "uuid",
    tables.allocations: "consumer_id",
    tables.clusters: "name",
    tables.nodes: "name",
    tables.pods: "name",
}


def references(project: str, user: str) -> list[Invariant]:
    """Return an invariant for each column that refers to a row; holders without a record get this owner."""
    return [
        _of(table, key, project, user)
        for table in tables.metadata.sorted_tables
        for key in sorted(table.foreign_keys, key=lambda key: key.parent.name)
    ]


def _of(table: sa.Table, key: sa.ForeignKey, project: str, user: str) -> Invariant:
    column, referred = key.parent, key.column.table.alias("referred")
    target = referred.c[key.column.name]
    keys = list(table.primary_key.columns)
    known_by = [table.c[_KNOWN_BY[table]]] if table in _KNOWN_BY else []
    query = (
        sa.select(
            *(part.label(f"key_{part.name}") for part in keys), *_labelled(known_by), column.label("missing")
        )
        .select_from(table)
        .outerjoin(referred, target == column)
        .where(column.is_not(None), target.is_(None))
        .order_by(*keys)
    )
    which = ", ".join(f"{part.name} {{key_{part.name}}}" for part in keys)
    named = " ({known_by})" if known_by else ""
    return Invariant(
        f"{table.name}-refer-to-{column.name}",
        query,
        f"{table.name}, {which}{named}: its {column.name} {{missing}} is not in {key.column.table.name}",
        repair=_repair(table, column, project, user),
    )


def _labelled(columns: list[sa.Column[Any]]) -> Iterator[sa.ColumnElement[Any]]:
    return (column.label("known_by") for column in columns)


def _repair(table: sa.Table, column: sa.Column[Any], project: str, user: str) -> Repair | None:
    if column is tables.allocations.c.consumer_id:
        sentence = f"give {{missing}} a record, of project {project} and user {user}"
        return Repair(
            sentence.replace("{{missing}}", "{missing}"), partial(_record, project=project, user=user)
        )
    if column in _BELONGINGS:
        return Repair("delete the row", partial(_delete, table, list(table.primary_key.columns)))
    return None


def _record(transaction: Transaction, rows: Sequence[Any], project: str, user: str) -> None:
    online_migrations.create_consumers(transaction, len(rows), project, user)


def _delete(
    table: sa.Table, keys: list[sa.Column[Any]], transaction: Transaction, rows: Sequence[Any]
) -> None:
    # No other transaction writes these: what they refer to cannot be found, and ids are never given again.
    for row in rows:
        mine = [key == getattr(row, f"key_{key.name}") for key in keys]
        transaction.execute(sa.delete(table).where(*mine))


# Provider trees: every provider is below one root, and its row names it.


_trees_providers = tables.providers
_child = tables.providers.alias("child")
# From the roots down, so that it ends whatever loops there are.
_reached = (
    sa.select(_trees_providers.c.id, _trees_providers.c.id.label("root_id"))
    .where(_trees_providers.c.parent_provider_id.is_(None))
    .cte("reached", recursive=True)
)
_reached = _reached.union_all(
    sa.select(_child.c.id, _reached.c.root_id).join(_reached, _child.c.parent_provider_id == _reached.c.id)
)


def _set_roots(transaction: Transaction, rows: Sequence[Any]) -> None:
    """Set the roots that were found; no other transaction moves trees meanwhile."""
    ids = [row.id for row in rows]
    transaction.execute(
        transaction.locked(
            sa.select(_trees_providers.c.id).where(_trees_providers.c.id.in_(ids)).order_by("id")
        )
    )
    root = sa.select(_reached.c.root_id).where(_reached.c.id == _trees_providers.c.id).scalar_subquery()
    transaction.execute(
        sa.update(_trees_providers).where(_trees_providers.c.id.in_(ids)).values(root_provider_id=root)
    )
    providers.touch(transaction, ids)


TREES = (
    Invariant(
        "trees-have-a-root",
        sa.select(_trees_providers.c.uuid, _trees_providers.c.name)
        .outerjoin(_reached, _reached.c.id == _trees_providers.c.id)
        .where(_reached.c.id.is_(None))
        .order_by(_trees_providers.c.id),
        "provider {uuid} ({name}): its parents form a loop, or end at one that is not there",
    ),
    Invariant(
        "roots-are-right",
        sa.select(
            _trees_providers.c.id,
            _trees_providers.c.uuid,
            _trees_providers.c.name,
            _root.c.uuid.label("root"),
        )
        .join(_reached, _reached.c.id == _trees_providers.c.id)
        .join(_root, _root.c.id == _reached.c.root_id)
        .where(_trees_providers.c.root_provider_id.is_distinct_from(_reached.c.root_id))
        .order_by(_trees_providers.c.id),
        "provider {uuid} ({name}): its root is {root}, and its row says otherwise",
        repair=Repair("make {root} its root", _set_roots),
    ),
)


# All invariants that queries can tell, in the order in which they are mended.


def invariants(project: str, user: str) -> list[Invariant]:
    """Return all invariants, references first: they decide what the others can see."""
    return [
        *references(project, user),
        *TREES,
        *CLUSTERS,
        *AMOUNTS,
    ]


def violations(connection: Executor, project: str, user: str) -> Iterator[InvariantViolation]:
    """Yield every violation in a connection that sees one state; holders without a record get this owner."""
    for invariant in invariants(project, user):
        yield from invariant.violations(connection)


def mend(transaction: Transaction, project: str, user: str) -> dict[str, int]:
    """Mend what can be mended, while no other transaction moves trees; return how many rows by invariant."""
    providers.lock_trees(transaction, shared=False)
    mended = {each.name: each.mend(transaction) for each in invariants(project, user)}
    return {name: count for name, count in mended.items() if count}
