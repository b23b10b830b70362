"""The accounts of a node: what its pods hold of its providers.

A pod that runs is a fact, whatever the node has left: its share is cut where it would not fit. So capacities
are never exceeded. What a pod gives back goes to pods that were cut, in the order of their recording.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from placement.allocations.kubernetes_resources import CORE_CLASS, CPU_CLASS, numa_class
from placement.common.pod_identity import canonical_uid
from placement.engine.numa.amounts import Amounts, NumaAmounts, bound_cost, summed
from placement.engine.numa.cpus import SharedPool, shared_pools
from placement.engine.numa.cpuset import CpuSet, format_cpu_list
from placement.engine.numa.host import Holding, HostLedger
from placement.engine.numa.reservations import amounts_left, what_is_left
from placement.pods.host import (
    HOST,
    PODS_CLASS,
    NodeOffers,
    Place,
    counted_holding,
    host_place,
    numa_place,
    unknown_pods,
)
from placement.pods.model import KubeletPod, NodeImport, QosClass, RecordedPod

_PODS = Place(HOST, PODS_CLASS)

Shares = dict[Place, int]
"""What one consumer holds on a node: units by place."""


@dataclass(frozen=True, slots=True)
class CpuOwner:
    """A consumer that owns a logical CPU, and the exclusive level under which it does."""

    consumer: str
    level: str = ""


@dataclass(frozen=True, slots=True)
class NodeAllocations:
    """A record of what is held on a node: shares by consumer, and the owner of each CPU that has one."""

    shares: Mapping[str, Shares] = field(default_factory=dict)
    cpus: Mapping[int, CpuOwner] = field(default_factory=dict)


class Accountant:
    """A counter of what is held on a node: recorded pods in their order, then pods that only kubelet knows.

    `others` is what consumers beside pods hold there. Source: koordinator.md, "Resource classes".
    """

    def __init__(self, offers: NodeOffers, others: Mapping[Place, int]) -> None:
        self._offers = offers
        self._taken: Counter[Place] = Counter(others)
        self._shares: dict[str, Shares] = {}
        self._owners: dict[int, CpuOwner] = {}

    def left(self, place: Place) -> int:
        """Return the units of an inventory that no consumer holds."""
        return max(0, self._offers.capacities.get(place, 0) - self._taken[place])

    def record(self, pod: RecordedPod) -> None:
        """Count a recorded pod; CPUs that another one owns already stay with that one."""
        holding = pod.holding
        own = self._own(pod.consumer, holding.cpus, "" if holding.level == "None" else holding.level)
        self._take(pod.consumer, _due(self._offers, pod, own))

    def accounts(self, reported_pods: Iterable[tuple[str, KubeletPod]]) -> NodeAllocations:
        """Return what was counted so far, and then CPUs with which pods are reported, (consumer, pod) each.

        These get what no other consumer owns. Recorded pods may hold nothing.
        """
        later = self.copy()
        for consumer, pod in reported_pods:
            if own := later._own(consumer, pod.cpus, ""):
                later._take(consumer, bound_shares(self._offers, own))
        return NodeAllocations(later._shares, later._owners)

    def shares_of(self, consumer: str) -> Shares:
        """Return what a recorded pod got; the caller must not change it."""
        return self._shares[consumer]

    def copy(self) -> Accountant:
        """Return another accountant with equal counts, which goes on by itself."""
        other = Accountant(self._offers, self._taken)
        other._shares, other._owners = dict(self._shares), dict(self._owners)
        return other

    def _own(self, consumer: str, cpus: CpuSet, level: str) -> CpuSet:
        if not cpus:
            return cpus
        own = frozenset((cpus & self._offers.cores.keys()) - self._owners.keys())
        self._owners.update(dict.fromkeys(sorted(own), CpuOwner(consumer, level)))
        return own

    def _take(self, consumer: str, shares: Shares) -> None:
        mine = dict(self._shares.get(consumer, {}))
        for place, wanted in shares.items():
            inventory = self._offers.inventories.get(place)
            if inventory is None or not wanted:
                continue
            step, most = inventory.step_size, min(self.left(place), inventory.max_unit)
            share = min(-(-wanted // step) * step, most // step * step)
            if share >= inventory.min_unit:
                self._taken[place] += share
                mine[place] = mine.get(place, 0) + share
        self._shares[consumer] = mine


def counted(offers: NodeOffers, pods: Iterable[RecordedPod], others: Mapping[Place, int]) -> Accountant:
    """Return an accountant that has counted the recorded pods, in their order."""
    accountant = Accountant(offers, others)
    for pod in pods:
        accountant.record(pod)
    return accountant


def _due(offers: NodeOffers, pod: RecordedPod, own: CpuSet) -> Shares:
    """Return what a pod that owns these CPUs takes, if nothing of it is cut."""
    shares = host_units(offers, pod)
    for numa, amounts in (*pod.holding.amounts.items(), *pod.loose.items()):
        for resource, amount in amounts.items():
            if resource != "cpu" or not pod.holding.cpus:
                kind = numa_class(resource)
                shares[numa_place(numa, kind.name)] = -(-amount // kind.unit)
    return shares | bound_shares(offers, own)


def beyond_offers(
    offers: NodeOffers, pods: Sequence[RecordedPod], others: Mapping[Place, int]
) -> Iterator[str]:
    """Yield a sentence for the CPUs of each pod that its node withholds or lacks, and for each amount.

    A node may offer less than before, as CPUs are reserved while pods run on them. Such pods keep what they
    have, and so do `others`, consumers beside pods. No other consumer is given any of it.
    """
    wanted: Counter[Place] = Counter()
    for pod in pods:
        title = f"reservation {pod.name}" if pod.keeps is not None else f"pod {pod.full_name}"
        present = pod.holding.cpus & offers.cores.keys()
        if gone := pod.holding.cpus - present:
            yield f"CPUs {format_cpu_list(gone)} of {title} are not there"
        if reserved := present & offers.reserved:
            yield f"CPUs {format_cpu_list(reserved)} of {title} are reserved on the node"
        wanted.update(_due(offers, pod, present))
    for place in sorted(wanted.keys() | others.keys()):
        capacity = offers.capacities.get(place, 0)
        held = {"pods": wanted[place], "consumers beside pods": others.get(place, 0)}
        if sum(held.values()) > capacity:
            shares = " and ".join(f"{holders} hold {amount}" for holders, amount in held.items() if amount)
            where = place.path or "the host"
            yield f"{shares} {place.resource_class} of {where}, which offers {capacity}"


def host_units(offers: NodeOffers, pod: RecordedPod) -> Shares:
    """Return what a pod takes of the host as a whole: requests rounded up to units, and slots of `pods`."""
    shares = {_PODS: pod.slots}
    for resource, amount in pod.requests.items():
        place, unit = host_place(resource)
        if place in offers.inventories:
            if resource == "cpu" and pod.holding.cpus:
                amount = bound_cost(amount, offers.ratio)
            shares[place] = -(-amount // unit)
    return shares


def host_room(
    offers: NodeOffers, pods: Iterable[RecordedPod], others: Mapping[Place, int]
) -> Mapping[str, int]:
    """Return what recorded pods and others leave of each class of the host itself, in units.

    Pods count with all that they are due, not with what they were cut to.
    """
    taken = dict(others)
    for pod in pods:
        for place, units in host_units(offers, pod).items():
            taken[place] = taken.get(place, 0) + units
    return {
        place.resource_class: max(0, capacity - taken.get(place, 0))
        for place, capacity in offers.capacities.items()
        if place.path == HOST
    }


def bound_shares(offers: NodeOffers, cpus: CpuSet) -> Shares:
    """Return what CPUs of a pod's own take: threads of cores, and the cost of the CPUs on their NUMA nodes.

    CPUs that no pod may be given are taken off the NUMA node already, so they are not counted again.
    """
    if not cpus:
        return {}
    counts = Counter(offers.numa_of[cpu] for cpu in cpus - offers.unallocatable)
    shares = {
        numa_place(numa, CPU_CLASS): bound_cost(1000 * count, offers.ratio) for numa, count in counts.items()
    }
    # Reserved CPUs are taken off the cores already.
    return shares | Counter(offers.cores[cpu] for cpu in sorted(cpus - offers.reserved))


def shrunk(
    before: NodeAllocations,
    after: NodeAllocations,
    offers: tuple[NodeOffers, NodeOffers],
    recorded: Collection[str],
    *,
    cuts: bool = False,
) -> NodeAllocations:
    """Return what of the accounts before stands while a node changes from the first offers to the second.

    `after` holds once the change is made. What is not asked for any more is given back first: CPUs that
    kubelet no longer reports, and the cost of bound CPUs above that of the new ratio. Recorded pods
    (consumers) give back no CPU and no other amount, so that a node which shrinks below them is refused. With
    `cuts`, they are cut to what the node has, like pods that are reported on a node with too little.
    """
    old, new = offers
    owned: dict[str, set[int]] = {}
    for cpu, owner in before.cpus.items():
        owned.setdefault(owner.consumer, set()).add(cpu)
    shares: dict[str, Shares] = {}
    for consumer, held in before.shares.items():
        wanted = dict(after.shares.get(consumer, {}))
        if consumer in recorded and not cuts:
            # As if nothing was cut and no CPU was reserved.
            present = frozenset(owned.get(consumer, set()) & new.cores.keys())
            uncut = bound_shares(new, present) | Counter(new.cores[cpu] for cpu in present)
            for place, amount in uncut.items():
                wanted[place] = max(amount, wanted.get(place, 0))
        shares[consumer] = {}
        for place, amount in held.items():
            gives = cuts or consumer not in recorded
            if consumer in owned and place in new.inventories:
                # What a pod holds of these follows from the CPUs that it owns.
                gives = gives or place.resource_class in (CPU_CLASS, CORE_CLASS)
            less, inventory = min(amount, wanted.get(place, 0)), old.inventories.get(place)
            # The inventory as it still is must admit the smaller amount.
            if not gives or (less and inventory is not None and not inventory.admits(less)):
                less = amount
            if less:
                shares[consumer][place] = less
    cpus = {
        cpu: owner
        for cpu, owner in before.cpus.items()
        if (owner.consumer in recorded and not cuts) or after.cpus.get(cpu) == owner
    }
    kept = {owner.consumer for owner in cpus.values()} | set(recorded)
    return NodeAllocations({holder: held for holder, held in shares.items() if held or holder in kept}, cpus)


# What the reservations of a node have left, beside the pods that are there.


def holders(
    node: NodeImport,
    offers: NodeOffers,
    pods: tuple[RecordedPod, ...],
    reservations: Sequence[RecordedPod],
) -> tuple[RecordedPod, ...]:
    """Return all that hold something of a node: its pods, then its reservations with what they have left.

    The reservations are in the order in which they were made. One gives up a CPU when an owner in a shared
    pool takes what that CPU stands for. A later one may be given that CPU, which it then keeps.
    Source: koordinator.md, "Reservations".
    """
    if not reservations:
        return pods
    reported = (pod.cpus for pod in (*node.kubelet_pods, *unknown_pods(node, pods)))
    gone = offers.unallocatable.union(*reported)
    left: list[RecordedPod] = []
    for reservation in reversed(reservations):
        left.append(_left_of(offers, reservation, pods, gone))
        gone |= left[-1].holding.cpus
    return (*pods, *reversed(left))


def _left_of(
    offers: NodeOffers, reservation: RecordedPod, pods: Sequence[RecordedPod], gone: CpuSet
) -> RecordedPod:
    """Return a reservation less what its owners took, and less CPUs that any pod has or that are gone."""
    owners = [pod for pod in pods if pod.reservation == reservation.consumer]
    others = gone.union(*(pod.holding.cpus for pod in pods if pod not in owners))
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
    left = what_is_left(counted_holding(reservation.holding, offers), taken)
    held, loose = reservation.loose, summed(owner.loose for owner in owners)
    return replace(
        reservation,
        requests=requests,
        holding=_with_cpus_covered(offers, left, requests) if reservation.holding.cpus else left,
        loose=NumaAmounts({numa: amounts_left(row, loose.get(numa, {})) for numa, row in held.items()}),
        slots=0 if owners else 1,
    )


def _with_cpus_covered(offers: NodeOffers, left: Holding, requests: Amounts) -> Holding:
    """Return a holding with only the CPUs that are covered by the `cpu` left on the host and on NUMA nodes.

    Owners in shared pools take `cpu`, but no CPUs.
    """
    kept: set[int] = set()
    by_numa: Counter[int] = Counter()
    for cpu in sorted(left.cpus & offers.numa_of.keys()):
        numa = offers.numa_of[cpu]
        covered = left.amounts.get(numa, {}).get("cpu", 0) - 1000 * by_numa[numa]
        if covered >= 1000 and requests.get("cpu", 0) >= 1000 * (len(kept) + 1):
            kept.add(cpu)
            by_numa[numa] += 1
    rest = {
        numa: {name: amount for name, amount in row.items() if name != "cpu"}
        for numa, row in left.amounts.items()
    }
    for numa, count in by_numa.items():
        rest[numa]["cpu"] = 1000 * count
    amounts = NumaAmounts({numa: row for numa, row in rest.items() if row})
    return replace(left, cpus=frozenset(kept), amounts=amounts)


# The shared pools of a node, computed from what is recorded there.


_CPU_RESOURCES = {"cpu", "kubernetes.io/batch-cpu"}


class HostPools(NamedTuple):
    """A pair of pool lists, where LS pods and where BE pods run, by socket and NUMA node."""

    ls: tuple[SharedPool, ...]
    be: tuple[SharedPool, ...]


def known_cpus(node: NodeImport, pod: RecordedPod) -> CpuSet:
    """Return the CPUs of a pod's list that the node has; a node without cpu-topology may have any CPU."""
    return pod.holding.cpus & node.topology.cpus if node.topology.rows else pod.holding.cpus


