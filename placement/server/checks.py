"""The invariants of a database: amounts, clusters, references between rows, and provider trees."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

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
    query: sa.Select[Any] | sa.TextClause
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


# Amounts: what is used is what is allocated, of inventories that exist and have the capacity.
#
# A sum of big integers is a decimal on PostgreSQL, hence the casts. Ids are compared through COALESCE: they
# are positive, and SQLite knows IS DISTINCT FROM only from 3.39 on.


_OF_INVENTORIES = """
    SELECT provider.id, provider.uuid, provider.name, class.name AS kind, used, total, amount, capacity
    FROM (
        SELECT inventories.resource_provider_id, inventories.resource_class_id, inventories.used, total,
            CAST(COALESCE(SUM(allocations.used), 0) AS BIGINT) AS amount,
            (total - reserved) * allocation_ratio AS exactly,
            CAST(FLOOR((total - reserved) * allocation_ratio) AS BIGINT) AS capacity
        FROM inventories LEFT JOIN allocations USING (resource_provider_id, resource_class_id)
        GROUP BY inventories.id
    ) AS inventory
    JOIN resource_providers AS provider ON provider.id = resource_provider_id
    JOIN resource_classes AS class ON class.id = resource_class_id
    WHERE {} ORDER BY provider.id, class.id
"""
_OF_ALLOCATIONS = """
    SELECT consumer_id, allocations.used, provider.uuid, provider.name, class.name AS kind
    FROM allocations
    JOIN resource_providers AS provider ON provider.id = allocations.resource_provider_id
    JOIN resource_classes AS class ON class.id = allocations.resource_class_id
    LEFT JOIN inventories ON inventories.resource_provider_id = allocations.resource_provider_id
        AND inventories.resource_class_id = allocations.resource_class_id
    WHERE {} ORDER BY consumer_id, allocations.id
"""
# The threads of a core of an imported node: their number is never lowered below what is held.
_OVER_CORES = "(provider.cluster_id IS NOT NULL AND class.name = 'PCPU' AND amount > total)"


def _sum_up(transaction: Transaction, rows: Sequence[Any]) -> None:
    """Set used amounts to the sums of allocations, with the providers locked as for a claim."""
    ids = sorted({row.id for row in rows})
    providers.lock_and_stamp(transaction, (), ids)
    held, inventories = tables.allocations, tables.inventories
    total = (
        sa.select(sa.func.coalesce(sa.func.sum(held.c.used), 0))
        .where(held.c.resource_provider_id == inventories.c.resource_provider_id)
        .where(held.c.resource_class_id == inventories.c.resource_class_id)
        .scalar_subquery()
    )
    chosen = inventories.c.resource_provider_id.in_(ids)
    transaction.execute(sa.update(inventories).where(chosen).values(used=total))


def _remove_idle(transaction: Transaction, rows: Sequence[Any]) -> None:
    consumers.delete_idle(transaction, consumers.lock(transaction, [row.uuid for row in rows]))


_pod_of = sa.select(tables.pods.c.id).where(
    tables.pods.c.status["consumer"].as_string() == tables.consumers.c.uuid
)

AMOUNTS = (
    Invariant(
        "used-is-what-is-allocated",
        sa.text(_OF_INVENTORIES.format("used <> amount")),
        "provider {uuid} ({name}): {used} {kind} are kept as used, its allocations are {amount}",
        repair=Repair("keep {amount} as used", _sum_up),
    ),
    Invariant(
        "cores-are-held-once",
        sa.text(_OF_INVENTORIES.format(_OVER_CORES)),
        "provider {uuid} ({name}): {amount} of its {total} CPUs are held, so one has two owners",
    ),
    Invariant(
        "capacity-suffices",
        sa.text(_OF_INVENTORIES.format(f"amount > exactly AND NOT {_OVER_CORES}")),
        "provider {uuid} ({name}): {amount} {kind} are allocated, its capacity is {capacity}; "
        "so it is after an inventory was lowered",
        is_warning=True,
    ),
    Invariant(
        "allocations-have-an-inventory",
        sa.text(_OF_ALLOCATIONS.format("inventories.id IS NULL")),
        "consumer {consumer_id}: it holds {used} {kind} of provider {uuid} ({name}), which offers none",
    ),
    Invariant(
        "allocations-are-positive",
        sa.text(_OF_ALLOCATIONS.format("allocations.used < 1")),
        "consumer {consumer_id}: it holds {used} {kind} of provider {uuid} ({name})",
    ),
    Invariant(
        "consumers-hold-something",
        sa.select(tables.consumers.c.uuid)
        .where(
            ~sa.exists().where(tables.allocations.c.consumer_id == tables.consumers.c.uuid),
            ~sa.exists().where(tables.logical_cpus.c.consumer_id == tables.consumers.c.uuid),
            sa.or_(tables.consumers.c.cluster_id.is_(None), ~_pod_of.exists()),
        )
        .order_by(tables.consumers.c.uuid),
        "consumer {uuid}: it holds nothing, and is no pod",
        repair=Repair("delete its record", _remove_idle),
    ),
)


# Clusters: nodes, pods and the owners of CPUs agree with the providers they are of.


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
        "node {node} of cluster {cluster}: its provider {uuid} is no root of that cluster",
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


# From the roots down, so that it ends whatever loops there are.
_REACHED = """
    WITH RECURSIVE reached(id, root_id) AS (
        SELECT id, id FROM resource_providers WHERE parent_provider_id IS NULL
        UNION ALL
        SELECT child.id, reached.root_id
        FROM resource_providers AS child JOIN reached ON child.parent_provider_id = reached.id
    )
