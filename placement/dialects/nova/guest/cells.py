"""Guest NUMA cells: each node's CPUs split into shared and dedicated ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from placement.dialects.nova.guest.cpu_plan import CpuPlan
from placement.dialects.nova.guest.cpuset import format_cpuset
from placement.dialects.nova.guest.distribution import deal
from placement.dialects.nova.guest.guest_nodes import GuestNode


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
