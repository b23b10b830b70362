"""Whether what is stored of a node's pods is what follows from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from placement.dialects.koordinator.node.tree import HostIdentity
from placement.kubernetes.errors import ManifestError
from placement.scheduling.node_allocations import CpuOwner, NodeAllocations
from placement.scheduling.node_offers import Place
from placement.services.clusters.node_loading import NodeLoader, facts_of, stored_accounts
from placement.storage.changes.node_parts import NodeRow
from placement.storage.checks.invariant import Violation
from placement.storage.database import Executor
from placement.storage.statements import clusters, node_rows
from placement.storage.statements.clusters import Cluster

_AT_ONCE = 500
_NAME = "pods-hold-what-follows-from-them"


def violations(connection: Executor) -> Iterator[Violation]:
    """Every disagreement of every node, in a connection that sees one state."""
    for cluster in clusters.listed(connection):
        loader = NodeLoader()
        rows = node_rows.nodes(connection, cluster.id)
        for start in range(0, len(rows), _AT_ONCE):
            yield from _of_nodes(connection, loader, cluster, rows[start : start + _AT_ONCE])


def _of_nodes(
    connection: Executor, loader: NodeLoader, cluster: Cluster, rows: Sequence[NodeRow]
) -> Iterator[Violation]:
    try:
        states = loader.load(connection, facts_of(cluster), [row.root_id for row in rows])
    except ManifestError as error:
        if len(rows) > 1:
            # One of them is the cause; the others are read all the same.
            for row in rows:
                yield from _of_nodes(connection, loader, cluster, [row])
            return
        sentence = f"node {rows[0].name} of cluster {cluster.name} cannot be read: {error}"
        yield Violation(_NAME, False, sentence)
        return
    for state in states.values():
        for sentence in disagreements(state.identity, stored_accounts(connection, state), state.accounts):
            yield Violation(_NAME, False, f"node {state.name} of cluster {cluster.name}: {sentence}")


def disagreements(identity: HostIdentity, stored: NodeAllocations, due: NodeAllocations) -> Iterator[str]:
    """A sentence for each CPU of another owner than is due, and each amount beyond what is due.

    Less than is due may be held: what others gave back the pods get with the next change of the node.
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