"""
_WRONG_ROOTS = sa.text(f"""
    {_REACHED} SELECT provider.id, provider.uuid, provider.name, root.uuid AS root, root_id
    FROM resource_providers AS provider
    JOIN reached ON reached.id = provider.id
    JOIN resource_providers AS root ON root.id = root_id
    WHERE COALESCE(provider.root_provider_id, 0) <> root_id
    ORDER BY provider.id
""")


def _set_roots(transaction: Transaction, rows: Sequence[Any]) -> None:
    """Set the roots as they are once the rows are locked: a move may have been committed before that."""
    wrong, ids = [row.id for row in rows], tables.providers.c.id
    transaction.execute(transaction.locked(sa.select(ids).where(ids.in_(wrong)).order_by(ids)))
    roots = {row.id: row.root_id for row in transaction.execute(_WRONG_ROOTS) if row.id in wrong}
    if roots:
        root = sa.case(roots, value=ids)
        transaction.execute(sa.update(tables.providers).where(ids.in_(roots)).values(root_provider_id=root))
        providers.touch(transaction, list(roots))


TREES = (
    Invariant(
        "trees-have-a-root",
        sa.text(f"""
            {_REACHED} SELECT provider.uuid, provider.name FROM resource_providers AS provider
            LEFT JOIN reached ON reached.id = provider.id
            WHERE reached.id IS NULL
            ORDER BY provider.id
        """),
        "provider {uuid} ({name}): its parents form a loop, or end at one that is not there",
    ),
    Invariant(
        "roots-are-right",
        _WRONG_ROOTS,
        "provider {uuid} ({name}): its root is {root}, and its row says otherwise",
        repair=Repair("make {root} its root", _set_roots),
    ),
)


# All invariants that queries can check, in the order in which they are mended.


def invariants(project: str, user: str) -> list[Invariant]:
    """Return all invariants, references first: they decide what the others can see."""
    return [*references(project, user), *TREES, *CLUSTERS, *AMOUNTS]


def violations(connection: Executor, project: str, user: str) -> Iterator[InvariantViolation]:
    """Yield every violation in a connection that sees one state; holders without a record get this owner."""
    for invariant in invariants(project, user):
        yield from invariant.violations(connection)


def mend(transaction: Transaction, project: str, user: str) -> dict[str, int]:
    """Mend what can be mended, while no other transaction moves trees; return how many rows by invariant."""
    providers.lock_trees(transaction, shared=False)
    mended = {each.name: each.mend(transaction) for each in invariants(project, user)}
    return {name: count for name, count in mended.items() if count}
