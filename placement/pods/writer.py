"""The writing of pods that come and go: rows of pods, and the accounts of the nodes concerned.

A transaction that changes the pods of a node locks its host provider and stamps it. So a node with an
unchanged stamp still has the pods that were read.
"""

from __future__ import annotations

import datetime
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import repeat
from operator import attrgetter
from typing import NamedTuple

from placement.allocations.claims import changes_of
from placement.allocations.statements import consumers
from placement.allocations.statements.consumers import (
    AttributeRegistry,
    ConsumerAttributes,
    HeldAllocation,
    InventoryAmount,
)
from placement.engine.domain.audit import Action, TargetKind
from placement.engine.domain.errors import Conflict
from placement.pods import statements
from placement.pods.cache import ClusterCache, ClusterFacts, ClusterSnapshot, facts_of
from placement.pods.gangs import AVAILABLE, Ending, Waiting, used_by
from placement.pods.model import HostIdentity, RecordedPod
from placement.pods.node_info import NodeAllocations, NodeInfo
from placement.pods.rows import (
    FORMAT,
    PodEntry,
    PodPlacement,
    arrived,
    came_and_left,
    changed,
    consumer_of,
    ended,
    ended_status,
    held_by,
    pod_values,
    reservation_ended_by,
    resumed_status,
    stored_accounts,
    waits,
    was_ended_by,
    without_wait,
)
from placement.pods.statements import PodInsert, StoredPod
from placement.providers.statements import clusters, providers
from placement.providers.statements.clusters import Cluster
from placement.providers.statements.names import ClassIds
from placement.storage.clock import agreed_now, utcnow
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
        return not (self.bearers or self.consumers) and self.before.cpus == self.after.cpus

    @cached_property
    def consumers(self) -> set[str]:
        """Return the consumers that hold something else afterwards."""
        before, after = self.before.shares, self.after.shares
        others = set[str]()
        for consumer in before.keys() | after.keys():
            if before.get(consumer, {}) != after.get(consumer, {}):
                others.add(consumer)
        return others

    def described(self, accounts: NodeAllocations, consumer: str) -> dict[str, object] | None:
        """Return what records show of a consumer by these accounts, None if it holds nothing.

        A reservation that its owners have used up is counted, and holds nothing.
        """
        held: dict[str, dict[str, int]] = {}
        for place, amount in accounts.shares.get(consumer, {}).items():
            held.setdefault(self.identity.uuid(place.path), {})[place.resource_class] = amount
        return {"allocations": held} if held else None


class PodKey(NamedTuple):
    """A key to find pods by: a name or, if it is given, a uid."""

    namespace: str
    name: str
    uid: str | None = None


@dataclass(frozen=True, slots=True)
class LockedNodes:
    """Nodes that are locked, by host provider: their states, and their accounts as they are stored."""

    states: Mapping[int, NodeInfo]
    accounts: Mapping[int, NodeAllocations]


@dataclass(frozen=True, slots=True)
class PodMoves:
    """Pods that arrive and leave together, and reservations that end.

    `freed` pods need not wait for their gang any longer. `decided` are the nodes, by host provider, with
    their arrivals, if these were counted already and nothing leaves. `unreserves`: the pods that leave never
    ran, so reservations that they ended are brought back where their room is still free.
    """

    arrivals: Sequence[PodEntry] = ()
    leaving: Sequence[StoredPod] = ()
    ending: Sequence[Ending] = ()
    freed: Sequence[Waiting] = ()
    decided: Mapping[int, NodeInfo] = field(default_factory=dict)
    unreserves: bool = False


# What tells whether a pod is as it was.
_STATE = attrgetter("id", "root_id", "changed_at")


