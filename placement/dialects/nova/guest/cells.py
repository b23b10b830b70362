"""Guest NUMA cells: each node's CPUs split into shared and dedicated ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from placement.dialects.nova.guest.cpu_plan import CpuPlan
from placement.dialects.nova.guest.cpuset import format_cpuset
from placement.dialects.nova.guest.guest_nodes import GuestNode


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


@dataclass(frozen=True, slots=True)
class Cell:
    """One guest NUMA cell: shared and dedicated guest CPU ids, both ascending, and memory in MiB."""

    id: int
    cpuset: tuple[int, ...]
    pcpuset: tuple[int, ...]
    memory_mb: int


def split_cells(nodes: Sequence[GuestNode], plan: CpuPlan) -> tuple[Cell, ...]:
    """The cells of a settled plan: known dedicated CPUs are cut along the nodes, amounts dealt in turn.

    Source: nova-flavors.md, "Maps", "Round robin for a mixed policy from amounts".
    """
    if plan.dedicated is None:
        return _dealt(nodes, plan.dedicated_count)
    return tuple(
        Cell(
            number,
            tuple(cpu for cpu in node.cpus if cpu not in plan.dedicated),
            tuple(cpu for cpu in node.cpus if cpu in plan.dedicated),
            node.memory_mb,
        )
        for number, node in enumerate(nodes)
    )


def dedicated_cpus(cells: Sequence[Cell]) -> str:
    """All dedicated guest CPUs of the cells as CPU set text, empty if there are none.

    Source: nova-flavors.md, "dedicated_cpus".
    """
    return format_cpuset(cpu for cell in cells for cpu in cell.pcpuset)


def _dealt(nodes: Sequence[GuestNode], dedicated: int) -> tuple[Cell, ...]:
    sizes = [len(node.cpus) for node in nodes]
    dealt = deal(sizes, sum(sizes) - dedicated, dedicated)
    return tuple(
        # In each node the shared CPUs come before the dedicated ones.
        Cell(number, node.cpus[:shared], node.cpus[shared:], node.memory_mb)
        for number, (node, (shared, _)) in enumerate(zip(nodes, dealt, strict=True))
    )
