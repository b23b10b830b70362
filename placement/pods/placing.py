"""The place of a pod, on a node on which it fits or on the best of all, and the answer about it."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import chain

from placement.common.gang import Membership
from placement.common.manifest import ManifestError
from placement.common.pod_identity import is_former
from placement.engine.domain.errors import BadRequest, CapacityExceeded, Conflict
from placement.engine.domain.explanation import ConditionKind, Explanation, Obstacle
from placement.engine.numa.cpus import format_cpu_list, parse_cpu_list
from placement.engine.numa.host import PodRefused, Refusal
from placement.pods.cache import ClusterSnapshot
from placement.pods.cycle import Ranked, ShapeRankings, explain_pod
from placement.pods.gangs import Waiting, due_on, used_up
from placement.pods.host import (
    HostPools,
    foreign_cpus,
    host_pools,
    is_pinned_unseen,
    ledger_of,
    own_cpus,
    pod_cpus,
    remarks_on,
)
from placement.pods.koordinator.annotations import written_annotations
from placement.pods.manifests.affinity import NO_AFFINITY
from placement.pods.model import NO_REQUEST, PodSpec, RecordedPod, SchedulerSettings, pool_class
from placement.pods.node_info import NodeInfo
from placement.pods.ranking import AnyRanking, IgnoringRanking, PodRanking, ReservationRanking, RuledRanking
from placement.pods.reading import PodDocument, reading_of
from placement.pods.rows import PodAnswer, PodPlacement, answer_of, consumer_of, using
from placement.pods.rules.amounts import loose_amounts
from placement.pods.rules.numa import allocate_on_host
from placement.pods.rules.rule import PodShape
from placement.pods.snapshot import NodeColumns
from placement.pods.statements import StoredPod
from placement.storage.clock import agreed_now


def placed(ranked: Ranked, incoming: PodSpec, document: PodDocument) -> PodPlacement:
    """Return what the pod gets on the node. Raises PodRefused if it does not fit after all.

    Source: koordinator.md, "Reserve", "What is written".
    """
    state, used = ranked.node, ranked.used
    room = ranked.opened or state
    allocation = allocate_on_host(state.host, incoming.request, ranked.fit, ranked.reservations)
    holding = allocation.status.holding(allocation.level, incoming.qos, allocation.group)
    # A reservation is no pod to others.
    gang = incoming.gang if document.keeps is None else None
    recorded = RecordedPod(
        namespace=document.namespace,
        name=document.name,
        uid=document.uid,
        consumer=document.consumer,
        qos=str(incoming.qos or ""),
        requests=incoming.request.amounts,
        holding=holding,
        loose=loose_amounts(room.offers, room.left, incoming.request.amounts, holding.amounts),
        treated_as=pool_class(incoming.treated_as, incoming.qos, holding),
        pools=tuple(numa for _, numa in allocation.status.pools),
        reservation="" if used is None else used.consumer,
        keeps=document.keeps,
        labels=incoming.rules.bearer[1] if document.keeps is None else (),
        affinity=incoming.rules.affinity if document.keeps is None else NO_AFFINITY,
        membership=None if gang is None else Membership(gang.name, gang.least),
    )
    answer = PodAnswer(
        namespace=recorded.namespace,
        name=recorded.name,
        uid=recorded.uid,
        consumer_uuid=recorded.consumer,
        node=state.name,
        resource_provider=state.root_uuid,
        qos=recorded.qos,
        kubernetes_qos=str(incoming.kubernetes_qos),
        scheduled=True,
        cpuset=format_cpu_list(holding.cpus),
        annotations=written_annotations(incoming.spec, allocation.status, allocation.bind, allocation.strict),
        containers=incoming.containers,
        score=ranked.score,
        missed=ranked.missed,
        warnings=incoming.warnings,
        remarks=tuple(remarks_on(state.host, incoming.request)) if incoming.request is not NO_REQUEST else (),
    )
    answer = as_of_now(answer, state, (*state.pods, recorded), recorded)
    answer = answer if used is None else using(answer, used)
    ends = None if used is None else used_up(used, state, document)
    return PodPlacement(document, answer, state, recorded, ends)


def as_of_now(
    answer: PodAnswer, state: NodeInfo, pods: Collection[RecordedPod], pod: RecordedPod
) -> PodAnswer:
    """Return the answer about one of these pods of a node with the CPU list of its containers as of now."""
    imported = state.template.imported

    def pools() -> HostPools:
        return host_pools(imported, ledger_of(imported, pods), foreign_cpus(state.offers, state.others))

    cpus = pod_cpus(imported, pods, pod, pools)
    return replace(
        answer,
        lifts_cfs_quota=bool(own_cpus(imported, pods, pod)),
        container_cpus=None if cpus is None else format_cpu_list(cpus),
        is_pinned_unseen=is_pinned_unseen(imported, pod),
    )


def best_place(
    best_first: Iterable[Ranked],
    incoming: PodSpec,
    document: PodDocument,
    unplaced: dict[str, Refusal],
) -> PodPlacement | None:
    """Return the pod on the best node that takes it, or None; `unplaced`: refusals where it seemed to fit."""
    for ranked in best_first:
        try:
            return placed(ranked, incoming, document)
        except PodRefused as refused:
            unplaced[ranked.node.name] = refused.refusal
    return None


def asks_for_the_same(stored: StoredPod, incoming: PodSpec, settings: SchedulerSettings) -> bool:
    """Return whether a pod has the demands with which it got its place."""
    manifest = {**stored.manifest, "spec": {**stored.manifest["spec"], "nodeName": None}}
    try:
        before = reading_of(manifest, settings)
    except ManifestError:
        return False  # the settings of the cluster became stricter meanwhile
    return (before.request, before.qos, before.spec) == (incoming.request, incoming.qos, incoming.spec)


def same_pod(known: Sequence[StoredPod], document: PodDocument) -> StoredPod | None:
    """Return the pod with the uid of the document, None if it is not among these pods.

    Raises BadRequest if it has another name; Conflict if the name is that of a newer pod by now.
    """
    same = next((pod for pod in known if pod.uid == document.uid), None)
    if same is not None and (same.namespace, same.name) != (document.namespace, document.name):
        raise BadRequest(f"Pod.metadata.uid: {document.uid!r} is pod {same.namespace}/{same.name}")
    for pod in known:
        if pod is not same and is_former(document.manifest, pod.manifest):
            raise Conflict(
                f"Pod {document.full_name} is a newer one by now, with uid {pod.uid}, not {document.uid}."
            )
    return same


def without_namesakes(
    documents: Mapping[int, PodDocument], known: Iterable[StoredPod] = ()
) -> dict[int, PodDocument]:
    """Return pods with neither the name nor the uid of a known pod, or of a pod before them."""
    seen = set[object]().union(*({(pod.namespace, pod.name), pod.uid} for pod in known))
    found: dict[int, PodDocument] = {}
    for number, document in documents.items():
        mine = {(document.namespace, document.name), document.uid}
        if seen.isdisjoint(mine):
            found[number] = document
        seen |= mine
    return found


def pod_answer(nodes: Mapping[int, NodeInfo], pod: StoredPod) -> PodAnswer:
    """Return the answer about a stored pod, with the CPU list of its containers as the node is now."""
    answer = answer_of(pod)
    state = None if pod.root_id is None else nodes.get(pod.root_id)
    present = () if state is None else state.pods
    mine = next((each for each in present if each.consumer == answer.consumer_uuid), None)
    if state is None or mine is None:
        return answer
    sharing = sharing_cpus(mine, present)
    answer = replace(answer, remarks=(*answer.remarks, *sharing.values()), shared_with=tuple(sharing))
    return as_of_now(answer, state, present, mine)


def sharing_cpus(pod: RecordedPod, present: Iterable[RecordedPod]) -> dict[str, str]:
    """Return the names of other pods that hold some of the pod's CPUs, each with a sentence that says so."""
    return {
        each.full_name: f"CPUs {format_cpu_list(shared)} are held by pod {each.full_name}, too"
        for each in present
        # The former pod of a name leaves when another one comes.
        if each.full_name != pod.full_name and (shared := each.holding.cpus & pod.holding.cpus)
    }


