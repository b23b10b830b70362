"""Nodes and reservations of the service, kept equal to the ones of Kubernetes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from placement.engine.domain.identifiers import portions
from placement.sync.pods import ReconciledPods
from placement.sync.sending import Sending
from placement.sync.service import Sent, ServiceCluster
from placement.sync.store import RESERVATIONS, InformerStore, Key, ObjectKind, WatchedObject, lasting_part

# Reservations of the service, kept equal to the ones of Kubernetes.


class ReconciledReservations:
    """The reservations that the service holds, with their marks if this process sent them, and what is due.

    The service places them. One that is over or gone in Kubernetes is deleted. Where Kubernetes does not know
    the kind, the reservations of the service come from another source, and stay.
    """

    def __init__(self, service: ServiceCluster, store: InformerStore, sending: Sending) -> None:
        self._service = service
        self._store = store
        self._sending = sending
        self._held: dict[str, bytes | None] = {}
        self._due: set[str] = set()

    def __len__(self) -> int:
        return len(self._held)

    def look_at(self, names: Iterable[str]) -> None:
        """Note reservations that may have changed."""
        self._due.update(names)

    def compare(self) -> None:
        """Look at what the service holds. Raises ServiceError."""
        if self._store.is_lacking(RESERVATIONS):
            self._held.clear()
            return
        self._held = {name: self._held.get(name) for name in self._service.reservations()}
        self._due.update(self._held)

    def delete_gone(self) -> int:
        """Delete reservations that are over or gone; return how many. Raises ServiceError."""
        deleted = 0
        for name in sorted(self._due):
            seen = self._store.get(_reservation_key(name))
            if seen is None or seen.over:
                # They are not gone if Kubernetes stopped knowing the kind, which loses all of them at once.
                if self._store.is_lacking(RESERVATIONS):
                    self._held.clear()
                deleted += self._delete(name)
                self._sending.settled(_reservation_key(name))
                self._due.discard(name)
        return deleted

    def release_from(self, node: str) -> None:
        """Delete the reservations on that node; they become due again. Raises ServiceError."""
        if self._held:
            for name in self._service.reservations(node):
                self._delete(name)
                self._due.add(name)

    def _delete(self, name: str) -> bool:
        if name not in self._held:
            return False
        self._service.delete_reservation(name)
        del self._held[name]
        return True

    def put(self) -> int:
        """Send reservations that are new or changed; return how many were taken. Raises ServiceError."""
        taken = 0
        for name in sorted(self._due):
            taken += self._put(name)
            self._due.discard(name)
        return taken

    def _put(self, name: str) -> bool:
        seen = self._store.get(_reservation_key(name))
        if seen is None or seen.over or self._held.get(name) == seen.mark:
            return False
        manifest = seen.manifest
        if not self._sending.accepted(
            _reservation_key(name),
            seen.mark,
            lambda: self._service.put_reservation(name, manifest),
        ):
            return False
        self._held[name] = seen.mark
        return True


def _reservation_key(name: str) -> Key:
    return Key(ObjectKind.RESERVATION, "", name)


# How many nodes are sent in one call, and how many calls at a time.
_BATCH, _AT_ONCE = 50, 2

_Mark = tuple[bytes, bytes | None]


class _HeldNode(NamedTuple):
    # The mark it was sent with, if this process sent it.
    mark: _Mark | None = None
    uid: str | None = None


class _Sendable(NamedTuple):
    name: str
    mark: _Mark
    seen: WatchedObject
    topology: WatchedObject | None

    @property
    def manifests(self) -> tuple[dict[str, Any], dict[str, Any] | None]:
        """Return what the service gets, without volatile parts, so that it recognises what it has already."""
        topology = None if self.topology is None else lasting_part(self.topology.manifest)
        return lasting_part(self.seen.manifest), topology


class ReconciledNodes:
    """The nodes that the service holds, and the nodes that are due."""

    def __init__(
        self,
        service: ServiceCluster,
        store: InformerStore,
        sending: Sending,
        pods: ReconciledPods,
        reservations: ReconciledReservations,
    ) -> None:
        self._service = service
        self._store = store
        self._sending = sending
        self._pods = pods
        self._reservations = reservations
        self._held: dict[str, _HeldNode] = {}
        self._due: set[str] = set()

    def __len__(self) -> int:
        return len(self._held)

    def has(self, name: str) -> bool:
        """Return whether both sides have that node, so that it may take pods."""
        return name in self._held and self._store.get(_node_key(name)) is not None

    def look_at(self, names: Iterable[str]) -> None:
        """Note nodes that may have changed."""
        self._due.update(names)

    def compare(self) -> None:
        """Look at what the service holds. Raises ServiceError."""
        self._held = {name: self._held.get(name, _HeldNode()) for name in self._service.nodes()}
        self._due.update(self._held)

    def delete_gone(self) -> int:
        """Delete nodes that are gone, their pods first; return how many. Raises ServiceError."""
        deleted = 0
        for name in sorted(self._due):
            if self._store.get(_node_key(name)) is None:
                deleted += self._delete(name)
                self._due.discard(name)
        return deleted

    def _delete(self, name: str) -> bool:
        if name not in self._held:
            self._sending.settled(_node_key(name))
            return False
        self._release_from(name)
        if not self._sending.accepted(_node_key(name), None, lambda: self._service.delete_node(name)):
            return False
        del self._held[name]
        return True

    def _release_from(self, name: str) -> None:
        self._pods.release_from(name)
        self._reservations.release_from(name)

    def put(self) -> int:
        """Send nodes that are new or changed; return how many were taken. Raises ServiceError."""
        taken = 0
        sendable = []
        for name in sorted(self._due):
            found = self._sendable(name)
            if found is None:
                self._due.discard(name)
            else:
                sendable.append(found)
        batches = list(portions(sendable, _BATCH))
        if not batches:
            return 0
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            # The nodes of one call may wait in the service while it reads the next call.
            for batch, sent in zip(batches, pool.map(self._send, batches), strict=True):
                for node, outcome in zip(batch, sent, strict=True):
                    taken += self._note(node, outcome)
                    self._due.discard(node.name)
        return taken

    def _sendable(self, name: str) -> _Sendable | None:
        """Return a node as it is to be sent, None if nothing is due. Raises ServiceError."""
        node = self._store.get(_node_key(name))
        if node is None:
            return None
        topology = self._store.get(Key(ObjectKind.TOPOLOGY, "", name))
        mark = (node.mark, topology.mark if topology else None)
        held = self._held.get(name)
        if (held and held.mark == mark) or self._sending.rejections.holds_back(_node_key(name), mark):
            return None
        if held and held.uid not in (None, node.uid):
            # Another machine under the same name: what ran on the old one does not run here.
            self._release_from(name)
        return _Sendable(name, mark, node, topology)

    def _send(self, batch: Sequence[_Sendable]) -> Sequence[Sent]:
        """Send the nodes; return what became of each. Raises ServiceError."""
        return self._service.put_nodes([(node.name, *node.manifests) for node in batch])

    def _note(self, node: _Sendable, sent: Sent) -> bool:
        """Note the outcome; return whether the node was taken. Raises ServiceError that is no refusal."""
        if sent.refusal is not None:
            self._sending.rejected(_node_key(node.name), node.mark, sent.refusal)
            return False
        self._sending.took(_node_key(node.name), sent.warnings)
        self._held[node.name] = _HeldNode(node.mark, node.seen.uid)
        self._pods.arrived(node.name)
        return True


def _node_key(name: str) -> Key:
    return Key(ObjectKind.NODE, "", name)
