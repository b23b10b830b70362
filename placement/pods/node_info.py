"""The NodeInfo of scheduling: an immutable picture of a node with all its holders, as of one moment."""

from __future__ import annotations

import datetime
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from weakref import ReferenceType, WeakKeyDictionary, WeakValueDictionary, ref

from placement.common.pod_identity import consumer_of
from placement.engine.numa.amounts import Amounts
from placement.engine.numa.host import HostTotals
from placement.pods.accounts import Accountant, NodeAllocations, counted, holders, host_room
from placement.pods.host import Host, NodeOffers, Place, occupied_host, unknown_pods
from placement.pods.manifests.affinity import NO_AFFINITY, Bearer
from placement.pods.manifests.selection import NodeAttributes
from placement.pods.model import HostIdentity, KubeletPod, NodeImport, RecordedPod, SchedulerSettings

_serials = count()


@dataclass(frozen=True, eq=False)
class NodeTemplate:
    """A template of nodes with like manifests; `imported` carries none of their names.

    `empty` has their hosts without pods, by settings, as far as a caller asked for them.
    """

    imported: NodeImport
    offers: NodeOffers
    empty: dict[SchedulerSettings, Host] = field(default_factory=dict)


class NodeTemplates:
    """A registry of one object for like nodes and one for like hosts, so that facts about one hold for all.

    A template or a host is forgotten with the last node that has it.
    """

    def __init__(self) -> None:
        self._templates: WeakValueDictionary[tuple[bytes, ...], NodeTemplate] = WeakValueDictionary()
        self._hosts: WeakKeyDictionary[Host, ReferenceType[Host]] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def of(self, key: tuple[bytes, ...], read: Callable[[], NodeTemplate]) -> NodeTemplate:
        """Return the template of manifests with this canonical form; it is read if it is not known."""
        found = self._templates.get(key)
        return found or self._templates.setdefault(key, read())

    def host(self, node: NodeInfo) -> Host:
        """Return the host that a node is for pods."""
        template, is_empty = node.template, not (node.holders or node.others)
        found = template.empty.get(node.settings) if is_empty else None
        if found is not None:
            return found
        made = occupied_host(template.imported, template.offers, node.holders, node.others, node.settings)
        if is_empty:
            return template.empty.setdefault(node.settings, made)
        with self._lock:
            known = self._hosts.get(made)
            found = None if known is None else known()
            if found is None:
                self._hosts[made] = ref(made)
                found = made
        return found


def reported_pods(
    cluster: str, imported: NodeImport, pods: Collection[RecordedPod]
) -> tuple[tuple[str, KubeletPod], ...]:
    """Return the pods that hold CPUs of a node by report: pods that kubelet manages, and unknown pods."""
    found = (*imported.kubelet_pods, *unknown_pods(imported, pods))
    return tuple((consumer_of(cluster, pod.uid), pod) for pod in found)


