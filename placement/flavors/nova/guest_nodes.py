"""The guest's NUMA nodes as laid out by flavor and image: how many, with which CPUs and how much memory."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from placement.flavors.nova.cpuset import CpusetTextError, CpuSpec, parse_cpuset
from placement.flavors.nova.flavor import Flavor, ImageProperties, given, integer
from placement.flavors.nova.problems import REFUSED, Problems, shown

NODES_KEY = "hw:numa_nodes"
IMAGE_NODES_KEY = "hw_numa_nodes"
CPUS_KEY = "hw:numa_cpus"
IMAGE_CPUS_KEY = "hw_numa_cpus"
MEMORY_KEY = "hw:numa_mem"
IMAGE_MEMORY_KEY = "hw_numa_mem"
PAGE_SIZE_KEY = "hw:mem_page_size"
PAGE_SIZE_IMAGE_KEY = "hw_mem_page_size"
MAX_LISTED_CELLS = 128
_PLAIN_COUNT = re.compile(r"[1-9][0-9]{0,17}")
_OPEN_TO_IMAGES = ("any", "large")
_WORDS = ("small", *_OPEN_TO_IMAGES)
_WITH_UNIT = re.compile(r"\+?(?P<number>[0-9]{0,18}\.?[0-9]{1,18})(?:[KMGTPEZYRQ]i?)?(?:b|bit|B)")


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
    cpus = _listed_cpus(flavor, image, problems)
    memory = _listed_memory(flavor, image, problems)
    if isinstance(count, str):
        return None
    if not (cpus or memory):
        return _equal_nodes(flavor, count, problems)
    if len(cpus) == len(memory) == count:
        return _listed_nodes(flavor, cpus, memory, problems)
    listed = f"{len(cpus)} CPU lists and {len(memory)} memory amounts"
    problems.add("numa_incomplete", "hw:numa_cpus.N, hw:numa_mem.N", f"{listed} for {count} NUMA nodes")
    return None


def _listed_cpus(flavor: Flavor, image: ImageProperties, problems: Problems) -> list[CpuSpec | None]:
    """Return the listed CPUs of each node; a refused text is None in its place."""
    cpus: list[CpuSpec | None] = []
    for key, text in _listed(flavor.extra_specs, CPUS_KEY, image, IMAGE_CPUS_KEY, problems):
        try:
            cpus.append(parse_cpuset(text))
        except CpusetTextError as error:
            problems.add("cpuset_invalid", key, str(error))
            cpus.append(None)
    return cpus


def _listed_memory(flavor: Flavor, image: ImageProperties, problems: Problems) -> list[int | None]:
    """Return the listed MiB of each node; a refused text is None in its place."""
    memory: list[int | None] = []
    for key, text in _listed(flavor.extra_specs, MEMORY_KEY, image, IMAGE_MEMORY_KEY, problems):
        memory.append(integer(text))
        if memory[-1] is None:
            problems.add("numa_mem_invalid", key, f"{shown(text)} is not a whole number of MiB")
    return memory


def _equal_nodes(flavor: Flavor, count: int, problems: Problems) -> list[GuestNode] | None:
    """Return nodes with equal parts of the guest, or None if it cannot be divided."""
    if flavor.vcpus % count or flavor.memory_mb % count:
        problems.add(
            "numa_asymmetric",
            "hw:numa_nodes",
            f"{flavor.vcpus} CPUs and {flavor.memory_mb} MiB do not divide by {count}",
        )
        return None
    width, part = flavor.vcpus // count, flavor.memory_mb // count
    return [GuestNode(tuple(range(node * width, (node + 1) * width)), part) for node in range(count)]


def _listed_nodes(
    flavor: Flavor, cpus: Sequence[CpuSpec | None], memory: Sequence[int | None], problems: Problems
) -> list[GuestNode] | None:
    found_before = len(problems)
    _check_cpus(flavor, cpus, problems)
    _check_memory(flavor, memory, problems)
    if len(problems) > found_before or None in cpus or None in memory:
        return None
    listed = zip(cpus, memory, strict=True)
    return [
        GuestNode(tuple(node), amount) for node, amount in listed if node is not None and amount is not None
    ]


def _check_cpus(flavor: Flavor, cpus: Sequence[CpuSpec | None], problems: Problems) -> None:
    """Add a problem for each CPU that is in several nodes, in none, or not in the guest."""
    last = flavor.vcpus - 1
    guest = left = CpuSpec(((0, last),))
    for number, node in enumerate(cpus):
        if node is None:
            continue
        inside = node & guest
        twice, outside = inside.without(left), node.without(guest)
        # A node is read CPU by CPU upward: problems within the guest come before CPUs beyond it.
        if twice:
            problems.add("numa_cpu_duplicate", f"hw:numa_cpus.{number}", f"{twice} is in an earlier node")
        if outside:
            problems.add("numa_cpu_out_of_range", f"hw:numa_cpus.{number}", f"{outside} is above {last}")
        left = left.without(inside)
    if None not in cpus and left:
        problems.add("numa_cpu_unassigned", "hw:numa_cpus.N", f"guest CPU {left} is in no NUMA node")


def _check_memory(flavor: Flavor, memory: Sequence[int | None], problems: Problems) -> None:
    """Add a problem unless the memory of the nodes is that of the flavor."""
    known = [amount for amount in memory if amount is not None]
    # A negative part cannot be a part of anything, even if the sum comes out right.
    if len(known) == len(memory) and (sum(known) != flavor.memory_mb or min(known) < 0):
        parts = " + ".join(map(str, known))
        problems.add(
            "numa_memory_mismatch", "hw:numa_mem.N", f"{parts} is not the flavor's {flavor.memory_mb} MiB"
        )


def node_count(
    extra_specs: Mapping[str, str], image: ImageProperties, problems: Problems
) -> int | str | None:
    """Return the number of cells asked for, None if neither side sets it, or REFUSED after a problem.

    Adds `numa_nodes_invalid`, or `numa_image_forbidden` if both sides say one, even the same.
    Source: nova-flavors.md, "Guest NUMA cells".
    """
    ours, theirs = given(extra_specs, NODES_KEY), given(image, IMAGE_NODES_KEY)
    if ours is not None and theirs is not None:
        problems.add("numa_image_forbidden", IMAGE_NODES_KEY, f"the flavor has {NODES_KEY} already")
        return REFUSED
    key, text = (NODES_KEY, ours) if ours is not None else (IMAGE_NODES_KEY, theirs)
    if text is None:
        return None
    if not _PLAIN_COUNT.fullmatch(text):
        problems.add("numa_nodes_invalid", key, f"{shown(text)} is not a plain whole number of 1 or more")
        return REFUSED
    return int(text)


def _listed(
    extra_specs: Mapping[str, str], key: str, image: ImageProperties, image_key: str, problems: Problems
) -> list[tuple[str, str]]:
    """Return keys and texts of flavor or image, from `.0` upward to the first gap.

    Adds `numa_image_forbidden`. Source: nova-flavors.md, "Maps".
    """
    sides = []
    for texts, name in ((extra_specs, key), (image, image_key)):
        keys = [f"{name}.{cell}" for cell in range(MAX_LISTED_CELLS)]
        sides.append([(each, texts[each]) for each in takewhile(texts.get, keys)])
    ours, theirs = sides
    if ours and theirs:
        problems.add("numa_image_forbidden", f"{image_key}.0", f"the flavor has {key}.0 already")
    return ours or theirs


def has_page_size(extra_specs: Mapping[str, str], image: ImageProperties, problems: Problems) -> bool:
    """Return whether a page size is set; an image may set one only under a flavor that says any or large.

    Adds `page_size_invalid` or `page_size_forbidden`. Source: nova-flavors.md, "Page size".
    """
    ours, theirs = given(extra_specs, PAGE_SIZE_KEY), given(image, PAGE_SIZE_IMAGE_KEY)
    checked = [(PAGE_SIZE_KEY, ours)]
    if theirs is not None and ours in _OPEN_TO_IMAGES:
        checked.append((PAGE_SIZE_IMAGE_KEY, theirs))
    for key, text in checked:
        if text is not None and not _is_page_size(text):
            expected = "small, large, any, a number of KiB, or a number with a unit such as 2MB"
            problems.add("page_size_invalid", key, f"{shown(text)} is not one of {expected}")
    if theirs is not None and ours not in _OPEN_TO_IMAGES and (ours is None or _is_page_size(ours)):
        problems.add(
            "page_size_forbidden",
            PAGE_SIZE_IMAGE_KEY,
            f"allowed only if {PAGE_SIZE_KEY} of the flavor is any or large",
        )
    return ours is not None


def _is_page_size(text: str) -> bool:
    number = integer(text)
    if text in _WORDS or number is not None:
        return number is None or number > 0
    match = _WITH_UNIT.fullmatch(text)
    return match is not None and float(match["number"]) > 0
