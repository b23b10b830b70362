"""Aligning a pod to NUMA nodes of a host."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from placement.topology.amplification import bound_cost
from placement.topology.hint_rows import ProviderHints
from placement.topology.hints import Fits, HintTable
from placement.topology.masks import mask_of, members_of
from placement.topology.numa_exclusivity import favour_idle, is_allowed
from placement.topology.policies import NumaExclusivity, NumaPolicy
from placement.topology.refusal import RefusalClass, Refused
from placement.topology.scoring import DEFAULT_SCORING, Scoring
from placement.topology.selection import Selection, select_affinity
from placement.topology.split import CPU
from placement.topology.trial import Trial

MISSING_NUMA_RESOURCES = "node(s) missing NUMA resources"


class Alignment(NamedTuple):
    """How a pod is to be aligned: the effective policy, exclusivity, and how NUMA nodes are scored.

    `favours_idle`: preferred exclusivity lets NUMA nodes without bound pods score higher.
    """

    policy: NumaPolicy
    exclusivity: NumaExclusivity = NumaExclusivity.NONE
    scoring: Scoring = DEFAULT_SCORING
    favours_idle: bool = False


def choose_affinity(
    trial: Trial, alignment: Alignment, fits: Fits | None = None, devices: Sequence[ProviderHints] = ()
) -> tuple[int, ...] | None:
    """The ascending NUMA ids to which a pod is aligned on a host; None if to none in particular.

    `fits` answers for the trial where not all that it sees as free can be used together. `devices` are the
    hints of other providers. Raises Refused if the policy does not admit the pod.
    Source: Koordinator semantics, NUMA alignment.
    """
    host = trial.host
    if not host.capacity:
        raise Refused(MISSING_NUMA_RESOURCES, status=RefusalClass.UNRESOLVABLE)
    selection = _select(_Search(trial, alignment, fits or trial.fits), devices)
    if selection.reasons:
        raise Refused(*selection.reasons)
    return None if selection.affinity is None else tuple(members_of(selection.affinity))


class _Search:
    """The hints of one pod on one host, widened as long as that could change the selection."""

    def __init__(self, trial: Trial, alignment: Alignment, fits: Fits) -> None:
        restricted = alignment.policy is NumaPolicy.RESTRICTED
        score = partial(_score, trial, alignment)
        self.table = HintTable(trial, fits, score, all_preferred=restricted)
        self.is_hopeless = not trial.has_room(trial.host.capacity)
        self.numa_ids = mask_of(trial.host.capacity)
        self.alignment = alignment
        self.allowed: Callable[[int], bool] = partial(
            is_allowed, exclusivity=alignment.exclusivity, neighbours=trial.host.neighbours
        )

    def select(self, devices: Sequence[ProviderHints]) -> Selection:
        """The selection from the hints found so far."""
        return select_affinity(
            self.alignment.policy, (self.table.hints, *devices), self.numa_ids, self.allowed
        )


def _select(search: _Search, devices: Sequence[ProviderHints]) -> Selection:
    for size in () if search.is_hopeless else search.table.sizes():
        search.table.add_combinations(size)
        # A preferred affinity only ever gives way to a narrower one, and all of those are known by now.
        # Devices may prefer a wider one, so that with them everything has to be known.
        if not devices and all(search.table.hints.values()):
            selection = search.select(devices)
            if selection.preferred:
                return selection
    return search.select(devices)


def _score(trial: Trial, alignment: Alignment, numa_ids: Sequence[int]) -> int:
    """How well a pod would sit on these NUMA nodes (Koordinator semantics: hints)."""
    host, cpus = trial.host, trial.demand.cpus
    requested: dict[str, int] = {}
    capacity: dict[str, int] = {}
    for numa in numa_ids:
        for resource, amount in host.capacity[numa].items():
            capacity[resource] = capacity.get(resource, 0) + amount
            used = amount - trial.available[numa][resource]
            requested[resource] = requested.get(resource, 0) + used
    request = dict(trial.demand.amounts)
    if cpus is not None and CPU in request:
        request[CPU] = bound_cost(request[CPU], host.cpu_ratio)
    score = alignment.scoring.score(requested, capacity, request)
    if alignment.favours_idle and alignment.exclusivity is NumaExclusivity.PREFERRED:
        return favour_idle(score, mask_of(numa_ids), host.neighbours)
    return score