def own_cpus(node: NodeImport, pods: Iterable[RecordedPod], pod: RecordedPod) -> CpuSet:
    """Return the CPUs of a pod's list that the node has and that no pod recorded before it holds.

    A pod that is not among `pods` comes last.
    Source: koordinator.md, "Recovery from pods".
    """
    cpus = known_cpus(node, pod)
    for other in pods:
        if other.consumer == pod.consumer:
            break
        cpus -= other.holding.cpus
    return cpus


def pod_cpus(
    node: NodeImport, pods: Iterable[RecordedPod], pod: RecordedPod, pools: Callable[[], HostPools]
) -> CpuSet | None:
    """Return the CPUs on which the containers of a recorded pod run; None if its own are not known.

    `pools` is called only for a pod without CPUs of its own.
    Source: koordinator.md, "CPU lists of containers".
    """
    if pod.unreadable:
        return None
    pinned = (entry.cpus for entry in node.kubelet_pods if canonical_uid(entry.uid) == pod.uid)
    if pod.holding.cpus:
        return own_cpus(node, pods, pod) or None
    own = next(pinned, frozenset[int]())
    if own:
        return own
    qos = QosClass(pod.treated_as or pod.qos)
    if is_pinned_unseen(node, pod):
        return None
    if qos.uses_system_cpus and node.system:
        return node.system
    aligned = [numa for numa, given in pod.holding.amounts.items() if given.keys() & _CPU_RESOURCES]
    stays_in = pod.pools or aligned
    usable = pools().be if qos.is_best_effort else pools().ls
    chosen = (pool.cpus for pool in usable if not stays_in or pool.numa in stays_in)
    return frozenset[int]().union(*chosen)


