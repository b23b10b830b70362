"""Aligning a pod to NUMA nodes of a host."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import NamedTuple

from placement.numa.alignment.fitness import fitness_of, spreads_wide
from placement.numa.alignment.hint_rows import ProviderHints
from placement.numa.alignment.hints import Fits, HintTable, Score
from placement.numa.alignment.merging import Ranking
from placement.numa.alignment.numa_exclusivity import is_allowed
from placement.numa.alignment.numa_score import numa_scorer
from placement.numa.alignment.selection import Selection, select_affinity, select_preferred
from placement.numa.allocator import NumaAllocator
from placement.numa.cpuset import mask_of, members_of
from placement.numa.demand import NumaExclusivity, NumaPolicy
from placement.numa.refusal import UNALIGNED, RefusalClass, Refused
from placement.scoring.strategy import DEFAULT_SCORING, Strategy

MISSING_NUMA_RESOURCES = "node(s) missing NUMA resources"


class Alignment(NamedTuple):
    """How a pod is to be aligned: the effective policy, exclusivity, and how NUMA nodes are scored.

    `favours_idle`: preferred exclusivity lets NUMA nodes without bound pods score higher.
    """

    policy: NumaPolicy
    exclusivity: NumaExclusivity = NumaExclusivity.NONE
    scoring: Strategy = DEFAULT_SCORING
    favours_idle: bool = False

    @property
    def idle_counts(self) -> bool:
        """Whether NUMA nodes without bound pods score higher for this pod."""
        return self.favours_idle and self.exclusivity is NumaExclusivity.PREFERRED


def choose_affinity(
    allocator: NumaAllocator,
    alignment: Alignment,
    fits: Fits | None = None,
    devices: Sequence[ProviderHints] = (),
) -> tuple[int, ...] | None:
    """The ascending NUMA ids to which a pod is aligned on a host; None if to none in particular.

    `fits` answers for the allocator where not all that it sees as free can be used together. `devices` are
    the hints of other providers. Raises Refused if the policy does not admit the pod.
    Source: koordinator.md, "NUMA alignment".
    """
    host = allocator.host
    if not host.capacity:
        raise Refused(MISSING_NUMA_RESOURCES, status=RefusalClass.UNRESOLVABLE, obstacle=UNALIGNED)
    selection = _select(_Search(allocator, alignment, fits or allocator.fits, devices))
    if selection.reasons:
        raise Refused(*selection.reasons, obstacle=UNALIGNED)
    return None if selection.affinity is None else tuple(members_of(selection.affinity))


class _Search:
    """The hints of one pod on one host and of its devices, and what they are judged by."""

    def __init__(
        self, allocator: NumaAllocator, alignment: Alignment, fits: Fits, devices: Sequence[ProviderHints]
    ) -> None:
        restricted = alignment.policy is NumaPolicy.RESTRICTED
        score = numa_scorer(allocator, alignment.scoring, alignment.idle_counts)
        fitness = None
        if allocator.host.rules.isolation_first:
            fitness, score = fitness_of(allocator, score), _unscored
        elif alignment.policy is NumaPolicy.SINGLE_NUMA_NODE:
            # Wider combinations are only looked at to say why the pod is refused.
            score = partial(_score_of_one, score)
        self.widest_first = spreads_wide(allocator, alignment.policy)
        self.table = HintTable(allocator, fits, score, all_preferred=restricted or self.widest_first)
        self.policy = alignment.policy
        self.providers = (self.table.hints, *devices)
        self.numa_ids = mask_of(allocator.host.capacity)
        allowed = partial(is_allowed, exclusivity=alignment.exclusivity, neighbours=allocator.host.neighbours)
        self.ranking = Ranking(allowed, fitness, self.widest_first)

    def sizes(self) -> Iterable[int]:
        """The sizes of combinations, those first that are best."""
        sizes = self.table.sizes()
        return reversed(list(sizes)) if self.widest_first else sizes


def _unscored(numa_ids: Sequence[int]) -> int:
    return 0


def _score_of_one(score: Score, numa_ids: Sequence[int]) -> int:
    return score(numa_ids) if len(numa_ids) == 1 else 0


def _select(search: _Search) -> Selection:
    aligned = (search.policy, search.providers, search.numa_ids, search.ranking)
    has_devices = len(search.providers) > 1
    for size in search.sizes():
        search.table.add_combinations(size)
        # A preferred affinity only ever gives way to one of a better size, and all of those are known by now.
        # Devices may prefer another one, so that with them everything has to be known.
        if not has_devices and all(search.table.hints.values()):
            selection = select_preferred(*aligned)
            if selection is not None:
                return selection
    return select_affinity(*aligned)
