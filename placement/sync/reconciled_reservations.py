"""Reservations, which the service places."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from placement.sync.reconciled import HeldObject, Reconciled
from placement.sync.watched_collections import RESERVATIONS
from placement.sync.watched_objects import Key, ObjectKind


class ReconciledReservations(Reconciled):
    """The reservations that the service holds, and the ones that are due.

    The service places them. One that is over or gone in Kubernetes is deleted. Where Kubernetes does not know
    the kind, the reservations of the service come from another source, and stay.
    """

    def compare(self) -> None:
        """Compare with the objects of the service. Raises ServiceError."""
        if self._store.is_lacking(RESERVATIONS):
            self._held.clear()
            return
        self._holds(Key(ObjectKind.RESERVATION, "", name) for name in self._service.reservations())

    def delete_gone(self) -> int:
        """Delete reservations that are over or gone; return how many. Raises ServiceError."""
        deleted = 0
        for key in sorted(self._due):
            watched = self._store.get(key)
            if watched is None or watched.over:
                # They are not gone if Kubernetes stopped knowing the kind, which loses all of them at once.
                if self._store.is_lacking(RESERVATIONS):
                    self._held.clear()
                if key in self._held:
                    deleted += self._delete(key)
                else:
                    self._sending.settled(key)
                self._due.discard(key)
        return deleted

    def on(self, node: str) -> set[Key]:
        """Return the reservations on that node, none if they are of another source. Raises ServiceError."""
        names = self._service.reservations(node) if self._held else ()
        return {Key(ObjectKind.RESERVATION, "", name) for name in names}

    def lost(self, keys: Iterable[Key]) -> None:
        """Note reservations that the service deleted with their node, so that they are due again."""
        for key in keys:
            self._held.pop(key, None)
            self._due.add(key)

    def _delete(self, key: Key) -> bool:
        """Delete a reservation that the service holds; return whether it took that."""
        if not self._sending.accepted(key, None, partial(self._service.delete, "reservations", key.name)):
            return False
        del self._held[key]
        return True

    def put(self) -> int:
        """Send reservations that are new or changed; return how many were taken. Raises ServiceError."""
        taken = 0
        for key in sorted(self._due):
            watched, held = self._store.get(key), self._held.get(key)
            if watched is not None and not watched.over and not (held and held.mark == watched.mark):
                put = partial(self._service.put, watched.manifest, "reservations", key.name)
                if self._sending.accepted(key, watched.mark, put):
                    self._held[key] = HeldObject(watched.mark)
                    taken += 1
            self._due.discard(key)
        return taken
