"""Pods that occupy nodes in Kubernetes."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from operator import attrgetter
from typing import NamedTuple

from placement.client.client import ServiceError
from placement.engine.domain.portions import portions
from placement.sync.figures import WRITES
from placement.sync.informer_store import InformerStore
from placement.sync.own_claims import OwnClaims
from placement.sync.pod_groups import PodGroups
from placement.sync.reconciled import HeldObject, Reconciled
from placement.sync.sending import Sending
from placement.sync.service import HeldPod, PodId, ServiceCluster
from placement.sync.watched_objects import Key, ObjectKind, WatchedObject

# How many pods are sent in one call.
_PODS_IN_CALL = 200
# A call with one pod costs the service half of what one with four does.
GATHERED_SECONDS = 0.1
PodLookup = Callable[[PodId], WatchedObject | None]
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
        asked: PodLookup,
        namespaces: Collection[str],
        own: OwnClaims,
    ) -> None:
        super().__init__(service, store, sending)
        self._own = own
        self._asked = asked
        self._namespaces = namespaces
        self._groups = PodGroups(store)
        self._waiting: dict[Key, str] = {}
        self._ended: set[PodId] = set()
        self._left: set[str] = set()
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
        """Compare with the objects of the service. Raises ServiceError, ApiServerError."""
        listed = [pod for pod in self._service.pods() if self.is_ours(pod)]
        before, self._held = self._held, {}
        for pod in listed:
            held, known = HeldObject(None, pod.id.uid, pod.node), before.get(key_of(pod.id))
            # The mark stays if uid and node are still the same.
            self._held[key_of(pod.id)] = known if known and known[1:] == held[1:] else held
        self._due.update(self._held)
        self.end(pod.id for pod in listed if self.has_ended(pod.id))

    def is_ours(self, pod: HeldPod) -> bool:
        """Return whether the pod is in one of the namespaces that are looked after."""
        return not self._namespaces or pod.id.namespace in self._namespaces

    def has_ended(self, pod: PodId) -> bool:
        """Return whether a pod is over or gone. Raises ApiServerError.

        A pod that no list and no event has shown may be too new for them, so Kubernetes is asked.
        """
        watched = self._watched(pod)
        return watched is None or watched.over

    def _watched(self, pod: PodId) -> WatchedObject | None:
        watched = self._store.get(key_of(pod))
        return watched if watched is not None and watched.uid == pod.uid else self._asked(pod)

    def release_ended(self) -> int:
        """Release pods that are over or gone; return how many held something. Raises ServiceError.

        One that the service refuses to release is tried again later, like everything that it refuses.
        """
        return sum([self._release(pod) for pod in sorted(self._ended)])

    def release_ended_on(self, node: str) -> None:
        """Release the pods recorded on that node that are over, gone, or on another node in Kubernetes.

        Each is asked for by its uid; a pod that waits may be about to be bound there, and stays. Raises
        ServiceError, ApiServerError.
        """
        for pod in [each for each in self._service.pods(node) if self.is_ours(each)]:
            watched = self._watched(pod.id)
            if watched is None or watched.over:
                self.end([pod.id])
                self._release(pod.id)
            elif watched.node not in (None, node):
                self._release(pod.id)
            else:
                self._held.setdefault(key_of(pod.id), HeldObject(None, pod.id.uid, node))

    def left_nodes(self) -> set[str]:
        """Return the nodes that pods have left since the last call."""
        left, self._left = self._left, set()
        return left

    def unrecorded_on(self) -> set[str]:
        """Return the nodes with pods that are to be sent, and are not recorded there with their uid."""
        found = set[str]()
        for key in self._due | self._waiting.keys():
            watched, held = self._store.get(key), self._held.get(key)
            if watched is not None and watched.node is not None:
                is_there = held is not None and (held.uid, held.node) == (watched.uid, watched.node)
                if not is_there and not self._sending.rejections.holds_back(key, self._groups.mark(watched)):
                    found.add(watched.node)
        return found

    def _release(self, pod: PodId) -> bool:
        """Release a pod, unless that is held back; return whether it held something."""
        key = key_of(pod)
        if self._sending.rejections.holds_back(key, pod):
            return False
        try:
            released = self._service.release(pod)
        except ServiceError as error:
            self._sending.refused(key, pod, error)
            WRITES.labels("release", "rejected").inc()
            return False
        WRITES.labels("release", "accepted" if released else "nothing_held").inc()
        self._ended.discard(pod)
        self._own.forget(pod.uid)
        self.forget(pod)
        if released:
            self._sending.made_room()
        return released

    def _release_if_ended(self, pod: PodId) -> None:
        """Release a pod that was sent with CPUs of another one, if Kubernetes says that it is over or gone.

        A watch may be behind: the extender released the pod when it saw its end, these CPUs went to another
        pod, and then the older report recorded it once more. Raises ServiceError, ApiServerError.
        """
        now = self._asked(pod)
        if now is None or now.over:
            self.end([pod])
            self._release(pod)

    def forget(self, pod: PodId) -> None:
        """Note that the service does not hold that pod any more."""
        key = key_of(pod)
        held = self._held.get(key)
        if held is not None and held.uid == pod.uid:
            del self._held[key]
            if held.node is not None:
                self._left.add(held.node)

    def arrived(self, node: str) -> None:
        """Note that the service has that node now."""
        self._due.update(key for key, awaited in self._waiting.items() if awaited == node)

    def put(self, has_node: Callable[[str], bool]) -> Iterator[tuple[int, set[str]]]:
        """Send pods that are new or changed, node by node; raises ServiceError, ApiServerError.

        Yield after each call how many were taken, and the nodes that have all their pods since then. Pods
        that this process is binding wait; the ones that it has bound need no report, unless they changed.
        """
        binding = set(filter(self._is_binding, self._due)) if self._own.binding else set()
        self._due -= binding
        sendable = self._collected(lambda key: self._sendable(key, has_node))
        self._due |= binding
        sendable.sort(key=attrgetter("node"))
        left = Counter(each.node for each in sendable)
        known = [each for each in sendable if self._own.says_all(each.watched)]
        whole = {each.key for each in known}
        reported = [each for each in sendable if each.key not in whole]
        for batch in portions(known, _PODS_IN_CALL):
            reported += self._confirmed(batch, left)
            yield 0, {each.node for each in batch if not left[each.node]}
        for batch in portions(reported, _PODS_IN_CALL):
            sent = self._service.put_pods(
                [
                    (pod.key.namespace, pod.key.name, self._groups.annotated(pod.watched.manifest))
                    for pod in batch
                ]
            )
            self._sent_at = time.monotonic()
            taken = 0
            for (key, watched, mark, node), outcome in zip(batch, sent, strict=True):
                left[node] -= 1
                is_change = key in self._held
                if self._took(key, HeldObject(mark, watched.uid, node), outcome):
                    taken += 1
                    if is_change:
                        # A resize may have made it smaller, or it may have left another node.
                        self._sending.made_room()
                    self._own.forget(watched.uid)
                    # It runs, and is recorded where it runs: a release that was refused is pointless now.
                    self._ended.discard(PodId(key.namespace, key.name, watched.uid))
                if outcome.shares_cpus:
                    self._release_if_ended(PodId(key.namespace, key.name, watched.uid))
            yield taken, {each.node for each in batch if not left[each.node]}

    def _is_binding(self, key: Key) -> bool:
        watched = self._store.get(key)
        return watched is not None and self._own.is_binding(watched.uid)

    def _confirmed(self, sendable_pods: Sequence[_SendablePod], left: Counter[str]) -> list[_SendablePod]:
        """Report pods that were bound as they were placed; return the ones that need a full report.

        Raises ServiceError.
        """
        ids = [(PodId(key.namespace, key.name, watched.uid), node) for key, watched, _, node in sendable_pods]
        unknown = []
        for each, (pod, node), is_held in zip(sendable_pods, ids, self._service.confirm(ids), strict=True):
            self._own.forget(pod.uid)
            if not is_held:
                unknown.append(each)
                continue
            left[node] -= 1
            self._held[each.key] = HeldObject(each.mark, pod.uid, node)
            self._due.discard(each.key)
            self._ended.discard(pod)
            WRITES.labels(ObjectKind.POD, "confirmed").inc()
        return unknown

    def _sendable(self, key: Key, has_node: Callable[[str], bool]) -> _SendablePod | None:
        self._waiting.pop(key, None)
        watched = self._store.get(key)
        if watched is None or watched.node is None:
            if self._sending.rejections.mark_of(key) not in self._ended:
                self._sending.settled(key)
            return None
        held, mark = self._held.get(key), self._groups.mark(watched)
        if held and held.mark == mark:
            return None
        if not has_node(watched.node):
            self._waiting[key] = watched.node
            if held and held.uid == watched.uid and held.node not in (None, watched.node):
                # It does not run where it is recorded.
                self._ended.add(PodId(key.namespace, key.name, watched.uid))
            return None
        if self._sending.rejections.holds_back(key, mark):
            return None
        return _SendablePod(key, watched, mark, watched.node)


class _SendablePod(NamedTuple):
    key: Key
    watched: WatchedObject
    mark: Hashable
    node: str


def key_of(pod: PodId) -> Key:
    return Key(ObjectKind.POD, pod.namespace, pod.name)