class PodWriter:
    """A writer of the accounts of nodes that lets pods come and leave, in transactions of its callers."""

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
        self, view: ClusterSnapshot, arrival: PodPlacement, attributes: PodAttributes
    ) -> datetime.datetime | None:
        """Write a pod by one statement if none of its name or uid exists and its node is as in the view.

        The database has such a statement. Returns when the pod was written. Returns None, and does nothing,
        if that cannot be; `commit` finds out why. So it is where more changes than the pod's own shares and
        CPUs, as where a reservation ends. Raises OutcomeUnknown, Unavailable.
        """
        if arrival.ends is not None:
            return None
        recorded, consumer = arrival.recorded, arrival.recorded.consumer
        before = view.nodes[arrival.state.root_id]
        after = before.with_pod(recorded)
        shares, owners = before.accounts.shares, after.accounts.cpus
        places = after.accounts.shares[consumer]
        if (
            consumer in shares
            or {**shares, consumer: places} != after.accounts.shares
            or not before.accounts.cpus.items() <= owners.items()
        ):
            return None
        uuids = {path: before.identity.uuid(path) for path in {"", *(place.path for place in places)}}
        now = utcnow()
        wanted = PodInsert(
            cluster_id=before.cluster_id,
            values=pod_values(arrival),
            consumer=attributes.pod(consumer, recorded.namespace),
            host_id=before.root_id,
            host_revision=before.revision,
            used_below=before.due,
            providers=sorted(uuids.values()),
            amounts=[
                InventoryAmount(consumer, uuids[place.path], place.resource_class, amount)
                for place, amount in places.items()
            ],
            levels={cpu: owner.level for cpu, owner in sorted(owners.items()) if owner.consumer == consumer},
            record=arrived(view.facts.name, arrival.answer),
            rules_generation=view.rules_generation,
        )
        try:
            written = statements.place_at_once(self._database, wanted, now)
        except Unreachable:
            raise
        except TryAgain:
            return None
        if written is None:
            return None
        self._cluster_cache.took_place(before, after.stamped(written.stamp), written)
        return now

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
        trees = statements.lock_with_use(transaction, roots, view.facts.id, generation)
        states, stored = dict[int, NodeInfo](), dict[int, NodeAllocations]()
        owed = list[NodeInfo]()
        for root_id in roots:
            known, tree = view.nodes.get(root_id), trees.get(root_id)
            if known is None or tree is None or tree.revision != known.revision:
                raise NodeChanged("A node changed while the pod was placed.")
            states[root_id], stored[root_id] = known, known.accounts
            if tree.used != known.due:
                owed.append(known)
        if owed:
            stored |= stored_accounts(transaction, owed)
        return LockedNodes(states, stored)

    def lock(self, transaction: Transaction, view: ClusterSnapshot, roots: Collection[int]) -> LockedNodes:
        """Lock nodes as they are now, with what is really stored of them.

        Less is stored than follows from the pods where other consumers gave back what a pod lacked.
        Raises NodeChanged if the settings of the cluster have changed since the view.
        """
        if not roots:
            return LockedNodes({}, {})
        stamps = statements.lock_hosts(transaction, roots, view.facts.id)
        known = {root_id: node.revision for root_id, node in view.known(roots).items()}
        # A change of the profile stamps every node, so unchanged nodes need no look at the settings.
        if stamps != known:
            cluster = clusters.find_cluster(transaction, view.facts.name)
            if cluster is None or facts_of(cluster) != view.facts:
                raise NodeChanged("The settings of the cluster changed meanwhile.")
        states = self._cluster_cache.loader.load(transaction, view.facts, roots, view.nodes)
        return LockedNodes(states, stored_accounts(transaction, states.values()))

    def check_namesakes(
        self,
        transaction: Transaction,
        facts: ClusterFacts,
        sought: Sequence[PodKey],
        known: Sequence[StoredPod],
    ) -> None:
        """Raise NodeChanged unless the pods of these names or uids are the known ones, where they were."""
        # A reservation that is over may be brought back to its node meanwhile.
        if off := [pod.id for pod in known if pod.root_id is None]:
            statements.lock_rows(transaction, off)
        if len(sought) == 1:
            now = statements.namesakes(transaction, facts.id, *sought[0])
        else:
            names, uids = {key[:2] for key in sought}, {key.uid for key in sought if key.uid}
            now = statements.any_namesakes(transaction, facts.id, names, uids)
        if list(map(_STATE, now)) != list(map(_STATE, known)):
            raise NodeChanged("The pod itself changed meanwhile.")

    def renew(self, transaction: Transaction, facts: ClusterFacts, pod: StoredPod) -> None:
        """Renew a claim as if it was made now. Raises NodeChanged if the pod is not what it was.

        What it holds stays, so there is no audit record.
        """
        if pod.root_id is not None:
            statements.lock_hosts(transaction, {pod.root_id})
        self.check_namesakes(transaction, facts, [PodKey(pod.namespace, pod.name, pod.uid)], [pod])
        statements.touch(transaction, pod.id)

    def commit(
        self, transaction: Transaction, locked: LockedNodes, attributes: PodAttributes, moves: PodMoves
    ) -> None:
        """Let pods leave, reservations end and pods arrive, on nodes that are locked.

        The cluster is locked, too, and alone, if a pod keeps others off. Raises NodeChanged (NodeRefused if a
        node does not take its pods), Conflict (ProviderGone if a provider is lost).
        """
        ending, coming = [*moves.ending], dict[int, list[RecordedPod]]()
        arriving, keeps_off = set[str](), False
        for each in moves.arrivals:
            if isinstance(each, PodPlacement):
                coming.setdefault(each.state.root_id, []).append(each.recorded)
                ending += [] if each.ends is None else [each.ends]
                arriving.add(each.recorded.consumer)
                keeps_off = keeps_off or bool(each.recorded.affinity.apart)
        left, gone = set[int](), frozenset(map(consumer_of, moves.leaving))
        for pod in moves.leaving:
            if pod.root_id is not None:
                left.add(pod.root_id)
        for end in ending:
            left.add(end.root_id)
            gone |= {end.reservation.consumer}
        returning = _returning(transaction, attributes, moves.leaving) if moves.unreserves else {}
        # A pod that moves leaves its former node before it comes to the other one.
        for roots in (
            *([root_id] for root_id in sorted(left - coming.keys())),
            sorted(coming.keys() | moves.decided.keys()),
        ):
            changes, idle = list[NodeChange](), list[int]()
            for root_id in roots:
                after = moves.decided.get(root_id)
                if after is None:
                    after = locked.states[root_id].without(gone) if gone else locked.states[root_id]
                    for recorded in coming.get(root_id, ()):
                        after = after.with_pod(recorded)
                if root_id in returning:
                    after = _with_returned(transaction, attributes, after, returning[root_id])
                here = coming.get(root_id, ())
                change = _change_to(after, locked.accounts[root_id], attributes, gone, here)
                if change.is_empty:
                    idle.append(root_id)
                else:
                    changes.append(change)
            if changes:
                self.write(transaction, changes)
            if idle:
                # Pods that hold nothing come and go, too.
                providers.touch(transaction, (), idle)
        if moves.leaving:
            statements.delete(transaction, [pod.id for pod in moves.leaving])
        if keeps_off:
            clusters.raise_rules_generation(transaction, attributes.cluster_id)
        if ending:
            _end(transaction, attributes, ending)
        consumers.delete_idle(transaction, gone - arriving)
        if moves.freed:
            _end_waits(transaction, attributes, moves.freed)
        answers = map(attrgetter("answer"), moves.arrivals)
        transaction.records.extend(came_and_left(attributes.cluster, moves.leaving, answers))
        statements.insert(transaction, attributes.cluster_id, list(map(pod_values, moves.arrivals)))

    def stay(
        self, transaction: Transaction, facts: ClusterFacts, reports: Iterable[tuple[StoredPod, PodEntry]]
    ) -> None:
        """Write what is reported of pods that stay where they are with what they hold, each with its row.

        A report that changes nothing has no audit record.
        """
        values = {}
        for row, report in reports:
            values[row.id] = now = pod_values(report, row)
            # A synchronization that starts reports every pod again.
            if (now.manifest, now.status, now.node_id) != (row.manifest, row.status, row.node_id):
                transaction.records.append(arrived(facts.name, report.answer, row))
        statements.update(transaction, values)

    def write(self, transaction: Transaction, changes: Sequence[NodeChange]) -> None:
        """Write changes of nodes of one cluster that share no consumer, and stamp their hosts; none is empty.

        Consumers come first, then providers, each in ascending order. Only differences are written, by the
        statements of ordinary claims, which refuse what does not fit. Raises NodeChanged if something does
        not fit any more, Conflict if a consumer is not of this cluster.
        """
        bearers: dict[str, ConsumerAttributes] = {}
        concerned, new, gone = set[str](), list[ConsumerAttributes](), set[str]()
        for change in changes:
            bearers |= change.bearers
            concerned |= change.consumers
            new += [each for uuid, each in change.bearers.items() if uuid in change.after.shares]
            gone |= change.before.shares.keys() - change.after.shares.keys()
        rest = (concerned | bearers.keys()) - consumers.create(transaction, new)
        existing = consumers.lock(transaction, rest) if rest else {}
        for uuid, consumer in existing.items():
            if consumer.cluster_id != changes[0].cluster_id:
                # One text, so that callers that see one cluster do not learn what is in others.
                known = f"Consumer {uuid} exists already and is no pod of this cluster"
                raise Conflict(f"{known}; is this Kubernetes recorded under two names?")
        if rest:
            renewed = sorted(existing.keys() & bearers.keys())
            consumers.advance(transaction, [bearers[uuid] for uuid in renewed])
        # Also of consumers without a request: pods may get what another one leaves.
        for change in changes:
            for uuid in sorted(change.consumers | change.bearers.keys()):
                before, after = change.described(change.before, uuid), change.described(change.after, uuid)
                if before is not None or after is not None:
                    present = Action.CREATE if before is None else Action.UPDATE
                    action = Action.DELETE if after is None else present
                    kind = TargetKind.ALLOCATIONS
                    transaction.record(action, kind, uuid, before=before, after=after, consumer=uuid)
        self._write_shares(transaction, changes, concerned & existing.keys())
        left, taken = set[statements.NodeCpu](), dict[statements.NodeCpu, tuple[str, str]]()
        for change in changes:
            node_id, old, own = change.node_id, change.before.cpus, change.after.cpus
            for cpu, owner in old.items():
                if own.get(cpu) != owner:
                    left.add((node_id, cpu))
            for cpu, owner in own.items():
                if old.get(cpu) != owner:
                    taken[node_id, cpu] = owner.consumer, owner.level
        if left:
            statements.disown(transaction, left)
        statements.own(transaction, taken)
        consumers.delete_idle(transaction, gone)

    def _write_shares(
        self, transaction: Transaction, changes: Sequence[NodeChange], existing: Collection[str]
    ) -> None:
        """Lock the providers, and write the allocations there. Raises ProviderGone, NodeRefused."""
        uuids: dict[str, tuple[NodeChange, str]] = {}
        names = set[str]()
        for change in changes:
            paths = {""}
            for consumer in change.consumers:
                for shares in (change.before.shares, change.after.shares):
                    for place in shares.get(consumer, ()):
                        names.add(place.resource_class)
                        paths.add(place.path)
            # The host comes first: if the whole tree is gone, its name is the one to tell.
            for path in sorted(paths):
                uuids[change.identity.uuid(path)] = change, path
        locked = providers.lock_and_stamp(transaction, uuids)
        ids, node_ids = dict[tuple[NodeChange, str], int](), dict[int, int]()
        for uuid, (change, path) in uuids.items():
            if uuid not in locked:
                raise ProviderGone(change.node_id, change.identity.name(path))
            ids[change, path] = locked[uuid]
            node_ids[locked[uuid]] = change.node_id
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


