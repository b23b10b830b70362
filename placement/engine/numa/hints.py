"""Hints: the sets of NUMA nodes that each resource of a pod could come from."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from itertools import combinations, product
from math import comb, prod
from typing import NamedTuple

from placement.engine.numa.allocator import NumaAllocator
from placement.engine.numa.amounts import CPU
from placement.engine.numa.cpuset import mask_of, members_of
from placement.engine.numa.demand import Distribution, NumaPolicy, PodRefused
from placement.engine.numa.host import MISSED, CpuPreference, missed

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
