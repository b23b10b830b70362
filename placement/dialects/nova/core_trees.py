"""What a flavor asks of core trees: each guest cell's memory of one provider, dedicated CPUs from below it.

Nova knows hosts that give all dedicated CPUs themselves, and checks cells and siblings there afterwards.
Where each core is a provider, nobody gives more than a core and nobody checks afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from placement.dialects.nova.errors import Problems
from placement.dialects.nova.groups import BASE, FlavorGroup, Groups, stripped
from placement.dialects.nova.guest import granular, thread_policy
from placement.dialects.nova.guest.granular import CELL_SUFFIX, PER_CELL
from placement.dialects.nova.request import CpuShare, Request
from placement.dialects.nova.resource_classes import PCPU
from placement.domain.groups import CandidateQuery, RequestGroup, SplitRule

EMULATOR_SUFFIX = f"{CELL_SUFFIX}_emulator"
_RULES: Mapping[str | None, SplitRule] = {
    thread_policy.REQUIRE: SplitRule.REQUIRE,
    thread_policy.ISOLATE: SplitRule.ISOLATE,
}


def core_tree_query(asked: Request, cpus: CpuShare, threads: str | None) -> CandidateQuery | None:
    """The query for core trees; None if these are asked the same as other hosts.

    `asked` holds totals in its base group, without the traits of a thread policy key, and what device groups
    are tied to. The same is asked of guests without cells, and where amounts or suffixes of the flavor leave
    no room for cells.
    Source: nova-flavors.md, "Core trees".
    """
    cells = _cells(asked.groups, cpus)
    if not cells or any(suffix.startswith(CELL_SUFFIX) for suffix in asked.groups):
        return None
    base, root_traits = granular.without_cells(asked.groups[BASE])
    rest = [_plain_group(*each) for each in stripped({**asked.groups, BASE: base}).items()]
    split = list(_split_groups(cells, _RULES.get(threads, SplitRule.PACK), cpus.emulator_cpus))
    ties = [(f"{CELL_SUFFIX}0", EMULATOR_SUFFIX)] if split[-1].suffix == EMULATOR_SUFFIX else []
    return CandidateQuery(
        groups=(*rest, *split),
        # Each guest cell is on a node of its own.
        isolate=asked.group_policy == "isolate" or len(cells) > 1,
        same_subtree=tuple(map(frozenset, (*asked.same_subtree, *ties))),
        root_required=frozenset(name for name in root_traits if not name.startswith("!")),
        root_forbidden=frozenset(name[1:] for name in root_traits if name.startswith("!")),
    )


def _cells(groups: Groups, cpus: CpuShare) -> dict[str, Mapping[str, int]]:
    """What each cell asks for by suffix, the emulator's CPU included; nothing if that cannot be told.

    The base group is the only cell, whatever its amounts are; those of several have to be the flavor's own.
    """
    if not cpus.cells or BASE not in groups:
        return {}
    cells: dict[str, Mapping[str, int]]
    if len(cpus.cells) == 1:
        amounts = groups[BASE].resources
        cells = {f"{CELL_SUFFIX}0": {name: amounts[name] for name in PER_CELL if name in amounts}}
    else:
        overrides = Problems()
        granular.check_no_override(groups, granular.cell_totals(cpus.cells, cpus.emulator_cpus), overrides)
        if len(overrides):
            return {}
        asked = granular.cell_groups(cpus.cells, cpus.emulator_cpus)
        cells = {suffix: group.resources for suffix, group in asked.items()}
    # A cell that has nothing beside dedicated CPUs could get these from anywhere in a tree.
    return cells if all(amounts.keys() - {PCPU} for amounts in cells.values()) else {}


def _split_groups(
    cells: Mapping[str, Mapping[str, int]], rule: SplitRule, emulator_cpus: int
) -> Iterator[RequestGroup]:
    """The groups of the cells, and of the emulator where its CPU would upset the pairs of the first one."""
    apart = emulator_cpus if rule is SplitRule.REQUIRE else 0
    for number, (suffix, amounts) in enumerate(cells.items()):
        whole = {name: amount for name, amount in amounts.items() if name != PCPU}
        dedicated = amounts.get(PCPU, 0) - (0 if number else apart)
        split = {PCPU: dedicated} if dedicated else {}
        yield RequestGroup(suffix, {**whole, **split}, split=frozenset(split), split_rule=rule)
    if apart:
        yield RequestGroup(EMULATOR_SUFFIX, {PCPU: apart}, split=frozenset((PCPU,)))


def _plain_group(suffix: str, group: FlavorGroup) -> RequestGroup:
    required = tuple(frozenset((trait,)) for trait in sorted(group.required))
    return RequestGroup(suffix, group.resources, required=required, forbidden=group.forbidden)
