"""Many pods in one call: those that are new are decided one after another and written in one transaction.

Each is decided on the nodes as the ones before it leave them. The nodes are locked before anything is
written, and if one of them is not what was decided on, all is decided again. So no node is given away beyond
what it has, and nothing rests on less than what was committed when the call began. Whatever is not simply a
new pod (one that is here already, replaces another, uses up a reservation, or that its node refuses) is done
by itself afterwards, as if it had come alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from placement.dialects.koordinator.pod.gang import Gang
from placement.domain.errors import BadRequest, Conflict, PlacementError, Unavailable
from placement.kubernetes.pod_rules import has_rules
from placement.services.clusters.gangs import (
    GangWaits,
    Waiting,
    gang_to_place,
    in_portions,
    placed_together,
    rows_of,
    standing_of,
)
from placement.services.clusters.node_writing import (
    NodeChange,
    NodeChanged,
    NodePlace,
    NodeRefused,
    NodeWriter,
    PodAttributes,
)
from placement.services.clusters.pod_audit import arrived
from placement.services.clusters.pod_documents import PodDocument
from placement.services.clusters.pod_pages import Unschedulable
from placement.services.clusters.pod_scheduler import PodScheduler, Taken
from placement.services.clusters.pod_writing import Arrival, bearers_of, keeps_off, pod_values
from placement.services.clusters.reservation_ends import ReservationEnds
from placement.services.clusters.running_pods import new_arrival
from placement.services.following.cluster_cache import ClusterCache, ClusterSnapshot
from placement.services.outcomes import attempted
from placement.services.transactions import patiently
from placement.storage.database import Database, Transaction
from placement.storage.statements import clusters, pods, providers

# So many pods are decided and written together.
_AT_ONCE = 200

PodOutcome = Taken | PlacementError
"""What became of a pod, or why it was refused."""


@dataclass(slots=True)
class _Decided:
    """Who goes where: `after` is the cluster with them, `refused` are those that fit nowhere or are wrong.

    `freed` waited for others of their gangs and need not any longer.
    """

    before: ClusterSnapshot
    after: ClusterSnapshot
    arrivals: dict[int, Arrival] = field(default_factory=dict)
    refused: dict[int, PlacementError] = field(default_factory=dict)
    freed: list[Waiting] = field(default_factory=list)


class ManyPods:
    """Places or records pods together; `place` does it with one alone."""

    def __init__(
        self,
        database: Database,
        cluster_cache: ClusterCache,
        writer: NodeWriter,
        ends: ReservationEnds,
        scheduler: PodScheduler,
        place: Callable[[str, PodDocument], Taken],
    ) -> None:
        self._database = database
        self._cluster_cache = cluster_cache
        self._writer = writer
        self._ends = ends
        self._scheduler = scheduler
        self._place = place

    def put(self, cluster: str, manifests: Sequence[Mapping[str, Any]]) -> list[PodOutcome]:
        """Place pods, or record where they run if they name a node; what became of each.

        Some hundreds at a time are written in one transaction. Raises NotFound for the cluster, Unavailable
        if none was placed; else that is the outcome of those that are left.
        """
        outcomes: dict[int, PodOutcome] = {}
        documents: dict[int, PodDocument] = {}
        for number, manifest in enumerate(manifests):
            try:
                documents[number] = PodDocument.whole(cluster, manifest)
            except BadRequest as error:
                outcomes[number] = error
        try:
            for some in in_portions(documents, _AT_ONCE):
                self._put(cluster, some, outcomes)
        except Unavailable as error:
            if not any(isinstance(outcome, Taken) for outcome in outcomes.values()):
                raise
            outcomes |= {number: error for number in documents if number not in outcomes}
        return [outcomes[number] for number in range(len(manifests))]

    def _put(
        self, cluster: str, documents: Mapping[int, PodDocument], outcomes: dict[int, PodOutcome]
    ) -> None:
        """Put some, and note what became of them as soon as it is known."""
        # Refused by a node or a consumer: alone it is found out which pod that concerns.
        with suppress(Conflict):
            outcomes |= patiently(lambda: self._together(cluster, documents))
        for number, document in documents.items():
            if number not in outcomes:
                try:
                    outcomes[number] = self._place(cluster, document)
                except (BadRequest, Conflict) as error:
                    outcomes[number] = error

    def _together(self, cluster: str, documents: Mapping[int, PodDocument]) -> dict[int, PodOutcome]:
        """What became of the pods that are new. Raises NodeChanged, Conflict, NotFound, Unavailable."""
        view = self._ends.current(cluster)
        fresh = self._new(view, documents)
        try:
            if any(has_rules(each.manifest) or gang_to_place(each) is not None for each in fresh.values()):
                decided, at = self._decided_alone(view, fresh)
            else:
                decided = self._decided(view, fresh)
                at = self._written(decided)
        except NodeRefused as refused:
            # Only then it is worth it to look at each of them.
            raise Conflict(str(refused)) from refused
        outcomes: dict[int, PodOutcome] = dict(decided.refused)
        for number, arrival in decided.arrivals.items():
            is_placed = not arrival.document.host
            answer = replace(arrival.answer, changed_at=at) if is_placed else arrival.answer
            outcomes[number] = Taken(True, is_placed, answer)
        for number, outcome in outcomes.items():
            if not documents[number].host:
                with suppress(PlacementError):
                    attempted("pod", partial(_raised, outcome))
        return outcomes

    def _decided_alone(
        self, view: ClusterSnapshot, documents: Mapping[int, PodDocument]
    ) -> tuple[_Decided, str]:
        """Decide and write while no other pod can come: what pods require may be about all of them."""
        attributes = self._attributes(view, documents.values())
        with self._database.write() as transaction:
            clusters.lock_alone(transaction, view.facts.id)
            decided = self._decided(self._cluster_cache.view(view.facts.name), documents)
            if decided.arrivals:
                self._write(transaction, decided, attributes, alone=True)
        return decided, transaction.now.isoformat()

    def _written(self, decided: _Decided) -> str:
        """When they were written."""
        if not decided.arrivals:
            return ""
        documents = [arrival.document for arrival in decided.arrivals.values()]
        attributes = self._attributes(decided.before, documents)
        with self._database.write() as transaction:
            self._write(transaction, decided, attributes)
        return transaction.now.isoformat()

    def _attributes(self, view: ClusterSnapshot, documents: Iterable[PodDocument]) -> PodAttributes:
        """Those of the consumers of such pods, each namespace being known to the database from now on."""
        made = {document.namespace: document for document in documents}.values()
        attributes = [self._scheduler.attributes(view, document) for document in made]
        return attributes[0]

    def _new(self, view: ClusterSnapshot, documents: Mapping[int, PodDocument]) -> dict[int, PodDocument]:
        """Those of which nothing is known under their name or uid, and which are not over."""
        with self._database.read() as connection:
            known = pods.any_namesakes(
                connection,
                view.facts.id,
                {(each.namespace, each.name) for each in documents.values()},
                {each.uid for each in documents.values()},
            )
        seen: set[object] = {(pod.namespace, pod.name) for pod in known}
        seen |= {pod.uid for pod in known}
        found: dict[int, PodDocument] = {}
        for number, document in documents.items():
            mine: set[object] = {(document.namespace, document.name), document.uid}
            if not document.has_ended and seen.isdisjoint(mine):
                found[number] = document
            seen |= mine
        return found

    def _decided(self, view: ClusterSnapshot, documents: Mapping[int, PodDocument]) -> _Decided:
        """Where they go, one after another; members of gangs that are placed together in a row."""
        decided = _Decided(view, view)
        for gang, members in placed_together(documents):
            if gang is None:
                for number, document in members.items():
                    self._decide(decided, number, document)
            else:
                self._decide_gang(decided, gang, members)
        return decided

    def _decide(self, decided: _Decided, number: int, document: PodDocument) -> None:
        try:
            arrival = self._arrival(decided.after, document)
        except (BadRequest, Unschedulable) as error:
            decided.refused[number] = error
            return
        if arrival.ends is None and arrival.root_id is not None and arrival.recorded is not None:
            decided.arrivals[number] = arrival
            node = decided.after.nodes[arrival.root_id].with_pod(arrival.recorded)
            decided.after = decided.after.with_node(node)

    def _decide_gang(self, decided: _Decided, gang: Gang, members: Mapping[int, PodDocument]) -> None:
        """Where members of gangs go that are placed together: enough of them, or none."""
        tried = _Decided(decided.before, decided.after)
        for number, document in members.items():
            self._decide(tried, number, document)
        standing = standing_of(tried.after.columns, gang)
        decided.refused |= tried.refused
        if standing.is_whole:
            decided.after = tried.after
            decided.arrivals |= tried.arrivals
            decided.freed += standing.waiting
            return
        for number, document in members.items():
            if number not in tried.refused:
                words = (
                    f"Pod {document.full_name} is not placed without its gang: there is room for {standing}."
                )
                decided.refused[number] = GangWaits(words)

    def _arrival(self, view: ClusterSnapshot, document: PodDocument) -> Arrival:
        if document.host:
            return new_arrival(view, document)
        return self._scheduler.arrival(view, document)

    def _write(
        self, transaction: Transaction, decided: _Decided, attributes: PodAttributes, *, alone: bool = False
    ) -> None:
        view, arrivals = decided.before, list(decided.arrivals.values())
        documents = [arrival.document for arrival in arrivals]
        roots = {arrival.root_id for arrival in arrivals if arrival.root_id is not None}
        roots |= {each.node.root_id for each in decided.freed}
        locked = self._ends.writing.lock_unchanged(transaction, view, roots, checks_rules=not alone)
        names = {(each.namespace, each.name) for each in documents}
        if pods.any_namesakes(transaction, view.facts.id, names, {each.uid for each in documents}):
            raise NodeChanged("A pod itself changed meanwhile.")
        changes = []
        for root_id in sorted(roots):
            after, stored = decided.after.nodes[root_id], locked.accounts[root_id]
            fresh = {
                arrival.recorded.consumer: attributes.pod(
                    arrival.recorded.consumer, arrival.recorded.namespace
                )
                for arrival in arrivals
                if arrival.root_id == root_id and arrival.recorded is not None
            }
            bearers = {**bearers_of(after, stored, attributes), **fresh}
            place = NodePlace(after.id, after.cluster_id, after.identity)
            changes.append(NodeChange(place, stored, after.accounts, bearers))
        self._writer.write_all(transaction, [change for change in changes if not change.is_empty])
        if any(keeps_off(arrival) for arrival in arrivals):
            clusters.raise_rules_generation(transaction, view.facts.id)
        if decided.freed:
            uids = {each.pod.uid for each in decided.freed}
            waiting = rows_of(pods.any_namesakes(transaction, view.facts.id, (), uids), decided.freed)
            self._ends.writing.end_waits(transaction, view.facts, waiting)
        # Pods that hold nothing come, too.
        providers.touch(transaction, (), roots)
        transaction.records.extend(arrived(view.facts.name, arrival.answer) for arrival in arrivals)
        rows = [
            pod_values(arrival, locked.states[arrival.root_id].id)
            for arrival in arrivals
            if arrival.root_id is not None
        ]
        pods.insert(transaction, view.facts.id, rows)


def _raised(outcome: PodOutcome) -> Taken:
    if isinstance(outcome, PlacementError):
        raise outcome
    return outcome
