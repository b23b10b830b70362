"""Sets of small numbers as integers: bit i stands for CPU i or NUMA node i."""

from __future__ import annotations

from collections.abc import Iterable, Iterator


def mask_of(members: Iterable[int]) -> int:
    """The mask that has the bits of these non-negative numbers."""
    mask = 0
    for member in members:
        mask |= 1 << member
    return mask


def members_of(mask: int) -> Iterator[int]:
    """The numbers whose bits are set, ascending."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def lowest_bits(mask: int, count: int) -> int:
    """The `count` lowest set bits of a mask; all of them if it has no more."""
    if mask.bit_count() <= count:
        return mask
    rest = mask
    for _ in range(count):
        rest &= rest - 1
    return mask ^ rest
