"""One query to Placement, put together from everything a flavor and an image ask for.

explicit entries + image traits + CPU plan   what is asked for by name
  -> defaults                                VCPU, MEMORY_MB, DISK_GB where no group mentions them
  -> additions                               memory encryption, platform traits, persistent memory
  -> zero stripping, trait conflicts
  -> granular form                           only with numa=granular and guest cells
  -> checks Placement would make
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from placement.flavors.nova import cells as numa_cells
from placement.flavors.nova.cells import Cell
from placement.flavors.nova.errors import Problems
from placement.flavors.nova.extra_specs import (
    BASE,
    DISK_GB,
    MEMORY_MB,
    PCPU,
    VCPU,
    ExplicitRequests,
    FlavorGroup,
    Groups,
    check_groups,
    check_trait_conflicts,
    merged,
    stripped,
)
from placement.flavors.nova.flavor import GRANULAR, Flavor, Options


@dataclass(frozen=True, slots=True)
class Request:
    """The parts of one query: groups by suffix, policy, traits of the root, suffixes tied together."""

    groups: Groups
    group_policy: str | None
    root_required: tuple[str, ...] = ()
    same_subtree: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class CpuShare:
    """The share of the CPU plan: its part of the base group, the emulator's CPU (0 or 1), the cells.

    `cell_count` is 0 without cells; `cells` are None while a problem keeps their split unknown.
    """

    request: FlavorGroup
    emulator_cpus: int
    cell_count: int
    cells: Sequence[Cell] | None


@dataclass(frozen=True, slots=True)
class Demand:
    """All that is asked for apart from CPUs: the flavor, its explicit entries, image traits, additions."""

    flavor: Flavor
    explicit: ExplicitRequests
    image_traits: FlavorGroup
    additions: FlavorGroup
    options: Options


def build_request(demand: Demand, cpus: CpuShare, problems: Problems) -> Request:
    """Return the query for this demand; adds a problem for each thing that cannot be asked.

    Source: nova-flavors.md, "Zero stripping", "NUMA cells as request groups", "A device tied to a cell".
    """
    groups = asked_groups(demand, cpus)
    policy = demand.explicit.group_policy
    root_required: tuple[str, ...] = ()
    check_trait_conflicts(groups, problems)
    if demand.options.numa == GRANULAR and cpus.cell_count:
        totals = {MEMORY_MB: demand.flavor.memory_mb}
        if cpus.cells is not None:
            totals = numa_cells.cell_totals(cpus.cells, cpus.emulator_cpus)
        numa_cells.check_no_override(groups, totals, problems)
        if cpus.cell_count > 1 and policy == "none":
            problems.add(
                "group_policy_conflict",
                f"group_policy: none, but {cpus.cell_count} guest NUMA cells need nodes of their own",
            )
        policy = "isolate" if cpus.cell_count > 1 else policy
        if cpus.cells is not None:
            base, root_required = numa_cells.without_cells(groups.get(BASE, FlavorGroup()))
            cells = numa_cells.cell_groups(cpus.cells, cpus.emulator_cpus)
            groups = stripped({**groups, BASE: base, **cells})
    check_groups(groups, policy, problems)
    # While a problem keeps the cells unknown, ties to them cannot be checked.
    if cpus.cells is None and len(problems):
        return Request(groups, policy, root_required)
    ties: list[tuple[str, ...]] = []
    for suffix, cell in sorted(demand.options.device_cells.items()):
        cell_suffix = f"{numa_cells.CELL_SUFFIX}{cell}"
        if suffix == BASE or suffix not in groups or cell_suffix not in groups:
            fault = f"there is no such group, or no group of guest NUMA cell {cell}"
            problems.add("options_invalid", f"options.device_cells: {suffix}: {fault}")
        ties.append((suffix, cell_suffix))
    return Request(groups, policy, root_required, tuple(ties))


def asked_groups(demand: Demand, cpus: CpuShare) -> dict[str, FlavorGroup]:
    """Return all that is asked for, with the totals of the cells in the base group.

    The flavor's own amounts come in where no group mentions their class, not even with 0.
    Source: nova-flavors.md, "Default amounts".
    """
    flavor = demand.flavor
    named = merged((demand.explicit.base, demand.image_traits, cpus.request))
    groups = {**demand.explicit.groups, BASE: named}
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
    groups[BASE] = merged((named, FlavorGroup(defaults), demand.additions))
    return stripped(groups)


# The query string of `GET /allocation_candidates`, and the lowest microversion that understands it.


_PLAIN_NUMBER = re.compile(r"[1-9][0-9]*")

# Minor versions of the Placement API, by the feature that came with them.
_RESOURCES = 10
_LIMIT = 16
_REQUIRED = 17
_FORBIDDEN = 22
_GRANULAR = 25
_TEXT_SUFFIXES = 33
_ROOT_REQUIRED = 35
_SAME_SUBTREE = 36


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
    suffixes = [suffix for suffix in request.groups if suffix != BASE]
    features = (
        (_RESOURCES, True),
        (_LIMIT, limit is not None),
        (_REQUIRED, any(group.required for group in groups)),
        (_FORBIDDEN, any(group.forbidden for group in groups)),
        (_GRANULAR, bool(suffixes) or request.group_policy is not None),
        (_TEXT_SUFFIXES, not all(map(_PLAIN_NUMBER.fullmatch, suffixes))),
        (_ROOT_REQUIRED, bool(request.root_required)),
        (_SAME_SUBTREE, bool(request.same_subtree)),
    )
    return f"1.{max(minor for minor, used in features if used)}"
