"""The alignment of a pod to NUMA nodes of a host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple

from placement.engine.numa.allocator import NumaAllocator
from placement.engine.numa.amounts import Amounts
from placement.engine.numa.cpuset import mask_of, members_of
from placement.engine.numa.demand import UNALIGNED, NumaExclusivity, NumaPolicy, PodRefused, RefusalClass
from placement.engine.numa.hints import (
    Fits,
    HintTable,
    Merged,
    ProviderHints,
    Ranking,
    Row,
    Score,
    collect_rows,
    fitness_of,
    merge_hints,
    merge_preferred,
    single_numa_rows,
    spreads_wide,
    summarize,
)
from placement.engine.numa.host import NumaNeighbours, demand_costs
from placement.engine.scoring.order import DEFAULT_SCORING, Strategy, scorer_for
from placement.engine.scoring.rule import BEST

# NUMA policies: the affinity that the hints of all providers lead to, and whether the pod is admitted.


class Selection(NamedTuple):
    """A chosen mask of NUMA ids (None: no affinity), its merits, and reasons if it is not admitted."""

    affinity: int | None
    preferred: bool = False
    unsatisfied: bool = False
    reasons: tuple[str, ...] = ()


def admits(policy: NumaPolicy, preferred: bool) -> bool:
    """Return whether a policy admits a pod, given whether its merged hint is preferred.

    Source: koordinator.md, "Policies".
    """
    return preferred or policy in (NumaPolicy.NONE, NumaPolicy.BEST_EFFORT)


def select_affinity(
    policy: NumaPolicy, providers: Sequence[ProviderHints | None], numa_ids: int, ranking: Ranking
) -> Selection:
    """Return the affinity that a policy makes of all hints on a host with these NUMA nodes (a mask).

    A selection with reasons is not admitted.
    Source: koordinator.md, "Policies".
    """
    if policy is NumaPolicy.NONE:
        return Selection(None)
    rows, reasons = collect_rows(providers)
    if reasons and policy is not NumaPolicy.BEST_EFFORT:
        return Selection(numa_ids if policy is NumaPolicy.RESTRICTED else None, reasons=reasons)
    best = merge_hints(_relevant(policy, rows), numa_ids, ranking)
    selection = _selected(policy, best, numa_ids)
    if admits(policy, best.preferred):
        return selection
    separator = " & " if policy is NumaPolicy.RESTRICTED else ","
    reasons = (f"Unaligned NUMA Hint cause {separator.join(summarize(providers))}",)
    return selection._replace(reasons=reasons)


def select_preferred(
    policy: NumaPolicy, providers: Sequence[ProviderHints | None], numa_ids: int, ranking: Ranking
) -> Selection | None:
    """Return the selection of `select_affinity` if it is preferred, else None; this is cheaper."""
    best = merge_preferred(_relevant(policy, collect_rows(providers).rows), numa_ids, ranking)
    return None if best is None else _selected(policy, best, numa_ids)


def _relevant(policy: NumaPolicy, rows: Sequence[Row]) -> Sequence[Row]:
    return single_numa_rows(rows) if policy is NumaPolicy.SINGLE_NUMA_NODE else rows


def _selected(policy: NumaPolicy, best: Merged, numa_ids: int) -> Selection:
    if policy is NumaPolicy.BEST_EFFORT and best.unsatisfied:
        return Selection(numa_ids)
    # A host with a single NUMA node needs no accounts per NUMA node.
    aligned = policy is not NumaPolicy.SINGLE_NUMA_NODE or best.affinity != numa_ids
    return Selection(best.affinity if aligned else None, best.preferred, best.unsatisfied)


# NUMA exclusivity: keeping pods on one NUMA node apart from pods over several.


def is_allowed(affinity: int, exclusivity: NumaExclusivity, neighbours: NumaNeighbours) -> bool:
    """Return whether a mask of NUMA ids respects required exclusivity; preferred exclusivity allows all.

    Several NUMA nodes may not include one with pods of its own, and a single one may not be shared.
    Source: koordinator.md, "NUMA exclusivity".
    """
    if exclusivity is not NumaExclusivity.REQUIRED:
        return True
    several = affinity.bit_count() > 1
    return not affinity & (neighbours.single if several else neighbours.shared)


def favour_idle(score: int, numa_ids: int, neighbours: NumaNeighbours, best: int = BEST) -> int:
    """Return a score, 0 to `best`, moved halfway to the share of these NUMA nodes without bound pods.

    Source: koordinator.md, "Preferred NUMA exclusivity".
    """
    idle = numa_ids & ~neighbours.single & ~neighbours.shared
    return (score + best * idle.bit_count() // max(1, numa_ids.bit_count())) // 2


# The score of combinations of NUMA nodes for a pod.


def numa_scorer(allocator: NumaAllocator, scoring: Strategy, idle_counts: bool) -> Score:
    """Return a scorer of NUMA nodes for a pod, by the use there and its request against the capacity.

    `idle_counts`: NUMA nodes without bound pods score higher.
    Source: koordinator.md, "Hints", "Preferred NUMA exclusivity".
    """
    host = allocator.host
    capacity = {
        resource: {numa: amounts.get(resource, 0) for numa, amounts in host.capacity.items()}
        for resource, _ in scoring.resources
    }
    used = {
        resource: {numa: amount - allocator.available[numa].get(resource, 0) for numa, amount in row.items()}
        for resource, row in capacity.items()
    }
    score_of, best = scorer_for(scoring, demand_costs(host, allocator.demand)), scoring.max_score

    def score(numa_ids: Sequence[int]) -> int:
        points = score_of(_summed(used, numa_ids), _summed(capacity, numa_ids))
        return favour_idle(points, mask_of(numa_ids), host.neighbours, best) if idle_counts else points

    return score


def _summed(rows: Mapping[str, Mapping[int, int]], numa_ids: Sequence[int]) -> Amounts:
    return {resource: sum(map(row.__getitem__, numa_ids)) for resource, row in rows.items()}


MISSING_NUMA_RESOURCES = "node(s) missing NUMA resources"


class Alignment(NamedTuple):
    """Parameters of alignment: the effective policy, exclusivity, and how NUMA nodes are scored.

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
    allocator: NumaAllocator, alignment: Alignment, fits: Fits | None = None
) -> tuple[int, ...] | None:
    """Return the ascending NUMA ids to which a pod is aligned on a host; None if to none in particular.

    `fits` replaces `allocator.fits` if not everything that is free can be used together. Raises PodRefused
    if the policy does not admit the pod. Source: koordinator.md, "NUMA alignment".
    """
    host, policy = allocator.host, alignment.policy
    if not host.capacity:
        raise PodRefused(MISSING_NUMA_RESOURCES, status=RefusalClass.UNRESOLVABLE, obstacle=UNALIGNED)
    score, fitness = numa_scorer(allocator, alignment.scoring, alignment.idle_counts), None
    if host.rules.isolation_first:
        fitness, score = fitness_of(allocator, score), _unscored
    elif policy is NumaPolicy.SINGLE_NUMA_NODE:
        # Wider combinations only serve to say why the pod is refused.
        score = partial(_score_of_one, score)
    widest_first = spreads_wide(allocator, policy)
    all_preferred = policy is NumaPolicy.RESTRICTED or widest_first
    table = HintTable(allocator, fits or allocator.fits, score, all_preferred)
    allowed = partial(is_allowed, exclusivity=alignment.exclusivity, neighbours=host.neighbours)
    aligned = (policy, [table.hints], mask_of(host.capacity), Ranking(allowed, fitness, widest_first))
    selection = None
    for size in reversed(list(table.sizes())) if widest_first else table.sizes():
        table.add_combinations(size)
        # Only one of a better size beats a preferred affinity, and all of these are known by now.
        if all(table.hints.values()):
            selection = select_preferred(*aligned)
            if selection is not None:
                break
    selection = selection or select_affinity(*aligned)
    if selection.reasons:
        raise PodRefused(*selection.reasons, obstacle=UNALIGNED)
    return None if selection.affinity is None else tuple(members_of(selection.affinity))


def _unscored(numa_ids: Sequence[int]) -> int:
    return 0


def _score_of_one(score: Score, numa_ids: Sequence[int]) -> int:
    return score(numa_ids) if len(numa_ids) == 1 else 0
