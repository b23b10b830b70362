"""Amounts of the host as a whole: what a pod requests must be free, bound CPUs at their cost."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial

import numpy as np

from placement.allocations.kubernetes_resources import ResourceClass, host_class, is_built_in, numa_class
from placement.engine.domain.explanation import Condition, ConditionKind, Obstacle
from placement.engine.domain.inventories import MAX_INT
from placement.engine.domain.units import of_resource
from placement.engine.forest.arrays import Mask
from placement.engine.numa.host import (
    FACE_VALUE,
    NOTHING,
    NumaAmounts,
    Refusal,
    ResourceAmounts,
    bound_cost,
    host_cpu_requested,
)
from placement.pods.decide.rules.rule import IncomingPod, Rule, Stated
from placement.pods.state.columns import (
    CPU_REQUESTED,
    VAST,
    AskedAmount,
    NodeTable,
    allocatable,
    cpu_cost,
    everywhere,
    fits_all,
    room,
)
from placement.pods.state.host import PODS_CLASS, NodeOffers, Place, host_place
from placement.pods.state.model import NO_REQUEST, PodRequest
from placement.pods.state.node_info import NodeInfo
from placement.pods.state.snapshot import NodeColumns

TOO_MANY_PODS = "Too many pods"
AMPLIFIED = "Insufficient amplified cpu"
_AMOUNT = ConditionKind.AMOUNT
_AMPLIFIED_CPU = Obstacle(ConditionKind.AMPLIFIED_CPU)
UnitsLeft = Callable[[Place], int]
"""The units that are left at a place."""


class HostAmounts(Rule):
    """A rule that the host has what a pod requests, and may have one more pod."""

    def mask(self, columns: NodeColumns, pod: IncomingPod) -> Mask:
        """Return the nodes that have enough of everything, compared exactly."""
        table = columns.table
        return fits_all(table, host_amounts(table, pod.request)) | (table[VAST] > 0)

    def refuse(self, node: NodeInfo, pod: IncomingPod) -> Refusal | None:
        """Return all that the host has too little of."""
        bound = node.host.binding.binds(pod.request)
        return lacking(node.offers, node.free, node.left, pod.request.amounts, bound=bound)

    def conditions(self, pod: IncomingPod, obstacles: Collection[Obstacle]) -> Stated:
        """Yield a stage for the number of pods, then one for each requested class."""
        yield _POD_SLOT
        for resource, base in pod.request.amounts.items():
            yield _stage(resource, base)

    def asked(self, kind: ConditionKind, table: NodeTable, pod: IncomingPod) -> list[AskedAmount]:
        """Return all amounts that the host must have."""
        return list(host_amounts(table, pod.request)) if kind is ConditionKind.AMOUNT else []


def _stage(resource: str, base: int) -> tuple[Obstacle, Condition]:
    """Return the stage of an amount of a resource in its base unit."""
    name, unit = host_class(resource)
    text = f"{of_resource(-(-base // unit), name, resource)} free"
    return Obstacle(_AMOUNT, name), Condition(_AMOUNT, text, name, -(-base // unit))


_POD_SLOT = _stage("pods", 1)


def host_amounts(table: NodeTable, request: PodRequest) -> Iterator[AskedAmount]:
    """Yield the amounts that the host as a whole must have, with bound CPUs at their cost."""
    yield AskedAmount(PODS_CLASS, everywhere(table, 1), table[room(PODS_CLASS)])
    for resource, base in request.amounts.items():
        kind = host_class(resource)
        wanted = everywhere(table, -(-base // kind.unit))
        if resource == "cpu":
            wanted = np.maximum(wanted, table.by_kind(partial(cpu_cost, request)))
        yield AskedAmount(kind.name, wanted, table[room(kind.name)])


def lacking(
    offers: NodeOffers, free: Mapping[str, int], left: UnitsLeft, requests: ResourceAmounts, *, bound: bool
) -> Refusal | None:
    """Return all that a host has too little of for a pod, None if it fits; the first lack is the obstacle.

    `free` has the units left of each class of the host itself. `left` returns the units left on its NUMA
    nodes, which count for what the host as a whole does not offer. The claim makes the same comparison.
    `bound`: the pod would get CPUs of its own, each of which costs the ratio of the host.
    """
    # The class of each amount that is too large, and the message for it.
    lacks = [(PODS_CLASS, TOO_MANY_PODS)] if free.get(PODS_CLASS, 0) < 1 else []
    for resource, base in requests.items():
        kind = host_class(resource)
        units = free.get(kind.name)
        if units is None:
            units = sum(left(place) for place in _below(offers, resource).values())
        if -(-base // kind.unit) > units:
            lacks.append((kind.name, _insufficient(resource, kind, base)))
        elif resource == "cpu" and bound and offers.ratio > 1 and bound_cost(base, offers.ratio) > units:
            lacks.append((kind.name, AMPLIFIED))
    if not lacks:
        return None
    return Refusal(tuple(words for _, words in lacks), obstacle=Obstacle(ConditionKind.AMOUNT, lacks[0][0]))


def _insufficient(resource: str, resource_class: ResourceClass, base: int) -> str:
    if -(-base // resource_class.unit) > MAX_INT and not is_built_in(resource):
        return f"Insufficient {resource}: a node counts at most {MAX_INT} of a resource"
    return f"Insufficient {resource}"


def loose_amounts(
    offers: NodeOffers, left: UnitsLeft, requests: ResourceAmounts, aligned_amounts: NumaAmounts
) -> NumaAmounts:
    """Return where to count requests that only NUMA nodes offer, of a pod that no alignment covers for them.

    NUMA nodes give what they have left, lowest ids first; together less than the request if they lack it.
    """
    given: dict[int, dict[str, int]] = {}
    for resource, base in requests.items():
        on_host, _ = host_place(resource)
        if on_host in offers.inventories or any(resource in row for row in aligned_amounts.values()):
            continue
        unit = numa_class(resource).unit
        for numa, place in _below(offers, resource).items():
            share = min(base, left(place) * unit)
            if share:
                given.setdefault(numa, {})[resource] = share
                base -= share
    return NumaAmounts(given) if given else NOTHING


def _below(offers: NodeOffers, resource: str) -> dict[int, Place]:
    """Return the places on NUMA nodes that offer what the host could offer in this class, but does not."""
    if host_class(resource) != numa_class(resource) or offers.host(resource) is not None:
        return {}
    return offers.on_numa_nodes(resource)


class AmplifiedCpu(Rule):
    """A rule that hosts that advertise more CPUs than they have keep enough for what bound CPUs cost.

    Source: koordinator.md, "CPU amplification".
    """

    def concerns(self, pod: IncomingPod) -> bool:
        """Return whether the pod requests something, and no other scheduler gave it its CPUs."""
        return pod.request is not NO_REQUEST and pod.request.designated_status is None

    def mask(self, columns: NodeColumns, pod: IncomingPod) -> Mask:
        """Return the nodes that have enough, compared exactly."""
        return amplified_cpu(columns.table, pod.request).fits | (columns.table[VAST] > 0)

    def refuse(self, node: NodeInfo, pod: IncomingPod) -> Refusal | None:
        """Return that CPU is missing; CPUs that the pod may take out of reservations are returned first."""
        host, totals, request = node.host, node.totals, pod.request
        ratio = host.state.cpu_ratio
        if ratio <= FACE_VALUE:
            return None
        milli = request.amounts.get("cpu", 0)
        cost = bound_cost(milli, ratio) if host.binding.binds(request) else milli
        # The CPUs and the millicores of the host as a whole that reservations give back to the pod.
        sizes = ((each.cpus.bit_count(), each.milli_cpus) for each in pod.reservations.matched)
        back = max(((cpus, max(milli, 1000 * cpus)) for cpus, milli in sizes), default=(0, 0))
        requested = host_cpu_requested(
            totals.requested.get("cpu", 0) - back[1], host.state.use.held.bit_count() - back[0], ratio
        )
        enough = cost <= totals.allocatable.get("cpu", 0) - requested
        return None if enough else Refusal((AMPLIFIED,), obstacle=_AMPLIFIED_CPU)

    def conditions(self, pod: IncomingPod, obstacles: Collection[Obstacle]) -> Stated:
        """Yield the stage where nodes failed it."""
        if _AMPLIFIED_CPU in obstacles:
            cpu = host_class("cpu").name
            text = "the CPUs free at the ratio of the node"
            yield _AMPLIFIED_CPU, Condition(ConditionKind.AMPLIFIED_CPU, text, cpu)

    def asked(self, kind: ConditionKind, table: NodeTable, pod: IncomingPod) -> list[AskedAmount]:
        """Return the cost of the pod's CPU."""
        return [amplified_cpu(table, pod.request)] if kind is ConditionKind.AMPLIFIED_CPU else []


def amplified_cpu(table: NodeTable, request: PodRequest) -> AskedAmount:
    """Return the CPU that a pod costs on amplified hosts, counted as for the score; 0 on other hosts."""
    name, amplified = host_class("cpu").name, table.where_kind(lambda kind: kind.ratio > FACE_VALUE)
    if not amplified.any():
        return AskedAmount(name, everywhere(table, 0), everywhere(table, 0))
    cost = np.where(amplified, table.by_kind(partial(cpu_cost, request)), 0)
    free = np.where(amplified, table[allocatable("cpu")] - table[CPU_REQUESTED], 0)
    return AskedAmount(name, cost, free)
