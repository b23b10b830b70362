"""Makes the reservations of the service those of Kubernetes."""

from __future__ import annotations

from collections.abc import Iterable

from placement.operations.kubernetes.collection import RESERVATIONS
from placement.operations.kubernetes.informer_store import InformerStore, Key, Kind
from placement.operations.kubernetes.sending import Sending
from placement.operations.kubernetes.service import ServiceCluster


class ReconciledReservations:
    """What the service holds of reservations, by what it was sent as, if this process sent it; what is due.

    The service places them. One that is over or gone in Kubernetes is deleted. Where Kubernetes knows no
    reservations those of the service are somebody else's.
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
        """Delete reservations that are over or gone; how many. Raises ServiceError."""
        deleted = 0
        for name in sorted(self._due):
            seen = self._store.get(_key(name))
            if seen is None or seen.over:
                # They are not gone if Kubernetes stopped knowing the kind, which loses all of them at once.
                if self._store.is_lacking(RESERVATIONS):
                    self._held.clear()
                deleted += self._delete(name)
                self._sending.settled(_key(name))
                self._due.discard(name)
        return deleted

    def release_from(self, node: str) -> None:
        """Delete ours on that node; they become due again. Raises ServiceError."""
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
        """Send reservations that are new or changed; how many were taken. Raises ServiceError."""
        taken = 0
        for name in sorted(self._due):
            taken += self._put(name)
            self._due.discard(name)
        return taken

    def _put(self, name: str) -> bool:
        seen = self._store.get(_key(name))
        if seen is None or seen.over or self._held.get(name) == seen.mark:
            return False
        manifest = seen.manifest
        if not self._sending.accepted(
            _key(name), seen.mark, lambda: self._service.put_reservation(name, manifest)
        ):
            return False
        self._held[name] = seen.mark
        return True


def _key(name: str) -> Key:
    return Key(Kind.RESERVATION, "", name)
