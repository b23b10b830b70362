"""The writing of pods that come and go: rows of pods, and the accounts of the nodes concerned.

A transaction that changes the pods of a node locks its host provider and stamps it. So a node with an
unchanged stamp still has the pods that were read.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from operator import attrgetter
from typing import Any, NamedTuple

from placement.allocations.replacement import changes_of
from placement.allocations.statements import consumers
from placement.allocations.statements.consumers import (
    AttributeRegistry,
    ConsumerAttributes,
    HeldAllocation,
)
from placement.common.clock import agreed_now, utcnow
from placement.engine.domain.audit import Action, TargetKind
from placement.engine.domain.errors import Conflict
from placement.pods.decide.gangs import Waiting
from placement.pods.decide.reading import PodDocument
from placement.pods.decide.reservation_ends import AVAILABLE, Ending, used_by
from placement.pods.state.model import HostIdentity, RecordedPod
from placement.pods.state.node_info import NodeAllocations, NodeInfo
from placement.pods.store import audit, rows, statements
from placement.pods.store.accounts import stored_accounts
from placement.pods.store.answers import PodAnswer, PodPlacement
from placement.pods.store.cache import ClusterCache, ClusterSnapshot
from placement.pods.store.loader import ClusterFacts, facts_of
from placement.pods.store.rows import FORMAT
from placement.pods.store.statements import PodValues, StoredPod
from placement.providers.statements import clusters, providers
from placement.providers.statements.clusters import Cluster
from placement.providers.statements.names import ClassIds
from placement.storage.claim_rows import InventoryAmount
from placement.storage.database import Database, Transaction
from placement.storage.failures import TryAgain, Unreachable

POD = "POD"
KUBELET = "KUBELET"
RESERVATION = "RESERVATION"
_KUBELET_USER = "kubelet"
_RESERVATION_USER = "reservation"


class NodeChanged(TryAgain):
    """An error: another writer changed the node meanwhile; the caller has to load it and decide again."""


class NodeRefused(NodeChanged):
    """The providers of a node have no room for its pods: other consumers took it, or inventories changed."""

    def __init__(self, node_id: int) -> None:
        super().__init__("Other consumers were faster.")
        self.node_id = node_id


class ProviderGone(Conflict):
    """A provider of a node does not exist any more, so nothing can be written about it."""

    def __init__(self, node_id: int, provider: str) -> None:
        super().__init__(f"Provider {provider} is gone; import the node again.")
        self.node_id = node_id


@dataclass(frozen=True, slots=True)
class PodAttributes:
    """The project, user and type of the consumers of a cluster.

    Their project is the cluster, so that GET /usages shows the use of a cluster. The user of recorded pods
    is their namespace; the user of pods that only kubelet reports is `kubelet`, that of reservations
    `reservation`.
    """

    cluster: str
    cluster_id: int

    def pod(self, consumer: str, namespace: str) -> ConsumerAttributes:
        """Return the attributes of a recorded pod, or of a reservation, which has no namespace."""
        kind, user = (POD, namespace) if namespace else (RESERVATION, _RESERVATION_USER)
        return ConsumerAttributes(consumer, self.cluster, user, kind, self.cluster_id)

    def kubelet_pod(self, consumer: str) -> ConsumerAttributes:
        """Return the attributes of a pod that only kubelet reports."""
        return ConsumerAttributes(consumer, self.cluster, _KUBELET_USER, KUBELET, self.cluster_id)


@dataclass(frozen=True, eq=False)
class NodeChange:
    """A change of the accounts of a node; the uuids of its providers derive from the `identity`.

    `consumer_attributes` are of consumers that are new, or of another type than before.
    """

    node_id: int
    cluster_id: int
    identity: HostIdentity
    before: NodeAllocations
    after: NodeAllocations
    consumer_attributes: Mapping[str, ConsumerAttributes]

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to write."""
        return not (self.consumer_attributes or self.consumers) and self.before.cpus == self.after.cpus

    @cached_property
    def consumers(self) -> set[str]:
        """Return the consumers that hold something else afterwards."""
        before, after = self.before.shares, self.after.shares
        others = set[str]()
        for consumer in before.keys() | after.keys():
            if before.get(consumer, {}) != after.get(consumer, {}):
                others.add(consumer)
        return others

    def described(self, allocations: NodeAllocations, consumer: str) -> dict[str, object] | None:
        """Return the allocations of a consumer as audit records have them, None if it holds nothing.

        A reservation that its owners have used up is counted, and holds nothing.
        """
        held: dict[str, dict[str, int]] = {}
        for place, amount in allocations.shares.get(consumer, {}).items():
            held.setdefault(self.identity.uuid(place.path), {})[place.resource_class] = amount
        return {"allocations": held} if held else None


