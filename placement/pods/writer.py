"""The writing of pods that come and go: rows of pods, and the accounts of the nodes concerned.

A transaction that changes the pods of a node locks its host provider and stamps it. So a node with an
unchanged stamp still has the pods that were read.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from placement.allocations.claims import changes_of
from placement.allocations.statements import consumers
from placement.allocations.statements.consumers import AttributeRegistry, ConsumerAttributes, HeldAllocation
from placement.common.pod_identity import canonical_uid
from placement.engine.domain.audit import Action, TargetKind
from placement.engine.domain.errors import Conflict, NotFound
from placement.pods.accounts import NodeAllocations
from placement.pods.cache import ClusterSnapshot
from placement.pods.documents import PodDocument
from placement.pods.model import HostIdentity, RecordedPod
from placement.pods.node_info import NodeInfo
from placement.pods.node_loading import ClusterFacts, NodeLoader, all_stored_accounts, facts_of
from placement.pods.rows import (
    FORMAT,
    PodAnswer,
    arrived,
    came_and_left,
    changed,
    consumer_of,
    ended,
    ended_status,
    held_by,
    reservation_ended_by,
    resumed_status,
    status_of,
    waits,
    was_ended_by,
    without_wait,
)
from placement.pods.statements import nodes, pods
from placement.pods.statements.pods import PodValues, StoredPod
from placement.providers.statements import clusters, providers
from placement.providers.statements.clusters import Cluster
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
        kind, user = (POD, namespace) if namespace else (RESERVATION, _RESERVATION_USER)
        return ConsumerAttributes(consumer, self.cluster, user, kind, self.cluster_id)

    def kubelet_pod(self, consumer: str) -> ConsumerAttributes:
        """Return the attributes of a pod that only kubelet reports."""
        return ConsumerAttributes(consumer, self.cluster, _KUBELET_USER, KUBELET, self.cluster_id)


class NodeWriter:
    """A writer of the accounts of nodes, inside a transaction of the caller."""

    def __init__(self, attributes: AttributeRegistry, history: History) -> None:
        self._attributes = attributes
        self._class_ids = ClassIds(history)

    def attributes(self, cluster: Cluster | ClusterFacts, namespaces: Iterable[str] = ()) -> PodAttributes:
        """Return the attributes of consumers in these namespaces; call it before the transaction begins."""
        wanted = {
            ("project", cluster.name),
            *(("type", kind) for kind in (POD, KUBELET, RESERVATION)),
            *(("user", user) for user in (_KUBELET_USER, _RESERVATION_USER, *namespaces) if user),
        }
        self._attributes.register(wanted)
        return PodAttributes(cluster.name, cluster.id)

    def write(self, transaction: Transaction, change: NodeChange) -> bool:
        """Write the difference between two accounts of a node, and stamp its host.

        Returns False if there was nothing to write. Raises NodeChanged if something does not fit any more,
        Conflict if a consumer exists and is not of this cluster.
        """
        if change.is_empty:
            return False
        self.write_all(transaction, [change])
        return True

    def write_all(self, transaction: Transaction, changes: Sequence[NodeChange]) -> None:
        """Write changes of nodes of one cluster as `write` does; none is empty, no two share a consumer."""
        _Writing(transaction, changes).run(self._class_ids)


@dataclass(frozen=True, eq=False)
class NodeChange:
    """A change of the accounts of a node; the uuids of its providers derive from the `identity`.

    `bearers` are the attributes of consumers that are new, or of another kind than before.
    """

    node_id: int
    cluster_id: int
    identity: HostIdentity
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
            held.setdefault(self.identity.uuid(place.path), {})[place.resource_class] = amount
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
            node_id, before, after = change.node_id, change.before.cpus, change.after.cpus
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
        cluster_id = self._changes[0].cluster_id
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
        """Lock the providers, and write the allocations there. Raises ProviderGone, NodeRefused."""
        places = {
            (change, place)
            for change in self._changes
            for consumer in change.consumers
            for shares in (change.before.shares, change.after.shares)
            for place in shares.get(consumer, {})
        }
        paths = {(change, place.path) for change, place in places} | {(each, "") for each in self._changes}
        uuids = {change.identity.uuid(path): (change, path) for change, path in paths}
        locked = providers.lock_and_stamp(self._transaction, uuids)
        for uuid, (change, path) in sorted(uuids.items(), key=lambda item: item[1][1]):
            if uuid not in locked:
                raise ProviderGone(change.node_id, change.identity.name(path))
        ids = {uuids[uuid]: id_ for uuid, id_ in locked.items()}
        node_ids = {id_: change.node_id for (change, _), id_ in ids.items()}
        classes = class_ids(self._transaction, {place.resource_class for _, place in places})
        known = existing & set().union(*(change.consumers for change in self._changes))
        held = consumers.held_by(self._transaction, known) if known else ()
        stored = [row for row in held if row.provider_id in node_ids]
        fresh = [
            HeldAllocation(consumer, ids[change, place.path], classes[place.resource_class], amount)
            for change in self._changes
            for consumer in change.consumers
            for place, amount in change.after.shares.get(consumer, {}).items()
        ]
        wanted = changes_of(stored, fresh)
        allowed = consumers.apply_changes(self._transaction, wanted)
        for each in wanted:
            if (each.provider_id, each.class_id) not in allowed:
                raise NodeRefused(node_ids[each.provider_id])
        consumers.replace_held(
            self._transaction,
            {row.consumer_uuid for row in stored},
            fresh,
            {row.provider_id for row in stored},
        )


AVAILABLE, SUCCEEDED = "Available", "Succeeded"
"""The phases of a reservation that is on its node, and of one that its only owner used."""


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


class Waiting(NamedTuple):
    """A pod that waits for its gang, and its node."""

    pod: RecordedPod
    node: NodeInfo


@dataclass(frozen=True, slots=True)
class PodReport:
    """A pod that occupies nothing any more, and the answer about it."""

    document: PodDocument
    answer: PodAnswer


@dataclass(frozen=True, slots=True)
class PodPlacement(PodReport):
    """A pod that gets a place, or is reported at one: its node before it comes, and what it holds there.

    `used` is the reservation that it takes from.
    """

    state: NodeInfo
    recorded: RecordedPod
    used: RecordedPod | None = None

    @property
    def ends(self) -> Ending | None:
        """Return how the reservation ends that it uses; None if other pods may use that, too."""
        used, document = self.used, self.document
        if used is None or used.keeps is None or not used.keeps.allocate_once:
            return None
        remark = used_by(document.full_name, document.uid)
        return Ending(used, self.state.root_id, SUCCEEDED, remark)


@dataclass(frozen=True, slots=True)
class LockedNodes:
    """Nodes that are locked, by host provider: their states, and their accounts as they are stored."""

    states: Mapping[int, NodeInfo]
    accounts: Mapping[int, NodeAllocations]


class PodWriter(NodeWriter):
    """A writer that lets pods come to nodes and leave them, inside a transaction of the caller."""

    def __init__(self, attributes: AttributeRegistry, history: History, loader: NodeLoader) -> None:
        super().__init__(attributes, history)
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

        Stored allocations and owners of CPUs are read only of nodes where the sum of `used` is below what is
        due to their pods; no consumer ever holds more than its due. `checks_rules`: a pod comes
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

    def commit(
        self,
        transaction: Transaction,
        facts: ClusterFacts,
        locked: LockedNodes,
        attributes: PodAttributes,
        *,
        arrivals: Sequence[PodReport] = (),
        leaving: Sequence[StoredPod] = (),
        ending: Sequence[Ending] = (),
        freed: Sequence[Waiting] = (),
        decided: Mapping[int, NodeInfo] = MappingProxyType({}),
        unreserves: bool = False,
    ) -> None:
        """Let pods leave, reservations end and pods arrive, on nodes that are locked.

        The cluster is locked, too, and alone, if a pod keeps others off. `freed` pods need not wait for their
        gang any longer. `decided` are the nodes, by host provider, with their arrivals, if these were counted
        already and nothing leaves. `unreserves`: the pods that leave never ran, so reservations that they
        ended are brought back where their room is still free.

        Raises NodeChanged (NodeRefused if a node does not take its pods), Conflict (ProviderGone if a
        provider is lost).
        """
        ending, coming = [*ending], dict[int, list[RecordedPod]]()
        for each in arrivals:
            if isinstance(each, PodPlacement):
                coming.setdefault(each.state.root_id, []).append(each.recorded)
                ending += [] if each.ends is None else [each.ends]
        gone = frozenset((*map(consumer_of, leaving), *(each.reservation.consumer for each in ending)))
        arriving, keeps_off = set[str](), False
        left = {pod.root_id for pod in leaving if pod.root_id is not None}
        left |= {each.root_id for each in ending}
        returning = _returning(transaction, facts, leaving) if unreserves else {}
        # A pod that moves leaves its former node before it comes to the other one.
        for roots in (
            *([root_id] for root_id in sorted(left - coming.keys())),
            sorted(coming.keys() | decided.keys()),
        ):
            changes, idle = list[NodeChange](), list[int]()
            for root_id in roots:
                before, stored = locked.states[root_id], locked.accounts[root_id]
                after = decided.get(root_id) or before.without(gone)
                for recorded in () if root_id in decided else coming.get(root_id, ()):
                    after = after.with_pod(recorded)
                for row in returning.get(root_id, ()):
                    if after.has_room_for(held_by(row)):
                        after = after.with_pod(held_by(row))
                        _resume(transaction, facts, row, before.id)
                bearers = bearers_of(after, stored, attributes, gone)
                for recorded in coming.get(root_id, ()):
                    arriving.add(recorded.consumer)
                    keeps_off = keeps_off or bool(recorded.affinity.apart)
                    bearers[recorded.consumer] = attributes.pod(recorded.consumer, recorded.namespace)
                change = NodeChange(
                    before.id, before.cluster_id, before.identity, stored, after.accounts, bearers
                )
                if change.is_empty:
                    idle.append(root_id)
                else:
                    changes.append(change)
            if changes:
                self.write_all(transaction, changes)
            # Pods that hold nothing come and go, too.
            providers.touch(transaction, (), idle)
        pods.delete(transaction, [pod.id for pod in leaving])
        if keeps_off:
            clusters.raise_rules_generation(transaction, facts.id)
        if ending:
            _end(transaction, facts, ending)
        consumers.delete_idle(transaction, gone - arriving)
        if freed:
            self.end_waits(transaction, facts, freed)
        transaction.records.extend(came_and_left(facts.name, leaving, [each.answer for each in arrivals]))
        pods.insert(transaction, facts.id, list(map(pod_values, arrivals)))

    def end_waits(self, transaction: Transaction, facts: ClusterFacts, freed: Sequence[Waiting]) -> None:
        """End the wait of pods on locked nodes. Raises NodeChanged unless all of them still wait."""
        stored = pods.any_namesakes(transaction, facts.id, (), {each.pod.uid for each in freed})
        waiting = {row.uid: row for row in stored if waits(row)}
        if not all(each.pod.uid in waiting for each in freed):
            raise NodeChanged("A member of the gang changed meanwhile.")
        rows = [waiting[each.pod.uid] for each in freed]
        pods.replace_statuses(transaction, {row.id: without_wait(row.status) for row in rows})
        providers.touch(transaction, (), {each.node.root_id for each in freed})
        transaction.records.extend(changed(facts.name, row, waits=False) for row in rows)

    def stay(
        self, transaction: Transaction, facts: ClusterFacts, reports: Iterable[tuple[StoredPod, PodReport]]
    ) -> None:
        """Write what is reported of pods that stay where they are with what they hold, each with its row."""
        values = {}
        for row, report in reports:
            values[row.id] = pod_values(report, row)
            transaction.records.append(arrived(facts.name, report.answer, row))
        pods.update(transaction, values)


def pod_values(report: PodReport, before: StoredPod | None = None) -> PodValues:
    """Return the values of a pod's row; `before` is the row it replaces, of the same pod."""
    document, placement = report.document, report if isinstance(report, PodPlacement) else None
    ends = None if placement is None else placement.ends
    return PodValues(
        namespace=document.namespace,
        name=document.name,
        uid=document.uid,
        manifest=document.manifest,
        status=status_of(
            report.answer,
            None if placement is None else placement.recorded,
            None if before is None else before.status,
            "" if ends is None else ends.reservation.uid,
        ),
        format=FORMAT,
        node_id=None if placement is None else placement.state.id,
    )


