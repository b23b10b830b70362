"""Reservations of clusters: placed like the pods that they keep a place for, shown, and released."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from placement.common.clock import agreed_now, server_now
from placement.common.manifest import ManifestError
from placement.common.pod_identity import consumer_of, derived_uid
from placement.engine.domain.errors import BadRequest, Conflict, Finding, RequestPlace, parameter
from placement.metrics.catalog import CLAIMS
from placement.pods.decide.reading import PodDocument, check_name, checked_uid, import_pod
from placement.pods.decide.reservation_ends import AVAILABLE, EXPIRED, FAILED, has_expired
from placement.pods.decide.reservations import reservations_on
from placement.pods.koordinator.reservation import import_reservation
from placement.pods.services.placing import asks_for_the_same
from placement.pods.services.pods import Pods, next_page
from placement.pods.state.model import UNKNOWN_TERMS, RecordedPod, ReservationTerms
from placement.pods.store import statements
from placement.pods.store.answers import PodAnswer
from placement.pods.store.audit import changed
from placement.pods.store.cache import ClusterCache, ClusterSnapshot
from placement.pods.store.rows import FORMAT, answer_of, ended_status, held_by, written_pod
from placement.pods.store.statements import PodFilter, StoredPod
from placement.pods.store.writer import PodKey, PodWriter
from placement.providers.statements import providers
from placement.providers.statements.clusters import found, unknown_pod
from placement.storage.database import Database, retry_until_deadline


@dataclass(frozen=True, slots=True)
class ReservationAnswer:
    """A reservation: its place, the amounts that it holds, the ones that its owners left, and these owners.

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

    for_bound_callers = True

    def __init__(
        self, database: Database, cluster_cache: ClusterCache, writer: PodWriter, pods: Pods
    ) -> None:
        self._database = database
        self._cluster_cache = cluster_cache
        self._writer = writer
        self._pods = pods

    def get(self, cluster: str, name: str) -> ReservationAnswer:
        """Return one reservation. Raises NotFound."""
        snapshot = self._cluster_cache.snapshot(cluster)
        row = next(iter(self._rows(snapshot, name)), None)
        if row is None:
            raise unknown_pod(cluster, statements.RESERVED, name)
        return _answer(snapshot, row)

    def listed(
        self, cluster: str, node: str | None, after: int, count: int
    ) -> tuple[list[ReservationAnswer], int | None]:
        """Return the next reservations of a cluster, or of a node, in the order in which they were made.

        The second value is the cursor of the following page. Raises NotFound.
        """
        snapshot = self._cluster_cache.snapshot(cluster)
        with self._database.read() as connection:
            cluster_id = found(connection, cluster).id
            pod_filter = PodFilter(node=node)
            rows = statements.page(connection, cluster_id, pod_filter, after, count + 1, reservations=True)
        owners = _owners(snapshot) if any(row.root_id is None for row in rows) else {}
        answers = [_answer(snapshot, row, owners) for row in rows[:count]]
        # A reservation that has expired is on no node.
        shown = [each for each in answers if node in (None, each.pod.node)]
        return shown, next_page([row.id for row in rows], count)

    def put(self, cluster: str, name: str, manifest: Mapping[str, Any]) -> tuple[bool, ReservationAnswer]:
        """Place a reservation, or change its terms; returns whether it is new, and the reservation.

        A repeated request changes nothing, even for one that is over. Another uid of that name replaces it.
        Raises NotFound for the cluster, ManifestError with everything that is wrong, BadRequest,
        Unschedulable, Conflict for another template, Unavailable.
        """

        def once() -> tuple[bool, ReservationAnswer]:
            snapshot = self._pods.expire_and_snapshot(cluster)
            check_name(parameter("name"), name)
            known = {row.uid: row for row in self._rows(snapshot, name)}
            document, node, warnings = _read(snapshot, known, name, manifest)
            same = known.get(document.uid)
            if same is not None:
                answer = self._changed(snapshot, same, document)
                if same.root_id is not None:
                    CLAIMS.labels("reservation", "repeated").inc()
                return False, answer
            taken = self._pods.place(cluster, document, node)
            answer = self.get(cluster, name)
            pod = replace(answer.pod, warnings=(*warnings, *answer.pod.warnings))
            return taken.is_new, replace(answer, pod=pod)

        return retry_until_deadline(once)

    def delete(self, cluster: str, name: str) -> None:
        """Release the rest of a reservation, and delete it; its owners keep their allocations.

        Raises NotFound, Unavailable.
        """
        self._pods.delete(cluster, statements.RESERVED, name)

    def _changed(
        self, snapshot: ClusterSnapshot, stored: StoredPod, document: PodDocument
    ) -> ReservationAnswer:
        """Write the terms of the document to the stored reservation, and return it."""
        held, settings = held_by(stored), snapshot.facts.settings
        if held.keeps is None:
            raise Conflict(
                f"The stored row of reservation {stored.name} cannot be read; delete it, and make it again."
            )
        if stored.root_id is None:
            return _answer(snapshot, stored)
        if not asks_for_the_same(stored, import_pod(document.manifest, settings, stored.manifest), settings):
            raise Conflict(
                f"reservation {stored.name} has its place already; "
                "delete it to make another one of that name.",
                place=RequestPlace("Reservation") / "spec" / "template",
            )
        if held.keeps == document.keeps:
            return _answer(snapshot, stored)
        held = replace(held, keeps=document.keeps)
        status = {**stored.status, "record": written_pod(held)}
        with self._database.write() as transaction:
            self._writer.lock_unchanged(transaction, snapshot, {stored.root_id})
            key = PodKey(stored.namespace, stored.name, stored.uid)
            self._writer.check_namesakes(transaction, snapshot.facts, [key], [stored])
            statements.update(transaction, {stored.id: stored.values(status, FORMAT, stored.node_id)})
            providers.touch(transaction, (), [stored.root_id])
            terms = None if document.keeps is None else document.keeps.document()
            transaction.records.append(changed(snapshot.facts.name, stored, terms=terms))
        return self.get(snapshot.facts.name, stored.name)

    def _rows(self, snapshot: ClusterSnapshot, name: str) -> list[StoredPod]:
        with self._database.read() as connection:
            return statements.namesakes(connection, snapshot.facts.id, statements.RESERVED, name)