def is_pinned_unseen(node: NodeImport, pod: RecordedPod) -> bool:
    """Return whether kubelet pinned a pod to CPUs that the node does not report.

    Such a pod has no class by label, and kubelet's static policy treats it as LSR. The node agent leaves its
    containers alone. Source: koordinator.md, "CPU lists of containers".
    """
    pinned = any(canonical_uid(entry.uid) == pod.uid for entry in node.kubelet_pods)
    by_kubelet = node.kubelet.is_static and not pod.qos and QosClass(pod.treated_as).owns_cpus
    return by_kubelet and not pinned and not pod.holding.cpus


def report_differences(node: NodeImport, pods: Iterable[RecordedPod], computed: HostPools) -> Iterator[str]:
    """Yield where the node agent reports CPUs of pods other than recorded, or pools other than computed.

    Source: koordinator.md, "Reported pods", "Reported pools".
    """
    recorded = {pod.uid: pod for pod in pods}
    for report in node.reported_pods:
        known = recorded.get(canonical_uid(report.uid))
        holder, reported = f"{report.namespace}/{report.name}", format_cpu_list(report.cpus)
        if known is None:
            yield f"CPUs {reported} are reported for pod {holder}, which is not recorded here"
        elif known.holding.cpus != report.cpus:
            held = format_cpu_list(known.holding.cpus) or "none"
            yield f"CPUs {reported} are reported for pod {holder}, recorded are {held}"
    for kind, shown, pools in (("LS", node.ls_pools, computed.ls), ("BE", node.be_pools, computed.be)):
        by_numa = {pool.numa: pool.cpus for pool in pools}
        for pool in shown:
            cpus = by_numa.get(pool.numa, frozenset())
            if cpus != pool.cpus:
                which = f"the {kind} pool of NUMA node {pool.numa}"
                reported, found = format_cpu_list(pool.cpus) or "none", format_cpu_list(cpus) or "none"
                yield f"{which} is reported with CPUs {reported}, computed are {found}"


def host_pools(node: NodeImport, ledger: HostLedger, foreign: CpuSet) -> HostPools:
    """Return the pools of a node. CPUs of LSR pods are shared with BE pods, CPUs of LSE pods with no pod.

    `foreign` are the CPUs of cores that consumers beside pods hold, which are shared with no pod.
    Source: koordinator.md, "Pools".
    """
    pinned: CpuSet = frozenset[int]().union(*(pod.cpus for pod in node.kubelet_pods))
    bound: CpuSet = frozenset[int]().union(*(holding.cpus for holding in ledger.holdings.values()))
    return HostPools(
        ls=shared_pools(node.topology, pinned | foreign | bound, node.withheld),
        be=shared_pools(node.topology, pinned | foreign | ledger.unlendable_cpus(), node.withheld),
    )
