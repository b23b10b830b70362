"""The check of everything that must hold in a database, and the repair of what can be repaired."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import sqlalchemy as sa

from placement.allocations.statements import consumers
from placement.common.manifest import ManifestError
from placement.engine.domain.audit import Action, TargetKind
from placement.pods import statements
from placement.pods.cache import NodeLoader, facts_of
from placement.pods.model import HostIdentity
from placement.pods.node_info import CpuOwner, NodeAllocations
from placement.pods.rows import is_unreadable, stored_accounts
from placement.pods.statements import PodFilter
from placement.providers.statements import clusters, providers
from placement.providers.statements.clusters import Cluster
from placement.server import online_migrations, schema
from placement.server.online_migrations import MigrationOwner
from placement.storage import tables
from placement.storage.database import Database, Executor, Transaction, run_in_transaction
from placement.storage.records import NodeRow

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
class Invariant:
    """A name, a query with one row for each violation, and a sentence that takes its columns by name.

    `mend` mends rows of the query, as the sentence `remedy` says: it locks what it changes as other writers
    do, and checks again what is wrong before it changes it.
    """

    name: str
    query: sa.Select[Any] | sa.TextClause
    sentence: str
    is_warning: bool = False
    remedy: str = ""
    mend: Callable[[Transaction, Sequence[Any]], None] | None = None


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
    tables.TextMember(tables.pods.c.status, "consumer") == tables.consumers.c.uuid
)

AMOUNTS = (
    Invariant(
        "used-is-what-is-allocated",
        sa.text(_OF_INVENTORIES.format("used <> amount")),
        "provider {uuid} ({name}): {used} {kind} are kept as used, its allocations are {amount}",
        remedy="keep {amount} as used",
        mend=_sum_up,
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
        remedy="delete its record",
        mend=_remove_idle,
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


def _references(owner: MigrationOwner) -> Iterator[Invariant]:
    """Yield an invariant for each column that refers to a row; holders without a record get this owner."""
    for table in tables.metadata.sorted_tables:
        keys = list(table.primary_key.columns)
        known_by = [table.c[_KNOWN_BY[table]].label("known_by")] if table in _KNOWN_BY else []
        which = ", ".join(f"{part.name} {{key_{part.name}}}" for part in keys)
        named = " ({known_by})" if known_by else ""
        for key in sorted(table.foreign_keys, key=lambda key: key.parent.name):
            column, referred = key.parent, key.column.table.alias("referred")
            target = referred.c[key.column.name]
            query = (
                sa.select(
                    *(part.label(f"key_{part.name}") for part in keys), *known_by, column.label("missing")
                )
                .select_from(table)
                .outerjoin(referred, target == column)
                .where(column.is_not(None), target.is_(None))
                .order_by(*keys)
            )
            remedy, mend = "", None
            if column is tables.allocations.c.consumer_id:
                remedy = f"give {{missing}} a record, of project {owner.project_id} and user {owner.user_id}"
                mend = partial(_record, owner)
            elif column in _BELONGINGS:
                remedy, mend = "delete the row", partial(_delete, table)
            yield Invariant(
                f"{table.name}-refer-to-{column.name}",
                query,
                f"{table.name}, {which}{named}: its {column.name} {{missing}} is not in "
                f"{key.column.table.name}",
                remedy=remedy,
                mend=mend,
            )


def _record(owner: MigrationOwner, transaction: Transaction, rows: Sequence[Any]) -> None:
    online_migrations.create_consumers(transaction, len(rows), owner)


def _delete(table: sa.Table, transaction: Transaction, rows: Sequence[Any]) -> None:
    # No other transaction writes these: what they refer to cannot be found, and ids are never given again.
    for row in rows:
        mine = [key == getattr(row, f"key_{key.name}") for key in table.primary_key.columns]
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
    transaction.execute(sa.select(ids).where(ids.in_(wrong)).order_by(ids).with_for_update())
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
        remedy="make {root} its root",
        mend=_set_roots,
    ),
)


def _invariants(owner: MigrationOwner) -> list[Invariant]:
    """Return all invariants that queries check, in the order in which they are mended.

    References come first: they decide what the others can see.
    """
    return [*_references(owner), *TREES, *CLUSTERS, *AMOUNTS]


def violations(connection: Executor, owner: MigrationOwner) -> Iterator[InvariantViolation]:
    """Yield what breaks the invariants in a connection that sees one state, in the order of each query."""
    for each in _invariants(owner):
        for row in connection.execute(each.query):
            sentence, remedy = (text.format_map(row._asdict()) for text in (each.sentence, each.remedy))
            yield InvariantViolation(each.name, each.is_warning, sentence, remedy)


# Whether what is stored of a node's pods is what follows from them.


_AT_ONCE = 500
_NAME = "pods-hold-what-follows-from-them"


def pod_violations(connection: Executor) -> Iterator[InvariantViolation]:
    """Yield every disagreement of every node, in a connection that sees one state."""
    for cluster in clusters.listed(connection):
        loader = NodeLoader()
        rows = statements.nodes(connection, cluster.id)
        yield from _unreadable_rows(connection, cluster)
        for start in range(0, len(rows), _AT_ONCE):
            yield from _of_nodes(connection, loader, cluster, rows[start : start + _AT_ONCE])


def _unreadable_rows(connection: Executor, cluster: Cluster) -> Iterator[InvariantViolation]:
    """Yield the pods and reservations of which the row cannot be read; they can be deleted over the API."""
    for reservations in (False, True):
        after = 0
        while rows := statements.page(
            connection, cluster.id, PodFilter(), after, _AT_ONCE, reservations=reservations
        ):
            after = rows[-1].id
            for row in filter(is_unreadable, rows):
                what = f"reservation {row.name}" if reservations else f"pod {row.namespace}/{row.name}"
                again = "and make it again" if reservations else "or send it again"
                sentence = f"{what} of cluster {cluster.name}: its row cannot be read; delete it, {again}"
                yield InvariantViolation("rows-of-pods-can-be-read", False, sentence)


def _of_nodes(
    connection: Executor, loader: NodeLoader, cluster: Cluster, rows: Sequence[NodeRow]
) -> Iterator[InvariantViolation]:
    try:
        states = loader.load(connection, facts_of(cluster), [row.root_id for row in rows], strict=True)
    except ManifestError as error:
        if len(rows) > 1:
            # One of them is the cause; the others are read all the same.
            for row in rows:
                yield from _of_nodes(connection, loader, cluster, [row])
            return
        sentence = f"node {rows[0].name} of cluster {cluster.name} cannot be read: {error}"
        yield InvariantViolation(_NAME, False, sentence)
        return
    for state in states.values():
        for sentence in disagreements(
            state.identity, stored_accounts(connection, [state])[state.root_id], state.accounts
        ):
            yield InvariantViolation(_NAME, False, f"node {state.name} of cluster {cluster.name}: {sentence}")


def disagreements(identity: HostIdentity, stored: NodeAllocations, due: NodeAllocations) -> Iterator[str]:
    """Yield a sentence for each CPU with another owner than is due, and each amount beyond what is due.

    Less than is due may be held: pods get what others gave back with the next change of the node.
    """
    for cpu in sorted(stored.cpus.keys() | due.cpus.keys()):
        owner, rightful = stored.cpus.get(cpu), due.cpus.get(cpu)
        if owner != rightful:
            yield f"CPU {cpu} is {_belonging(owner)}; by its pods it is {_belonging(rightful)}"
    for consumer, held in sorted(stored.shares.items()):
        allowed = due.shares.get(consumer, {})
        for place, amount in sorted(held.items()):
            if amount > allowed.get(place, 0):
                yield (
                    f"consumer {consumer} holds {amount} {place.resource_class} of "
                    f"{identity.name(place.path)}; by the pods it is due {allowed.get(place, 0)}"
                )


def _belonging(owner: CpuOwner | None) -> str:
    if owner is None:
        return "free"
    return f"consumer {owner.consumer}'s" + (f" ({owner.level})" if owner.level else "")


# Everything together.


class Findings(NamedTuple):
    """The violations, and whether the pods of nodes were compared, for which the rest must be well."""

    violations: list[InvariantViolation]
    are_pods_compared: bool

    @property
    def errors(self) -> list[InvariantViolation]:
        """Return the violations that cannot come about in ordinary use."""
        return [one for one in self.violations if not one.is_warning]


def check(connection: str, owner: MigrationOwner) -> Findings:
    """Return everything that does not hold in the database at `connection` at one moment; it may be in use.

    A repair would give consumers without a record to `owner`. Raises SchemaOutdated, Unavailable.
    """
    with schema.opened(connection) as database:
        schema.require(database)
        return check_database(database, owner)


def check_database(database: Database, owner: MigrationOwner) -> Findings:
    """Check a database that is known to have the current schema, as `check` does."""
    with database.snapshot() as connection:
        database.backend.take_time(connection)
        found = list(violations(connection, owner))
        is_well = all(one.is_warning for one in found)
        if is_well:
            found += pod_violations(connection)
    return Findings(found, is_well)


def repair(connection: str, owner: MigrationOwner) -> None:
    """Repair what can be, in one transaction, while others write. Raises SchemaOutdated, Unavailable."""

    def work(transaction: Transaction) -> None:
        database.backend.take_time(transaction.connection)
        # No other transaction moves trees meanwhile.
        providers.lock_trees(transaction, shared=False)
        mended = {}
        for each in _invariants(owner):
            rows = transaction.execute(each.query).all() if each.mend is not None else ()
            for start in range(0, len(rows), _MENDED_AT_ONCE):
                assert each.mend is not None
                each.mend(transaction, rows[start : start + _MENDED_AT_ONCE])
            if rows:
                mended[each.name] = len(rows)
        if mended:
            transaction.record(Action.UPDATE, TargetKind.DATABASE, "db check --repair", after=mended)

    with schema.opened(connection) as database:
        schema.require(database)
        run_in_transaction(database, work)
