"""Pods of clusters: placed here or reported to run somewhere, shown, and released."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from typing import Any

from placement.allocations.claims import attempted
from placement.common.gang import Gang
from placement.common.manifest import ManifestError
from placement.common.pod_identity import canonical_uid
from placement.engine.domain.errors import BadRequest, Conflict
from placement.engine.numa.demand import Refusal
from placement.pods.cache import ClusterCache
from placement.pods.documents import PodDocument
from placement.pods.gangs import GangWaits
from placement.pods.many_pods import ManyPods, PodOutcome
from placement.pods.model import RecordedPod
from placement.pods.node_info import NodeInfo
from placement.pods.node_loading import facts_of
from placement.pods.placing import PodPage, Preview, next_page, placed, told
from placement.pods.ranking import priorities
from placement.pods.reservation_ends import ReservationEnds
from placement.pods.rows import PodAnswer, answer_of
from placement.pods.running_pods import record
from placement.pods.scheduler import PlacementResult, PodScheduler, Refusing
from placement.pods.statements import pods
from placement.pods.statements.pods import PodFilter, PodHead, StoredPod
from placement.pods.writer import PodKey, PodWriter, Precondition
from placement.providers.statements.clusters import Cluster, found, unknown_pod
from placement.storage.database import Database, retry_until_deadline

ANY_POD = Precondition()


class ClaimedElsewhere(Conflict):
    """An error: a pod that is to go to one node has its place on another one, which `claim` names."""

    def __init__(self, message: str, claim: PodAnswer) -> None:
        super().__init__(message)
        self.claim = claim


class Pods:
    """The operations on pods."""

    def __init__(
        self, database: Database, cluster_cache: ClusterCache, writer: PodWriter, ends: ReservationEnds
    ) -> None:
        self._database = database
        self._cluster_cache = cluster_cache
        self._writer = writer
        self._ends = ends
        self._scheduler = PodScheduler(database, cluster_cache, writer)
        self._many = ManyPods(database, cluster_cache, writer, ends, self._scheduler, self.place)

    # -- reading ------------------------------------------------------------------------------------

    def is_held(self, cluster: str, claim: PodAnswer) -> bool:
        """Return whether a pod still has the claimed place, and its row was not written since.

        Raises Unavailable.
        """
        with self._database.read() as connection:
            place = pods.place_of(connection, cluster, claim.namespace, claim.name)
        if place is None:
            return False
        given = claim.uid, claim.node, claim.changed_at
        return given == (place.uid, place.node, place.changed_at.isoformat())

    def _stored(self, cluster: str, namespace: str, name: str) -> tuple[Cluster, StoredPod]:
        with self._database.read() as connection:
            stored = found(connection, cluster)
            pod = next(iter(pods.namesakes(connection, stored.id, namespace, name)), None)
        if pod is None:
            raise unknown_pod(cluster, namespace, name)
        return stored, pod

    def get(self, cluster: str, namespace: str, name: str) -> PodAnswer:
        """Return one pod. Raises NotFound."""
        stored, pod = self._stored(cluster, namespace, name)
        nodes: Mapping[int, NodeInfo] = {}
        if pod.root_id is not None:
            # One node says which CPUs the pod runs on, so the others are not loaded.
            with self._database.snapshot() as connection, suppress(ManifestError):
                nodes = self._cluster_cache.loader.load(connection, facts_of(stored), [pod.root_id])
        return told(nodes, pod)

    def listed(self, cluster: str, wanted: PodFilter, after: int, count: int) -> PodPage:
        """Return the next pods of a cluster, in the order in which they were recorded. Raises NotFound."""
        with self._database.read() as connection:
            rows = pods.page(connection, found(connection, cluster).id, wanted, after, count + 1)
        return PodPage([answer_of(row) for row in rows[:count]], next_page(rows, count))

    def heads(
        self, cluster: str, wanted: PodFilter, after: int, count: int
    ) -> tuple[list[PodHead], int | None]:
        """Return the next pods, of any origin, as a list shows them, and the cursor of the following page."""
        with self._database.read() as connection:
            rows = pods.heads(connection, found(connection, cluster).id, wanted, after, count + 1)
        return rows[:count], next_page(rows, count)

    def recorded_on(self, cluster: str, node: str) -> Sequence[RecordedPod]:
        """Return the pods on a node, none on one that is not known. Raises NotFound for the cluster."""
        found = self._cluster_cache.view(cluster).by_name.get(node)
        return () if found is None else found.pods

    def preview(
        self,
        cluster: str,
        pod: Mapping[str, Any],
        node_names: Collection[str] | None = None,
        most: int | None = None,
    ) -> Preview:
        """Return where a pod would go: nothing is claimed.

        `node_names`: only these nodes are looked at, and unknown ones left out; `most` bounds the places.
        Raises NotFound for the cluster, ManifestError.
        """
        view, document = self._cluster_cache.view(cluster), PodDocument.unnamed(cluster, pod)
        incoming, ranking, columns = self._scheduler.looked_at(view, document, node_names)
        refusals = ranking.refusals(columns)
        best = islice(ranking.best_first(columns), most)
        places = [placed(ranked, incoming, document) for ranked in best]
        fitting = len(columns.nodes) - len(refusals)
        return Preview(places, fitting, refusals, incoming.warnings, ranking.shape, columns)

    def scores(
        self, cluster: str, pod: Mapping[str, Any], node_names: Collection[str] | None = None
    ) -> dict[str, int]:
        """Return the score of each node on which the pod fits, 0 to 100, by name. Raises like `preview`."""
        view, document = self._cluster_cache.view(cluster), PodDocument.unnamed(cluster, pod)
        _, ranking, columns = self._scheduler.looked_at(view, document, node_names)
        return priorities(ranking, columns, view.facts.settings.host_scoring.max_score)

    def refused_of_gang(
        self, cluster: str, gang: Gang, members: Sequence[PodDocument]
    ) -> dict[str, Mapping[str, Refusal]]:
        """Return the members, by uid, for which a gang that cannot be whole has no room, and why by node.

        Empty if there is room, or if too few members are given to tell. Nothing is claimed; pods that have
        waited too long are released. Raises NotFound for the cluster, Unavailable.
        """
        return self._many.refused_of_gang(cluster, gang, members)

    # -- writing ------------------------------------------------------------------------------------

    def put(self, cluster: str, namespace: str, name: str, pod: Mapping[str, Any]) -> tuple[bool, PodAnswer]:
        """Place a pod, or record where it runs if it names a node; returns whether it is new, and the answer.

        A repeated request, with the uid and demands of before, returns what the pod has. Another pod of that
        name is replaced. Raises NotFound for the cluster, ManifestError with everything that is wrong,
        Unschedulable, Conflict, Unavailable.
        """
        taken = self.place(cluster, PodDocument.named(cluster, namespace, name, pod))
        return taken.is_new, taken.answer

    def put_all(self, cluster: str, manifests: Sequence[Mapping[str, Any]]) -> list[PodOutcome]:
        """Place or record many pods as `put` does, by the names in their manifests; return each outcome.

        Raises NotFound for the cluster, Unavailable.
        """
        return self._many.put(cluster, manifests)

    def bind(
        self, cluster: str, namespace: str, name: str, uid: str, node: str, pod: Mapping[str, Any]
    ) -> PlacementResult:
        """Place a pod on one node, or nowhere; the pod may be there already. Raises as `put` does.

        Raises ClaimedElsewhere if it is on another node, unless it waits for its gang there: then it moves.
        Raises GangWaits if it has its place, but too few others of its gang have theirs.
        The last caller owns the claim: no other answer has its `changed_at`.
        """
        document = PodDocument.named(cluster, namespace, name, pod)
        if uid and document.uid != canonical_uid(uid):
            raise BadRequest(f"Pod.metadata.uid: {document.uid!r} is not {uid!r}, the pod to be bound")
        taken = self.place(cluster, document, node, may_wait=True)
        if taken.waits:
            place = f"Pod {document.full_name} has its place on node {node}"
            raise GangWaits(f"{place} and waits for its gang: {taken.waits} have theirs.")
        if taken.answer.node != node:
            words = f"Pod {document.full_name} is on node {taken.answer.node} already, not on {node}."
            raise Conflict(words) if taken.answer.node is None else ClaimedElsewhere(words, taken.answer)
        return taken

    def delete(
        self,
        cluster: str,
        namespace: str,
        name: str,
        precondition: Precondition = ANY_POD,
    ) -> None:
        """Release what a pod holds, and forget it, if the precondition holds.

        Callers that name the time of a claim give that claim back: its pod never ran. So the reservation that
        it ended comes back if its room is still free.
        Raises NotFound, also for a pod of another uid; Conflict if it was changed since; Unavailable.
        """
        sought = PodKey(namespace, name)

        def once() -> None:
            view = self._cluster_cache.view(cluster)
            leaving = self._scheduler.known(view, sought)
            if not leaving:
                raise unknown_pod(cluster, namespace, name)
            precondition.check(leaving[0])
            attributes = self._writer.attributes(view.facts, [namespace])
            roots = {pod.root_id for pod in leaving if pod.root_id is not None}
            with self._database.write() as transaction:
                locked = self._writer.lock(transaction, view, roots)
                self._writer.check_namesakes(transaction, view.facts, sought, leaving)
                self._writer.commit(
                    transaction,
                    view.facts,
                    locked,
                    attributes,
                    leaving=leaving,
                    unreserves=precondition.changed_at is not None,
                )

        retry_until_deadline(once)

    def release_gang(self, cluster: str, gang: Gang) -> None:
        """Release the pods that wait for the gang. Raises NotFound, Unavailable."""
        self._ends.release_gang(cluster, gang)

    def place(
        self, cluster: str, document: PodDocument, node: str | None = None, *, may_wait: bool = False
    ) -> PlacementResult:
        """Place a pod or a reservation, on one node if it is given, or record where it runs.

        `may_wait`: if too few of its gang have places, it takes its own and waits for the others.

        Raises as `put` does.
        """
        refusing = Refusing()

        def once() -> PlacementResult:
            view = self._ends.expire_and_view(cluster)
            return self._scheduler.place(view, document, node, refusing, may_wait=may_wait)

        if document.host or document.has_ended:
            return retry_until_deadline(lambda: self._record(cluster, document))
        kind = "pod" if document.keeps is None else "reservation"
        return attempted(kind, lambda: retry_until_deadline(once), lambda taken: not taken.is_placed)

    def _record(self, cluster: str, document: PodDocument) -> PlacementResult:
        view = self._ends.expire_and_view(cluster)
        attributes = self._writer.attributes(view.facts, [document.namespace])
        with self._database.write() as transaction:
            is_new, answer = record(transaction, self._writer, view, document, attributes)
        return PlacementResult(is_new, False, answer)
