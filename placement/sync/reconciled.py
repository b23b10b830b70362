"""The objects of the service, kept equal to the ones of Kubernetes, kind by kind.

What the service refused is not sent over and over.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple, TypeVar

from placement.client.client import ServiceError
from placement.common.manifest import CLOSED
from placement.engine.domain.identifiers import portions
from placement.sync.api_server import ApiServerError
from placement.sync.events import RejectionEvents
from placement.sync.figures import WRITES
from placement.sync.service import CONFLICT, HeldPod, PodId, Sent, ServiceCluster, is_refusal, outcome_of
from placement.sync.watching import (
    RESERVATIONS,
    InformerStore,
    Journal,
    Key,
    ObjectKind,
    Pause,
    WatchedObject,
    lasting_part,
)

_LONGEST_PAUSE_SECONDS = 300.0


@dataclass(slots=True)
class _Rejection:
    mark: Hashable
    again_at: float | None = None
    pause: Pause = field(default_factory=lambda: Pause(_LONGEST_PAUSE_SECONDS))


class Rejections:
    """The refused things, with the mark of the state that was refused.

    What is wrong in itself waits until it changes. A conflict may be over without any change of the thing,
    when another consumer has made room. So it is tried again, less and less often.
    """

    def __init__(self) -> None:
        self._found: dict[Key, _Rejection] = {}

    def __len__(self) -> int:
        return len(self._found)

    def add(self, key: Key, mark: Hashable, *, conflict: bool) -> None:
        """Note that the thing was refused in this state."""
        rejection = self._found.get(key)
        if rejection is None or rejection.mark != mark:
            rejection = self._found[key] = _Rejection(mark)
        rejection.again_at = time.monotonic() + rejection.pause.after_failure() if conflict else None

    def discard(self, key: Key) -> bool:
        """Forget a thing that was accepted or is gone; return whether it had been refused."""
        return self._found.pop(key, None) is not None

    def forgive(self) -> None:
        """Forget all refusals: everything is tried again."""
        for rejection in self._found.values():
            rejection.again_at = 0.0

    def mark_of(self, key: Key) -> Hashable:
        """Return the mark of the state in which the thing was refused, None if it was not."""
        rejection = self._found.get(key)
        return None if rejection is None else rejection.mark

    def holds_back(self, key: Key, mark: Hashable) -> bool:
        """Return whether the thing would be refused again in this state."""
        rejection = self._found.get(key)
        if rejection is None or rejection.mark != mark:
            return False
        return rejection.again_at is None or rejection.again_at > time.monotonic()

    def ripe(self, by: float | None = None) -> set[Key]:
        """Return the conflicts that are to be tried again by now, or by another time."""
        now = time.monotonic() if by is None else by
        return {
            key
            for key, rejection in self._found.items()
            if rejection.again_at is not None and rejection.again_at <= now
        }

    def ripen(self, among: Collection[Key] | None = None) -> set[Key]:
        """Make all conflicts due now, or the ones among these things, and return the things."""
        conflicts = self.ripe(float("inf"))
        if among is not None:
            conflicts &= set(among)
        for key in conflicts:
            self._found[key].again_at = 0.0
        return conflicts


@dataclass
class Sending:
    """A sender that notes what became of the things it sends.

    A refusal concerns its thing only, any other failure all of them.
    """

    _journal: Journal
    _progress: Callable[[], None]
    _store: InformerStore
    _events: RejectionEvents | None = None
    rejections: Rejections = field(default_factory=Rejections)

    def accepted(self, key: Key, mark: Hashable, send: Callable[[], Sent | bool]) -> bool:
        """Send the thing, or delete it, unless its mark is held back; return whether the service took that.

        Raises ServiceError for what is no refusal.
        """
        if self.rejections.holds_back(key, mark):
            return False
        return self.took(key, mark, outcome_of(send))

    def took(self, key: Key, mark: Hashable, sent: Sent) -> bool:
        """Note whether the service took the thing as it is, and return it. Raises what is no refusal."""
        if sent.refusal is not None:
            self.refused(key, mark, sent.refusal)
            WRITES.labels(key.kind, "rejected").inc()
            return False
        WRITES.labels(key.kind, "accepted").inc()
        self.settled(key)
        for warning in sent.warnings:
            self._journal.note(f"{_title(key)}: {warning}")
        self._progress()
        return True

    def refused(self, key: Key, mark: Hashable, error: ServiceError) -> None:
        """Note that the service refused the thing in this state. Raises what is no refusal."""
        if not is_refusal(error):
            raise error
        self.rejections.add(key, mark, conflict=error.status == CONFLICT)
        self._journal.trouble(_title(key), f"rejected: {error}")
        seen = self._store.get(key)
        if self._events is not None and seen is not None and seen.text:
            self._events.rejected(key, seen.manifest, str(error))

    def settled(self, key: Key) -> None:
        """Note that nothing is wrong with a thing, or that it is gone."""
        if self.rejections.discard(key):
            self._journal.well(_title(key))
            if self._events is not None:
                self._events.settled(key)


def _title(key: Key) -> str:
    if key.kind is ObjectKind.POD:
        return f"pod {key.namespace}/{key.name}"
    return f"reservation {key.name}" if key.kind is ObjectKind.RESERVATION else f"node {key.name}"


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
        """Note what the service holds; marks of what this process sent stay, and all of it becomes due."""
        self._held = {key: self._held.get(key, HeldObject()) for key in keys}
        self._due.update(self._held)

    def _collected(self, read: Callable[[Key], Read | None]) -> list[Read]:
        """Return what is to be sent of the due ones; what need not be sent is due no more."""
        found = []
        for key in sorted(self._due):
            each = read(key)
            if each is None:
                self._due.discard(key)
            else:
                found.append(each)
        return found

    def _took(self, key: Key, held: HeldObject, sent: Sent) -> bool:
        """Note the outcome; return whether the object was taken. Raises ServiceError that is no refusal."""
        taken = self._sending.took(key, held.mark, sent)
        if taken:
            self._held[key] = held
        self._due.discard(key)
        return taken


# Pods that occupy nodes in Kubernetes.


# How many pods are sent in one call.
_PODS_IN_CALL = 200
# A call with one pod costs the service half of what one with four does.
GATHERED_SECONDS = 0.1


Asked = Callable[[PodId], WatchedObject | None]
"""What returns that very pod as Kubernetes has it now, or None if it is gone. Raises ApiServerError."""


class _SendablePod(NamedTuple):
    key: Key
    seen: WatchedObject
    node: str


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
        """Look at what the service holds. Raises ServiceError, ApiServerError."""
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
        seen = self._seen(pod)
        return seen is None or seen.over

    def _seen(self, pod: PodId) -> WatchedObject | None:
        seen = self._store.get(key_of(pod))
        return seen if seen is not None and seen.uid == pod.uid else self._asked(pod)

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
            seen = self._seen(pod.id)
            if seen is None or seen.over:
                self.end([pod.id])
                self._release(pod.id)
            elif seen.node not in (None, node):
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
            seen, held = self._store.get(key), self._held.get(key)
            if seen is not None and seen.node is not None:
                is_there = held is not None and (held.uid, held.node) == (seen.uid, seen.node)
                if not is_there and not self._sending.rejections.holds_back(key, seen.mark):
                    found.add(seen.node)
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
        self.forget(pod)
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

        Yield after each call how many were taken, and the nodes with pods in it of which all have been sent.
        """
        sendable = self._collected(lambda key: self._sendable(key, has_node))
        sendable.sort(key=attrgetter("node"))
        left = Counter(each.node for each in sendable)
        for batch in portions(sendable, _PODS_IN_CALL):
            sent = self._service.put_pods(
                [(key.namespace, key.name, seen.manifest) for key, seen, _ in batch]
            )
            self._sent_at = time.monotonic()
            taken = 0
            for (key, seen, node), outcome in zip(batch, sent, strict=True):
                left[node] -= 1
                if self._took(key, HeldObject(seen.mark, seen.uid, node), outcome):
                    taken += 1
                    # It runs, and is recorded where it runs: a release that was refused is pointless now.
                    self._ended.discard(PodId(key.namespace, key.name, seen.uid))
                if outcome.shares_cpus:
                    self._release_if_ended(PodId(key.namespace, key.name, seen.uid))
            yield taken, {each.node for each in batch if not left[each.node]}

    def _sendable(self, key: Key, has_node: Callable[[str], bool]) -> _SendablePod | None:
        self._waiting.pop(key, None)
        seen = self._store.get(key)
        if seen is None or seen.node is None:
            if self._sending.rejections.mark_of(key) not in self._ended:
                self._sending.settled(key)
            return None
        held = self._held.get(key)
        if held and held.mark == seen.mark:
            return None
        if not has_node(seen.node):
            self._waiting[key] = seen.node
            if held and held.uid == seen.uid and held.node not in (None, seen.node):
                # It does not run where it is recorded.
                self._ended.add(PodId(key.namespace, key.name, seen.uid))
            return None
        if self._sending.rejections.holds_back(key, seen.mark):
            return None
        return _SendablePod(key, seen, seen.node)


