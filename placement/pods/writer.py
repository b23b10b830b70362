"""The writing of pods that come and go: rows of pods, and the accounts of the nodes concerned.

A transaction that changes the pods of a node locks its host provider and stamps it. So a node with an
unchanged stamp still has the pods that were read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from placement.allocations.claims import changes_of
from placement.allocations.statements import allocations, consumers
from placement.allocations.statements.allocations import HeldAllocation
from placement.allocations.statements.consumers import AttributeRegistry, ConsumerAttributes
from placement.common.pod_identity import canonical_uid
from placement.engine.domain.audit import Action, TargetKind
from placement.engine.domain.errors import Conflict, NotFound
from placement.pods.accounts import NodeAllocations
from placement.pods.cache import ClusterSnapshot
from placement.pods.documents import PodDocument
from placement.pods.host import Place
from placement.pods.koordinator.records import RecordedPod, recorded_pod
from placement.pods.koordinator.tree import HostIdentity
from placement.pods.node_info import NodeInfo
from placement.pods.node_loading import ClusterFacts, NodeLoader, all_stored_accounts, facts_of
from placement.pods.rows import (
    FORMAT,
    PodAnswer,
    came_and_left,
    changed,
    consumer_of,
    ended,
    ended_status,
    reservation_ended_by,
    resumed_status,
    status_of,
    was_ended_by,
    without_wait,
)
from placement.pods.statements import nodes, pods
from placement.pods.statements.pods import PodValues, StoredPod
from placement.providers.statements import clusters, providers
from placement.providers.statements.names import ClassIds
from placement.storage.database import Transaction
from placement.storage.failures import TryAgain
from placement.storage.history import History

# Writing what the pods of a node hold: allocations, logical CPUs, consumers.
#
# The caller has locked the host provider of the node and knows the allocations before and after. Only the
# difference is written, by the statements of ordinary claims, which refuse what does not fit.


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
        if not namespace:
            return self._of(consumer, RESERVATION, _RESERVATION_USER)
        return self._of(consumer, POD, namespace)

    def kubelet_pod(self, consumer: str) -> ConsumerAttributes:
        """Return the attributes of a pod that only kubelet reports."""
        return self._of(consumer, KUBELET, _KUBELET_USER)

    def _of(self, consumer: str, kind: str, user: str) -> ConsumerAttributes:
        return ConsumerAttributes(consumer, self.cluster, user, kind, self.cluster_id)


class NodeWriter:
    """A writer of the accounts of nodes, inside a transaction of the caller."""

    def __init__(self, attributes: AttributeRegistry, history: History) -> None:
        self._attributes = attributes
        self._class_ids = ClassIds(history)

    def attributes(self, cluster: str, cluster_id: int, namespaces: Iterable[str] = ()) -> PodAttributes:
        """Return the attributes of consumers in these namespaces; call it before the transaction begins."""
        wanted = {
            ("project", cluster),
            *(("type", kind) for kind in (POD, KUBELET, RESERVATION)),
            *(("user", user) for user in (_KUBELET_USER, _RESERVATION_USER, *namespaces) if user),
        }
        self._attributes.register(wanted)
        return PodAttributes(cluster, cluster_id)

    def write(
        self,
        transaction: Transaction,
        place: NodePlace,
        before: NodeAllocations,
        after: NodeAllocations,
        bearers: Mapping[str, ConsumerAttributes],
    ) -> bool:
        """Write the difference between two accounts of a node, and stamp its host.

        `bearers` are the attributes of consumers that are new, or of another kind than before. Returns False
        if there was nothing to write. Raises NodeChanged if something does not fit any more, Conflict if a
        consumer exists and is not of this cluster.
        """
        change = NodeChange(place, before, after, bearers)
        if change.is_empty:
            return False
        self.write_all(transaction, [change])
        return True

    def write_all(self, transaction: Transaction, changes: Sequence[NodeChange]) -> None:
        """Write changes of nodes of one cluster as `write` does; none is empty, no two share a consumer."""
        _Writing(transaction, changes).run(self._class_ids)


@dataclass(frozen=True, slots=True)
class NodePlace:
    """The identity of a node: its id, its cluster's id, and what the uuids of its providers derive from."""

    node_id: int
    cluster_id: int
    identity: HostIdentity


