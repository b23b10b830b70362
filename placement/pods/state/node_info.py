"""The NodeInfo of scheduling: an immutable picture of a node with all its holders, as of one moment.

It has the accounts of the node, and what its reservations have left.
"""

from __future__ import annotations

import datetime
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import count
from typing import NamedTuple
from weakref import ReferenceType, WeakKeyDictionary, WeakValueDictionary, ref

from placement.allocations.kubernetes_resources import CORE_CLASS, class_names, is_numa_only
from placement.common.pod_identity import consumer_of
from placement.engine.numa.allocator import amounts_left, what_is_left
from placement.engine.numa.cpus import CpuSet, format_cpu_list
from placement.engine.numa.host import Holding, HostTotals, NumaAmounts, ResourceAmounts, bound_cost, summed
from placement.pods.manifests.affinity import NO_AFFINITY, Bearer
from placement.pods.manifests.ports import UsedPorts, conflicting, used_ports
from placement.pods.manifests.selection import NodeAttributes
from placement.pods.state import model
from placement.pods.state.host import (
    HOST,
    PODS_CLASS,
    Host,
    NodeOffers,
    Place,
    counted_holding,
    host_of,
    host_place,
    numa_place,
    occupied_host,
    unknown_pods,
    without_taken,
)

_PODS = Place(HOST, PODS_CLASS)
_RESOURCES = class_names()

UnitsByPlace = dict[Place, int]
"""The units that one consumer holds on a node, by place."""


_serials = count()