@dataclass(frozen=True, eq=False)
class NodeInfo:
    """A node, its recorded pods in their order, and what is left of it; never changed, so it can be a key.

    `reservations` have all that they were given. `id` is the id of the node; `root_id`, `root_uuid` and
    `revision`, the stamp, belong to its host provider; `imported_at` is when its manifests were stored.
    `others` is what consumers beside the cluster's pods hold. `unused` has the units of each class of the
    host itself that no consumer holds, `totals` has its totals for the score.
    """

    id: int
    name: str
    root_id: int
    root_uuid: str
    revision: int
    imported_at: datetime.datetime
    cluster_id: int
    identity: HostIdentity
    attributes: NodeAttributes
    template: NodeTemplate
    settings: SchedulerSettings
    pods: tuple[RecordedPod, ...]
    others: Mapping[Place, int]
    unused: Mapping[str, int]
    totals: HostTotals
    templates: NodeTemplates
    reservations: tuple[RecordedPod, ...] = ()
    counted: tuple[Accountant, int] | None = field(default=None, repr=False)
    """A read-only accountant, and how many of the pods, the first ones, it has counted, or all holders."""
    serial: int = field(default_factory=_serials.__next__, init=False, repr=False)
    """The number of this picture in this process: what is noted about it need not keep it alive."""

    @property
    def provider_name(self) -> str:
        """Return the name of its host provider."""
        return self.identity.name()

    @property
    def offers(self) -> NodeOffers:
        """Return what its providers offer."""
        return self.template.offers

    @cached_property
    def holders(self) -> tuple[RecordedPod, ...]:
        """Return all holders: the pods, then the reservations with what they have left."""
        return holders(self.template.imported, self.offers, self.pods, self.reservations)

    @cached_property
    def bearers(self) -> Mapping[Bearer, int]:
        """Return how many of its pods have each namespace and labels."""
        return Counter((pod.namespace, pod.labels) for pod in self.pods)

    @cached_property
    def staying_bearers(self) -> Mapping[Bearer, int]:
        """Return how many of its pods that are not being deleted have each namespace and labels."""
        if not any(pod.is_leaving for pod in self.pods):
            return self.bearers
        return Counter((pod.namespace, pod.labels) for pod in self.pods if not pod.is_leaving)

    @cached_property
    def with_affinity(self) -> tuple[RecordedPod, ...]:
        """Return its pods that have rules about others."""
        return tuple(pod for pod in self.pods if pod.affinity is not NO_AFFINITY)

    @cached_property
    def of_gangs(self) -> tuple[RecordedPod, ...]:
        """Return its pods that are of gangs."""
        return tuple(pod for pod in self.pods if pod.membership is not None)

    @cached_property
    def waiting(self) -> tuple[RecordedPod, ...]:
        """Return its pods that have places, and wait for others of their gangs."""
        return tuple(pod for pod in self.of_gangs if pod.membership and pod.membership.waits_until)

    @property
    def reservations_left(self) -> tuple[RecordedPod, ...]:
        """Return the reservations in their order, each with what it has left."""
        return self.holders[len(self.pods) :]

    @property
    def reserving(self) -> frozenset[str]:
        """Return the consumers that are its reservations."""
        return frozenset(each.consumer for each in self.reservations)

    @cached_property
    def host(self) -> Host:
        """Return the node as seen by pods that look for a place."""
        return self.templates.host(self)

    @cached_property
    def reported_pods(self) -> tuple[tuple[str, KubeletPod], ...]:
        """Return the pods that hold CPUs by report only, each with its consumer."""
        return reported_pods(self.identity.cluster, self.template.imported, self.pods)

    @cached_property
    def kubelet_pods(self) -> tuple[tuple[str, KubeletPod], ...]:
        """Return the pods with CPUs that kubelet manages, each with its consumer."""
        cluster = self.identity.cluster
        return tuple((consumer_of(cluster, pod.uid), pod) for pod in self.template.imported.kubelet_pods)

    @cached_property
    def accounts(self) -> NodeAllocations:
        """Return what each consumer holds of its providers."""
        return self.accountant.accounts(self.reported_pods)

    @property
    def due(self) -> int:
        """Return the units in use if all consumers hold what is due to them, all classes added."""
        shares = self.accounts.shares.values()
        return sum(self.others.values()) + sum(sum(share.values()) for share in shares)

    @cached_property
    def free(self) -> Mapping[str, int]:
        """Return the units of each host class that a pod may have: neither held nor due to others."""
        room = host_room(self.offers, self.holders, self.others)
        return {name: min(units, room.get(name, units)) for name, units in self.unused.items()}

    @cached_property
    def accountant(self) -> Accountant:
        """Return the accountant of what is left on its NUMA nodes after recorded pods; only to be read."""
        if self.counted is None:
            return counted(self.offers, self.holders, self.others)
        accountant, count = self.counted
        if count < len(self.pods):
            accountant = accountant.copy()
            for pod in self.pods[count:]:
                accountant.record(pod)
        return accountant

    def left(self, place: Place) -> int:
        """Return the units left of an inventory, before kubelet's pods."""
        return self.accountant.left(place)

    def counted_on(self, former: NodeInfo) -> NodeInfo:
        """Return this node with the accounts of a former state, if nothing but new pods happened since.

        The result always equals a new count of all pods.
        """
        stay = len(former.pods)
        is_given = former.counted is not None and former.counted[1] == stay
        is_counted = is_given or "accountant" in vars(former)
        if not is_counted or (former.template, former.others) != (self.template, self.others):
            return self
        if self.reservations or former.reservations or self.pods[:stay] != former.pods:
            return self
        # Identical objects compare at once the next time.
        pods = (*former.pods, *self.pods[stay:])
        return replace(self, pods=pods, counted=(former.accountant, stay))

    def stamped(self, revision: int) -> NodeInfo:
        """Return this node with this stamp of its host provider."""
        return replace(self, revision=revision)

    def with_pod(self, pod: RecordedPod) -> NodeInfo:
        """Return this node with one more pod, recorded last, or one more reservation."""
        if pod.keeps is not None:
            return self._with(self.pods, (*self.reservations, pod))
        if self.reservations:
            return self._with((*self.pods, pod), self.reservations)
        accountant = self.accountant.copy()
        accountant.record(pod)
        shares, pods = accountant.shares_of(pod.consumer), (*self.pods, pod)
        return self._holding(1, [(shares, pod.requests)], pods, (accountant, len(pods)))

    def has_room_for(self, reservation: RecordedPod) -> bool:
        """Return whether a reservation would have all here that it would have if it were alone here."""
        after, consumer = self.with_pod(reservation), reservation.consumer
        if after.reservations_left[-1] != reservation:
            return False
        alone = counted(self.offers, [reservation], {})
        return after.accountant.shares_of(consumer) == alone.shares_of(consumer)

    def without(self, consumers: frozenset[str]) -> NodeInfo:
        """Return this node without these consumers; what they held of the host itself is free again."""
        pods = tuple(pod for pod in self.pods if pod.consumer not in consumers)
        if self.reservations:
            kept = tuple(each for each in self.reservations if each.consumer not in consumers)
            is_same = (len(pods), len(kept)) == (len(self.pods), len(self.reservations))
            return self if is_same else self._with(pods, kept)
        gone = [pod for pod in self.pods if pod.consumer in consumers]
        if not gone:
            return self
        held = [(self.accounts.shares.get(pod.consumer, {}), pod.requests) for pod in gone]
        return self._holding(-1, held, pods, None)

    def _holding(
        self,
        sign: int,
        held: Iterable[tuple[Mapping[Place, int], Amounts]],
        pods: tuple[RecordedPod, ...],
        counted: tuple[Accountant, int] | None,
    ) -> NodeInfo:
        """Return this node with these pods, which hold that much more of it, or less."""
        unused, requested = dict(self.unused), dict(self.totals.requested)
        for shares, requests in held:
            for place, amount in shares.items():
                if not place.path:
                    unused[place.resource_class] = unused.get(place.resource_class, 0) - sign * amount
            for resource, amount in requests.items():
                if amount:
                    requested[resource] = requested.get(resource, 0) + sign * amount
        totals = HostTotals(self.totals.allocatable, requested)
        return replace(self, pods=pods, unused=unused, totals=totals, counted=counted)

    def opened(self, reserving: frozenset[str]) -> NodeInfo:
        """Return this node without these reservations; it is remembered, as counting anew takes long."""
        if not reserving:
            return self
        found = self._opened.get(reserving)
        return found or self._opened.setdefault(reserving, self.without(reserving))

    @cached_property
    def _opened(self) -> dict[frozenset[str], NodeInfo]:
        return {}

    def _with(self, pods: tuple[RecordedPod, ...], reservations: tuple[RecordedPod, ...]) -> NodeInfo:
        after = replace(self, pods=pods, reservations=reservations, counted=None)
        unused, requested = Counter(self.unused), Counter(self.totals.requested)
        unused.update(_of_host(self.accounts))
        unused.subtract(_of_host(after.accounts))
        for holder in self.holders:
            requested.subtract(holder.requests)
        for holder in after.holders:
            requested.update(holder.requests)
        totals = HostTotals(self.totals.allocatable, dict(requested))
        return replace(after, unused=dict(unused), totals=totals, counted=(after.accountant, len(pods)))


def _of_host(accounts: NodeAllocations) -> Counter[str]:
    """Return the units of each class of the host itself that are held."""
    held: Counter[str] = Counter()
    for shares in accounts.shares.values():
        held.update({place.resource_class: amount for place, amount in shares.items() if not place.path})
    return held
