"""The use of the CPUs of a host: how often each is held, and by pods of which exclusive level."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from placement.numa.policies import ExclusiveLevel


@dataclass(frozen=True, slots=True)
class CpuUse:
    """The held CPUs of a host as masks.

    `counts[i]` are the CPUs held at least i + 1 times, without empty masks at the end; `pcpu_level` and
    `numa_level` are held CPUs whose last recorded pod has that exclusive level.
    Source: koordinator.md, "Sharing", "Exclusivity".
    """

    counts: tuple[int, ...] = ()
    pcpu_level: int = 0
    numa_level: int = 0

    @property
    def held(self) -> int:
        """Every CPU that is held at all."""
        return self.counts[0] if self.counts else 0

    def saturated(self, limit: int) -> int:
        """The CPUs held `limit` times or more."""
        return self.counts[limit - 1] if len(self.counts) >= limit else 0

    def plus(self, cpus: int, level: ExclusiveLevel = ExclusiveLevel.NONE) -> CpuUse:
        """The use after one more pod of that level holds these CPUs."""
        counts, carried = [], cpus
        for layer in self.counts:
            counts.append(layer | carried)
            carried &= layer
        if carried:
            counts.append(carried)
        return CpuUse(
            tuple(counts),
            self.pcpu_level | cpus if level is ExclusiveLevel.PCPU_LEVEL else self.pcpu_level & ~cpus,
            self.numa_level | cpus if level is ExclusiveLevel.NUMA_NODE_LEVEL else self.numa_level & ~cpus,
        )

    def without(self, returned: Iterable[int]) -> CpuUse:
        """The use as if each of these sets of CPUs were held once less; CPUs without a holder are free.

        Source: koordinator.md, "Available CPUs and the view".
        """
        counts = self.counts
        for cpus in returned:
            above = (*counts[1:], 0)
            counts = tuple((layer & ~cpus) | (above[i] & cpus) for i, layer in enumerate(counts))
        while counts and not counts[-1]:
            counts = counts[:-1]
        held = counts[0] if counts else 0
        return CpuUse(counts, self.pcpu_level & held, self.numa_level & held)

    def sum_of_counts(self, cpus: int) -> int:
        """How often these CPUs are held, summed over them."""
        return sum((layer & cpus).bit_count() for layer in self.counts)
