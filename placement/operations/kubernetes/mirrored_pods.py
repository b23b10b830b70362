"""The pods of the service, made those that occupy nodes in Kubernetes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple

from placement.operations.kubernetes.picture import Key, Kind, Picture, Sighting
from placement.operations.kubernetes.sending import Sending
from placement.operations.kubernetes.service import HeldPod, ServiceCluster


class _Held(NamedTuple):
    uid: str
    node: str | None
    # What it was sent as, if this process sent it.
    mark: bytes | None = None


class MirroredPods:
    """What the service holds of pods, what is due, and which pods wait for their node.

    A pod that occupies no node yet is left alone: whoever schedules it may have claimed its place already.
    """

    def __init__(
        self,
        service: ServiceCluster,
        picture: Picture,
        sending: Sending,
        exists: Callable[[Key], bool],
        namespaces: Collection[str],
    ) -> None:
        self._service = service
        self._picture = picture
        self._sending = sending
        self._exists = exists
        self._namespaces = namespaces
        self._held: dict[Key, _Held] = {}
        self._waiting: dict[Key, str] = {}
        self._due: set[Key] = set()

    def __len__(self) -> int:
        return len(self._held)

    @property
    def waiting(self) -> int:
        """How many pods wait for their node."""
        return len(self._waiting)

    def look_at(self, keys: Iterable[Key]) -> None:
        """These may have changed."""
        self._due.update(keys)

    def compare(self) -> None:
        """Look at what the service holds. Raises ServiceError, ApiServerError.

        A pod that no list and no event has told of may be so new that they will; so Kubernetes is asked
        before the pod is taken for one that ended while nobody looked.
        """
        listed = {_key(pod): _Held(pod.uid, pod.node) for pod in self._service.pods() if self._is_ours(pod)}
        self._held = {key: self._still(key, held) for key, held in listed.items()}
        self._due.update(key for key in listed if self._picture.get(key) is not None or not self._exists(key))

    def _still(self, key: Key, listed: _Held) -> _Held:
        """What is known of a pod, if it is still that pod."""
        known = self._held.get(key)
        return known if known and known[:2] == listed[:2] else listed

    def _is_ours(self, pod: HeldPod) -> bool:
        return not self._namespaces or pod.namespace in self._namespaces

    def release_ended(self) -> int:
        """Delete pods that are over or gone; how many. Raises ServiceError."""
        released = 0
        for key in sorted(self._due):
            seen = self._picture.get(key)
            if seen is None or seen.node is None:
                released += self._release_unless_claimed(key, seen)
                self._sending.settled(key)
                self._waiting.pop(key, None)
                self._due.discard(key)
        return released

    def release_from(self, node: str) -> int:
        """Delete all pods on that node; those that still occupy it become due again. Raises ServiceError."""
        leaving = sorted(key for key, held in self._held.items() if held.node == node)
        for key in leaving:
            self._release(key)
            self._due.add(key)
        return len(leaving)

    def _release_unless_claimed(self, key: Key, seen: Sighting | None) -> bool:
        """Delete what a pod held that occupies nothing now, but no claim for one that waits.

        A pod may follow so closely on another of its name that the service hears of it first.
        """
        held = self._held.get(key)
        if held is None or (seen is not None and not seen.over and seen.uid == held.uid):
            return False
        if seen is None or not seen.over:
            now = self._service.pod(key.namespace, key.name)
            is_claim = now is not None and (now.uid != held.uid if seen is None else now.uid == seen.uid)
            if now is not None and is_claim:
                self._held[key] = _Held(now.uid, now.node)
                return False
        self._release(key)
        return True

    def _release(self, key: Key) -> None:
        self._service.delete_pod(key.namespace, key.name)
        del self._held[key]

    def arrived(self, node: str) -> None:
        """The service has that node now."""
        self._due.update(key for key, awaited in self._waiting.items() if awaited == node)

    def put(self, has_node: Callable[[str], bool]) -> int:
        """Send pods that are new or changed; how many were taken. Raises ServiceError."""
        taken = 0
        for key in sorted(self._due):
            taken += self._put(key, has_node)
            self._due.discard(key)
        return taken

    def _put(self, key: Key, has_node: Callable[[str], bool]) -> bool:
        self._waiting.pop(key, None)
        seen = self._picture.get(key)
        held = self._held.get(key)
        if seen is None or seen.node is None or (held and held.mark == seen.mark):
            return False
        if not has_node(seen.node):
            self._waiting[key] = seen.node
            return False
        manifest = seen.manifest
        if not self._sending.accepted(
            key, seen.mark, lambda: self._service.put_pod(key.namespace, key.name, manifest)
        ):
            return False
        self._held[key] = _Held(seen.uid, seen.node, seen.mark)
        return True


def _key(pod: HeldPod) -> Key:
    return Key(Kind.POD, pod.namespace, pod.name)
