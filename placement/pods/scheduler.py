"""The decision where a pod goes, and its writing.

Nodes are ranked on the snapshot of the cluster, the pod gets its CPUs on the best one, and that is written if
the node is still the same. Else the caller looks and decides again.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import NamedTuple

from placement.allocations.statements.consumers import InventoryAmount
from placement.common.manifest import ManifestError
from placement.engine.domain.errors import Conflict
from placement.engine.domain.explanation import ConditionKind, Obstacle
from placement.engine.numa.demand import Refusal
from placement.pods.accounts import NodeAllocations
from placement.pods.cache import ClusterCache, ClusterSnapshot
from placement.pods.cycle import ShapeRankings
from placement.pods.documents import PodDocument
from placement.pods.explanation import explain_pod
from placement.pods.gangs import GangWaits, overdue, standing_with, waiting_there
from placement.pods.model import PodSpec
from placement.pods.node_info import NodeInfo
from placement.pods.placing import (
    ActivePlacements,
    Unschedulable,
    asks_for_the_same,
    best_place,
    same_pod,
    told,
)
from placement.pods.ranking import AnyRanking, IgnoringRanking, PodRanking, ReservationRanking, RuledRanking
from placement.pods.reading import import_pod, reading_of
from placement.pods.reservation_ends import due_on
from placement.pods.rows import PodAnswer, arrived, consumer_of, is_claim, waits
from placement.pods.rules.rule import PodShape
from placement.pods.snapshot import NodeColumns
from placement.pods.statements import pods
from placement.pods.statements.pods import PodInsert, StoredPod
from placement.pods.writer import (
    NodeChanged,
    NodeRefused,
    PodAttributes,
    PodKey,
    PodPlacement,
    PodWriter,
    ProviderGone,
    Waiting,
    pod_values,
)
from placement.providers.statements import clusters
from placement.storage.database import Database, Transaction, utcnow
from placement.storage.failures import Faster, TryAgain, Unreachable

# A new pod on a node, decided and written in one round trip where the database can do that.
#
# Everything else is done step by step (PodWriter): pods that replace others or give a node a reason to
# settle what it owes, and whatever is refused here, to find out why.


def place_at_once(
    database: Database,
    cluster_cache: ClusterCache,
    view: ClusterSnapshot,
    arrival: PodPlacement,
    attributes: PodAttributes,
) -> datetime.datetime | None:
    """Write a pod to its node if no pod of its name or uid exists and the node is as it was in the view.

    Returns when it was written. Returns None, and does nothing, if that cannot be. Raises OutcomeUnknown,
    Unavailable.
    """
    recorded = arrival.recorded
    if not database.backend.has_claim_statement or arrival.ends is not None:
        return None
    before = view.nodes[arrival.state.root_id]
    after = before.with_pod(recorded)
    if not _is_all_that_changes(recorded.consumer, before.accounts, after.accounts):
        return None
    places = after.accounts.shares[recorded.consumer]
    uuids = {path: before.identity.uuid(path) for path in {"", *(place.path for place in places)}}
    now = utcnow()
    wanted = PodInsert(
        cluster_id=before.cluster_id,
        values=pod_values(arrival),
        consumer=attributes.pod(recorded.consumer, recorded.namespace),
        host_id=before.root_id,
        host_revision=before.revision,
        used_below=before.due,
        providers=sorted(uuids.values()),
        amounts=[
            InventoryAmount(recorded.consumer, uuids[place.path], place.resource_class, amount)
            for place, amount in places.items()
        ],
        levels={
            cpu: owner.level
            for cpu, owner in sorted(after.accounts.cpus.items())
            if owner.consumer == recorded.consumer
        },
        record=arrived(view.facts.name, arrival.answer),
        rules_generation=view.rules_generation,
    )
    try:
        written = pods.place_at_once(database, wanted, now)
    except Unreachable:
        raise
    except TryAgain:
        return None
    if written is None:
        return None
    cluster_cache.took_place(before, after.stamped(written.stamp), written)
    return now


def _is_all_that_changes(consumer: str, before: NodeAllocations, after: NodeAllocations) -> bool:
    """Return whether the accounts differ by what a new consumer holds, and nothing else."""
    if consumer in before.shares or {**before.shares, consumer: after.shares[consumer]} != after.shares:
        return False
    return all(after.cpus.get(cpu) == owner for cpu, owner in before.cpus.items())


INVENTORIES_DIFFER = Refusal(
    ("node(s) have inventories that differ from the imported node",),
    obstacle=Obstacle(ConditionKind.INVENTORIES),
)


class PlacementResult(NamedTuple):
    """A pod that has its place; `is_placed`: it was given that just now.

    `before`: when it was last given its place, or claimed it, if it had one already. `waits` says how many of
    its gang have places while it waits, `freed` are pods that need not wait any longer because it came.
    """

    is_new: bool
    is_placed: bool
    answer: PodAnswer
    before: datetime.datetime | None = None
    waits: str = ""
    freed: Sequence[Waiting] = ()


class Refusing(set[NodeInfo]):
    """The nodes that refuse a pod, or several, for as long as they do not change."""

    def __init__(self) -> None:
        super().__init__()
        self._clashed: list[NodeInfo] = []

    def note_clash(self, nodes: Collection[NodeInfo]) -> bool:
        """Note that a database key refused a write to one of these nodes; return whether that may pass.

        The first time another writer may have been faster. Nodes that have not changed by the second time
        refuse for good: a CPU has an owner that follows from no pod, for example.
        """
        for_good = [node for node in nodes if any(_is_same(node, former) for former in self._clashed)]
        self.update(for_good)
        self._clashed += nodes
        return not for_good


class _Choice(NamedTuple):
    """The best place of a pod, None if there is none; `unplaced`: the nodes that refuse it after all.

    `alone`: it has requirements about other pods, or a gang, so it is placed under the cluster's own lock.
    """

    place: PodPlacement | None
    ranking: AnyRanking
    columns: NodeColumns
    unplaced: Mapping[str, Refusal]
    alone: bool

    @property
    def error(self) -> Unschedulable:
        """Return why the pod fits nowhere."""
        refusals = {**self.ranking.refusals(self.columns), **self.unplaced}
        return Unschedulable(refusals, explain_pod(self.ranking.shape, self.columns, refusals))


class PodScheduler:
    """A scheduler that gives places to pods that look for one."""

    def __init__(self, database: Database, cluster_cache: ClusterCache, writer: PodWriter) -> None:
        self._database = database
        self._cluster_cache = cluster_cache
        self._rankings = ShapeRankings()
        self._writer = writer
        self._contention = ActivePlacements()

    def looked_at(
        self, view: ClusterSnapshot, document: PodDocument, node_names: Collection[str] | None
    ) -> tuple[PodSpec, AnyRanking, NodeColumns]:
        """Return what a pod asks for, its ranking, and the nodes in question, without the pod on them."""
        incoming = reading_of(document.manifest, view.facts.settings)
        late = overdue(view.waiting) if view.waiting else ()
        columns = _without(view, self._placed(view, _key(document)), late)
        ranking = self._ranking(incoming, document, view, columns)
        if node_names is not None:
            columns = columns.among(node_names)
        return incoming, ranking, columns

    def _ranking(
        self, incoming: PodSpec, document: PodDocument, view: ClusterSnapshot, columns: NodeColumns
    ) -> AnyRanking:
        """Return the ranking of the pod; `columns` are all nodes of the cluster, without the pod on them."""
        ranking = self._by_itself(incoming, document, view)
        if document.keeps is not None or not (view.has_affinity or incoming.rules):
            return ranking
        return RuledRanking(ranking, incoming.rules, view.placed, columns)

    def _by_itself(self, incoming: PodSpec, document: PodDocument, view: ClusterSnapshot) -> PodRanking:
        shape = PodShape(incoming.request, incoming.selection, view.facts.settings)
        ranking = self._rankings.of(view.facts.id, shape, view.columns)
        if not (view.reserved or incoming.reservation_affinity) or document.keeps is not None:
            return ranking
        if incoming.request is not None and incoming.request.ignores_reservations:
            return IgnoringRanking(ranking)
        nodes = [node.name for node in view.reserved.values()]
        return ReservationRanking(ranking, incoming, document.manifest, nodes, utcnow())

    def place(
        self,
        view: ClusterSnapshot,
        document: PodDocument,
        node: str | None,
        refusing: Refusing,
        *,
        may_wait: bool = False,
    ) -> PlacementResult:
        """Place a pod, on one node if it is named; a repeated request returns what the pod has.

        `may_wait`: if too few of its gang have places, it takes its own and waits for the others.

        `refusing` are nodes that refused it before; this call adds to them. Raises ManifestError,
        Unschedulable, Conflict, NodeChanged if the caller should look again, Unavailable.
        """
        settings = view.facts.settings
        fresh = hoped = None
        if self._cluster_cache.may_be_new(view, (document.namespace, document.name)):
            # Writing a pod as new is refused if it is not new, so no check is needed before.
            with suppress(ManifestError):
                fresh = reading_of(document.manifest, settings)
                hoped = self._choice(view, document, fresh, node, refusing)
        if hoped is not None and hoped.place is not None and not hoped.alone:
            attributes = self._writer.attributes(view.facts, [document.namespace])
            with self._contention.taking(hoped.place.state.root_id):
                at = place_at_once(self._database, self._cluster_cache, view, hoped.place, attributes)
            if at is not None:
                return _taken(hoped.place, at)
        known = self.known(view, _key(document))
        same = same_pod(known, document)
        has_place = same is not None and same.node is not None and not waits(same)
        if same is not None and has_place and node not in (None, same.node) and document.keeps is None:
            # It may be on its way there: a caller that means to move it releases that place first.
            return PlacementResult(False, False, told(view.nodes, same), same.changed_at)
        if same is not None or fresh is None:
            fresh = import_pod(document.manifest, settings, same.manifest if same else None)
        incoming = fresh
        if same is not None and has_place and asks_for_the_same(same, incoming, settings):
            return self._renewed(view, same, node)
        if known or hoped is None:
            hoped = self._choice(view, document, incoming, node, refusing, known)
        if hoped.place is None:
            raise hoped.error
        if hoped.alone:
            return self._place_alone(view, document, incoming, node, refusing, known, same, may_wait)
        attributes = self._writer.attributes(view.facts, [document.namespace])
        tried = [view.nodes[hoped.place.state.root_id]]
        with (
            self._refused(view, hoped.place, refusing),
            clashing(refusing, tried),
            self._database.write() as transaction,
        ):
            self._claim(transaction, view, document, known, hoped.place, attributes)
        return _taken(hoped.place, transaction.now, known, same)

    def _place_alone(
        self,
        view: ClusterSnapshot,
        document: PodDocument,
        incoming: PodSpec,
        node: str | None,
        refusing: Refusing,
        known: Sequence[StoredPod],
        same: StoredPod | None,
        may_wait: bool,
    ) -> PlacementResult:
        """Place a pod while no other can come to the cluster: what it requires is about all of them."""
        attributes = self._writer.attributes(view.facts, [document.namespace])
        tried: list[NodeInfo] = []
        with clashing(refusing, tried), self._database.write() as transaction:
            clusters.lock_alone(transaction, view.facts.id)
            now = self._cluster_cache.view(view.facts.name)
            place = self._choice(now, document, incoming, node, refusing, known).place
            if place is None or now.facts != view.facts:
                raise NodeChanged("Other pods came first.")
            standing = standing_with(now, incoming.gang, place, known)
            if standing is not None and not standing.is_whole:
                if not may_wait:
                    pod = f"Pod {document.full_name} is not placed without its gang"
                    raise GangWaits(f"{pod}: with it, there are places for {standing}.")
                place = waiting_there(place, standing)
            freed = standing.waiting if standing is not None and standing.is_whole else ()
            tried.append(now.nodes[place.state.root_id])
            with self._refused(now, place, refusing):
                self._claim(transaction, now, document, known, place, attributes, alone=True, freed=freed)
        taken = _taken(place, transaction.now, known, same)
        is_waiting = standing is not None and not standing.is_whole
        return taken._replace(waits=str(standing) if is_waiting else "", freed=freed)

    @contextmanager
    def _refused(self, view: ClusterSnapshot, place: PodPlacement, refusing: Refusing) -> Iterator[None]:
        """Note the node if it refuses the pod, and raise NodeChanged then."""
        try:
            yield
        except (NodeRefused, ProviderGone) as refusal:
            if refusal.node_id != place.state.id:
                raise
            # If the node is unchanged, so that the next view has the same state, it will refuse for good.
            refusing.add(view.nodes[place.state.root_id])
            raise NodeChanged(str(refusal)) from refusal
        except NodeChanged:
            self._contention.lost()
            raise

    def arrival(
        self, view: ClusterSnapshot, document: PodDocument, refusing: Collection[NodeInfo] = ()
    ) -> PodPlacement:
        """Return the arrival of a pod that is not known yet. Raises ManifestError, Unschedulable.

        `refusing` are nodes that refused pods before.
        """
        incoming = reading_of(document.manifest, view.facts.settings)
        choice = self._choice(view, document, incoming, None, refusing)
        if choice.place is None:
            raise choice.error
        return choice.place

    def _choice(
        self,
        view: ClusterSnapshot,
        document: PodDocument,
        incoming: PodSpec,
        node: str | None,
        refusing: Collection[NodeInfo],
        known: Sequence[StoredPod] = (),
    ) -> _Choice:
        """Return the choice for a pod when the known ones are gone: only on `node`, if it is named."""
        columns = _without(view, known)
        ranking = self._ranking(incoming, document, view, columns)
        if node is not None:
            columns = columns.among([node])
        doubtful = {state.name for state in refusing if _is_same(view.nodes.get(state.root_id), state)}
        usable = columns.without(doubtful) if doubtful else columns
        unplaced: dict[str, Refusal] = {}
        ranked = self._contention.spread(ranking.best_first(usable))
        place = best_place(ranked, incoming, document, unplaced)
        unplaced.update((name, INVENTORIES_DIFFER) for name in doubtful if name in columns.by_name)
        alone = document.keeps is None and (incoming.rules.refuse or incoming.gang is not None)
        return _Choice(place, ranking, columns, unplaced, alone)

    def _renewed(self, view: ClusterSnapshot, pod: StoredPod, node: str | None) -> PlacementResult:
        """Renew the claim for a repeated request: the place is still wanted, and the claim is its own now."""
        if node != pod.node and (node is not None or not is_claim(pod)):
            return PlacementResult(False, False, told(view.nodes, pod), pod.changed_at)
        with self._database.write() as transaction:
            self._writer.renew(transaction, view.facts, pod)
        return PlacementResult(
            False, False, told(view.nodes, pod._replace(changed_at=transaction.now)), pod.changed_at
        )

    def _claim(
        self,
        transaction: Transaction,
        view: ClusterSnapshot,
        document: PodDocument,
        known: Sequence[StoredPod],
        place: PodPlacement,
        attributes: PodAttributes,
        *,
        alone: bool = False,
        freed: Sequence[Waiting] = (),
    ) -> None:
        roots = {pod.root_id for pod in known} | {place.state.root_id}
        roots |= {each.node.root_id for each in freed}
        locked = self._writer.lock_unchanged(
            transaction, view, {root for root in roots if root is not None}, checks_rules=not alone
        )
        self._writer.check_namesakes(transaction, view.facts, _key(document), known)
        self._writer.commit(transaction, view.facts, locked, attributes, arrivals=[place], leaving=known)
        if freed:
            self._writer.end_waits(transaction, view.facts, freed)

    def _placed(self, view: ClusterSnapshot, sought: PodKey) -> Sequence[StoredPod]:
        """Return the pods of that name or uid on nodes of the view; most previews are of pods on no node."""
        names = (sought.namespace, sought.name), sought.uid
        is_there = self._cluster_cache.may_have(view, filter(None, names))
        return self.known(view, sought) if is_there else ()

    def known(self, view: ClusterSnapshot, sought: PodKey) -> list[StoredPod]:
        """Return pods of that name or uid."""
        with self._database.read() as connection:
            return pods.namesakes(connection, view.facts.id, *sought)


@contextmanager
def clashing(refusing: Refusing, tried: Collection[NodeInfo], *, gives_up: bool = False) -> Iterator[None]:
    """Raise NodeChanged if a key of the database refused what was written to the nodes, and note them.

    If it did so twice, a caller that `gives_up` gets a Conflict.
    """
    try:
        yield
    except Faster as clash:
        if refusing.note_clash(tried) or not gives_up:
            raise NodeChanged(str(clash)) from clash
        raise Conflict(str(clash)) from clash


def _is_same(now: NodeInfo | None, before: NodeInfo) -> bool:
    """Return whether the stored state of a node is unchanged."""
    return now is not None and (now.root_id, now.revision) == (before.root_id, before.revision)


def _key(document: PodDocument) -> PodKey:
    return PodKey(document.namespace, document.name, document.uid)


def _taken(
    place: PodPlacement,
    changed_at: datetime.datetime,
    known: Sequence[StoredPod] = (),
    same: StoredPod | None = None,
) -> PlacementResult:
    before = same.changed_at if same is not None and same.node is not None else None
    return PlacementResult(not known, True, replace(place.answer, changed_at=changed_at.isoformat()), before)


def _without(
    view: ClusterSnapshot, leaving: Sequence[StoredPod], late: Sequence[Waiting] = ()
) -> NodeColumns:
    """Return the nodes as they are without these pods, and without reservations that have expired.

    `late` have waited too long: reads leave them out; to place a pod they are released first.
    """
    expired = due_on(view.reserved) if view.reserved else ()
    gone = (*(each.reservation.consumer for each in expired), *(each.pod.consumer for each in late))
    consumers = frozenset((*map(consumer_of, leaving), *gone))
    left = {pod.root_id for pod in leaving if pod.root_id is not None} | {each.root_id for each in expired}
    left |= {each.node.root_id for each in late}
    states = [view.nodes[root_id].without(consumers) for root_id in left if root_id in view.nodes]
    return view.columns.updated(states) if states else view.columns
