"""Writing what the pods of a node hold: allocations, logical CPUs, consumers.

The caller has locked the host provider of the node and knows the allocations before and after. Only the
difference is written, by the statements of ordinary claims, which refuse what does not fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from placement.allocations.replacement import changes_of
from placement.allocations.statements import allocations, consumers
from placement.allocations.statements.allocations import HeldAllocation
from placement.allocations.statements.consumers import AttributeRegistry, ConsumerAttributes
from placement.engine.domain.audit import Action, TargetKind
from placement.engine.domain.errors import Conflict
from placement.pods.accounts import NodeAllocations
from placement.pods.host import Place
from placement.pods.koordinator.tree import HostIdentity
from placement.pods.statements import pods
from placement.providers.statements import providers
from placement.providers.statements.names import ClassIds
from placement.storage.database import Transaction
from placement.storage.failures import TryAgain
from placement.storage.history import History

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