def with_moves(answer: PodAnswer, leaving: Iterable[StoredPod]) -> PodAnswer:
    """Return the answer about a pod with remarks on what the leaving pods gave back."""
    remarks = []
    for before in map(answer_of, leaving):
        if before.node is None:
            continue
        given_back = parse_cpu_list(before.cpuset)
        if before.node != answer.node:
            remarks.append(f"moved from node {before.node} to node {answer.node}")
        else:
            given_back -= parse_cpu_list(answer.cpuset)
        if given_back:
            remarks.append(f"gave back CPUs {format_cpu_list(given_back)} of node {before.node}")
    return replace(answer, remarks=(*answer.remarks, *remarks))


# The choice of a node. Pods that are placed at the same time would all go to the same best node.
#
# The second pod that comes to a node was decided in vain. So of several equally good nodes, one is taken on
# which this process is placing no other pod. While other processes were faster a moment ago, a random one is.
# The best stays best: only among equals, which are otherwise taken by name, another node may be chosen.


# More equals than concurrent writers are of no use.
_MOST_EQUALS = 64
_LOSS_LASTS_SECONDS = 1.0
_INVENTORIES_DIFFER = Refusal(
    ("node(s) have inventories that differ from the imported node",),
    obstacle=Obstacle(ConditionKind.INVENTORIES),
)


