"""Core trees: hosts whose dedicated CPUs are given by providers of their own, below those of the memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from placement.forest.arrays import Indices, Mask
from placement.forest.forest import Forest


@dataclass(frozen=True, slots=True)
class IsCoreTree:
    """Some provider of the class `cpus` is below one of the class `memory`; if not `wanted`, none is.

    Source: nova-flavors.md, "Core trees".
    """

    memory: int
    cpus: int
    wanted: bool = True

    def among(self, forest: Forest, roots: Indices) -> Mask:
        """Which of the roots meet it."""
        meeting: Mask = self._everywhere(forest)[roots] == self.wanted
        return meeting

    def _everywhere(self, forest: Forest) -> Mask:
        """Which rows are roots of core trees."""
        found = np.zeros(forest.count, bool)
        column, memory = forest.column(self.cpus), forest.column(self.memory)
        givers = column.entries.provider[column.occupied()]
        above = givers
        while len(above) and not forest.is_flat:
            above = forest.providers.parent[above]
            givers, above = givers[above >= 0], above[above >= 0]
            found[forest.providers.root[givers[memory.entries_of(above) >= 0]]] = True
        return found