class PodKey(NamedTuple):
    """A key to find pods by: a name or, if it is given, a uid."""

    namespace: str
    name: str
    uid: str | None = None


@dataclass(frozen=True, slots=True)
class LockedNodes:
    """Nodes that are locked, by host provider, and their accounts as they are stored."""

    nodes: Mapping[int, NodeInfo]
    accounts: Mapping[int, NodeAllocations]


@dataclass(frozen=True, slots=True)
class PodMoves:
    """Pods that arrive and leave together, and reservations that end.

    `ended` is a pod that occupies nothing any more, with the answer about it. `freed` pods need not wait for
    their gang any longer. `decided` are the nodes, by host provider, with their arrivals, if these were
    counted already and nothing leaves. `revives_reservations`: the pods that leave never ran, so reservations
    that they ended are brought back where their room is still free.
    """

    placements: Sequence[PodPlacement] = ()
    leaving_pods: Sequence[StoredPod] = ()
    endings: Sequence[Ending] = ()
    ended: tuple[PodDocument, PodAnswer] | None = None
    freed: Sequence[Waiting] = ()
    decided: Mapping[int, NodeInfo] = field(default_factory=dict)
    revives_reservations: bool = False


class PodReport(NamedTuple):
    """A report about a pod that stays where it is and keeps what it holds: its row, the answer, new values.

    `is_counted_anew`: other pods may count it in another way, such as by its labels.
    """

    stored_pod: StoredPod
    answer: PodAnswer
    values: PodValues
    is_counted_anew: bool = False


# A pod with the same values is unchanged.
_STATE = attrgetter("id", "root_id", "changed_at")
_ANSWER = attrgetter("answer")
_ENDING = attrgetter("ending")
_RESERVATION = attrgetter("reservation.consumer")
_CLASS = attrgetter("resource_class")
_PATH = attrgetter("path")
_CONSUMER = attrgetter("recorded.consumer")
_REPELLED = attrgetter("recorded.affinity.apart_terms")


