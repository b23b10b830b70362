"""The filter of nodes for a pod, computed for all nodes at once.

A node that is left out cannot take the pod: labels, taints and amounts are compared as in
`pods.node_filter` and `pods.manifests.selection`. CPUs and NUMA nodes are only counted; which of them a pod
gets is found out on the nodes that are looked at one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from placement.allocations.kubernetes_resources import CORE_CLASS, host_class, numa_class
from placement.engine.domain.explanation import ConditionKind
from placement.engine.forest.arrays import Amounts, Indices, Mask, Shares
from placement.engine.numa.demand import BindPolicy, NumaPolicy
from placement.engine.numa.host import FACE_VALUE
from placement.pods.columns import (
    CPU_REQUESTED,
    MOST,
    NUMA_NODES,
    VAST,
    NodeTable,
    allocatable,
    cpu_cost,
    effective_policy,
    free_cpus,
    numa_capacity,
    numa_free_cpus,
    numa_requested,
    reported,
    room,
    thinning,
)
from placement.pods.host import PODS_CLASS
from placement.pods.koordinator.pod import PodRequest
from placement.pods.manifests.selection import NodeSelection, Requirement, Term
from placement.pods.snapshot import LabelKey, NodeColumns


def may_fit(columns: NodeColumns, selection: NodeSelection, request: PodRequest | None) -> Mask:
    """Return the nodes on which nothing that columns know of speaks against the pod."""
    return selected(columns, selection) & has_room(columns.table, request)


class Asked(NamedTuple):
    """A demand that a pod has on each node, and what is free there; `unit` of it is one of the class."""

    resource_class: str
    wanted: Amounts
    free: Amounts
    unit: int = 1

    @property
    def fits(self) -> Mask:
        """Return the nodes that have enough."""
        enough: Mask = self.free >= self.wanted
        return enough

    @property
    def gap(self) -> Shares:
        """Return which share of what is wanted is missing; only for comparing nodes."""
        gap: Shares = np.maximum(self.wanted - self.free, 0) / np.maximum(self.wanted, 1)
        return gap

    def wanted_units(self, row: int) -> int:
        """Return how many units of the class are wanted on a node."""
        return -(-int(self.wanted[row]) // self.unit)

    def free_units(self, row: int) -> int:
        """Return how many units of the class are free on a node."""
        return max(0, int(self.free[row]) // self.unit)


def has_room(table: NodeTable, request: PodRequest | None) -> Mask:
    """Return the nodes that may have what a pod requests."""
    enough = _fits_all(table, host_amounts(table, request))
    if request is not None and request.designated is None:
        enough &= amplified_cpu(table, request).fits & own_cpus(table, request).fits
        enough &= _has_numa_room(table, request)
    return enough | (table[VAST] > 0)


def _fits_all(table: NodeTable, amounts: Iterable[Asked]) -> Mask:
    mask = np.ones(len(table), np.bool_)
    for asked in amounts:
        mask &= asked.fits
    return mask


def selected(columns: NodeColumns, selection: NodeSelection) -> Mask:
    """Return exactly the nodes that a pod may go to by their names, labels and taints."""
    tolerated = columns.table.where_guard(lambda guard: selection.guard_refusal(*guard) is None)
    return tolerated & labelled(columns, selection)


def labelled(columns: NodeColumns, selection: NodeSelection) -> Mask:
    """Return the nodes that a pod may go to by their names and labels, whatever their taints are."""
    mask = np.ones(len(columns.nodes), np.bool_)
    for key, value in selection.selector:
        mask &= columns.label(LabelKey(key)).equals(value)
    if selection.terms is not None:
        terms = [_holds(columns, term) for term in selection.terms]
        mask &= np.logical_or.reduce(terms) if terms else False
    return mask


def _holds(columns: NodeColumns, term: Term) -> Mask:
    mask = np.full(len(columns.nodes), term.says_anything)
    for key, requirement in _requirements(term):
        mask &= columns.label(key).holds(requirement)
    return mask


def _requirements(term: Term) -> Iterator[tuple[LabelKey, Requirement]]:
    for requirement in term.labels:
        yield LabelKey(requirement.key), requirement
    for requirement in term.fields:
        yield LabelKey(requirement.key, is_field=True), requirement


def host_amounts(table: NodeTable, request: PodRequest | None) -> Iterator[Asked]:
    """Yield what the host as a whole must have, with bound CPUs at their cost."""
    yield Asked(PODS_CLASS, _everywhere(table, 1), table[room(PODS_CLASS)])
    if request is None:
        return
    for resource, amount in request.amounts.items():
        kind = host_class(resource)
        wanted = _everywhere(table, -(-amount // kind.unit))
        if resource == "cpu":
            wanted = np.maximum(wanted, table.by_kind(partial(cpu_cost, request)))
        yield Asked(kind.name, wanted, table[room(kind.name)])


def amplified_cpu(table: NodeTable, request: PodRequest) -> Asked:
    """Return the CPU that a pod costs on amplified hosts, counted as for the score; 0 on other hosts."""
    name, amplified = host_class("cpu").name, table.where_kind(lambda host: host.ratio > FACE_VALUE)
    if not amplified.any():
        return Asked(name, _everywhere(table, 0), _everywhere(table, 0))
    cost = np.where(amplified, table.by_kind(partial(cpu_cost, request)), 0)
    free = np.where(amplified, table[allocatable("cpu")] - table[CPU_REQUESTED], 0)
    return Asked(name, cost, free)


def own_cpus(table: NodeTable, request: PodRequest, place: int | None = None) -> Asked:
    """Return the CPUs that a bound pod may be given on a host, or on one NUMA node; none for other pods."""
    wanted, free = _everywhere(table, 0), _everywhere(table, 0)
    for policy in BindPolicy:
        concerned = _thinned_to(table, request, policy)
        if concerned.any():
            column = free_cpus(policy) if place is None else numa_free_cpus(policy, place)
            if concerned.all():
                return Asked(CORE_CLASS, _everywhere(table, request.need), table[column])
            wanted[concerned] = min(MOST, request.need)
            free[concerned] = table[column][concerned]
    return Asked(CORE_CLASS, wanted, free)


def _everywhere(table: NodeTable, amount: int) -> Amounts:
    return np.full(len(table), min(MOST, amount), np.int64)


def _thinned_to(table: NodeTable, request: PodRequest, policy: BindPolicy) -> Mask:
    """Return the nodes on which a bound pod can only have the CPUs that this policy leaves."""
    return table.where_kind(lambda kind: thinning(request, kind) is policy)


def _has_numa_room(table: NodeTable, request: PodRequest) -> Mask:
    """Return the nodes with NUMA nodes, all together or a single one, that have room for an aligned pod."""
    mask = table.where_kind(lambda kind: effective_policy(request, kind) is not None)
    aligned = is_aligned(table, request)
    if not aligned.any():
        return mask
    rows = np.flatnonzero(aligned)
    mask[rows] &= _aligned_room(table.rows(rows), request)
    return mask


def is_aligned(table: NodeTable, request: PodRequest) -> Mask:
    """Return the nodes on which a pod has a NUMA policy, because of itself or because of the host."""
    policy = request.numa.policy
    return table.where_kind(lambda kind: {kind.numa_policy, policy} != {NumaPolicy.NONE})


def _aligned_room(table: NodeTable, request: PodRequest) -> Mask:
    mask = (table[NUMA_NODES] > 0) & _fits_all(table, on_all_numa_nodes(table, request))
    single = stays_on_one(table, request)
    if single.any():
        fitting = [numa_fits(table, request, place) for place in range(table.numa_nodes)]
        mask &= ~single | np.logical_or.reduce(fitting)
    return mask


def on_all_numa_nodes(table: NodeTable, request: PodRequest) -> Iterator[Asked]:
    """Yield what all NUMA nodes of a host together must have, of resources that are reported there."""
    for resource, amount in request.amounts.items():
        free = _everywhere(table, 0)
        for place in range(table.numa_nodes):
            free += numa_left(table, resource, place)
        yield _on_numa_nodes(table, resource, amount, free)


def on_numa_node(table: NodeTable, request: PodRequest, place: int) -> Iterator[Asked]:
    """Yield what one NUMA node must have to serve the whole pod, as far as resources are reported there."""
    for resource, amount in request.amounts.items():
        yield _on_numa_nodes(table, resource, amount, numa_left(table, resource, place))
        if resource == "cpu":
            cpus = own_cpus(table, request, place)
            yield cpus._replace(wanted=cpus.wanted * table[reported("cpu")])


def _on_numa_nodes(table: NodeTable, resource: str, amount: int, free: Amounts) -> Asked:
    kind = numa_class(resource)
    return Asked(kind.name, table[reported(resource)] * min(MOST, amount), free, kind.unit)


def stays_on_one(table: NodeTable, request: PodRequest) -> Mask:
    """Return the nodes on which a pod must stay on one NUMA node out of several."""
    single = NumaPolicy.SINGLE_NUMA_NODE
    return table.where_kind(lambda kind: effective_policy(request, kind) is single) & (table[NUMA_NODES] > 1)


def numa_fits(table: NodeTable, request: PodRequest, place: int) -> Mask:
    """Return the nodes on which a NUMA node has room for the whole pod, as far as it reports resources."""
    return (table[NUMA_NODES] > place) & _fits_all(table, on_numa_node(table, request, place))


def numa_left(table: NodeTable, resource: str, place: int) -> Amounts:
    """Return what is left of a resource on one NUMA node."""
    left: Amounts = table[numa_capacity(resource, place)] - table[numa_requested(resource, place)]
    return np.maximum(left, np.int64(0))


# What a pod asks of nodes that refused it for want of amounts: the comparisons of the filter once more.


def asked_at(kind: ConditionKind, table: NodeTable, request: PodRequest | None) -> list[Asked]:
    """Return the amounts that a condition of this kind compares; none if it is not about amounts."""
    if kind is ConditionKind.AMOUNT:
        return list(host_amounts(table, request))
    if request is None:
        return []
    if kind is ConditionKind.AMPLIFIED_CPU:
        return [amplified_cpu(table, request)]
    if kind is ConditionKind.CPUS:
        return [own_cpus(table, request)]
    return _of_numa_nodes(table, request) if kind is ConditionKind.NUMA else []


def _of_numa_nodes(table: NodeTable, request: PodRequest) -> list[Asked]:
    """Return what all NUMA nodes are asked for; where one must do, what is asked of the one lacking least."""
    asked = [*on_all_numa_nodes(table, request), own_cpus(table, request)]
    single = stays_on_one(table, request)
    if not single.any():
        return asked
    places = [list(on_numa_node(table, request, place)) for place in range(table.numa_nodes)]
    gaps = np.array([np.sum([each.gap for each in place], axis=0) for place in places])
    for place in range(len(places)):
        gaps[place][table[NUMA_NODES] <= place] = np.inf
    nearest = np.argmin(gaps, axis=0)
    return [
        *(each._replace(wanted=np.where(single, 0, each.wanted)) for each in asked),
        *(
            alike[0]._replace(
                wanted=np.where(single, _chosen([each.wanted for each in alike], nearest), 0),
                free=_chosen([each.free for each in alike], nearest),
            )
            for alike in zip(*places, strict=True)
        ),
    ]


def _chosen(by_place: Sequence[Amounts], place: Indices) -> Amounts:
    """Return for each node the number at one of its places."""
    return np.stack(by_place)[place, np.arange(len(place))]
