"""One node with everybody on it, as of one moment."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any
from weakref import ReferenceType, WeakKeyDictionary, WeakValueDictionary, ref

import orjson

from placement.dialects.koordinator.node.canonical_form import ANONYMOUS, anonymous
from placement.dialects.koordinator.node.host_cpus import KubeletPod
from placement.dialects.koordinator.node.node import NodeImport, import_node
from placement.dialects.koordinator.node.tree import HostIdentity
from placement.dialects.koordinator.settings.settings import SchedulerSettings
from placement.dialects.koordinator.status.recorded_pod import RecordedPod
from placement.kubernetes.node_selection import NodeFace
from placement.kubernetes.pod_identity import consumer_of
from placement.numa.host_score import HostTotals
from placement.scheduling.host import Host
from placement.scheduling.node_allocations import (
    Accountant,
    NodeAllocations,
    compute,
    host_room,
)
from placement.scheduling.node_offers import NodeOffers, Place, offers_of
from placement.scheduling.occupied_host import occupied_host, unknown_pods
from placement.storage.statements.node_rows import NodeRow

_CLUSTER = "c"


@dataclass(frozen=True, eq=False)
class NodeKind:
    """What nodes with like manifests have in common; `imported` carries no name of theirs.

    `empty` are the hosts that they are without pods, by settings, as far as somebody asked.
    """

    imported: NodeImport
    offers: NodeOffers
    empty: dict[SchedulerSettings, Host] = field(default_factory=dict)


class Likenesses:
    """Keeps one object for like nodes and one for like hosts, so that what is known of one holds for all.

    A kind or a host is forgotten with the last node that is so.
    """

    def __init__(self) -> None:
        self._kinds: WeakValueDictionary[bytes, NodeKind] = WeakValueDictionary()
        self._hosts: WeakKeyDictionary[Host, ReferenceType[Host]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def kind(self, node: Mapping[str, Any], nrt: Mapping[str, Any] | None, profile: str) -> NodeKind:
        """The kind of a node with these manifests, which were imported before."""
        reduced = anonymous(node, nrt)
        key = profile.encode() + orjson.dumps(reduced, option=orjson.OPT_SORT_KEYS)
        found = self._kinds.get(key)
        if found is None:
            imported = import_node(_CLUSTER, *reduced, profile)
            found = NodeKind(imported, offers_of(imported, f"{_CLUSTER}/{ANONYMOUS}"))
            found = self._kinds.setdefault(key, found)
        return found

    def host(self, state: NodeState) -> Host:
        """The host that a node is for pods."""
        if not (state.pods or state.others):
            found = state.kind.empty.get(state.settings)
            return found or state.kind.empty.setdefault(state.settings, _host(state))
        made = _host(state)
        with self._lock:
            known = self._hosts.get(made)
            found = None if known is None else known()
            if found is None:
                self._hosts[made] = ref(made)
                found = made
        return found


def _host(state: NodeState) -> Host:
    kind = state.kind
    return occupied_host(kind.imported, kind.offers, state.pods, state.others, state.settings)


def reported_pods(
    cluster: str, imported: NodeImport, pods: Collection[RecordedPod]
) -> tuple[tuple[str, KubeletPod], ...]:
    """The pods that hold CPUs of a node by report: those kubelet manages, and those nobody knows here."""
    found = (*imported.kubelet_pods, *unknown_pods(imported, pods))
    return tuple((consumer_of(cluster, pod.uid), pod) for pod in found)


@dataclass(frozen=True, eq=False)
class NodeState:
    """A node, its recorded pods in their order, and what is left of it.

    `others` is what consumers beside the cluster's pods hold, `unused` the units of each class of the host
    itself that nobody holds, `totals` the same for the score. Never changed in place: another state is
    another object.
    """

    row: NodeRow
    cluster_id: int
    identity: HostIdentity
    face: NodeFace
    kind: NodeKind
    settings: SchedulerSettings
    pods: tuple[RecordedPod, ...]
    others: Mapping[Place, int]
    unused: Mapping[str, int]
    totals: HostTotals
    likenesses: Likenesses

    @property
    def name(self) -> str:
        """The name of the node."""
        return self.row.name

    @property
    def offers(self) -> NodeOffers:
        """What its providers offer."""
        return self.kind.offers

    @cached_property
    def host(self) -> Host:
        """The node as pods see it that look for a place."""
        return self.likenesses.host(self)

    @cached_property
    def reported_pods(self) -> tuple[tuple[str, KubeletPod], ...]:
        """The pods that hold CPUs by report only, each with its consumer."""
        return reported_pods(self.identity.cluster, self.kind.imported, self.pods)

    @cached_property
    def kubelet_pods(self) -> tuple[tuple[str, KubeletPod], ...]:
        """The pods whose CPUs kubelet manages, each with its consumer."""
        cluster = self.identity.cluster
        return tuple((consumer_of(cluster, pod.uid), pod) for pod in self.kind.imported.kubelet_pods)

    @cached_property
    def accounts(self) -> NodeAllocations:
        """Who holds what of its providers."""
        return compute(self.offers, self.pods, self.reported_pods, self.others)

    @property
    def due(self) -> int:
        """What is in use if everybody holds what is due, units of all classes added."""
        shares = self.accounts.shares.values()
        return sum(self.others.values()) + sum(sum(share.values()) for share in shares)

    @cached_property
    def free(self) -> Mapping[str, int]:
        """The units of each class of the host itself that a pod may have: neither held nor due to another."""
        room = host_room(self.offers, self.pods, self.others)
        return {name: min(units, room.get(name, units)) for name, units in self.unused.items()}

    @cached_property
    def accountant(self) -> Accountant:
        """What is left on its NUMA nodes, after recorded pods; only to be asked."""
        accountant = Accountant(self.offers, self.others)
        for pod in self.pods:
            accountant.record(pod)
        return accountant

    def left(self, place: Place) -> int:
        """The units left of an inventory, before kubelet's pods."""
        return self.accountant.left(place)

    def with_pod(self, pod: RecordedPod) -> NodeState:
        """The same node with one more pod, recorded last; the host's own totals are left as they are."""
        return replace(self, pods=(*self.pods, pod))

    def without(self, consumers: frozenset[str]) -> NodeState:
        """The same node without pods; what they held of the host itself is free again."""
        gone = [pod for pod in self.pods if pod.consumer in consumers]
        if not gone:
            return self
        unused, requested = dict(self.unused), dict(self.totals.requested)
        for pod in gone:
            for place, amount in self.accounts.shares.get(pod.consumer, {}).items():
                if not place.path:
                    unused[place.resource_class] = unused.get(place.resource_class, 0) + amount
            for resource, amount in pod.requests.items():
                requested[resource] = requested.get(resource, 0) - amount
        return replace(
            self,
            pods=tuple(pod for pod in self.pods if pod.consumer not in consumers),
            unused=unused,
            totals=HostTotals(self.totals.allocatable, requested),
        )