class PodWriter:
    """The writing of accounts of nodes as pods come and leave, in transactions of the callers."""

    def __init__(
        self, database: Database, attributes: AttributeRegistry, cluster_cache: ClusterCache
    ) -> None:
        self._database = database
        self._attributes = attributes
        self._class_ids = ClassIds(database.history)
        self._cluster_cache = cluster_cache

    def register_attributes(
        self, cluster: Cluster | ClusterFacts, namespaces: Iterable[str] = ()
    ) -> PodAttributes:
        """Return the attributes of consumers in these namespaces; call it before the transaction begins."""
        users = {_KUBELET_USER, _RESERVATION_USER, *filter(None, namespaces)}
        self._attributes.register(
            {
                ("project", cluster.name),
                *zip(repeat("type"), (POD, KUBELET, RESERVATION)),
                *zip(repeat("user"), users),
            }
        )
        return PodAttributes(cluster.name, cluster.id)

    def place_at_once(
        self, snapshot: ClusterSnapshot, placement: PodPlacement, attributes: PodAttributes
    ) -> datetime.datetime | None:
        """Write a pod by one statement, if its name and uid are new and its node is as in the snapshot.

        The database has such a statement, and the pod ends no reservation. Returns when the pod was written;
        None, with nothing done, where it cannot be written so: `commit` finds out why. Pods that change more
        than their own shares and CPUs are among these. Raises OutcomeUnknown, Unavailable.
        """
        recorded, consumer = placement.recorded, placement.recorded.consumer
        before = snapshot.nodes[placement.node.root_id]
        after = before.with_pod(recorded)
        shares, owners = before.accounts.shares, after.accounts.cpus
        own_shares = after.accounts.shares[consumer]
        if (
            consumer in shares
            or {**shares, consumer: own_shares} != after.accounts.shares
            or not before.accounts.cpus.items() <= owners.items()
        ):
            return None
        uuids = {path: before.identity.uuid(path) for path in {"", *(place.path for place in own_shares)}}
        now = utcnow()
        try:
            stamped = statements.place_at_once(
                self._database,
                now,
                cluster_id=before.cluster_id,
                values=rows.pod_values(placement),
                consumer=attributes.pod(consumer, recorded.namespace),
                host_id=before.root_id,
                host_revision=before.revision,
                used_in_tree=before.due,
                providers=sorted(uuids.values()),
                amounts=[
                    InventoryAmount(consumer, uuids[place.path], place.resource_class, amount)
                    for place, amount in own_shares.items()
                ],
                levels={
                    cpu: owner.level for cpu, owner in sorted(owners.items()) if owner.consumer == consumer
                },
                record=audit.arrived(snapshot.facts.name, placement.answer),
                rules_generation=snapshot.rules_generation,
            )
        except Unreachable:
            raise
        except TryAgain:
            return None
        if stamped is None:
            return None
        self._cluster_cache.note_written(before, after.stamped(stamped.stamp), stamped)
        return now

    def lock_unchanged(
        self,
        transaction: Transaction,
        snapshot: ClusterSnapshot,
        roots: Collection[int],
        *,
        checks_rules: bool = False,
    ) -> LockedNodes:
        """Lock nodes that must be as they are in the snapshot. Raises NodeChanged.

        Stored allocations and owners of CPUs are read only of nodes with a sum of `used` below the amounts
        due to their pods; no consumer ever holds more than its due. `checks_rules`: a pod comes while the
        cluster is not locked, so no pod with required anti-affinity may have come since.
        """
        generation = snapshot.rules_generation if checks_rules else None
        trees = statements.lock_with_use(transaction, roots, snapshot.facts.id, generation)
        nodes, stored = dict[int, NodeInfo](), dict[int, NodeAllocations]()
        owed = list[NodeInfo]()
        for root_id in roots:
            known, tree = snapshot.nodes.get(root_id), trees.get(root_id)
            if known is None or tree is None or tree.revision != known.revision:
                raise NodeChanged("A node changed while the pod was placed.")
            nodes[root_id], stored[root_id] = known, known.accounts
            if tree.used != known.due:
                owed.append(known)
        if owed:
            stored |= stored_accounts(transaction, owed)
        return LockedNodes(nodes, stored)

    def lock(
        self, transaction: Transaction, snapshot: ClusterSnapshot, roots: Collection[int]
    ) -> LockedNodes:
        """Lock nodes as they are now, with their accounts as they are stored.

        Less is stored than follows from the pods where other consumers gave back amounts that a pod lacked.
        Raises NodeChanged if the settings of the cluster have changed since the snapshot.
        """
        if not roots:
            return LockedNodes({}, {})
        stamps = statements.lock_hosts(transaction, roots, snapshot.facts.id)
        known = {root_id: node.revision for root_id, node in snapshot.known(roots).items()}
        # A change of the profile stamps every node, so unchanged nodes need no look at the settings.
        if stamps != known:
            cluster = clusters.find_cluster(transaction, snapshot.facts.name)
            if cluster is None or facts_of(cluster) != snapshot.facts:
                raise NodeChanged("The settings of the cluster changed meanwhile.")
        nodes = self._cluster_cache.loader.load(transaction, snapshot.facts, roots, snapshot.nodes)
        return LockedNodes(nodes, stored_accounts(transaction, nodes.values()))

    def check_namesakes(
        self,
        transaction: Transaction,
        facts: ClusterFacts,
        keys: Sequence[PodKey],
        known_pods: Sequence[StoredPod],
    ) -> None:
        """Raise NodeChanged unless the pods of these names or uids are the known ones, where they were."""
        # A reservation that is over may be brought back to its node meanwhile.
        if known_pods and (off := [pod.id for pod in known_pods if pod.root_id is None]):
            statements.lock_rows(transaction, off)
        if len(keys) == 1:
            now = statements.namesakes(transaction, facts.id, *keys[0])
        else:
            names, uids = {key[:2] for key in keys}, {key.uid for key in keys if key.uid}
            now = statements.any_namesakes(transaction, facts.id, names, uids)
        if list(map(_STATE, now)) != list(map(_STATE, known_pods)):
            raise NodeChanged("The pod itself changed meanwhile.")

    def renew(self, transaction: Transaction, facts: ClusterFacts, pod: StoredPod) -> None:
        """Renew a claim as if it was made now. Raises NodeChanged if the pod has changed.

        Its allocations stay, so there is no audit record.
        """
        if pod.root_id is not None:
            statements.lock_hosts(transaction, {pod.root_id})
        self.check_namesakes(transaction, facts, [PodKey(pod.namespace, pod.name, pod.uid)], [pod])
        statements.touch(transaction, pod.id)

    def commit(
        self, transaction: Transaction, locked: LockedNodes, attributes: PodAttributes, moves: PodMoves
    ) -> None:
        """Let pods leave, reservations end and pods arrive, on nodes that are locked.

        The caller has locked the cluster as well, and alone, if a pod keeps others off. Raises NodeChanged
        (NodeRefused if a node does not take its pods), Conflict (ProviderGone if a provider is lost).
        """
        placements, leaving_pods = moves.placements, moves.leaving_pods
        endings = [*moves.endings, *filter(None, map(_ENDING, placements))]
        gone = frozenset(map(rows.consumer_of, leaving_pods)).union(map(_RESERVATION, endings))
        # Accounts of the nodes: allocations and CPUs are given back, and taken.
        self._write_nodes(transaction, locked, attributes, moves, endings, gone)
        # Rows of pods that leave, and of reservations that end.
        if leaving_pods:
            statements.delete(transaction, [pod.id for pod in leaving_pods])
        if any(map(_REPELLED, placements)):
            clusters.raise_rules_generation(transaction, attributes.cluster_id)
        if endings:
            _end(transaction, attributes, endings)
        # Consumers that hold nothing any more.
        consumers.delete_idle(transaction, gone.difference(map(_CONSUMER, placements)))
        # Rows of pods that need not wait for their gang any longer, and of pods that arrive.
        if moves.freed:
            _end_waits(transaction, attributes, moves.freed)
        answers, values = list(map(_ANSWER, placements)), list(map(rows.pod_values, placements))
        if moves.ended is not None:
            answers.append(moves.ended[1])
            values.append(rows.ended_pod_values(*moves.ended))
        transaction.records.extend(audit.came_and_left(attributes.cluster, leaving_pods, answers))
        statements.insert(transaction, attributes.cluster_id, values)

    def _write_nodes(
        self,
        transaction: Transaction,
        locked: LockedNodes,
        attributes: PodAttributes,
        moves: PodMoves,
        endings: Sequence[Ending],
        gone: frozenset[str],
    ) -> None:
        """Write the accounts of the nodes that pods leave and come to; `gone` are consumers that leave.

        Nodes that are only left come first, one by one: a pod that moves from node-1 to node-2 gives back its
        allocations on node-1 before it takes others on node-2, as it is one consumer.
        """
        coming, left = dict[int, list[RecordedPod]](), set[int]()
        for placement in moves.placements:
            coming.setdefault(placement.node.root_id, []).append(placement.recorded)
        for pod in moves.leaving_pods:
            if pod.root_id is not None:
                left.add(pod.root_id)
        for end in endings:
            left.add(end.root_id)
        returning = (
            _returning(transaction, attributes, moves.leaving_pods) if moves.revives_reservations else {}
        )
        # The zip of one list: each of its nodes alone.
        for roots in (*zip(sorted(left - coming.keys())), sorted(coming.keys() | moves.decided.keys())):
            changes, idle = list[NodeChange](), list[int]()
            for root_id in roots:
                arriving = coming.get(root_id, ())
                node = moves.decided.get(root_id)
                if node is None:
                    node = locked.nodes[root_id].without(gone) if gone else locked.nodes[root_id]
                    for recorded in arriving:
                        node = node.with_pod(recorded)
                if root_id in returning:
                    node = _with_returned(transaction, attributes, node, returning[root_id])
                change = _change_to(node, locked.accounts[root_id], attributes, gone, arriving)
                if change.is_empty:
                    idle.append(root_id)
                else:
                    changes.append(change)
            if changes:
                self.write(transaction, changes)
            if idle:
                # Pods that hold nothing come and go, too.
                providers.touch(transaction, (), idle)

    def stay(self, transaction: Transaction, facts: ClusterFacts, reports: Iterable[PodReport]) -> None:
        """Write reports about pods on locked nodes; nodes with a pod that is counted anew are stamped.

        A report that changes nothing has no audit record.
        """
        updated, stamped = dict[int, PodValues](), set[int]()
        for stored_pod, answer, values, is_counted_anew in reports:
            updated[stored_pod.id] = values
            former = (stored_pod.manifest, stored_pod.status, stored_pod.node_id)
            # A synchronization that starts reports every pod again.
            if (values.manifest, values.status, values.node_id) != former:
                transaction.records.append(audit.arrived(facts.name, answer, stored_pod))
            if is_counted_anew and stored_pod.root_id is not None:
                stamped.add(stored_pod.root_id)
        statements.update(transaction, updated)
        providers.touch(transaction, (), stamped)

    def confirm(self, transaction: Transaction, cluster: str, pods: Iterable[StoredPod]) -> None:
        """Write that pods on locked nodes were bound: they are claims no longer, and wait for no gang.

        It is what a report of them changes. Nodes with a pod that waited are stamped. Pods that were
        confirmed or reported before stay as they are.
        """
        statuses, stamped = dict[int, Mapping[str, Any]](), set[int]()
        for pod in pods:
            is_waiting = rows.waits(pod)
            if is_waiting or rows.is_claim(pod):
                statuses[pod.id] = rows.bound_status(pod.status)
                transaction.records.append(audit.changed(cluster, pod, scheduled=False))
            if is_waiting and pod.root_id is not None:
                stamped.add(pod.root_id)
        if statuses:
            statements.replace_statuses(transaction, statuses)
        providers.touch(transaction, (), stamped)

    def write(self, transaction: Transaction, changes: Sequence[NodeChange]) -> None:
        """Write changes of nodes of one cluster that share no consumer, and stamp their hosts; none is empty.

        Only differences are written, by the statements of ordinary claims, which refuse amounts that do not
        fit. Raises NodeChanged if something does not fit any more, Conflict if a consumer is not of this
        cluster.
        """
        concerned, gone = set[str](), set[str]()
        for change in changes:
            concerned |= change.consumers
            gone |= change.before.shares.keys() - change.after.shares.keys()
        # Consumers come first, then providers, each in ascending order: so writers never wait in a circle.
        existing = _write_consumers(transaction, changes, concerned)
        _record_changes(transaction, changes)
        # Allocations, under the locks of their providers.
        self._write_shares(transaction, changes, concerned & existing)
        # Logical CPUs.
        _write_cpus(transaction, changes)
        # Consumers that hold nothing any more.
        consumers.delete_idle(transaction, gone)

    def _write_shares(
        self, transaction: Transaction, changes: Sequence[NodeChange], existing: Collection[str]
    ) -> None:
        """Lock the providers, and write the allocations there. Raises ProviderGone, NodeRefused."""
        ids, node_ids = _lock_providers(transaction, changes)
        names = set[str]()
        for change in changes:
            for consumer in change.consumers:
                names.update(map(_CLASS, change.after.shares.get(consumer, ())))
        classes = self._class_ids(transaction, names)
        stored, emptied, left = list[HeldAllocation](), set[str](), set[int]()
        for row in consumers.held_by(transaction, existing) if existing else ():
            if row.provider_id in node_ids:
                stored.append(row)
                emptied.add(row.consumer_uuid)
                left.add(row.provider_id)
        fresh = [
            HeldAllocation(consumer, ids[change, place.path], classes[place.resource_class], amount)
            for change in changes
            for consumer in change.consumers
            for place, amount in change.after.shares.get(consumer, {}).items()
        ]
        wanted = changes_of(stored, fresh)
        allowed = consumers.apply_changes(transaction, wanted)
        for each in wanted:
            if (each.provider_id, each.class_id) not in allowed:
                raise NodeRefused(node_ids[each.provider_id])
        consumers.replace_held(transaction, emptied, fresh, left)


