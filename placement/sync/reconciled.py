"""The objects of one kind that the service holds, kept equal to the ones of Kubernetes."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import NamedTuple, TypeVar

from placement.sync.informer_store import InformerStore
from placement.sync.sending import Sending
from placement.sync.service import Sent, ServiceCluster
from placement.sync.watched_objects import Key

Read = TypeVar("Read")


class HeldObject(NamedTuple):
    """An object that the service holds, with the mark it was sent with, if this process sent it."""

    mark: Hashable = None
    uid: str | None = None
    node: str | None = None


class Reconciled:
    """The objects of one kind that the service holds, and the ones that are due."""

    def __init__(self, service: ServiceCluster, store: InformerStore, sending: Sending) -> None:
        self._service = service
        self._store = store
        self._sending = sending
        self._held: dict[Key, HeldObject] = {}
        self._due: set[Key] = set()

    def __len__(self) -> int:
        return len(self._held)

    def look_at(self, keys: Iterable[Key]) -> None:
        """Note objects that may have changed."""
        self._due.update(keys)

    def _holds(self, keys: Iterable[Key]) -> None:
        """Note the objects of the service, which become due; marks of objects that this process sent stay."""
        self._held = {key: self._held.get(key, HeldObject()) for key in keys}
        self._due.update(self._held)

    def _collected(self, read: Callable[[Key], Read | None]) -> list[Read]:
        """Return the due objects that are to be sent; others are due no more."""
        found = []
        for key in sorted(self._due):
            each = read(key)
            if each is None:
                self._due.discard(key)
            else:
                found.append(each)
        return found

    def _took(self, key: Key, held: HeldObject, sent: Sent) -> bool:
        """Note the outcome; return whether the object was taken. Raises ServiceError other than refusals."""
        taken = self._sending.took(key, held.mark, sent)
        if taken:
            self._held[key] = held
        self._due.discard(key)
        return taken