def _end(transaction: Transaction, facts: ClusterFacts, ending: Sequence[Ending]) -> None:
    by_uid = {each.reservation.uid: each for each in ending}
    values = {}
    for row in pods.reservations(transaction, facts.id, by_uid.keys()):
        end = by_uid[row.uid]
        values[row.id] = row.values(ended_status(row.status, end.phase, end.remark), FORMAT, None)
        transaction.records.append(ended(facts.name, row, end.phase, end.remark))
    pods.update(transaction, values)


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
        keeps = held_by(row).keeps
        if pod.root_id is None or keeps is None or keeps.is_over(transaction.now):
            continue
        if was_ended_by(row, used_by(f"{pod.namespace}/{pod.name}", pod.uid)):
            found.setdefault(pod.root_id, []).append(row)
    return found


def _resume(transaction: Transaction, facts: ClusterFacts, row: StoredPod, node_id: int) -> None:
    pods.update(transaction, {row.id: row.values(resumed_status(row.status), FORMAT, node_id)})
    transaction.records.append(changed(facts.name, row, phase=AVAILABLE))


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
    # Consumers with CPUs by report only get theirs when others leave.
    reported = {consumer for consumer, _ in after.reported_pods} - {pod.consumer for pod in after.pods}
    bearers = {
        consumer: attributes.kubelet_pod(consumer)
        for consumer in reported
        if consumer in gone or consumer not in stored.shares
    }
    return bearers | {
        each.consumer: attributes.pod(each.consumer, each.namespace)
        for each in after.reservations
        if each.consumer not in stored.shares
    }