def _write_consumers(
    transaction: Transaction, changes: Sequence[NodeChange], concerned: set[str]
) -> AbstractSet[str]:
    """Create consumers that are new, lock the others, and return these. Raises Conflict."""
    attributes: dict[str, ConsumerAttributes] = {}
    fresh = list[ConsumerAttributes]()
    for change in changes:
        for uuid, each in change.consumer_attributes.items():
            attributes[uuid] = each
            if uuid in change.after.shares:
                fresh.append(each)
    rest = (concerned | attributes.keys()) - consumers.create(transaction, fresh)
    if not rest:
        return frozenset()
    existing = consumers.lock(transaction, rest)
    for uuid, consumer in existing.items():
        if consumer.cluster_id != changes[0].cluster_id:
            # One text, so that callers that see one cluster do not learn what is in others.
            known = f"Consumer {uuid} exists already and is not a pod of this cluster"
            raise Conflict(f"{known}; is this Kubernetes recorded under two names?")
    consumers.advance(transaction, [attributes[uuid] for uuid in sorted(existing.keys() & attributes.keys())])
    return existing.keys()


def _record_changes(transaction: Transaction, changes: Sequence[NodeChange]) -> None:
    """Record the allocations of consumers before and after; some change as another consumer leaves."""
    for change in changes:
        for uuid in sorted(change.consumers | change.consumer_attributes.keys()):
            before, after = change.described(change.before, uuid), change.described(change.after, uuid)
            if before is not None or after is not None:
                present = Action.CREATE if before is None else Action.UPDATE
                action = Action.DELETE if after is None else present
                transaction.record(
                    action, TargetKind.ALLOCATIONS, uuid, before=before, after=after, consumer=uuid
                )


