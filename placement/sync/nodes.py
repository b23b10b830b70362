"""Nodes and reservations of the service, kept equal to the ones of Kubernetes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from placement.engine.domain.identifiers import portions
from placement.sync.pods import ReconciledPods
from placement.sync.sending import HeldObject, Reconciled, Sending
from placement.sync.service import Sent, ServiceCluster
from placement.sync.store import RESERVATIONS, InformerStore, Key, ObjectKind, WatchedObject, lasting_part


class ReconciledReservations(Reconciled):
    """The reservations that the service holds, and the ones that are due.

    The service places them. One that is over or gone in Kubernetes is deleted. Where Kubernetes does not know
    the kind, the reservations of the service come from another source, and stay.
    """

    def compare(self) -> None:
        """Look at what the service holds. Raises ServiceError."""
        if self._store.is_lacking(RESERVATIONS):
            self._held.clear()
            return
        self._holds(Key(ObjectKind.RESERVATION, "", name) for name in self._service.reservations())

    def delete_gone(self) -> int:
        """Delete reservations that are over or gone; return how many. Raises ServiceError."""
        deleted = 0
        for key in sorted(self._due):
            seen = self._store.get(key)
            if seen is None or seen.over:
                # They are not gone if Kubernetes stopped knowing the kind, which loses all of them at once.
                if self._store.is_lacking(RESERVATIONS):
                    self._held.clear()
                deleted += self._delete(key)
                self._sending.settled(key)
                self._due.discard(key)
        return deleted

    def release_from(self, node: str) -> None:
        """Delete the reservations on that node; they become due again. Raises ServiceError."""
        if self._held:
            for name in self._service.reservations(node):
                key = Key(ObjectKind.RESERVATION, "", name)
                self._delete(key)
                self._due.add(key)

    def _delete(self, key: Key) -> bool:
        if key not in self._held:
            return False
        self._service.delete_reservation(key.name)
        del self._held[key]
        return True

    def put(self) -> int:
        """Send reservations that are new or changed; return how many were taken. Raises ServiceError."""
        taken = 0
        for key in sorted(self._due):
            seen, held = self._store.get(key), self._held.get(key)
            if seen is not None and not seen.over and not (held and held.mark == seen.mark):
                put = partial(self._service.put_reservation, key.name, seen.manifest)
                if self._sending.accepted(key, seen.mark, put):
                    self._held[key] = HeldObject(seen.mark)
                    taken += 1
            self._due.discard(key)
        return taken


# How many nodes are sent in one call, and how many calls at a time.
_BATCH, _AT_ONCE = 50, 2


class _Sendable(NamedTuple):
    key: Key
    held: HeldObject
    seen: WatchedObject
    topology: WatchedObject | None


class ReconciledNodes(Reconciled):
    """The nodes that the service holds, and the nodes that are due."""

    def __init__(
        self,
        service: ServiceCluster,
        store: InformerStore,
        sending: Sending,
        pods: ReconciledPods,
        reservations: ReconciledReservations,
    ) -> None:
        super().__init__(service, store, sending)
        self._pods = pods
        self._reservations = reservations

    def has(self, name: str) -> bool:
        """Return whether both sides have that node, so that it may take pods."""
        key = _node_key(name)
        return key in self._held and self._store.get(key) is not None

    def compare(self) -> None:
        """Look at what the service holds. Raises ServiceError."""
        self._holds(map(_node_key, self._service.nodes()))

    def delete_gone(self) -> int:
        """Delete nodes that are gone, their pods first; return how many. Raises ServiceError."""
        deleted = 0
        for key in sorted(self._due):
            if self._store.get(key) is not None:
                continue
            if key not in self._held:
                self._sending.settled(key)
            else:
                self._release_from(key.name)
                if self._sending.accepted(key, None, partial(self._service.delete_node, key.name)):
                    del self._held[key]
                    deleted += 1
            self._due.discard(key)
        return deleted

    def _release_from(self, name: str) -> None:
        self._pods.release_from(name)
        self._reservations.release_from(name)

    def put(self) -> int:
        """Send nodes that are new or changed; return how many were taken. Raises ServiceError."""
        taken = 0
        sendable = []
        for key in sorted(self._due):
            found = self._sendable(key)
            if found is None:
                self._due.discard(key)
            else:
                sendable.append(found)
        batches = list(portions(sendable, _BATCH))
        if not batches:
            return 0
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            # The nodes of one call may wait in the service while it reads the next call.
            for batch, sent in zip(batches, pool.map(self._send, batches), strict=True):
                for node, outcome in zip(batch, sent, strict=True):
                    if self._took(node.key, node.held, outcome):
                        taken += 1
                        self._pods.arrived(node.key.name)
        return taken

    def _sendable(self, key: Key) -> _Sendable | None:
        node = self._store.get(key)
        if node is None:
            return None
        topology = self._store.get(Key(ObjectKind.TOPOLOGY, "", key.name))
        mark = (node.mark, topology.mark if topology else None)
        held = self._held.get(key)
        if (held and held.mark == mark) or self._sending.rejections.holds_back(key, mark):
            return None
        if held and held.uid not in (None, node.uid):
            # Another machine under the same name: what ran on the old one does not run here.
            self._release_from(key.name)
        return _Sendable(key, HeldObject(mark, node.uid), node, topology)

    def _send(self, batch: Sequence[_Sendable]) -> Sequence[Sent]:
        """Send nodes without volatile parts, so that the service recognises what it has already."""
        nodes: list[tuple[str, Mapping[str, Any], Mapping[str, Any] | None]] = []
        for each in batch:
            topology = None if each.topology is None else lasting_part(each.topology.manifest)
            nodes.append((each.key.name, lasting_part(each.seen.manifest), topology))
        return self._service.put_nodes(nodes)


def _node_key(name: str) -> Key:
    return Key(ObjectKind.NODE, "", name)
