"""How much of what a pod prefers of its CPUs it misses on nodes at least, asked of all at once."""

from __future__ import annotations

import numpy as np

from placement.dialects.koordinator.pod.pod_request import PodRequest
from placement.dialects.koordinator.settings.settings import SchedulerSettings
from placement.forest.arrays import Amounts
from placement.numa.isolation import MISSED, STEPPED_DOWN
from placement.numa.policies import ExclusiveLevel
from placement.scheduling.columns.node_numbers import VAST, clean, free_cpus
from placement.scheduling.columns.table import Table
from placement.scheduling.score import AVOIDED, avoids

_STEPS = {ExclusiveLevel.NUMA_NODE_LEVEL: (0, STEPPED_DOWN)}


def least_missed(table: Table, request: PodRequest | None, settings: SchedulerSettings) -> Amounts:
    """What a pod misses on each node at least: CPUs are counted, not chosen.

    Source: koordinator.md, "Isolation".
    """
    nothing: Amounts = np.zeros(len(table), np.int64)
    if request is None or not request.bound or not settings.follows_design:
        return nothing
    wanted = request.required_bind or request.preferred_bind
    missed = np.where(table[free_cpus(wanted)] >= request.need, 0, MISSED)
    missed = missed + _missed_neighbours(table, request)
    missed = np.where(table.where_kind(lambda kind: avoids(request, kind.bind)), AVOIDED, missed)
    return np.where(table[VAST] > 0, 0, missed)


def _missed_neighbours(table: Table, request: PodRequest) -> Amounts:
    missed = np.full(len(table), MISSED, np.int64)
    for step in reversed(_STEPS.get(request.exclusive, (0,))):
        missed = np.where(table[clean(request.exclusive, step)] >= request.need, step, missed)
    return missed
