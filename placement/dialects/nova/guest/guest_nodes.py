"""The guest's NUMA nodes as flavor and image lay them out, before CPUs are split in shared and dedicated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from placement.dialects.nova.errors import Problems
from placement.dialects.nova.flavor import Flavor, ImageProperties
from placement.dialects.nova.guest import numa_maps
from placement.dialects.nova.guest.cpuset import CpuSet
from placement.dialects.nova.page_size import has_page_size


@dataclass(frozen=True, slots=True)
class GuestNode:
    """One guest NUMA node: its CPU ids, ascending, and its memory in MiB."""

    cpus: tuple[int, ...]
    memory_mb: int


def guest_nodes(
    flavor: Flavor, image: ImageProperties, *, pinned: bool, has_pmem: bool, problems: Problems
) -> list[GuestNode] | None:
    """The guest's nodes, None if it has none or if they cannot be told because of a problem.

    There are nodes if their number or a page size is set, if the guest has persistent memory, or if its CPUs
    are pinned. Source: nova-flavors.md, "Guest NUMA cells".
    """
    count = numa_maps.node_count(flavor.extra_specs, image, problems)
    paged = has_page_size(flavor.extra_specs, image, problems)
    if count is None:
        if not (paged or pinned or has_pmem):
            return None
        count = 1
    cpus = numa_maps.listed_cpus(flavor.extra_specs, image, problems)
    memory = numa_maps.listed_memory(flavor.extra_specs, image, problems)
    if isinstance(count, str):
        return None
    if cpus is None and memory is None:
        return _even_nodes(flavor, count, problems)
    if cpus is None or memory is None or not len(cpus) == len(memory) == count:
        listed = f"{len(cpus or ())} CPU lists and {len(memory or ())} memory amounts"
        problems.add("numa_incomplete", f"hw:numa_cpus.N, hw:numa_mem.N: {listed} for {count} NUMA nodes")
        return None
    return _listed_nodes(flavor, cpus, memory, problems)


def _even_nodes(flavor: Flavor, count: int, problems: Problems) -> list[GuestNode] | None:
    if flavor.vcpus % count or flavor.memory_mb % count:
        problems.add(
            "numa_asymmetric",
            f"hw:numa_nodes: {flavor.vcpus} CPUs and {flavor.memory_mb} MiB do not divide by {count}",
        )
        return None
    width = flavor.vcpus // count
    return [
        GuestNode(tuple(range(node * width, (node + 1) * width)), flavor.memory_mb // count)
        for node in range(count)
    ]


def _listed_nodes(
    flavor: Flavor, cpus: Sequence[CpuSet | None], memory: Sequence[int | None], problems: Problems
) -> list[GuestNode] | None:
    found_before = len(problems)
    known_cpus = [node for node in cpus if node is not None]
    known_memory = [amount for amount in memory if amount is not None]
    left = _check_listed_cpus(flavor.vcpus, cpus, problems)
    if len(known_cpus) == len(cpus) and left:
        problems.add("numa_cpu_unassigned", f"hw:numa_cpus.N: guest CPU {left} is in no NUMA node")
    if len(known_memory) == len(memory):
        _check_listed_memory(flavor.memory_mb, known_memory, problems)
    if len(problems) > found_before or None in cpus or None in memory:
        return None
    return [GuestNode(tuple(node), amount) for node, amount in zip(known_cpus, known_memory, strict=True)]


def _check_listed_cpus(vcpus: int, cpus: Sequence[CpuSet | None], problems: Problems) -> CpuSet:
    """The guest CPUs that are in no node; a CPU beyond the guest or in two nodes is a problem."""
    guest = left = CpuSet(((0, vcpus - 1),))
    for number, node in enumerate(cpus):
        if node is None:
            continue
        inside = node & guest
        twice, outside = inside.without(left), node.without(guest)
        # A node is read CPU by CPU upward: what is wrong within the guest comes before what is beyond it.
        if twice:
            problems.add("numa_cpu_duplicate", f"hw:numa_cpus.{number}: {twice} is in an earlier node")
        if outside:
            problems.add("numa_cpu_out_of_range", f"hw:numa_cpus.{number}: {outside} is above {vcpus - 1}")
        left = left.without(inside)
    return left


def _check_listed_memory(memory_mb: int, listed: Sequence[int], problems: Problems) -> None:
    # A negative part cannot be a part of anything, even if the sum comes out right.
    if sum(listed) != memory_mb or min(listed) < 0:
        parts = " + ".join(map(str, listed))
        problems.add("numa_memory_mismatch", f"hw:numa_mem.N: {parts} is not the flavor's {memory_mb} MiB")
