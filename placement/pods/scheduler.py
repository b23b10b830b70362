"""The scheduler: it decides where pods go, and writes that, for one pod as for many of one call.

Pods are decided one after another, each on the nodes as the pods before it leave them, and are written in one
transaction. The nodes are locked before anything is written, and if one of them has changed since the
snapshot, all is decided again. So no node is given away beyond what it has, and every decision sees at least
what was committed when the call began. What a pod requires of others, and a gang, may concern all pods:
these are decided while no other pod can come to the cluster.

A pod alone may be here already, replace others, or use up a reservation. Such a pod in a call of many is done
by itself afterwards. So is each pod if others get in the way repeatedly, but gangs stay together.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from operator import attrgetter
from typing import Any, NamedTuple

from placement.allocations.claims import count_refused, count_repeated, count_won
from placement.common.gang import Gang
from placement.common.manifest import ManifestError
from placement.engine.domain.errors import BadRequest, Conflict, PlacementError, Unavailable
from placement.engine.numa.host import Refusal
from placement.pods import gangs, statements
from placement.pods.cache import ClusterCache, ClusterSnapshot
from placement.pods.manifests.affinity import may_keep_off, may_require
from placement.pods.model import PodSpec
from placement.pods.placing import (
    PlaceChoice,
    Refusing,
    Unschedulable,
    asks_for_the_same,
    pod_answer,
    same_pod,
    with_moves,
    without_namesakes,
)
from placement.pods.reading import PodDocument, import_pod, reading_of
from placement.pods.rows import PodAnswer, PodPlacement, consumer_of, is_claim, waits
from placement.pods.running_pods import new_arrival, record, record_known, repeated_arrivals
from placement.pods.statements import StoredPod
from placement.pods.writer import (
    NodeChanged,
    NodeRefused,
    PodAttributes,
    PodKey,
    PodMoves,
    PodWriter,
    ProviderGone,
)
from placement.providers.statements import clusters
from placement.storage.database import Database, Transaction, retry_until_deadline
from placement.storage.failures import Faster

# So many pods are decided and written together.
_AT_ONCE = 200
# So often they are decided together before each comes by itself, or with its gang.
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
"""What became of a pod, or why it was refused."""


@dataclass(slots=True)
class _Batch:
    """The decisions about pods that are written together; `after` is the cluster with the arrivals.

    `refusing` nodes refused pods before, and take none; `leaving` are rows that a pod alone replaces.
    `refused` pods fit nowhere or are wrong. `freed` are pods that waited for others of their gangs and need
    not any longer, `waits` says how many of its gang have places if a pod alone waits. `at` is when they were
    written. `concerns_all`: a pod alone requires something of others, or is of a gang.
    """

    before: ClusterSnapshot
    refusing: Refusing
    after: ClusterSnapshot
    leaving: Sequence[StoredPod] = ()
    arrivals: dict[int, PodPlacement] = field(default_factory=dict)
    refused: dict[int, PlacementError] = field(default_factory=dict)
    freed: list[gangs.Waiting] = field(default_factory=list)
    waits: str = ""
    at: datetime.datetime | None = None
    concerns_all: bool = False


class PodScheduler:
    """A scheduler that gives places to pods that look for one, and records pods where they run."""

    def __init__(self, database: Database, cluster_cache: ClusterCache, writer: PodWriter) -> None:
        self._database = database
        self._cluster_cache = cluster_cache
        self._writer = writer
        self._choice = PlaceChoice()
        self._trial: tuple[object, dict[str, Mapping[str, Refusal]]] = None, {}

    # -- one pod --------------------------------------------------------------------------------------

    def place(
        self, cluster: str, document: PodDocument, node: str | None = None, *, may_wait: bool = False
    ) -> PlacementResult:
        """Place a pod or a reservation, on one node if it is given, or record where it runs.

        A repeated request, with the uid and demands of before, returns what the pod has. Another pod of that
        name is replaced. `may_wait`: if too few of its gang have places, it takes its own and waits for the
        others. Raises NotFound for the cluster, ManifestError with everything that is wrong, BadRequest,
        Unschedulable, Conflict, Unavailable.
        """
        refusing, is_fact = Refusing(), document.host or document.has_ended

        def once() -> PlacementResult:
            view = self.expire_and_view(cluster)
            if not is_fact:
                return self._place(view, document, node, refusing, may_wait=may_wait)
            recorded = self._record(view, document)
            return PlacementResult(recorded[0], False, recorded[1])

        if is_fact:
            return retry_until_deadline(once)
        kind = "pod" if document.keeps is None else "reservation"
        try:
            taken = retry_until_deadline(once)
        except PlacementError as error:
            count_refused(kind, error)
            raise
        (count_won if taken.is_placed else count_repeated)(kind)
        return taken

    def report_known(self, cluster: str, manifests: Iterable[Mapping[str, Any]]) -> None:
        """Record what running pods of one node say by now, of the ones recorded there with their uids.

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
            view = self._cluster_cache.snapshot(cluster)
            attributes = self._writer.register_attributes(view.facts, namespaces)
            with self._database.write() as transaction:
                record_known(transaction, self._writer, view, documents, attributes)

        if documents:
            retry_until_deadline(once)

    def _record(self, view: ClusterSnapshot, document: PodDocument) -> tuple[bool, PodAnswer]:
        attributes = self._writer.register_attributes(view.facts, [document.namespace])
        with self._database.write() as transaction:
            return record(transaction, self._writer, view, document, attributes)

    def _place(
        self,
        view: ClusterSnapshot,
        document: PodDocument,
        node: str | None,
        refusing: Refusing,
        *,
        may_wait: bool,
    ) -> PlacementResult:
        """Place one pod, or return what it has. Raises NodeChanged if the caller should look again."""
        settings = view.facts.settings
        incoming = batch = None
        if self._cluster_cache.may_be_new(view, (document.namespace, document.name)):
            # Writing a pod as new is refused if it is not new, so no check is needed before.
            with suppress(ManifestError):
                incoming = reading_of(document.manifest, settings)
                batch = self._decide_one(view, document, incoming, node, refusing)
                is_alone = batch.arrivals and not batch.concerns_all
                if is_alone and self._database.backend.has_claim_statement:
                    attributes = self._writer.register_attributes(view.facts, [document.namespace])
                    with self._choice.active.taking(batch.arrivals[0].state.root_id):
                        batch.at = self._writer.place_at_once(view, batch.arrivals[0], attributes)
                    if batch.at is not None:
                        return _result(batch, 0)
        known = self.known(view, PodKey(document.namespace, document.name, document.uid))
        same = same_pod(known, document) if known else None
        has_place = same is not None and same.node is not None and not waits(same)
        if same is not None and has_place and node not in (None, same.node) and document.keeps is None:
            # It may be on its way there: a caller that means to move it releases that place first.
            return PlacementResult(False, False, pod_answer(view.nodes, same), same.changed_at)
        if same is not None or incoming is None:
            incoming = import_pod(document.manifest, settings, same.manifest if same else None)
        if same is not None and has_place and asks_for_the_same(same, incoming, settings):
            return self._renewed(view, same, node)
        if known or batch is None:
            batch = self._decide_one(view, document, incoming, node, refusing, known)
        if batch.arrivals:
            pod = incoming

            def again(now: ClusterSnapshot) -> _Batch:
                decided = self._decide_one(now, document, pod, node, refusing, known)
                if not decided.arrivals:
                    raise NodeChanged("Other pods came first.")
                if pod.gang is not None:
                    _settle_gang(decided, pod.gang, {0: document}, "with it, ", may_wait=may_wait)
                return decided

            batch = self._decide_and_write(batch, [document], again if batch.concerns_all else None)
        if batch.refused:
            # Taken out: an error that its own frame holds lives until the next full collection.
            raise batch.refused.pop(0)
        before = same.changed_at if same is not None and same.node is not None else None
        result = _result(batch, 0)._replace(before=before)
        if batch.leaving:
            result = result._replace(answer=with_moves(result.answer, batch.leaving))
        return result

    def _decide_one(
        self,
        view: ClusterSnapshot,
        document: PodDocument,
        incoming: PodSpec,
        node: str | None,
        refusing: Refusing,
        known: Sequence[StoredPod] = (),
    ) -> _Batch:
        """Decide where one pod goes when the known ones are gone: only on `node`, if it is named."""
        batch = _Batch(view, refusing, view, known)
        # A reservation concerns no other pod.
        batch.concerns_all = document.keeps is None and (incoming.rules.refuse or incoming.gang is not None)
        try:
            batch.arrivals[0] = self._choice.best(view, document, refusing, incoming, node, known)
        except Unschedulable as error:
            batch.refused[0] = error.with_traceback(None)
        return batch

    def _renewed(self, view: ClusterSnapshot, pod: StoredPod, node: str | None) -> PlacementResult:
        """Renew the claim for a repeated request: the place is still wanted, and the claim is its own now."""
        now = pod
        if node == pod.node or (node is None and is_claim(pod)):
            with self._database.write() as transaction:
                self._writer.renew(transaction, view.facts, pod)
            now = pod._replace(changed_at=transaction.now)
        return PlacementResult(False, False, pod_answer(view.nodes, now), pod.changed_at)

    def known(self, view: ClusterSnapshot, sought: PodKey) -> list[StoredPod]:
        """Return pods of that name or uid."""
        with self._database.read() as connection:
            return statements.namesakes(connection, view.facts.id, *sought)

    # -- many pods ------------------------------------------------------------------------------------

    def put_all(self, cluster: str, manifests: Sequence[Mapping[str, Any]]) -> list[PodOutcome]:
        """Place pods, or record where they run if they name a node; return the outcome of each.

        Their names are in the manifests. Some hundreds at a time are written in one transaction. Raises
        NotFound for the cluster, Unavailable if no pod was placed; otherwise Unavailable is the outcome of
        the pods that are left.
        """
        outcomes: dict[int, PodOutcome] = {}
        documents: dict[int, PodDocument] = {}
        for number, manifest in enumerate(manifests):
            try:
                documents[number] = PodDocument.whole(cluster, manifest)
            except BadRequest as error:
                outcomes[number] = error
        try:
            for some in gangs.in_portions(documents, _AT_ONCE):
                self._put(cluster, some, outcomes)
        except Unavailable as error:
            if not any(isinstance(outcome, PlacementResult) for outcome in outcomes.values()):
                raise
            outcomes |= {number: error for number in documents if number not in outcomes}
        return [outcomes[number] for number in range(len(manifests))]

    def _put(
        self, cluster: str, documents: Mapping[int, PodDocument], outcomes: dict[int, PodOutcome]
    ) -> None:
        """Put some pods, and note the outcome of each as soon as it is known."""
        view = None
        reported = {
            number: document
            for number, document in without_namesakes(documents).items()
            if document.host and not document.has_ended and not may_keep_off(document.manifest)
        }
        if reported:
            view = self.expire_and_view(cluster)
            outcomes |= self._stay(view, reported)
            documents = {number: each for number, each in documents.items() if number not in outcomes}
        units = list(gangs.placed_together(documents))
        if len(units) > 1:
            self._try_together(cluster, documents, outcomes, _TRIES_TOGETHER, view)
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
        self, view: ClusterSnapshot, documents: Mapping[int, PodDocument]
    ) -> dict[int, PlacementResult]:
        """Record running pods that stay as they are; each other pod must be looked at by itself.

        That is so for every pod that was placed here before it was bound, as the scheduler extender does. If
        nothing is known of any of them, the database is not asked. Raises Unavailable.
        """
        known = {
            number: document
            for number, document in documents.items()
            if document.host in view.by_name
            and not self._cluster_cache.may_be_new(view, (document.namespace, document.name))
        }

        def once() -> dict[int, PlacementResult]:
            with self._database.write() as transaction:
                arrivals = repeated_arrivals(transaction, view, known)
                self._writer.stay(transaction, view.facts, arrivals.values())
            return {
                number: PlacementResult(False, False, each.answer) for number, (_, each) in arrivals.items()
            }

        return retry_until_deadline(once) if known else {}

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
        refusing, tries = Refusing(), count(1)
        looks = [] if view is None else [view]

        def once() -> dict[int, PodOutcome]:
            try:
                now = looks.pop() if looks else self.expire_and_view(cluster)
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
        """Return the outcomes of the pods that are not over, and of which neither name nor uid is known.

        `refusing` nodes take none, and any that refuses is added. Raises NodeChanged, Conflict, NotFound,
        Unavailable.
        """
        names = {(each.namespace, each.name) for each in documents.values()}
        with self._database.read() as connection:
            uids = {each.uid for each in documents.values()}
            known = statements.any_namesakes(connection, view.facts.id, names, uids)
        new = without_namesakes(documents, known)
        fresh = {number: document for number, document in new.items() if not document.has_ended}

        def again(now: ClusterSnapshot) -> _Batch:
            return self._decide_gangs(now, fresh, refusing)

        if any(map(_may_concern_all, fresh.values())):
            batch = self._decide_and_write(_Batch(view, refusing, view), fresh.values(), again, gives_up=True)
        else:
            batch = again(view)
            if batch.arrivals:
                batch = self._decide_and_write(batch, fresh.values(), gives_up=True)
        outcomes = batch.refused | {number: _result(batch, number) for number in batch.arrivals}
        for number, outcome in outcomes.items():
            if documents[number].host:
                continue
            if isinstance(outcome, PlacementError):
                count_refused("pod", outcome)
            else:
                count_won("pod")
        return outcomes

    def refused_of_gang(
        self, cluster: str, gang: Gang, members: Sequence[PodDocument]
    ) -> dict[str, Mapping[str, Refusal]]:
        """Return the members that have no room beside the members before them, if too few have room.

        The result has, by uid, why each node refuses the member; nothing is claimed, but pods that waited too
        long are released. It is empty if the gang would be whole, or if too few members are given to tell.
        Raises NotFound for the cluster, Unavailable.
        """
        view = self.expire_and_view(cluster)
        # kube-scheduler asks for one member after another, while nothing changes.
        key, (known, refused) = (view.columns, gang, members), self._trial
        if known == key:
            return refused
        refused = {}
        coming = [each for each in members if not self._cluster_cache.may_have(view, [each.uid])]
        if gangs.standing_of(view.columns, gang).counts.get(gang.name, 0) + len(coming) >= gang.least:
            batch = _Batch(view, Refusing(), view)
            self._place_in_turn(batch, dict(enumerate(coming)))
            if not gangs.standing_of(batch.after.columns, gang).is_whole:
                refused = {
                    coming[number].uid: error.refusals
                    for number, error in batch.refused.items()
                    if isinstance(error, Unschedulable)
                }
        self._trial = key, refused
        return refused

    # -- what has ended by now ------------------------------------------------------------------------

    def expire_and_view(self, cluster: str) -> ClusterSnapshot:
        """Return the cluster as it is now: nothing in it has expired, no pod waits too long for its gang.

        Raises NotFound, Unavailable.
        """
        view = self._cluster_cache.snapshot(cluster)
        if view.waiting and gangs.overdue(view.waiting):
            self.release_waiting(cluster)
            view = self._cluster_cache.snapshot(cluster)
        if view.reserved and gangs.due_on(view.reserved):
            retry_until_deadline(lambda: self._release(self._cluster_cache.snapshot(cluster)))
            view = self._cluster_cache.snapshot(cluster)
        return view

    def release_waiting(self, cluster: str, gang: Gang | None = None) -> None:
        """Release the pods that wait for the gang, without one all that wait too long.

        Raises NotFound, Unavailable.
        """

        def once() -> None:
            view = self._cluster_cache.snapshot(cluster)
            if view.waiting and gang is not None:
                self._give_up(view, gangs.standing_of(view.columns, gang).waiting)
            elif view.waiting:
                self._give_up(view, gangs.overdue(view.waiting))

        retry_until_deadline(once)

    def _give_up(self, view: ClusterSnapshot, waiting: Sequence[gangs.Waiting]) -> None:
        """Release the pods that still wait as they did, all of them at once. Raises NodeChanged, Unavailable.

        A pod that was bound again meanwhile, and waits anew with a later end, stays.
        """
        if not waiting:
            return
        attributes = self._writer.register_attributes(view.facts)
        with self._database.write() as transaction:
            locked = self._writer.lock(transaction, view, {each.node.root_id for each in waiting})
            now = {pod.uid: pod for state in locked.states.values() for pod in state.waiting}
            before = {each.pod.uid: each.pod.membership for each in waiting}
            still = {uid for uid, pod in now.items() if uid in before and pod.membership == before[uid]}
            rows = statements.any_namesakes(transaction, view.facts.id, (), still)
            self._writer.commit(transaction, locked, attributes, PodMoves(leaving=rows, unreserves=True))

    def _release(self, view: ClusterSnapshot) -> None:
        if due := gangs.due_on(view.reserved):
            attributes = self._writer.register_attributes(view.facts)
            with self._database.write() as transaction:
                locked = self._writer.lock_unchanged(transaction, view, {each.root_id for each in due})
                self._writer.commit(transaction, locked, attributes, PodMoves(ending=due))

    # -- the steps of both ----------------------------------------------------------------------------

    def _decide_gangs(
        self, view: ClusterSnapshot, documents: Mapping[int, PodDocument], refusing: Refusing
    ) -> _Batch:
        """Decide where pods go, one after another; of gangs that are placed together enough, or none."""
        batch = _Batch(view, refusing, view)
        for gang, members in gangs.placed_together(documents):
            tried = _Batch(view, refusing, batch.after)
            self._place_in_turn(tried, members)
            if gang is not None:
                _settle_gang(tried, gang, members, others=batch.arrivals.values())
            batch.refused |= tried.refused
            batch.freed += tried.freed
            if tried.arrivals:
                batch.arrivals |= tried.arrivals
                batch.after = tried.after
        return batch

    def _place_in_turn(self, batch: _Batch, documents: Mapping[int, PodDocument]) -> None:
        """Decide where new pods go; one that would use up a reservation is left out."""
        for number, document in documents.items():
            try:
                if document.host:
                    arrival = new_arrival(batch.after, document)
                else:
                    arrival = self._choice.best(batch.after, document, batch.refusing)
            except (BadRequest, Unschedulable) as error:
                batch.refused[number] = error.with_traceback(None)
                continue
            if arrival.ends is None:
                batch.arrivals[number] = arrival
                node = batch.after.nodes[arrival.state.root_id].with_pod(arrival.recorded)
                batch.after = batch.after.with_node(node)

    def _decide_and_write(
        self,
        batch: _Batch,
        documents: Collection[PodDocument],
        again: Callable[[ClusterSnapshot], _Batch] | None = None,
        *,
        gives_up: bool = False,
    ) -> _Batch:
        """Write what was decided, or decide `again` while no other pod can come, and write that; return it.

        Raises NodeChanged, with nodes noted that refuse or clash; Conflict if one that was noted is tried
        again, or clashes twice and the caller `gives_up`; Unavailable.
        """
        facts, refusing = batch.before.facts, batch.refusing
        arriving = map(attrgetter("document"), batch.arrivals.values()) if again is None else documents
        attributes = self._writer.register_attributes(facts, {each.namespace for each in arriving})
        try:
            with self._database.write() as transaction:
                if again is not None:
                    clusters.lock_alone(transaction, facts.id)
                    now = self._cluster_cache.snapshot(facts.name)
                    if now.facts != facts:
                        raise NodeChanged("The cluster changed meanwhile.")
                    batch = again(now)
                if batch.arrivals:
                    self._write_batch(transaction, batch, attributes, checks_rules=again is None)
        except (NodeRefused, ProviderGone) as refusal:
            # It may be one where only members that waited are freed.
            nodes = batch.before.nodes.values()
            refused = next((node for node in nodes if node.id == refusal.node_id), None)
            if refused is None:
                raise
            if refused in refusing.nodes:
                # Pods that run there are recorded whatever the node says, so trying again does not help.
                raise Conflict(str(refusal)) from refusal
            # If the node is unchanged, so that the next view has the same state, it will refuse for good.
            refusing.nodes.add(refused)
            raise NodeChanged(str(refusal)) from refusal
        except NodeChanged:
            if len(documents) == 1:
                self._choice.active.lost()
            raise
        except Faster as clash:
            tried = [batch.before.nodes[each.state.root_id] for each in batch.arrivals.values()]
            if refusing.note_clash(tried) or not gives_up:
                raise NodeChanged(str(clash)) from clash
            raise Conflict(str(clash)) from clash
        batch.at = transaction.now
        return batch

    def _write_batch(
        self, transaction: Transaction, batch: _Batch, attributes: PodAttributes, *, checks_rules: bool
    ) -> None:
        view, arrivals, leaving = batch.before, list(batch.arrivals.values()), batch.leaving
        keys, roots = list[PodKey](), set[int]()
        for arrival in arrivals:
            document = arrival.document
            keys.append(PodKey(document.namespace, document.name, document.uid))
            roots.add(arrival.state.root_id)
        for waiting in batch.freed:
            roots.add(waiting.node.root_id)
        decided = {} if batch.after is view else {root_id: batch.after.nodes[root_id] for root_id in roots}
        for pod in leaving:
            if pod.root_id is not None:
                roots.add(pod.root_id)
        locked = self._writer.lock_unchanged(transaction, view, roots, checks_rules=checks_rules)
        self._writer.check_namesakes(transaction, view.facts, keys, leaving)
        moves = PodMoves(arrivals, leaving, freed=batch.freed, decided=decided)
        self._writer.commit(transaction, locked, attributes, moves)


