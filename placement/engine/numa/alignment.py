"""The alignment of a pod to NUMA nodes of a host: hints, their merge, and the policies.

Hints are the sets of NUMA nodes that each resource of a pod could come from. They are collected for all
resources and merged into the best common set, which the policy of the host admits or refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, partial
from itertools import combinations, product
from math import comb, prod
from typing import NamedTuple

from placement.engine.numa.allocator import NumaAllocator
from placement.engine.numa.cpus import mask_of, members_of
from placement.engine.numa.host import (
    CPU,
    MISSED,
    UNALIGNED,
    Amounts,
    CpuPreference,
    Distribution,
    NumaExclusivity,
    NumaNeighbours,
    NumaPolicy,
    PodRefused,
    RefusalClass,
    demand_costs,
    missed,
)
from placement.engine.scoring.order import DEFAULT_SCORING, Strategy, scorer_for
from placement.engine.scoring.rule import BEST

# Hosts of eight NUMA nodes have 255 combinations. Beyond this limit only narrow ones and the whole host are
# examined: no real host needs more, and a made-up topology must not stop the service.
MOST_HINTS = 4096


class Hint(NamedTuple):
    """One way to align: a mask of NUMA ids (None: any), and how the provider rates it."""

    affinity: int | None
    preferred: bool
    unsatisfied: bool = False
    score: int = 0


Hints = dict[str, list[Hint]]
"""Hints by resource; an empty list cannot be satisfied, a missing resource has no preference."""

Fits = Callable[[Sequence[int]], bool]
Score = Callable[[Sequence[int]], int]


class HintTable:
    """A table of the hints of a pod on a host, found for ever wider combinations of NUMA nodes.

    `fits` returns whether the whole pod can be allocated on exactly these NUMA nodes, `score` how well.
    Source: koordinator.md, "Hints".
    """

    def __init__(self, allocator: NumaAllocator, fits: Fits, score: Score, all_preferred: bool) -> None:
        self.hints: Hints = {resource: [] for resource in allocator.known_requests}
        self._fewest = allocator.fewest_numa_nodes
        self._numa_ids = sorted(allocator.available)
        self._fits = fits
        self._score = score
        self._all_preferred = all_preferred
        self._exhausted = {
            resource: mask_of(numa for numa, left in allocator.rooms[resource].items() if not left)
            for resource in self.hints
        }

    def sizes(self) -> Iterator[int]:
        """Yield the sizes of combinations that could have hints, ascending."""
        nodes, looked_at = len(self._numa_ids), 0
        for size in range(self._fewest, nodes + 1):
            looked_at += comb(nodes, size)
            if size == nodes or looked_at <= MOST_HINTS:
                yield size

    def add_combinations(self, size: int) -> None:
        """Add the hints of all combinations of `size` NUMA nodes; narrower ones must be there already."""
        rows = [
            (hints, self._exhausted[resource], self._all_preferred or not hints)
            for resource, hints in self.hints.items()
        ]
        for nodes in combinations(self._numa_ids, size):
            affinity = mask_of(nodes)
            useful = [(hints, preferred) for hints, exhausted, preferred in rows if not affinity & exhausted]
            if useful and self._fits(nodes):
                score = self._score(nodes)
                for hints, preferred in useful:
                    hints.append(Hint(affinity, preferred, False, score))


# The hints of all providers as rows to be merged, and as text.


ProviderHints = Mapping[str, Sequence[Hint] | None]
"""The hints of one provider of resources, by resource; empty or None means no preference."""

_DO_NOT_CARE = Hint(None, preferred=True)
_UNSATISFIED = Hint(None, preferred=False, unsatisfied=True)


class HintRows(NamedTuple):
    """Rows of hints in the order of providers, then resources, and reasons for unsatisfied resources."""

    rows: tuple[Sequence[Hint], ...]
    reasons: tuple[str, ...]


def collect_rows(providers: Iterable[ProviderHints | None]) -> HintRows:
    """Return one row for every resource of every provider, and one per provider without a preference.

    Source: koordinator.md, "Merge".
    """
    rows: list[Sequence[Hint]] = []
    reasons = []
    for provider in providers:
        if not provider:
            rows.append((_DO_NOT_CARE,))
            continue
        for resource, hints in sorted(provider.items()):
            if hints is None:
                rows.append((_DO_NOT_CARE,))
            elif hints:
                rows.append(hints)
            else:
                rows.append((_UNSATISFIED,))
                reasons.append(f"Unsatisfied NUMA {resource}")
    return HintRows(tuple(rows), tuple(reasons))


def summarize(providers: Iterable[ProviderHints | None]) -> list[str]:
    """Return the preferred and possible NUMA nodes of each resource in words (koordinator.md, "Policies")."""
    found = []
    for provider in providers:
        for resource, hints in (provider or {}).items():
            if hints:
                preferred = " ".join(_binary(hint.affinity) for hint in hints if hint.preferred)
                among = " ".join(_binary(hint.affinity) for hint in hints)
                found.append(f"{resource} prefer [{preferred}] among [{among}]")
    return sorted(found)


def single_numa_rows(rows: Iterable[Sequence[Hint]]) -> tuple[Sequence[Hint], ...]:
    """Return the rows reduced to preferred hints for any or for exactly one NUMA node.

    Source: koordinator.md, "Policies".
    """
    return tuple(
        [hint for hint in row if hint.preferred and (hint.affinity is None or hint.affinity.bit_count() == 1)]
        for row in rows
    )


def _binary(affinity: int | None) -> str:
    """Return a mask in binary with at least two digits and an even number of them."""
    if affinity is None:
        return "<nil>"
    digits = max(2, affinity.bit_length() + affinity.bit_length() % 2)
    return f"{affinity:0{digits}b}"


# The merge of the hints of all resources into one affinity.


Row = Sequence[Hint]
Allowed = Callable[[int], bool]
Fitness = Callable[[int], tuple[int, ...]]
"""The fitness of an affinity, to be compared with the fitness of others."""

# Rows of hints multiply. More combinations than this are cut down by leaving out the widest hints, which
# could only win where no narrower ones agree.
MOST_COMBINATIONS = 20_000


class Merged(NamedTuple):
    """A merged affinity (mask of NUMA ids) and its merits."""

    affinity: int
    preferred: bool = False
    unsatisfied: bool = False
    score: int = 0

    @property
    def size(self) -> int:
        """How many NUMA nodes the affinity has."""
        return self.affinity.bit_count()


class Ranking(NamedTuple):
    """The criteria that decide among merged affinities.

    `allowed` returns which may be preferred. `fitness` decides among affinities of one size; without it their
    scores do. `widest_first`: more NUMA nodes are better than fewer.
    """

    allowed: Allowed
    fitness: Fitness | None = None
    widest_first: bool = False

    def replaces(self, merged: Merged, best: Merged) -> bool:
        """Return whether a later affinity is better than the best so far.

        Source: koordinator.md, "Merge", "The NUMA strategy under alignment".
        """
        if merged.preferred != best.preferred:
            return merged.preferred
        if merged.size != best.size:
            return (merged.size > best.size) is self.widest_first
        if self.fitness is None:
            return merged.affinity < best.affinity or merged.score > best.score
        if merged.affinity == best.affinity:
            return merged.score > best.score
        mine, other = self.fitness(merged.affinity), self.fitness(best.affinity)
        return (mine, -merged.affinity) > (other, -best.affinity)


def merge_hints(rows: Sequence[Row], numa_ids: int, ranking: Ranking) -> Merged:
    """Return the best combination of one hint per row; all NUMA nodes, not preferred, if none is better.

    `numa_ids` is the mask of the host's NUMA nodes. Source: koordinator.md, "Merge".
    """
    # Once there is a preferred combination no other one counts, and preferred ones are few and easy to find.
    preferred = merge_preferred(rows, numa_ids, ranking)
    return preferred or _best(product(*_narrowed(rows)), numa_ids, ranking)


def merge_preferred(rows: Sequence[Row], numa_ids: int, ranking: Ranking) -> Merged | None:
    """Return the best combination of one hint per row if that is preferred; else None."""
    best = _best(_preferred_combinations(rows), numa_ids, ranking)
    return best if best.preferred else None


def _best(combinations: Iterable[Sequence[Hint]], numa_ids: int, ranking: Ranking) -> Merged:
    best = Merged(numa_ids)
    for hints in combinations:
        merged = _merge(hints, numa_ids, ranking.allowed)
        if merged is not None and ranking.replaces(merged, best):
            best = merged
    return best


def _merge(hints: Sequence[Hint], numa_ids: int, allowed: Allowed) -> Merged | None:
    merged, preferred, unsatisfied = numa_ids, True, False
    for affinity, is_preferred, is_unsatisfied, _ in hints:
        preferred = preferred and is_preferred
        unsatisfied = unsatisfied or is_unsatisfied
        if affinity is not None:
            merged &= affinity
    if not merged:
        return None
    score, affinities = 0, set()
    for affinity, _, _, points in hints:
        if affinity == merged:
            score += points
        if affinity is not None:
            affinities.add(affinity)
    return Merged(
        merged,
        preferred=preferred and len(affinities) <= 1 and allowed(merged),
        unsatisfied=unsatisfied or bool(affinities - {merged}),
        score=score,
    )


def _preferred_combinations(rows: Sequence[Row]) -> Iterator[Sequence[Hint]]:
    """Yield the combinations of preferred hints with a common affinity, in cartesian order."""
    # The places in each row of the preferred hints of each affinity.
    places: list[dict[int | None, list[int]]] = [{} for _ in rows]
    for of, row in zip(places, rows, strict=True):
        for place, hint in enumerate(row):
            if hint.preferred:
                of.setdefault(hint.affinity, []).append(place)
    chosen: set[tuple[int, ...]] = set()
    for affinity in set().union(*places):
        chosen.update(product(*({*of.get(affinity, ()), *of.get(None, ())} for of in places)))
    for combination in sorted(chosen):
        yield [row[place] for row, place in zip(rows, combination, strict=True)]


def _narrowed(rows: Sequence[Row]) -> Sequence[Row]:
    while prod(map(len, rows)) > MOST_COMBINATIONS:
        widest = max(_width(hint) for row in rows for hint in row)
        narrower = [[hint for hint in row if _width(hint) < widest] for row in rows]
        if not all(narrower):
            longest = max(map(len, rows))
            narrower = [list(row[:-1]) if len(row) == longest else list(row) for row in rows]
        rows = narrower
    return rows


def _width(hint: Hint) -> int:
    return 0 if hint.affinity is None else hint.affinity.bit_count()


# The choice among sets of NUMA nodes that suit the alignment equally: isolation, then the strategy.


_WIDENED = (NumaPolicy.BEST_EFFORT, NumaPolicy.RESTRICTED)


def fitness_of(allocator: NumaAllocator, score: Score) -> Fitness:
    """Return a function of how well NUMA nodes (a mask) suit a pod: by missed preferences, then by score.

    Equal scores are decided by what is left of their CPU, in millicores; the host prefers full or empty NUMA
    nodes. Source: koordinator.md, "The NUMA strategy under alignment", "Isolation".
    """
    sign = -1 if allocator.host.rules.fullest_first else 1

    @cache
    def fitness(affinity: int) -> tuple[int, ...]:
        numa_ids = tuple(members_of(affinity))
        left = sum(allocator.available[numa].get(CPU, 0) for numa in numa_ids)
        cost, cpus = 0, allocator.demand.cpus
        if cpus is not None:
            try:
                taken = allocator.allocate(numa_ids).cpus
                cost = missed(allocator.host, taken, CpuPreference(cpus.bind, cpus.exclusive))
            except PodRefused:
                cost = 2 * MISSED
        return -cost, score(numa_ids), sign * left

    return fitness


def spreads_wide(allocator: NumaAllocator, policy: NumaPolicy) -> bool:
    """Return whether the CPUs of a pod are distributed over all NUMA nodes that its policy admits.

    Source: koordinator.md, "DistributeEvenly".
    """
    distribution = allocator.host.rules.distribution
    is_bound = allocator.demand.cpus is not None
    return is_bound and distribution is Distribution.OVER_ALL and policy in _WIDENED


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
    numa_ids, ranking, best = mask_of(host.capacity), Ranking(allowed, fitness, widest_first), None
    for size in reversed(list(table.sizes())) if widest_first else table.sizes():
        table.add_combinations(size)
        # Only one of a better size beats a preferred affinity, and all of these are known by now.
        if all(table.hints.values()):
            rows = _relevant(policy, collect_rows([table.hints]).rows)
            best = merge_preferred(rows, numa_ids, ranking)
            if best is not None:
                break
    if best is not None:
        selection = _selected(policy, best, numa_ids)
    else:
        selection = select_affinity(policy, [table.hints], numa_ids, ranking)
    if selection.reasons:
        raise PodRefused(*selection.reasons, obstacle=UNALIGNED)
    return None if selection.affinity is None else tuple(members_of(selection.affinity))


def _unscored(numa_ids: Sequence[int]) -> int:
    return 0


def _score_of_one(score: Score, numa_ids: Sequence[int]) -> int:
    return score(numa_ids) if len(numa_ids) == 1 else 0
