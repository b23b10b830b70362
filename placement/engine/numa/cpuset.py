"""Sets of CPUs: as frozen sets, as bits of an integer (bit i is CPU or NUMA node i), as Linux lists."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from placement.engine.domain.errors import BadRequest


def mask_of(members: Iterable[int]) -> int:
    """Return the mask that has the bits of these non-negative numbers."""
    mask = 0
    for member in members:
        mask |= 1 << member
    return mask


def members_of(mask: int) -> Iterator[int]:
    """Yield the numbers of the set bits, ascending."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def lowest_bits(mask: int, count: int) -> int:
    """Return the `count` lowest set bits of a mask; all of them if it has no more."""
    if mask.bit_count() <= count:
        return mask
    rest = mask
    for _ in range(count):
        rest &= rest - 1
    return mask ^ rest


CpuSet = frozenset[int]

MAX_RANGE_END = 4096

# Eighteen digits always fit 64 bits; a longer number cannot be a CPU and would only cost memory.
_PART = re.compile(r"([0-9]{1,18})(?:-([0-9]{1,18}))?")


class CpuListError(BadRequest, ValueError):
    """A CPU list that is not in Linux syntax, or ids that no CPU list can hold."""


def parse_cpu_list(text: str) -> CpuSet:
    """Return the logical CPU ids that a list such as `0-3,8` names; the empty text names none.

    Parts may come in any order and repeat; a descending range is empty. Raises CpuListError for blanks,
    empty or non-decimal parts, and ranges that end above 4096. Source: koordinator.md, "CPU list syntax".
    """
    cpus: set[int] = set()
    for part in text.split(",") if text else ():
        match = _PART.fullmatch(part)
        if match is None:
            shown = part if len(part) <= 40 else part[:40] + "..."
            raise CpuListError(f"{shown!r} is not a CPU id or a range of CPU ids")
        first, last = int(match[1]), int(match[2] or match[1])
        if match[2] is not None and last > MAX_RANGE_END:
            raise CpuListError(f"the range {part} ends above {MAX_RANGE_END}")
        cpus.update(range(first, last + 1))
    return frozenset(cpus)


def format_cpu_list(cpus: Iterable[int]) -> str:
    """Return the canonical list of logical CPU ids: ascending, joined (`0-3,8,10-11`), none = empty text.

    Raises CpuListError for a negative id. Source: koordinator.md, "CPU list syntax".
    """
    ranges: list[list[int]] = []
    for cpu in sorted(set(cpus)):
        if cpu < 0:
            raise CpuListError(f"{cpu} is not a CPU id")
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    parts = []
    for first, last in ranges:
        parts.append(str(first) if first == last else f"{first}-{last}")
    return ",".join(parts)
