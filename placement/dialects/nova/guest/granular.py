"""Guest NUMA cells as request groups, for hosts with one provider per NUMA node."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from placement.dialects.nova.errors import Problems
from placement.dialects.nova.groups import BASE, FlavorGroup, Groups
from placement.dialects.nova.guest.cells import Cell
from placement.dialects.nova.resource_classes import MEMORY_MB, PCPU, VCPU
from placement.domain.traits import NUMA_ROOT

CELL_SUFFIX = "_numa"
PER_CELL = (VCPU, PCPU, MEMORY_MB)


def check_no_override(groups: Groups, totals: Mapping[str, int], problems: Problems) -> None:
    """`numa_override_conflict` unless the base group holds exactly the totals (class -> amount) of the cells.

    A class that is not in `totals` is not compared. No suffixed group may ask for what the cells ask for, nor
    have a suffix like theirs. Source: nova-flavors.md, "NUMA cells as request groups".
    """
    base = groups.get(BASE, FlavorGroup())
    for name, total in totals.items():
        amount = base.resources.get(name, 0)
        if amount != total:
            problems.add(
                "numa_override_conflict",
                f"resources:{name}: the base group asks for {amount}, the guest NUMA cells for {total}",
            )
    for suffix, group in groups.items():
        if suffix.startswith(CELL_SUFFIX):
            problems.add(
                "numa_override_conflict", f"resources{suffix}: {CELL_SUFFIX}... is for guest NUMA cells"
            )
        for name in PER_CELL:
            if suffix != BASE and name in group.resources:
                problems.add(
                    "numa_override_conflict", f"resources{suffix}:{name}: the guest NUMA cells ask for it"
                )


def isolated_policy(group_policy: str | None, cell_count: int, problems: Problems) -> str | None:
    """The group policy with this many cells: isolate from two on, else `group_policy_conflict`.

    Source: nova-flavors.md, "NUMA cells as request groups".
    """
    if cell_count < 2:
        return group_policy
    if group_policy == "none":
        problems.add(
            "group_policy_conflict",
            f"group_policy: none, but {cell_count} guest NUMA cells need nodes of their own",
        )
    return "isolate"


def cell_totals(cells: Sequence[Cell], emulator_cpus: int) -> dict[str, int]:
    """What the cells ask for together, the emulator's CPU included."""
    return {
        VCPU: sum(len(cell.cpuset) for cell in cells),
        PCPU: sum(len(cell.pcpuset) for cell in cells) + emulator_cpus,
        MEMORY_MB: sum(cell.memory_mb for cell in cells),
    }


def cell_groups(cells: Sequence[Cell], emulator_cpus: int) -> dict[str, FlavorGroup]:
    """One group per cell with its CPUs and memory, on a NUMA root; cell 0 carries the emulator.

    Source: nova-flavors.md, "NUMA cells as request groups".
    """
    groups: dict[str, FlavorGroup] = {}
    for cell in cells:
        amounts = cell_totals((cell,), emulator_cpus if cell.id == 0 else 0)
        asked = {name: amount for name, amount in amounts.items() if amount}
        groups[f"{CELL_SUFFIX}{cell.id}"] = FlavorGroup(asked, required=frozenset((NUMA_ROOT,)))
    return groups


def without_cells(base: FlavorGroup) -> tuple[FlavorGroup, tuple[str, ...]]:
    """The base group without what the cells ask for, and the traits that move to the root as it is empty.

    Traits stay in the group while it has resources, because a group of traits alone is not allowed.
    Source: nova-flavors.md, "NUMA cells as request groups".
    """
    rest = {name: amount for name, amount in base.resources.items() if name not in PER_CELL}
    if rest:
        return FlavorGroup(rest, base.required, base.forbidden), ()
    return FlavorGroup(), base.traits