def _lock_providers(
    transaction: Transaction, changes: Sequence[NodeChange]
) -> tuple[dict[tuple[NodeChange, str], int], dict[int, int]]:
    """Lock and stamp the providers of the changed accounts. Raises ProviderGone.

    Returns their ids by change and path, and the ids of their nodes by provider.
    """
    uuids: dict[str, tuple[NodeChange, str]] = {}
    for change in changes:
        paths = {""}
        for consumer in change.consumers:
            for shares in (change.before.shares, change.after.shares):
                paths.update(map(_PATH, shares.get(consumer, ())))
        # The host comes first: if the whole tree is gone, the error names it.
        for path in sorted(paths):
            uuids[change.identity.uuid(path)] = change, path
    locked = providers.lock_and_stamp(transaction, uuids)
    ids, node_ids = dict[tuple[NodeChange, str], int](), dict[int, int]()
    for uuid, (change, path) in uuids.items():
        if uuid not in locked:
            raise ProviderGone(change.node_id, change.identity.name(path))
        ids[change, path] = locked[uuid]
        node_ids[locked[uuid]] = change.node_id
    return ids, node_ids


def _write_cpus(transaction: Transaction, changes: Sequence[NodeChange]) -> None:
    """Take logical CPUs from consumers that own them no longer, and give them to their new owners."""
    left, taken = set[statements.NodeCpu](), dict[statements.NodeCpu, tuple[str, str]]()
    for change in changes:
        node_id, former, owners = change.node_id, change.before.cpus, change.after.cpus
        for cpu, owner in former.items():
            if owners.get(cpu) != owner:
                left.add((node_id, cpu))
        for cpu, owner in owners.items():
            if former.get(cpu) != owner:
                taken[node_id, cpu] = owner.consumer, owner.level
    if left:
        statements.disown(transaction, left)
    statements.own(transaction, taken)


