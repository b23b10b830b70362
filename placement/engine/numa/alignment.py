"""The alignment of a pod to NUMA nodes of a host: hints, their merge, and the policies.

Hints are the sets of NUMA nodes that each resource of a pod could come from. They are collected for all
resources and merged into the best common set, which the policy of the host admits or refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from math import prod
from typing import NamedTuple

from placement.engine.numa import host as numa_host
from placement.engine.numa.allocator import NumaAllocator
from placement.engine.numa.combinations import NumaCombinations
from placement.engine.numa.cpus import mask_of, members_of
from placement.engine.scoring.host_scores import scorer_for
from placement.engine.scoring.order import DEFAULT_SCORING, Strategy
from placement.engine.scoring.rule import BEST

MISSING_NUMA_RESOURCES = "node(s) missing NUMA resources"


class Alignment(NamedTuple):
    """Parameters of alignment: the effective policy, exclusivity, and how NUMA nodes are scored.

    `favours_idle`: preferred exclusivity lets NUMA nodes without bound pods score higher.
    """

    policy: numa_host.NumaPolicy
    exclusivity: numa_host.NumaExclusivity = numa_host.NumaExclusivity.NONE
    scoring: Strategy = DEFAULT_SCORING
    favours_idle: bool = False

    @property
    def idle_counts(self) -> bool:
        """Whether NUMA nodes without bound pods score higher for this pod."""
        return self.favours_idle and self.exclusivity is numa_host.NumaExclusivity.PREFERRED


def choose_affinity(
    allocator: NumaAllocator, alignment: Alignment, fits: FitsOnNodes | None = None
) -> tuple[int, ...] | None:
    """Return the ascending NUMA ids to which a pod is aligned on a host; None if to none in particular.

    `fits` replaces `allocator.fits` if not everything that is free can be used together. Raises PodRefused
    if the policy does not admit the pod. Source: koordinator.md, "NUMA alignment".
    """
    host, policy = allocator.host, alignment.policy
    if not host.capacity:
        raise numa_host.PodRefused(
            MISSING_NUMA_RESOURCES,
            refusal_class=numa_host.RefusalClass.UNRESOLVABLE,
            obstacle=numa_host.UNALIGNED,
        )
    score, fitness = numa_scorer(allocator, alignment.scoring, alignment.idle_counts), None
    numa_combinations = NumaCombinations(allocator)
    if host.rules.isolation_first:
        fitness, score = fitness_of(allocator, score, numa_combinations), _unscored
    elif policy is numa_host.NumaPolicy.SINGLE_NUMA_NODE:
        # Wider combinations only serve to say why the pod is refused.
        score = partial(_score_of_one, score)
    widest_first = spreads_wide(allocator, policy)
    all_preferred = policy is numa_host.NumaPolicy.RESTRICTED or widest_first
    table = HintTable(allocator, numa_combinations, fits or allocator.fits, score, all_preferred)
    allowed = partial(is_allowed, exclusivity=alignment.exclusivity, neighbours=host.neighbours)
    numa_ids, criteria, best_hint = (
        mask_of(host.capacity),
        MergeCriteria(allowed, fitness, widest_first),
        None,
    )
    sizes = numa_combinations.sizes
    for size in reversed(sizes) if widest_first else sizes:
        table.add_combinations(size)
        # Only one of a better size beats a preferred affinity, and all of these are known by now.
        if all(table.hints.values()):
            rows = _relevant(policy, collect_rows([table.hints]).rows)
            best_hint = merge_preferred(rows, numa_ids, criteria)
            if best_hint is not None:
                break
    if best_hint is not None:
        selection = _selected(policy, best_hint, numa_ids)
    else:
        selection = select_affinity(policy, [table.hints], numa_ids, criteria)
    if selection.reasons:
        raise numa_host.PodRefused(*selection.reasons, obstacle=numa_host.UNALIGNED)
    return None if selection.affinity is None else tuple(members_of(selection.affinity))


def _unscored(numa_ids: Sequence[int]) -> int:
    return 0


def _score_of_one(score: Score, numa_ids: Sequence[int]) -> int:
    return score(numa_ids) if len(numa_ids) == 1 else 0


class Hint(NamedTuple):
    """One way to align: a mask of NUMA ids (None: any), and how the provider rates it."""

    affinity: int | None
    preferred: bool
    unsatisfied: bool = False
    score: int = 0


Hints = dict[str, list[Hint]]
"""Hints by resource; an empty list cannot be satisfied, a missing resource has no preference."""

FitsOnNodes = Callable[[Sequence[int]], bool]
Score = Callable[[Sequence[int]], int]


class HintTable:
    """A table of the hints of a pod on a host, found for ever wider combinations of NUMA nodes.

    `fits` returns whether the whole pod can be allocated on exactly these NUMA nodes, `score` how well.
    Source: koordinator.md, "Hints".
    """

    def __init__(
        self,
        allocator: NumaAllocator,
        numa_combinations: NumaCombinations,
        fits: FitsOnNodes,
        score: Score,
        all_preferred: bool,
    ) -> None:
        self.hints: Hints = {resource: [] for resource in allocator.known_requests}
        self._combinations = numa_combinations
        self._fits = fits
        self._score = score
        # The scores by kinds of NUMA nodes, None where the pod does not fit.
        self._scores: dict[tuple[int, ...], int | None] = {}
        self._all_preferred = all_preferred
        self._exhausted = {
            resource: mask_of(numa for numa, left in allocator.rooms[resource].items() if not left)
            for resource in self.hints
        }

    def add_combinations(self, size: int) -> None:
        """Add the hints of combinations of `size` NUMA nodes; narrower ones must be there already."""
        rows = [
            (hints, self._exhausted[resource], self._all_preferred or not hints)
            for resource, hints in self.hints.items()
        ]
        for nodes in self._combinations.of_size(size):
            affinity = mask_of(nodes)
            useful = [(hints, preferred) for hints, exhausted, preferred in rows if not affinity & exhausted]
            score = self._rate(nodes) if useful else None
            if score is not None:
                for hints, preferred in useful:
                    hints.append(Hint(affinity, preferred, False, score))

    def _rate(self, nodes: tuple[int, ...]) -> int | None:
        """Return the score of a combination, None if the pod does not fit; like ones are looked at once."""
        word = self._combinations.word(nodes)
        if word not in self._scores:
            self._scores[word] = self._score(nodes) if self._fits(nodes) else None
        return self._scores[word]


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
                preferred = _listed([hint for hint in hints if hint.preferred])
                found.append(f"{resource} prefer [{preferred}] among [{_listed(hints)}]")
    return sorted(found)


# As many as hosts of four NUMA nodes have; more are counted, as they only hide each other.
_MOST_NAMED = 15


def _listed(hints: Sequence[Hint]) -> str:
    named = " ".join(_binary(hint.affinity) for hint in hints[:_MOST_NAMED])
    return f"{named} and {len(hints) - _MOST_NAMED} more" if len(hints) > _MOST_NAMED else named


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


Row = Sequence[Hint]
Allowed = Callable[[int], bool]
Fitness = Callable[[int], tuple[int, ...]]
"""The fitness of an affinity, to be compared with the fitness of others."""

# Rows of hints multiply. More combinations than this are cut down by leaving out the widest hints, which
# could only win where no narrower ones agree.
MOST_COMBINATIONS = 20_000


class MergedHint(NamedTuple):
    """A merged affinity (mask of NUMA ids) and its merits."""

    affinity: int
    preferred: bool = False
    unsatisfied: bool = False
    score: int = 0

    @property
    def size(self) -> int:
        """How many NUMA nodes the affinity has."""
        return self.affinity.bit_count()


class MergeCriteria(NamedTuple):
    """The criteria that decide among merged affinities.

    `allowed` returns which may be preferred. `fitness` decides among affinities of one size; without it their
    scores do. `widest_first`: more NUMA nodes are better than fewer.
    """

    allowed: Allowed
    fitness: Fitness | None = None
    widest_first: bool = False

    def replaces(self, merged: MergedHint, best_hint: MergedHint) -> bool:
        """Return whether a later affinity is better than the best so far.

        Source: koordinator.md, "Merge", "The NUMA strategy under alignment".
        """
        if merged.preferred != best_hint.preferred:
            return merged.preferred
        if merged.size != best_hint.size:
            return (merged.size > best_hint.size) is self.widest_first
        if self.fitness is None:
            return merged.affinity < best_hint.affinity or merged.score > best_hint.score
        if merged.affinity == best_hint.affinity:
            return merged.score > best_hint.score
        mine, other = self.fitness(merged.affinity), self.fitness(best_hint.affinity)
        return (mine, -merged.affinity) > (other, -best_hint.affinity)


def merge_hints(rows: Sequence[Row], numa_ids: int, criteria: MergeCriteria) -> MergedHint:
    """Return the best combination of one hint per row; all NUMA nodes, not preferred, if none is better.

    `numa_ids` is the mask of the host's NUMA nodes. Source: koordinator.md, "Merge".
    """
    # Once there is a preferred combination no other one counts, and preferred ones are few and easy to find.
    preferred = merge_preferred(rows, numa_ids, criteria)
    return preferred or _best(product(*_narrowed(rows)), numa_ids, criteria)


def merge_preferred(rows: Sequence[Row], numa_ids: int, criteria: MergeCriteria) -> MergedHint | None:
    """Return the best combination of one hint per row if that is preferred; else None."""
    best_hint = _best(_preferred_combinations(rows), numa_ids, criteria)
    return best_hint if best_hint.preferred else None


def _best(combinations: Iterable[Sequence[Hint]], numa_ids: int, criteria: MergeCriteria) -> MergedHint:
    best_hint = MergedHint(numa_ids)
    for hints in combinations:
        merged = _merge(hints, numa_ids, criteria.allowed)
        if merged is not None and criteria.replaces(merged, best_hint):
            best_hint = merged
    return best_hint


def _merge(hints: Sequence[Hint], numa_ids: int, allowed: Allowed) -> MergedHint | None:
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
    return MergedHint(
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


_WIDENED = (numa_host.NumaPolicy.BEST_EFFORT, numa_host.NumaPolicy.RESTRICTED)


def fitness_of(allocator: NumaAllocator, score: Score, numa_combinations: NumaCombinations) -> Fitness:
    """Return a function of how well NUMA nodes (a mask) suit a pod: by missed preferences, then by score.

    Equal scores are decided by what is left of their CPU, in millicores; the host prefers full or empty NUMA
    nodes. Source: koordinator.md, "The NUMA strategy under alignment", "Isolation".
    """
    sign = -1 if allocator.host.rules.fullest_first else 1

    known: dict[tuple[int, ...], tuple[int, ...]] = {}

    def fitness(affinity: int) -> tuple[int, ...]:
        numa_ids = tuple(members_of(affinity))
        word = numa_combinations.word(numa_ids)
        if word not in known:
            known[word] = rated(numa_ids)
        return known[word]

    def rated(numa_ids: tuple[int, ...]) -> tuple[int, ...]:
        left = sum(allocator.available[numa].get(numa_host.CPU, 0) for numa in numa_ids)
        cost, cpus = 0, allocator.demand.cpus
        if cpus is not None:
            try:
                taken = allocator.allocate(numa_ids).cpus
                cost = numa_host.missed(
                    allocator.host, taken, numa_host.CpuPreference(cpus.bind, cpus.exclusive)
                )
            except numa_host.PodRefused:
                cost = 2 * numa_host.MISSED
        return -cost, score(numa_ids), sign * left

    return fitness


def spreads_wide(allocator: NumaAllocator, policy: numa_host.NumaPolicy) -> bool:
    """Return whether the CPUs of a pod are distributed over all NUMA nodes that its policy admits.

    Source: koordinator.md, "DistributeEvenly".
    """
    distribution = allocator.host.rules.distribution
    is_bound = allocator.demand.cpus is not None
    return is_bound and distribution is numa_host.Distribution.OVER_ALL and policy in _WIDENED


class Selection(NamedTuple):
    """A chosen mask of NUMA ids (None: no affinity), its merits, and reasons if it is not admitted."""

    affinity: int | None
    preferred: bool = False
    unsatisfied: bool = False
    reasons: tuple[str, ...] = ()


def admits(policy: numa_host.NumaPolicy, preferred: bool) -> bool:
    """Return whether a policy admits a pod, given whether its merged hint is preferred.

    Source: koordinator.md, "Policies".
    """
    return preferred or policy in (numa_host.NumaPolicy.NONE, numa_host.NumaPolicy.BEST_EFFORT)


def select_affinity(
    policy: numa_host.NumaPolicy,
    providers: Sequence[ProviderHints | None],
    numa_ids: int,
    criteria: MergeCriteria,
) -> Selection:
    """Return the affinity that a policy makes of all hints on a host with these NUMA nodes (a mask).

    A selection with reasons is not admitted.
    Source: koordinator.md, "Policies".
    """
    if policy is numa_host.NumaPolicy.NONE:
        return Selection(None)
    rows, reasons = collect_rows(providers)
    if reasons and policy is not numa_host.NumaPolicy.BEST_EFFORT:
        return Selection(numa_ids if policy is numa_host.NumaPolicy.RESTRICTED else None, reasons=reasons)
    best_hint = merge_hints(_relevant(policy, rows), numa_ids, criteria)
    selection = _selected(policy, best_hint, numa_ids)
    if admits(policy, best_hint.preferred):
        return selection
    separator = " & " if policy is numa_host.NumaPolicy.RESTRICTED else ","
    reasons = (f"Unaligned NUMA Hint cause {separator.join(summarize(providers))}",)
    return selection._replace(reasons=reasons)


def _relevant(policy: numa_host.NumaPolicy, rows: Sequence[Row]) -> Sequence[Row]:
    return single_numa_rows(rows) if policy is numa_host.NumaPolicy.SINGLE_NUMA_NODE else rows


def _selected(policy: numa_host.NumaPolicy, best_hint: MergedHint, numa_ids: int) -> Selection:
    if policy is numa_host.NumaPolicy.BEST_EFFORT and best_hint.unsatisfied:
        return Selection(numa_ids)
    # A host with a single NUMA node needs no accounts per NUMA node.
    aligned = policy is not numa_host.NumaPolicy.SINGLE_NUMA_NODE or best_hint.affinity != numa_ids
    return Selection(best_hint.affinity if aligned else None, best_hint.preferred, best_hint.unsatisfied)


def is_allowed(
    affinity: int, exclusivity: numa_host.NumaExclusivity, neighbours: numa_host.NumaNeighbours
) -> bool:
    """Return whether a mask of NUMA ids respects required exclusivity; preferred exclusivity allows all.

    Several NUMA nodes may not include one with pods of its own, and a single one may not be shared.
    Source: koordinator.md, "NUMA exclusivity".
    """
    if exclusivity is not numa_host.NumaExclusivity.REQUIRED:
        return True
    several = affinity.bit_count() > 1
    return not affinity & (neighbours.single if several else neighbours.shared)


def favour_idle(score: int, numa_ids: int, neighbours: numa_host.NumaNeighbours, best: int = BEST) -> int:
    """Return a score, 0 to `best`, moved halfway to the share of these NUMA nodes without bound pods.

    Source: koordinator.md, "Preferred NUMA exclusivity".
    """
    idle = numa_ids & ~neighbours.single & ~neighbours.shared
    return (score + best * idle.bit_count() // max(1, numa_ids.bit_count())) // 2


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
    score_of, best = scorer_for(scoring, numa_host.demand_costs(host, allocator.demand)), scoring.max_score

    def score(numa_ids: Sequence[int]) -> int:
        points = score_of(_summed(used, numa_ids), _summed(capacity, numa_ids))
        return favour_idle(points, mask_of(numa_ids), host.neighbours, best) if idle_counts else points

    return score


def _summed(rows: Mapping[str, Mapping[int, int]], numa_ids: Sequence[int]) -> numa_host.ResourceAmounts:
    return {resource: sum(map(row.__getitem__, numa_ids)) for resource, row in rows.items()}