def _read(
    snapshot: ClusterSnapshot, known: Mapping[str, StoredPod], name: str, manifest: Mapping[str, Any]
) -> tuple[PodDocument, str | None, tuple[str, ...]]:
    """Return the reservation as a pod, the node to which its template is pinned, and warnings.

    `known` are the rows of that name, by uid.
    """
    cluster = snapshot.facts.name
    read = import_reservation(manifest, server_now())
    if read.name != name:
        raise BadRequest(
            f"{read.name!r} is not that of the path, {name!r}",
            place=RequestPlace("Reservation") / "metadata" / "name",
        )
    uid = checked_uid("Reservation", read.uid or derived_uid(cluster, statements.RESERVED, name))
    before = held_by(known[uid]).keeps if uid in known else None
    if before is not None:
        read = read.seen_first(before.since)
    if read.terms.is_over(agreed_now()) and uid not in known:
        raise BadRequest(
            f"it expired at {read.terms.expires_at} already",
            "reservation_expired",
            place=RequestPlace("Reservation") / "spec",
        )
    metadata = {**read.template["metadata"], "name": name, "uid": uid}
    spec = {key: value for key, value in read.template["spec"].items() if key != "nodeName"}
    pod, node = {**read.template, "metadata": metadata, "spec": spec}, read.template["spec"].get("nodeName")
    try:
        import_pod(pod, snapshot.facts.settings)
    except ManifestError as error:
        raise ManifestError(map(_in_template, error.findings)) from None
    document = PodDocument(pod, statements.RESERVED, name, uid, consumer_of(cluster, uid), read.terms)
    return document, node or None, read.warnings


Owners = Mapping[str, Sequence[RecordedPod]]
"""The pods that use reservations, by the consumer of each reservation."""


def _owners(snapshot: ClusterSnapshot) -> Owners:
    owners: dict[str, list[RecordedPod]] = {}
    for node in snapshot.nodes.values():
        for pod in node.pods:
            if pod.reservation:
                owners.setdefault(pod.reservation, []).append(pod)
    return owners


def _answer(snapshot: ClusterSnapshot, stored: StoredPod, owners: Owners | None = None) -> ReservationAnswer:
    """Return a reservation; once it is over, its `owners` may be on any node."""
    held = held_by(stored)
    if stored.root_id is not None and has_expired(held):
        over = ended_status(stored.status, FAILED, EXPIRED)
        stored = stored._replace(status=over, node_id=None, node=None, root_id=None, root_uuid=None)
    pod = answer_of(stored)
    if held.keeps is None:
        pod = replace(pod, unreadable=tuple(dict.fromkeys((*pod.unreadable, *held.unreadable))))
    node = None if stored.root_id is None else snapshot.nodes.get(stored.root_id)
    if node is None:
        owners = _owners(snapshot) if owners is None else owners
        return ReservationAnswer(pod, held, None, tuple(owners.get(held.consumer, ())))
    left = next(
        (each.left for each in reservations_on(node) if each.whole.consumer == held.consumer),
        None,
    )
    users = tuple(each for each in node.pods if each.reservation == held.consumer)
    return ReservationAnswer(pod, held, left, users)


def _in_template(finding: Finding) -> Finding:
    """Return a finding about the pod of a reservation, with its place in the reservation."""
    place = finding.place
    text = place.text.replace("Pod", "Reservation.spec.template", 1)
    return replace(finding, place=RequestPlace(text, f"/spec/template{place.field}"))
