"""Making one affinity out of the hints of all resources."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import product
from math import prod
from typing import NamedTuple

from placement.numa.alignment.hints import Hint

Row = Sequence[Hint]
Allowed = Callable[[int], bool]
Fitness = Callable[[int], tuple[int, ...]]
"""How well an affinity suits, to be compared with that of others."""

# Rows of hints multiply. More combinations than this are cut down by leaving out the widest hints, which
# could only win where no narrower ones agree.
MOST_COMBINATIONS = 20_000


class Merged(NamedTuple):
    """A merged affinity (mask of NUMA ids) and what it is worth."""

    affinity: int
    preferred: bool = False
    unsatisfied: bool = False
    score: int = 0

    @property
    def size(self) -> int:
        """How many NUMA nodes it is."""
        return self.affinity.bit_count()


class Ranking(NamedTuple):
    """What decides among merged affinities.

    `allowed` says which may be preferred. `fitness` decides among those of one size, without it their
    scores do. `widest_first`: more NUMA nodes are better than fewer.
    """

    allowed: Allowed
    fitness: Fitness | None = None
    widest_first: bool = False

    def replaces(self, merged: Merged, best: Merged) -> bool:
        """Whether an affinity that comes later is better than the best so far.

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
        return self._key(self.fitness, merged) > self._key(self.fitness, best)

    def _key(self, fitness: Fitness, merged: Merged) -> tuple[tuple[int, ...], int]:
        return fitness(merged.affinity), -merged.affinity


def merge_hints(rows: Sequence[Row], numa_ids: int, ranking: Ranking) -> Merged:
    """The best combination of one hint per row; all NUMA nodes, not preferred, if none is better.

    `numa_ids` is the mask of the host's NUMA nodes. Source: koordinator.md, "Merge".
    """
    # Once there is a preferred combination no other one counts, and those are few and easy to find.
    preferred = merge_preferred(rows, numa_ids, ranking)
    return preferred or _best(product(*_narrowed(rows)), numa_ids, ranking)


def merge_preferred(rows: Sequence[Row], numa_ids: int, ranking: Ranking) -> Merged | None:
    """The best combination of one hint per row if that is preferred; else None."""
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
    """The combinations of preferred hints with a common affinity, in the order of the cartesian product."""
    places = [_preferred_places(row) for row in rows]
    chosen: set[tuple[int, ...]] = set()
    for affinity in set().union(*places):
        chosen.update(product(*({*of.get(affinity, ()), *of.get(None, ())} for of in places)))
    for combination in sorted(chosen):
        yield [row[place] for row, place in zip(rows, combination, strict=True)]


def _preferred_places(row: Row) -> dict[int | None, list[int]]:
    """Where in a row the preferred hints of each affinity are."""
    places: dict[int | None, list[int]] = {}
    for place, hint in enumerate(row):
        if hint.preferred:
            places.setdefault(hint.affinity, []).append(place)
    return places


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
