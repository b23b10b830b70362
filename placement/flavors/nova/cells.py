"""Guest NUMA cells: the shared and dedicated CPUs of each node, and cells as request groups."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from placement.engine.domain.tree_specs import NUMA_ROOT
from placement.engine.numa.cpus import format_cpu_list
from placement.flavors.nova.cpu_plan import CpuPlan
from placement.flavors.nova.extra_specs import MEMORY_MB, PCPU, VCPU
from placement.flavors.nova.flavor_groups import BASE, FlavorGroup, FlavorGroups
from placement.flavors.nova.guest_nodes import GuestNode
from placement.flavors.nova.problems import Problems

CELL_SUFFIX = "_numa"
PER_CELL = (VCPU, PCPU, MEMORY_MB)


@dataclass(frozen=True, slots=True)
class Cell:
    """One guest NUMA cell: shared and dedicated guest CPU ids, both ascending, and memory in MiB."""

    id: int
    cpuset: tuple[int, ...]
    pcpuset: tuple[int, ...]
    memory: int


def split_cells(nodes: Sequence[GuestNode], plan: CpuPlan) -> tuple[Cell, ...]:
    """Return the cells of a settled plan: known dedicated CPUs are cut by node, amounts dealt in turn.

    Source: nova-flavors.md, "Maps", "Round robin for a mixed policy from amounts".
    """
    dedicated = plan.dedicated
    if dedicated is None:
        sizes = [len(node.cpus) for node in nodes]
        dealt = deal(sizes, sum(sizes) - plan.dedicated_count, plan.dedicated_count)
        # In each node the shared CPUs come before the dedicated ones.
        tails = (node.cpus[shared:] for node, (shared, _) in zip(nodes, dealt, strict=True))
        dedicated = frozenset().union(*tails)
    return tuple(
        Cell(
            number,
            tuple(cpu for cpu in node.cpus if cpu not in dedicated),
            tuple(cpu for cpu in node.cpus if cpu in dedicated),
            node.memory_mb,
        )
        for number, node in enumerate(nodes)
    )


def deal(cell_sizes: Sequence[int], shared: int, dedicated: int) -> list[tuple[int, int]]:
    """Return how many (shared, dedicated) CPUs each cell gets; the counts have to fill the cells exactly.

    One walk over the cells gives out all shared CPUs and then, without starting over, all dedicated ones; a
    full cell is skipped. So only the shared CPUs have to be walked: the dedicated ones fill the rest.
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


def dedicated_cpus(cells: Sequence[Cell]) -> str:
    """Return all dedicated guest CPUs of the cells as CPU set text, or empty if there are none.

    Source: nova-flavors.md, "dedicated_cpus", "Writing a set back".
    """
    return format_cpu_list(cpu for cell in cells for cpu in cell.pcpuset)


def cell_totals(cells: Sequence[Cell], emulator_cpus: int) -> dict[str, int]:
    """Return the amounts of all cells together, the emulator's CPU included."""
    return {
        VCPU: sum(len(cell.cpuset) for cell in cells),
        PCPU: sum(len(cell.pcpuset) for cell in cells) + emulator_cpus,
        MEMORY_MB: sum(cell.memory for cell in cells),
    }


def cell_groups(cells: Sequence[Cell], emulator_cpus: int) -> dict[str, FlavorGroup]:
    """Return one group per cell with its CPUs and memory, on a NUMA root; cell 0 carries the emulator.

    Source: nova-flavors.md, "NUMA cells as request groups".
    """
    groups: dict[str, FlavorGroup] = {}
    for cell in cells:
        amounts = cell_totals((cell,), emulator_cpus if cell.id == 0 else 0)
        asked = {name: amount for name, amount in amounts.items() if amount}
        groups[f"{CELL_SUFFIX}{cell.id}"] = FlavorGroup(asked, required=frozenset((NUMA_ROOT,)))
    return groups


def without_cells(base_group: FlavorGroup) -> tuple[FlavorGroup, tuple[str, ...]]:
    """Return the base group without the amounts of cells, and traits that move to the root if it is empty.

    Traits stay in the group while it has resources, because a group of traits alone is not allowed.
    Source: nova-flavors.md, "NUMA cells as request groups".
    """
    rest = {name: amount for name, amount in base_group.resources.items() if name not in PER_CELL}
    if rest:
        return FlavorGroup(rest, base_group.required, base_group.forbidden), ()
    return FlavorGroup(), base_group.traits


def check_no_override(groups: FlavorGroups, totals: Mapping[str, int], problems: Problems) -> None:
    """Add `numa_override_conflict` unless the base group holds just the totals (class -> amount) of cells.

    A class that is not in `totals` is not compared. No suffixed group may ask for what the cells ask for, nor
    have a suffix like theirs. Source: nova-flavors.md, "NUMA cells as request groups".
    """
    base = groups.get(BASE, FlavorGroup())
    for name, total in totals.items():
        amount = base.resources.get(name, 0)
        if amount != total:
            problems.add(
                "numa_override_conflict",
                f"resources:{name}",
                f"the base group asks for {amount}, the guest NUMA cells for {total}",
            )
    for suffix, group in groups.items():
        if suffix.startswith(CELL_SUFFIX):
            problems.add(
                "numa_override_conflict", f"resources{suffix}", f"{CELL_SUFFIX}... is for guest NUMA cells"
            )
        for name in PER_CELL:
            if suffix != BASE and name in group.resources:
                problems.add(
                    "numa_override_conflict", f"resources{suffix}:{name}", "the guest NUMA cells ask for it"
                )
