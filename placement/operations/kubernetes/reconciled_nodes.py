"""Makes the nodes of the service those of Kubernetes."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from placement.operations.kubernetes.informer_store import (
    InformerStore,
    Key,
    Kind,
    WatchedObject,
)
from placement.operations.kubernetes.reconciled_pods import ReconciledPods
from placement.operations.kubernetes.reconciled_reservations import ReconciledReservations
from placement.operations.kubernetes.sending import Sending
from placement.operations.kubernetes.service import ServiceCluster

_Mark = tuple[bytes, bytes | None]


class _Held(NamedTuple):
    # What it was sent as, if this process sent it.
    mark: _Mark | None = None
    uid: str | None = None


class ReconciledNodes:
    """What the service holds of nodes, and what is due."""

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
        self._held: dict[str, _Held] = {}
        self._due: set[str] = set()

    def __len__(self) -> int:
        return len(self._held)

    def has(self, name: str) -> bool:
        """Whether both sides have that node, so that it may take pods."""
        return name in self._held and self._store.get(_key(name)) is not None

    def look_at(self, names: Iterable[str]) -> None:
        """Note nodes that may have changed."""
        self._due.update(names)

    def compare(self) -> None:
        """Look at what the service holds. Raises ServiceError."""
        self._held = {name: self._held.get(name, _Held()) for name in self._service.nodes()}
        self._due.update(self._held)

    def delete_gone(self) -> int:
        """Delete nodes that are gone, their pods first; how many. Raises ServiceError."""
        deleted = 0
        for name in sorted(self._due):
            if self._store.get(_key(name)) is None:
                deleted += self._delete(name)
                self._due.discard(name)
        return deleted

    def _delete(self, name: str) -> bool:
        if name not in self._held:
            self._sending.settled(_key(name))
            return False
        self._release_from(name)
        if not self._sending.accepted(_key(name), None, lambda: self._service.delete_node(name)):
            return False
        del self._held[name]
        return True

    def _release_from(self, name: str) -> None:
        self._pods.release_from(name)
        self._reservations.release_from(name)

    def put(self) -> int:
        """Send nodes that are new or changed; how many were taken. Raises ServiceError."""
        taken = 0
        for name in sorted(self._due):
            node = self._store.get(_key(name))
            if node is not None:
                taken += self._put(name, node)
            self._due.discard(name)
        return taken

    def _put(self, name: str, node: WatchedObject) -> bool:
        topology = self._store.get(Key(Kind.TOPOLOGY, "", name))
        mark = (node.mark, topology.mark if topology else None)
        held = self._held.get(name)
        if held and held.mark == mark:
            return False
        if held and held.uid not in (None, node.uid):
            # Another machine under the same name: what ran on the old one does not run here.
            self._release_from(name)
        manifests = node.manifest, topology.manifest if topology else None
        if not self._sending.accepted(_key(name), mark, lambda: self._service.put_node(name, *manifests)):
            return False
        self._held[name] = _Held(mark, node.uid)
        self._pods.arrived(name)
        return True


def _key(name: str) -> Key:
    return Key(Kind.NODE, "", name)