@dataclass(frozen=True, eq=False)
class NodeInfo:
    """A node, its recorded pods in their order, and what is left of it; never changed, so it can be a key.

    `reservations` have all that they were given. `id` is the id of the node; `root_id`, `root_uuid` and
    `revision`, the stamp, belong to its host provider; `imported_at` is when its manifests were stored.
    `others` is what consumers beside the cluster's pods hold, `beside` what each of them takes of the host by
    `host_shares`. `unused` has the units of each class of the
    host itself that no consumer holds, `totals` has its totals for the score.
    """

    id: int
    name: str
    root_id: int
    root_uuid: str
    revision: int
    imported_at: datetime.datetime
    cluster_id: int
    identity: model.HostIdentity
    attributes: NodeAttributes
    template: NodeTemplate
    settings: model.SchedulerSettings
    pods: tuple[model.RecordedPod, ...]
    others: Mapping[Place, int]
    unused: Mapping[str, int]
    totals: HostTotals
    templates: NodeTemplates
    reservations: tuple[model.RecordedReservation, ...] = ()
    beside: Mapping[Place, int] = field(default_factory=dict)
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
        """Return the offers of its providers."""
        return self.template.offers

    @cached_property
    def holders(self) -> tuple[model.RecordedPod, ...]:
        """Return all holders: the pods, then the reservations with what they have left."""
        if not self.reservations:
            return self.pods
        return holders(self.template.node_import, self.template.offers, self.pods, self.reservations)

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
    def with_affinity(self) -> tuple[model.RecordedPod, ...]:
        """Return its pods that have rules about others."""
        return tuple(pod for pod in self.pods if pod.affinity is not NO_AFFINITY)

    @cached_property
    def of_gangs(self) -> tuple[model.RecordedPod, ...]:
        """Return its pods that are of gangs."""
        return tuple(pod for pod in self.pods if pod.membership is not None)

    @cached_property
    def waiting(self) -> tuple[model.RecordedPod, ...]:
        """Return its pods that have places, and wait for others of their gangs."""
        return tuple(pod for pod in self.pods if pod.membership and pod.membership.waits_until)

    @cached_property
    def used_ports(self) -> UsedPorts:
        """Return the host ports that its pods and reservations take."""
        return used_ports(each.host_ports for each in (*self.pods, *self.reservations) if each.host_ports)

    @property
    def reservations_left(self) -> tuple[model.RecordedReservation, ...]:
        """Return the reservations in their order, each with what it has left."""
        return self.holders[len(self.pods) :]

    @property
    def reserving(self) -> frozenset[str]:
        """Return the consumers that are its reservations."""
        return frozenset(each.consumer for each in self.reservations)

    @cached_property
    def host(self) -> Host:
        """Return the node as seen by pods that look for a place."""
        template, settings, is_empty = self.template, self.settings, not (self.holders or self.others)
        if is_empty and settings in template.empty:
            return template.empty[settings]
        bare_host = template.bare.get(settings)
        if bare_host is None:
            bare_host = without_taken(host_of(template.node_import, settings), {})
            bare_host = template.bare.setdefault(settings, bare_host)
        host = occupied_host(bare_host, template.node_import, template.offers, self.holders, self.others)
        return template.empty.setdefault(settings, host) if is_empty else self.templates.host(host)

    @cached_property
    def reported_pods(self) -> tuple[tuple[str, model.KubeletPod], ...]:
        """Return the pods that hold CPUs by report only, each with its consumer."""
        node_import = self.template.node_import
        if not (node_import.kubelet_pods or node_import.reported_pods):
            return ()
        return reported_pods(self.identity.cluster, node_import, self.pods)

    @cached_property
    def kubelet_pods(self) -> tuple[tuple[str, model.KubeletPod], ...]:
        """Return the pods with CPUs that kubelet manages, each with its consumer."""
        cluster = self.identity.cluster
        return tuple((consumer_of(cluster, pod.uid), pod) for pod in self.template.node_import.kubelet_pods)

    @cached_property
    def accounts(self) -> NodeAllocations:
        """Return the shares of each consumer in its providers."""
        return self.accountant.accounts(self.reported_pods)

    @property
    def due(self) -> int:
        """Return the units in use if all consumers hold what is due to them, all classes added."""
        units = sum(self.others.values())
        for share in self.accounts.shares.values():
            units += sum(share.values())
        return units

    @cached_property
    def free(self) -> Mapping[str, int]:
        """Return the units of each host class that a pod may have: neither held nor due to others."""
        offers, free = self.template.offers, dict(self.unused)
        taken = {**self.others, **self.beside}
        # Pods count with all that they are due, not with what they were cut to.
        for pod in self.holders:
            for place, units in host_units(offers, pod).items():
                taken[place] = taken.get(place, 0) + units
        for name, units in self.unused.items():
            place = Place(HOST, name)
            if place in offers.capacities:
                free[name] = min(units, max(0, offers.capacities[place] - taken.get(place, 0)))
        return free

    def host_after(self, claim: Mapping[Place, int]) -> dict[str, tuple[int, int, int]]:
        """Return the use before and after a claim beside pods, and the capacity, by class of the host.

        Classes that the claim does not take are left out.
        """
        offers, found = self.template.offers, {}
        for place, units in host_shares(offers, claim).items():
            if place in offers.capacities:
                capacity = offers.capacities[place]
                used = capacity - self.free.get(place.resource_class, 0)
                found[place.resource_class] = used, used + units, capacity
        return found

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

    def counted_on(self, former_node: NodeInfo) -> NodeInfo:
        """Return this node with the accounts of a former state, if nothing but new pods happened since.

        The result always equals a new count of all pods.
        """
        stay = len(former_node.pods)
        is_given = former_node.counted is not None and former_node.counted[1] == stay
        is_counted = is_given or "accountant" in vars(former_node)
        if not is_counted or (former_node.template, former_node.others) != (self.template, self.others):
            return self
        if self.reservations or former_node.reservations or self.pods[:stay] != former_node.pods:
            return self
        # Identical objects compare at once the next time.
        pods = (*former_node.pods, *self.pods[stay:])
        return replace(self, pods=pods, counted=(former_node.accountant, stay))

    def stamped(self, revision: int) -> NodeInfo:
        """Return this node with this stamp of its host provider."""
        return replace(self, revision=revision)

    def with_pod(self, pod: model.RecordedPod) -> NodeInfo:
        """Return this node with one more pod, recorded last, or one more reservation."""
        if pod.keeps is not None:
            return self._with(self.pods, (*self.reservations, pod))
        if self.reservations:
            return self._with((*self.pods, pod), self.reservations)
        accountant = self.accountant.copy()
        accountant.record(pod)
        shares, pods = accountant.shares[pod.consumer], (*self.pods, pod)
        return self._holding(1, [(shares, pod.requests)], pods, (accountant, len(pods)))

    def has_room_for(self, reservation: model.RecordedReservation) -> bool:
        """Return whether a reservation would have all here that it would have if it were alone here."""
        if any(conflicting(reservation.host_ports, self.used_ports)):
            return False
        after, consumer = self.with_pod(reservation), reservation.consumer
        if after.reservations_left[-1] != reservation:
            return False
        alone = counted(self.offers, [reservation], {})
        return after.accountant.shares[consumer] == alone.shares[consumer]

    def without(self, consumers: frozenset[str]) -> NodeInfo:
        """Return this node without these consumers; what they held of the host itself is free again."""
        gone = [each for each in (*self.pods, *self.reservations) if each.consumer in consumers]
        if not gone:
            return self
        pods = tuple(pod for pod in self.pods if pod.consumer not in consumers)
        if self.reservations:
            kept = tuple(each for each in self.reservations if each.consumer not in consumers)
            return self._with(pods, kept)
        held = [(self.accounts.shares.get(pod.consumer, {}), pod.requests) for pod in gone]
        return self._holding(-1, held, pods, None)

    def _holding(
        self,
        sign: int,
        held: Iterable[tuple[Mapping[Place, int], ResourceAmounts]],
        pods: tuple[model.RecordedPod, ...],
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

    def _with(
        self, pods: tuple[model.RecordedPod, ...], reservations: tuple[model.RecordedReservation, ...]
    ) -> NodeInfo:
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


def _of_host(allocations: NodeAllocations) -> Counter[str]:
    """Return the units of each class of the host itself that are held."""
    held: Counter[str] = Counter()
    for shares in allocations.shares.values():
        held.update({place.resource_class: amount for place, amount in shares.items() if not place.path})
    return held


@dataclass(frozen=True, eq=False)
class NodeTemplate:
    """A template of nodes with like manifests; `node_import` carries none of their names.

    `empty` has their hosts without any consumer, by settings, as far as a caller asked for them, `bare` these
    hosts without pods that are only reported.
    """

    node_import: model.NodeImport
    offers: NodeOffers
    empty: dict[model.SchedulerSettings, Host] = field(default_factory=dict)
    bare: dict[model.SchedulerSettings, Host] = field(default_factory=dict)


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

    def host(self, host: Host) -> Host:
        """Return the one object for hosts that equal this one."""
        with self._lock:
            known = self._hosts.get(host)
            found = None if known is None else known()
            if found is None:
                self._hosts[host] = ref(host)
                found = host
        return found


def reported_pods(
    cluster: str, node_import: model.NodeImport, pods: Collection[model.RecordedPod]
) -> tuple[tuple[str, model.KubeletPod], ...]:
    """Return the pods that hold CPUs of a node by report: pods that kubelet manages, and unknown pods."""
    found = (*node_import.kubelet_pods, *unknown_pods(node_import, pods))
    return tuple((consumer_of(cluster, pod.uid), pod) for pod in found)


def holders(
    node: model.NodeImport,
    offers: NodeOffers,
    pods: tuple[model.RecordedPod, ...],
    reservations: Sequence[model.RecordedReservation],
) -> tuple[model.RecordedPod, ...]:
    """Return all that hold something of a node: its pods, then its reservations with what they have left.

    The reservations are in the order in which they were made. One gives up a CPU when an owner in a shared
    pool takes what that CPU stands for. A later one may be given that CPU, which it then keeps.
    Source: koordinator.md, "Reservations".
    """
    reported = (pod.cpus for pod in (*node.kubelet_pods, *unknown_pods(node, pods)))
    gone_cpus = offers.unallocatable_cpus.union(*reported)
    left_reservations: list[model.RecordedReservation] = []
    for reservation in reversed(reservations):
        left_reservations.append(_left_of(offers, reservation, pods, gone_cpus))
        gone_cpus |= left_reservations[-1].holding.cpus
    return (*pods, *reversed(left_reservations))


def _left_of(
    offers: NodeOffers,
    reservation: model.RecordedReservation,
    pods: Sequence[model.RecordedPod],
    gone_cpus: CpuSet,
) -> model.RecordedPod:
    """Return a reservation less what its owners took, and less CPUs that any pod has or that are gone."""
    owners = [pod for pod in pods if pod.reservation == reservation.consumer]
    others = gone_cpus.union(*(pod.holding.cpus for pod in pods if pod not in owners))
    lost = reservation.holding.cpus & others
    if not owners and not lost:
        return reservation
    taken = [counted_holding(owner.holding, offers) for owner in owners]
    if lost:
        taken.append(counted_holding(Holding(lost), offers))
    requested = Counter({"cpu": 1000 * len(lost)})
    for owner in owners:
        requested.update(owner.requests)
    requests = amounts_left(reservation.requests, requested)
    left_holding = what_is_left(counted_holding(reservation.holding, offers), taken)
    held, loose = reservation.loose_amounts, summed(owner.loose_amounts for owner in owners)
    return replace(
        reservation,
        requests=requests,
        holding=_with_cpus_covered(offers, left_holding, requests)
        if reservation.holding.cpus
        else left_holding,
        loose_amounts=NumaAmounts(
            {numa: amounts_left(row, loose.get(numa, {})) for numa, row in held.items()}
        ),
        slots=0 if owners else 1,
    )


def _with_cpus_covered(offers: NodeOffers, left_holding: Holding, requests: ResourceAmounts) -> Holding:
    """Return a holding with only the CPUs that are covered by the `cpu` left on the host and on NUMA nodes.

    Owners in shared pools take `cpu`, but no CPUs.
    """
    kept: set[int] = set()
    by_numa: Counter[int] = Counter()
    for cpu in sorted(left_holding.cpus & offers.numa_of.keys()):
        numa = offers.numa_of[cpu]
        covered = left_holding.amounts.get(numa, {}).get("cpu", 0) - 1000 * by_numa[numa]
        if covered >= 1000 and requests.get("cpu", 0) >= 1000 * (len(kept) + 1):
            kept.add(cpu)
            by_numa[numa] += 1
    rest = {
        numa: {name: amount for name, amount in row.items() if name != "cpu"}
        for numa, row in left_holding.amounts.items()
    }
    for numa, size in by_numa.items():
        rest[numa]["cpu"] = 1000 * size
    amounts = NumaAmounts({numa: row for numa, row in rest.items() if row})
    return replace(left_holding, cpus=frozenset(kept), amounts=amounts)


@dataclass(frozen=True, slots=True)
class CpuOwner:
    """A consumer that owns a logical CPU, and the exclusive level under which it does."""

    consumer: str
    level: str = ""


@dataclass(frozen=True, slots=True)
class NodeAllocations:
    """A record of what is held on a node: shares by consumer, and the owner of each CPU that has one."""

    shares: Mapping[str, UnitsByPlace] = field(default_factory=dict)
    cpus: Mapping[int, CpuOwner] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Accountant:
    """The accounts of a node: shares of recorded pods in their order, then of pods that only kubelet knows.

    A pod that runs is a fact, whatever the node has left: its share is cut where it would not fit. So
    capacities are never exceeded. Returned units go to pods that were cut, in the order of recording.

    `taken` begins with what consumers beside pods hold there; `shares` are to be read only.
    Source: koordinator.md, "Resource classes".
    """

    offers: NodeOffers
    taken: Counter[Place]
    shares: dict[str, UnitsByPlace] = field(default_factory=dict)
    owners: dict[int, CpuOwner] = field(default_factory=dict)

    def left(self, place: Place) -> int:
        """Return the units of an inventory that no consumer holds."""
        return max(0, self.offers.capacities.get(place, 0) - self.taken[place])

    def record(self, pod: model.RecordedPod) -> None:
        """Count a recorded pod; CPUs that another one owns already stay with that one."""
        holding = pod.holding
        own = self._own(pod.consumer, holding.cpus, "" if holding.level == "None" else holding.level)
        self._take(pod.consumer, _due(self.offers, pod, own))

    def accounts(self, reported_pods: Collection[tuple[str, model.KubeletPod]]) -> NodeAllocations:
        """Return the counted shares, and then CPUs with which pods are reported, (consumer, pod) each.

        These get what no other consumer owns. Recorded pods may hold nothing.
        """
        later = self.copy() if reported_pods else self
        for consumer, pod in reported_pods:
            if own := later._own(consumer, pod.cpus, ""):
                later._take(consumer, bound_shares(self.offers, own))
        return NodeAllocations(later.shares, later.owners)

    def copy(self) -> Accountant:
        """Return an independent accountant with equal counts."""
        return Accountant(self.offers, Counter(self.taken), dict(self.shares), dict(self.owners))

    def _own(self, consumer: str, cpus: CpuSet, level: str) -> CpuSet:
        if not cpus:
            return cpus
        own = frozenset((cpus & self.offers.cores.keys()) - self.owners.keys())
        self.owners.update(dict.fromkeys(sorted(own), CpuOwner(consumer, level)))
        return own

    def _take(self, consumer: str, shares: UnitsByPlace) -> None:
        mine = dict(self.shares.get(consumer, {}))
        for place, wanted in shares.items():
            inventory = self.offers.inventories.get(place)
            if inventory is None or not wanted:
                continue
            left = max(0, self.offers.capacities[place] - self.taken[place])
            step, most = inventory.step_size, min(left, inventory.max_unit)
            share = min(-(-wanted // step) * step, most // step * step)
            if share >= inventory.min_unit:
                self.taken[place] += share
                mine[place] = mine.get(place, 0) + share
        self.shares[consumer] = mine


def counted(offers: NodeOffers, pods: Iterable[model.RecordedPod], others: Mapping[Place, int]) -> Accountant:
    """Return an accountant that has counted the recorded pods, in their order."""
    accountant = Accountant(offers, Counter(others))
    for pod in pods:
        accountant.record(pod)
    return accountant


def _due(offers: NodeOffers, pod: model.RecordedPod, own_cpus: CpuSet) -> UnitsByPlace:
    """Return the uncut shares of a pod that owns these CPUs."""
    shares = host_units(offers, pod)
    for numa, amounts in (*pod.holding.amounts.items(), *pod.loose_amounts.items()):
        for resource, amount in amounts.items():
            if resource != "cpu" or not pod.holding.cpus:
                place, unit = numa_place(numa, resource)
                shares[place] = -(-amount // unit)
    return shares | bound_shares(offers, own_cpus)


def sum_of(shares: Iterable[Mapping[Place, int]]) -> dict[Place, int]:
    """Return the units of all shares together, by place."""
    together: Counter[Place] = Counter()
    for each in shares:
        together.update(each)
    return dict(together)


def host_shares(offers: NodeOffers, share: Mapping[Place, int]) -> dict[Place, int]:
    """Return the shares of a consumer beside pods in the host, with its cores and NUMA nodes counted there.

    A claim by query or flavor may name cores and NUMA nodes only, but what it takes there no pod can use.
    Units that it also names of the host, as pods do, count once.
    """
    below: Counter[Place] = Counter()
    threads = 0
    for place, units in share.items():
        if place.resource_class == CORE_CLASS:
            threads += units
        elif is_numa_only(place.resource_class):
            below[host_place(_RESOURCES[place.resource_class])[0]] += units
    cpu = host_place("cpu")[0]
    below[cpu] = max(below[cpu], bound_cost(1000 * threads, offers.ratio))
    own = {place: units for place, units in share.items() if place.path == HOST}
    counted_too = {place: max(units, own.get(place, 0)) for place, units in below.items() if units}
    return own | {place: units for place, units in counted_too.items() if place in offers.inventories}


class Overdrawn(NamedTuple):
    """A resource class of a place where pods and others hold more than the node offers."""

    place: Place
    by_pods: int
    by_others: int
    capacity: int

    def __str__(self) -> str:
        return self.sentence(str, self.place.resource_class)

    def sentence(self, amount: Callable[[int], str], name: str) -> str:
        """Return it in words: amounts as `amount` writes them, of a class that is called `name`."""
        held = {"pods": self.by_pods, "consumers beside pods": self.by_others}
        shares = " and ".join(f"{holders} hold {amount(units)}" for holders, units in held.items() if units)
        return f"{shares} {name} of {self.place.path or 'the host'}, which offers {amount(self.capacity)}"


def beyond_offers(
    offers: NodeOffers, pods: Sequence[model.RecordedPod], others: Mapping[Place, int]
) -> Iterator[str | Overdrawn]:
    """Yield a sentence for the CPUs of each pod that its node withholds or lacks, and each amount beyond it.

    A node may offer less than before, as CPUs are reserved while pods run on them. Such pods keep what they
    have, and so do `others`, consumers beside pods. No other consumer is given any of it.
    """
    wanted: Counter[Place] = Counter()
    for pod in pods:
        title = f"reservation {pod.name}" if pod.keeps is not None else f"pod {pod.full_name}"
        present = pod.holding.cpus & offers.cores.keys()
        if gone := pod.holding.cpus - present:
            yield f"CPUs {format_cpu_list(gone)} of {title} are not there"
        if reserved := present & offers.reserved_cpus:
            yield f"CPUs {format_cpu_list(reserved)} of {title} are reserved on the node"
        wanted.update(_due(offers, pod, present))
    for place in sorted(wanted.keys() | others.keys()):
        capacity = offers.capacities.get(place, 0)
        by_pods, by_others = wanted[place], others.get(place, 0)
        if by_pods + by_others > capacity:
            yield Overdrawn(place, by_pods, by_others, capacity)


def host_units(offers: NodeOffers, pod: model.RecordedPod) -> UnitsByPlace:
    """Return the shares of a pod in the host as a whole: requests in whole units, and slots of `pods`."""
    shares = {_PODS: pod.slots}
    for resource, amount in pod.requests.items():
        place, unit = host_place(resource)
        if place in offers.inventories:
            if resource == "cpu" and pod.holding.cpus and offers.ratio > 1:
                amount = bound_cost(amount, offers.ratio)
            shares[place] = -(-amount // unit)
    return shares


def bound_shares(offers: NodeOffers, cpus: CpuSet) -> UnitsByPlace:
    """Return the shares of a pod's own CPUs: threads of cores, and their cost on their NUMA nodes.

    CPUs that no pod may be given are taken off the NUMA node already, so they are not counted again.
    """
    if not cpus:
        return {}
    shares: UnitsByPlace = {}
    for numa, size in Counter(map(offers.numa_of.__getitem__, cpus - offers.unallocatable_cpus)).items():
        place, _ = numa_place(numa, "cpu")
        shares[place] = 1000 * size if offers.ratio == 1 else bound_cost(1000 * size, offers.ratio)
    # Reserved CPUs are taken off the cores already.
    return shares | Counter(map(offers.cores.__getitem__, sorted(cpus - offers.reserved_cpus)))
