"""Which classes count on a host, and how full a request makes them.

Source: scoring.md, "Which classes count for a host".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from placement.scoring.weights import Weighted

Part = Mapping[str, int | str]
"""What one class adds to a score, for people to read."""

# Counted even where the request asks for none of them.
ALWAYS_COUNTED = frozenset({"VCPU", "PCPU", "MEMORY_MB", "DISK_GB"})


class Skipped(StrEnum):
    """Why a listed class does not count on a host."""

    NO_CAPACITY = "no_capacity"
    NOT_REQUESTED = "not_requested"


class Load(NamedTuple):
    """A counted class: `total` would be in use of `capacity`, which is above 0."""

    name: str
    weight: int
    total: int
    capacity: int


def loads_of(
    resources: Sequence[Weighted],
    request: Mapping[str, int],
    capacity: Mapping[str, int],
    used: Mapping[str, int],
) -> tuple[list[Load], dict[str, Skipped]]:
    """The counted classes and the skipped ones; amounts per class, absent means 0."""
    counted: list[Load] = []
    skipped: dict[str, Skipped] = {}
    for name, weight in resources:
        asked = request.get(name, 0)
        if capacity.get(name, 0) <= 0:
            skipped[name] = Skipped.NO_CAPACITY
        elif not asked and name not in ALWAYS_COUNTED:
            skipped[name] = Skipped.NOT_REQUESTED
        else:
            counted.append(Load(name, weight, used.get(name, 0) + asked, capacity[name]))
    return counted, skipped
