"""Pods and reservations of clusters: placed here or reported to run somewhere, shown, and released."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, NamedTuple

from placement.allocations.claims import count_repeated
from placement.common.manifest import ManifestError
from placement.common.pod_identity import canonical_uid, consumer_of, derived_uid
from placement.engine.domain.errors import BadRequest, Conflict, NotFound
from placement.engine.domain.explanation import Explanation
from placement.engine.numa.host import Refusal
from placement.pods import statements
from placement.pods.cache import ClusterCache, ClusterSnapshot, facts_of
from placement.pods.cycle import explain_pod, kept_on
from placement.pods.gangs import AVAILABLE, EXPIRED, FAILED, GangWaits, has_expired, overdue
from placement.pods.koordinator.pod import import_reservation
from placement.pods.model import UNKNOWN_TERMS, PodSpec, RecordedPod, ReservationTerms
from placement.pods.node_info import NodeInfo
from placement.pods.placing import asks_for_the_same, columns_without, nodes_available, placed, pod_answer
from placement.pods.ranking import AnyRanking, priorities
from placement.pods.reading import PodDocument, check_name, checked_uid, import_pod, reading_of
from placement.pods.rows import (
    FORMAT,
    PodAnswer,
    PodPlacement,
    answer_of,
    changed,
    ended_status,
    held_by,
    written_pod,
)
from placement.pods.rules.rule import PodShape
from placement.pods.scheduler import PlacementResult, PodScheduler
from placement.pods.snapshot import NodeColumns
from placement.pods.statements import PodFilter, PodHead, StoredPod
from placement.pods.writer import PodKey, PodMoves, PodWriter
from placement.providers.statements import providers
from placement.providers.statements.clusters import found, unknown_node, unknown_pod
from placement.storage.clock import agreed_now, server_now
from placement.storage.database import Database, retry_until_deadline


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

    def __init__(self, message: str, claim: PodAnswer) -> None:
        super().__init__(message)
        self.claim = claim


@dataclass(frozen=True, slots=True)
class Preview:
    """A preview of where a pod would fit, best first, and why not elsewhere.

    `fitting` counts all nodes on which it fits; `places` has the best of them. `shape` is what filter and
    score need of the pod, and `columns` are the nodes in question.
    """

    places: Sequence[PodPlacement]
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
    def message(self) -> str:
        """Return how many nodes are available, and why the others are not."""
        return nodes_available(self.refusals.values(), self.fitting)


def next_page(rows: Sequence[StoredPod] | Sequence[PodHead], count: int) -> int | None:
    """Return the cursor of the page after the first `count` rows; None if there are no more rows."""
    return rows[count - 1].id if len(rows) > count else None


class Pods(PodScheduler):
    """The operations on pods: what the scheduler does, and reading, binding and releasing."""

    # -- reading ------------------------------------------------------------------------------------

    def is_held(self, cluster: str, claim: PodAnswer) -> bool:
        """Return whether a pod still has the claimed place, and its row was not written since.

        Raises Unavailable.
        """
        with self._database.read() as connection:
            place = statements.place_of(connection, cluster, claim.namespace, claim.name)
        if place is None:
            return False
        given = claim.uid, claim.node, claim.changed_at
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
        self, cluster: str, wanted: PodFilter, after: int, count: int
    ) -> tuple[list[PodAnswer], int | None]:
        """Return the next pods of a cluster, as they were recorded one after another, and the next cursor.

        Raises NotFound.
        """
        with self._database.read() as connection:
            cluster_id = found(connection, cluster).id
            rows = statements.page(connection, cluster_id, wanted, after, count + 1)
        return [answer_of(row) for row in rows[:count]], next_page(rows, count)

    def heads(
        self, cluster: str, wanted: PodFilter, after: int, count: int
    ) -> tuple[list[PodHead], int | None]:
        """Return the next pods, of any origin, as a list shows them, and the cursor of the following page."""
        with self._database.read() as connection:
            rows = statements.heads(connection, found(connection, cluster).id, wanted, after, count + 1)
        return rows[:count], next_page(rows, count)

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
        strict: bool = False,
    ) -> Preview:
        """Return where a pod would go: nothing is claimed.

        `node_names`: only these nodes are looked at, and unknown ones left out; `most` bounds the places.
        Raises NotFound for the cluster, and if it is `strict` where it has none of the nodes; ManifestError.
        """
        view, document = self._cluster_cache.snapshot(cluster), PodDocument.unnamed(cluster, pod)
        if strict and node_names and not any(name in view.by_name for name in node_names):
            raise unknown_node(cluster, min(node_names))
        incoming, ranking, columns = self._ranked(view, document, node_names)
        refusals = ranking.refusals(columns)
        best = islice(ranking.best_first(columns), most)
        places = [placed(ranked, incoming, document) for ranked in best]
        fitting = len(columns.nodes) - len(refusals)
        return Preview(places, fitting, refusals, incoming, ranking.shape, columns)

    def fitting_once_open(
        self, cluster: str, pod: Mapping[str, Any], node_names: Collection[str]
    ) -> list[str]:
        """Return on which of these nodes a pod would fit if they were open; raises like `preview`."""
        view, document = self._cluster_cache.snapshot(cluster), PodDocument.unnamed(cluster, pod)
        _, ranking, columns = self._ranked(view, document, node_names)
        opened = columns.updated(
            replace(node, attributes=replace(node.attributes, closed=None)) for node in columns.nodes
        )
        refusals = ranking.refusals(opened)
        return sorted(node.name for node in columns.nodes if node.name not in refusals)

    def _ranked(
        self, view: ClusterSnapshot, document: PodDocument, node_names: Collection[str] | None
    ) -> tuple[PodSpec, AnyRanking, NodeColumns]:
        """Return what a pod asks for, its ranking, and the nodes in question, without the pod on them."""
        incoming = reading_of(document.manifest, view.facts.settings)
        sought = PodKey(document.namespace, document.name, document.uid)
        # Most previews are of pods on no node.
        is_there = self._cluster_cache.may_have(view, (sought[:2], document.uid))
        present = self.known(view, sought) if is_there else ()
        columns = columns_without(view, present, overdue(view.waiting) if view.waiting else ())
        ranking = self._choice.ranking(incoming, document, view, columns)
        return incoming, ranking, columns if node_names is None else columns.among(node_names)

    def scores(
        self, cluster: str, pod: Mapping[str, Any], node_names: Collection[str] | None = None
    ) -> dict[str, int]:
        """Return the score of each node on which the pod fits, 0 to 100, by name. Raises like `preview`."""
        view, document = self._cluster_cache.snapshot(cluster), PodDocument.unnamed(cluster, pod)
        _, ranking, columns = self._ranked(view, document, node_names)
        return priorities(ranking, columns, view.facts.settings.host_scoring.max_score)

    # -- writing ------------------------------------------------------------------------------------

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
            view = self._cluster_cache.snapshot(cluster)
            leaving = self.known(view, sought)
            if not leaving:
                raise unknown_pod(cluster, namespace, name)
            precondition.check(leaving[0])
            attributes = self._writer.register_attributes(view.facts, [namespace])
            roots = {pod.root_id for pod in leaving if pod.root_id is not None}
            with self._database.write() as transaction:
                locked = self._writer.lock(transaction, view, roots)
                self._writer.check_namesakes(transaction, view.facts, [sought], leaving)
                moves = PodMoves(leaving=leaving, unreserves=precondition.changed_at is not None)
                self._writer.commit(transaction, locked, attributes, moves)

        retry_until_deadline(once)


# Reservations: placed like the pod that they keep a place for, shown, and released.


@dataclass(frozen=True, slots=True)
class ReservationAnswer:
    """A reservation: where it is, what it was given, what its owners left of that, and these owners.

    `left` is None once it is over.
    """

    pod: PodAnswer
    held: RecordedPod
    left: RecordedPod | None
    owners: tuple[RecordedPod, ...] = ()

    @property
    def terms(self) -> ReservationTerms:
        """Return the terms on which pods use it."""
        return self.held.keeps or UNKNOWN_TERMS

    @property
    def phase(self) -> str:
        """Return Available, Succeeded (its one owner used it) or Failed (it expired)."""
        return self.pod.phase or AVAILABLE


class Reservations:
    """The operations on reservations."""

    def __init__(
        self, database: Database, cluster_cache: ClusterCache, writer: PodWriter, pods: Pods
    ) -> None:
        self._database = database
        self._cluster_cache = cluster_cache
        self._writer = writer
        self._pods = pods

    def get(self, cluster: str, name: str) -> ReservationAnswer:
        """Return one reservation. Raises NotFound."""
        view = self._cluster_cache.snapshot(cluster)
        row = next(iter(self._rows(view, name)), None)
        if row is None:
            raise unknown_pod(cluster, statements.RESERVED, name)
        return _answer(view, row)

    def listed(
        self, cluster: str, node: str | None, after: int, count: int
    ) -> tuple[list[ReservationAnswer], int | None]:
        """Return the next reservations of a cluster, or of a node, in the order in which they were made.

        The second value is the cursor of the following page. Raises NotFound.
        """
        view = self._cluster_cache.snapshot(cluster)
        with self._database.read() as connection:
            cluster_id = found(connection, cluster).id
            wanted = PodFilter(node=node)
            rows = statements.page(connection, cluster_id, wanted, after, count + 1, reservations=True)
        owners = _owners(view) if any(row.root_id is None for row in rows) else {}
        answers = [_answer(view, row, owners) for row in rows[:count]]
        # A reservation that has expired is on no node.
        shown = [each for each in answers if node in (None, each.pod.node)]
        return shown, next_page(rows, count)

    def put(self, cluster: str, name: str, manifest: Mapping[str, Any]) -> tuple[bool, ReservationAnswer]:
        """Place a reservation, or change its terms; returns whether it is new, and the reservation.

        A repeated request changes nothing, even for one that is over. Another uid of that name replaces it.
        Raises NotFound for the cluster, ManifestError with everything that is wrong, BadRequest,
        Unschedulable, Conflict for another template, Unavailable.
        """

        def once() -> tuple[bool, ReservationAnswer]:
            view = self._pods.expire_and_view(cluster)
            check_name("name", name)
            known = {row.uid: row for row in self._rows(view, name)}
            document, node, warnings = _read(view, known, name, manifest)
            same = known.get(document.uid)
            if same is not None:
                answer = self._changed(view, same, document)
                if same.root_id is not None:
                    count_repeated("reservation")
                return False, answer
            taken = self._pods.place(cluster, document, node)
            answer = self.get(cluster, name)
            pod = replace(answer.pod, warnings=(*warnings, *answer.pod.warnings))
            return taken.is_new, replace(answer, pod=pod)

        return retry_until_deadline(once)

    def delete(self, cluster: str, name: str) -> None:
        """Release what a reservation has left, and forget it; its owners keep what they have.

        Raises NotFound, Unavailable.
        """
        self._pods.delete(cluster, statements.RESERVED, name)

    def _changed(self, view: ClusterSnapshot, row: StoredPod, document: PodDocument) -> ReservationAnswer:
        """Write the terms of the document to the stored reservation, and return it."""
        held, settings = held_by(row), view.facts.settings
        if held.keeps is None:
            raise Conflict(
                f"The stored row of reservation {row.name} cannot be read; delete it, and make it again."
            )
        if row.root_id is None:
            return _answer(view, row)
        if not asks_for_the_same(row, import_pod(document.manifest, settings, row.manifest), settings):
            raise Conflict(
                f"Reservation.spec.template: reservation {row.name} has its place already; "
                "delete it to make another one of that name."
            )
        if held.keeps == document.keeps:
            return _answer(view, row)
        held = replace(held, keeps=document.keeps)
        status = {**row.status, "record": written_pod(held)}
        with self._database.write() as transaction:
            self._writer.lock_unchanged(transaction, view, {row.root_id})
            key = PodKey(row.namespace, row.name, row.uid)
            self._writer.check_namesakes(transaction, view.facts, [key], [row])
            statements.update(transaction, {row.id: row.values(status, FORMAT, row.node_id)})
            providers.touch(transaction, (), [row.root_id])
            terms = None if document.keeps is None else document.keeps.document()
            transaction.records.append(changed(view.facts.name, row, terms=terms))
        return self.get(view.facts.name, row.name)

    def _rows(self, view: ClusterSnapshot, name: str) -> list[StoredPod]:
        with self._database.read() as connection:
            return statements.namesakes(connection, view.facts.id, statements.RESERVED, name)


def _read(
    view: ClusterSnapshot, known: Mapping[str, StoredPod], name: str, manifest: Mapping[str, Any]
) -> tuple[PodDocument, str | None, tuple[str, ...]]:
    """Return the reservation as a pod, the node to which its template is pinned, and warnings.

    `known` are the rows of that name, by uid.
    """
    cluster = view.facts.name
    read = import_reservation(manifest, server_now())
    if read.name != name:
        raise BadRequest(f"Reservation.metadata.name: {read.name!r} is not that of the path, {name!r}")
    uid = checked_uid("Reservation", read.uid or derived_uid(cluster, statements.RESERVED, name))
    before = held_by(known[uid]).keeps if uid in known else None
    if before is not None:
        read = read.seen_first(before.since)
    if read.terms.is_over(agreed_now()) and uid not in known:
        raise BadRequest(f"Reservation.spec: it expired at {read.terms.expires_at} already")
    metadata = {**read.template["metadata"], "name": name, "uid": uid}
    spec = {key: value for key, value in read.template["spec"].items() if key != "nodeName"}
    pod, node = {**read.template, "metadata": metadata, "spec": spec}, read.template["spec"].get("nodeName")
    try:
        import_pod(pod, view.facts.settings)
    except ManifestError as error:
        raise ManifestError(
            tuple(finding.replace("Pod.", "Reservation.spec.template.", 1) for finding in error.findings)
        ) from None
    document = PodDocument(pod, statements.RESERVED, name, uid, consumer_of(cluster, uid), read.terms)
    return document, node or None, read.warnings


Owners = Mapping[str, Sequence[RecordedPod]]
"""The pods that use reservations, by the consumer of each reservation."""


def _owners(view: ClusterSnapshot) -> Owners:
    owners: dict[str, list[RecordedPod]] = {}
    for node in view.nodes.values():
        for pod in node.pods:
            if pod.reservation:
                owners.setdefault(pod.reservation, []).append(pod)
    return owners


def _answer(view: ClusterSnapshot, row: StoredPod, owners: Owners | None = None) -> ReservationAnswer:
    """Return a reservation; once it is over, its `owners` may be on any node."""
    held = held_by(row)
    if row.root_id is not None and has_expired(held):
        over = ended_status(row.status, FAILED, EXPIRED)
        row = row._replace(status=over, node_id=None, node=None, root_id=None, root_uuid=None)
    pod = answer_of(row)
    if held.keeps is None:
        pod = replace(pod, unreadable=tuple(dict.fromkeys((*pod.unreadable, *held.unreadable))))
    state = None if row.root_id is None else view.nodes.get(row.root_id)
    if state is None:
        owners = _owners(view) if owners is None else owners
        return ReservationAnswer(pod, held, None, tuple(owners.get(held.consumer, ())))
    left = next((each.left for each in kept_on(state) if each.held.consumer == held.consumer), None)
    users = tuple(each for each in state.pods if each.reservation == held.consumer)
    return ReservationAnswer(pod, held, left, users)
