"""The check whether what is stored of the pods of nodes is what follows from them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from placement.common.manifest import ManifestError
from placement.pods.state.model import HostIdentity
from placement.pods.state.node_info import CpuOwner, NodeAllocations
from placement.pods.store import statements
from placement.pods.store.accounts import stored_accounts
from placement.pods.store.loader import NodeLoader, facts_of
from placement.pods.store.rows import is_unreadable
from placement.pods.store.statements import PodFilter
from placement.providers.statements import clusters
from placement.providers.statements.clusters import Cluster
from placement.server.invariants.invariant import InvariantViolation
from placement.storage.database import Executor
from placement.storage.node_parts import NodeRow

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
        nodes = loader.load(connection, facts_of(cluster), [row.root_id for row in rows], strict=True)
    except ManifestError as error:
        if len(rows) > 1:
            # One of them is the cause; the others are read all the same.
            for row in rows:
                yield from _of_nodes(connection, loader, cluster, [row])
            return
        sentence = f"node {rows[0].name} of cluster {cluster.name} cannot be read: {error}"
        yield InvariantViolation(_NAME, False, sentence)
        return
    for node in nodes.values():
        stored = stored_accounts(connection, [node])[node.root_id]
        for sentence in disagreements(node.identity, stored, node.accounts):
            yield InvariantViolation(_NAME, False, f"node {node.name} of cluster {cluster.name}: {sentence}")


def disagreements(
    identity: HostIdentity, stored_allocations: NodeAllocations, due_allocations: NodeAllocations
) -> Iterator[str]:
    """Yield a sentence for each CPU with another owner than is due, and each amount beyond what is due.

    Less than is due may be held: pods get what others gave back with the next change of the node.
    """
    for cpu in sorted(stored_allocations.cpus.keys() | due_allocations.cpus.keys()):
        owner, rightful = stored_allocations.cpus.get(cpu), due_allocations.cpus.get(cpu)
        if owner != rightful:
            yield f"CPU {cpu} is {_belonging(owner)}; by its pods it is {_belonging(rightful)}"
    for consumer, held in sorted(stored_allocations.shares.items()):
        allowed = due_allocations.shares.get(consumer, {})
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
