"""Pods and reservations of clusters: placed here or reported to run somewhere, shown, and released."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

from placement.common.manifest import ManifestError
from placement.common.pod_identity import canonical_uid
from placement.engine.domain.errors import BadRequest, Conflict, NotFound, RequestPlace
from placement.engine.domain.explanation import Explanation
from placement.engine.numa.host import Refusal
from placement.pods.decide.explanation import explain_pod
from placement.pods.decide.gangs import GangWaits, overdue
from placement.pods.decide.ranking import Ranking, priorities
from placement.pods.decide.reading import PodDocument, reading_of
from placement.pods.decide.rules.rule import PodShape
from placement.pods.manifests.undecided import Undecided, refuse_undecided
from placement.pods.services.place_choice import columns_without, nodes_available
from placement.pods.services.placing import placed_on_each, pod_answer
from placement.pods.services.scheduler import PlacementResult, PodScheduler
from placement.pods.state.model import PodSpec, RecordedPod
from placement.pods.state.node_info import NodeInfo
from placement.pods.state.snapshot import NodeColumns
from placement.pods.store import statements
from placement.pods.store.answers import PodAnswer, PodPlacement
from placement.pods.store.cache import ClusterSnapshot
from placement.pods.store.loader import facts_of
from placement.pods.store.rows import answer_of
from placement.pods.store.statements import PodFilter, StoredPod
from placement.pods.store.writer import PodKey, PodMoves
from placement.providers.statements.clusters import found, unknown_node, unknown_pod
from placement.storage.database import retry_until_deadline


class Precondition(NamedTuple):
    """A condition for the release of a pod: it has this uid, and its row was last written at `changed_at`."""

    uid: str | None = None
    changed_at: str | None = None

    def check(self, pod: StoredPod) -> None:
        """Raise NotFound if it is another pod, Conflict if it was written since."""
        if self.uid is not None and pod.uid != canonical_uid(self.uid):
            raise NotFound(f"Pod {pod.namespace}/{pod.name} is another one by now, with uid {pod.uid}")
        if self.changed_at is not None and pod.changed_at.isoformat() != self.changed_at:
            raise Conflict(f"Pod {pod.namespace}/{pod.name} was changed at {pod.changed_at.isoformat()}")


ANY_POD = Precondition()


class ClaimedElsewhere(Conflict):
    """An error: a pod that is to go to one node has its place on another one, which `claim` names."""

    code = "placement.pod.claimed_elsewhere"

    def __init__(self, message: str, claim_answer: PodAnswer) -> None:
        super().__init__(message)
        self.claim = claim_answer


@dataclass(frozen=True, slots=True)
class Preview:
    """A preview of where a pod would fit, best first, and why not elsewhere.

    `fitting` counts all nodes on which it fits; `placements` has the best of them. `shape` has the properties
    of the pod for filter and score, and `columns` are the nodes in question.
    """

    placements: Sequence[PodPlacement]
    fitting: int
    refusals: Mapping[str, Refusal]
    pod: PodSpec
    shape: PodShape
    columns: NodeColumns

    @property
    def explanation(self) -> Explanation:
        """Return how many nodes passed each stage of the filter, and the closest ones if none passed all."""
        return explain_pod(self.shape, self.columns, self.refusals)

    @property
    def warnings(self) -> Sequence[str]:
        """Return warnings about the manifest, and that the pod is not placed without its gang."""
        gang = self.pod.gang
        if gang is None:
            return self.pod.warnings
        words = f"The pod belongs to gang {gang.name}, which needs {gang.least} members with places"
        return (*self.pod.warnings, f"{words}; this is about the pod alone.")

    @property
    def undecided(self) -> Sequence[Undecided]:
        """Return what the pod asks for beside what is decided here."""
        return self.pod.undecided

    @property
    def message(self) -> str:
        """Return how many nodes are available, and why the others are not."""
        return nodes_available(self.refusals.values(), self.fitting)


def next_page(ids: Sequence[int], count: int) -> int | None:
    """Return the cursor of the page after the first `count` rows, by their ids; None if there are no more."""
    return ids[count - 1] if len(ids) > count else None


class Pods(PodScheduler):
    """The operations on pods: scheduling, reading, binding and releasing."""

    for_bound_callers = True

    # -- reading ------------------------------------------------------------------------------------

    def is_held(self, cluster: str, claim_answer: PodAnswer) -> bool:
        """Return whether a pod still has the claimed place, and its row was not written since.

        Raises Unavailable.
        """
        with self._database.read() as connection:
            place = statements.place_of(connection, cluster, claim_answer.namespace, claim_answer.name)
        if place is None:
            return False
        given = claim_answer.uid, claim_answer.node, claim_answer.changed_at
        return given == (place.uid, place.node, place.changed_at.isoformat())

    def get(self, cluster: str, namespace: str, name: str) -> PodAnswer:
        """Return one pod. Raises NotFound."""
        with self._database.read() as connection:
            stored = found(connection, cluster)
            pod = next(iter(statements.namesakes(connection, stored.id, namespace, name)), None)
        if pod is None:
            raise unknown_pod(cluster, namespace, name)
        nodes: Mapping[int, NodeInfo] = {}
        if pod.root_id is not None:
            # One node says which CPUs the pod runs on, so the others are not loaded.
            with self._database.snapshot() as connection, suppress(ManifestError):
                nodes = self._cluster_cache.loader.load(connection, facts_of(stored), [pod.root_id])
        return pod_answer(nodes, pod)

    def listed(
        self, cluster: str, pod_filter: PodFilter, after: int, count: int
    ) -> tuple[list[PodAnswer], int | None]:
        """Return the next pods of a cluster, as they were recorded one after another, and the next cursor.

        Raises NotFound.
        """
        with self._database.read() as connection:
            cluster_id = found(connection, cluster).id
            pods = statements.page(connection, cluster_id, pod_filter, after, count + 1)
        return [answer_of(pod) for pod in pods[:count]], next_page([pod.id for pod in pods], count)

    def heads(
        self, cluster: str, pod_filter: PodFilter, after: int, count: int
    ) -> tuple[list[PodAnswer], int | None]:
        """Return the next pods with class, phase and CPUs only, and the cursor of the following page."""
        with self._database.read() as connection:
            cluster_id = found(connection, cluster).id
            rows = statements.heads(connection, cluster_id, pod_filter, after, count + 1)
        return [answer for _, answer in rows[:count]], next_page([id_ for id_, _ in rows], count)

    def recorded_on(self, cluster: str, node: str) -> Sequence[RecordedPod]:
        """Return the pods on a node, none on one that is not known. Raises NotFound for the cluster."""
        found = self._cluster_cache.snapshot(cluster).by_name.get(node)
        return () if found is None else found.pods

    def preview(
        self,
        cluster: str,
        pod: Mapping[str, Any],
        node_names: Collection[str] | None = None,
        most: int | None = None,
        *,
        knows_nodes: bool = False,
        strict: bool = False,
    ) -> Preview:
        """Return where a pod would go: nothing is claimed.

        `node_names`: only these nodes are looked at, and unknown ones left out; `most` bounds the places.
        `strict`: a pod that asks for what is not decided here is refused. Raises NotFound for the cluster,
        and where it has none of the nodes if the caller `knows_nodes`; ManifestError.
        """
        if strict:
            refuse_undecided(pod)
        snapshot, document = self._cluster_cache.snapshot(cluster), PodDocument.unnamed(cluster, pod)
        if knows_nodes and node_names and not any(name in snapshot.by_name for name in node_names):
            raise unknown_node(cluster, min(node_names))
        pod_spec, ranking, columns = self._ranked(snapshot, document, node_names)
        refusals = ranking.refusals(columns)
        best = islice(ranking.best_first(columns), most)
        placements = placed_on_each(best, pod_spec, document)
        fitting = len(columns.nodes) - len(refusals)
        return Preview(placements, fitting, refusals, pod_spec, ranking.shape, columns)

    def fitting_once_open(
        self, cluster: str, pod: Mapping[str, Any], node_names: Collection[str]
    ) -> list[str]:
        """Return on which of these nodes a pod would fit if they were open; raises like `preview`."""
        snapshot, document = self._cluster_cache.snapshot(cluster), PodDocument.unnamed(cluster, pod)
        _, ranking, columns = self._ranked(snapshot, document, node_names)
        opened = columns.updated(
            replace(node, attributes=replace(node.attributes, closed=None)) for node in columns.nodes
        )
        refusals = ranking.refusals(opened)
        return sorted(node.name for node in columns.nodes if node.name not in refusals)

    def _ranked(
        self, snapshot: ClusterSnapshot, document: PodDocument, node_names: Collection[str] | None
    ) -> tuple[PodSpec, Ranking, NodeColumns]:
        """Return the requests of a pod, its ranking, and the nodes in question without the pod."""
        pod_spec = reading_of(document.manifest, snapshot.facts.settings)
        columns = self.nodes_without(snapshot, document)
        ranking = self._choice.ranking(pod_spec, document, snapshot, columns)
        return pod_spec, ranking, columns if node_names is None else columns.among(node_names)

    def nodes_without(self, snapshot: ClusterSnapshot, document: PodDocument) -> NodeColumns:
        """Return all nodes without the pod itself, and without what has expired or waits too long."""
        key = PodKey(document.namespace, document.name, document.uid)
        # Most previews are of pods on no node.
        is_there = self._cluster_cache.may_have(snapshot, (key[:2], document.uid))
        present = self.known_pods(snapshot, key) if is_there else ()
        return columns_without(snapshot, present, overdue(snapshot.waiting) if snapshot.waiting else ())

    def scores(
        self, cluster: str, pod: Mapping[str, Any], node_names: Collection[str] | None = None
    ) -> dict[str, int]:
        """Return the score of each node on which the pod fits, 0 to 100, by name. Raises like `preview`."""
        snapshot, document = self._cluster_cache.snapshot(cluster), PodDocument.unnamed(cluster, pod)
        _, ranking, columns = self._ranked(snapshot, document, node_names)
        return priorities(ranking, columns, snapshot.facts.settings.host_scoring.max_score)

    # -- writing ------------------------------------------------------------------------------------

    def bind(
        self, cluster: str, namespace: str, name: str, uid: str, node: str, pod: Mapping[str, Any]
    ) -> PlacementResult:
        """Place a pod on one node, or nowhere; the pod may be there already. Raises as `place` does.

        Raises ClaimedElsewhere if it is on another node, unless it waits for its gang there: then it moves.
        Raises GangWaits if it has its place, but too few others of its gang have theirs.
        The last caller owns the claim: no other answer has its `changed_at`.
        """
        document = PodDocument.named(cluster, namespace, name, pod)
        if uid and document.uid != canonical_uid(uid):
            raise BadRequest(
                f"{document.uid!r} is not {uid!r}, the pod to be bound",
                place=RequestPlace("Pod") / "metadata" / "uid",
            )
        result = self.place(cluster, document, node, may_wait=True)
        if result.waits:
            place = f"Pod {document.full_name} has its place on node {node}"
            raise GangWaits(f"{place} and waits for its gang: {result.waits} have theirs.")
        if result.answer.node != node:
            words = f"Pod {document.full_name} is on node {result.answer.node} already, not on {node}."
            raise Conflict(words) if result.answer.node is None else ClaimedElsewhere(words, result.answer)
        return result

    def delete(
        self,
        cluster: str,
        namespace: str,
        name: str,
        precondition: Precondition = ANY_POD,
    ) -> None:
        """Release the allocations of a pod, and delete it, if the precondition holds.

        Callers that name the time of a claim give that claim back: its pod never ran. So the reservation that
        it ended comes back if its room is still free.
        Raises NotFound, also for a pod of another uid; Conflict if it was changed since; Unavailable.
        """
        key = PodKey(namespace, name)

        def once() -> None:
            snapshot = self._cluster_cache.snapshot(cluster)
            leaving_pods = self.known_pods(snapshot, key)
            if not leaving_pods:
                raise unknown_pod(cluster, namespace, name)
            precondition.check(leaving_pods[0])
            attributes = self._writer.register_attributes(snapshot.facts)
            roots = {pod.root_id for pod in leaving_pods if pod.root_id is not None}
            with self._database.write() as transaction:
                locked = self._writer.lock(transaction, snapshot, roots)
                self._writer.check_namesakes(transaction, snapshot.facts, [key], leaving_pods)
                moves = PodMoves(
                    leaving_pods=leaving_pods, revives_reservations=precondition.changed_at is not None
                )
                self._writer.commit(transaction, locked, attributes, moves)

        retry_until_deadline(once)
