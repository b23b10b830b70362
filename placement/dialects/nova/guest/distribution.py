"""Dealing shared and dedicated CPUs to guest NUMA cells in turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence


def deal(cell_sizes: Sequence[int], shared: int, dedicated: int) -> list[tuple[int, int]]:
    """How many (shared, dedicated) CPUs each cell gets; the counts have to fill the cells exactly.

    One walk over the cells gives out all shared CPUs and then, without starting over, all dedicated ones; a
    full cell is skipped. So only the shared CPUs have to be walked: the dedicated ones fill what is left.
    Raises ValueError. Source: nova-flavors.md, "Round robin for a mixed policy from amounts".
    """
    if shared < 0 or dedicated < 0 or min(cell_sizes, default=0) < 0 or shared + dedicated != sum(cell_sizes):
        raise ValueError(
            f"{shared} shared and {dedicated} dedicated CPUs do not fill cells of {list(cell_sizes)}"
        )
    dealt = [0] * len(cell_sizes)
    waiting = deque(cell for cell, size in enumerate(cell_sizes) if size)
    for _ in range(shared):
        cell = waiting.popleft()
        dealt[cell] += 1
        if dealt[cell] < cell_sizes[cell]:
            waiting.append(cell)
    return [(given, size - given) for given, size in zip(dealt, cell_sizes, strict=True)]