def _end(transaction: Transaction, attributes: PodAttributes, ending: Sequence[Ending]) -> None:
    by_uid = {each.reservation.uid: each for each in ending}
    values = {}
    for row in statements.reservations(transaction, attributes.cluster_id, by_uid.keys()):
        end = by_uid[row.uid]
        values[row.id] = row.values(ended_status(row.status, end.phase, end.remark), FORMAT, None)
        transaction.records.append(ended(attributes.cluster, row, end.phase, end.remark))
    statements.update(transaction, values)


def _end_waits(transaction: Transaction, attributes: PodAttributes, freed: Sequence[Waiting]) -> None:
    """End the wait of pods on locked nodes. Raises NodeChanged unless all of them still wait."""
    stored = statements.any_namesakes(
        transaction, attributes.cluster_id, (), {each.pod.uid for each in freed}
    )
    waiting = {row.uid: row for row in stored if waits(row)}
    if not all(each.pod.uid in waiting for each in freed):
        raise NodeChanged("A member of the gang changed meanwhile.")
    rows = [waiting[each.pod.uid] for each in freed]
    statements.replace_statuses(transaction, {row.id: without_wait(row.status) for row in rows})
    providers.touch(transaction, (), {each.node.root_id for each in freed})
    transaction.records.extend(changed(attributes.cluster, row, waits=False) for row in rows)


