"""Core trees: hosts whose dedicated CPUs are given by providers of their own, below those of the memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement.forest.arrays import Indices, Mask
from placement.forest.forest import Forest


@dataclass(frozen=True, slots=True)
class IsCoreTree:
    """Providers of the class `cpus` are below one of the class `memory`, with no NUMA node on the way.

    `numa_node` is the id of the trait HW_NUMA_ROOT. If not `wanted`, met by all other trees.
    Source: nova-flavors.md, "Core trees".
    """

    memory: int
    cpus: int
    numa_node: int
    wanted: bool = True

    def among(self, forest: Forest, roots: Indices) -> Mask:
        """Which of the roots meet it."""
        meeting: Mask = self._everywhere(forest)[roots] == self.wanted
        return meeting

    def _everywhere(self, forest: Forest) -> Mask:
        """Which rows are roots of core trees."""
        below, apart = np.zeros((2, forest.count), bool)
        cpus, memory = forest.column(self.cpus), forest.column(self.memory)
        at: Indices = cpus.entries.provider[cpus.occupied()]
        passed = np.zeros(len(at), bool)
        while len(at) and not forest.is_flat:
            passed |= forest.traits.satisfying(at, (frozenset((self.numa_node,)),), frozenset())
            above = forest.providers.parent[at]
            at, passed = above[above >= 0], passed[above >= 0]
            gives = memory.entries_of(at) >= 0
            roots = forest.providers.root[at]
            below[roots[gives]] = True
            apart[roots[gives & passed]] = True
        return below & ~apart
