"""How reservations end, and waiting for a gang: used up by their one owner, expired, or deleted.

Nothing runs by the clock here: whoever places a pod, or looks at reservations or their nodes, releases first
what has expired.
"""

from __future__ import annotations

from collections.abc import Mapping

from placement.dialects.koordinator.pod.gang import Gang
from placement.dialects.koordinator.status.recorded_pod import RecordedPod
from placement.scheduling.columns.node_columns import NodeColumns
from placement.scheduling.node_info import NodeInfo
from placement.services.clusters.gangs import give_up, overdue, standing_of
from placement.services.clusters.node_loading import ClusterFacts
from placement.services.clusters.node_writing import NodeWriter
from placement.services.clusters.pod_documents import PodDocument
from placement.services.clusters.pod_writing import Ending, PodWriting, used_by
from placement.services.following.cluster_cache import ClusterCache, ClusterSnapshot
from placement.services.transactions import patiently
from placement.storage.database import Database, utcnow

SUCCEEDED, FAILED = "Succeeded", "Failed"
_EXPIRED = "expired"


def ending(used: RecordedPod | None, node: NodeInfo, document: PodDocument) -> Ending | None:
    """How the reservation ends that a pod uses; None if it uses none, or others may come."""
    if used is None or used.keeps is None or not used.keeps.allocate_once:
        return None
    return Ending(used, node.root_id, SUCCEEDED, used_by(document.full_name, document.uid))


def due_on(nodes: Mapping[int, NodeInfo]) -> list[Ending]:
    """The reservations on nodes, by host provider, that have expired by now."""
    now = utcnow()
    return [
        Ending(each, root_id, FAILED, _EXPIRED)
        for root_id, node in nodes.items()
        for each in node.reservations
        if each.keeps is not None and each.keeps.is_over(now)
    ]


class ReservationEnds:
    """Releases what expired reservations hold that nobody used, and places of pods that waited too long."""

    def __init__(self, database: Database, cluster_cache: ClusterCache, writer: NodeWriter) -> None:
        self._database = database
        self._cluster_cache = cluster_cache
        self._writer = writer
        self.writing = PodWriting(writer, cluster_cache.loader)

    def current(self, cluster: str) -> ClusterSnapshot:
        """The cluster as it is now: nothing in it has expired, nobody waits too long for others of a gang.

        Raises NotFound, Unavailable.
        """
        view = self._cluster_cache.view(cluster)
        if view.waiting and overdue(view.waiting):
            patiently(lambda: self._give_up(cluster))
            view = self._cluster_cache.view(cluster)
        if not view.reserved or not due_on(view.reserved):
            return view
        patiently(lambda: self._release(self._cluster_cache.view(cluster)))
        return self._cluster_cache.view(cluster)

    def _give_up(self, cluster: str) -> None:
        view = self._cluster_cache.view(cluster)
        give_up(self._database, self._writer, self.writing, view, overdue(view.waiting))

    def release_gang(self, cluster: str, gang: Gang) -> None:
        """Release whoever waits for the gang. Raises NotFound, Unavailable."""

        def once() -> None:
            view = self._cluster_cache.view(cluster)
            waiting = standing_of(view.columns, gang).waiting if view.waiting else ()
            give_up(self._database, self._writer, self.writing, view, waiting)

        patiently(once)

    def release_on(self, facts: ClusterFacts, node: NodeInfo) -> bool:
        """Release what has expired on one node; whether there was any. Raises NodeChanged, Unavailable."""
        reserved = {node.root_id: node}
        if not due_on(reserved):
            return False
        return self._release(ClusterSnapshot(facts, NodeColumns().updated([node]), reserved))

    def _release(self, view: ClusterSnapshot) -> bool:
        due = due_on(view.reserved)
        if due:
            attributes = self._writer.attributes(view.facts.name, view.facts.id)
            with self._database.write() as transaction:
                roots = {each.root_id for each in due}
                locked = self.writing.lock_unchanged(transaction, view, roots)
                self.writing.change(transaction, view.facts, locked, (), None, attributes, due)
        return bool(due)
