"""A node with everybody who is on it, as pods see it that look for a place there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from types import MappingProxyType

from placement.dialects.koordinator.node.host_cpus import KubeletPod
from placement.dialects.koordinator.node.node import NodeImport
from placement.dialects.koordinator.resources import CORE_CLASS, numa_class
from placement.dialects.koordinator.settings.settings import SchedulerSettings
from placement.dialects.koordinator.status.recorded_pod import RecordedPod
from placement.kubernetes.pod_identity import canonical_uid
from placement.numa.amounts import NumaAmounts
from placement.numa.ledger import Holding, HostLedger
from placement.numa.masks import mask_of
from placement.scheduling.host import Host, host_of
from placement.scheduling.node_offers import NodeOffers, Place


def unknown_pods(node: NodeImport, pods: Collection[RecordedPod]) -> tuple[KubeletPod, ...]:
    """The pods that a node reports with CPUs of a scheduler's, but are not recorded there.

    Source: koordinator.md, "Reported pods".
    """
    uids, labels = {pod.uid for pod in pods}, {pod.label for pod in pods}
    return tuple(
        pod
        for pod in node.reported_pods
        if canonical_uid(pod.uid) not in uids and f"{pod.namespace}/{pod.name}" not in labels
    )


def ledger_of(node: NodeImport, pods: Collection[RecordedPod]) -> HostLedger:
    """The holdings of recorded pods, in their order, and then of those that are only reported."""
    return HostLedger(
        MappingProxyType({**{pod.consumer: pod.holding for pod in pods}, **_of_unknown(node, pods)})
    )


def _of_unknown(node: NodeImport, pods: Collection[RecordedPod]) -> dict[str, Holding]:
    """What pods hold that are only reported, as far as nobody else does."""
    held = frozenset[int]().union(*(pod.holding.cpus for pod in pods)) | node.unallocatable
    return {f"reported {pod.uid}": Holding(pod.cpus - held) for pod in unknown_pods(node, pods)}


def occupied_host(
    node: NodeImport,
    offers: NodeOffers,
    pods: Iterable[RecordedPod],
    others: Mapping[Place, int],
    settings: SchedulerSettings,
) -> Host:
    """The host with its recorded pods; `others` is what consumers beside pods hold of its providers.

    NUMA amounts are whole units of their classes, so that what fits here can be claimed. CPUs of the pods'
    own count on their NUMA nodes even if the pods are aligned to none. Cores of which others hold threads
    are left alone altogether, as nobody says which threads those are.
    Source: koordinator.md, "Resource classes", "Per-NUMA accounts".
    """
    recorded = list(pods)
    holdings = ledger_of(node, recorded).holdings
    counted = {consumer: _counted(holding, offers) for consumer, holding in holdings.items()}
    unreadable = [pod.label for pod in recorded if pod.unreadable]
    host = host_of(node, HostLedger(MappingProxyType(counted)), settings, unreadable)
    taken = _taken_by_others(recorded, others)
    foreign = {
        cpu
        for cpu, place in offers.cores.items()
        if others and place in others and place.resource_class == CORE_CLASS
    }
    state = replace(
        host.state,
        capacity=_left_over(host.state.capacity, taken),
        unallocatable=host.state.unallocatable | mask_of(foreign),
        pool=host.state.pool & ~mask_of(foreign),
    )
    return replace(host, state=state)


def _counted(holding: Holding, offers: NodeOffers) -> Holding:
    amounts = {
        numa: {resource: _rounded_up(resource, amount) for resource, amount in row.items()}
        for numa, row in holding.amounts.items()
    }
    if holding.cpus and not any("cpu" in row for row in amounts.values()):
        for numa, count in Counter(offers.numa_of.get(cpu) for cpu in holding.cpus).items():
            if numa is not None:
                amounts.setdefault(numa, {})["cpu"] = 1000 * count
    return replace(holding, amounts=NumaAmounts(amounts)) if amounts else holding


def _taken_by_others(pods: Iterable[RecordedPod], others: Mapping[Place, int]) -> Counter[Place]:
    taken = Counter(others)
    for pod in pods:
        for numa, row in pod.loose.items():
            for resource, amount in row.items():
                kind = numa_class(resource)
                taken[Place(f"numa-{numa}", kind.name)] += -(-amount // kind.unit)
    return taken


def _left_over(capacity: NumaAmounts, taken: Mapping[Place, int]) -> NumaAmounts:
    left = {}
    for numa, row in capacity.items():
        left[numa] = {
            resource: max(0, amount // kind.unit - taken.get(Place(f"numa-{numa}", kind.name), 0)) * kind.unit
            for resource, amount in row.items()
            for kind in (numa_class(resource),)
        }
    return NumaAmounts(left)


def _rounded_up(resource: str, amount: int) -> int:
    unit = numa_class(resource).unit
    return -(-amount // unit) * unit