@dataclass(frozen=True, eq=False)
class NodeChange:
    """A change of the accounts of a node, and the attributes of consumers that need new ones."""

    place: NodePlace
    before: NodeAllocations
    after: NodeAllocations
    bearers: Mapping[str, ConsumerAttributes]

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to write."""
        return not (self.bearers or self.consumers or self.cpus)

    @cached_property
    def consumers(self) -> set[str]:
        """Return the consumers that hold something else afterwards."""
        before, after = self.before.shares, self.after.shares
        return {
            consumer
            for consumer in before.keys() | after.keys()
            if before.get(consumer, {}) != after.get(consumer, {})
        }

    @cached_property
    def cpus(self) -> set[int]:
        """Return the logical CPUs that change their owner."""
        before, after = self.before.cpus, self.after.cpus
        return {cpu for cpu in before.keys() | after.keys() if before.get(cpu) != after.get(cpu)}

    def described(self, accounts: NodeAllocations, consumer: str) -> dict[str, object] | None:
        """Return what records show of a consumer by these accounts, None if it holds nothing.

        A reservation that its owners have used up is counted, and holds nothing.
        """
        shares = accounts.shares.get(consumer)
        if not shares:
            return None
        held: dict[str, dict[str, int]] = {}
        for place, amount in shares.items():
            held.setdefault(self.place.identity.uuid(place.path), {})[place.resource_class] = amount
        return {"allocations": held}


class _Writing:
    """A writing of accounts: consumers first, then providers, each in ascending order."""

    def __init__(self, transaction: Transaction, changes: Sequence[NodeChange]) -> None:
        self._transaction = transaction
        self._changes = changes

    def run(self, class_ids: ClassIds) -> None:
        """Write the changes. Raises NodeChanged, Conflict."""
        existing = self._settle_consumers()
        self._record()
        self._write_shares(existing, class_ids)
        left, taken = {}, {}
        for change in self._changes:
            node_id, before, after = change.place.node_id, change.before.cpus, change.after.cpus
            left.update({(node_id, cpu): before[cpu] for cpu in change.cpus & before.keys()})
            taken.update({(node_id, cpu): after[cpu] for cpu in change.cpus & after.keys()})
        pods.disown(self._transaction, left)
        pods.own(self._transaction, {cpu: (owner.consumer, owner.level) for cpu, owner in taken.items()})
        gone = [change.before.shares.keys() - change.after.shares.keys() for change in self._changes]
        consumers.delete_idle(self._transaction, set().union(*gone))

    def _settle_consumers(self) -> set[str]:
        """Create the new consumers, and return the ones that existed before."""
        bearers = {uuid: each for change in self._changes for uuid, each in change.bearers.items()}
        created = consumers.create(
            self._transaction,
            [
                each
                for change in self._changes
                for uuid, each in change.bearers.items()
                if uuid in change.after.shares
            ],
        )
        rest = set().union(bearers, *(change.consumers for change in self._changes)) - created
        if not rest:
            return set()
        cluster_id = self._changes[0].place.cluster_id
        locked = consumers.lock(self._transaction, rest)
        for uuid, consumer in locked.items():
            if consumer.cluster_id != cluster_id:
                raise Conflict(f"Consumer {uuid} exists already and is no pod of this cluster.")
        consumers.advance(
            self._transaction, [bearers[uuid] for uuid in sorted(locked.keys() & bearers.keys())]
        )
        return set(locked)

    def _record(self) -> None:
        """Record all changes, also of consumers without a request: pods may get what another one leaves."""
        for change in self._changes:
            for consumer in sorted(change.consumers | change.bearers.keys()):
                before = change.described(change.before, consumer)
                after = change.described(change.after, consumer)
                if before is None and after is None:
                    continue
                action = (
                    Action.DELETE if after is None else Action.CREATE if before is None else Action.UPDATE
                )
                self._transaction.record(
                    action, TargetKind.ALLOCATIONS, consumer, before=before, after=after, consumer=consumer
                )

    def _write_shares(self, existing: set[str], class_ids: ClassIds) -> None:
        places = _Places(self._transaction, self._changes, class_ids)
        known = existing & set().union(*(change.consumers for change in self._changes))
        held = allocations.held_by(self._transaction, known) if known else ()
        stored = [row for row in held if row.provider_id in places.nodes]
        fresh = [
            places.held(change, consumer, place, amount)
            for change in self._changes
            for consumer in change.consumers
            for place, amount in change.after.shares.get(consumer, {}).items()
        ]
        wanted = changes_of(stored, fresh)
        allowed = allocations.apply_changes(self._transaction, wanted)
        for each in wanted:
            if (each.provider_id, each.class_id) not in allowed:
                raise NodeRefused(places.nodes[each.provider_id])
        allocations.replace_on(
            self._transaction,
            {row.consumer_uuid for row in stored},
            {row.provider_id for row in stored},
            fresh,
        )


class _Places:
    """The locked providers and classes of the changes, by their places on the nodes."""

    def __init__(self, transaction: Transaction, changes: Sequence[NodeChange], class_ids: ClassIds) -> None:
        """Lock the providers. Raises ProviderGone."""
        places = {
            (change, place)
            for change in changes
            for consumer in change.consumers
            for shares in (change.before.shares, change.after.shares)
            for place in shares.get(consumer, {})
        }
        paths = {(change, place.path) for change, place in places} | {(change, "") for change in changes}
        uuids = {change.place.identity.uuid(path): (change, path) for change, path in paths}
        held = providers.lock_and_stamp(transaction, uuids)
        for uuid, (change, path) in sorted(uuids.items(), key=lambda item: item[1][1]):
            if uuid not in held:
                raise ProviderGone(change.place.node_id, change.place.identity.name(path))
        self._ids = {uuids[uuid]: id_ for uuid, id_ in held.items()}
        self._classes = class_ids(transaction, {place.resource_class for _, place in places})
        self.nodes = {id_: uuids[uuid][0].place.node_id for uuid, id_ in held.items()}

    def held(self, change: NodeChange, consumer: str, place: Place, amount: int) -> HeldAllocation:
        """Return what a consumer holds of a node, by ids."""
        return HeldAllocation(
            consumer, self._ids[change, place.path], self._classes[place.resource_class], amount
        )


AVAILABLE = "Available"
"""The phase of a reservation that is on its node."""


class PodKey(NamedTuple):
    """A key to find pods by: a name or, if it is given, a uid."""

    namespace: str
    name: str
    uid: str | None = None


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


class Ending(NamedTuple):
    """A reservation that ends: on which host provider it is, its phase from now on, and why."""

    reservation: RecordedPod
    root_id: int
    phase: str
    remark: str


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """A pod that is recorded from now on; without `root_id`, the host provider, it occupies nothing.

    `ends` is the reservation that is over when the pod comes.
    """

    document: PodDocument
    answer: PodAnswer
    root_id: int | None = None
    recorded: RecordedPod | None = None
    ends: Ending | None = None


@dataclass(frozen=True, slots=True)
class LockedNodes:
    """Nodes that are locked, by host provider: their states, and their accounts as they are stored."""

    states: Mapping[int, NodeInfo]
    accounts: Mapping[int, NodeAllocations]


class PodWriting:
    """A writer that lets pods come to nodes and leave them, inside a transaction of the caller."""

    def __init__(self, writer: NodeWriter, loader: NodeLoader) -> None:
        self._writer = writer
        self._loader = loader

    def lock_unchanged(
        self,
        transaction: Transaction,
        view: ClusterSnapshot,
        roots: Collection[int],
        *,
        checks_rules: bool = False,
    ) -> LockedNodes:
        """Lock nodes that must be as they are in the view. Raises NodeChanged.

        Their pods are the known ones, but less may be held than what is due. Only then what is stored is
        read, owners of CPUs included: no consumer ever holds more, so sums tell. `checks_rules`: a pod comes
        and the cluster is not locked, so no pod with required anti-affinity may have come since.
        """
        generation = view.rules_generation if checks_rules else None
        trees = nodes.lock_with_use(transaction, roots, view.facts.id, generation)
        for root_id in roots:
            known = view.nodes.get(root_id)
            if known is None or root_id not in trees or trees[root_id].revision != known.revision:
                raise NodeChanged("A node changed while the pod was placed.")
        states = {root_id: view.nodes[root_id] for root_id in roots}
        owed = [state for root_id, state in states.items() if trees[root_id].used != state.due]
        stored = {root_id: state.accounts for root_id, state in states.items()}
        stored |= all_stored_accounts(transaction, owed)
        return LockedNodes(states, stored)

    def lock(self, transaction: Transaction, view: ClusterSnapshot, roots: Collection[int]) -> LockedNodes:
        """Lock nodes as they are now, with what is really stored of them.

        Less is stored than follows from the pods where other consumers gave back what a pod lacked.
        Raises NodeChanged if the settings of the cluster have changed since the view.
        """
        if not roots:
            return LockedNodes({}, {})
        stamps = nodes.lock(transaction, roots, view.facts.id)
        known = {root_id: view.nodes[root_id].revision for root_id in roots if root_id in view.nodes}
        # A change of the profile stamps every node, so unchanged nodes need no look at the settings.
        if stamps != known:
            cluster = clusters.find_cluster(transaction, view.facts.name)
            if cluster is None or facts_of(cluster) != view.facts:
                raise NodeChanged("The settings of the cluster changed meanwhile.")
        states = self._loader.load(transaction, view.facts, roots, view.nodes)
        return LockedNodes(states, all_stored_accounts(transaction, states.values()))

    def check_namesakes(
        self, transaction: Transaction, facts: ClusterFacts, sought: PodKey, known: Sequence[StoredPod]
    ) -> None:
        """Raise NodeChanged unless the pods of that name or uid are the known ones, where they were."""
        # A reservation that is over may be brought back to its node meanwhile.
        if off := [pod.id for pod in known if pod.root_id is None]:
            pods.lock(transaction, off)
        now = pods.namesakes(transaction, facts.id, *sought)
        if [_state_of(pod) for pod in now] != [_state_of(pod) for pod in known]:
            raise NodeChanged("The pod itself changed meanwhile.")

    def renew(self, transaction: Transaction, facts: ClusterFacts, pod: StoredPod) -> None:
        """Renew a claim as if it was made now. Raises NodeChanged if the pod is not what it was."""
        if pod.root_id is not None:
            nodes.lock(transaction, {pod.root_id})
        self.check_namesakes(transaction, facts, PodKey(pod.namespace, pod.name, pod.uid), [pod])
        pods.touch(transaction, pod.id)
        transaction.records.append(changed(facts.name, pod, claimed="again"))

    def end_waits(self, transaction: Transaction, facts: ClusterFacts, waiting: Sequence[StoredPod]) -> None:
        """End the wait of pods on locked nodes for others of their gang."""
        pods.replace_statuses(transaction, {row.id: without_wait(row.status) for row in waiting})
        providers.touch(transaction, (), {row.root_id for row in waiting if row.root_id is not None})
        transaction.records.extend(changed(facts.name, row, waits=False) for row in waiting)

    def change(
        self,
        transaction: Transaction,
        facts: ClusterFacts,
        locked: LockedNodes,
        leaving: Sequence[StoredPod],
        arrival: PodPlacement | None,
        attributes: PodAttributes,
        ending: Sequence[Ending] = (),
        *,
        unreserves: bool = False,
    ) -> None:
        """Let pods leave, reservations end and one pod arrive on nodes that are locked.

        The cluster is locked, too, and alone, if the pod keeps others off. `unreserves`: the pods that leave
        never ran, so reservations that they ended are brought back where their room is still free.

        Raises NodeChanged (NodeRefused if a node does not take it), Conflict (ProviderGone if a provider is
        lost).
        """
        ending = (*ending, arrival.ends) if arrival is not None and arrival.ends else ending
        gone = frozenset((*map(consumer_of, leaving), *(each.reservation.consumer for each in ending)))
        left = {pod.root_id for pod in leaving if pod.root_id is not None}
        left |= {each.root_id for each in ending}
        target = None if arrival is None else arrival.root_id
        returning = _returning(transaction, facts, leaving) if unreserves else {}
        for root_id in sorted(left - {target}) + ([] if target is None else [target]):
            before = locked.states[root_id]
            after = before.without(gone)
            stored = locked.accounts[root_id]
            bearers = bearers_of(after, stored, attributes, gone)
            if arrival is not None and arrival.recorded is not None and root_id == target:
                after = after.with_pod(arrival.recorded)
                consumer = arrival.recorded.consumer
                bearers[consumer] = attributes.pod(consumer, arrival.recorded.namespace)
            for row in returning.get(root_id, ()):
                back = _held(row)
                if after.has_room_for(back):
                    after = after.with_pod(back)
                    bearers[back.consumer] = attributes.pod(back.consumer, back.namespace)
                    _resume(transaction, facts, row, before.id)
            place = NodePlace(before.id, before.cluster_id, before.identity)
            if not self._writer.write(transaction, place, stored, after.accounts, bearers):
                # Pods that hold nothing come and go, too.
                providers.touch(transaction, (), [root_id])
        pods.delete(transaction, [pod.id for pod in leaving])
        if arrival is not None and keeps_off(arrival):
            clusters.raise_rules_generation(transaction, facts.id)
        if ending:
            _end(transaction, facts, ending)
        arriving = set() if arrival is None or arrival.recorded is None else {arrival.recorded.consumer}
        consumers.delete_idle(transaction, gone - arriving)
        answer = None if arrival is None else arrival.answer
        transaction.records.extend(came_and_left(facts.name, leaving, answer))
        if arrival is not None:
            node_id = None if target is None else locked.states[target].id
            pods.insert(transaction, facts.id, [pod_values(arrival, node_id)])


def keeps_off(arrival: PodPlacement) -> bool:
    """Return whether a pod comes that keeps others off by required anti-affinity."""
    return arrival.recorded is not None and bool(arrival.recorded.affinity.apart)


def pod_values(arrival: PodPlacement, node_id: int | None, before: StoredPod | None = None) -> PodValues:
    """Return the values of a pod's row; `before` is the row it replaces, of the same pod."""
    document = arrival.document
    return PodValues(
        namespace=document.namespace,
        name=document.name,
        uid=document.uid,
        manifest=document.manifest,
        status=status_of(
            arrival.answer,
            arrival.recorded,
            None if before is None else before.status,
            "" if arrival.ends is None else arrival.ends.reservation.uid,
        ),
        format=FORMAT,
        node_id=node_id,
    )


