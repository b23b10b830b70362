"""How well nodes suit a pod at most, asked of all at once.

Without NUMA policy that is the score the pod will have if it fits, as only the totals of the host count.
Otherwise it is an upper bound: which NUMA nodes the pod gets is found out on the nodes that are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from placement.dialects.koordinator.pod.pod_request import PodRequest
from placement.forest.arrays import Amounts, Mask, Shares
from placement.numa.policies import NumaExclusivity, NumaPolicy
from placement.scheduling.columns.filter import numa_fits, stays_on_one
from placement.scheduling.columns.host_kind import binds, cpu_cost
from placement.scheduling.columns.node_columns import Node, NodeColumns
from placement.scheduling.columns.node_numbers import (
    BOUND_COST,
    CPU_REQUESTED,
    MOST,
    NUMA_NODES,
    VAST,
    allocatable,
    numa_capacity,
    numa_requested,
    reported,
    requested,
)
from placement.scoring.fit import BEST, NATIVE, Scoring

_CPU = "cpu"
# Shares are compared as floating point numbers only where a bound may be a bit too high.
_SLACK = 1e-6

Column = Callable[[str], Amounts]
"""An amount of a resource per node."""


def highest_scores(columns: NodeColumns[Node], request: PodRequest | None, scoring: Scoring) -> Amounts:
    """The score, 0 to 100, that a pod can have on each node at most, if it fits there."""
    if request is None:
        return np.zeros(len(columns), np.int64)
    if request.designated is not None:
        return np.full(len(columns), BEST, np.int64)
    asking = _Asking(columns, request, scoring)
    policy = request.numa.policy
    aligned = columns.where_kind(lambda host: {host.numa_policy, policy} != {NumaPolicy.NONE})
    scores = asking.on_host(columns[CPU_REQUESTED])
    if aligned.any():
        scores = np.where(aligned, asking.aligned(), scores)
    return np.where(columns[VAST] > 0, BEST, scores)


def host_scores(
    requested: Column, capacity: Column, request: Mapping[str, int], cpu_cost: Amounts, scoring: Scoring
) -> Amounts:
    """What `Scoring.score` says of many places; CPU costs another amount on each.

    Source: Koordinator semantics, score.
    """
    total, weights = np.zeros(len(cpu_cost), np.int64), np.zeros(len(cpu_cost), np.int64)
    for resource, weight in scoring.weights:
        asked: Amounts | int = cpu_cost if resource == _CPU else min(MOST, request.get(resource, 0))
        if not request.get(resource, 0) and resource not in NATIVE:
            continue
        room = capacity(resource)
        counts = room > 0
        size = np.where(counts, room, 1)
        used = np.minimum(requested(resource) + asked, room)
        share = (used if scoring.fullest_first else room - used) * BEST // size
        total += np.where(counts, weight * share, 0)
        weights += np.where(counts, weight, 0)
    return total // np.maximum(weights, 1)


class _Asking:
    """One pod asking all nodes how well it would sit there."""

    def __init__(self, columns: NodeColumns[Node], request: PodRequest, scoring: Scoring) -> None:
        self._columns = columns
        self._request = request
        self._scoring = scoring
        self._cost = columns.by_kind(partial(cpu_cost, request))
        self._bound = columns.where_kind(partial(binds, request))

    def on_host(self, cpu: Amounts) -> Amounts:
        """The scores where the host as a whole counts, of which that much CPU is used."""
        columns = self._columns
        return self._scores(
            lambda resource: cpu if resource == _CPU else columns[requested(resource)],
            lambda resource: columns[allocatable(resource)],
        )

    def aligned(self) -> Amounts:
        """The scores that pods with a NUMA policy can have at most."""
        columns, request = self._columns, self._request
        if request.numa.exclusivity is NumaExclusivity.PREFERRED:
            return np.full(len(columns), BEST, np.int64)
        # A pod that is aligned to no NUMA nodes after all competes with bound CPUs only.
        cpu = np.where(self._bound, columns[BOUND_COST], columns[CPU_REQUESTED])
        bounds = np.maximum(self._on_any_numa_nodes(), self.on_host(cpu))
        single = stays_on_one(columns, request) & self._is_reported()
        return np.where(single, self._on_one_numa_node(), bounds) if single.any() else bounds

    def _is_reported(self) -> Mask:
        names = [name for name, amount in self._request.amounts.items() if amount]
        known = [self._columns[reported(name)] > 0 for name in names]
        return np.logical_or.reduce(known) if known else np.zeros(len(self._columns), np.bool_)

    def _on_one_numa_node(self) -> Amounts:
        """The best score of a single NUMA node that has room."""
        columns, best = self._columns, np.zeros(len(self._columns), np.int64)
        for place in range(columns.numa_nodes):
            scores = self._scores(
                lambda resource, place=place: self._numa_used(resource, place),
                lambda resource, place=place: columns[numa_capacity(resource, place)],
            )
            best = np.maximum(best, np.where(numa_fits(columns, self._request, place), scores, 0))
        return best

    def _numa_used(self, resource: str, place: int) -> Amounts:
        used = self._columns[numa_requested(resource, place)]
        return np.where(self._bound, self._columns[BOUND_COST], used) if resource == _CPU else used

    def _on_any_numa_nodes(self) -> Amounts:
        """The score that no NUMA nodes can exceed, whichever and however many are used together.

        What is used of them is at least the smallest share of a single one (at most the largest), and what
        is asked for is at least its share of all (at most of the smallest).
        """
        total, weights = np.zeros(len(self._columns)), 0
        unknown = np.zeros(len(self._columns), np.bool_)
        for resource, weight in self._scoring.weights:
            shares, is_known = self._best_shares(resource)
            unknown |= ~is_known
            if self._request.amounts.get(resource, 0) or resource in NATIVE:
                total += weight * np.clip(shares, 0, 1)
                weights += weight
        bounds = np.floor(total * BEST / max(1, weights) + _SLACK).astype(np.int64)
        return np.where(unknown, BEST, bounds)

    def _best_shares(self, resource: str) -> tuple[Shares, Mask]:
        """The best share of a resource, and where every NUMA node has some of it."""
        columns = self._columns
        count = columns[NUMA_NODES]
        sizes = [columns[numa_capacity(resource, place)] for place in range(columns.numa_nodes)]
        known = count > 0
        for place, size in enumerate(sizes):
            known = known & ((size > 0) | (count <= place))
        there = [np.where((count > place) & known, size, 0) for place, size in enumerate(sizes)]
        if not there:
            return np.zeros(len(columns)), known
        largest = np.max(there, axis=0)
        smallest = np.min([np.where(size > 0, size, largest) for size in there], axis=0)
        full = self._scoring.fullest_first
        size = np.maximum(1, smallest if full else np.sum(there, axis=0)).astype(np.float64)
        shares = [
            np.where(
                size > 0,
                columns[numa_requested(resource, place)] / np.maximum(1, size),
                0.0 if full else np.inf,
            )
            for place, size in enumerate(there)
        ]
        used = np.max(shares, axis=0) if full else np.min(shares, axis=0)
        asked = self._cost if resource == _CPU else min(MOST, self._request.amounts.get(resource, 0))
        if resource == _CPU:
            used = np.where(self._bound, columns[BOUND_COST] / size, used)
        return (used + asked / size) if full else (1 - used - asked / size), known

    def _scores(self, used: Column, capacity: Column) -> Amounts:
        return host_scores(used, capacity, self._request.amounts, self._cost, self._scoring)
