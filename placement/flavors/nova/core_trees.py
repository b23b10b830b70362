"""The query of a flavor for core trees: each guest cell's memory of one provider, dedicated CPUs below it.

Nova knows hosts that give all dedicated CPUs themselves, and checks cells and siblings there afterwards.
Where each core is a provider, no provider gives more than a core, and nothing is checked afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from placement.engine.domain.groups import CandidateQuery, RequestGroup, SplitRule
from placement.flavors.nova import cells as nova_cells
from placement.flavors.nova import cpu_facts
from placement.flavors.nova.extra_specs import PCPU
from placement.flavors.nova.flavor_groups import BASE, FlavorGroups, stripped
from placement.flavors.nova.flavor_request import CpuShare, Request
from placement.flavors.nova.problems import Problems

EMULATOR_SUFFIX = f"{nova_cells.CELL_SUFFIX}_emulator"
_RULES: Mapping[str | None, SplitRule] = {
    cpu_facts.REQUIRE: SplitRule.REQUIRE,
    cpu_facts.ISOLATE: SplitRule.ISOLATE,
}


def core_tree_query(request: Request, cpus: CpuShare, threads: str | None) -> CandidateQuery | None:
    """Return the query for core trees, or None if it does not differ from the one for other hosts.

    `request` holds totals in its base group, without the traits of a thread policy key, and the ties of
    device groups. The answer is None also for guests without cells, and where amounts or suffixes of the
    flavor leave no room for cells.
    Source: nova-flavors.md, "Core trees".
    """
    cells = _cells(request.groups, cpus)
    if not cells or any(suffix.startswith(nova_cells.CELL_SUFFIX) for suffix in request.groups):
        return None
    base, root_traits = nova_cells.without_cells(request.groups[BASE])
    groups = []
    for suffix, group in stripped({**request.groups, BASE: base}).items():
        required = tuple(frozenset((trait,)) for trait in sorted(group.required))
        groups.append(RequestGroup(suffix, group.resources, required=required, forbidden=group.forbidden))
    rule = _RULES.get(threads, SplitRule.PACK)
    # The emulator's CPU would upset pairs of the first cell.
    apart = cpus.emulator_cpus if rule is SplitRule.REQUIRE else 0
    groups += _cell_groups(cells, rule, apart)
    ties = [(f"{nova_cells.CELL_SUFFIX}0", EMULATOR_SUFFIX)] if apart else []
    return CandidateQuery(
        groups=tuple(groups),
        # Each guest cell is on a node of its own.
        isolate=request.group_policy == "isolate" or len(cells) > 1,
        same_subtree=tuple(map(frozenset, (*request.same_subtree, *ties))),
        root_required=frozenset(name for name in root_traits if not name.startswith("!")),
        root_forbidden=frozenset(name[1:] for name in root_traits if name.startswith("!")),
    )


def _cell_groups(
    cells: Mapping[str, Mapping[str, int]], rule: SplitRule, apart: int
) -> Iterator[RequestGroup]:
    """Yield a group for each cell, and one for the CPUs of the emulator that stand apart."""
    for number, (suffix, amounts) in enumerate(cells.items()):
        whole = {name: amount for name, amount in amounts.items() if name != PCPU}
        dedicated = amounts.get(PCPU, 0) - (0 if number else apart)
        split = {PCPU: dedicated} if dedicated else {}
        yield RequestGroup(suffix, {**whole, **split}, split=frozenset(split), split_rule=rule)
    if apart:
        yield RequestGroup(EMULATOR_SUFFIX, {PCPU: apart}, split=frozenset((PCPU,)))


def _cells(groups: FlavorGroups, cpus: CpuShare) -> dict[str, Mapping[str, int]]:
    """Return the amounts of each cell by suffix, the emulator's CPU included; empty if they are unknown.

    A single cell is the base group, whatever its amounts; amounts of several must be the flavor's own.
    """
    if not cpus.cells or BASE not in groups:
        return {}
    cells: dict[str, Mapping[str, int]]
    if len(cpus.cells) == 1:
        amounts = groups[BASE].resources
        cells = {
            f"{nova_cells.CELL_SUFFIX}0": {
                name: amounts[name] for name in nova_cells.PER_CELL if name in amounts
            }
        }
    else:
        problems = Problems()
        nova_cells.check_no_override(groups, nova_cells.cell_totals(cpus.cells, cpus.emulator_cpus), problems)
        if len(problems):
            return {}
        asked = nova_cells.cell_groups(cpus.cells, cpus.emulator_cpus)
        cells = {suffix: group.resources for suffix, group in asked.items()}
    # A cell that has nothing beside dedicated CPUs could get these from anywhere in a tree.
    return cells if all(amounts.keys() - {PCPU} for amounts in cells.values()) else {}