def _end(transaction: Transaction, attributes: PodAttributes, endings: Sequence[Ending]) -> None:
    """Write that reservations are over. Their rows stay, on no node."""
    by_uid = {each.reservation.uid: each for each in endings}
    values = {}
    for row in statements.reservations(transaction, attributes.cluster_id, by_uid.keys()):
        end = by_uid[row.uid]
        status = rows.ended_status(row.status, end.phase, end.remark)
        values[row.id] = row.values(status, FORMAT, None)
        transaction.records.append(audit.ended(attributes.cluster, row, end.phase, end.remark))
    statements.update(transaction, values)


def _end_waits(transaction: Transaction, attributes: PodAttributes, freed: Sequence[Waiting]) -> None:
    """End the wait of pods on locked nodes. Raises NodeChanged unless all of them still wait."""
    uids = {each.pod.uid for each in freed}
    found = statements.any_namesakes(transaction, attributes.cluster_id, (), uids)
    waiting = {pod.uid: pod for pod in found if rows.waits(pod)}
    if not waiting.keys() >= uids:
        raise NodeChanged("A member of the gang changed meanwhile.")
    pods = [waiting[each.pod.uid] for each in freed]
    statements.replace_statuses(transaction, {pod.id: rows.without_wait(pod.status) for pod in pods})
    providers.touch(transaction, (), {each.node.root_id for each in freed})
    transaction.records.extend(audit.changed(attributes.cluster, pod, waits=False) for pod in pods)


