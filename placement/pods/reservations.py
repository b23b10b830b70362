"""Reservations of clusters: placed like the pod that they keep a place for, shown, and released."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from placement.allocations.claims import count_repeated
from placement.common.manifest import ManifestError
from placement.common.pod_identity import consumer_of, derived_uid
from placement.engine.domain.errors import BadRequest, Conflict
from placement.engine.domain.request_scope import utcnow
from placement.pods.cache import ClusterCache, ClusterSnapshot
from placement.pods.cycle import kept_on
from placement.pods.documents import PodDocument, check_name, checked_uid
from placement.pods.koordinator.reservation import import_reservation
from placement.pods.model import RecordedPod
from placement.pods.placing import asks_for_the_same
from placement.pods.reading import import_pod
from placement.pods.reservation_ends import EXPIRED, FAILED, ReservationEnds, has_expired
from placement.pods.rows import FORMAT, PodAnswer, answer_of, changed, ended_status, held_by, written_pod
from placement.pods.service import Pods, next_page
from placement.pods.statements import pods
from placement.pods.statements.pods import PodFilter, StoredPod
from placement.pods.writer import AVAILABLE, PodKey, PodWriter
from placement.providers.statements import providers
from placement.providers.statements.clusters import found, unknown_pod
from placement.storage.database import Database, retry_until_deadline


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
    def phase(self) -> str:
        """Return Available, Succeeded (its one owner used it) or Failed (it expired)."""
        return self.pod.phase or AVAILABLE


@dataclass(frozen=True, slots=True)
class ReservationPage:
    """Some reservations, and the cursor of the following page, None on the last one."""

    reservations: list[ReservationAnswer]
    next: int | None


class Reservations:
    """The operations on reservations."""

    def __init__(
        self,
        database: Database,
        cluster_cache: ClusterCache,
        writer: PodWriter,
        pods: Pods,
        ends: ReservationEnds,
    ) -> None:
        self._database = database
        self._cluster_cache = cluster_cache
        self._writer = writer
        self._pods = pods
        self._ends = ends

    def get(self, cluster: str, name: str) -> ReservationAnswer:
        """Return one reservation. Raises NotFound."""
        view = self._cluster_cache.view(cluster)
        row = next(iter(self._rows(view, name)), None)
        if row is None:
            raise unknown_pod(cluster, pods.RESERVED, name)
        return _answer(view, row)

    def listed(self, cluster: str, node: str | None, after: int, count: int) -> ReservationPage:
        """Return the next reservations of a cluster, or of a node, in the order in which they were made.

        Raises NotFound for the cluster.
        """
        view = self._cluster_cache.view(cluster)
        with self._database.read() as connection:
            cluster_id = found(connection, cluster).id
            wanted = PodFilter(node=node)
            rows = pods.page(connection, cluster_id, wanted, after, count + 1, reservations=True)
        answers = [_answer(view, row) for row in rows[:count]]
        # A reservation that has expired is on no node.
        shown = [each for each in answers if node in (None, each.pod.node)]
        return ReservationPage(shown, next_page(rows, count))

    def put(self, cluster: str, name: str, manifest: Mapping[str, Any]) -> tuple[bool, ReservationAnswer]:
        """Place a reservation, or change its terms; returns whether it is new, and the reservation.

        A repeated request changes nothing, even for one that is over. Another uid of that name replaces it.
        Raises NotFound for the cluster, ManifestError with everything that is wrong, BadRequest,
        Unschedulable, Conflict for another template, Unavailable.
        """

        def once() -> tuple[bool, ReservationAnswer]:
            view = self._ends.expire_and_view(cluster)
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
        self._pods.delete(cluster, pods.RESERVED, name)

    def _changed(self, view: ClusterSnapshot, row: StoredPod, document: PodDocument) -> ReservationAnswer:
        """Write the terms of the document to the stored reservation, and return it."""
        held, settings = held_by(row), view.facts.settings
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
            pods.update(transaction, {row.id: row.values(status, FORMAT, row.node_id)})
            providers.touch(transaction, (), [row.root_id])
            terms = None if document.keeps is None else document.keeps.document()
            transaction.records.append(changed(view.facts.name, row, terms=terms))
        return self.get(view.facts.name, row.name)

    def _rows(self, view: ClusterSnapshot, name: str) -> list[StoredPod]:
        with self._database.read() as connection:
            return pods.namesakes(connection, view.facts.id, pods.RESERVED, name)


def _read(
    view: ClusterSnapshot, known: Mapping[str, StoredPod], name: str, manifest: Mapping[str, Any]
) -> tuple[PodDocument, str | None, tuple[str, ...]]:
    """Return the reservation as a pod, the node to which its template is pinned, and warnings.

    `known` are the rows of that name, by uid.
    """
    cluster = view.facts.name
    read = import_reservation(manifest, utcnow())
    if read.name != name:
        raise BadRequest(f"Reservation.metadata.name: {read.name!r} is not that of the path, {name!r}")
    uid = checked_uid("Reservation", read.uid or derived_uid(cluster, pods.RESERVED, name))
    before = held_by(known[uid]).keeps if uid in known else None
    if before is not None:
        read = read.seen_first(before.since)
    if read.terms.is_over(utcnow()) and uid not in known:
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
    document = PodDocument(pod, pods.RESERVED, name, uid, consumer_of(cluster, uid), read.terms)
    return document, node or None, read.warnings


def _answer(view: ClusterSnapshot, row: StoredPod) -> ReservationAnswer:
    held = held_by(row)
    if row.root_id is not None and has_expired(held):
        over = ended_status(row.status, FAILED, EXPIRED)
        row = row._replace(status=over, node_id=None, node=None, root_id=None, root_uuid=None)
    pod = answer_of(row)
    state = None if row.root_id is None else view.nodes.get(row.root_id)
    if state is None:
        return ReservationAnswer(pod, held, None)
    left = next((each.left for each in kept_on(state) if each.held.consumer == held.consumer), None)
    owners = tuple(each for each in state.pods if each.reservation == held.consumer)
    return ReservationAnswer(pod, held, left, owners)