def _end(transaction: Transaction, facts: ClusterFacts, ending: Sequence[Ending]) -> None:
    by_uid = {each.reservation.uid: each for each in ending}
    statuses = {}
    for row in pods.reservations(transaction, facts.id, by_uid.keys()):
        end = by_uid[row.uid]
        statuses[row.id] = ended_status(row.status, end.phase, end.remark)
        transaction.records.append(ended(facts.name, row, end.phase, end.remark))
    pods.leave_nodes(transaction, statuses, FORMAT)


def _returning(
    transaction: Transaction, facts: ClusterFacts, leaving: Sequence[StoredPod]
) -> dict[int, list[StoredPod]]:
    """Lock and return the rows of reservations that leaving pods had ended, by their former host provider."""
    by_uid = {uid: pod for pod in leaving if (uid := reservation_ended_by(pod))}
    if not by_uid:
        return {}
    pods.lock(transaction, [row.id for row in pods.reservations(transaction, facts.id, by_uid.keys())])
    found: dict[int, list[StoredPod]] = {}
    for row in pods.reservations(transaction, facts.id, by_uid.keys()):
        pod = by_uid[row.uid]
        keeps = _held(row).keeps
        if pod.root_id is None or keeps is None or keeps.is_over(transaction.now):
            continue
        if was_ended_by(row, used_by(f"{pod.namespace}/{pod.name}", pod.uid)):
            found.setdefault(pod.root_id, []).append(row)
    return found


