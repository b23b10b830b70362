"""The guest's NUMA nodes as laid out by flavor and image, before CPUs are split into shared and dedicated."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from placement.flavors.nova.cpuset import CpuSet, CpusetTextError, parse_cpuset
from placement.flavors.nova.errors import REFUSED, Problems, shown
from placement.flavors.nova.flavor import Flavor, ImageProperties, given, integer

# What flavor and image say about guest NUMA cells: how many, which CPUs and how much memory in each.


NODES_KEY = "hw:numa_nodes"
IMAGE_NODES_KEY = "hw_numa_nodes"
CPUS_KEY = "hw:numa_cpus"
IMAGE_CPUS_KEY = "hw_numa_cpus"
MEMORY_KEY = "hw:numa_mem"
IMAGE_MEMORY_KEY = "hw_numa_mem"
MAX_LISTED_CELLS = 128

_PLAIN_COUNT = re.compile(r"[1-9][0-9]{0,17}")


def node_count(
    extra_specs: Mapping[str, str], image: ImageProperties, problems: Problems
) -> int | str | None:
    """Return the number of cells asked for, None if neither side sets it, or REFUSED after a problem.

    Adds `numa_nodes_invalid`, or `numa_image_forbidden` if both sides say one, even the same.
    Source: nova-flavors.md, "Guest NUMA cells".
    """
    ours, theirs = given(extra_specs, NODES_KEY), given(image, IMAGE_NODES_KEY)
    if ours is not None and theirs is not None:
        problems.add("numa_image_forbidden", f"{IMAGE_NODES_KEY}: the flavor has {NODES_KEY} already")
        return REFUSED
    key, text = (NODES_KEY, ours) if ours is not None else (IMAGE_NODES_KEY, theirs)
    if text is None:
        return None
    if not _PLAIN_COUNT.fullmatch(text):
        problems.add("numa_nodes_invalid", f"{key}: {shown(text)} is no plain whole number from 1")
        return REFUSED
    return int(text)


def listed_cpus(
    extra_specs: Mapping[str, str], image: ImageProperties, problems: Problems
) -> list[CpuSet | None] | None:
    """Return the CPUs of each cell, or None without a list; a refused text stands as None in its place.

    Adds `numa_image_forbidden` or `cpuset_invalid`. Source: nova-flavors.md, "Maps".
    """
    texts = _one_sided_list(extra_specs, CPUS_KEY, image, IMAGE_CPUS_KEY, problems)
    return [_parse_cpus(key, text, problems) for key, text in texts] or None


def listed_memory(
    extra_specs: Mapping[str, str], image: ImageProperties, problems: Problems
) -> list[int | None] | None:
    """Return each cell's memory in MiB, or None without a list; a refused text stands as None in its place.

    Adds `numa_image_forbidden` or `numa_mem_invalid`. Source: nova-flavors.md, "Maps".
    """
    texts = _one_sided_list(extra_specs, MEMORY_KEY, image, IMAGE_MEMORY_KEY, problems)
    return [_parse_memory(key, text, problems) for key, text in texts] or None


def _one_sided_list(
    extra_specs: Mapping[str, str], key: str, image: ImageProperties, image_key: str, problems: Problems
) -> list[tuple[str, str]]:
    ours, theirs = _listed(extra_specs, key), _listed(image, image_key)
    if ours and theirs:
        problems.add("numa_image_forbidden", f"{image_key}.0: the flavor has {key}.0 already")
    return ours or theirs


def _listed(texts: Mapping[str, str], key: str) -> list[tuple[str, str]]:
    """Return keys and texts from `.0` upward to the first gap."""
    found: list[tuple[str, str]] = []
    for cell in range(MAX_LISTED_CELLS):
        text = given(texts, f"{key}.{cell}")
        if text is None:
            break
        found.append((f"{key}.{cell}", text))
    return found


def _parse_cpus(key: str, text: str, problems: Problems) -> CpuSet | None:
    try:
        return parse_cpuset(text)
    except CpusetTextError as error:
        problems.add("cpuset_invalid", f"{key}: {error}")
        return None


def _parse_memory(key: str, text: str, problems: Problems) -> int | None:
    memory = integer(text)
    if memory is None:
        problems.add("numa_mem_invalid", f"{key}: {shown(text)} is no whole number of MiB")
    return memory


# `hw:mem_page_size` and `hw_mem_page_size`: a page size makes guest NUMA cells.


FLAVOR_KEY = "hw:mem_page_size"
IMAGE_KEY = "hw_mem_page_size"

_OPEN_TO_IMAGES = ("any", "large")
_WORDS = ("small", *_OPEN_TO_IMAGES)
_WITH_UNIT = re.compile(r"\+?(?P<number>[0-9]{0,18}\.?[0-9]{1,18})(?:[KMGTPEZYRQ]i?)?(?:b|bit|B)")


def has_page_size(extra_specs: Mapping[str, str], image: ImageProperties, problems: Problems) -> bool:
    """Return whether a page size is set; an image may set one only under a flavor that says any or large.

    Adds `page_size_invalid` or `page_size_forbidden`. Source: nova-flavors.md, "Page size".
    """
    ours, theirs = given(extra_specs, FLAVOR_KEY), given(image, IMAGE_KEY)
    if ours is not None:
        _check(FLAVOR_KEY, ours, problems)
    if theirs is not None:
        if ours in _OPEN_TO_IMAGES:
            _check(IMAGE_KEY, theirs, problems)
        elif ours is None or _is_page_size(ours):
            problems.add(
                "page_size_forbidden",
                f"{IMAGE_KEY}: allowed only if {FLAVOR_KEY} of the flavor is any or large",
            )
    return ours is not None


def _check(key: str, text: str, problems: Problems) -> None:
    if not _is_page_size(text):
        expected = "small, large, any, a number of KiB, or a number with a unit such as 2MB"
        problems.add("page_size_invalid", f"{key}: {shown(text)} is none of {expected}")


def _is_page_size(text: str) -> bool:
    number = integer(text)
    if text in _WORDS or number is not None:
        return number is None or number > 0
    match = _WITH_UNIT.fullmatch(text)
    return match is not None and float(match["number"]) > 0


@dataclass(frozen=True, slots=True)
class GuestNode:
    """One guest NUMA node: its CPU ids, ascending, and its memory in MiB."""

    cpus: tuple[int, ...]
    memory_mb: int


def guest_nodes(
    flavor: Flavor, image: ImageProperties, *, pinned: bool, has_pmem: bool, problems: Problems
) -> list[GuestNode] | None:
    """Return the guest's nodes, or None if it has none or if a problem keeps them unknown.

    There are nodes if their number or a page size is set, if the guest has persistent memory, or if its CPUs
    are pinned. Source: nova-flavors.md, "Guest NUMA cells".
    """
    count = node_count(flavor.extra_specs, image, problems)
    paged = has_page_size(flavor.extra_specs, image, problems)
    if count is None:
        if not (paged or pinned or has_pmem):
            return None
        count = 1
    cpus = listed_cpus(flavor.extra_specs, image, problems)
    memory = listed_memory(flavor.extra_specs, image, problems)
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
    """Return the guest CPUs that are in no node; a CPU beyond the guest or in two nodes is a problem."""
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