def _returning(
    transaction: Transaction, attributes: PodAttributes, leaving_pods: Sequence[StoredPod]
) -> dict[int, list[StoredPod]]:
    """Lock and return the rows of reservations that leaving pods had ended, by their former host provider."""
    by_uid = {uid: pod for pod in leaving_pods if (uid := rows.reservation_ended_by(pod))}
    if not by_uid:
        return {}
    stored = statements.reservations(transaction, attributes.cluster_id, by_uid.keys())
    statements.lock_rows(transaction, [reservation.id for reservation in stored])
    found: dict[int, list[StoredPod]] = {}
    for reservation in statements.reservations(transaction, attributes.cluster_id, by_uid.keys()):
        pod = by_uid[reservation.uid]
        keeps = rows.held_by(reservation).keeps
        if pod.root_id is None or keeps is None or keeps.is_over(agreed_now()):
            continue
        if rows.was_ended_by(reservation, used_by(f"{pod.namespace}/{pod.name}", pod.uid)):
            found.setdefault(pod.root_id, []).append(reservation)
    return found


def _with_returned(
    transaction: Transaction,
    attributes: PodAttributes,
    node: NodeInfo,
    stored_reservations: Sequence[StoredPod],
) -> NodeInfo:
    """Bring reservations back to a node while their room there is still free; return the node with them."""
    for stored_reservation in stored_reservations:
        recorded = rows.held_by(stored_reservation)
        if node.has_room_for(recorded):
            node = node.with_pod(recorded)
            values = stored_reservation.values(
                rows.resumed_status(stored_reservation.status), FORMAT, node.id
            )
            statements.update(transaction, {stored_reservation.id: values})
            transaction.records.append(audit.changed(attributes.cluster, stored_reservation, phase=AVAILABLE))
    return node


def _change_to(
    node: NodeInfo,
    stored_allocations: NodeAllocations,
    attributes: PodAttributes,
    gone: Collection[str],
    arriving_pods: Sequence[RecordedPod],
) -> NodeChange:
    """Return the change from the stored accounts to the ones of the node, with attributes of new consumers.

    These are holders that are stored without allocations, or are among the pods `gone`, and pods that arrive.
    """
    consumer_attributes, allocations = dict[str, ConsumerAttributes](), node.accounts
    if node.reported_pods:
        recorded = {pod.consumer for pod in node.pods}
        for consumer, _ in node.reported_pods:
            # Consumers with CPUs by report only get theirs when others leave.
            if consumer not in recorded and (consumer in gone or consumer not in stored_allocations.shares):
                consumer_attributes[consumer] = attributes.kubelet_pod(consumer)
    for each in node.reservations:
        if each.consumer not in stored_allocations.shares:
            consumer_attributes[each.consumer] = attributes.pod(each.consumer, each.namespace)
    for each in arriving_pods:
        consumer_attributes[each.consumer] = attributes.pod(each.consumer, each.namespace)
    return NodeChange(
        node.id, node.cluster_id, node.identity, stored_allocations, allocations, consumer_attributes
    )
