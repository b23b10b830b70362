"""Upper bounds of the scores of a pod, computed for all nodes at once.

Without a NUMA policy, the bound is the score that the pod has if it fits, as only the host's totals count.
Otherwise it is only a bound: which NUMA nodes the pod gets is found out on the nodes that are looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import NamedTuple

import numpy as np

from placement.engine.forest.arrays import Amounts, Floats, Mask
from placement.engine.numa.host import MISSED, STEPPED_DOWN, CpuPreference, ExclusiveLevel, NumaExclusivity
from placement.engine.scoring.host_scores import best_score, score_hosts
from placement.engine.scoring.order import Order, Strategy, combined, counts
from placement.engine.scoring.rule import BEST, Leaning
from placement.pods.decide.rules.numa import AVOIDED
from placement.pods.state import columns as state_columns
from placement.pods.state.model import NO_REQUEST, PodRequest, SchedulerSettings

_CPU = "cpu"
# Shares are compared as floating point numbers only where a bound may be a bit too high.
_SLACK = 1e-6
# Strategies want whole numbers, so a share counts in these parts; with fewer parts, more nodes are alike.
_WHOLE = 100

AmountOf = Callable[[str], Amounts]
"""An amount of a resource per node."""


def highest_scores(table: state_columns.NodeTable, request: PodRequest, scoring: Order) -> Amounts:
    """Return the highest score that a pod can have on each node, if it fits there."""
    if request is NO_REQUEST:
        return np.zeros(len(table), np.int64)
    if request.designated_status is not None:
        return np.full(len(table), scoring.max_score, np.int64)
    scores = _Asking(table, request, scoring).on_host(table[state_columns.CPU_REQUESTED])
    rows = np.flatnonzero(state_columns.is_aligned(table, request))
    if len(rows):
        scores[rows] = _Asking(table.rows(rows), request, scoring).aligned()
    scores[table[state_columns.VAST] > 0] = scoring.max_score
    return scores


def least_missed(table: state_columns.NodeTable, request: PodRequest, settings: SchedulerSettings) -> Amounts:
    """Return the least that a pod misses on each node: CPUs are counted, not chosen.

    Source: koordinator.md, "Isolation".
    """
    missed: Amounts = np.zeros(len(table), np.int64)
    if not request.bound or not settings.follows_design:
        return missed
    for preference in {kind.binding.preference(request) for kind in table.kinds}:
        steps: Amounts = np.full(len(table), MISSED, np.int64)
        for step in reversed(_STEPS.get(preference.exclusive, (0,))):
            steps = np.where(
                table[state_columns.clean(preference.exclusive, step)] >= request.need, step, steps
            )
        steps += np.where(table[state_columns.free_cpus(preference.bind)] >= request.need, 0, MISSED)
        concerned = table.where_kind(partial(_prefers, request, preference))
        missed = np.where(concerned, steps, missed)
    missed = np.where(table.where_kind(lambda kind: kind.binding.is_avoided(request)), AVOIDED, missed)
    return np.where(table[state_columns.VAST] > 0, 0, missed)


def _prefers(request: PodRequest, preference: CpuPreference, kind: state_columns.HostKind) -> bool:
    return kind.binding.preference(request) == preference


class _Reach(NamedTuple):
    """A smallest and a largest share of a resource that may be in use, and where they are known."""

    lowest_shares: Floats
    highest_shares: Floats
    is_known: Mask


class _Asking:
    """A computation of the scores that one pod would have on all nodes."""

    def __init__(self, table: state_columns.NodeTable, request: PodRequest, scoring: Order) -> None:
        self._table = table
        self._request = request
        self._scoring = scoring
        self._cost = table.by_kind(partial(state_columns.cpu_cost, request))
        self._bound = table.where_kind(partial(state_columns.binds, request))

    def on_host(self, cpu: Amounts) -> Amounts:
        """Return the scores where the host as a whole counts, with this much of its CPU in use."""
        table = self._table
        return self._scores(
            lambda resource: cpu if resource == _CPU else table[state_columns.requested(resource)],
            lambda resource: table[state_columns.allocatable(resource)],
        )

    def aligned(self) -> Amounts:
        """Return the highest scores that a pod with a NUMA policy can have."""
        table, request, strategies = self._table, self._request, self._scoring.strategies
        if request.numa.exclusivity is NumaExclusivity.PREFERRED:
            return np.full(len(table), self._scoring.max_score, np.int64)
        single = np.zeros(len(table), np.bool_)
        for name, amount in request.amounts.items():
            if amount:
                single |= table[state_columns.reported(name)] > 0
        single &= state_columns.stays_on_one(table, request)
        if single.all():
            return self._on_one_numa_node()
        # No NUMA nodes can exceed these, whichever and however many are used together.
        highest = combined(strategies, [self._bound_of(each) for each in strategies])
        # A pod that is aligned to no NUMA nodes after all competes with bound CPUs only.
        cpu = np.where(self._bound, table[state_columns.BOUND_COST], table[state_columns.CPU_REQUESTED])
        bounds = np.maximum(highest, self.on_host(cpu))
        return np.where(single, self._on_one_numa_node(), bounds) if single.any() else bounds

    def _on_one_numa_node(self) -> Amounts:
        """Return the best score of a single NUMA node that has room."""
        table, best = self._table, np.zeros(len(self._table), np.int64)
        for place in range(table.numa_nodes):
            scores = self._scores(partial(self._numa_used, place), partial(self._numa_size, place))
            best = np.maximum(best, np.where(state_columns.numa_fits(table, self._request, place), scores, 0))
        return best

    def _numa_size(self, place: int, resource: str) -> Amounts:
        return self._table[state_columns.numa_capacity(resource, place)]

    def _numa_used(self, place: int, resource: str) -> Amounts:
        used = self._table[state_columns.numa_requested(resource, place)]
        return (
            np.where(self._bound, self._table[state_columns.BOUND_COST], used) if resource == _CPU else used
        )

    def _scores(self, used: AmountOf, capacity: AmountOf) -> Amounts:
        """Return the scores of many places by the strategies; CPU costs another amount on each.

        Source: koordinator.md, "Score".
        """
        strategies = self._scoring.strategies
        asked = {
            resource: min(state_columns.MOST, amount) for resource, amount in self._request.amounts.items()
        }
        columns = {}
        for resource in {name for strategy in strategies for name, _ in strategy.resources}:
            extra = self._cost - asked.get(_CPU, 0) if resource == _CPU else 0
            columns[resource] = used(resource) + extra, capacity(resource)
        scores: Amounts = combined(strategies, [score_hosts(each, columns, asked) for each in strategies])
        return scores

    def _bound_of(self, strategy: Strategy) -> Amounts:
        """Return the score by one strategy that no NUMA nodes can exceed.

        The share in use is at least the smallest and at most the largest share of a single NUMA node. The
        request is at least its share of all NUMA nodes, and at most its share of the smallest.
        """
        asked = self._request.amounts
        reaches = {each: self._reach(each.name) for each in strategy.resources if counts(each.name, asked)}
        unknown = np.zeros(len(self._table), np.bool_)
        for reach in reaches.values():
            unknown |= ~reach.is_known
        if strategy.rule.leaning is None:
            bounds = self._of_rule(strategy, {each.name: reach for each, reach in reaches.items()})
        else:
            # The mean of what is in use, or of what is free.
            full = strategy.rule.leaning is Leaning.FULL
            total, weights = np.zeros(len(self._table)), max(1, sum(each.weight for each in reaches))
            for each, reach in reaches.items():
                total += each.weight * np.clip(
                    reach.highest_shares if full else 1 - reach.lowest_shares, 0, 1
                )
            bounds = np.floor(total * BEST / weights + _SLACK).astype(np.int64)
        return np.where(unknown, strategy.max_score, bounds)

    def _of_rule(self, strategy: Strategy, reaches: Mapping[str, _Reach]) -> Amounts:
        """Return the bound of any strategy, computed once for all nodes with equally full NUMA nodes."""
        if not reaches:
            return np.full(len(self._table), strategy.max_score, np.int64)
        end_shares: list[Floats] = []
        for reach in reaches.values():
            # Rounded outward, so that the bound is never too low. A share above 2 counts as 2.
            end_shares.append(np.floor(np.clip(reach.lowest_shares - _SLACK, 0, 2) * _WHOLE))
            end_shares.append(np.ceil(np.clip(reach.highest_shares + _SLACK, 0, 2) * _WHOLE))
        rows = np.stack(end_shares, axis=1).astype(np.int64)
        distinct, number = np.unique(rows, axis=0, return_inverse=True)
        bounds = [
            best_score(
                strategy,
                {name: ((row[2 * at], _WHOLE), (row[2 * at + 1], _WHOLE)) for at, name in enumerate(reaches)},
                self._request.amounts,
            )
            for row in distinct.tolist()
        ]
        return np.array(bounds, np.int64)[number.ravel()]

    def _reach(self, resource: str) -> _Reach:
        """Return how much of a resource may be in use with the pod."""
        table = self._table
        count = table[state_columns.NUMA_NODES]
        sizes = [table[state_columns.numa_capacity(resource, place)] for place in range(table.numa_nodes)]
        known = count > 0
        for place, size in enumerate(sizes):
            known = known & ((size > 0) | (count <= place))
        there = [np.where((count > place) & known, size, 0) for place, size in enumerate(sizes)]
        if not there:
            return _Reach(np.zeros(len(table)), np.zeros(len(table)), known)
        largest = np.max(there, axis=0)
        smallest = np.maximum(1, np.min([np.where(size > 0, size, largest) for size in there], axis=0))
        whole = np.maximum(1, np.sum(there, axis=0))
        shares = [
            np.where(
                size > 0, table[state_columns.numa_requested(resource, place)] / np.maximum(1, size), np.nan
            )
            for place, size in enumerate(there)
        ]
        asked = (
            self._cost
            if resource == _CPU
            else min(state_columns.MOST, self._request.amounts.get(resource, 0))
        )
        least, most = np.nan_to_num(np.fmin.reduce(shares)), np.nan_to_num(np.fmax.reduce(shares))
        if resource == _CPU:
            # All bound CPUs of the host count as used whatever NUMA nodes are chosen.
            least = np.where(self._bound, table[state_columns.BOUND_COST] / whole, least)
            most = np.where(self._bound, table[state_columns.BOUND_COST] / smallest, most)
        return _Reach(least + asked / whole, most + asked / smallest, known)


_STEPS = {ExclusiveLevel.NUMA_NODE_LEVEL: (0, STEPPED_DOWN)}