def _returning(
    transaction: Transaction, attributes: PodAttributes, leaving: Sequence[StoredPod]
) -> dict[int, list[StoredPod]]:
    """Lock and return the rows of reservations that leaving pods had ended, by their former host provider."""
    by_uid = {uid: pod for pod in leaving if (uid := reservation_ended_by(pod))}
    if not by_uid:
        return {}
    statements.lock_rows(
        transaction,
        [row.id for row in statements.reservations(transaction, attributes.cluster_id, by_uid.keys())],
    )
    found: dict[int, list[StoredPod]] = {}
    for row in statements.reservations(transaction, attributes.cluster_id, by_uid.keys()):
        pod = by_uid[row.uid]
        keeps = held_by(row).keeps
        if pod.root_id is None or keeps is None or keeps.is_over(agreed_now()):
            continue
        if was_ended_by(row, used_by(f"{pod.namespace}/{pod.name}", pod.uid)):
            found.setdefault(pod.root_id, []).append(row)
    return found


def _with_returned(
    transaction: Transaction, attributes: PodAttributes, after: NodeInfo, returning: Sequence[StoredPod]
) -> NodeInfo:
    """Bring reservations back to a node as far as their room is still free; return it with them."""
    for row in returning:
        if after.has_room_for(held_by(row)):
            after = after.with_pod(held_by(row))
            statements.update(transaction, {row.id: row.values(resumed_status(row.status), FORMAT, after.id)})
            transaction.records.append(changed(attributes.cluster, row, phase=AVAILABLE))
    return after


def _change_to(
    after: NodeInfo,
    stored: NodeAllocations,
    attributes: PodAttributes,
    gone: Collection[str],
    coming: Sequence[RecordedPod],
) -> NodeChange:
    """Return the change of what is stored of a node, with attributes of consumers that need them.

    These are holders that are stored with nothing, or are among the pods `gone`, and pods that come.
    """
    bearers, accounts = dict[str, ConsumerAttributes](), after.accounts
    if after.reported_pods:
        recorded = {pod.consumer for pod in after.pods}
        for consumer, _ in after.reported_pods:
            # Consumers with CPUs by report only get theirs when others leave.
            if consumer not in recorded and (consumer in gone or consumer not in stored.shares):
                bearers[consumer] = attributes.kubelet_pod(consumer)
    for each in after.reservations:
        if each.consumer not in stored.shares:
            bearers[each.consumer] = attributes.pod(each.consumer, each.namespace)
    for each in coming:
        bearers[each.consumer] = attributes.pod(each.consumer, each.namespace)
    return NodeChange(after.id, after.cluster_id, after.identity, stored, accounts, bearers)