def key_of(pod: PodId) -> Key:
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
            elif (bound := self._store.get(key_of(claim.id))) and bound.uid == claim.id.uid and bound.node:
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


# Reservations, and nodes.


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
            seen, held = self._store.get(key), self._held.get(key)
            if seen is not None and not seen.over and not (held and held.mark == seen.mark):
                put = partial(self._service.put, seen.manifest, "reservations", key.name)
                if self._sending.accepted(key, seen.mark, put):
                    self._held[key] = HeldObject(seen.mark)
                    taken += 1
            self._due.discard(key)
        return taken


# How many nodes are sent in one call, and how many calls at a time.
_NODES_IN_CALL, _CALLS_AT_ONCE = 50, 2


class _SendableNode(NamedTuple):
    key: Key
    held: HeldObject
    seen: WatchedObject
    topology: WatchedObject | None
    is_closed: bool
    replaces: bool


_UNRECORDED = "not all pods that run there are recorded yet"


class ReconciledNodes(Reconciled):
    """The nodes that the service holds, and the nodes that are due.

    No CPU of a running pod may look free meanwhile. So a node that is gone is deleted only once its pods are:
    until then the service keeps it, closed to new pods. A node that may be new to the service is sent closed
    while pods run there that are not recorded, and opened as soon as they are. A node that comes back with
    another uid keeps its pods, which the service takes over in the transaction that takes the node.
    """

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
        self._opening: set[Key] = set()

    def has(self, name: str) -> bool:
        """Return whether the service has that node, so that it takes pods that run there."""
        return _node_key(name) in self._held

    def compare(self) -> None:
        """Look at what the service holds. Raises ServiceError.

        A node that is closed there is sent again, which opens it if Kubernetes has it.
        """
        before, self._held = self._held, {}
        for node in self._service.nodes():
            key = _node_key(node.name)
            known = before.get(key)
            is_same = known is not None and not node.is_closed and (known.uid or None) == node.uid
            self._held[key] = known if known and is_same else HeldObject(None, node.uid)
        self._due.update(self._held)

    def delete_gone(self) -> int:
        """Delete nodes that are gone; return how many. Raises ServiceError, ApiServerError.

        A node stays, closed, while pods on it are neither over nor gone, or other consumers hold some of it.
        Its reservations stay as long, as it may come back. It is tried again when pods leave it, and from
        time to time.
        """
        deleted = 0
        left = map(_node_key, self._pods.left_nodes())
        self._due.update(self._sending.rejections.ripen(list(left)))
        for key in sorted(self._due):
            if self._store.get(key) is not None:
                continue
            if key not in self._held:
                self._sending.settled(key)
            else:
                self._pods.release_ended_on(key.name)
                kept = self._reservations.on(key.name)
                # If it comes back it is to be opened, whatever it was sent as before.
                self._held[key] = HeldObject()
                delete = partial(self._service.delete_node, key.name, with_reservations=bool(kept))
                if self._sending.accepted(key, None, delete):
                    del self._held[key]
                    self._reservations.lost(kept)
                    deleted += 1
            self._due.discard(key)
        return deleted

    def open(self, names: Iterable[str] | None = None) -> int:
        """Open nodes that were sent closed, all or the named ones, as their pods have been sent since.

        Return how many. Raises ServiceError.
        """
        opening = self._opening.copy() if names is None else self._opening.intersection(map(_node_key, names))
        self._due |= opening
        self._opening -= opening
        return self._put(())

    def put(self) -> int:
        """Send nodes that are new or changed; return how many were taken. Raises ServiceError."""
        return self._put(self._pods.unrecorded_on() if self._due else ())

    def _put(self, unrecorded: Collection[str]) -> int:
        """Send the nodes that are due, the ones with unrecorded pods closed; return how many were taken."""
        taken = 0
        sendable = self._collected(lambda key: self._sendable(key, unrecorded))
        batches = list(portions(sendable, _NODES_IN_CALL))
        if not batches:
            return 0
        with ThreadPoolExecutor(_CALLS_AT_ONCE) as pool:
            # The nodes of one call may wait in the service while it reads the next call.
            for batch, sent in zip(batches, pool.map(self._send, batches), strict=True):
                for node, outcome in zip(batch, sent, strict=True):
                    if self._took(node.key, node.held, outcome):
                        taken += 1
                        self._pods.arrived(node.key.name)
                        if node.is_closed:
                            self._held[node.key] = HeldObject(None, node.held.uid)
                            self._opening.add(node.key)
                    elif node.replaces:
                        self._withdraw(node.key)
        return taken

    def _withdraw(self, key: Key) -> None:
        """Delete or close the former node of a name, as the one that came instead was refused."""
        self._held[key] = HeldObject()
        refusal = outcome_of(partial(self._service.delete_node, key.name)).refusal
        if refusal is None:
            del self._held[key]
        elif not is_refusal(refusal):
            raise refusal

    def _sendable(self, key: Key, unrecorded: Collection[str]) -> _SendableNode | None:
        node = self._store.get(key)
        if node is None:
            return None
        topology = self._store.get(Key(ObjectKind.TOPOLOGY, "", key.name))
        mark = (node.mark, topology.mark if topology else None)
        held = self._held.get(key)
        if (held and held.mark == mark) or self._sending.rejections.holds_back(key, mark):
            return None
        is_known = held is not None and held.mark is not None and held.uid == node.uid
        is_closed = not is_known and key.name in unrecorded
        replaces = held is not None and held.uid not in (None, node.uid)
        return _SendableNode(key, HeldObject(mark, node.uid), node, topology, is_closed, replaces)

    def _send(self, batch: Sequence[_SendableNode]) -> Sequence[Sent]:
        """Send nodes without volatile parts, so that the service recognises what it has already."""
        nodes: list[tuple[str, Mapping[str, Any], Mapping[str, Any] | None]] = []
        for each in batch:
            topology = None if each.topology is None else lasting_part(each.topology.manifest)
            node = lasting_part(each.seen.manifest)
            if each.is_closed:
                annotations = node["metadata"].get("annotations") or {}
                node["metadata"]["annotations"] = {**annotations, CLOSED: _UNRECORDED}
            nodes.append((each.key.name, node, topology))
        return self._service.put_nodes(nodes)


def _node_key(name: str) -> Key:
    return Key(ObjectKind.NODE, "", name)