def _settle_gang(
    batch: _Batch,
    gang: Gang,
    members: Mapping[int, PodDocument],
    words: str = "",
    *,
    others: Iterable[PodPlacement] = (),
    may_wait: bool = False,
) -> None:
    """Refuse the pods of a batch, all members of a gang, if too few have places, or let them wait there.

    `words` are part of the sentence that refuses each; `others` come, too. If there are enough, members that
    waited are freed.
    """
    memberships = [each.recorded.membership for each in (*others, *batch.arrivals.values())]
    gone = set(map(consumer_of, batch.leaving))
    standing = gangs.standing_of(batch.before.columns, gang, memberships, gone)
    if standing.is_whole:
        batch.freed += standing.waiting
    elif may_wait:
        batch.waits = str(standing)
        for number, place in batch.arrivals.items():
            assert place.recorded.membership is not None
            membership = replace(place.recorded.membership, waits_until=standing.until)
            batch.arrivals[number] = replace(place, recorded=replace(place.recorded, membership=membership))
    else:
        lacks_members = not batch.refused
        batch.arrivals.clear()
        for number, each in members.items():
            why = f"{words}there are places for {standing}"
            if lacks_members:
                why = f"{words}{standing.lacking_members}, and there are places for these"
            refusal = gangs.GangWaits(f"Pod {each.full_name} is not placed without its gang: {why}.")
            batch.refused.setdefault(number, refusal)


def _result(batch: _Batch, number: int) -> PlacementResult:
    """Return what became of a pod that has arrived; if it waits or frees others, it came alone."""
    arrival = batch.arrivals[number]
    if arrival.document.host:
        return PlacementResult(True, False, arrival.answer)
    assert batch.at is not None
    answer = replace(arrival.answer, changed_at=batch.at.isoformat())
    return PlacementResult(not batch.leaving, True, answer, waits=batch.waits, freed=batch.freed)


def _may_concern_all(document: PodDocument) -> bool:
    """Return whether a pod may keep pods off, or else, if it does not run, needs some or is of a gang."""
    if document.host:
        return may_keep_off(document.manifest)
    return may_require(document.manifest) or gangs.gang_to_place(document) is not None
