"""The guest's NUMA nodes as laid out by flavor and image, and their CPUs split into cells."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from placement.engine.domain.inventories import NUMA_ROOT
from placement.engine.numa.cpus import format_cpu_list
from placement.flavors.nova.cpu_plan import CpuPlan, CpuSet, CpusetTextError, parse_cpuset
from placement.flavors.nova.extra_specs import BASE, MEMORY_MB, PCPU, VCPU, FlavorGroup, Groups
from placement.flavors.nova.flavor import REFUSED, Flavor, ImageProperties, Problems, given, integer, shown

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
        problems.add("numa_image_forbidden", f"{image_key}.0: the flavor has {key}.0 already")
    return ours or theirs


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
    checked = [(FLAVOR_KEY, ours)]
    if theirs is not None and ours in _OPEN_TO_IMAGES:
        checked.append((IMAGE_KEY, theirs))
    for key, text in checked:
        if text is not None and not _is_page_size(text):
            expected = "small, large, any, a number of KiB, or a number with a unit such as 2MB"
            problems.add("page_size_invalid", f"{key}: {shown(text)} is none of {expected}")
    if theirs is not None and ours not in _OPEN_TO_IMAGES and (ours is None or _is_page_size(ours)):
        problems.add(
            "page_size_forbidden", f"{IMAGE_KEY}: allowed only if {FLAVOR_KEY} of the flavor is any or large"
        )
    return ours is not None


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
    # A refused text stands as None in its place.
    cpus: list[CpuSet | None] = []
    for key, text in _listed(flavor.extra_specs, CPUS_KEY, image, IMAGE_CPUS_KEY, problems):
        try:
            cpus.append(parse_cpuset(text))
        except CpusetTextError as error:
            problems.add("cpuset_invalid", f"{key}: {error}")
            cpus.append(None)
    memory: list[int | None] = []
    for key, text in _listed(flavor.extra_specs, MEMORY_KEY, image, IMAGE_MEMORY_KEY, problems):
        memory.append(integer(text))
        if memory[-1] is None:
            problems.add("numa_mem_invalid", f"{key}: {shown(text)} is no whole number of MiB")
    if isinstance(count, str):
        return None
    if cpus or memory:
        if len(cpus) == len(memory) == count:
            return _listed_nodes(flavor, cpus, memory, problems)
        listed = f"{len(cpus)} CPU lists and {len(memory)} memory amounts"
        problems.add("numa_incomplete", f"hw:numa_cpus.N, hw:numa_mem.N: {listed} for {count} NUMA nodes")
        return None
    if flavor.vcpus % count or flavor.memory_mb % count:
        problems.add(
            "numa_asymmetric",
            f"hw:numa_nodes: {flavor.vcpus} CPUs and {flavor.memory_mb} MiB do not divide by {count}",
        )
        return None
    width, part = flavor.vcpus // count, flavor.memory_mb // count
    return [GuestNode(tuple(range(node * width, (node + 1) * width)), part) for node in range(count)]


def _listed_nodes(
    flavor: Flavor, cpus: Sequence[CpuSet | None], memory: Sequence[int | None], problems: Problems
) -> list[GuestNode] | None:
    found_before = len(problems)
    last = flavor.vcpus - 1
    guest = left = CpuSet(((0, last),))
    for number, node in enumerate(cpus):
        if node is None:
            continue
        inside = node & guest
        twice, outside = inside.without(left), node.without(guest)
        # A node is read CPU by CPU upward: what is wrong within the guest comes before what is beyond it.
        if twice:
            problems.add("numa_cpu_duplicate", f"hw:numa_cpus.{number}: {twice} is in an earlier node")
        if outside:
            problems.add("numa_cpu_out_of_range", f"hw:numa_cpus.{number}: {outside} is above {last}")
        left = left.without(inside)
    if None not in cpus and left:
        problems.add("numa_cpu_unassigned", f"hw:numa_cpus.N: guest CPU {left} is in no NUMA node")
    known_cpus = [node for node in cpus if node is not None]
    known_memory = [amount for amount in memory if amount is not None]
    # A negative part cannot be a part of anything, even if the sum comes out right.
    if None not in memory and (sum(known_memory) != flavor.memory_mb or min(known_memory) < 0):
        parts = " + ".join(map(str, known_memory))
        problems.add(
            "numa_memory_mismatch", f"hw:numa_mem.N: {parts} is not the flavor's {flavor.memory_mb} MiB"
        )
    if len(problems) > found_before or None in cpus or None in memory:
        return None
    return [GuestNode(tuple(node), amount) for node, amount in zip(known_cpus, known_memory, strict=True)]


# Guest NUMA cells: each node's CPUs split into shared and dedicated ones.


def deal(cell_sizes: Sequence[int], shared: int, dedicated: int) -> list[tuple[int, int]]:
    """Return how many (shared, dedicated) CPUs each cell gets; the counts have to fill the cells exactly.

    One walk over the cells gives out all shared CPUs and then, without starting over, all dedicated ones; a
    full cell is skipped. So only the shared CPUs have to be walked: the dedicated ones fill what is left.
    Raises ValueError. Source: nova-flavors.md, "Round robin for a mixed policy from amounts".
    """
    if shared < 0 or dedicated < 0 or min(cell_sizes, default=0) < 0 or shared + dedicated != sum(cell_sizes):
        raise ValueError(
            f"{shared} shared and {dedicated} dedicated CPUs do not fill cells of {list(cell_sizes)}"
        )
    dealt = [0] * len(cell_sizes)
    waiting = deque(cell for cell, size in enumerate(cell_sizes) if size)
    for _ in range(shared):
        cell = waiting.popleft()
        dealt[cell] += 1
        if dealt[cell] < cell_sizes[cell]:
            waiting.append(cell)
    return [(given, size - given) for given, size in zip(dealt, cell_sizes, strict=True)]


@dataclass(frozen=True, slots=True)
class Cell:
    """One guest NUMA cell: shared and dedicated guest CPU ids, both ascending, and memory in MiB."""

    id: int
    cpuset: tuple[int, ...]
    pcpuset: tuple[int, ...]
    memory: int


def split_cells(nodes: Sequence[GuestNode], plan: CpuPlan) -> tuple[Cell, ...]:
    """Return the cells of a settled plan: known dedicated CPUs are cut by node, amounts dealt in turn.

    Source: nova-flavors.md, "Maps", "Round robin for a mixed policy from amounts".
    """
    dedicated = plan.dedicated
    if dedicated is None:
        sizes = [len(node.cpus) for node in nodes]
        dealt = deal(sizes, sum(sizes) - plan.dedicated_count, plan.dedicated_count)
        # In each node the shared CPUs come before the dedicated ones.
        tails = (node.cpus[shared:] for node, (shared, _) in zip(nodes, dealt, strict=True))
        dedicated = frozenset().union(*tails)
    return tuple(
        Cell(
            number,
            tuple(cpu for cpu in node.cpus if cpu not in dedicated),
            tuple(cpu for cpu in node.cpus if cpu in dedicated),
            node.memory_mb,
        )
        for number, node in enumerate(nodes)
    )


def dedicated_cpus(cells: Sequence[Cell]) -> str:
    """Return all dedicated guest CPUs of the cells as CPU set text, or empty if there are none.

    Source: nova-flavors.md, "dedicated_cpus", "Writing a set back".
    """
    return format_cpu_list(cpu for cell in cells for cpu in cell.pcpuset)


# Guest NUMA cells as request groups, for hosts with one provider per NUMA node.


CELL_SUFFIX = "_numa"
PER_CELL = (VCPU, PCPU, MEMORY_MB)


def check_no_override(groups: Groups, totals: Mapping[str, int], problems: Problems) -> None:
    """Add `numa_override_conflict` unless the base group holds just the totals (class -> amount) of cells.

    A class that is not in `totals` is not compared. No suffixed group may ask for what the cells ask for, nor
    have a suffix like theirs. Source: nova-flavors.md, "NUMA cells as request groups".
    """
    base = groups.get(BASE, FlavorGroup())
    for name, total in totals.items():
        amount = base.resources.get(name, 0)
        if amount != total:
            problems.add(
                "numa_override_conflict",
                f"resources:{name}: the base group asks for {amount}, the guest NUMA cells for {total}",
            )
    for suffix, group in groups.items():
        if suffix.startswith(CELL_SUFFIX):
            problems.add(
                "numa_override_conflict", f"resources{suffix}: {CELL_SUFFIX}... is for guest NUMA cells"
            )
        for name in PER_CELL:
            if suffix != BASE and name in group.resources:
                problems.add(
                    "numa_override_conflict", f"resources{suffix}:{name}: the guest NUMA cells ask for it"
                )


def cell_totals(cells: Sequence[Cell], emulator_cpus: int) -> dict[str, int]:
    """Return what the cells ask for together, the emulator's CPU included."""
    return {
        VCPU: sum(len(cell.cpuset) for cell in cells),
        PCPU: sum(len(cell.pcpuset) for cell in cells) + emulator_cpus,
        MEMORY_MB: sum(cell.memory for cell in cells),
    }


def cell_groups(cells: Sequence[Cell], emulator_cpus: int) -> dict[str, FlavorGroup]:
    """Return one group per cell with its CPUs and memory, on a NUMA root; cell 0 carries the emulator.

    Source: nova-flavors.md, "NUMA cells as request groups".
    """
    groups: dict[str, FlavorGroup] = {}
    for cell in cells:
        amounts = cell_totals((cell,), emulator_cpus if cell.id == 0 else 0)
        asked = {name: amount for name, amount in amounts.items() if amount}
        groups[f"{CELL_SUFFIX}{cell.id}"] = FlavorGroup(asked, required=frozenset((NUMA_ROOT,)))
    return groups


def without_cells(base: FlavorGroup) -> tuple[FlavorGroup, tuple[str, ...]]:
    """Return the base group without the amounts of cells, and traits that move to the root if it is empty.

    Traits stay in the group while it has resources, because a group of traits alone is not allowed.
    Source: nova-flavors.md, "NUMA cells as request groups".
    """
    rest = {name: amount for name, amount in base.resources.items() if name not in PER_CELL}
    if rest:
        return FlavorGroup(rest, base.required, base.forbidden), ()
    return FlavorGroup(), base.traits
