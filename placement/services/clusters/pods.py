"""Pods of clusters: placed here or reported to run somewhere, shown, and released.

Placing: rank the nodes on the snapshot of the cluster, give the pod its CPUs on the best one, and write that
down if the node is still the same; else look and decide again.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

from placement.dialects.koordinator.pod.pod_request import PodImport, import_pod
from placement.domain.errors import BadRequest, Conflict
from placement.domain.explanation import Kind, Obstacle
from placement.kubernetes.errors import ManifestError
from placement.kubernetes.pod_identity import canonical_uid
from placement.numa.refusal import Refusal
from placement.scheduling.columns.node_columns import NodeColumns
from placement.scheduling.explanation import explain_pod
from placement.scheduling.node_info import NodeInfo
from placement.scheduling.pipeline import PodShape, ShapeRankings
from placement.scheduling.reservation_use import IgnoringRanking, PodRanking, ReservationRanking
from placement.scoring.rule import BEST
from placement.services.clusters.cluster_lookup import found, unknown_pod
from placement.services.clusters.node_loading import facts_of
from placement.services.clusters.node_writing import (
    NodeChanged,
    NodeRefused,
    NodeWriter,
    PodAttributes,
    ProviderGone,
)
from placement.services.clusters.pod_answers import PodAnswer
from placement.services.clusters.pod_arrivals import place_at_once
from placement.services.clusters.pod_documents import PodDocument
from placement.services.clusters.pod_pages import (
    PodFilter,
    PodPage,
    Preview,
    Unschedulable,
)
from placement.services.clusters.pod_placing import (
    Placed,
    asks_for_the_same,
    best_place,
    placed,
    same_pod,
    told,
    with_own_cpus,
)
from placement.services.clusters.pod_rows import answer_of, consumer_of, is_claim
from placement.services.clusters.pod_writing import (
    Arrival,
    PodKey,
    Precondition,
)
from placement.services.clusters.reservation_ends import ReservationEnds, due_on, ending
from placement.services.clusters.running_pods import Recording
from placement.services.following.cluster_cache import ClusterCache, ClusterSnapshot
from placement.services.outcomes import counted
from placement.services.transactions import patiently
from placement.storage.database import Database, utcnow
from placement.storage.statements import pods
from placement.storage.statements.pods import StoredPod

ANY_POD = Precondition()
INVENTORIES_DIFFER = Refusal(
    ("node(s) have inventories that differ from the imported node",), obstacle=Obstacle(Kind.INVENTORIES)
)


class Taken(NamedTuple):
    """A pod that has its place; `before`: when it was last given it, or claimed it, if it had one already."""

    is_new: bool
    answer: PodAnswer
    before: datetime.datetime | None = None


class _Choice(NamedTuple):
    """The best place of a pod, None if there is none; `unplaced`: the nodes that refuse it after all."""

    place: Placed | None
    ranking: PodRanking
    columns: NodeColumns
    unplaced: Mapping[str, Refusal]

    def refusals(self) -> dict[str, Refusal]:
        """Why it does not fit, by node."""
        return {**self.ranking.refusals(self.columns), **self.unplaced}


class Pods:
    """What can be done with pods."""

    def __init__(
        self, database: Database, cluster_cache: ClusterCache, writer: NodeWriter, ends: ReservationEnds
    ) -> None:
        self._database = database
        self._cluster_cache = cluster_cache
        self._rankings = ShapeRankings()
        self._writer = writer
        self._ends = ends
        self._writing = ends.writing

    # -- reading ------------------------------------------------------------------------------------

    def get(self, cluster: str, namespace: str, name: str) -> PodAnswer:
        """One pod. Raises NotFound."""
        with self._database.read() as connection:
            stored = found(connection, cluster)
            pod = next(iter(pods.namesakes(connection, stored.id, namespace, name)), None)
        if pod is None:
            raise unknown_pod(cluster, namespace, name)
        answer = with_own_cpus(answer_of(pod))
        if pod.root_id is None or answer.container_cpus is not None:
            return answer
        # Its pools are those of its node: whoever asks about one pod does not wait for all nodes.
        with self._database.snapshot() as connection, suppress(ManifestError):
            nodes = self._cluster_cache.loader.load(connection, facts_of(stored), [pod.root_id])
            return told(nodes, pod)
        return answer

    def listed(self, cluster: str, wanted: PodFilter, after: int, count: int) -> PodPage:
        """The next pods of a cluster, in the order in which they were recorded. Raises NotFound."""
        with self._database.read() as connection:
            rows = pods.page(
                connection,
                found(connection, cluster).id,
                namespace=wanted.namespace,
                node=wanted.node,
                qos=wanted.qos,
                scheduled=wanted.scheduled,
                after=after,
                count=count + 1,
            )
        shown = rows[:count]
        return PodPage([answer_of(row) for row in shown], shown[-1].id if len(rows) > count else None)

    def preview(
        self,
        cluster: str,
        pod: Mapping[str, Any],
        node_names: Collection[str] | None = None,
        most: int | None = None,
    ) -> Preview:
        """Where a pod would go: nothing is claimed.

        `node_names`: only these nodes are looked at, and unknown ones left out; `most` bounds the places.
        Raises NotFound for the cluster, ManifestError.
        """
        view, document = self._cluster_cache.view(cluster), PodDocument.unnamed(cluster, pod)
        incoming, ranking, columns = self._looked_at(view, document, node_names)
        places: list[Placed] = []
        fitting = 0
        for ranked in ranking.best_first(columns):
            fitting += 1
            if most is None or len(places) < most:
                places.append(placed(ranked, incoming, document))
        refusals = ranking.refusals(columns)
        return Preview(places, fitting, refusals, incoming.warnings, ranking.shape, columns)

    def scores(
        self, cluster: str, pod: Mapping[str, Any], node_names: Collection[str] | None = None
    ) -> dict[str, int]:
        """The score of each node on which the pod fits, 0 to 100, by name. Raises as `preview` does."""
        view, document = self._cluster_cache.view(cluster), PodDocument.unnamed(cluster, pod)
        _, ranking, columns = self._looked_at(view, document, node_names)
        factor = BEST // view.facts.settings.host_scoring.max_score
        best_first = list(ranking.best_first(columns))
        # Nodes on which the pod uses a reservation stay first, then those where it gets more of what it
        # prefers, and scores stay below 100.
        first = any(ranked.used for ranked in best_first)
        levels = [0 if ranked.used else ranked.missed + first for ranked in best_first]
        worst = max(levels, default=0)
        return {
            ranked.node.name: (ranked.score * factor + BEST * (worst - level)) // (worst + 1)
            for ranked, level in zip(best_first, levels, strict=True)
        }

    def _looked_at(
        self, view: ClusterSnapshot, document: PodDocument, node_names: Collection[str] | None
    ) -> tuple[PodImport, PodRanking, NodeColumns]:
        """What a pod asks for, how it stands with nodes, and those nodes, without the pod itself on them."""
        incoming = import_pod(document.manifest, view.facts.settings)
        columns = _without(view, self._known(view, _key(document)))
        if node_names is not None:
            columns = columns.among(node_names)
        return incoming, self._ranking(incoming, document, view), columns

    def _ranking(self, incoming: PodImport, document: PodDocument, view: ClusterSnapshot) -> PodRanking:
        shape = PodShape(incoming.request, incoming.selection, view.facts.settings)
        ranking = self._rankings.of(view.facts.id, shape, view.columns)
        if not (view.reserved or incoming.reservation_affinity) or document.keeps is not None:
            return ranking
        nodes = [node.name for node in view.reserved.values()]
        if incoming.request is not None and incoming.request.ignores_reservations:
            return IgnoringRanking(ranking, nodes)
        return ReservationRanking(ranking, incoming, document.manifest, nodes, utcnow())

    # -- writing ------------------------------------------------------------------------------------

    def put(self, cluster: str, namespace: str, name: str, pod: Mapping[str, Any]) -> tuple[bool, PodAnswer]:
        """Place a pod, or record where it runs if it names a node; whether it is new.

        The same pod again, by uid and by what it asks for, is answered with what it has. Another pod of that
        name is replaced. Raises NotFound for the cluster, ManifestError with everything that is wrong,
        Unschedulable, Conflict, Unavailable.
        """
        taken = self.place(cluster, PodDocument.named(cluster, namespace, name, pod))
        return taken.is_new, taken.answer

    def bind(
        self, cluster: str, namespace: str, name: str, uid: str, node: str, pod: Mapping[str, Any]
    ) -> Taken:
        """Place a pod on one node, or nowhere; the pod may be there already. Raises as `put` does.

        Whoever calls last owns the claim: `changed_at` of the answer is nobody else's.
        """
        document = PodDocument.named(cluster, namespace, name, pod)
        if uid and document.uid != canonical_uid(uid):
            raise BadRequest(f"Pod.metadata.uid: {document.uid!r} is not {uid!r}, the pod to be bound")
        taken = self.place(cluster, document, node)
        if taken.answer.node != node:
            raise Conflict(f"Pod {document.full_name} is on node {taken.answer.node} already, not on {node}.")
        return taken

    def delete(self, cluster: str, namespace: str, name: str, precondition: Precondition = ANY_POD) -> None:
        """Release what a pod holds, and forget it, if the precondition holds.

        Raises NotFound, also for a pod of another uid; Conflict if it was changed since; Unavailable.
        """
        sought = PodKey(namespace, name)

        def once() -> None:
            view = self._cluster_cache.view(cluster)
            leaving = self._known(view, sought)
            if not leaving:
                raise unknown_pod(cluster, namespace, name)
            precondition.check(leaving[0])
            attributes = self._writer.attributes(view.facts.name, view.facts.id, namespace)
            roots = {pod.root_id for pod in leaving if pod.root_id is not None}
            with self._database.write() as transaction:
                locked = self._writing.lock(transaction, view, roots)
                self._writing.check_namesakes(transaction, view.facts, sought, leaving)
                self._writing.change(transaction, view.facts, locked, leaving, None, attributes)

        patiently(once)

    @counted("pod")
    def place(self, cluster: str, document: PodDocument, node: str | None = None) -> Taken:
        """Place a pod or a reservation, on one node if it is given, or record where it runs.

        Raises as `put` does.
        """
        refusing: set[NodeInfo] = set()

        def once() -> Taken:
            view = self._ends.current(cluster)
            if not document.host and not document.has_ended:
                return self._place(view, document, node, refusing)
            recording = Recording(self._writing, view, document, self._attributes(view, document))
            with self._database.write() as transaction:
                return Taken(*recording.run(transaction))

        return patiently(once)

    def _place(
        self,
        view: ClusterSnapshot,
        document: PodDocument,
        node: str | None,
        refusing: set[NodeInfo],
    ) -> Taken:
        settings = view.facts.settings
        hoped = None
        if self._cluster_cache.may_be_new(view, (document.namespace, document.name)):
            # Writing a pod as a new one is refused if it is not, so that nobody need ask before.
            with suppress(ManifestError):
                hoped = self._choice(view, document, import_pod(document.manifest, settings), node, refusing)
        if hoped is not None and hoped.place is not None:
            attributes = self._attributes(view, document)
            arrived = place_at_once(self._database, view, _arrival(document, hoped.place), attributes)
            if arrived is not None:
                self._cluster_cache.took_place(arrived.before, arrived.after, arrived.written)
                return _taken(hoped.place, arrived.at)
        known = self._known(view, _key(document))
        same = same_pod(known, document)
        incoming = import_pod(document.manifest, settings, same.manifest if same else None)
        if same is not None and same.node is not None and asks_for_the_same(same, incoming, settings):
            return self._renewed(view, same, node)
        if known or hoped is None:
            hoped = self._choice(view, document, incoming, node, refusing, known)
        if hoped.place is None:
            refusals = hoped.refusals()
            raise Unschedulable(refusals, explain_pod(hoped.ranking.shape, hoped.columns, refusals))
        try:
            changed_at = self._claim(view, document, known, hoped.place)
        except (NodeRefused, ProviderGone) as refusal:
            if refusal.node_id != hoped.place.state.id:
                raise
            # If nobody has changed it, so that the next view has the same state, it will refuse for good.
            refusing.add(view.nodes[hoped.place.state.root_id])
            raise NodeChanged(str(refusal)) from refusal
        return _taken(hoped.place, changed_at, known, same)

    def _choice(
        self,
        view: ClusterSnapshot,
        document: PodDocument,
        incoming: PodImport,
        node: str | None,
        refusing: Collection[NodeInfo],
        known: Sequence[StoredPod] = (),
    ) -> _Choice:
        """The place of a pod when the known ones are gone: on the named node only, if one is named."""
        columns = _without(view, known)
        if node is not None:
            columns = columns.among([node])
        doubtful = {state.name for state in refusing if view.nodes.get(state.root_id) is state}
        ranking = self._ranking(incoming, document, view)
        usable = columns.without(doubtful) if doubtful else columns
        unplaced: dict[str, Refusal] = {}
        place = best_place(ranking, usable, incoming, document, unplaced)
        unplaced.update((each.name, INVENTORIES_DIFFER) for each in columns.nodes if each.name in doubtful)
        return _Choice(place, ranking, columns, unplaced)

    def _renewed(self, view: ClusterSnapshot, pod: StoredPod, node: str | None) -> Taken:
        """Whoever asks again for its place still means to use it, so the claim is its own from now on."""
        if node != pod.node and (node is not None or not is_claim(pod)):
            return Taken(False, told(view.nodes, pod), pod.changed_at)
        with self._database.write() as transaction:
            self._writing.renew(transaction, view.facts, pod)
        return Taken(False, told(view.nodes, pod._replace(changed_at=transaction.now)), pod.changed_at)

    def _claim(
        self,
        view: ClusterSnapshot,
        document: PodDocument,
        known: Sequence[StoredPod],
        place: Placed,
    ) -> datetime.datetime:
        """When that was, as it is stored."""
        attributes = self._attributes(view, document)
        roots = {pod.root_id for pod in known} | {place.state.root_id}
        with self._database.write() as transaction:
            locked = self._writing.lock_unchanged(
                transaction, view, {root for root in roots if root is not None}
            )
            self._writing.check_namesakes(transaction, view.facts, _key(document), known)
            arrival = _arrival(document, place)
            self._writing.change(transaction, view.facts, locked, known, arrival, attributes)
        return transaction.now

    def _attributes(self, view: ClusterSnapshot, document: PodDocument) -> PodAttributes:
        return self._writer.attributes(view.facts.name, view.facts.id, document.namespace)

    def _known(self, view: ClusterSnapshot, sought: PodKey) -> list[StoredPod]:
        """Pods of that name or uid."""
        with self._database.read() as connection:
            return pods.namesakes(connection, view.facts.id, *sought)


def _key(document: PodDocument) -> PodKey:
    return PodKey(document.namespace, document.name, document.uid)


def _arrival(document: PodDocument, place: Placed) -> Arrival:
    ends = ending(place.used, place.state, document)
    return Arrival(document, place.answer, place.state.root_id, place.recorded, ends)


def _taken(
    place: Placed,
    changed_at: datetime.datetime,
    known: Sequence[StoredPod] = (),
    same: StoredPod | None = None,
) -> Taken:
    before = same.changed_at if same is not None and same.node is not None else None
    return Taken(not known, replace(place.answer, changed_at=changed_at.isoformat()), before)


def _without(view: ClusterSnapshot, leaving: Sequence[StoredPod]) -> NodeColumns:
    """The nodes as they are when these pods are gone, and reservations that have expired."""
    expired = due_on(view.reserved) if view.reserved else ()
    consumers = frozenset((*map(consumer_of, leaving), *(each.reservation.consumer for each in expired)))
    left = {pod.root_id for pod in leaving if pod.root_id is not None} | {each.root_id for each in expired}
    states = [view.nodes[root_id].without(consumers) for root_id in left if root_id in view.nodes]
    return view.columns.updated(states) if states else view.columns
