"""Hints: the sets of NUMA nodes that each resource of a pod could come from."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from math import comb
from typing import NamedTuple

from placement.numa.allocator import NumaAllocator
from placement.numa.cpuset import mask_of

# Hosts of eight NUMA nodes have 255 combinations. Beyond this many only narrow ones and the whole host are
# looked at: nothing real is built that way, and a made-up topology must not stop the service.
MOST_COMBINATIONS = 4096


class Hint(NamedTuple):
    """One way to align: a mask of NUMA ids (None: does not care), and what the provider thinks of it."""

    affinity: int | None
    preferred: bool
    unsatisfied: bool = False
    score: int = 0


Hints = dict[str, list[Hint]]
"""By resource; an empty list cannot be satisfied, a missing resource does not care."""

Fits = Callable[[Sequence[int]], bool]
Score = Callable[[Sequence[int]], int]


class HintTable:
    """The hints of a pod on a host, found for ever wider combinations of NUMA nodes.

    `fits` answers whether the whole pod can be allocated on exactly these NUMA nodes, `score` how well.
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
        """The sizes of combinations that could have hints, ascending."""
        nodes, looked_at = len(self._numa_ids), 0
        for size in range(self._fewest, nodes + 1):
            looked_at += comb(nodes, size)
            if size == nodes or looked_at <= MOST_COMBINATIONS:
                yield size

    def add_combinations(self, size: int) -> None:
        """Add the hints of all combinations of that many NUMA nodes; expects narrower ones to be there."""
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
