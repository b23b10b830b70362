"""One query to Placement, put together from everything a flavor and an image ask for.

explicit entries + image traits + CPU plan   what is asked for by name
  -> defaults                                VCPU, MEMORY_MB, DISK_GB where no group mentions them
  -> additions                               memory encryption, platform traits, persistent memory
  -> zero stripping, trait conflicts
  -> granular form                           only with numa=granular and guest cells
  -> checks Placement would make
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from placement.dialects.nova.errors import Problems
from placement.dialects.nova.extra_specs import ExplicitRequests
from placement.dialects.nova.flavor import GRANULAR, Flavor, Options
from placement.dialects.nova.groups import (
    BASE,
    FlavorGroup,
    Groups,
    check_groups,
    check_trait_conflicts,
    merged,
    stripped,
)
from placement.dialects.nova.guest import granular
from placement.dialects.nova.guest.cells import Cell
from placement.dialects.nova.resource_classes import (
    DISK_GB,
    MEMORY_MB,
    PCPU,
    VCPU,
)


@dataclass(frozen=True, slots=True)
class Request:
    """The parts of one query: groups by suffix, policy, traits of the root, suffixes tied together."""

    groups: Groups
    group_policy: str | None
    root_required: tuple[str, ...] = ()
    same_subtree: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class CpuShare:
    """What the CPU plan contributes: its part of the base group, the emulator's CPU (0 or 1), the cells.

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
    """The query for this demand; adds a problem for each thing that cannot be asked.

    Source: nova-flavors.md, "Default amounts", "Zero stripping", "NUMA cells as request groups".
    """
    groups = asked_groups(demand, cpus)
    check_trait_conflicts(groups, problems)
    request = Request(groups, demand.explicit.group_policy)
    if demand.options.numa == GRANULAR and cpus.cell_count:
        request = _granular(request, demand, cpus, problems)
    check_groups(request.groups, request.group_policy, problems)
    # While a problem keeps the cells unknown, ties to them cannot be checked.
    if cpus.cells is None and len(problems):
        return request
    return _tied(request, demand.options, problems)


def asked_groups(demand: Demand, cpus: CpuShare) -> dict[str, FlavorGroup]:
    """All that is asked for, with the totals of the cells in the base group."""
    named = merged((demand.explicit.base, demand.image_traits, cpus.request))
    groups = {**demand.explicit.groups, BASE: named}
    mentioned = {name for group in groups.values() for name in group.resources}
    groups[BASE] = merged((named, _defaults(demand, mentioned), demand.additions))
    return stripped(groups)


def _defaults(demand: Demand, mentioned: set[str]) -> FlavorGroup:
    """The flavor's own amounts where no group mentions the class, not even with 0.

    Source: nova-flavors.md, "Default amounts".
    """
    flavor = demand.flavor
    amounts: dict[str, int] = {}
    if not mentioned & {VCPU, PCPU}:
        amounts[VCPU] = flavor.vcpus
    if MEMORY_MB not in mentioned:
        amounts[MEMORY_MB] = flavor.memory_mb
    if DISK_GB not in mentioned:
        root_gb = 0 if demand.options.boot_from_volume else flavor.root_gb
        # Swap is in MiB and a provider counts whole GiB, so a started one is a full one.
        amounts[DISK_GB] = root_gb + flavor.ephemeral_gb + -(-flavor.swap_mb // 1024)
    return FlavorGroup(amounts)


def _granular(request: Request, demand: Demand, cpus: CpuShare, problems: Problems) -> Request:
    totals = {MEMORY_MB: demand.flavor.memory_mb}
    if cpus.cells is not None:
        totals = granular.cell_totals(cpus.cells, cpus.emulator_cpus)
    granular.check_no_override(request.groups, totals, problems)
    policy = granular.isolated_policy(request.group_policy, cpus.cell_count, problems)
    if cpus.cells is None:
        return Request(request.groups, policy)
    base, root_required = granular.without_cells(request.groups.get(BASE, FlavorGroup()))
    cells = granular.cell_groups(cpus.cells, cpus.emulator_cpus)
    groups = stripped({**request.groups, BASE: base, **cells})
    return Request(groups, policy, root_required)


def _tied(request: Request, options: Options, problems: Problems) -> Request:
    """The request with each device group kept below the provider of its guest cell.

    Source: nova-flavors.md, "A device tied to a cell".
    """
    ties: list[tuple[str, ...]] = []
    for suffix, cell in sorted(options.device_cells.items()):
        cell_suffix = f"{granular.CELL_SUFFIX}{cell}"
        if suffix == BASE or suffix not in request.groups or cell_suffix not in request.groups:
            fault = f"there is no such group, or no group of guest NUMA cell {cell}"
            problems.add("options_invalid", f"options.device_cells: {suffix}: {fault}")
        ties.append((suffix, cell_suffix))
    return Request(request.groups, request.group_policy, request.root_required, tuple(ties))
