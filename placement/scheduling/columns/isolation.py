"""How much of what a pod prefers of its CPUs it misses on nodes at least, asked of all at once."""

from __future__ import annotations

from functools import partial

import numpy as np

from placement.dialects.koordinator.pod.pod_request import PodRequest
from placement.dialects.koordinator.settings.settings import SchedulerSettings
from placement.forest.arrays import Amounts
from placement.numa.demand import ExclusiveLevel
from placement.numa.isolation import MISSED, STEPPED_DOWN, Preference
from placement.scheduling.columns.node_numbers import VAST, clean, free_cpus
from placement.scheduling.columns.table import HostKind, Table
from placement.scheduling.score import AVOIDED

_STEPS = {ExclusiveLevel.NUMA_NODE_LEVEL: (0, STEPPED_DOWN)}


def least_missed(table: Table, request: PodRequest | None, settings: SchedulerSettings) -> Amounts:
    """What a pod misses on each node at least: CPUs are counted, not chosen.

    Source: koordinator.md, "Isolation".
    """
    nothing: Amounts = np.zeros(len(table), np.int64)
    if request is None or not request.bound or not settings.follows_design:
        return nothing
    missed = nothing
    for preference in {kind.bind.preference(request) for kind in table.kinds}:
        concerned = table.where_kind(partial(_has, request, preference))
        missed = np.where(concerned, _of_preference(table, request.need, preference), missed)
    missed = np.where(table.where_kind(lambda kind: kind.bind.is_avoided(request)), AVOIDED, missed)
    return np.where(table[VAST] > 0, 0, missed)


def _has(request: PodRequest, preference: Preference, kind: HostKind) -> bool:
    return kind.bind.preference(request) == preference


def _of_preference(table: Table, need: int, preference: Preference) -> Amounts:
    missed: Amounts = np.full(len(table), MISSED, np.int64)
    for step in reversed(_STEPS.get(preference.exclusive, (0,))):
        missed = np.where(table[clean(preference.exclusive, step)] >= need, step, missed)
    return missed + np.where(table[free_cpus(preference.bind)] >= need, 0, MISSED)