class ActivePlacements:
    """The nodes on which this process is placing pods, and whether other processes do; threads share it."""

    def __init__(self) -> None:
        self._taken: Counter[int] = Counter()
        self._lock = threading.Lock()
        self._lost_at = -_LOSS_LASTS_SECONDS

    @contextmanager
    def taking(self, root_id: int) -> Iterator[None]:
        """Mark the node with this host provider while a pod is placed on it."""
        with self._lock:
            self._taken[root_id] += 1
        try:
            yield
        finally:
            with self._lock:
                self._taken[root_id] -= 1
                if not self._taken[root_id]:
                    del self._taken[root_id]

    def lost(self) -> None:
        """Note that another process was faster."""
        self._lost_at = time.monotonic()

    def spread(self, best_first: Iterable[Ranked]) -> Iterator[Ranked]:
        """Return the nodes, best first; among equals, nodes where no pod is being placed come first."""
        ranked = iter(best_first)
        best = next(ranked, None)
        if best is None:
            return ranked
        is_lost = time.monotonic() - self._lost_at < _LOSS_LASTS_SECONDS
        if not is_lost and not self._taken[best.node.root_id]:
            return chain([best], ranked)
        equals, rest = [best], []
        for each in ranked:
            if (each.missed, each.score, each.used) != (best.missed, best.score, best.used):
                rest = [each]
                break
            equals.append(each)
            if len(equals) == _MOST_EQUALS:
                break
        if is_lost:
            random.shuffle(equals)
        equals.sort(key=lambda each: self._taken[each.node.root_id])
        return chain(equals, rest, ranked)


class Unschedulable(CapacityExceeded):
    """An error: no node can take the pod; `refusals` says why, by node, and `explanation` stage by stage."""

    code = "unschedulable"

    def __init__(self, refusals: Mapping[str, Refusal], explanation: Explanation) -> None:
        super().__init__(nodes_available(refusals.values()))
        self.refusals = refusals
        self.explanation = explanation


def nodes_available(refusals: Collection[Refusal], fitting: int = 0) -> str:
    """Return how many nodes are available and why the others are not, as kube-scheduler counts it."""
    counts = Counter(reason for refusal in refusals for reason in refusal.reasons)
    reasons = ", ".join(sorted(f"{count} {reason}" for reason, count in counts.items()))
    available = f"{fitting}/{fitting + len(refusals)} nodes are available"
    return f"{available}: {reasons}." if reasons else f"{available}."


