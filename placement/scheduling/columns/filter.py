"""Which nodes a pod may fit on, asked of all at once.

A node that is left out does not take the pod: labels, taints and amounts are compared as `host_fit` and
`node_selection` do. CPUs and NUMA nodes are only counted; which ones a pod gets is found out on the nodes
that are looked at one by one (`scheduling.filter`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np

from placement.dialects.koordinator.pod.pod_request import PodRequest
from placement.dialects.koordinator.resources import host_class
from placement.forest.arrays import Amounts, Mask
from placement.kubernetes.node_selection import NodeSelection, Requirement, Term
from placement.numa.host import FACE_VALUE
from placement.numa.policies import BindPolicy, NumaPolicy
from placement.scheduling.columns.host_kind import cpu_cost, effective_policy, thinning
from placement.scheduling.columns.labels import LabelKey
from placement.scheduling.columns.node_columns import NodeColumns
from placement.scheduling.columns.node_numbers import (
    CPU_REQUESTED,
    MOST,
    NUMA_NODES,
    VAST,
    allocatable,
    free_cpus,
    numa_capacity,
    numa_free_cpus,
    numa_requested,
    reported,
    room,
)
from placement.scheduling.columns.table import Table
from placement.scheduling.node_offers import PODS_CLASS


def may_fit(columns: NodeColumns, selection: NodeSelection, request: PodRequest | None) -> Mask:
    """The nodes on which nothing that columns know of speaks against the pod."""
    return selected(columns, selection) & has_room(columns.table, request)


def has_room(table: Table, request: PodRequest | None) -> Mask:
    """The nodes that may have what a pod requests."""
    enough = table[room(PODS_CLASS)] >= 1
    if request is not None:
        enough &= _has_amounts(table, request)
        if request.designated is None:
            enough &= _has_amplified(table, request) & _has_cpus(table, request)
            enough &= _has_numa_room(table, request)
    return enough | (table[VAST] > 0)


def selected(columns: NodeColumns, selection: NodeSelection) -> Mask:
    """The nodes that a pod may go to by their names, labels and taints, exactly."""
    mask = columns.table.where_guard(lambda guard: selection.guard_refusal(*guard) is None)
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


def _has_amounts(table: Table, request: PodRequest) -> Mask:
    """Where the host as a whole has all that is asked for, bound CPUs at their cost."""
    mask = np.ones(len(table), np.bool_)
    for resource, amount in request.amounts.items():
        kind = host_class(resource)
        needed: int | Amounts = min(MOST, -(-amount // kind.unit))
        if resource == "cpu":
            needed = np.maximum(needed, table.by_kind(partial(cpu_cost, request)))
        mask &= table[room(kind.name)] >= needed
    return mask


def _has_amplified(table: Table, request: PodRequest) -> Mask:
    """Where amplified hosts have the CPU that a pod costs, counted as for the score."""
    amplified = table.where_kind(lambda host: host.ratio > FACE_VALUE)
    if not amplified.any():
        return ~amplified
    cost = table.by_kind(partial(cpu_cost, request))
    return ~amplified | (cost <= table[allocatable("cpu")] - table[CPU_REQUESTED])


def _has_cpus(table: Table, request: PodRequest) -> Mask:
    """Where there are enough CPUs that a bound pod may be given, wherever they are."""
    mask = np.ones(len(table), np.bool_)
    for policy in BindPolicy:
        concerned = _thinned_to(table, request, policy)
        if concerned.any():
            mask &= ~concerned | (table[free_cpus(policy)] >= request.need)
    return mask


def _thinned_to(table: Table, request: PodRequest, policy: BindPolicy) -> Mask:
    """Where a bound pod can only have the CPUs that this policy leaves."""
    return table.where_kind(lambda kind: thinning(request, kind) is policy)


def _has_numa_room(table: Table, request: PodRequest) -> Mask:
    """Where NUMA nodes have room for a pod that is aligned to them: all together, or a single one."""
    mask = table.where_kind(lambda kind: effective_policy(request, kind) is not None)
    aligned = is_aligned(table, request)
    if not aligned.any():
        return mask
    rows = np.flatnonzero(aligned)
    mask[rows] &= _aligned_room(table.rows(rows), request)
    return mask


def is_aligned(table: Table, request: PodRequest) -> Mask:
    """Where a pod has a NUMA policy, because of itself or because of the host."""
    policy = request.numa.policy
    return table.where_kind(lambda kind: {kind.numa_policy, policy} != {NumaPolicy.NONE})


def _aligned_room(table: Table, request: PodRequest) -> Mask:
    mask = table[NUMA_NODES] > 0
    places = range(table.numa_nodes)
    for resource, amount in request.amounts.items():
        together = np.sum([numa_left(table, resource, place) for place in places], axis=0)
        mask &= (table[reported(resource)] == 0) | (together >= min(MOST, amount))
    single = stays_on_one(table, request)
    if single.any():
        fitting = [numa_fits(table, request, place) for place in places]
        mask &= ~single | np.logical_or.reduce(fitting)
    return mask


def stays_on_one(table: Table, request: PodRequest) -> Mask:
    """Where a pod has to stay on one NUMA node out of several."""
    single = NumaPolicy.SINGLE_NUMA_NODE
    return table.where_kind(lambda kind: effective_policy(request, kind) is single) & (table[NUMA_NODES] > 1)


def numa_fits(table: Table, request: PodRequest, place: int) -> Mask:
    """Where one NUMA node has room for the whole pod, as far as resources are reported there."""
    mask = table[NUMA_NODES] > place
    for resource, amount in request.amounts.items():
        unknown = table[reported(resource)] == 0
        mask &= unknown | (numa_left(table, resource, place) >= min(MOST, amount))
        if resource == "cpu":
            for policy in BindPolicy:
                concerned = _thinned_to(table, request, policy)
                if concerned.any():
                    mask &= ~concerned | unknown | (table[numa_free_cpus(policy, place)] >= request.need)
    return mask


def numa_left(table: Table, resource: str, place: int) -> Amounts:
    """What is left of a resource on one NUMA node."""
    left: Amounts = table[numa_capacity(resource, place)] - table[numa_requested(resource, place)]
    return np.maximum(left, np.int64(0))
