"""Many pods in one call: new pods are decided one after another and written in one transaction.

Each pod is decided on the nodes as the pods before it leave them. The nodes are locked before anything is
written, and if one of them has changed since the decision, all is decided again. So no node is given away
beyond what it has, and every decision sees at least what was committed when the call began. A pod that is
not simply new (it is here already, replaces another, or uses up a reservation) is done by itself afterwards,
as if it had come alone. So is each pod if others get in the way repeatedly, but gangs stay together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, NamedTuple

from placement.allocations.claims import count_refused, count_won
from placement.common.gang import Gang
from placement.engine.domain.errors import BadRequest, Conflict, PlacementError, Unavailable
from placement.engine.numa.demand import Refusal
from placement.pods.cache import ClusterCache, ClusterSnapshot
from placement.pods.documents import PodDocument
from placement.pods.gangs import (
    GangWaits,
    gang_to_place,
    in_portions,
    placed_together,
    standing_of,
)
from placement.pods.manifests.affinity import may_keep_off, may_require
from placement.pods.node_info import NodeInfo
from placement.pods.placing import Unschedulable
from placement.pods.reservation_ends import ReservationEnds
from placement.pods.running_pods import new_arrival, repeated_arrival
from placement.pods.scheduler import PlacementResult, PodScheduler, Refusing, clashing
from placement.pods.snapshot import NodeColumns
from placement.pods.statements import nodes, pods
from placement.pods.statements.pods import StoredPod
from placement.pods.writer import (
    NodeChanged,
    NodeRefused,
    PodAttributes,
    PodPlacement,
    PodWriter,
    ProviderGone,
    Waiting,
)
from placement.providers.statements import clusters
from placement.storage.database import Database, Transaction, retry_until_deadline

# Pods that are reported where they are already and hold what they held: many of them in one transaction.
#
# That is so for every pod that was placed here before it was bound, as the scheduler extender does.


class RepeatedPods:
    """A recorder of pods that stay as they are; it never changes what is held of a node, or its holders."""

    def __init__(self, database: Database, cluster_cache: ClusterCache, writer: PodWriter) -> None:
        self._database = database
        self._cluster_cache = cluster_cache
        self._writer = writer

    def record(
        self, view: ClusterSnapshot, documents: Mapping[int, PodDocument]
    ) -> dict[int, PlacementResult]:
        """Return the outcomes of the pods that were recorded; each other pod must be looked at by itself.

        If nothing is known of any of them, the database is not asked. Raises Unavailable.
        """
        known = {
            number: document
            for number, document in documents.items()
            if document.host in view.by_name
            and not self._cluster_cache.may_be_new(view, (document.namespace, document.name))
        }
        return retry_until_deadline(lambda: self._recorded(view, known)) if known else {}

    def _recorded(
        self, view: ClusterSnapshot, documents: Mapping[int, PodDocument]
    ) -> dict[int, PlacementResult]:
        with self._database.write() as transaction:
            arrivals = _repeated(transaction, view, documents)
            self._writer.stay(transaction, view.facts, arrivals.values())
        return {
            number: PlacementResult(False, False, arrival.answer) for number, (_, arrival) in arrivals.items()
        }


def reported_once(documents: Mapping[int, PodDocument]) -> dict[int, PodDocument]:
    """Return running pods that keep no other pod off; each is the first of its name and of its uid."""
    seen: set[object] = set()
    found: dict[int, PodDocument] = {}
    for number, document in documents.items():
        mine: set[object] = {(document.namespace, document.name), document.uid}
        runs = document.host and not document.has_ended and not may_keep_off(document.manifest)
        if runs and seen.isdisjoint(mine):
            found[number] = document
        seen |= mine
    return found


def _repeated(
    transaction: Transaction, view: ClusterSnapshot, documents: Mapping[int, PodDocument]
) -> dict[int, tuple[StoredPod, PodPlacement]]:
    """Return the pods that stay as they are, each with its row, on locked nodes that are as in the view."""
    roots = {number: view.by_name[document.host].root_id for number, document in documents.items()}
    stamps = nodes.lock(transaction, set(roots.values()), view.facts.id)
    stored = _rows(transaction, view, documents)
    found: dict[int, tuple[StoredPod, PodPlacement]] = {}
    for number, same in stored.items():
        root_id = roots[number]
        if same.root_id != root_id or stamps.get(root_id) != view.nodes[root_id].revision:
            continue
        # What is wrong with a pod is reported when it is looked at by itself.
        with suppress(BadRequest):
            arrival = repeated_arrival(view, documents[number], same)
            if arrival is not None:
                found[number] = same, arrival
    return found


def _rows(
    transaction: Transaction, view: ClusterSnapshot, documents: Mapping[int, PodDocument]
) -> dict[int, StoredPod]:
    """Return the rows of these pods where no other pod has their name or their uid."""
    names = {(each.namespace, each.name) for each in documents.values()}
    uids = {each.uid for each in documents.values()}
    rows = pods.any_namesakes(transaction, view.facts.id, names, uids)
    by_name = {(row.namespace, row.name): row for row in rows}
    by_uid = {row.uid: row for row in rows}
    return {
        number: by_uid[each.uid]
        for number, each in documents.items()
        if each.uid in by_uid and by_uid[each.uid] is by_name.get((each.namespace, each.name))
    }


# So many pods are decided and written together.
_AT_ONCE = 200
# So often they are decided together before each comes by itself, or with its gang.
_TRIES_TOGETHER = 3

PodOutcome = PlacementResult | PlacementError
"""What became of a pod, or why it was refused."""


@dataclass(slots=True)
class _Decided:
    """A set of decisions: `after` is the cluster with the arrivals; `refused` pods fit nowhere or are wrong.

    `freed` are pods that waited for others of their gangs and need not any longer. `refusing` are nodes that
    refused pods before, and take none.
    """

    before: ClusterSnapshot
    after: ClusterSnapshot
    refusing: Refusing
    arrivals: dict[int, PodPlacement] = field(default_factory=dict)
    refused: dict[int, PlacementError] = field(default_factory=dict)
    freed: list[Waiting] = field(default_factory=list)


class _Trial(NamedTuple):
    """A trial of the members of a gang on these nodes; kube-scheduler asks for one member after another."""

    columns: NodeColumns
    gang: Gang
    members: Sequence[PodDocument]
    refused: dict[str, Mapping[str, Refusal]]


class ManyPods:
    """A use case that places or records pods together; `place` does it with one pod alone."""

    def __init__(
        self,
        database: Database,
        cluster_cache: ClusterCache,
        writer: PodWriter,
        ends: ReservationEnds,
        scheduler: PodScheduler,
        place: Callable[[str, PodDocument], PlacementResult],
    ) -> None:
        self._database = database
        self._cluster_cache = cluster_cache
        self._writer = writer
        self._ends = ends
        self._scheduler = scheduler
        self._place = place
        self._repeated = RepeatedPods(database, cluster_cache, writer)
        self._trial: _Trial | None = None

    def put(self, cluster: str, manifests: Sequence[Mapping[str, Any]]) -> list[PodOutcome]:
        """Place pods, or record where they run if they name a node; return the outcome of each.

        Some hundreds at a time are written in one transaction. Raises NotFound for the cluster, Unavailable
        if no pod was placed; otherwise Unavailable is the outcome of the pods that are left.
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
            if not any(isinstance(outcome, PlacementResult) for outcome in outcomes.values()):
                raise
            outcomes |= {number: error for number in documents if number not in outcomes}
        return [outcomes[number] for number in range(len(manifests))]

    def refused_of_gang(
        self, cluster: str, gang: Gang, members: Sequence[PodDocument]
    ) -> dict[str, Mapping[str, Refusal]]:
        """Return the members that have no room beside the members before them, if too few have room.

        The result has, by uid, why each node refuses the member; nothing is claimed. It is empty if the gang
        would be whole, or if too few members are given to tell. Raises NotFound for the cluster, Unavailable.
        """
        view, trial = self._ends.expire_and_view(cluster), self._trial
        if (
            trial is None
            or trial.columns is not view.columns
            or (trial.gang, trial.members) != (gang, members)
        ):
            trial = _Trial(view.columns, gang, members, self._tried(view, gang, members))
            self._trial = trial
        return trial.refused

    def _tried(
        self, view: ClusterSnapshot, gang: Gang, members: Sequence[PodDocument]
    ) -> dict[str, Mapping[str, Refusal]]:
        coming = [each for each in members if not self._cluster_cache.may_have(view, [each.uid])]
        present = standing_of(view.columns, gang).counts.get(gang.name, 0)
        if present + len(coming) < gang.least:
            return {}
        decided = _Decided(view, view, Refusing())
        for number, document in enumerate(coming):
            self._decide(decided, number, document)
        if standing_of(decided.after.columns, gang).is_whole:
            return {}
        return {
            coming[number].uid: error.refusals
            for number, error in decided.refused.items()
            if isinstance(error, Unschedulable)
        }

    def _put(
        self, cluster: str, documents: Mapping[int, PodDocument], outcomes: dict[int, PodOutcome]
    ) -> None:
        """Put some pods, and note the outcome of each as soon as it is known."""
        view = None
        if reported := reported_once(documents):
            view = self._ends.expire_and_view(cluster)
            outcomes |= self._repeated.record(view, reported)
            documents = {number: each for number, each in documents.items() if number not in outcomes}
        units = list(placed_together(documents))
        if len(units) > 1:
            self._try_together(cluster, documents, outcomes, _TRIES_TOGETHER, view)
        for gang, members in units:
            left = {number: document for number, document in members.items() if number not in outcomes}
            if left and (gang is not None or len(units) == 1):
                self._try_together(cluster, left, outcomes)
            for number, document in left.items():
                if number not in outcomes:
                    outcomes[number] = self._alone(cluster, document)

    def _alone(self, cluster: str, document: PodDocument) -> PodOutcome:
        try:
            return self._place(cluster, document)
        except (BadRequest, Conflict) as error:
            return error

    def _try_together(
        self,
        cluster: str,
        documents: Mapping[int, PodDocument],
        outcomes: dict[int, PodOutcome],
        most: int | None = None,
        view: ClusterSnapshot | None = None,
    ) -> None:
        """Put some pods together, unless others get in the way `most` times; note their outcomes.

        The first try is on `view`, if the cluster was looked at just now.
        """
        refusing = Refusing()
        tries, looks = count(1), [] if view is None else [view]

        def once() -> dict[int, PodOutcome]:
            try:
                now = looks.pop() if looks else self._ends.expire_and_view(cluster)
                return self._together(now, documents, refusing)
            except NodeChanged as changed:
                if next(tries) == most:
                    raise Conflict(str(changed)) from changed
                raise

        # A node or a consumer refused: placing each pod alone finds out which pod that concerns.
        with suppress(Conflict):
            outcomes |= retry_until_deadline(once)

    def _together(
        self, view: ClusterSnapshot, documents: Mapping[int, PodDocument], refusing: Refusing
    ) -> dict[int, PodOutcome]:
        """Return the outcomes of the new pods; `refusing` nodes take none, and any that refuses is added.

        Raises NodeChanged, Conflict, NotFound, Unavailable.
        """
        fresh = self._new(view, documents)
        if any(map(_concerns_others, fresh.values())):
            decided, at = self._decided_alone(view, fresh, refusing)
        else:
            decided = self._decided(view, fresh, refusing)
            at = self._written(decided)
        outcomes: dict[int, PodOutcome] = dict(decided.refused)
        for number, arrival in decided.arrivals.items():
            is_placed = not arrival.document.host
            answer = replace(arrival.answer, changed_at=at) if is_placed else arrival.answer
            outcomes[number] = PlacementResult(True, is_placed, answer)
        for number, outcome in outcomes.items():
            if documents[number].host:
                continue
            if isinstance(outcome, PlacementError):
                count_refused("pod", outcome)
            else:
                count_won("pod")
        return outcomes

    def _decided_alone(
        self, view: ClusterSnapshot, documents: Mapping[int, PodDocument], refusing: Refusing
    ) -> tuple[_Decided, str]:
        """Decide and write while no other pod can come, as what pods require may concern all of them."""
        attributes = self._writer.attributes(view.facts, {each.namespace for each in documents.values()})
        tried: list[NodeInfo] = []
        with clashing(refusing, tried, gives_up=True), self._database.write() as transaction:
            clusters.lock_alone(transaction, view.facts.id)
            now = self._cluster_cache.view(view.facts.name)
            if now.facts != view.facts:
                raise NodeChanged("The cluster changed meanwhile.")
            decided = self._decided(now, documents, refusing)
            if decided.arrivals:
                tried += _targets(decided)
                self._write(transaction, decided, attributes, alone=True)
        return decided, transaction.now.isoformat()

    def _written(self, decided: _Decided) -> str:
        """Write what was decided; return when that was, or an empty text if no pods arrive."""
        if not decided.arrivals:
            return ""
        namespaces = {arrival.document.namespace for arrival in decided.arrivals.values()}
        attributes = self._writer.attributes(decided.before.facts, namespaces)
        tried = _targets(decided)
        with clashing(decided.refusing, tried, gives_up=True), self._database.write() as transaction:
            self._write(transaction, decided, attributes)
        return transaction.now.isoformat()

    def _new(self, view: ClusterSnapshot, documents: Mapping[int, PodDocument]) -> dict[int, PodDocument]:
        """Return the pods that are not over and of which neither the name nor the uid is known."""
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

    def _decided(
        self, view: ClusterSnapshot, documents: Mapping[int, PodDocument], refusing: Refusing
    ) -> _Decided:
        """Decide where pods go, one after another; gang members that are placed together come in a row."""
        decided = _Decided(view, view, refusing)
        for gang, members in placed_together(documents):
            if gang is None:
                for number, document in members.items():
                    self._decide(decided, number, document)
            else:
                self._decide_gang(decided, gang, members)
        return decided

    def _decide(self, decided: _Decided, number: int, document: PodDocument) -> None:
        try:
            arrival = self._arrival(decided, document)
        except (BadRequest, Unschedulable) as error:
            decided.refused[number] = error
            return
        if arrival.ends is None:
            decided.arrivals[number] = arrival
            node = decided.after.nodes[arrival.state.root_id].with_pod(arrival.recorded)
            decided.after = decided.after.with_node(node)

    def _decide_gang(self, decided: _Decided, gang: Gang, members: Mapping[int, PodDocument]) -> None:
        """Decide where members of gangs that are placed together go: enough of them, or none."""
        tried = _Decided(decided.before, decided.after, decided.refusing)
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
                words = f"Pod {document.full_name} is not placed without its gang"
                decided.refused[number] = GangWaits(f"{words}: there are places for {standing}.")

    def _arrival(self, decided: _Decided, document: PodDocument) -> PodPlacement:
        if document.host:
            return new_arrival(decided.after, document)
        return self._scheduler.arrival(decided.after, document, decided.refusing)

    def _write(
        self, transaction: Transaction, decided: _Decided, attributes: PodAttributes, *, alone: bool = False
    ) -> None:
        view, arrivals = decided.before, list(decided.arrivals.values())
        documents = [arrival.document for arrival in arrivals]
        roots = {arrival.state.root_id for arrival in arrivals}
        roots |= {each.node.root_id for each in decided.freed}
        locked = self._writer.lock_unchanged(transaction, view, roots, checks_rules=not alone)
        names = {(each.namespace, each.name) for each in documents}
        if pods.any_namesakes(transaction, view.facts.id, names, {each.uid for each in documents}):
            raise NodeChanged("A pod itself changed meanwhile.")
        with _noting(decided):
            self._writer.commit(
                transaction,
                view.facts,
                locked,
                attributes,
                arrivals=arrivals,
                freed=decided.freed,
                decided={root_id: decided.after.nodes[root_id] for root_id in roots},
            )


def _targets(decided: _Decided) -> list[NodeInfo]:
    """Return the nodes to which pods go, as they were before."""
    roots = {each.state.root_id for each in decided.arrivals.values()}
    return [decided.before.nodes[root_id] for root_id in roots]


@contextmanager
def _noting(decided: _Decided) -> Iterator[None]:
    """Note a node that refuses pods. Raises NodeChanged then, or Conflict if it was noted before."""
    try:
        yield
    except (NodeRefused, ProviderGone) as refusal:
        nodes = decided.before.nodes.values()
        node = next(each for each in nodes if each.id == refusal.node_id)
        if node in decided.refusing:
            # Pods that run there are recorded whatever the node says, so trying again does not help.
            raise Conflict(str(refusal)) from refusal
        decided.refusing.add(node)
        raise NodeChanged(str(refusal)) from refusal


def _concerns_others(document: PodDocument) -> bool:
    """Return whether a pod is written while no other comes: it keeps pods off, needs some or has a gang."""
    if document.host:
        return may_keep_off(document.manifest)
    return may_require(document.manifest) or gang_to_place(document) is not None
