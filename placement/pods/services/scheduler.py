"""The scheduler: it decides where pods go, and writes the decisions, for one pod or for many of one call.

Pods are decided one after another, each on the nodes as the pods before it leave them, and are written in one
transaction. The nodes are locked before anything is written, and if one of them has changed since the
snapshot, all is decided again. So no node gives more than it has, and every decision sees all commits from
before the call. Pods that require something of others, and gangs, may concern all pods. They are decided
while no other pod can come to the cluster.

A pod alone may be here already, or replace others. Such a pod in a call of many is placed alone afterwards.
So is each pod if others get in the way repeatedly, but gangs stay together.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import count
from operator import attrgetter
from typing import Any, NamedTuple

from placement.allocations.claim_metrics import count_refused
from placement.common.gang import Gang
from placement.common.manifest import ManifestError
from placement.engine.domain.errors import BadRequest, Conflict, PlacementError, Unavailable
from placement.engine.numa.host import Refusal
from placement.metrics.catalog import CLAIMS
from placement.pods.decide import gangs
from placement.pods.decide.reading import PodDocument, import_pod, reading_of
from placement.pods.decide.reservation_ends import due_on
from placement.pods.manifests.affinity import may_keep_off, may_require
from placement.pods.manifests.undecided import refuse_undecided
from placement.pods.services import place_choice, placing
from placement.pods.services.running_pods import new_arrival, record, record_known, repeated_reports
from placement.pods.state.model import PodSpec
from placement.pods.state.node_info import NodeInfo
from placement.pods.store import statements
from placement.pods.store import writer as store_writer
from placement.pods.store.answers import PodAnswer, PodPlacement
from placement.pods.store.cache import ClusterCache, ClusterSnapshot
from placement.pods.store.rows import consumer_of, is_claim, waits
from placement.pods.store.statements import StoredPod
from placement.providers.statements import clusters
from placement.storage.database import Database, Transaction, retry_until_deadline
from placement.storage.failures import Faster

# At most this number of pods is decided and written together.
_AT_ONCE = 200
# They are tried together this number of times; then each is placed alone, or with its gang.
_TRIES_TOGETHER = 3


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
    freed: Sequence[gangs.Waiting] = ()


PodOutcome = PlacementResult | PlacementError
"""The result of placing a pod, or the error that refused it."""

_NAMESPACE = attrgetter("document.namespace")
_Decided = tuple[store_writer.PodMoves, dict[int, PodOutcome]]
"""Moves to write, and the outcome of each pod by its number once they are written."""


class PodScheduler:
    """The scheduler: it gives places to pods that look for one, and records pods where they run."""

    def __init__(
        self, database: Database, cluster_cache: ClusterCache, writer: store_writer.PodWriter
    ) -> None:
        self._database = database
        self._cluster_cache = cluster_cache
        self._writer = writer
        self._choice = place_choice.PlaceChoice()
        self._trial: tuple[object, dict[str, Mapping[str, Refusal]]] = None, {}

    # -- one pod --------------------------------------------------------------------------------------

    def place(
        self, cluster: str, document: PodDocument, node_name: str | None = None, *, may_wait: bool = False
    ) -> PlacementResult:
        """Place a pod or a reservation, on one node if it is given, or record where it runs.

        A repeated request, with the uid and demands of before, returns the place from before. Another pod of
        that name is replaced. `may_wait`: if too few of its gang have places, it takes its own and waits for
        the others. Raises NotFound for the cluster, ManifestError with everything that is wrong, BadRequest,
        Unschedulable, Conflict, Unavailable.
        """
        if document.host or document.has_ended:
            return retry_until_deadline(partial(self._record, cluster, document))
        kind = "pod" if document.keeps is None else "reservation"
        # Two requests at once: p-1 and p-2 are both decided on node-1, which has 4 CPUs left. The first one
        # that writes stamps node-1. The other one finds that stamp, raises NodeChanged, and starts again with
        # a new snapshot, in which these CPUs have their owner.
        request = place_choice.PlacementRequest(
            document, node_name, place_choice.RefusingNodes(), may_wait=may_wait
        )
        try:
            result = retry_until_deadline(lambda: self._place(cluster, request))
        except PlacementError as error:
            count_refused(kind, error)
            raise
        CLAIMS.labels(kind, "won" if result.is_placed else "repeated").inc()
        return result

    def report_known(self, cluster: str, manifests: Iterable[Mapping[str, Any]]) -> None:
        """Record running pods of one node as they are by now, if they are recorded there with their uids.

        A caller that read a pod a moment ago must not bring back one that was released since: no later
        event would release it again. All are written in one transaction; a pod that cannot be read stays as
        it is. Raises NotFound for the cluster, Conflict, Unavailable.
        """
        documents: list[PodDocument] = []
        for manifest in manifests:
            with suppress(BadRequest):
                documents.append(PodDocument.whole(cluster, manifest))
        namespaces = sorted({each.namespace for each in documents})

        def once() -> None:
            snapshot = self._cluster_cache.snapshot(cluster)
            attributes = self._writer.register_attributes(snapshot.facts, namespaces)
            with self._database.write() as transaction:
                record_known(transaction, self._writer, snapshot, documents, attributes)

        if documents:
            retry_until_deadline(once)

    def _record(self, cluster: str, document: PodDocument) -> PlacementResult:
        """Record where a pod runs, or that it has ended."""
        snapshot = self.expire_and_snapshot(cluster)
        attributes = self._writer.register_attributes(snapshot.facts, [document.namespace])
        with self._database.write() as transaction:
            is_new, answer = record(transaction, self._writer, snapshot, document, attributes)
        return PlacementResult(is_new=is_new, is_placed=False, answer=answer)

    def _place(self, cluster: str, request: place_choice.PlacementRequest) -> PlacementResult:
        """Place one pod, or return the place that it has, by the steps of placement/pods/README.md.

        Raises NodeChanged if the caller should start again: other pods were written since step 1.
        """
        # 1. Snapshot: all nodes as they are now.
        snapshot = self.expire_and_snapshot(cluster)
        # Most pods are new: they are decided, and on PostgreSQL written, before their rows are looked up.
        pod, choice = self._read_new(snapshot, request.document), None
        if pod is not None:
            # 2. Filter, 3. score, 4. look and 5. reserve: the steps of the choice.
            choice = self._choice.best(snapshot, request, pod)
            if isinstance(choice, PodPlacement) and self._may_be_one_statement(pod, choice):
                # 6. Commit: one statement, which the stamp of the node admits.
                result = self._write_new(snapshot, choice)
                if result is not None:
                    return result
        return self._place_step_by_step(snapshot, request, pod, choice)

    def _place_step_by_step(
        self,
        snapshot: ClusterSnapshot,
        request: place_choice.PlacementRequest,
        pod: PodSpec | None,
        choice: PodPlacement | place_choice.NoPlace | None,
    ) -> PlacementResult:
        """Place a pod that one statement did not write, step by step from step 2 on; or return its place.

        `pod` and `choice` are what step 2 to 5 brought if it seemed to be new. Raises as `_place` does.
        """
        document = request.document
        # A repeated request returns the place from before.
        known_pods = self.known_pods(
            snapshot, store_writer.PodKey(document.namespace, document.name, document.uid)
        )
        stored_pod = placing.same_pod(known_pods, document) if known_pods else None
        if stored_pod is not None:
            result = self._repeated(snapshot, document, stored_pod, request.node_name)
            if result is not None:
                return result
        if pod is None or stored_pod is not None:
            pod = _read(document, stored_pod, snapshot)
        # 2. Filter, 3. score, 4. look and 5. reserve: again if known pods leave.
        if choice is None or known_pods:
            choice = self._choice.best(snapshot, request, pod, known_pods)
        if isinstance(choice, place_choice.NoPlace):
            raise place_choice.Unschedulable(choice)
        # 6. Commit: carried out only if the node is as in the snapshot.
        moves = store_writer.PodMoves([choice], known_pods)
        if not _concerns_all(document, pod):
            return _result(choice, known_pods, self._commit(snapshot, moves, request.refusing, 1))
        # Two requests at once, for a-0 and a-1 that keep each other out of their zone: one is decided on
        # node-1, the other on node-2 in the same zone. Neither node has changed, and both would be written.
        # So such a pod is decided again, on a snapshot that is taken while no other pod can come.
        decide = partial(self._decide_alone, request, pod, known_pods)
        outcome = self._commit_alone(snapshot, [document], moves, decide, request.refusing)[0]
        assert isinstance(outcome, PlacementResult)
        return outcome

    def _read_new(self, snapshot: ClusterSnapshot, document: PodDocument) -> PodSpec | None:
        """Return the requests of a new pod; None if its name may be known, or if it has errors."""
        if not self._cluster_cache.may_be_new(snapshot.facts.id, (document.namespace, document.name)):
            return None
        try:
            return reading_of(document.manifest, snapshot.facts.settings)
        except ManifestError:
            return None

    def _may_be_one_statement(self, pod: PodSpec, placement: PodPlacement) -> bool:
        """Return whether the database has a statement for new pods, and the pod concerns only its node."""
        if placement.ending is not None or not self._database.backend.has_pod_statement:
            return False
        return not _concerns_all(placement.document, pod)

    def _write_new(self, snapshot: ClusterSnapshot, placement: PodPlacement) -> PlacementResult | None:
        """Write a pod in one statement as new; None if it is not, or if the statement does not suit it."""
        attributes = self._writer.register_attributes(snapshot.facts, [placement.document.namespace])
        with self._choice.active.taking(placement.node.root_id):
            written_at = self._writer.place_at_once(snapshot, placement, attributes)
        return None if written_at is None else _result(placement, (), written_at)

    def _repeated(
        self,
        snapshot: ClusterSnapshot,
        document: PodDocument,
        stored_pod: StoredPod,
        node_name: str | None,
    ) -> PlacementResult | None:
        """Return the place that a stored pod has, None if it has none or asks for something else by now."""
        if stored_pod.node is None or waits(stored_pod):
            return None
        if node_name not in (None, stored_pod.node) and document.keeps is None:
            # It may be on its way there: a caller that means to move it releases that place first.
            answer = placing.pod_answer(snapshot.nodes, stored_pod)
            return PlacementResult(is_new=False, is_placed=False, answer=answer, before=stored_pod.changed_at)
        if placing.asks_for_the_same(
            stored_pod, _read(document, stored_pod, snapshot), snapshot.facts.settings
        ):
            return self._renewed(snapshot, stored_pod, node_name)
        return None

    def _renewed(
        self, snapshot: ClusterSnapshot, stored_pod: StoredPod, node_name: str | None
    ) -> PlacementResult:
        """Renew the claim for a repeated request: the place is still wanted, and the claim is its own now."""
        before = stored_pod.changed_at
        if node_name == stored_pod.node or (node_name is None and is_claim(stored_pod)):
            with self._database.write() as transaction:
                self._writer.renew(transaction, snapshot.facts, stored_pod)
            stored_pod = stored_pod._replace(changed_at=transaction.now)
        answer = placing.pod_answer(snapshot.nodes, stored_pod)
        return PlacementResult(is_new=False, is_placed=False, answer=answer, before=before)

    def _decide_alone(
        self,
        request: place_choice.PlacementRequest,
        pod: PodSpec,
        known_pods: Sequence[StoredPod],
        snapshot: ClusterSnapshot,
    ) -> _Decided:
        """Decide again where one pod goes, with its gang, while no other pod can come to the cluster.

        Raises NodeChanged if it fits nowhere any more, GangWaits if its gang is too few and it may not wait.
        """
        placement = self._choice.best(snapshot, request, pod, known_pods)
        if isinstance(placement, place_choice.NoPlace):
            raise store_writer.NodeChanged("Other pods came first.")
        freed: Sequence[gangs.Waiting] = ()
        words = ""
        if pod.gang is not None:
            gone = set(map(consumer_of, known_pods))
            status = gangs.standing_of(snapshot.columns, pod.gang, [placement.recorded.membership], gone)
            if status.is_whole:
                freed = status.waiting
            elif request.may_wait:
                placement, words = _waiting(placement, status.until), str(status)
            else:
                why = f"with it, {status.lacking_members}, and there are places for these"
                raise _without_gang(request.document, why)
        result = _result(placement, known_pods)._replace(waits=words, freed=freed)
        return store_writer.PodMoves([placement], known_pods, freed=freed), {0: result}

    def known_pods(self, snapshot: ClusterSnapshot, key: store_writer.PodKey) -> list[StoredPod]:
        """Return pods of that name or uid."""
        with self._database.read() as connection:
            return statements.namesakes(connection, snapshot.facts.id, *key)

    # -- many pods ------------------------------------------------------------------------------------

    def put_all(
        self, cluster: str, manifests: Sequence[Mapping[str, Any]], *, strict: bool = False
    ) -> list[PodOutcome]:
        """Place pods, or record where they run if they name a node; return the outcome of each.

        Their names are in the manifests. `strict`: new pods that ask for what is not decided are refused.
        Some hundreds at a time are written in one transaction. Raises NotFound for the cluster, Unavailable
        if no pod was placed; otherwise Unavailable is the outcome of the pods that are left.
        """
        outcomes: dict[int, PodOutcome] = {}
        documents: dict[int, PodDocument] = {}
        for number, manifest in enumerate(manifests):
            try:
                document = PodDocument.whole(cluster, manifest)
                if strict:
                    check_decided(document)
                documents[number] = document
            except BadRequest as error:
                outcomes[number] = error
        try:
            for portion in gangs.in_portions(documents, _AT_ONCE):
                self._put(cluster, portion, outcomes)
        except Unavailable as error:
            if not any(isinstance(outcome, PlacementResult) for outcome in outcomes.values()):
                raise
            outcomes |= {number: error for number in documents if number not in outcomes}
        return [outcomes[number] for number in range(len(manifests))]

    def _put(
        self, cluster: str, documents: Mapping[int, PodDocument], outcomes: dict[int, PodOutcome]
    ) -> None:
        """Put some pods, and note the outcome of each as soon as it is known."""
        snapshot, reported = None, _reported_together(documents)
        if reported:
            snapshot = self.expire_and_snapshot(cluster)
            reports = self._stay(snapshot, reported)
            outcomes |= {
                number: PlacementResult(is_new=False, is_placed=False, answer=report.answer)
                for number, report in reports.items()
            }
            if any(report.is_counted_anew for report in reports.values()):
                # Pods with other labels have stamped their nodes.
                snapshot = None
            documents = {number: each for number, each in documents.items() if number not in outcomes}
        units = list(gangs.placed_together(documents))
        if len(units) > 1:
            self._try_together(cluster, documents, outcomes, _TRIES_TOGETHER, snapshot)
        for gang, members in units:
            left = {number: document for number, document in members.items() if number not in outcomes}
            if left and (gang is not None or len(units) == 1):
                self._try_together(cluster, left, outcomes)
            for number, document in left.items():
                if number not in outcomes:
                    try:
                        outcomes[number] = self.place(cluster, document)
                    except (BadRequest, Conflict) as error:
                        outcomes[number] = error

    def _stay(
        self, snapshot: ClusterSnapshot, documents: Mapping[int, PodDocument]
    ) -> dict[int, store_writer.PodReport]:
        """Record running pods that keep what they hold, and return these; others have to be recorded anew.

        Pods that were placed here before they were bound stay so, as by the scheduler extender. If none of
        the pods is known, the database is not asked. Raises Unavailable.
        """
        known = {
            number: document
            for number, document in documents.items()
            if document.host in snapshot.by_name
            and not self._cluster_cache.may_be_new(snapshot.facts.id, (document.namespace, document.name))
        }

        def once() -> dict[int, store_writer.PodReport]:
            with self._database.write() as transaction:
                reports = repeated_reports(transaction, snapshot, known)
                self._writer.stay(transaction, snapshot.facts, reports.values())
            return reports

        return retry_until_deadline(once) if known else {}

    def _try_together(
        self,
        cluster: str,
        documents: Mapping[int, PodDocument],
        outcomes: dict[int, PodOutcome],
        most: int | None = None,
        snapshot: ClusterSnapshot | None = None,
    ) -> None:
        """Put some pods together, unless others get in the way `most` times; note their outcomes.

        The first try is on the snapshot, if one was taken just now.
        """
        refusing, tries = place_choice.RefusingNodes(), count(1)
        looks = [] if snapshot is None else [snapshot]

        def once() -> dict[int, PodOutcome]:
            try:
                now = looks.pop() if looks else self.expire_and_snapshot(cluster)
                return self._together(now, documents, refusing)
            except store_writer.NodeChanged as changed:
                if next(tries) == most:
                    raise Conflict(str(changed)) from changed
                raise

        # A node or a consumer refused: placing each pod alone finds out which pod that concerns.
        with suppress(Conflict):
            outcomes |= retry_until_deadline(once)

    def _together(
        self,
        snapshot: ClusterSnapshot,
        documents: Mapping[int, PodDocument],
        refusing: place_choice.RefusingNodes,
    ) -> dict[int, PodOutcome]:
        """Return the outcomes of pods that are not over, with names and uids that are not known.

        `refusing` nodes take none, and any that refuses is added. Raises NodeChanged, Conflict, NotFound,
        Unavailable.
        """
        names = {(each.namespace, each.name) for each in documents.values()}
        with self._database.read() as connection:
            uids = {each.uid for each in documents.values()}
            known_pods = statements.any_namesakes(connection, snapshot.facts.id, names, uids)
        new = placing.without_namesakes(documents, known_pods)
        fresh = {number: document for number, document in new.items() if not document.has_ended}
        decide = partial(self._decide_gangs, fresh, refusing)
        outcomes: dict[int, PodOutcome]
        if any(map(_may_concern_all, fresh.values())):
            outcomes = self._commit_alone(
                snapshot, fresh.values(), store_writer.PodMoves(), decide, refusing, gives_up=True
            )
        else:
            moves, outcomes = decide(snapshot)
            if moves.placements:
                written_at = self._commit(snapshot, moves, refusing, len(fresh), gives_up=True)
                outcomes = _dated(outcomes, written_at)
        for number, outcome in outcomes.items():
            if documents[number].host:
                continue
            if isinstance(outcome, PlacementError):
                count_refused("pod", outcome)
            else:
                CLAIMS.labels("pod", "won").inc()
        return outcomes

    def refused_of_gang(
        self, cluster: str, gang: Gang, documents: Sequence[PodDocument]
    ) -> dict[str, Mapping[str, Refusal]]:
        """Return the members that have no room beside the members before them, if too few have room.

        The result has, by uid, why each node refuses the member; nothing is claimed, but pods that waited too
        long are released. It is empty if the gang would be whole, or if too few members are given to tell.
        Raises NotFound for the cluster, Unavailable.
        """
        snapshot = self.expire_and_snapshot(cluster)
        # kube-scheduler asks for one member after another, while nothing changes.
        key, (known, refused) = (snapshot.columns, gang, documents), self._trial
        if known == key:
            return refused
        refused = {}
        coming = [each for each in documents if not self._cluster_cache.may_have(snapshot, [each.uid])]
        if gangs.standing_of(snapshot.columns, gang).counts.get(gang.name, 0) + len(coming) >= gang.least:
            _, errors, after = self._decide_in_turn(
                snapshot, dict(enumerate(coming)), place_choice.RefusingNodes()
            )
            if not gangs.standing_of(after.columns, gang).is_whole:
                refused = {
                    coming[number].uid: error.refusals
                    for number, error in errors.items()
                    if isinstance(error, place_choice.Unschedulable)
                }
        self._trial = key, refused
        return refused

    def _decide_gangs(
        self,
        documents: Mapping[int, PodDocument],
        refusing: place_choice.RefusingNodes,
        snapshot: ClusterSnapshot,
    ) -> _Decided:
        """Decide where pods go, one after another; of gangs that are placed together enough, or none."""
        placements: dict[int, PodPlacement] = {}
        outcomes: dict[int, PodOutcome] = {}
        freed: list[gangs.Waiting] = []
        after = snapshot
        for gang, members in gangs.placed_together(documents):
            tried, errors, then = self._decide_in_turn(after, members, refusing)
            if gang is not None:
                memberships = [each.recorded.membership for each in (*placements.values(), *tried.values())]
                status = gangs.standing_of(snapshot.columns, gang, memberships)
                if status.is_whole:
                    freed += status.waiting
                else:
                    tried, errors = {}, _refused_members(members, status, errors)
            outcomes |= errors
            if tried:
                placements |= tried
                after = then
        outcomes |= {number: _result(placement) for number, placement in placements.items()}
        nodes = [placement.node for placement in placements.values()] + [each.node for each in freed]
        decided = {node.root_id: after.nodes[node.root_id] for node in nodes}
        return store_writer.PodMoves(list(placements.values()), freed=freed, decided=decided), outcomes

    def _decide_in_turn(
        self,
        snapshot: ClusterSnapshot,
        documents: Mapping[int, PodDocument],
        refusing: place_choice.RefusingNodes,
    ) -> tuple[dict[int, PodPlacement], dict[int, PlacementError], ClusterSnapshot]:
        """Return the places of new pods, the errors of others, and the snapshot with these pods placed."""
        placements: dict[int, PodPlacement] = {}
        errors: dict[int, PlacementError] = {}
        for number, document in documents.items():
            try:
                if document.host:
                    choice: PodPlacement | place_choice.NoPlace = new_arrival(snapshot, document)
                else:
                    choice = self._choice.best(
                        snapshot, place_choice.PlacementRequest(document, None, refusing)
                    )
            except BadRequest as error:
                errors[number] = error.with_traceback(None)
                continue
            if isinstance(choice, place_choice.NoPlace):
                errors[number] = place_choice.Unschedulable(choice)
                continue
            placements[number] = choice
            snapshot = snapshot.with_node(_with_placement(snapshot, choice))
        return placements, errors, snapshot

    # -- what has ended by now ------------------------------------------------------------------------

    def expire_and_snapshot(self, cluster: str) -> ClusterSnapshot:
        """Return the cluster as it is now: nothing in it has expired, no pod waits too long for its gang.

        Raises NotFound, Unavailable.
        """
        snapshot = self._cluster_cache.snapshot(cluster)
        if snapshot.waiting and gangs.overdue(snapshot.waiting):
            self.release_waiting(cluster)
            snapshot = self._cluster_cache.snapshot(cluster)
        if snapshot.reserved and due_on(snapshot.reserved):
            retry_until_deadline(lambda: self._release(self._cluster_cache.snapshot(cluster)))
            snapshot = self._cluster_cache.snapshot(cluster)
        return snapshot

    def release_waiting(self, cluster: str, gang: Gang | None = None) -> None:
        """Release the pods that wait for the gang, without one all that wait too long.

        Raises NotFound, Unavailable.
        """

        def once() -> None:
            snapshot = self._cluster_cache.snapshot(cluster)
            if snapshot.waiting and gang is not None:
                self._give_up(snapshot, gangs.standing_of(snapshot.columns, gang).waiting)
            elif snapshot.waiting:
                self._give_up(snapshot, gangs.overdue(snapshot.waiting))

        retry_until_deadline(once)

    def _give_up(self, snapshot: ClusterSnapshot, waiting: Sequence[gangs.Waiting]) -> None:
        """Release the pods that still wait as they did, all of them at once. Raises NodeChanged, Unavailable.

        A pod that was bound again meanwhile, and waits anew with a later end, stays.
        """
        if not waiting:
            return
        attributes = self._writer.register_attributes(snapshot.facts)
        with self._database.write() as transaction:
            locked = self._writer.lock(transaction, snapshot, {each.node.root_id for each in waiting})
            now = {pod.uid: pod for node in locked.nodes.values() for pod in node.waiting}
            before = {each.pod.uid: each.pod.membership for each in waiting}
            still = {uid for uid, pod in now.items() if uid in before and pod.membership == before[uid]}
            rows = statements.any_namesakes(transaction, snapshot.facts.id, (), still)
            self._writer.commit(
                transaction,
                locked,
                attributes,
                store_writer.PodMoves(leaving_pods=rows, revives_reservations=True),
            )

    def _release(self, snapshot: ClusterSnapshot) -> None:
        """Release the reservations that have expired. Raises NodeChanged, Unavailable."""
        if due := due_on(snapshot.reserved):
            attributes = self._writer.register_attributes(snapshot.facts)
            with self._database.write() as transaction:
                locked = self._writer.lock_unchanged(transaction, snapshot, {each.root_id for each in due})
                self._writer.commit(transaction, locked, attributes, store_writer.PodMoves(endings=due))

    # -- the last step of both ------------------------------------------------------------------------

    def _commit(
        self,
        snapshot: ClusterSnapshot,
        moves: store_writer.PodMoves,
        refusing: place_choice.RefusingNodes,
        asked: int,
        *,
        gives_up: bool = False,
    ) -> datetime.datetime:
        """Write moves that were decided on the snapshot for `asked` pods, and return when.

        Raises the error of the writer, or what `_error_after` makes of it.
        """
        facts = snapshot.facts
        attributes = self._writer.register_attributes(facts, set(map(_NAMESPACE, moves.placements)))
        try:
            with self._database.write() as transaction:
                self._write(transaction, snapshot, moves, attributes, checks_rules=True)
        except (store_writer.NodeChanged, store_writer.ProviderGone, Faster) as error:
            other = self._error_after(error, snapshot, moves, refusing, asked, gives_up=gives_up)
            if other is None:
                raise
            raise other from error
        return transaction.now

    def _commit_alone(
        self,
        snapshot: ClusterSnapshot,
        documents: Collection[PodDocument],
        decided_before: store_writer.PodMoves,
        decide: Callable[[ClusterSnapshot], _Decided],
        refusing: place_choice.RefusingNodes,
        *,
        gives_up: bool = False,
    ) -> dict[int, PodOutcome]:
        """Decide while no other pod can come to the cluster, write that, and return the outcomes.

        `decided_before` was decided on the snapshot. Raises as `_commit` does, and as `decide`.
        """
        facts, now, moves = snapshot.facts, snapshot, decided_before
        attributes = self._writer.register_attributes(facts, {each.namespace for each in documents})
        try:
            with self._database.write() as transaction:
                clusters.lock_alone(transaction, facts.id)
                now = self._cluster_cache.snapshot(facts.name)
                if now.facts != facts:
                    raise store_writer.NodeChanged("The cluster changed meanwhile.")
                moves, outcomes = decide(now)
                if moves.placements:
                    self._write(transaction, now, moves, attributes, checks_rules=False)
        except (store_writer.NodeChanged, store_writer.ProviderGone, Faster) as error:
            other = self._error_after(error, now, moves, refusing, len(documents), gives_up=gives_up)
            if other is None:
                raise
            raise other from error
        return _dated(outcomes, transaction.now)

    def _write(
        self,
        transaction: Transaction,
        snapshot: ClusterSnapshot,
        moves: store_writer.PodMoves,
        attributes: store_writer.PodAttributes,
        *,
        checks_rules: bool,
    ) -> None:
        """Lock the nodes, check that they and the pods are as they were, and write. Raises NodeChanged."""
        keys, roots = list[store_writer.PodKey](), set[int]()
        for placement in moves.placements:
            document = placement.document
            keys.append(store_writer.PodKey(document.namespace, document.name, document.uid))
            roots.add(placement.node.root_id)
        for waiting in moves.freed:
            roots.add(waiting.node.root_id)
        for pod in moves.leaving_pods:
            if pod.root_id is not None:
                roots.add(pod.root_id)
        locked = self._writer.lock_unchanged(transaction, snapshot, roots, checks_rules=checks_rules)
        self._writer.check_namesakes(transaction, snapshot.facts, keys, moves.leaving_pods)
        self._writer.commit(transaction, locked, attributes, moves)

    def _error_after(
        self,
        error: store_writer.NodeChanged | store_writer.ProviderGone | Faster,
        snapshot: ClusterSnapshot,
        moves: store_writer.PodMoves,
        refusing: place_choice.RefusingNodes,
        asked: int,
        *,
        gives_up: bool,
    ) -> PlacementError | store_writer.NodeChanged | None:
        """Note the nodes that refused moves, and return the error to raise for that of the writer.

        It is NodeChanged where the caller shall try others. It is Conflict if a node refuses that did so
        before, or clashes twice and the caller `gives_up`. It is None if the error of the writer stands.
        """
        if isinstance(error, store_writer.NodeRefused | store_writer.ProviderGone):
            # It may be one where only members that waited are freed.
            nodes = snapshot.nodes.values()
            refused = next((node for node in nodes if node.id == error.node_id), None)
            if refused is None:
                return None
            if refused in refusing.nodes:
                # Pods that run there are recorded whatever the node says, so trying again does not help.
                return Conflict(str(error))
            # If the node is the same in the next snapshot, it will refuse for good.
            refusing.nodes.add(refused)
            return store_writer.NodeChanged(str(error))
        if isinstance(error, Faster):
            tried = [snapshot.nodes[each.node.root_id] for each in moves.placements]
            if refusing.note_clash(tried) or not gives_up:
                return store_writer.NodeChanged(str(error))
            return Conflict(str(error))
        if asked == 1:
            # Another process was faster at this node, so the next pod goes to any of its equals.
            self._choice.active.lost()
        return None


def check_decided(document: PodDocument) -> None:
    """Raise ManifestError if a pod looks for a place and asks for what is not decided here."""
    if not (document.host or document.has_ended):
        refuse_undecided(document.manifest)


def _reported_together(documents: Mapping[int, PodDocument]) -> dict[int, PodDocument]:
    """Return the running pods that keep no others off: reports of these may be written together."""
    return {
        number: document
        for number, document in placing.without_namesakes(documents).items()
        if document.host and not document.has_ended and not may_keep_off(document.manifest)
    }


def _read(document: PodDocument, stored_pod: StoredPod | None, snapshot: ClusterSnapshot) -> PodSpec:
    """Return the requests of a pod; `stored_pod` is the pod before an update. Raises ManifestError."""
    former = None if stored_pod is None else stored_pod.manifest
    return import_pod(document.manifest, snapshot.facts.settings, former)


def _concerns_all(document: PodDocument, pod: PodSpec) -> bool:
    """Return whether a pod requires something of other pods, or is of a gang; a reservation never does."""
    return document.keeps is None and (pod.rules.refuse or pod.gang is not None)


def _may_concern_all(document: PodDocument) -> bool:
    """Return whether a pod may keep pods off, or else, if it does not run, needs some or is of a gang."""
    if document.host:
        return may_keep_off(document.manifest)
    return may_require(document.manifest) or gangs.gang_to_place(document) is not None


def _with_placement(snapshot: ClusterSnapshot, placement: PodPlacement) -> NodeInfo:
    """Return the node with the pod on it, without the reservation that the pod uses up."""
    node = snapshot.nodes[placement.node.root_id]
    if placement.ending is not None:
        node = node.without(frozenset((placement.ending.reservation.consumer,)))
    return node.with_pod(placement.recorded)


def _result(
    placement: PodPlacement,
    known_pods: Sequence[StoredPod] = (),
    written_at: datetime.datetime | None = None,
) -> PlacementResult:
    """Return the result for a pod that gets its place; known pods, with its name or uid, leave.

    `written_at` is when it was written, None if that is still to come.
    """
    document, answer = placement.document, placement.answer
    if document.host:
        return PlacementResult(is_new=True, is_placed=False, answer=answer)
    if written_at is not None:
        answer = replace(answer, changed_at=written_at.isoformat())
    if not known_pods:
        return PlacementResult(is_new=True, is_placed=True, answer=answer)
    before = (pod.changed_at for pod in known_pods if pod.uid == document.uid and pod.node is not None)
    answer = placing.with_moves(answer, known_pods)
    return PlacementResult(is_new=False, is_placed=True, answer=answer, before=next(before, None))


def _dated(outcomes: Mapping[int, PodOutcome], written_at: datetime.datetime) -> dict[int, PodOutcome]:
    """Return the outcomes with the time at which pods were given their places."""
    dated = dict(outcomes)
    for number, outcome in outcomes.items():
        if isinstance(outcome, PlacementResult) and outcome.is_placed:
            answer = replace(outcome.answer, changed_at=written_at.isoformat())
            dated[number] = outcome._replace(answer=answer)
    return dated


def _waiting(placement: PodPlacement, until: datetime.datetime) -> PodPlacement:
    """Return the place of a member that waits there for its gang."""
    assert placement.recorded.membership is not None
    membership = replace(placement.recorded.membership, waits_until=until)
    return replace(placement, recorded=replace(placement.recorded, membership=membership))


def _refused_members(
    members: Mapping[int, PodDocument], status: gangs.GangStatus, errors: Mapping[int, PlacementError]
) -> dict[int, PlacementError]:
    """Return the error of each member of a gang with too few places; members without a place keep theirs."""
    why = f"there are places for {status}"
    if not errors:
        why = f"{status.lacking_members}, and there are places for these"
    return {number: errors.get(number) or _without_gang(each, why) for number, each in members.items()}


def _without_gang(document: PodDocument, why: str) -> gangs.GangWaits:
    return gangs.GangWaits(f"Pod {document.full_name} is not placed without its gang: {why}.")
