"""NUMA exclusivity: keeping pods on one NUMA node apart from pods over several."""

from __future__ import annotations

from placement.numa.demand import NumaExclusivity
from placement.numa.ledger import NumaNeighbours
from placement.scoring.rule import BEST


def is_allowed(affinity: int, exclusivity: NumaExclusivity, neighbours: NumaNeighbours) -> bool:
    """Whether a mask of NUMA ids respects required exclusivity; one that is only preferred always does.

    Several NUMA nodes may not include one with pods of its own, and a single one may not be shared.
    Source: koordinator.md, "NUMA exclusivity".
    """
    if exclusivity is not NumaExclusivity.REQUIRED:
        return True
    several = affinity.bit_count() > 1
    return not affinity & (neighbours.single if several else neighbours.shared)


def favour_idle(score: int, numa_ids: int, neighbours: NumaNeighbours, best: int = BEST) -> int:
    """A score of 0 to `best` drawn halfway towards the share of these NUMA nodes that have no bound pods.

    Source: koordinator.md, "Preferred NUMA exclusivity".
    """
    idle = numa_ids & ~neighbours.single & ~neighbours.shared
    return (score + best * idle.bit_count() // max(1, numa_ids.bit_count())) // 2
