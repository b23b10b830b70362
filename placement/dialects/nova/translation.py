"""A nova flavor and image properties, translated to a Placement query and to the guest's CPU layout.

    input checks -> extra spec rules (strict only) -> memory encryption -> CPU plan -> guest nodes
      -> platform traits -> request -> query string

Every step adds what it finds wrong to one list and goes on, so that a caller learns of all problems at once;
the order of the steps is the order in which the rules let a problem decide the outcome.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from placement.dialects.nova.core_trees import core_tree_query
from placement.dialects.nova.errors import Problems
from placement.dialects.nova.extra_spec_rules import check_extra_specs
from placement.dialects.nova.extra_specs import image_traits, read_extra_specs
from placement.dialects.nova.flavor import Flavor, ImageProperties, Options
from placement.dialects.nova.groups import FlavorGroup, Groups, merged
from placement.dialects.nova.guest.cells import Cell, dedicated_cpus, split_cells
from placement.dialects.nova.guest.cpu_plan import CpuPlan, plan_cpus
from placement.dialects.nova.guest.cpu_policy import DEDICATED, PINNED
from placement.dialects.nova.guest.guest_nodes import guest_nodes
from placement.dialects.nova.inputs import check_input
from placement.dialects.nova.memory_encryption import memory_encryption
from placement.dialects.nova.persistent_memory import persistent_memory
from placement.dialects.nova.platform_traits import platform_traits
from placement.dialects.nova.querystring import minimum_microversion, query_string
from placement.dialects.nova.request import (
    CpuShare,
    Demand,
    Request,
    asked_groups,
    build_request,
)
from placement.domain.groups import CandidateQuery

DEFAULT_OPTIONS = Options()


@dataclass(frozen=True, slots=True)
class Translation:
    """What the service answers for a flavor.

    `groups` maps a suffix to what it asks for; `root_required` lists traits, forbidden ones with `!`;
    `same_subtree` lists tied suffixes. `querystring` needs `microversion` at least; `fallback_querystring`
    asks for shared CPUs where hosts do not report dedicated ones. `cpu_policy` is dedicated, mixed, shared or
    None, `thread_policy` prefer, isolate, require or None. `cells` is None for a guest without NUMA cells;
    `dedicated_cpus` is CPU set text of guest CPU ids; `warnings` holds sorted codes, repeats kept.
    `on_core_trees`: what is asked of hosts whose cores are providers, None if that is the same.
    """

    groups: Groups
    group_policy: str | None
    root_required: tuple[str, ...]
    same_subtree: tuple[tuple[str, ...], ...]
    querystring: str
    fallback_querystring: str | None
    microversion: str
    cpu_policy: str | None
    thread_policy: str | None
    cells: tuple[Cell, ...] | None
    dedicated_cpus: str
    warnings: tuple[str, ...]
    on_core_trees: CandidateQuery | None = None


def translate(
    flavor: Flavor, image: ImageProperties | None = None, options: Options = DEFAULT_OPTIONS
) -> Translation:
    """Translate, or raise FlavorRefused with every problem there is.

    Source: nova-flavors.md, "Order of checks and error codes".
    """
    image = {} if image is None else image
    problems = Problems()
    check_input(flavor, image, options, problems)
    problems.raise_if_any()
    if options.strict:
        check_extra_specs(flavor.extra_specs, problems)
    encryption = memory_encryption(flavor.extra_specs, image, problems)
    explicit = read_extra_specs(flavor.extra_specs)
    traits = image_traits(image)
    plan = plan_cpus(flavor, image, explicit, traits, problems)
    pmem = persistent_memory(flavor.extra_specs)
    nodes = guest_nodes(flavor, image, pinned=plan.policy in PINNED, has_pmem=bool(pmem), problems=problems)
    additions = merged((encryption, pmem, platform_traits(flavor.extra_specs, image, problems)))
    demand = Demand(flavor, explicit, traits, additions, options)
    cells = split_cells(nodes, plan) if nodes is not None and plan.settled else None
    share = CpuShare(plan.request, plan.emulator_cpus, len(nodes or ()), cells)
    request = build_request(demand, share, problems)
    problems.raise_if_any()
    # For core trees the rule of a split says more than the traits of a thread policy key.
    amounts = replace(share, request=FlavorGroup(share.request.resources))
    totals = replace(request, groups=asked_groups(demand, amounts))
    return replace(
        _translation(demand, plan, cells, request),
        on_core_trees=core_tree_query(totals, share, plan.thread_policy),
    )


def _translation(
    demand: Demand, plan: CpuPlan, cells: tuple[Cell, ...] | None, request: Request
) -> Translation:
    limit = demand.options.limit
    return Translation(
        groups=request.groups,
        group_policy=request.group_policy,
        root_required=request.root_required,
        same_subtree=request.same_subtree,
        querystring=query_string(request, limit),
        fallback_querystring=_fallback(demand, plan, cells),
        microversion=minimum_microversion(request, limit),
        cpu_policy=plan.policy,
        thread_policy=plan.thread_policy,
        cells=cells,
        dedicated_cpus=dedicated_cpus(cells or ()),
        warnings=demand.explicit.warnings,
    )


def _fallback(demand: Demand, plan: CpuPlan, cells: tuple[Cell, ...] | None) -> str | None:
    """The query as if the policy keys were not there, for hosts that do not report PCPU yet.

    None unless the policy is dedicated by a key, and when nothing could be asked for that way.
    Source: nova-flavors.md, "PCPU fallback".
    """
    if not (demand.options.pcpu_fallback and plan.policy == DEDICATED and plan.from_keys):
        return None
    unpinned = tuple(replace(cell, cpuset=cell.pcpuset, pcpuset=()) for cell in cells or ())
    problems = Problems()
    request = build_request(demand, CpuShare(FlavorGroup(), 0, len(unpinned), unpinned), problems)
    return None if len(problems) else query_string(request, demand.options.limit)
