"""The request of a flavor and an image, put together from everything they ask for.

explicit entries + image traits + CPU plan   entries by name
  -> defaults                                VCPU, MEMORY_MB, DISK_GB where no group mentions them
  -> additions                               memory encryption, platform traits, persistent memory
  -> zero stripping, trait conflicts
  -> granular form                           only with numa=granular and guest cells
  -> checks that Placement makes
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from placement.common.microversions import Feature
from placement.flavors.nova import cells as nova_cells
from placement.flavors.nova import flavor_groups
from placement.flavors.nova.extra_specs import DISK_GB, MEMORY_MB, PCPU, VCPU, ExplicitRequests
from placement.flavors.nova.flavor import GRANULAR, Flavor, Options
from placement.flavors.nova.problems import Problems

_PLAIN_NUMBER = re.compile(r"[1-9][0-9]*")


@dataclass(frozen=True, slots=True)
class Request:
    """The parts of one query: groups by suffix, policy, traits of the root, suffixes tied together."""

    groups: flavor_groups.FlavorGroups
    group_policy: str | None
    root_required: tuple[str, ...] = ()
    same_subtree: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class CpuShare:
    """The share of the CPU plan: its part of the base group, the emulator's CPU (0 or 1), the cells.

    `cell_count` is 0 without cells; `cells` are None while a problem keeps their split unknown.
    """

    group: flavor_groups.FlavorGroup
    emulator_cpus: int
    cell_count: int
    cells: Sequence[nova_cells.Cell] | None


@dataclass(frozen=True, slots=True)
class Demand:
    """All that is asked for apart from CPUs: the flavor, its explicit entries, image traits, additions."""

    flavor: Flavor
    explicit: ExplicitRequests
    image_group: flavor_groups.FlavorGroup
    additional_group: flavor_groups.FlavorGroup
    options: Options


def build_request(demand: Demand, cpus: CpuShare, problems: Problems) -> Request:
    """Return the query for this demand; adds a problem for each thing that cannot be asked.

    Source: nova-flavors.md, "Zero stripping", "NUMA cells as request groups", "A device tied to a cell".
    """
    groups = asked_groups(demand, cpus)
    policy = demand.explicit.group_policy
    root_required: tuple[str, ...] = ()
    flavor_groups.check_trait_conflicts(groups, problems)
    if demand.options.numa == GRANULAR and cpus.cell_count:
        totals = {MEMORY_MB: demand.flavor.memory_mb}
        if cpus.cells is not None:
            totals = nova_cells.cell_totals(cpus.cells, cpus.emulator_cpus)
        nova_cells.check_no_override(groups, totals, problems)
        if cpus.cell_count > 1 and policy == "none":
            problems.add(
                "group_policy_conflict",
                "group_policy",
                f"none, but {cpus.cell_count} guest NUMA cells need nodes of their own",
            )
        policy = "isolate" if cpus.cell_count > 1 else policy
        if cpus.cells is not None:
            base, root_required = nova_cells.without_cells(
                groups.get(flavor_groups.BASE, flavor_groups.FlavorGroup())
            )
            cells = nova_cells.cell_groups(cpus.cells, cpus.emulator_cpus)
            groups = flavor_groups.stripped({**groups, flavor_groups.BASE: base, **cells})
    flavor_groups.check_groups(groups, policy, problems)
    # While a problem keeps the cells unknown, ties to them cannot be checked.
    if cpus.cells is None and len(problems):
        return Request(groups, policy, root_required)
    ties: list[tuple[str, ...]] = []
    for suffix, cell in sorted(demand.options.device_cells.items()):
        cell_suffix = f"{nova_cells.CELL_SUFFIX}{cell}"
        if suffix == flavor_groups.BASE or suffix not in groups or cell_suffix not in groups:
            fault = f"there is no such group, or no group of guest NUMA cell {cell}"
            problems.add("options_invalid", "options.device_cells", f"{suffix}: {fault}")
        ties.append((suffix, cell_suffix))
    return Request(groups, policy, root_required, tuple(ties))


def asked_groups(demand: Demand, cpus: CpuShare) -> dict[str, flavor_groups.FlavorGroup]:
    """Return all that is asked for, with the totals of the cells in the base group.

    The flavor's own amounts come in where no group mentions their class, not even with 0.
    Source: nova-flavors.md, "Default amounts".
    """
    flavor = demand.flavor
    named = flavor_groups.merged((demand.explicit.base, demand.image_group, cpus.group))
    groups = {**demand.explicit.groups, flavor_groups.BASE: named}
    mentioned = {name for group in groups.values() for name in group.resources}
    defaults: dict[str, int] = {}
    if not mentioned & {VCPU, PCPU}:
        defaults[VCPU] = flavor.vcpus
    if MEMORY_MB not in mentioned:
        defaults[MEMORY_MB] = flavor.memory_mb
    if DISK_GB not in mentioned:
        root_gb = 0 if demand.options.boot_from_volume else flavor.root_gb
        # Swap is in MiB and a provider counts whole GiB, so it is rounded up.
        defaults[DISK_GB] = root_gb + flavor.ephemeral_gb + -(-flavor.swap_mb // 1024)
    groups[flavor_groups.BASE] = flavor_groups.merged(
        (named, flavor_groups.FlavorGroup(defaults), demand.additional_group)
    )
    return flavor_groups.stripped(groups)


def query_string(request: Request, limit: int | None) -> str:
    """Return the form-encoded query: pairs sorted as text, entries of each value sorted as text.

    Source: nova-flavors.md, "The query string".
    """
    pairs = [("same_subtree", ",".join(suffixes)) for suffixes in request.same_subtree]
    if limit is not None:
        pairs.append(("limit", str(limit)))
    if request.group_policy is not None:
        pairs.append(("group_policy", request.group_policy))
    if request.root_required:
        pairs.append(("root_required", ",".join(request.root_required)))
    for suffix, group in request.groups.items():
        amounts = sorted(f"{name}:{amount}" for name, amount in group.resources.items())
        pairs.append((f"resources{suffix}", ",".join(amounts)))
        if group.traits:
            pairs.append((f"required{suffix}", ",".join(group.traits)))
    return urlencode(sorted(pairs))


def minimum_microversion(request: Request, limit: int | None) -> str:
    """Return the lowest microversion, such as `1.25`, that takes every parameter of the query.

    Source: placement-api.md, "Query grammar".
    """
    groups = request.groups.values()
    suffixes = [suffix for suffix in request.groups if suffix != flavor_groups.BASE]
    features = (
        (Feature.CANDIDATES, True),
        (Feature.CANDIDATES_LIMIT, limit is not None),
        (Feature.CANDIDATES_TRAITS, any(group.required for group in groups)),
        (Feature.FORBIDDEN_TRAITS, any(group.forbidden for group in groups)),
        (Feature.GRANULAR_GROUPS, bool(suffixes) or request.group_policy is not None),
        (Feature.STRING_SUFFIXES, not all(map(_PLAIN_NUMBER.fullmatch, suffixes))),
        (Feature.ROOT_REQUIRED, bool(request.root_required)),
        (Feature.SAME_SUBTREE, bool(request.same_subtree)),
    )
    return str(max(feature.value for feature, used in features if used))
