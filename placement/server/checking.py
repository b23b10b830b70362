"""The check of everything that must hold in a database, and the repair of what can be repaired."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from placement.common.manifest import ManifestError
from placement.engine.domain.audit import Action, TargetKind
from placement.pods.accounts import CpuOwner, NodeAllocations
from placement.pods.host import Place
from placement.pods.model import HostIdentity
from placement.pods.node_loading import NodeLoader, facts_of, stored_accounts
from placement.pods.statements import nodes
from placement.providers.statements import clusters
from placement.providers.statements.clusters import Cluster
from placement.server import checks, schema
from placement.server.checks import InvariantViolation
from placement.server.online_migrations import MigrationOwner
from placement.storage.database import Database, Executor, Transaction, run_in_transaction
from placement.storage.records import NodeRow

# Whether what is stored of a node's pods is what follows from them.


_AT_ONCE = 500
_NAME = "pods-hold-what-follows-from-them"


def violations(connection: Executor) -> Iterator[InvariantViolation]:
    """Yield every disagreement of every node, in a connection that sees one state."""
    for cluster in clusters.listed(connection):
        loader = NodeLoader()
        rows = nodes.nodes(connection, cluster.id)
        for start in range(0, len(rows), _AT_ONCE):
            yield from _of_nodes(connection, loader, cluster, rows[start : start + _AT_ONCE])


def _of_nodes(
    connection: Executor, loader: NodeLoader, cluster: Cluster, rows: Sequence[NodeRow]
) -> Iterator[InvariantViolation]:
    try:
        states = loader.load(connection, facts_of(cluster), [row.root_id for row in rows])
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
        for sentence in disagreements(state.identity, stored_accounts(connection, state), state.accounts):
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
                yield _excess(identity, consumer, place, amount, allowed.get(place, 0))


def _belonging(owner: CpuOwner | None) -> str:
    if owner is None:
        return "nobody's"
    return f"consumer {owner.consumer}'s" + (f" ({owner.level})" if owner.level else "")


def _excess(identity: HostIdentity, consumer: str, place: Place, amount: int, allowed: int) -> str:
    return (
        f"consumer {consumer} holds {amount} {place.resource_class} of {identity.name(place.path)}; "
        f"by the pods it is due {allowed}"
    )


__all__ = ["Findings", "InvariantViolation", "check", "check_database", "repair"]


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
        found = list(checks.violations(connection, owner.project_id, owner.user_id))
        is_well = all(one.is_warning for one in found)
        if is_well:
            found += violations(connection)
    return Findings(found, is_well)


def repair(connection: str, owner: MigrationOwner) -> None:
    """Repair what can be, in one transaction, while others write. Raises SchemaOutdated, Unavailable."""

    def work(transaction: Transaction) -> None:
        database.backend.take_time(transaction.connection)
        mended = checks.mend(transaction, owner.project_id, owner.user_id)
        if mended:
            transaction.record(Action.UPDATE, TargetKind.DATABASE, "db check --repair", after=mended)

    with schema.opened(connection) as database:
        schema.require(database)
        run_in_transaction(database, work)