@dataclass(slots=True)
class Refusing:
    """The nodes that refuse a pod, or several, for as long as they do not change.

    Writes to `clashed` ones were refused by a key of the database.
    """

    nodes: set[NodeInfo] = field(default_factory=set)
    clashed: list[NodeInfo] = field(default_factory=list)

    def note_clash(self, nodes: Collection[NodeInfo]) -> bool:
        """Note that a database key refused a write to one of these nodes; return whether that may pass.

        The first time another writer may have been faster. Nodes that have not changed by the second time
        refuse for good: a CPU has an owner that follows from no pod, for example.
        """
        for_good = [node for node in nodes if any(_is_same(node, former) for former in self.clashed)]
        self.nodes.update(for_good)
        self.clashed += nodes
        return not for_good


def _is_same(now: NodeInfo | None, before: NodeInfo) -> bool:
    """Return whether the stored state of a node is unchanged."""
    return now is not None and (now.root_id, now.revision) == (before.root_id, before.revision)


class PlaceChoice:
    """A choice of the best node for a pod on a snapshot of its cluster; it remembers rankings by shape."""

    def __init__(self) -> None:
        self._rankings = ShapeRankings()
        self.active = ActivePlacements()

    def ranking(
        self, incoming: PodSpec, document: PodDocument, view: ClusterSnapshot, columns: NodeColumns
    ) -> AnyRanking:
        """Return the ranking of the pod; `columns` are all nodes of the cluster, without the pod on them."""
        shape = PodShape(incoming.request, incoming.selection, view.facts.settings)
        of_shape = self._rankings.of(view.facts.id, shape, view.columns)
        ranking: PodRanking = of_shape
        if document.keeps is not None:
            return ranking
        if view.reserved or incoming.reservation_affinity:
            if incoming.request.ignores_reservations:
                ranking = IgnoringRanking(of_shape)
            else:
                nodes = [node.name for node in view.reserved.values()]
                ranking = ReservationRanking(of_shape, incoming, document.manifest, nodes, agreed_now())
        if not (view.has_affinity or incoming.rules.say_anything):
            return ranking
        return RuledRanking(ranking, incoming.rules, view.placed, columns)

    def best(
        self,
        view: ClusterSnapshot,
        document: PodDocument,
        refusing: Refusing,
        incoming: PodSpec | None = None,
        node: str | None = None,
        known: Sequence[StoredPod] = (),
    ) -> PodPlacement:
        """Return the pod on the best node when the known ones are gone: only on `node`, if it is named.

        `refusing` nodes refused pods before. Raises ManifestError, Unschedulable.
        """
        incoming = incoming or reading_of(document.manifest, view.facts.settings)
        columns = columns_without(view, known)
        ranking = self.ranking(incoming, document, view, columns)
        if node is not None:
            columns = columns.among([node])
        doubtful = set[str]()
        for state in refusing.nodes:
            if _is_same(view.nodes.get(state.root_id), state):
                doubtful.add(state.name)
        usable = columns.without(doubtful) if doubtful else columns
        unplaced: dict[str, Refusal] = {}
        ranked = self.active.spread(ranking.best_first(usable))
        place = best_place(ranked, incoming, document, unplaced)
        if place is None:
            differ = {name: _INVENTORIES_DIFFER for name in doubtful if name in columns.by_name}
            refusals = {**ranking.refusals(columns), **unplaced, **differ}
            raise Unschedulable(refusals, explain_pod(ranking.shape, columns, refusals))
        return place


def columns_without(
    view: ClusterSnapshot, leaving: Sequence[StoredPod], late: Sequence[Waiting] = ()
) -> NodeColumns:
    """Return the nodes as they are without these pods, and without reservations that have expired.

    `late` have waited too long: reads leave them out; to place a pod they are released first.
    """
    ending = due_on(view.reserved) if view.reserved else ()
    if not (leaving or late or ending):
        return view.columns
    gone = [(pod.root_id, consumer_of(pod)) for pod in leaving]
    gone += [(each.root_id, each.reservation.consumer) for each in ending]
    gone += [(each.node.root_id, each.pod.consumer) for each in late]
    consumers, nodes = frozenset(consumer for _, consumer in gone), view.nodes
    roots = {root_id for root_id, _ in gone if root_id is not None and root_id in nodes}
    return view.columns.updated(nodes[root_id].without(consumers) for root_id in roots)
