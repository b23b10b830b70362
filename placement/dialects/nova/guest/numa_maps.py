"""What flavor and image say about guest NUMA cells: how many, which CPUs and how much memory in each."""

from __future__ import annotations

import re
from collections.abc import Mapping

from placement.dialects.nova.errors import REFUSED, Problems, shown
from placement.dialects.nova.flavor import ImageProperties, given, integer
from placement.dialects.nova.guest.cpuset import CpuSet, CpusetTextError, parse_cpuset

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
    """The number of cells asked for, None if neither side says it, REFUSED after a problem.

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
    """The CPUs of each cell, None if there is no list; a text that was refused stands as None in its place.

    Adds `numa_image_forbidden` or `cpuset_invalid`. Source: nova-flavors.md, "Maps".
    """
    texts = _one_sided_list(extra_specs, CPUS_KEY, image, IMAGE_CPUS_KEY, problems)
    return [_parse_cpus(key, text, problems) for key, text in texts] or None


def listed_memory(
    extra_specs: Mapping[str, str], image: ImageProperties, problems: Problems
) -> list[int | None] | None:
    """The memory of each cell in MiB, None if there is no list; a refused text stands as None in its place.

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
    """Keys and texts from `.0` upward to the first gap."""
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
