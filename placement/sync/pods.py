"""Pods of the service, kept equal to the pods that occupy nodes in Kubernetes, and claims that expire."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from placement.engine.domain.identifiers import portions
from placement.sync.api_server import ApiServerError
from placement.sync.events import Journal
from placement.sync.figures import WRITES
from placement.sync.sending import HeldObject, Reconciled, Sending
from placement.sync.service import HeldPod, PodId, ServiceCluster
from placement.sync.store import InformerStore, Key, ObjectKind, WatchedObject

# How many pods are sent in one call.
_BATCH = 200
# A call with one pod costs the service half of what one with four does.
GATHERED_SECONDS = 0.1


Asked = Callable[[PodId], WatchedObject | None]
"""What returns that very pod as Kubernetes has it now, or None if it is gone. Raises ApiServerError."""


class ReconciledPods(Reconciled):
    """The pods that the service holds, the pods that are due, and the pods that wait for their node.

    A pod that occupies no node yet is not sent: its scheduler may have claimed room for it already. A pod
    that is over or gone is released by its uid. This is done even if nothing is known to be held for it, as
    schedulers claim without notice to this process.
    """

    def __init__(
        self,
        service: ServiceCluster,
        store: InformerStore,
        sending: Sending,
        asked: Asked,
        namespaces: Collection[str],
    ) -> None:
        super().__init__(service, store, sending)
        self._asked = asked
        self._namespaces = namespaces
        self._waiting: dict[Key, str] = {}
        self._ended: set[PodId] = set()
        self._sent_at = -GATHERED_SECONDS

    @property
    def waiting(self) -> int:
        """Return how many pods wait for their node."""
        return len(self._waiting)

    @property
    def gathers(self) -> bool:
        """Return whether pods are due, and others were sent so recently that more may come with them."""
        return bool(self._due) and time.monotonic() < self._sent_at + GATHERED_SECONDS

    def end(self, pods: Iterable[PodId]) -> None:
        """Note pods that are over or gone."""
        self._ended.update(pods)

    def compare(self) -> None:
        """Look at what the service holds. Raises ServiceError, ApiServerError."""
        listed = [pod for pod in self._service.pods() if self.is_ours(pod)]
        before, self._held = self._held, {}
        for pod in listed:
            held, known = HeldObject(None, pod.uid, pod.node), before.get(key_of(pod.id))
            # The mark stays if uid and node are still the same.
            self._held[key_of(pod.id)] = known if known and known[1:] == held[1:] else held
        self._due.update(self._held)
        self.end(pod.id for pod in listed if self.has_ended(pod.id))

    def is_ours(self, pod: HeldPod) -> bool:
        """Return whether the pod is in one of the namespaces that are looked after."""
        return not self._namespaces or pod.namespace in self._namespaces

    def has_ended(self, pod: PodId) -> bool:
        """Return whether a pod is over or gone. Raises ApiServerError.

        A pod that no list and no event has shown may be too new for them, so Kubernetes is asked.
        """
        seen = self._store.get(key_of(pod))
        if seen is None or seen.uid != pod.uid:
            seen = self._asked(pod)
        return seen is None or seen.over

    def release_ended(self) -> int:
        """Release pods that are over or gone; return how many held something. Raises ServiceError."""
        released = 0
        for pod in sorted(self._ended):
            released += self._release(pod)
            self._ended.discard(pod)
        return released

    def release_from(self, node: str) -> int:
        """Release all pods on that node; pods that still occupy it become due again. Raises ServiceError."""
        leaving = sorted(pod.id for pod in self._service.pods(node) if self.is_ours(pod))
        for pod in leaving:
            self._release(pod)
            self._due.add(key_of(pod))
        return len(leaving)

    def _release(self, pod: PodId) -> bool:
        released = self._service.release(pod)
        WRITES.labels("release", "accepted" if released else "nothing_held").inc()
        self.forget(pod)
        return released

    def forget(self, pod: PodId) -> None:
        """Note that the service does not hold that pod any more."""
        key = key_of(pod)
        held = self._held.get(key)
        if held is not None and held.uid == pod.uid:
            del self._held[key]

    def arrived(self, node: str) -> None:
        """Note that the service has that node now."""
        self._due.update(key for key, awaited in self._waiting.items() if awaited == node)

    def put(self, has_node: Callable[[str], bool]) -> int:
        """Send pods that are new or changed; return how many were taken. Raises ServiceError."""
        taken = 0
        sendable = []
        for key in sorted(self._due):
            seen = self._sendable(key, has_node)
            if seen is None:
                self._due.discard(key)
            else:
                sendable.append((key, seen))
        for batch in portions(sendable, _BATCH):
            sent = self._service.put_pods([(key.namespace, key.name, seen.manifest) for key, seen in batch])
            self._sent_at = time.monotonic()
            for (key, seen), outcome in zip(batch, sent, strict=True):
                taken += self._took(key, HeldObject(seen.mark, seen.uid, seen.node), outcome)
        return taken

    def _sendable(self, key: Key, has_node: Callable[[str], bool]) -> WatchedObject | None:
        self._waiting.pop(key, None)
        seen = self._store.get(key)
        if seen is None or seen.node is None:
            self._sending.settled(key)
            return None
        held = self._held.get(key)
        if held and held.mark == seen.mark:
            return None
        if not has_node(seen.node):
            self._waiting[key] = seen.node
            return None
        return None if self._sending.rejections.holds_back(key, seen.mark) else seen


def key_of(pod: PodId) -> Key:
    """Return the key of a pod in the store."""
    return Key(ObjectKind.POD, pod.namespace, pod.name)


# Claims of the service for pods that are not reported on their nodes: kept for a while, then released.


LOOK_EVERY_SECONDS = 60.0
PATIENCE_SECONDS = 600.0
# A bind is decided within two minutes of its claim: see the extender.
LEAST_PATIENCE_SECONDS = 180


class _Seen(NamedTuple):
    changed_at: str | None
    since: float


@dataclass
class ExpiringClaims:
    """The claims, which are released if their pod is gone, or was never bound.

    Kubernetes says whether a pod is over or gone. A pod that waits may be about to be bound. So its claim
    stays until it was not renewed for `patience` seconds on the clock of this process. What the watches saw
    may be old, so Kubernetes is then asked whether the pod is on a node. The service checks that the claim is
    still the same.
    """

    _service: ServiceCluster
    _store: InformerStore
    _pods: ReconciledPods
    _journal: Journal
    _asked: Asked
    _patience: float
    _seen: dict[PodId, _Seen] = field(default_factory=dict)

    def look(self) -> None:
        """Look at all claims. Raises ServiceError, ApiServerError."""
        claims = [claim for claim in self._service.claims() if self._pods.is_ours(claim)]
        waiting: dict[PodId, _Seen] = {}
        for claim in claims:
            if self._pods.has_ended(claim.id):
                self._pods.end([claim.id])
            elif (bound := self._store.get(key_of(claim.id))) and bound.uid == claim.uid and bound.node:
                # Reported, and placed again since; or about to be reported.
                self._pods.forget(claim.id)
                self._pods.look_at([key_of(claim.id)])
            else:
                known = self._seen.get(claim.id)
                is_same = known is not None and known.changed_at == claim.changed_at
                waiting[claim.id] = known if known and is_same else _Seen(claim.changed_at, time.monotonic())
        self._seen = waiting
        for pod, seen in waiting.items():
            if time.monotonic() - seen.since >= self._patience:
                self._expire(pod, seen)

    def _expire(self, pod: PodId, seen: _Seen) -> None:
        source = f"claim of pod {pod.namespace}/{pod.name}"
        try:
            placed = self._asked(pod)
            if placed is not None and placed.node is not None:
                return
        except ApiServerError as error:
            self._journal.trouble(source, f"stays, Kubernetes cannot be asked about the pod: {error}")
            return
        self._journal.well(source)
        if self._service.release(pod, seen.changed_at):
            self._journal.note(
                f"pod {pod.namespace}/{pod.name}: waits, and was not bound for {self._patience:.0f} s "
                "after its place was claimed; the claim is released"
            )
            self._pods.forget(pod)
