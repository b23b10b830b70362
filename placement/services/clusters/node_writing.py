"""Writing what the pods of a node hold: allocations, logical CPUs, consumers.

The caller has locked the host provider of the node and knows the allocations before and after. Only the
difference is written, by the statements of ordinary claims, which refuse what does not fit.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from placement.dialects.koordinator.node.tree import HostIdentity
from placement.domain.errors import Conflict
from placement.scheduling.node_allocations import NodeAllocations
from placement.services.placement.replacement import changes_of
from placement.storage.changes.history import History
from placement.storage.database import Transaction
from placement.storage.failures import TryAgain
from placement.storage.statements import (
    allocations,
    consumers,
    pods,
    providers,
)
from placement.storage.statements.allocations import Held
from placement.storage.statements.consumers import AttributeRegistry, ConsumerAttributes
from placement.storage.statements.names import ClassIds

POD = "POD"
KUBELET = "KUBELET"
RESERVATION = "RESERVATION"
_KUBELET_USER = "kubelet"
_RESERVATION_USER = "reservation"


class NodeChanged(TryAgain):
    """Another writer changed the node meanwhile; the caller has to load it and decide again."""


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
        """The attributes of a recorded pod, or of a reservation, which has no namespace."""
        if not namespace:
            return self._of(consumer, RESERVATION, _RESERVATION_USER)
        return self._of(consumer, POD, namespace)

    def kubelet_pod(self, consumer: str) -> ConsumerAttributes:
        """The attributes of a pod that only kubelet reports."""
        return self._of(consumer, KUBELET, _KUBELET_USER)

    def _of(self, consumer: str, kind: str, user: str) -> ConsumerAttributes:
        return ConsumerAttributes(consumer, self.cluster, user, kind, self.cluster_id)


class NodeWriter:
    """Writes the accounts of nodes, inside a transaction of the caller."""

    def __init__(self, attributes: AttributeRegistry, history: History) -> None:
        self._attributes = attributes
        self._class_ids = ClassIds(history)

    def attributes(self, cluster: str, cluster_id: int, namespace: str | None = None) -> PodAttributes:
        """The attributes of consumers in this namespace; to be asked for before the transaction begins."""
        wanted = {
            ("project", cluster),
            *(("type", kind) for kind in (POD, KUBELET, RESERVATION)),
            *(("user", user) for user in (_KUBELET_USER, _RESERVATION_USER)),
        }
        if namespace:
            wanted.add(("user", namespace))
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
        """Bring what is stored of a node from the accounts before to those after, and stamp its host.

        `bearers` are the attributes of consumers that are new, or of another kind than before. False if there
        was nothing to write. Raises NodeChanged if something does not fit any more, Conflict if a consumer is
        somebody else's.
        """
        return _Writing(transaction, place, before, after).run(bearers, self._class_ids)


@dataclass(frozen=True, slots=True)
class NodePlace:
    """Which node it is: its id, that of its cluster, and what the uuids of its providers derive from."""

    node_id: int
    cluster_id: int
    identity: HostIdentity


@dataclass(slots=True)
class _Writing:
    transaction: Transaction
    place: NodePlace
    before: NodeAllocations
    after: NodeAllocations

    def run(self, bearers: Mapping[str, ConsumerAttributes], class_ids: ClassIds) -> bool:
        before, after = self.before.shares, self.after.shares
        changed = {
            consumer
            for consumer in before.keys() | after.keys()
            if before.get(consumer, {}) != after.get(consumer, {})
        }
        moved = {
            cpu
            for cpu in self.before.cpus.keys() | self.after.cpus.keys()
            if self.before.cpus.get(cpu) != self.after.cpus.get(cpu)
        }
        if not (changed or moved or bearers):
            return False
        existing = self._settle_consumers(changed | bearers.keys(), bearers)
        self._write_shares(changed, existing, class_ids)
        pods.disown(self.transaction, self.place.node_id, moved & self.before.cpus.keys())
        owners = {cpu: self.after.cpus[cpu] for cpu in moved & self.after.cpus.keys()}
        pods.own(
            self.transaction,
            self.place.node_id,
            {cpu: (owner.consumer, owner.level) for cpu, owner in owners.items()},
        )
        consumers.delete_idle(self.transaction, before.keys() - after.keys())
        return True

    def _settle_consumers(
        self, concerned: Collection[str], bearers: Mapping[str, ConsumerAttributes]
    ) -> set[str]:
        """Create consumers that are new; those that existed before."""
        created = consumers.create(
            self.transaction,
            [bearers[uuid] for uuid in concerned if uuid in bearers and uuid in self.after.shares],
        )
        rest = set(concerned) - created
        if not rest:
            return set()
        locked = consumers.lock(self.transaction, rest)
        for uuid, consumer in locked.items():
            if consumer.cluster_id != self.place.cluster_id:
                raise Conflict(f"Consumer {uuid} exists already and is no pod of this cluster.")
        consumers.advance(
            self.transaction, [bearers[uuid] for uuid in sorted(locked.keys() & bearers.keys())]
        )
        return set(locked)

    def _write_shares(self, changed: set[str], existing: set[str], class_ids: ClassIds) -> None:
        before, after = self.before.shares, self.after.shares
        places = {
            place for consumer in changed for shares in (before, after) for place in shares.get(consumer, {})
        }
        paths = {place.path for place in places} | {""}
        uuids = {self.place.identity.uuid(path): path for path in paths}
        held = providers.lock_and_stamp(self.transaction, uuids)
        ids = {uuids[uuid]: id_ for uuid, id_ in held.items()}
        missing = sorted(paths - ids.keys())
        if missing:
            raise ProviderGone(self.place.node_id, self.place.identity.name(missing[0]))
        classes = class_ids(self.transaction, {place.resource_class for place in places})
        mine = set(ids.values())
        stored = [
            row
            for row in (
                allocations.held_by(self.transaction, changed & existing) if changed & existing else ()
            )
            if row.provider_id in mine
        ]
        fresh = [
            Held(consumer, ids[place.path], classes[place.resource_class], amount)
            for consumer in changed
            for place, amount in after.get(consumer, {}).items()
        ]
        changes = changes_of(stored, fresh)
        if len(allocations.apply_changes(self.transaction, changes)) < len(changes):
            raise NodeRefused(self.place.node_id)
        allocations.replace_on(
            self.transaction,
            {row.consumer_uuid for row in stored},
            {row.provider_id for row in stored},
            fresh,
        )
