"""Nodes with their topologies, which are opened once their pods are recorded."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

from placement.common.manifest import CLOSED
from placement.engine.domain.portions import portions
from placement.sync.informer_store import InformerStore
from placement.sync.reconciled import HeldObject, Reconciled
from placement.sync.reconciled_pods import ReconciledPods
from placement.sync.reconciled_reservations import ReconciledReservations
from placement.sync.sending import Sending
from placement.sync.service import Sent, ServiceCluster, is_refusal, outcome_of
from placement.sync.watched_objects import Key, ObjectKind, WatchedObject, lasting_part

# How many nodes are sent in one call, and how many calls at a time.
_NODES_IN_CALL, _CALLS_AT_ONCE = 50, 2
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
        """Compare with the objects of the service. Raises ServiceError.

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
        topology_object = self._store.get(Key(ObjectKind.TOPOLOGY, "", key.name))
        mark = (node.mark, topology_object.mark if topology_object else None)
        held = self._held.get(key)
        if (held and held.mark == mark) or self._sending.rejections.holds_back(key, mark):
            return None
        is_known = held is not None and held.mark is not None and held.uid == node.uid
        is_closed = not is_known and key.name in unrecorded
        replaces = held is not None and held.uid not in (None, node.uid)
        return _SendableNode(key, HeldObject(mark, node.uid), node, topology_object, is_closed, replaces)

    def _send(self, sendable_nodes: Sequence[_SendableNode]) -> Sequence[Sent]:
        """Send nodes without volatile parts, so that the service recognises nodes it has already."""
        nodes: list[tuple[str, Mapping[str, Any], Mapping[str, Any] | None]] = []
        for each in sendable_nodes:
            topology_object = (
                None if each.topology_object is None else lasting_part(each.topology_object.manifest)
            )
            node = lasting_part(each.watched.manifest)
            if each.is_closed:
                annotations = node["metadata"].get("annotations") or {}
                node["metadata"]["annotations"] = {**annotations, CLOSED: _UNRECORDED}
            nodes.append((each.key.name, node, topology_object))
        return self._service.put_nodes(nodes)


class _SendableNode(NamedTuple):
    key: Key
    held: HeldObject
    watched: WatchedObject
    topology_object: WatchedObject | None
    is_closed: bool
    replaces: bool


def _node_key(name: str) -> Key:
    return Key(ObjectKind.NODE, "", name)
