"""The ends of reservations (used up by their one owner, expired, or deleted), and of waiting for a gang.

Nothing runs by the clock here. A request that places a pod or a reservation first releases what has expired;
requests that only read leave it out and write nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from placement.common.gang import Gang
from placement.engine.domain.request_scope import utcnow
from placement.pods.cache import ClusterCache, ClusterSnapshot
from placement.pods.gangs import overdue, standing_of
from placement.pods.host import Place
from placement.pods.model import RecordedPod
from placement.pods.node_info import NodeInfo
from placement.pods.statements import pods
from placement.pods.writer import Ending, PodWriter, Waiting
from placement.providers.statements.contents import Stored
from placement.providers.statements.providers import TreeMember
from placement.storage.database import Database, retry_until_deadline

FAILED, EXPIRED = "Failed", "expired"


def due_on(nodes: Mapping[int, NodeInfo]) -> list[Ending]:
    """Return the reservations on nodes, by host provider, that have expired by now."""
    return [
        Ending(each, root_id, FAILED, EXPIRED)
        for root_id, node in nodes.items()
        for each in node.reservations
        if has_expired(each)
    ]


def has_expired(reservation: RecordedPod) -> bool:
    """Return whether a reservation has expired by now."""
    return reservation.keeps is not None and reservation.keeps.is_over(utcnow())


def without_expired(node: NodeInfo) -> NodeInfo:
    """Return a node as a reader sees it: without its reservations that have expired by now.

    Readers write nothing; the next writer of the cluster releases what the reservations hold.
    """
    expired = frozenset(each.reservation.consumer for each in due_on({node.root_id: node}))
    return node.without(expired) if expired else node


def records_after(
    members: Sequence[TreeMember],
    records: Mapping[int, Mapping[int, Stored]],
    before: NodeInfo,
    after: NodeInfo,
) -> Mapping[int, Mapping[int, Stored]]:
    """Return the inventories of a tree, by provider id and class id, less what `after` does not hold."""
    if after is before:
        return records
    freed = Counter[Place]()
    for shares in before.accounts.shares.values():
        freed.update(shares)
    for shares in after.accounts.shares.values():
        freed.subtract(shares)
    paths = {member.id: before.identity.path(member.name) for member in members}
    return {
        id_: {
            class_id: record._replace(used=max(0, record.used - freed[Place(paths[id_], record.class_name)]))
            for class_id, record in of_provider.items()
        }
        for id_, of_provider in records.items()
    }


def give_up(database: Database, writer: PodWriter, view: ClusterSnapshot, waiting: Sequence[Waiting]) -> None:
    """Release the pods that still wait as they did, all of them at once. Raises NodeChanged, Unavailable.

    A pod that was bound again meanwhile, and waits anew with a later end, stays.
    """
    if not waiting:
        return
    attributes = writer.attributes(view.facts)
    with database.write() as transaction:
        locked = writer.lock(transaction, view, {each.node.root_id for each in waiting})
        now = {pod.uid: pod for state in locked.states.values() for pod in state.waiting}
        before = {each.pod.uid: each.pod.membership for each in waiting}
        still = {uid for uid, pod in now.items() if uid in before and pod.membership == before[uid]}
        rows = pods.any_namesakes(transaction, view.facts.id, (), still)
        writer.commit(transaction, locked, attributes, leaving=rows, unreserves=True)


class ReservationEnds:
    """A service that releases what expired reservations still hold, and pods that waited too long."""

    def __init__(self, database: Database, cluster_cache: ClusterCache, writer: PodWriter) -> None:
        self._database = database
        self._cluster_cache = cluster_cache
        self._writer = writer

    def expire_and_view(self, cluster: str) -> ClusterSnapshot:
        """Return the cluster as it is now: nothing in it has expired, no pod waits too long for its gang.

        Raises NotFound, Unavailable.
        """
        view = self._cluster_cache.view(cluster)
        if view.waiting and overdue(view.waiting):
            self._give_up(cluster, lambda now: overdue(now.waiting))
            view = self._cluster_cache.view(cluster)
        if view.reserved and due_on(view.reserved):
            retry_until_deadline(lambda: self._release(self._cluster_cache.view(cluster)))
            view = self._cluster_cache.view(cluster)
        return view

    def release_gang(self, cluster: str, gang: Gang) -> None:
        """Release the pods that wait for the gang. Raises NotFound, Unavailable."""
        self._give_up(cluster, lambda now: standing_of(now.columns, gang).waiting if now.waiting else ())

    def _give_up(self, cluster: str, waiting_in: Callable[[ClusterSnapshot], Sequence[Waiting]]) -> None:
        def once() -> None:
            view = self._cluster_cache.view(cluster)
            give_up(self._database, self._writer, view, waiting_in(view))

        retry_until_deadline(once)

    def _release(self, view: ClusterSnapshot) -> None:
        due = due_on(view.reserved)
        if due:
            attributes = self._writer.attributes(view.facts)
            with self._database.write() as transaction:
                roots = {each.root_id for each in due}
                locked = self._writer.lock_unchanged(transaction, view, roots)
                self._writer.commit(transaction, locked, attributes, ending=due)
