"""A nova flavor and image properties, translated to a Placement query and to the guest's CPU layout.

    input checks -> extra spec rules (strict only) -> memory encryption -> CPU plan -> guest nodes
      -> platform traits -> request -> query string

Every step adds the problems it finds to one list and goes on, so that a caller learns of all at once.
The order of the steps is the order in which the rules let a problem decide the outcome.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace

from placement.engine.domain.groups import CandidateQuery
from placement.flavors.nova import flavor_request
from placement.flavors.nova.additions import memory_encryption, persistent_memory, platform_traits
from placement.flavors.nova.cells import Cell, dedicated_cpus, split_cells
from placement.flavors.nova.core_trees import core_tree_query
from placement.flavors.nova.cpu_facts import DEDICATED, PINNED
from placement.flavors.nova.cpu_plan import CpuPlan, plan_cpus
from placement.flavors.nova.extra_spec_rules import (
    KNOWN_EXTRA_SPECS,
    NOT_DECIDED,
    UNUSED,
    extra_spec_fault,
    ignored_extra_specs,
)
from placement.flavors.nova.extra_specs import image_traits, read_extra_specs, suggestible
from placement.flavors.nova.flavor import Flavor, ImageProperties, Options, check_input, read_document
from placement.flavors.nova.flavor_groups import FlavorGroup, FlavorGroups, merged
from placement.flavors.nova.guest_nodes import guest_nodes
from placement.flavors.nova.problems import Problems

DEFAULT_OPTIONS = Options()


@dataclass(frozen=True, slots=True)
class Translation:
    """The answer of the service for a flavor.

    `groups` maps a suffix to its group; `root_required` lists traits, forbidden ones with `!`;
    `same_subtree` lists tied suffixes. `querystring` needs `microversion` at least; `fallback_querystring`
    asks for shared CPUs where hosts do not report dedicated ones. `cpu_policy` is dedicated, mixed, shared or
    None, `thread_policy` prefer, isolate, require or None. `cells` is None for a guest without NUMA cells;
    `dedicated_cpus` is CPU set text of guest CPU ids; `extra_specs` has the extra specs of the flavor.
    `core_tree_query`: the query for hosts with cores as providers, None if that does not differ.
    """

    groups: FlavorGroups
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
    extra_specs: Mapping[str, str]
    core_tree_query: CandidateQuery | None = None


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
        known = suggestible(KNOWN_EXTRA_SPECS, flavor.extra_specs)
        for key, text in flavor.extra_specs.items():
            fault = extra_spec_fault(key, text, known)
            if fault is not None:
                problems.add("extra_spec_invalid", key, fault)
    encryption = memory_encryption(flavor.extra_specs, image, problems)
    explicit = read_extra_specs(flavor.extra_specs)
    traits = image_traits(image)
    plan = plan_cpus(flavor, image, explicit, traits, problems)
    pmem = persistent_memory(flavor.extra_specs)
    nodes = guest_nodes(flavor, image, pinned=plan.policy in PINNED, has_pmem=bool(pmem), problems=problems)
    additions = merged((encryption, pmem, platform_traits(flavor.extra_specs, image, problems)))
    demand = flavor_request.Demand(flavor, explicit, traits, additions, options)
    cells = split_cells(nodes, plan) if nodes is not None and plan.settled else None
    share = flavor_request.CpuShare(plan.group, plan.emulator_cpus, len(nodes or ()), cells)
    request = flavor_request.build_request(demand, share, problems)
    problems.raise_if_any()
    # For core trees the rule of a split says more than the traits of a thread policy key.
    amounts = replace(share, group=FlavorGroup(share.group.resources))
    totals = replace(request, groups=flavor_request.asked_groups(demand, amounts))
    return Translation(
        groups=request.groups,
        group_policy=request.group_policy,
        root_required=request.root_required,
        same_subtree=request.same_subtree,
        querystring=flavor_request.query_string(request, options.limit),
        fallback_querystring=_fallback(demand, plan, cells),
        microversion=flavor_request.minimum_microversion(request, options.limit),
        cpu_policy=plan.policy,
        thread_policy=plan.thread_policy,
        cells=cells,
        dedicated_cpus=dedicated_cpus(cells or ()),
        extra_specs=flavor.extra_specs,
        core_tree_query=core_tree_query(totals, share, plan.thread_policy),
    )


def _fallback(demand: flavor_request.Demand, plan: CpuPlan, cells: tuple[Cell, ...] | None) -> str | None:
    """Return the query as if the policy keys were not there, for hosts that do not report PCPU yet.

    It is None unless a key makes the policy dedicated, or if nothing could be asked for that way.
    Source: nova-flavors.md, "PCPU fallback".
    """
    if not (demand.options.pcpu_fallback and plan.policy == DEDICATED and plan.from_keys):
        return None
    unpinned = tuple(replace(cell, cpuset=cell.pcpuset, pcpuset=()) for cell in cells or ())
    problems = Problems()
    request = flavor_request.build_request(
        demand, flavor_request.CpuShare(FlavorGroup(), 0, len(unpinned), unpinned), problems
    )
    return None if len(problems) else flavor_request.query_string(request, demand.options.limit)


def translate_document(document: object) -> Translation:
    """Translate `{"flavor": {...}, "image": {...}, "options": {...}}`; image and options may be absent.

    Flavor and Options define the fields; image maps property names to texts. Raises FlavorRefused.
    """
    return translate(*read_document(document))


def translation_document(translation: Translation) -> dict[str, object]:
    """Return the answer as JSON values, empty parts of groups left out."""
    document = {
        each.name: getattr(translation, each.name)
        for each in fields(Translation)
        if each.name not in ("core_tree_query", "extra_specs")
    }
    groups = {
        suffix: {
            "resources": dict(group.resources),
            "required": sorted(group.required),
            "forbidden": sorted(group.forbidden),
        }
        for suffix, group in translation.groups.items()
    }
    document["groups"] = {
        suffix: {name: part for name, part in parts.items() if part} for suffix, parts in groups.items()
    }
    if translation.cells is not None:
        document["cells"] = [asdict(cell) for cell in translation.cells]
    ignored = ignored_extra_specs(translation.extra_specs)
    document["warnings"] = [each.code for each in ignored if each.code not in (UNUSED, NOT_DECIDED)]
    document["ignored"] = [str(each) for each in ignored]
    return document