def _resume(transaction: Transaction, facts: ClusterFacts, row: StoredPod, node_id: int) -> None:
    pods.update(transaction, row.id, row.values(resumed_status(row.status), FORMAT, node_id))
    transaction.records.append(changed(facts.name, row, phase=AVAILABLE))


def _held(row: StoredPod) -> RecordedPod:
    return recorded_pod(row.namespace, row.name, row.uid, row.status["record"])


def used_by(full_name: str, uid: str) -> str:
    """Return the remark on a reservation that one pod has used up."""
    return f"used by pod {full_name}, uid {uid}"


def _state_of(pod: StoredPod) -> tuple[object, ...]:
    return pod.id, pod.root_id, pod.changed_at


def bearers_of(
    after: NodeInfo,
    stored: NodeAllocations,
    attributes: PodAttributes,
    gone: Collection[str] = (),
) -> dict[str, ConsumerAttributes]:
    """Return attributes of holders on a node that are stored with nothing, or are among the pods `gone`."""
    bearers = {
        consumer: attributes.kubelet_pod(consumer)
        for consumer in _left_to_kubelet(after)
        if consumer in gone or consumer not in stored.shares
    }
    return bearers | {
        each.consumer: attributes.pod(each.consumer, each.namespace)
        for each in after.reservations
        if each.consumer not in stored.shares
    }


def _left_to_kubelet(state: NodeInfo) -> set[str]:
    """Return the consumers with CPUs by report only: they get theirs when others leave."""
    return {consumer for consumer, _ in state.reported_pods} - {pod.consumer for pod in state.pods}
