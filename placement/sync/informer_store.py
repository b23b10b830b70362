"""The objects of Kubernetes as last reported, and which of them changed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping

from placement.sync.service import PodId
from placement.sync.watched_objects import Key, ObjectKind, WatchedObject

Listener = Callable[[Key, WatchedObject | None], None]
"""A call with an object as it is now, None if it is gone."""


class InformerStore:
    """The latest state of every object; written by several threads, read by one."""

    def __init__(self, collections: Iterable[str]) -> None:
        self._objects: dict[Key, WatchedObject] = {}
        self._members: dict[str, set[Key]] = {}
        self._missing = set(collections)
        self._lacking: set[str] = set()
        self._changed: set[Key] = set()
        # The pods that name a PodGroup, whether it is there or not.
        self._pods_of_group: dict[Key, set[Key]] = {}
        self._ended: set[PodId] = set()
        self._condition = threading.Condition()
        self._listen: Listener | None = None
        self._lists = 0

    def tell(self, listen: Listener) -> None:
        """Have `listen` called with every object that is seen from now on; it must return at once."""
        with self._condition:
            self._listen = listen

    def lacks(self, collection: str) -> None:
        """Note that there is no such collection."""
        with self._condition:
            self.replace(collection, {})
            self._lacking.add(collection)

    def is_lacking(self, collection: str) -> bool:
        """Return whether there was no such collection when it was listed last."""
        with self._condition:
            return collection in self._lacking

    def replace(self, collection: str, found: Mapping[Key, WatchedObject]) -> None:
        """Replace all objects of the collection by these."""
        with self._condition:
            self._lacking.discard(collection)
            known = self._members.get(collection, set())
            differs = [self._set(key, None) for key in known - found.keys()]
            differs += [self._set(key, watched) for key, watched in found.items()]
            self._lists += any(differs)
            self._members[collection] = set(found)
            self._missing.discard(collection)
            self._condition.notify()

    def put(self, collection: str, key: Key, watched: WatchedObject | None) -> None:
        """Store an object of the collection that is new or changed, or remove it (None)."""
        with self._condition:
            self._set(key, watched)
            members = self._members[collection]
            if watched is None:
                members.discard(key)
            else:
                members.add(key)
            self._condition.notify()

    def _set(self, key: Key, watched: WatchedObject | None) -> bool:
        """Store an object; return whether anything that matters changed."""
        before = self._objects.get(key)
        if watched is None:
            self._objects.pop(key, None)
        else:
            self._objects[key] = watched
        if self._listen is not None:
            self._listen(key, watched)
        differs = (before and before.mark) != (watched and watched.mark)
        if differs:
            self._changed.add(key)
            # What a PodGroup says is sent with its pods.
            self._changed |= self._pods_of_group.get(key, set())
        self._regroup(
            key, None if before is None else before.group_key, None if watched is None else watched.group_key
        )
        if key.kind is ObjectKind.POD and before is not None and before.has_ended_as(watched):
            self._ended.add(PodId(key.namespace, key.name, before.uid))
        return differs

    def _regroup(self, key: Key, former_key: Key | None, group_key: Key | None) -> None:
        """Note that a pod names another PodGroup than before, or none."""
        if former_key == group_key:
            return
        if former_key is not None:
            pods = self._pods_of_group[former_key]
            pods.discard(key)
            if not pods:
                del self._pods_of_group[former_key]
        if group_key is not None:
            self._pods_of_group.setdefault(group_key, set()).add(key)

    def changed(self, timeout: float) -> set[Key]:
        """Return the objects that changed since the last call, at the latest after `timeout` seconds.

        A PodGroup changes the pods that name it.

        Return nothing before every collection is listed: objects not listed yet would look as if gone.
        """
        with self._condition:
            self._condition.wait_for(lambda: self._changed and not self._missing, timeout)
            if self._missing:
                return set()
            changed, self._changed = self._changed, set()
            return changed

    def ended(self) -> set[PodId]:
        """Return the pods that were seen and are over or gone since the last call, each by its uid."""
        with self._condition:
            ended, self._ended = self._ended, set()
            return ended

    @property
    def lists(self) -> int:
        """Return how many lists brought something new, as one does after Kubernetes was set back."""
        with self._condition:
            return self._lists

    @property
    def complete(self) -> bool:
        """Return whether every collection has been listed."""
        with self._condition:
            return not self._missing

    def get(self, key: Key) -> WatchedObject | None:
        """Return the object as last seen."""
        with self._condition:
            return self._objects.get(key)

    def keys(self) -> set[Key]:
        with self._condition:
            return set(self._objects)
