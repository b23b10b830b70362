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
from placement.scheduling.columns.node_columns import Node, NodeColumns
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
from placement.scheduling.node_offers import PODS_CLASS


def may_fit(columns: NodeColumns[Node], selection: NodeSelection, request: PodRequest | None) -> Mask:
    """The nodes on which nothing that columns know of speaks against the pod."""
    enough = columns[room(PODS_CLASS)] >= 1
    if request is not None:
        enough &= _has_room(columns, request)
        if request.designated is None:
            enough &= _has_amplified(columns, request) & _has_cpus(columns, request)
            enough &= _has_numa_room(columns, request)
    return selected(columns, selection) & (enough | (columns[VAST] > 0))


def selected(columns: NodeColumns[Node], selection: NodeSelection) -> Mask:
    """The nodes that a pod may go to by their names, labels and taints, exactly."""
    mask = columns.where_guard(lambda guard: selection.guard_refusal(*guard) is None)
    for key, value in selection.selector:
        mask &= columns.label(LabelKey(key)).equals(value)
    if selection.terms is not None:
        terms = [_holds(columns, term) for term in selection.terms]
        mask &= np.logical_or.reduce(terms) if terms else False
    return mask


def _holds(columns: NodeColumns[Node], term: Term) -> Mask:
    mask = np.full(len(columns), term.says_anything)
    for key, requirement in _requirements(term):
        mask &= columns.label(key).holds(requirement)
    return mask


def _requirements(term: Term) -> Iterator[tuple[LabelKey, Requirement]]:
    for requirement in term.labels:
        yield LabelKey(requirement.key), requirement
    for requirement in term.fields:
        yield LabelKey(requirement.key, is_field=True), requirement


def _has_room(columns: NodeColumns[Node], request: PodRequest) -> Mask:
    """Where the host as a whole has all that is asked for, bound CPUs at their cost."""
    mask = np.ones(len(columns), np.bool_)
    for resource, amount in request.amounts.items():
        kind = host_class(resource)
        needed: int | Amounts = min(MOST, -(-amount // kind.unit))
        if resource == "cpu":
            needed = np.maximum(needed, columns.by_kind(partial(cpu_cost, request)))
        mask &= columns[room(kind.name)] >= needed
    return mask


def _has_amplified(columns: NodeColumns[Node], request: PodRequest) -> Mask:
    """Where amplified hosts have the CPU that a pod costs, counted as for the score."""
    amplified = columns.where_kind(lambda host: host.ratio > FACE_VALUE)
    if not amplified.any():
        return ~amplified
    cost = columns.by_kind(partial(cpu_cost, request))
    return ~amplified | (cost <= columns[allocatable("cpu")] - columns[CPU_REQUESTED])


def _has_cpus(columns: NodeColumns[Node], request: PodRequest) -> Mask:
    """Where there are enough CPUs that a bound pod may be given, wherever they are."""
    mask = np.ones(len(columns), np.bool_)
    for policy in BindPolicy:
        concerned = columns.where_kind(lambda host, policy=policy: thinning(request, host) is policy)
        if concerned.any():
            mask &= ~concerned | (columns[free_cpus(policy)] >= request.need)
    return mask


def _has_numa_room(columns: NodeColumns[Node], request: PodRequest) -> Mask:
    """Where NUMA nodes have room for a pod that is aligned to them: a single one, or all together."""
    mask = columns.where_kind(lambda host: effective_policy(request, host) is not None)
    aligned = columns.where_kind(lambda host: effective_policy(request, host) is not NumaPolicy.NONE)
    if not aligned.any():
        return mask
    mask &= ~aligned | (columns[NUMA_NODES] > 0)
    for resource, amount in request.amounts.items():
        together = sum(numa_left(columns, resource, place) for place in range(columns.numa_nodes))
        mask &= ~aligned | (columns[reported(resource)] == 0) | (together >= min(MOST, amount))
    single = stays_on_one(columns, request)
    if single.any():
        places = [numa_fits(columns, request, place) for place in range(columns.numa_nodes)]
        mask &= ~single | np.logical_or.reduce(places)
    return mask


def stays_on_one(columns: NodeColumns[Node], request: PodRequest) -> Mask:
    """Where a pod has to stay on one NUMA node out of several."""
    single = columns.where_kind(lambda host: effective_policy(request, host) is NumaPolicy.SINGLE_NUMA_NODE)
    return single & (columns[NUMA_NODES] > 1)


def numa_fits(columns: NodeColumns[Node], request: PodRequest, place: int) -> Mask:
    """Where one NUMA node has room for the whole pod, as far as resources are reported there."""
    mask = columns[NUMA_NODES] > place
    for resource, amount in request.amounts.items():
        unknown = columns[reported(resource)] == 0
        mask &= unknown | (numa_left(columns, resource, place) >= min(MOST, amount))
        if resource == "cpu":
            for policy in BindPolicy:
                concerned = columns.where_kind(lambda host, policy=policy: thinning(request, host) is policy)
                if concerned.any():
                    mask &= ~concerned | unknown | (columns[numa_free_cpus(policy, place)] >= request.need)
    return mask


def numa_left(columns: NodeColumns[Node], resource: str, place: int) -> Amounts:
    """What is left of a resource on one NUMA node."""
    left = columns[numa_capacity(resource, place)] - columns[numa_requested(resource, place)]
    return np.maximum(left, 0)
